"""The terminal while agents work: what is said, once and for good, and below it the tree of agents, drawn anew.

Rule 1: who adds something never waits, unless it is a question, and nothing is written more often than ten times a second, by one task.
Rule 2: whole lines are written once, raw, for the terminal to wrap. The line that is not finished is part of what is
drawn anew, so nothing has to be known of where the terminal left off.
Rule 3: between two writes the cursor is visible, at the beginning of what is drawn anew, and no mode is changed. So
clearing from there on is right at every size, however the terminal has wrapped its rows since; and when we are
killed there is nothing to restore. A terminal that takes only a part of a write has the rest of it to come.
Rule 4: when the user stops us, nothing that is drawn anew is left there; it is drawn when we go on.
Rule 5: nothing that models, tools or names say is obeyed by the terminal.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import trio

from creche.scope import Registrar

from .._asking import Ask, forget_what_was_typed
from .._console import PATIENCE, Console
from .._signals import stop_as_told
from .._team import Team
from .._text import one_line, printable
from ._below import Below
from ._style import plain, styled
from ._tree import draw
from ._tty import Tty
from ._unfinished import Unfinished

INTERVAL = 0.1
"""Seconds between two writes."""


class Screen:
    """Shows what is said and, below it, the agents. See `creche.cli._output.Output`.

    Args:
      tty: The terminal.
      clock: Gives the time, in seconds.
    """

    shows_agents = True

    def __init__(self, tty: Tty, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._tty = tty
        self._team = Team()
        self._clock = clock
        # Where the answer goes if not here.
        self._elsewhere = None if tty.shows_answer else Console()
        self.unread = trio.CancelScope() if self._elsewhere is None else self._elsewhere.unread
        """Cancelled when the answer is taken no more."""
        self._error: OSError | None = None
        self._lines: list[str] = []
        self._unfinished = Unfinished()
        self._question: list[str] | None = None
        self._below = Below()
        self._out = bytearray()
        self._urgent = trio.Event()
        self._asking = trio.lowlevel.ParkingLot()
        self._is_closed = False
        self._has_last = False

    @property
    def error(self) -> OSError | None:
        """Why the answer is taken no more."""
        return self._error if self._elsewhere is None else self._elsewhere.error

    # ---------------------------------------------------------------- what to show

    def follow(self, registrar: Registrar) -> None:
        """Show the agents at the registrar's scope and below it."""
        self._team.follow(registrar, self._clock)

    def say(self, text: str) -> None:
        """Write more of the answer."""
        if self._elsewhere is not None:
            self._elsewhere.say(text)
            return
        *whole, rest = printable(text).split("\n")
        for line in whole:
            self._lines.append(self._unfinished.take() + line)
        self._unfinished.add(rest)

    def end_line(self) -> None:
        """Let what comes next in the answer begin on a line of its own."""
        if self._elsewhere is not None:
            self._elsewhere.end_line()
        elif self._unfinished:
            self._lines.append(self._unfinished.take())

    def line(self, line: str) -> None:
        """Write a line about the answer, above what is not finished of it."""
        self._lines.append(one_line(line))

    @contextmanager
    def asking(self) -> Iterator[Ask]:
        """Leave the terminal to a question and its answer for the length of the block; yield what writes its lines."""
        question = self._question = self._lines
        self._lines = []

        async def ask(line: str) -> None:
            question.append(one_line(line))
            self._urgent.set()
            while (question or self._out) and self._error is None:
                await self._asking.park()

        try:
            yield ask
        finally:
            self._question = None
            self._lines = question + self._lines
            self._urgent.set()

    def close(self) -> None:
        """Let `run` end when everything is written."""
        self._is_closed = True
        self._urgent.set()
        if self._elsewhere is not None:
            self._elsewhere.close()

    # ---------------------------------------------------------------- writing it

    @trio.lowlevel.enable_ki_protection  # else Ctrl-C could end it between two steps of `trio.Event.wait`
    async def run(self) -> None:
        """Write what comes, until `close`."""
        async with trio.open_nursery() as nursery:
            if self._elsewhere is not None:
                nursery.start_soon(self._elsewhere.run)
            async with trio.open_nursery() as stops:
                stops.start_soon(self._heed_stops)
                await self._write()
                stops.cancel_scope.cancel()

    async def _write(self) -> None:
        while self._prepare():
            if self._out:
                with suppress(OSError):  # and writing says what is wrong
                    await trio.lowlevel.wait_writable(self._tty.descriptor)
                self._write_some()
            if not self._out:
                with trio.move_on_after(INTERVAL):
                    await self._urgent.wait()

    @trio.lowlevel.enable_ki_protection
    async def _heed_stops(self) -> None:
        """Take away what is drawn anew before the user stops us."""
        if signal.getsignal(signal.SIGTSTP) is signal.SIG_IGN:
            return
        with trio.open_signal_receiver(signal.SIGTSTP) as signals:
            async for _ in signals:
                self._write_now()
                if not self._out:
                    self._out += self._below.replace([], [], self._tty.size()).encode()
                    self._write_now()
                stop_as_told()

    def _write_now(self) -> None:
        """Write what is composed, as long as somebody reads it."""
        end = time.monotonic() + PATIENCE
        while self._out and self._tty.has_room(end - time.monotonic()):
            self._write_some()

    def drain(self) -> None:
        """Write what a cancellation has left, as long as somebody reads it. Outside of trio."""
        end = time.monotonic() + PATIENCE
        self._is_closed = True
        while self._prepare() and self._tty.has_room(end - time.monotonic()):
            self._write_some()
        if self._elsewhere is not None:
            self._elsewhere.drain()
        self._tty.close()

    @trio.lowlevel.enable_ki_protection
    def _prepare(self) -> bool:
        """Have something to write if there is anything new; tell whether there will be more."""
        if not self._out and not self._has_last:
            self._urgent = trio.Event()
            self._has_last = self._is_closed
            self._out += self._compose().encode(self._tty.encoding, "replace")
        return bool(self._out) or not self._has_last

    @trio.lowlevel.enable_ki_protection
    def _write_some(self) -> None:
        if self._asking:
            forget_what_was_typed()
        try:
            del self._out[: self._tty.write(self._out)]
        except OSError as error:  # it is gone, and with it everybody who could see anything
            self._out.clear()
            self._has_last = True
            self._error = error
            if self._elsewhere is None:
                self.unread.cancel()
        if not self._out:
            self._asking.unpark_all()

    # ---------------------------------------------------------------- what to write

    def _compose(self) -> str:
        """Return what brings the terminal from what it shows to what it should show."""
        if self._has_last:
            self.end_line()
        elif not self._tty.is_ours:
            return ""  # another job is in the foreground; what comes meanwhile is written later
        size = self._tty.size()
        lines = self._lines if self._question is None else self._question
        rows = self._rows(size) if self._question is None else []
        text = self._below.replace(lines, rows, size, stay=self._has_last)
        lines.clear()
        return text

    def _rows(self, size: os.terminal_size) -> list[str]:
        height = max(size.lines - 1, 1)
        unfinished = self._unfinished.rows(size.columns)
        # The tree has at least half of the terminal, and a blank row above it.
        room = min(max(height - len(unfinished), height // 2), height) - 1
        agents = self._team.rows()
        tree = (
            draw(
                agents,
                self._team.totals(),
                self._clock(),
                width=size.columns - 1,
                height=room,
                glyphs=self._tty.glyphs,
            )
            if agents
            else []
        )
        style = styled if self._tty.has_colour else plain
        above = unfinished[max(len(unfinished) - (height - 1 - len(tree)), 0) :]
        return [*above, "", *[style(line) for line in tree]]

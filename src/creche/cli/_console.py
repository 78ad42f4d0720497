"""Where the answer and the lines about it go: stdout and stderr, in the order in which they came.

Rule 1: who adds something never waits, unless it is a question. One task writes, when there is room, so a slow reader holds up no agent.
Rule 2: it is written past the buffers of the two streams, so what is written and what waits is always known, and
nothing is lost or said twice when everything is cancelled.
"""

import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO, cast

import attrs
import trio

from creche.scope import Registrar

from ._asking import Ask, forget_what_was_typed
from ._text import printable
from ._writing import has_room, reopen, write_some

PATIENCE = 0.5
"""Seconds in which what is left is written when everything has ended."""


@attrs.define(eq=False)
class _Piece:
    """What waits to be written."""

    stream: TextIO
    """Where."""
    data: bytearray
    """The rest of it."""
    is_question: bool = False
    """Whether somebody is asked here."""


class Console:
    """Writes text to stdout as it comes, and lines to stderr. See `creche.cli._output.Output`."""

    shows_agents = False

    def __init__(self) -> None:
        self.error: OSError | None = None
        """Why stdout takes nothing more."""
        self.unread = trio.CancelScope()
        """Cancelled when stdout takes nothing more."""
        self._out: TextIO = sys.stdout
        self._err = cast("TextIO | None", sys.stderr)
        self._waiting: deque[_Piece] = deque()
        self._more = trio.Event()
        self._asking = trio.lowlevel.ParkingLot()
        self._is_closed = False
        self._is_midline = False
        self._is_seen = self._out.isatty()
        # A terminal is written to as if it were no stream of ours; that lasts as long as the process.
        self._again = {
            stream: reopen(stream.fileno())
            for stream in (self._out, self._err)
            if stream is not None and stream.isatty()
        }
        self._is_one_screen = self._is_seen and self._err is not None and self._err.isatty()

    # ---------------------------------------------------------------- what to write

    def say(self, text: str) -> None:
        """Write more of the answer."""
        if text and self._is_seen:
            text = printable(text)  # a file gets every byte of it, a terminal nothing that it would obey
        if text:
            self._is_midline = not text.endswith("\n")
            self._put(self._out, text)

    def end_line(self) -> None:
        """Let what comes next in the answer begin on a line of its own."""
        if self._is_midline:
            self.say("\n")

    def line(self, line: str) -> None:
        """Write a line about the answer, or several, without what a terminal would obey."""
        self._put_line(line)

    @contextmanager
    def asking(self) -> Iterator[Ask]:
        """Yield what writes the lines of a question: where any other line would be."""

        async def ask(line: str) -> None:
            question = self._put_line(line, is_question=True)
            while question is not None and question.data:
                await self._asking.park()

        yield ask

    def _put_line(self, line: str, *, is_question: bool = False) -> _Piece | None:
        if self._is_one_screen:
            self.end_line()
        return None if self._err is None else self._put(self._err, f"{printable(line)}\n", is_question=is_question)

    def _put(self, stream: TextIO, text: str, *, is_question: bool = False) -> _Piece:
        data = text.encode(stream.encoding, "backslashreplace")
        last = self._waiting[-1] if self._waiting else None
        if last is None or last.stream is not stream or last.is_question or is_question:
            last = _Piece(stream, bytearray(), is_question)
            self._waiting.append(last)
        last.data.extend(data)
        self._more.set()
        return last

    def follow(self, _registrar: Registrar) -> None:
        """Show nothing of the agents: lines say what they do."""

    def close(self) -> None:
        """Let `run` end when everything is written."""
        self._is_closed = True
        self._more.set()

    # ---------------------------------------------------------------- writing it

    @trio.lowlevel.enable_ki_protection  # else Ctrl-C could end it between two steps of `trio.Event.wait`
    async def run(self) -> None:
        """Write what comes, until `close`."""
        while not self._is_closed or self._waiting:
            if not self._waiting:
                self._more = trio.Event()
                await self._more.wait()
                continue
            with suppress(OSError):  # a file has always room, and nobody can wait for that
                await trio.lowlevel.wait_writable(self._descriptor(self._waiting[0].stream))
            self._write_some()

    def drain(self) -> None:
        """Write what a cancellation has left, as long as somebody reads it. Outside of trio."""
        end = time.monotonic() + PATIENCE
        while self._waiting and self._has_room(self._waiting[0].stream, end - time.monotonic()):
            self._write_some()

    def _descriptor(self, stream: TextIO) -> int:
        again = self._again.get(stream)
        return stream.fileno() if again is None else again

    def _has_room(self, stream: TextIO, seconds: float) -> bool:
        try:
            return has_room(self._descriptor(stream), seconds)
        except (OSError, ValueError):
            return True  # and writing says what is wrong

    @trio.lowlevel.enable_ki_protection
    def _write_some(self) -> None:
        """Write as much as there is room for."""
        piece = self._waiting[0]
        stream, data = piece.stream, piece.data
        if piece.is_question:
            forget_what_was_typed()
        try:
            if stream is self._err or self.error is None:
                del data[: write_some(self._descriptor(stream), data)]
            else:
                data.clear()
        except OSError as error:
            data.clear()
            if stream is self._out:
                self.error = error
                self.unread.cancel()
        if not data:
            self._waiting.popleft()
            self._asking.unpark_all()

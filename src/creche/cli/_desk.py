"""The terminal of a chat, from trio: what is typed comes as keys, what is written goes above the line.

Rule 1: nothing here waits for the terminal but `answer` and the end; what cannot be written yet waits in the editor.
Rule 2: the terminal is as it was when the block ends, also if its thread hangs because nobody reads what it writes.
"""

import signal
import sys
import termios
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import attrs
import trio

from creche._util import open_hidden_nursery

from ._console import Console
from ._editor import Editor
from ._history import open_history
from ._keys import Key
from ._signals import heeded
from ._tail import ANSWER, NOTE, PLAIN, QUESTION, TYPED, Fragment
from ._text import one_line, printable

PATIENCE = 2.0
"""Seconds in which the editor's thread is to end when it is told to."""


@attrs.frozen
class Signalled:
    """A signal that ends everything."""

    number: int
    """Such as ``signal.SIGTERM``."""


class Desk:
    """The terminal of a chat. Opened by `open_desk`."""

    def __init__(self, history: Path) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._send, self.keys = trio.open_memory_channel[Key | Signalled](float("inf"))
        """What is typed, in order."""
        self.begun = trio.Event()
        """Set when keys are read."""
        self._waiting = deque[Fragment]()
        self._editor = Editor(
            self._waiting,
            open_history(history, lambda problem: self._waiting.append((NOTE, problem))),
            tell=self._tell_from_thread,
            when_begun=lambda: self._token.run_sync_soon(self.begun.set),
        )
        self._editor_cancel_scope = trio.CancelScope(shield=True)
        self._signals_cancel_scope = trio.CancelScope()
        self._is_midline = False

    # ---------------------------------------------------------------- what to show

    def say(self, text: str) -> None:
        """Show more of the answer."""
        if text:
            self._is_midline = not text.endswith("\n")
            self._show(ANSWER, text)

    def end_line(self) -> None:
        """Let what comes next in the answer begin on a line of its own."""
        if self._is_midline:
            self.say("\n")

    def line(self, line: str) -> None:
        """Show a line, or several, as they are."""
        self._show(PLAIN, line)

    def note(self, note: str) -> None:
        """Show a remark, whose lines may be broken."""
        self._show(NOTE, note)

    def echo(self, line: str) -> None:
        """Show what was typed."""
        self._show(TYPED, line)

    def status(self, status: str) -> None:
        """Show who works."""
        self._editor.call(self._editor.show_status, one_line(status))

    def _show(self, style: str, text: str) -> None:
        self._waiting.append((style, printable(text)))
        self._editor.call(self._editor.flush)

    # ---------------------------------------------------------------- what is typed

    async def answer(self, question: str) -> str | None:
        """Show a question and wait for the line that answers it."""
        self._show(QUESTION, question)
        send, receive = trio.open_memory_channel[str](1)

        def take(text: str) -> None:
            self._token.run_sync_soon(send.send_nowait, text)

        self._editor.call(self._editor.begin_question, take)
        try:
            return await receive.receive()
        finally:
            self._editor.call(self._editor.end_question)

    def clear(self) -> None:
        """Clear the line that is being typed."""
        self._editor.call(self._editor.clear)

    def _tell_from_thread(self, key: Key) -> None:
        self._token.run_sync_soon(self._send.send_nowait, key)

    # ---------------------------------------------------------------- its life

    def close(self) -> None:
        """Take the line away; what is shown from here on is written when the block ends. Ctrl-C is a signal again."""
        self._signals_cancel_scope.cancel()
        self._editor.call(self._editor.end)
        self._editor_cancel_scope.deadline = trio.current_time() + PATIENCE

    def drain(self) -> None:
        """Write what is left when the editor has ended."""
        tail = self._editor.tail
        console = Console()
        for fragment in self._waiting:
            complete = tail.take(fragment)
            if complete is not None:
                console.say(complete[1])
        console.say(tail.take_rest())
        console.drain()

    async def run_editor(self) -> None:
        """Run the editor's thread until `close`, or until the terminal has gone."""
        with self._editor_cancel_scope:
            try:
                await trio.to_thread.run_sync(self._editor.run, abandon_on_cancel=True)
            except (EOFError, OSError):
                self._send.send_nowait(Signalled(signal.SIGHUP))  # which may be ignored, or come later
            finally:
                self.begun.set()

    async def run_signals(self) -> None:
        """Take signals for keys until `close`."""
        with self._signals_cancel_scope, trio.open_signal_receiver(signal.SIGINT, *heeded()) as signals:
            async for number in signals:
                if number == signal.SIGINT:
                    self._editor.call(self._editor.interrupt)
                else:
                    self._send.send_nowait(Signalled(number))


@asynccontextmanager
async def open_desk(history: Path) -> AsyncIterator[Desk]:
    """Take the terminal for the length of the block.

    Args:
      history: The file with what was typed before.
    """
    modes = termios.tcgetattr(sys.stdin.fileno())
    desk = Desk(history)
    try:
        async with open_hidden_nursery("the terminal") as nursery:
            nursery.start_soon(desk.run_editor, name="editor")
            nursery.start_soon(desk.run_signals, name="signals")
            try:
                await desk.begun.wait()
                yield desk
            finally:
                desk.close()
    finally:
        with suppress(termios.error):  # it has gone
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, modes)
        desk.drain()

"""Where the answer and the lines about it go: stdout and stderr, in the order in which they came.

Both are written in a thread, so that a reader that is slow holds up no agent.
"""

import os
import sys
from collections import deque
from typing import TextIO

import trio


class Console:
    """Writes text to stdout as it comes, and lines to stderr."""

    def __init__(self) -> None:
        self.error: OSError | None = None
        """Why stdout takes nothing more."""
        self.unread = trio.CancelScope()
        """Cancelled when stdout takes nothing more."""
        self._waiting: deque[tuple[TextIO, str]] = deque()
        self._more = trio.Event()
        self._is_closed = False
        self._is_midline = False
        self._is_one_screen = sys.stdout.isatty() and sys.stderr is not None and sys.stderr.isatty()

    # ---------------------------------------------------------------- what to write

    def say(self, text: str) -> None:
        """Write more of the answer. Synchronous, as are the others."""
        if text:
            self._is_midline = not text.endswith("\n")
            self._put(sys.stdout, text)

    def end_line(self) -> None:
        """Let what comes next in the answer begin on a line of its own."""
        if self._is_midline:
            self.say("\n")

    def line(self, line: str) -> None:
        """Write a line about the answer."""
        if self._is_one_screen:
            self.end_line()
        if sys.stderr is not None:
            self._put(sys.stderr, f"{line}\n")

    def _put(self, stream: TextIO, text: str) -> None:
        self._waiting.append((stream, text))
        self._more.set()

    def close(self) -> None:
        """Let `run` end when everything is written."""
        self._is_closed = True
        self._more.set()

    # ---------------------------------------------------------------- writing it

    async def run(self) -> None:
        """Write what comes, until `close`."""
        while not self._is_closed or self._waiting:
            if not self._waiting:
                self._more = trio.Event()
                await self._more.wait()
                continue
            stream, text = self._next()
            await trio.to_thread.run_sync(self._write, stream, text, abandon_on_cancel=True)
            if self.error is not None:
                self.unread.cancel()

    def drain(self) -> None:
        """Write what is left after a cancellation, and wait for it. Outside of trio."""
        while self._waiting:
            self._write(*self._next())

    def _next(self) -> tuple[TextIO, str]:
        """Take what goes to one of the two in a row."""
        stream, text = self._waiting.popleft()
        texts = [text]
        while self._waiting and self._waiting[0][0] is stream:
            texts.append(self._waiting.popleft()[1])
        return stream, "".join(texts)

    def _write(self, stream: TextIO, text: str) -> None:
        # Past the stream's own buffer: a thread that is left behind in a write must not hold its lock at the end.
        if stream is sys.stdout and self.error is not None:
            return
        rest = memoryview(text.encode(stream.encoding, "backslashreplace"))
        try:
            while rest:
                rest = rest[os.write(stream.fileno(), rest) :]
        except OSError as error:
            if stream is sys.stdout:
                self.error = error

r"""A regular expression of a model, searched so that nobody waits for it but the one who asked.

`re` holds the interpreter while it works on a line, and cannot be interrupted. With a choice to go back to, a line may
take it the square of its length, as ``x+y`` does with a line of x's alone, or forever, as ``(x+x+)+y``.

Rule 1: what may take long is searched by a process of its own, `_matching`, which is ended when the time is up, when
the caller is cancelled, and in any case when the matcher closes. Only the lines go there: what is read, and from where,
is decided here.

Rule 2: a pattern without a choice takes no more steps than its length for each character of a line. Where these are
few, they are made here.
"""

import json
import marshal
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import cast

from attrs import define, field

from creche.errors import ToolFailed

from .._paths import quoted, reason
from . import _matching

SECONDS = 10
"""How long the lines of one question may take."""

LOOK = 0.05
"""Seconds between two looks whether anybody waits for the answer."""

STEPS = 50_000_000
"""Characters of the lines, times those of the pattern, for which nobody is asked: about a tenth of a second."""

MOST_LINES = 10_000
"""Lines of one question, so that no answer takes long to read."""

_LATE = 2
"""Seconds of computing after its time in which the process ends by itself, if nobody is left to end it."""

_CHOICES = frozenset("*+?{|")


@contextmanager
def open_matcher(regex: re.Pattern[str], check: Callable[[], None]) -> Iterator["Matcher"]:
    """Search lines for the length of the block; ``check`` is called meanwhile, and what it raises ends a search."""
    with ExitStack() as stack:
        yield Matcher(regex, check, stack)


@define(eq=False)
class Matcher:
    """Finds the lines that match."""

    _regex: re.Pattern[str]
    _check: Callable[[], None]
    _stack: ExitStack
    """Ends the process, if one was started."""
    _channel: socket.socket | None = field(default=None, init=False)
    """To the process, from the first question on."""

    def find(self, lines: list[str], path: str) -> Iterator[tuple[int, int]]:
        """Give the index of each line that matches, and where the match starts.

        Args:
          lines: Each is searched by itself.
          path: Where they are from, for the sentence if it takes too long.

        Raises:
          ToolFailed: it takes too long, or the process cannot be started or has died.
        """
        pattern = self._regex.pattern
        if _CHOICES.isdisjoint(pattern) and len(pattern) * sum(map(len, lines)) <= STEPS:
            for index, line in enumerate(lines):
                if match := self._regex.search(line):
                    yield index, match.start()
            return
        for first in range(0, len(lines), MOST_LINES):
            found = self._ask(lines[first : first + MOST_LINES], path)
            for index, start in zip(found[::2], found[1::2], strict=True):
                yield first + index, start

    def _ask(self, lines: list[str], path: str) -> list[int]:
        limit = time.monotonic() + SECONDS
        try:
            if self._channel is None:
                self._channel = self._start()
                order = (self._regex.pattern, self._regex.flags, SECONDS + _LATE)
                self._send(marshal.dumps(order), self._channel, limit)
            self._send(marshal.dumps(lines), self._channel, limit)
            size = int.from_bytes(self._receive(_matching.HEADER, self._channel, limit), "big")
            return cast("list[int]", json.loads(self._receive(size, self._channel, limit)))
        except TimeoutError:
            raise ToolFailed(
                f"the pattern takes more than {SECONDS} seconds on lines of {quoted(path)}; write it without repetitions "
                "inside or next to each other, such as (a+)+ or .*.*, or search fewer or shorter lines"
            ) from None
        except (OSError, EOFError) as error:
            raise ToolFailed(
                "the process that searches for the pattern has died; write a plainer one, or search fewer or shorter lines"
            ) from error

    def _start(self) -> socket.socket:
        try:
            ours, theirs = socket.socketpair()
            self._stack.enter_context(ours)
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", _matching.__file__],
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # what a terminal sends to all, such as Ctrl-C, is not for it
                )
        except OSError as error:
            raise ToolFailed(f"the process that searches for the pattern cannot be started: {reason(error)}") from error
        self._stack.callback(_end, process)
        ours.settimeout(LOOK)
        return ours

    def _send(self, content: bytes, channel: socket.socket, limit: float) -> None:
        left = memoryview(_matching.frame_of(content))
        while left:
            with self._patience(limit):
                left = left[channel.send(left) :]

    def _receive(self, size: int, channel: socket.socket, limit: float) -> bytes:
        received = bytearray()
        while len(received) < size:
            with self._patience(limit):
                chunk = channel.recv(size - len(received))
                if not chunk:
                    raise EOFError
                received += chunk
        return bytes(received)

    @contextmanager
    def _patience(self, limit: float) -> Iterator[None]:
        """Let one try be in vain, unless the time is up or nobody waits any more; what is there is taken at any time."""
        try:
            yield
        except TimeoutError:
            self._check()
            if time.monotonic() > limit:
                raise


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()

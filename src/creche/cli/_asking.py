"""Asking on a terminal: what was typed before a question is shown is no answer to it.

Who writes a question throws the rest away in the step before, and again if the terminal takes only a part of it. Not
after it: a program that answers for the user does so at once. Not when the question is put: a terminal that somebody
has stopped with Ctrl-S takes keys all the time, and no question.
"""

import contextlib
import sys
import termios
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Protocol

Ask = Callable[[str], Awaitable[None]]
"""Writes a line of a question, and returns when the terminal has it or is gone."""


class Asking(Protocol):
    """Where a question can be written."""

    def line(self, line: str, /) -> None:
        """Write a line that is no question."""
        ...

    def asking(self) -> AbstractContextManager[Ask]:
        """Leave the terminal to a question and its answer for the length of the block."""
        ...


def forget_what_was_typed() -> None:
    """Throw away what was typed on stdin and not read yet."""
    with contextlib.suppress(termios.error):  # it has ended, which is seen when it is read
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)

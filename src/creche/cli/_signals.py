"""The signals that end a command: Ctrl-C, SIGTERM, and the end of the terminal."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from ._ending import INTERRUPTED

ENDING = (signal.SIGTERM, signal.SIGHUP)
"""What ends everything, as Ctrl-C does, unless whoever started this process has it ignored, as nohup does."""
_WORDS = {signal.SIGTERM: "terminated", signal.SIGHUP: "the terminal has gone"}


def heeded() -> tuple[signal.Signals, ...]:
    """Return those of `ENDING` that are not ignored."""
    return tuple([number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN])


def code_and_word(number: int | None) -> tuple[int, str]:
    """Return the exit code of what a signal has ended, and a word for it; ``None`` is Ctrl-C."""
    return (INTERRUPTED, "interrupted") if number is None else (128 + number, _WORDS[signal.Signals(number)])


@contextmanager
def ended_as_interrupted() -> Iterator[list[int]]:
    """Let the signals of `ENDING` end trio as Ctrl-C does, for the length of the block; yield those that came."""
    came: list[int] = []

    def interrupt(number: int, _frame: object) -> None:
        came.append(number)
        signal.raise_signal(signal.SIGINT)  # trio knows how to raise that one where it does no harm

    before = {number: signal.signal(number, interrupt) for number in heeded()}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

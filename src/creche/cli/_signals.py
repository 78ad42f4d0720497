"""The signals that end a command: Ctrl-C, SIGTERM, and the end of the terminal."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from ._ending import INTERRUPTED

ENDING = (signal.SIGTERM, signal.SIGHUP)
"""What ends everything, as Ctrl-C does, unless whoever started this process has it ignored, as nohup does."""
LAST_WORDS = 1.0
"""Seconds that what a signal has ended has for what is left to say."""
_WORDS = {signal.SIGTERM: "terminated", signal.SIGHUP: "the terminal has gone"}


def heeded() -> tuple[signal.Signals, ...]:
    """Return those of `ENDING` that are not ignored."""
    return tuple([number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN])


def code_and_word(number: int | None) -> tuple[int, str]:
    """Return the exit code of what a signal has ended, and a word for it; ``None`` is Ctrl-C."""
    return (INTERRUPTED, "interrupted") if number is None else (128 + number, _WORDS[signal.Signals(number)])


def stop_as_told() -> None:
    """Stop as Ctrl-Z lets us, until somebody lets us go on; for who hears of that signal."""
    heard = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    signal.raise_signal(signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, heard)


def end_soon(number: int | None) -> None:
    """Let the process end within `LAST_WORDS`, as what the signal has ended; from here on it heeds no other one.

    What is still written until the interpreter has ended may wait for ever, for somebody who typed Ctrl-S or for a
    terminal that hangs.
    """
    code, _ = code_and_word(number)
    for each in (signal.SIGINT, *ENDING):
        signal.signal(each, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, lambda _number, _frame: os._exit(code))
    signal.setitimer(signal.ITIMER_REAL, LAST_WORDS)


@contextmanager
def ended_as_interrupted(came: list[int]) -> Iterator[None]:
    """Let the signals of `ENDING` end trio as Ctrl-C does, for the length of the block.

    When they have, or Ctrl-C has, the process ends soon.

    Args:
      came: Gets those that came, Ctrl-C excepted.
    """
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN

    def interrupt(number: int, _frame: object) -> None:
        came.append(number)
        if is_ignored:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.raise_signal(signal.SIGINT)  # trio knows how to raise that one where it does no harm

    before = {number: signal.signal(number, interrupt) for number in heeded()}
    if is_ignored:
        # As a shell has it for what runs in its background. It is kept from us instead: trio would not hear of one that
        # is ignored, and so not of the others either.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        before.clear()
        end_soon(came[0] if came else None)
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if is_ignored:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

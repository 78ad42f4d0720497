"""How a busy trio leaves asyncio its turn.

Python's threads take turns: one that waits asks the one that runs to let go after five milliseconds. But a thread that lets go often,
for an instant, is not asked; it has taken the interpreter back before the other has woken up. trio with work to do is such a thread,
as it looks for I/O in every round. Without this, asyncio was seen to stand still for up to a second.
"""

import time

import trio.abc

TURN = 0.005
"""Seconds of work after which trio stands back."""
REST = 0.0001
"""Seconds for which it does, enough for another thread to wake up. What that one does then takes what it takes."""


class Turns(trio.abc.Instrument):
    """Makes trio's thread stand back when it has worked for a turn without waiting."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()

    def before_io_wait(self, timeout: float) -> None:
        """Stand back, if it is time, and trio is not about to wait anyway."""
        if timeout <= 0 and time.perf_counter() - self._begun > TURN:
            time.sleep(REST)  # that every task waits is what it is for
            self._begun = time.perf_counter()

    def after_io_wait(self, timeout: float) -> None:
        """Begin a turn after a wait."""
        if timeout > 0:
            self._begun = time.perf_counter()

"""The order in which the calls that are part of one call begin.

Rule 1: they begin in the order in which they were made. A parallel one begins while parallel ones run, up to
`MOST_AT_ONCE` of them; any other runs alone.
Rule 2: whether a tool is parallel is asked when the call's turn comes.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import trio

MOST_AT_ONCE = 10
"""How many calls that are part of one call may run at once."""


@attrs.frozen(eq=False)
class _Waiter:
    overlaps: Callable[[], bool]
    turn: trio.Event = attrs.field(factory=trio.Event)


class Lane:
    """Where the calls that are part of one call wait for their turn."""

    __slots__ = ("_alone", "_running", "_waiting", "made")

    def __init__(self) -> None:
        self.made = 0
        """How many calls were made."""
        self._running = 0
        self._alone = False
        self._waiting: deque[_Waiter] = deque()

    @asynccontextmanager
    async def turn(self, overlaps: Callable[[], bool]) -> AsyncIterator[None]:
        """Wait for the turn of a call, which lasts as long as the block.

        Args:
          overlaps: Tells whether the call may run while others do.
        """
        if self._waiting or not self._begin(overlaps):
            waiter = _Waiter(overlaps)
            self._waiting.append(waiter)
            try:
                await waiter.turn.wait()
            except BaseException:
                if waiter.turn.is_set():
                    self._end()
                else:
                    self._waiting.remove(waiter)
                    self._go_on()
                raise
        try:
            yield
        finally:
            self._end()

    def _begin(self, overlaps: Callable[[], bool]) -> bool:
        """Let a call begin if it can now."""
        alone = not overlaps()
        if self._running and (alone or self._alone or self._running >= MOST_AT_ONCE):
            return False
        self._running += 1
        self._alone = alone
        return True

    def _end(self) -> None:
        self._running -= 1
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and self._begin(self._waiting[0].overlaps):
            self._waiting.popleft().turn.set()

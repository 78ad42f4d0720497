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


@attrs.define(eq=False)
class Place:
    """One call's place in the order."""

    overlaps: Callable[[], bool]
    """Tells whether the call may run while others do."""
    has_turn: bool = False
    """Whether its turn has come."""
    came: trio.Event | None = None
    """Set when it comes, if somebody waits for it."""


class Gate:
    """Where the calls that are part of one call wait for their turn."""

    __slots__ = ("_alone", "_running", "_waiting", "made")

    def __init__(self) -> None:
        self.made = 0
        """How many calls were made."""
        self._running = 0
        self._alone = False
        self._waiting: deque[Place] = deque()

    def join(self, overlaps: Callable[[], bool]) -> Place:
        """Take the next place in the order. Synchronous; whoever has one goes on to `turn`, or holds up the others."""
        self.made += 1
        place = Place(overlaps)
        self._waiting.append(place)
        self._go_on()
        return place

    @asynccontextmanager
    async def turn(self, place: Place) -> AsyncIterator[None]:
        """Wait for the turn of a call, which lasts as long as the block."""
        try:
            if not place.has_turn:
                place.came = trio.Event()
                await place.came.wait()
            yield
        finally:
            if place.has_turn:
                self._running -= 1
            else:
                self._waiting.remove(place)
            self._go_on()

    def _go_on(self) -> None:
        """Give everybody a turn whose turn it is."""
        while self._waiting:
            place = self._waiting[0]
            alone = not place.overlaps()
            if self._running and (alone or self._alone or self._running >= MOST_AT_ONCE):
                return
            self._waiting.popleft()
            self._running += 1
            self._alone, place.has_turn = alone, True
            if place.came is not None:
                place.came.set()

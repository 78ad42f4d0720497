"""What trio iterates over, read from asyncio.

A task of trio reads, a little ahead of the reader. What it has goes over when it is asked for, all at once: so a reader that lags
costs one crossing for many items, and one that stands still holds up whoever makes them.
"""

from collections import deque
from collections.abc import AsyncIterable
from typing import Any, Generic, Self, TypeVar

import outcome
import trio

from creche._util import NoPublicConstructor, final

from ._call import Call
from ._trio_thread import TrioThread
from ._wakeups import Wakeups

T = TypeVar("T")
S_co = TypeVar("S_co", bound=AsyncIterable[object], covariant=True)

READ_AHEAD = 64
"""How many items may wait in trio for the reader."""


class Pump(Generic[T]):
    """Both ends of a stream: `run` and `_hand_over` are in trio, `next` and `_take` in asyncio."""

    def __init__(self, thread: TrioThread, wakeups: Wakeups) -> None:
        self._thread = thread
        self._wakeups = wakeups
        # trio's
        self._read: list[T] = []
        self._end: outcome.Outcome[None] | None = None
        self._is_asked = False
        self._room: trio.Event | None = None
        # asyncio's
        self._items: deque[T] = deque()
        self._ended: outcome.Outcome[None] | None = None
        self._is_asking = False

    async def run(self, items: AsyncIterable[T]) -> None:
        """Read until the end, then wait to be cancelled."""
        try:
            async for item in items:
                self._read.append(item)
                if self._is_asked:
                    self._hand_over()
                elif len(self._read) >= READ_AHEAD:
                    self._room = trio.Event()
                    await self._room.wait()
            self._end = outcome.Value(None)
        except Exception as error:  # noqa: BLE001 - it is for the reader, who first gets what was read before it
            self._end = outcome.Error(error)
        if self._is_asked:
            self._hand_over()
        await trio.sleep_forever()

    def _hand_over(self) -> None:
        """Give what has been read, now or when there is something."""
        self._is_asked = not self._read and self._end is None
        if self._is_asked:
            return
        read, self._read = self._read, []
        self._wakeups.tell(self._take, read, self._end)
        if self._room is not None:
            self._room.set()
            self._room = None

    def _take(self, items: list[T], ended: outcome.Outcome[None] | None) -> None:
        self._is_asking = False
        self._items += items
        self._ended = ended

    async def next(self, call: Call[None]) -> T:
        """Return the next item of what a call reads."""
        while not self._items:
            end = self._ended or call.result
            if isinstance(end, outcome.Error):
                raise end.error
            if end is not None:
                raise StopAsyncIteration
            if not self._is_asking:
                self._is_asking = True
                self._thread.submit(self._hand_over)
            await self._wakeups.wait()
        return self._items.popleft()


@final
class PortalStream(Generic[S_co], metaclass=NoPublicConstructor):
    """Items from trio, for asyncio: iterate over it once. Made by `Portal.stream`.

    It ends, or raises, as the iterator in trio does. Giving up the wait for an item loses none.
    """

    __slots__ = ("_call", "_opened", "_pump")

    def __init__(self, opened: S_co, pump: Pump[Any], call: Call[None]) -> None:
        self._opened = opened
        self._pump = pump
        self._call = call

    @property
    def opened(self) -> S_co:
        """What is iterated over in trio, such as the `creche.agent.ReplyStream`, whose ``reply`` is there when this has ended."""
        return self._opened

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self: "PortalStream[AsyncIterable[T]]") -> T:
        item: T = await self._pump.next(self._call)
        return item

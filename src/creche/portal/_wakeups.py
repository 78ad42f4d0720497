"""Waking tasks of asyncio from another thread.

What is told runs in the thread of the loop, and then whoever waits looks again. So all that these tasks look at changes in one
thread, and there is nothing to lock.

Nothing of asyncio is imported before it is needed: most programs with creche do without.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVarTuple

if TYPE_CHECKING:
    import asyncio

Ts = TypeVarTuple("Ts")


class Wakeups:
    """The tasks of a loop of asyncio that wait for something to happen in another thread."""

    __slots__ = ("_loop", "_waiting")

    def __init__(self, loop: "asyncio.AbstractEventLoop") -> None:
        self._loop = loop
        self._waiting: set[asyncio.Future[None]] = set()

    def tell(self, change: Callable[[*Ts], object], *args: *Ts) -> None:
        """Change something in the loop's thread, soon, and wake who waits. Callable in any thread."""
        with suppress(RuntimeError):  # the loop is closed, and nobody waits in it any more
            self._loop.call_soon_threadsafe(self._happen, change, *args)

    def _happen(self, change: Callable[[*Ts], object], *args: *Ts) -> None:
        change(*args)
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self) -> None:
        """Wait until something has happened."""
        future = self._loop.create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)

    async def wait_until(
        self, done: Callable[[], bool], *, give_up: Callable[[], object]
    ) -> "asyncio.CancelledError | None":
        """Wait until something is done, and no shorter.

        A cancellation gives it up, and is held back until it is done all the same. So no task of asyncio goes away from what it has
        running in trio.

        Args:
          done: Whether it is done.
          give_up: Called once, at the first cancellation; makes ``done`` come true soon.

        Returns:
          The cancellation, for the caller to raise.
        """
        import asyncio

        cancelled: asyncio.CancelledError | None = None
        while not done():
            try:
                await self.wait()
            except asyncio.CancelledError as error:
                if cancelled is None:
                    cancelled = error
                    give_up()
        return cancelled

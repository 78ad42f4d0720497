"""A context manager of trio around a block of asyncio.

Rule: an error of the block goes through the manager, and what comes out of that comes out of the block. If it cannot, because
what was opened has ended before, or does not come to its end, it comes out all the same. So neither an error nor a
cancellation is lost.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from functools import partial
from typing import Generic, TypeAlias, TypeVar, cast

import trio

from ._call import Call
from ._trio_thread import TrioThread
from ._wakeups import Wakeups

T = TypeVar("T")
Manager: TypeAlias = AbstractAsyncContextManager[T] | AbstractContextManager[T]
"""What opens for a block; most of trio does with ``async with``, and what need not wait, such as `Agent.watch`, with ``with``."""


class Stay(Generic[T]):
    """One task of trio that enters the manager, and leaves it when the block in asyncio is left.

    Args:
      manager: The manager.
      meanwhile: What is done with its value in the meantime; it is cancelled when the block is left.
      wakeups: Who waits for it to be entered.
    """

    __slots__ = ("_block", "_error", "_manager", "_meanwhile", "_wakeups", "has_raised", "is_entered", "value")

    value: T
    """What the manager gave; asyncio's to read."""

    def __init__(
        self,
        manager: Manager[T],
        meanwhile: Callable[[T], Awaitable[object]],
        wakeups: Wakeups,
    ) -> None:
        self.is_entered = False
        """Whether it is entered; asyncio's to read."""
        self.has_raised = False
        """Whether the manager was given the error of the block; asyncio's to read, when it is left."""
        self._manager = manager
        self._meanwhile = meanwhile
        self._wakeups = wakeups
        self._block = trio.CancelScope()
        self._error: BaseException | None = None

    async def hold(self) -> None:
        """Enter, wait, leave. In trio."""
        async with _entered(self._manager) as value:
            self._wakeups.tell(self._enter, value)
            with self._block:
                await self._meanwhile(value)
            if self._error is not None:
                self.has_raised = True
                raise self._error

    def leave(self, error: BaseException | None) -> None:
        """Let it leave, with the error that the block raised. In trio."""
        self._error = error
        self._block.cancel()

    def _enter(self, value: T) -> None:
        self.value = value
        self.is_entered = True


@asynccontextmanager
async def staying(
    thread: TrioThread,
    manager: Manager[T],
    meanwhile: Callable[[T], Awaitable[object]],
    wakeups: Wakeups,
) -> AsyncIterator[tuple[T, Call[None]]]:
    """Have a manager entered in trio for the length of a block of asyncio.

    Yields:
      What the manager gave, and the call that holds it.
    """
    stay = Stay(manager, meanwhile, wakeups)
    call = Call(_name_of(manager), stay.hold, wakeups)
    give_up = partial(thread.submit, call.cancel)
    thread.begin(call)
    await call.wait(give_up=give_up, until=lambda: stay.is_entered)
    left: BaseException | None = None
    try:
        yield stay.value, call
    except BaseException as error:  # noqa: BLE001 - it comes out of the manager again, unless that takes it
        left = error
    thread.submit(stay.leave, left)
    try:
        await call.wait(give_up=give_up)
    except BaseException as error:
        if left is None or not (error is call.lost or _is_nothing_else(error, left)):
            raise
    else:
        if left is None or stay.has_raised:
            return
    raise left


def _is_nothing_else(error: BaseException, left: BaseException) -> bool:
    """Return whether an error is only what a nursery has made of the end of a block, such as its cancellation.

    asyncio knows that by its type. Other errors come out in groups, as they do in trio.
    """
    if isinstance(left, Exception) or not isinstance(error, BaseExceptionGroup):
        return False
    return cast("BaseExceptionGroup[BaseException]", error).split(lambda each: each is left)[1] is None


@asynccontextmanager
async def _entered(manager: Manager[T]) -> AsyncIterator[T]:
    if isinstance(manager, AbstractAsyncContextManager):
        async with manager as value:
            yield value
    else:
        with manager as value:
            yield value


def check_manager(method: str, example: str, manager: object) -> None:
    """Check that something opens for a block.

    Args:
      method: The method of the portal that was given it.
      example: What it takes, such as ``"open_host(...)"``.
      manager: What it was given.

    Raises:
      TypeError: It does not.
    """
    if not isinstance(manager, (AbstractAsyncContextManager, AbstractContextManager)):
        name = getattr(manager, "__name__", manager)
        call = "; call it" if callable(manager) else ""
        raise TypeError(f"portal.{method} takes what opens for a block, as {example} does, and {name!r} is none{call}")


def _name_of(manager: object) -> str:
    """Return what a manager was made by: a function under ``@asynccontextmanager``, or its class."""
    name: str = getattr(getattr(manager, "gen", None), "__qualname__", type(manager).__qualname__)
    return name.rpartition("<locals>.")[2]

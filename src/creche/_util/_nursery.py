"""A nursery that a caller of ours never sees: errors come out as themselves, not as groups.

The rule is trio's own: the concurrency inside our code is an implementation detail. Background tasks
do not raise for expected failures, they hand an outcome to whoever asked. So what comes out of one is
a bug, and says so.
"""

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import cast, overload

import trio

from creche.errors import InternalError


@asynccontextmanager
async def open_hidden_nursery(what: str, *, cancel: bool = True) -> AsyncIterator[trio.Nursery]:
    """Open a nursery whose tasks are cancelled and waited for when the block ends.

    Args:
      what: What runs inside, for the message of an `InternalError`.
      cancel: Whether they are cancelled; false is for tasks that end by themselves with the block.

    Yields:
      The nursery.

    Raises:
      InternalError: A task of the nursery crashed; its error is the cause. An error raised in the
        block itself comes out as that very object, cancellation as cancellation.
    """
    body_error: BaseException | None = None
    to_raise: BaseException
    try:
        async with trio.open_nursery(strict_exception_groups=True) as nursery:
            try:
                yield nursery
            except BaseException as error:
                body_error = error
                raise
            finally:
                if cancel:
                    nursery.cancel_scope.cancel()
        return
    except BaseExceptionGroup as group:
        leaves = [leaf for leaf in leaves_of(group) if not isinstance(leaf, trio.Cancelled)]
        interrupts = [leaf for leaf in leaves if isinstance(leaf, KeyboardInterrupt | SystemExit)]
        if interrupts:
            to_raise = interrupts[0]
        elif body_error is not None and _all_in(leaves, leaves_of(body_error)):
            to_raise = body_error
        elif not leaves:
            to_raise = group
        else:
            to_raise = InternalError(f"a task of {what} crashed: {leaves[0]!r}")
            to_raise.__cause__ = leaves[0] if len(leaves) == 1 else group
    # Raised outside the except block, so that the group does not become its context.
    raise to_raise


def is_cancelled() -> bool:
    """Tell whether the current task is cancelled where it stands.

    If it is not, a `trio.Cancelled` that arrives there is one that somebody kept and raised again, long after its scope had
    ended: no scope will take it, and it would end every task up to the top.
    """
    return trio.current_effective_deadline() == -math.inf


@overload
def leaves_of(error: Exception) -> Sequence[Exception]: ...
@overload
def leaves_of(error: BaseException) -> Sequence[BaseException]: ...
def leaves_of(error: BaseException) -> Sequence[BaseException]:
    """Return what is in a group, at any depth, or the error itself if it is none."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return [leaf for each in group.exceptions for leaf in leaves_of(each)]
    return [error]


def _all_in(errors: Sequence[BaseException], others: Sequence[BaseException]) -> bool:
    return all(any(error is other for other in others) for error in errors)

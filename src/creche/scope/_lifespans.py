"""A lifespan: the task that stays inside one async context manager of a setup.

A body has a task of its own, so a crash in one cannot cancel another. Cancelling the host does not reach a
body that stands (its cancel scope is shielded): whoever takes the plugins down ends the bodies one by one,
newest first, and a wait that is cancelled cancels the body it waits for. So bodies leave in order in any
case, and without delay when there is none to be had.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import cast

import trio


class Lifespan:
    """One body. It is asked to leave by `end`, and `ended` is set when it has left or crashed."""

    __slots__ = ("_scope", "_stop", "ended")

    def __init__(self) -> None:
        self._scope = trio.CancelScope()
        self._stop = trio.Event()
        self.ended: trio.Event = trio.Event()

    @property
    def is_leaving(self) -> bool:
        """Whether it was asked to leave."""
        return self._stop.is_set()

    def unshield(self) -> None:
        """Let the host's cancellation through."""
        self._scope.shield = False

    async def run(
        self,
        context: AbstractAsyncContextManager[object],
        nursery: trio.Nursery,
        crashed: Callable[["Lifespan", Exception], None],
        *,
        task_status: trio.TaskStatus[None],
    ) -> None:
        """Stay inside the context until asked to leave; what it raises before it stands is the starter's.

        Args:
          context: The body.
          nursery: The one that was asked to ``start`` this.
          crashed: Called with what the body raises once it stands.
          task_status: Told when it stands.
        """
        stands = False
        try:
            with self._scope:
                async with context:
                    stands = True
                    task_status.started()
                    # A start that was cancelled in the last moment leaves the task where that waits for its end.
                    self._scope.shield = trio.lowlevel.current_task().parent_nursery is nursery
                    await self._stop.wait()
        except BaseException as error:
            if not stands:
                raise
            crash, outwards = _split(error)
            if crash is None:
                raise
            crashed(self, crash)
            if outwards is not None:
                raise outwards from None
        finally:
            self.ended.set()

    async def end(self) -> None:
        """Ask the body to leave and wait until it has.

        A cancelled wait cancels the body and still waits. The cancellation is swallowed, since the caller
        has others to end; its next checkpoint raises it again.
        """
        self._stop.set()
        try:
            await self.ended.wait()
        except trio.Cancelled:
            self._scope.cancel()
            with trio.CancelScope(shield=True):
                await self.ended.wait()


def _split(error: BaseException) -> tuple[Exception | None, BaseException | None]:
    """Part what a body crashed of from what is not its own: cancellation and interrupts."""
    if isinstance(error, Exception):
        return error, None
    if isinstance(error, BaseExceptionGroup):
        return cast("BaseExceptionGroup[BaseException]", error).split(Exception)
    return None, error

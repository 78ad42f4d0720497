"""A function of asyncio, for a task of trio that waits for it."""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import outcome
import trio

from creche.errors import PortalError

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class Errand(Generic[T]):
    """A function that runs in a loop of asyncio, in the task context of who made this. Made in trio.

    Args:
      name: What it is, for messages.
      work: The function.
      loop: The loop.
    """

    def __init__(
        self, name: str, work: Callable[[], Coroutine[Any, Any, T]], loop: "asyncio.AbstractEventLoop"
    ) -> None:
        self._work = work
        self._loop = loop
        self._context = copy_context()
        self._token = trio.lowlevel.current_trio_token()
        self._done = trio.Event()
        self._result: outcome.Outcome[T] | None = None
        self._gone = PortalError(f"{name} was cancelled in asyncio, or its loop has ended")
        self._task: asyncio.Task[T] | None = None

    async def run(self) -> T:
        """Have it run, and wait for it. A cancellation cancels it there, and waits until it has ended. In trio.

        Raises:
          PortalError: The loop has ended, or somebody has cancelled it there.
          BaseException: What it raises.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self._tell(self._start)
        try:
            await self._done.wait()
        except trio.Cancelled:
            self._tell(self._cancel)
            with trio.CancelScope(shield=True):
                await self._done.wait()
            if not isinstance(self._result, outcome.Error) or self._result.error is self._gone:
                raise
        assert self._result is not None, "it is done"
        return self._result.unwrap()

    def _tell(self, change: Callable[[], None]) -> None:
        if self._loop.is_running():
            with suppress(RuntimeError):  # it was closed just now
                self._loop.call_soon_threadsafe(change)
                return
        self._finish(outcome.Error(self._gone))

    def _finish(self, result: outcome.Outcome[T]) -> None:
        self._result = self._result or result
        self._done.set()

    # ---------------------------------------------------------------- in asyncio

    def _start(self) -> None:
        self._task = self._loop.create_task(self._work(), context=self._context)
        self._task.add_done_callback(self._tell_result)

    def _cancel(self) -> None:
        assert self._task is not None, "it was told to start before"
        self._task.cancel()

    def _tell_result(self, task: "asyncio.Task[T]") -> None:
        result: outcome.Outcome[T] = outcome.Error(self._gone) if task.cancelled() else outcome.capture(task.result)
        with suppress(trio.RunFinishedError):  # it has broken down, or it would have waited
            self._token.run_sync_soon(self._finish, result)

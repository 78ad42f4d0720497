"""One function at work in trio, for a task of asyncio that waits for it."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar, cast

import outcome
import trio

from creche._util import is_cancelled
from creche.errors import PortalError

from ._wakeups import Wakeups

T = TypeVar("T")


class Call(Generic[T]):
    """A function that runs in trio, and how it came out.

    Args:
      name: What it is, for messages and for the name of its task.
      work: The function.
      wakeups: Who waits for it, in asyncio.
    """

    __slots__ = ("_cancel_scope", "_work", "lost", "name", "result", "wakeups")

    def __init__(self, name: str, work: Callable[[], Awaitable[T]], wakeups: Wakeups) -> None:
        self.name: str = name
        """For messages."""
        self.wakeups: Wakeups = wakeups
        """Who waits for it."""
        self.result: outcome.Outcome[T] | None = None
        """How it came out, once it has; asyncio's to read."""
        self._work = work
        self._cancel_scope = trio.CancelScope()
        self.lost: PortalError = PortalError(f"{name} did not come to its end, because the portal was closed")
        """What it raises when nothing else comes out of it."""

    async def run(self) -> None:
        """Do the work and tell how it came out. In trio; raises nothing, as all of it is for who waits."""
        result: outcome.Outcome[T] = outcome.Error(self.lost)
        try:
            with self._cancel_scope:
                result = outcome.Value(await self._work())
        except BaseException as error:  # noqa: BLE001 - KeyboardInterrupt too is for who waits; this thread gets none of its own
            raised = _without_cancellation(error)
            if raised is not None:
                result = outcome.Error(raised)
            elif not is_cancelled():
                stray = f"{self.name} raised a trio.Cancelled that it had kept, and nothing cancels it now"
                result = outcome.Error(RuntimeError(stray).with_traceback(error.__traceback__))
        self.wakeups.tell(self._settle, result)

    def cancel(self) -> None:
        """Cancel the work. In trio."""
        self._cancel_scope.cancel()

    def lose(self, cause: BaseException | None = None) -> None:
        """Tell that it did not run, or not to its end. In any thread."""
        self.lost.__cause__ = cause
        self.wakeups.tell(self._settle, outcome.Error(self.lost))

    def _settle(self, result: outcome.Outcome[T]) -> None:
        self.result = self.result or result

    async def wait(self, *, give_up: Callable[[], object], until: Callable[[], bool] | None = None) -> None:
        """Wait until it has come out, or something else has happened. In asyncio.

        Args:
          give_up: Has it cancelled; called when this is cancelled, which then waits until it has come out.
          until: What else is waited for.

        Raises:
          CancelledError: This was cancelled, and nothing else came out.
          BaseException: What the work raises.
        """
        given_up = False

        def cancel() -> None:
            nonlocal given_up
            given_up = True
            give_up()

        def done() -> bool:
            return self.result is not None or (until is not None and not given_up and until())

        cancelled = await self.wakeups.wait_until(done, give_up=cancel)
        result = self.result
        if cancelled is not None and (not isinstance(result, outcome.Error) or result.error is self.lost):
            raise cancelled
        if isinstance(result, outcome.Error):
            raise result.error


def _without_cancellation(error: BaseException) -> BaseException | None:
    if isinstance(error, trio.Cancelled):
        return None
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return group.split(trio.Cancelled)[1]
    return error

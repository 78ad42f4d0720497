"""trio in a thread of its own, and how it ends.

Rule 1: whoever waits for a call hears how it came out, also when trio has ended before it, or has broken down.
Rule 2: it ends when its owner says so, and at the latest with the interpreter: `atexit` tells it to, and waits. So the thread is a
daemon. One that is none would be waited for before that, without being told.
Rule 3: it does not come along when its process is forked. What is left there says that it is closed.
"""

import atexit
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVarTuple

import trio

from creche._util import open_hidden_nursery
from creche.errors import InternalError, PortalError

from ._call import Call
from ._turns import Turns
from ._wakeups import Wakeups

Ts = TypeVarTuple("Ts")


class TrioThread:
    """trio in a thread of its own.

    Args:
      wakeups: Who waits for it to come up, and to end.
    """

    _nursery: trio.Nursery
    _token: trio.lowlevel.TrioToken | None = None

    def __init__(self, wakeups: Wakeups) -> None:
        self._wakeups = wakeups
        self._is_up = False
        self._ends = False
        self._is_over = False
        self._failure: BaseException | None = None
        self._end = trio.Event()
        self._calls: set[Call[Any]] = set()
        self._thread = threading.Thread(target=self._run, name="creche portal", daemon=True)

    # ---------------------------------------------------------------- from asyncio

    async def open(self) -> None:
        """Start it, and wait until it has come up."""
        atexit.register(self._end_and_join)
        self._thread.start()
        cancelled = await self._wakeups.wait_until(lambda: self._is_up or self._is_over, give_up=self._begin_end)
        if cancelled is not None or self._is_over:
            await self.aclose()
        if cancelled is not None:
            raise cancelled

    async def aclose(self) -> None:
        """Cancel everything in it, and wait until it has ended.

        Raises:
          InternalError: trio broke down; the error is its cause.
        """
        self._begin_end()
        cancelled = await self._wakeups.wait_until(lambda: self._is_over, give_up=_nothing)
        self._end_and_join()
        if self._failure is not None:
            raise InternalError("trio broke down in a portal") from self._failure
        if cancelled is not None:
            raise cancelled

    def begin(self, call: Call[Any]) -> None:
        """Begin a call in it, in the task context of the caller.

        Raises:
          PortalError: It has ended, or is about to.
        """
        if self._ends or not self._thread.is_alive():
            raise PortalError(f"{call.name} cannot be run, because the portal is closed") from self._failure
        self._calls.add(call)
        context = copy_context()
        self.submit(lambda: context.run(self._begin, call))
        if self._is_over:  # it ended in between, and perhaps did not see this one
            call.lose(self._failure)

    def submit(self, function: Callable[[*Ts], object], *args: *Ts) -> None:
        """Call a function in it, soon, if it has not ended. In any thread."""
        if self._token is not None and not self._is_over and self._thread.is_alive():
            with suppress(trio.RunFinishedError):  # it ends just now, and tells all calls
                self._token.run_sync_soon(function, *args)

    def _begin_end(self) -> None:
        self._ends = True  # first: then either `_live` sees it when it comes up, or there is a token by now
        self.submit(self._end.set)

    def _end_and_join(self) -> None:
        self._begin_end()
        if self._thread.is_alive():  # else it has ended, or could not be started, or stays in another process
            self._thread.join()
        atexit.unregister(self._end_and_join)

    # ---------------------------------------------------------------- in the thread

    def _run(self) -> None:
        try:
            trio.run(self._live, instruments=[Turns()])
        except BaseException as error:  # noqa: BLE001 - whatever has broken it, its owner hears of it
            self._failure = error
        self._ends = self._is_over = True
        for call in list(self._calls):
            call.lose(self._failure)
        self._wakeups.tell(_nothing)

    async def _live(self) -> None:
        async with open_hidden_nursery("a portal") as self._nursery:
            self._token = trio.lowlevel.current_trio_token()
            if self._ends:
                return
            self._is_up = True
            self._wakeups.tell(_nothing)
            try:
                await self._end.wait()
            finally:
                self._ends = True

    def _begin(self, call: Call[Any]) -> None:
        if self._ends:
            self._calls.discard(call)
            call.lose()
        else:
            self._nursery.start_soon(self._serve, call, name=call.name)

    async def _serve(self, call: Call[Any]) -> None:
        await call.run()
        self._calls.discard(call)


def _nothing() -> None:
    """Change nothing; that those who wait look again is all."""

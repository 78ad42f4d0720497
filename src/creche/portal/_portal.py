"""The portal: what a program on asyncio holds of trio, where its hosts and agents live."""

import inspect
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

import outcome
import trio

from creche._util import NoPublicConstructor, final
from creche.errors import PortalError

from ._call import Call
from ._errand import Errand
from ._signals import woken_by_signals
from ._stay import check_manager, staying
from ._stream import PortalStream, Pump
from ._trio_thread import TrioThread
from ._wakeups import Wakeups

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
S = TypeVar("S", bound=AsyncIterable[object])
Ts = TypeVarTuple("Ts")


@final
class Portal(metaclass=NoPublicConstructor):
    """A way from asyncio to trio, which runs in a thread of its own. Made by `open_portal`.

    What belongs to trio, such as a host or an agent, is used through it: their async functions with `run`, the others with
    `call`, what is opened for the length of a block with `open`, and what is iterated over with `stream`. Values, such as a reply or
    a record of a log, are just values.

    All of these can be called by any number of tasks at once, also in other loops of asyncio. Functions run in the task context
    (`contextvars`) of their caller. A task that is cancelled cancels what it has running in trio, and waits until that has ended.
    """

    def __init__(self, thread: TrioThread, loop: "asyncio.AbstractEventLoop") -> None:
        self._thread = thread
        self._loop = loop

    async def run(self, async_fn: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        """Run an async function of trio, such as ``agent.ask``.

        Args:
          async_fn: The function; for keyword arguments use `functools.partial`.
          *args: Its arguments.

        Returns:
          What it returns.

        Raises:
          PortalError: The portal is closed, or was closed before the function had come to its end.
          BaseException: What the function raises, as itself.

        Example:
          Ask an agent, for a minute at most::

              async with asyncio.timeout(60):
                  reply = await portal.run(agent.ask, "What is in this folder?")
        """
        name = _check_function("run", async_fn)
        call = Call(name, partial(_await, "run", name, async_fn, *args), Wakeups(_running_loop()))
        self._thread.begin(call)
        await call.wait(give_up=partial(self._thread.submit, call.cancel))
        assert isinstance(call.result, outcome.Value), "it has come out, and not as an error"
        value: T = call.result.value
        return value

    async def call(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Call a function of trio that is not async, such as ``agent.cancel``.

        They are not for other threads, so call them like this.

        Args:
          function: The function. It must not block: everything in trio would wait for it.
          *args: Its arguments.

        Returns:
          What it returns.

        Raises:
          PortalError: The portal is closed.
          TypeError: It is async.
          BaseException: What the function raises.
        """
        name = _check_function("call", function)

        async def called() -> T:
            value = function(*args)
            if inspect.iscoroutine(value):
                value.close()
                raise TypeError(f"portal.call takes a plain function, and {name} is async; use portal.run")
            return value

        return await self.run(called)

    @asynccontextmanager
    async def open(self, manager: AbstractAsyncContextManager[T] | AbstractContextManager[T]) -> AsyncIterator[T]:
        """Open something in trio for the length of a block of asyncio.

        It is entered and left in one task of trio. An error raised in the block is raised there as well, and comes out as itself. If
        what was opened ends before the block does, because it has crashed, whatever uses it fails, and its error comes out at the
        end of the block. Where a nursery makes a group of a cancellation alone, the cancellation comes out.

        Args:
          manager: What to open, such as ``open_host(...)`` or ``host.open_agent(...)``.

        Yields:
          What it gives.

        Raises:
          PortalError: The portal is closed, or was closed during the block.
          TypeError: It does not open for a block.
          BaseException: What the manager raises.

        Example:
          An agent for one question::

              async with portal.open(host.open_agent(AgentSpec("clerk"))) as clerk:
                  reply = await portal.run(clerk.ask, question)
        """
        check_manager("open", "open_host(...)", manager)
        async with staying(self._thread, manager, _wait, Wakeups(_running_loop())) as (value, _):
            yield value

    @asynccontextmanager
    async def stream(
        self, manager: AbstractAsyncContextManager[S] | AbstractContextManager[S]
    ) -> AsyncIterator[PortalStream[S]]:
        """Open something in trio, and iterate over it in asyncio.

        A slow reader holds up what is read, which is at most some dozens of items ahead. Leaving the block ends it: the turn behind
        an answer is cancelled, and has ended.

        Args:
          manager: What to open, such as ``agent.stream("...")`` or ``agent.watch()``, or what a function under `trio.as_safe_channel` returns.

        Yields:
          The items.

        Raises:
          PortalError: The portal is closed, or was closed during the block.
          TypeError: It does not open for a block.
          BaseException: What the manager raises.

        Example:
          Read an answer as it comes::

              async with portal.stream(agent.stream("What is in this folder?")) as deltas:
                  async for delta in deltas:
                      if isinstance(delta, TextDelta):
                          print(delta.text, end="")
              print(deltas.opened.reply.usage)
        """
        check_manager("stream", "agent.stream(...)", manager)
        wakeups = Wakeups(_running_loop())
        pump = Pump[object](self._thread, wakeups)
        async with staying(self._thread, manager, pump.run, wakeups) as (opened, call):
            yield PortalStream[S]._create(opened, pump, call)

    async def run_asyncio(self, async_fn: Callable[[*Ts], Coroutine[Any, Any, T]], *args: *Ts) -> T:
        """Run an async function of asyncio, from trio, such as a query of a database in the body of a tool.

        The other way round: it runs in the loop in which the portal was opened, in the task context of the caller. If the caller is
        cancelled, it is, too, and has ended.

        Args:
          async_fn: The function.
          *args: Its arguments.

        Returns:
          What it returns.

        Raises:
          PortalError: The loop has ended, or the function was cancelled there.
          BaseException: What the function raises.
        """
        name = _check_function("run_asyncio", async_fn)
        if not trio.lowlevel.in_trio_task():
            raise PortalError(f"run_asyncio() is for functions of trio; here, await {name}() itself")
        return await Errand(name, partial(_await, "run_asyncio", name, async_fn, *args), self._loop).run()


@asynccontextmanager
async def open_portal() -> AsyncIterator[Portal]:
    """Open a portal to trio for the length of a block of asyncio.

    trio runs in a thread of its own. At the end of the block everything that was started through the portal is cancelled, and has
    ended. If the block is never left, that happens at the end of the program. A process that is forked from this one has no
    portal, until it opens one itself.

    Yields:
      The portal.

    Raises:
      InternalError: trio broke down; the error is its cause.

    Example:
      A host for as long as a web application lives::

          @asynccontextmanager
          async def lifespan(app):
              async with open_portal() as portal, portal.open(open_host(model=model)) as host:
                  yield {"portal": portal, "host": host}
    """
    loop = _running_loop()
    thread = TrioThread(Wakeups(loop))
    with woken_by_signals(loop):
        await thread.open()
        try:
            yield Portal._create(thread, loop)
        finally:
            await thread.aclose()


def _running_loop() -> "asyncio.AbstractEventLoop":
    import asyncio

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise PortalError(
            "a portal is for programs on asyncio, and no asyncio runs here; under trio it is not needed, and plain code has "
            "creche.run_sync()"
        ) from None


def _check_function(method: str, function: object) -> str:
    """Return the name of a function that was passed to a method."""
    if not callable(function):
        if inspect.iscoroutine(function):
            function.close()
            name = function.__name__
            raise TypeError(f"portal.{method} takes a function and its arguments: {name}, ... and not {name}(...)")
        raise TypeError(f"portal.{method} takes a function, and {function!r} is none")
    inner = function.func if isinstance(function, partial) else function
    named: str = getattr(inner, "__qualname__", repr(inner))
    return named.rpartition("<locals>.")[2]


async def _await(method: str, name: str, async_fn: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
    answer: object = async_fn(*args)
    if not inspect.isawaitable(answer):
        raise TypeError(
            f"portal.{method} takes an async function, and {name} is none; from asyncio, portal.call takes others"
        )
    value: T = await answer
    return value


async def _wait(_: object) -> None:
    await trio.sleep_forever()

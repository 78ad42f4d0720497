"""trio from plain code, also where asyncio runs already, as it does in a notebook.

While a function blocks, the loop of asyncio in its thread stands still: nothing can wait for it, and it does not act on a signal. So
for that long the thread has no such loop, and Ctrl-C means what it means in a program without one.
"""

import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar, TypeVarTuple

import trio

from creche.errors import PortalError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def run_sync(async_fn: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
    """Run an async function on trio and return what it returns, from code that is not async.

    It is `trio.run` in the calling thread, and works in a notebook too: a loop of asyncio that runs there stands still meanwhile.
    When it returns, everything that was started in it has ended. The function has the task context (`contextvars`) of the caller.

    Args:
      async_fn: The function; for keyword arguments use `functools.partial`.
      *args: Its arguments.

    Returns:
      What it returns.

    Raises:
      KeyboardInterrupt: Ctrl-C, or the interrupt of a notebook: everything was cancelled, and has ended. It comes as itself, out
        of the function's own nurseries too.
      PortalError: trio runs in this thread already.
      BaseException: What the function raises, as itself.

    Example:
      Ask one question::

          async def ask(question):
              async with open_host(model=model) as host, host.open_agent(AgentSpec("lead")) as lead:
                  return await lead.ask(question)


          reply = creche.run_sync(ask, "What is in this folder?")
    """
    if trio.lowlevel.in_trio_run():
        raise PortalError(
            "run_sync() is for plain code, and trio runs in this thread already: await the function instead"
        )
    try:
        with _without_asyncio():
            return trio.run(async_fn, *args)
    except BaseExceptionGroup as group:
        if group.subgroup(KeyboardInterrupt) is None:
            raise
        interrupted = group
    raise KeyboardInterrupt from interrupted


@contextmanager
def _without_asyncio() -> Iterator[None]:
    """Hide the loop of asyncio that runs in this thread, if one does, and what it has made of signals."""
    asyncio = sys.modules.get("asyncio")
    loop = None if asyncio is None else asyncio._get_running_loop()
    if asyncio is None or loop is None:
        yield
        return
    try:
        asyncio._set_running_loop(None)
        with _signals_of_a_program():
            yield
    finally:
        asyncio._set_running_loop(loop)


@contextmanager
def _signals_of_a_program() -> Iterator[None]:
    """Let Ctrl-C raise, and trio be woken by signals, as where nobody has asked for anything else.

    A signal that comes meanwhile for a handler of the loop (``loop.add_signal_handler``) is lost to it. There is no way to wake two.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    wakes = signal.set_wakeup_fd(-1)
    try:
        # That of asyncio, or of a notebook, asks a task to end, and that would have to run for it.
        if callable(handler):
            signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
    finally:
        if callable(handler):
            signal.signal(signal.SIGINT, handler)
        signal.set_wakeup_fd(wakes)

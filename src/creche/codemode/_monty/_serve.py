"""Programs in Monty, an interpreter of a part of Python that has no way out of itself."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import attrs
import trio

from creche._util import open_hidden_nursery
from creche.errors import PluginError

from .._json import DEEPEST, is_readable
from .._runtime import Program, ProgramEnd, RunProgram
from ._calls import Calls
from ._keeper import Keeper, open_keeper
from ._source import sentence, shortened
from ._worker import Worker

if TYPE_CHECKING:
    import pydantic_monty as monty

_TIMEOUT = "TimeoutError: feed time limit exceeded"
_NOTES = """\
It is a part of Python: functions, async functions, comprehensions, plain classes and dataclasses, `with`, `match`; \
the modules asyncio (`gather` and `sleep`), base64, bisect, collections, copy, csv, dataclasses, datetime, decimal, \
functools, hashlib, itertools, json, math, random, re, time, typing. There is no `yield`, `async with`, `async for` or \
`del`; no class inherits or has properties; `gather` takes no `return_exceptions`. There are no other packages, and \
no files, processes or network but by tools.\
"""


@attrs.frozen(kw_only=True)
class MontyRuntime:
    """Runs programs in Monty, an interpreter of a part of Python that knows no files, network or processes.

    Each program has a process of its own, which takes some milliseconds to start. It needs the package
    ``pydantic-monty``: ``pip install 'creche[code]'``. Limits are the interpreter's own, so that too much memory is a
    ``MemoryError``, which a program cannot catch; a process that does not keep to its time is killed a second later.
    What is printed comes within some milliseconds, and before each call; of a program that is cancelled, what it
    printed in the last few may be lost.

    While the runtime is served, one more process kills the workers when this one ends, however it does. That holds on
    Linux, where it is tested, and as long as nobody kills that process first.
    """

    @property
    def name(self) -> str:
        """``"monty"``."""
        return "monty"

    @property
    def notes(self) -> str:
        """What there is of Python."""
        return _NOTES

    def serve(self) -> AbstractAsyncContextManager[RunProgram]:
        """Be ready to run programs for the length of the block.

        Raises:
          PluginError: The package or its program is missing.
        """
        return _serve()


@asynccontextmanager
async def _serve() -> AsyncIterator[RunProgram]:
    try:
        import pydantic_monty as monty
    except ModuleNotFoundError as error:
        raise PluginError(f"code mode in Monty needs {error.name!r}; run: pip install 'creche[code]'") from error
    # The number of workers is that of the programs, which is their callers' affair.
    pool = monty.Monty(min_processes=1, max_processes=1_000_000, max_checkouts_per_worker=1)
    async with open_keeper() as keeper:
        try:
            await trio.to_thread.run_sync(pool.__enter__)
        except (OSError, RuntimeError, monty.MontyError) as error:
            raise PluginError(f"the workers of Monty do not start: {error}; run: pip install 'creche[code]'") from error
        served = _Served(pool, keeper)
        try:
            yield served.run
        finally:
            with trio.CancelScope(shield=True):
                await served.end()
                await trio.to_thread.run_sync(pool.__exit__, None, None, None)


class _NotStartedError(Exception):
    """There is no process for a program."""

    def __init__(self, end: ProgramEnd) -> None:
        super().__init__(end)
        self.end = end
        """What becomes of it."""


@attrs.define(eq=False)
class _Served:
    """A runtime that is being served."""

    pool: "monty.Monty"
    keeper: Keeper
    running: set[trio.CancelScope] = attrs.field(init=False, factory=set[trio.CancelScope])
    """Of each program that runs, what cancels it when this ends."""
    workers: int = 0
    """Processes that have been asked for and have not ended yet."""
    has_ended: bool = False
    gone: trio.Event = attrs.field(init=False, factory=trio.Event)
    """Is set when this has ended and the last worker, too."""

    async def run(self, program: Program, /) -> ProgramEnd:
        """Run one program, as `creche.codemode.RunProgram` says."""
        await trio.lowlevel.checkpoint()
        with trio.CancelScope() as scope:
            if self.has_ended:
                scope.cancel()
            self.running.add(scope)
            try:
                return await self._run(program)
            finally:
                self.running.remove(scope)
        return _killed("the runtime 'monty' is not served any more")

    async def end(self) -> None:
        """End what runs, and return when every worker has ended. Calls that take longer are not waited for."""
        self.has_ended = True
        for scope in self.running:
            scope.cancel()
        if self.workers:
            await self.gone.wait()

    async def _run(self, program: Program) -> ProgramEnd:
        try:
            # In this order: the process ends before the calls are waited for.
            async with open_hidden_nursery("a program in Monty") as nursery, self._open_worker(program) as worker:
                return await _compute(worker, nursery)
        except _NotStartedError as error:
            return error.end

    @asynccontextmanager
    async def _open_worker(self, program: Program) -> AsyncIterator[Worker]:
        """Have a process for a program, which has ended when the block is left.

        Raises:
          _NotStartedError: It could not be started.
        """
        self.workers += 1
        try:
            worker = await self._start(program)
            try:
                if not self.keeper.watch(worker.process):
                    raise _NotStartedError(_killed("the process that ends the others is gone; serve the runtime again"))
                yield worker
            finally:
                worker.kill()
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(worker.close)
                self.keeper.forget(worker.process)
        finally:
            self.workers -= 1
            if self.has_ended and not self.workers:
                self.gone.set()

    async def _start(self, program: Program) -> Worker:
        import pydantic_monty as monty

        try:
            token = trio.lowlevel.current_trio_token()
            return await trio.to_thread.run_sync(Worker.open, self.pool, program, token)
        except (OSError, RuntimeError, monty.MontyError) as error:
            raise _NotStartedError(_killed(f"no process could be started: {error}")) from error


async def _compute(worker: Worker, nursery: trio.Nursery) -> ProgramEnd:
    """Run a program to its end, turn by turn."""
    import pydantic_monty as monty

    calls = Calls(worker, nursery)
    nursery.start_soon(worker.watch, calls.give_up)
    turn = worker.begin
    try:
        while True:
            stopped = await worker.turn(turn)
            if isinstance(stopped.snapshot, monty.MontyComplete):
                return _ended(worker, stopped.snapshot.output)
            turn = partial(worker.go, await calls.next_turn(stopped))
    except monty.MontyError as error:
        await trio.lowlevel.checkpoint_if_cancelled()  # then it was we who killed it
        return _failed(worker, error)


def _ended(worker: Worker, output: object) -> ProgramEnd:
    """Return how a program came out that ran to its end; the output is what ``__end__`` of the prelude made."""
    match output:
        case _ if worker.flooded:
            return _too_much(worker)
        case None:
            return ProgramEnd()
        case str(value) if worker.used + len(value.encode()) > worker.program.limits.output:
            return _too_much(worker)
        case str(value) if is_readable(value):
            return ProgramEnd(value=value)
        case [str(problem)]:
            return ProgramEnd(failure="invalid_output", message=f"what it returned is no JSON: {shortened(problem)}")
        case _:
            return ProgramEnd(
                failure="invalid_output", message=f"what it returned is no JSON, or nested more than {DEEPEST} deep"
            )


def _failed(worker: Worker, error: "monty.MontyError") -> ProgramEnd:
    """Return how a program came out that did not run to its end."""
    import pydantic_monty as monty

    if worker.flooded:
        return _too_much(worker)
    late = f"it computed for more than {worker.program.limits.seconds:g} s"
    if isinstance(error, monty.MontyRuntimeError | monty.MontySyntaxError):
        message = sentence(error, worker.wrapped, worker.program.tools)
        if message.startswith(_TIMEOUT) and worker.computed >= worker.program.limits.seconds:
            return ProgramEnd(failure="timeout", message=f"{late}: {message}")
        return ProgramEnd(failure="exception", message=message)
    if isinstance(error, monty.MontyCrashedError) and error.timed_out:
        return ProgramEnd(failure="timeout", message=f"{late} and was killed")
    return _killed(f"its process ended: {error}")


def _too_much(worker: Worker) -> ProgramEnd:
    most = worker.program.limits.output
    return ProgramEnd(failure="output_limit", message=f"it printed and returned more than {most} bytes together")


def _killed(message: str) -> ProgramEnd:
    return ProgramEnd(failure="killed", message=message)

"""A worker of Monty: one process for one program, driven from threads.

A program computes while a thread waits for it, and waits for its tools without one. A thread that waits cannot be
stopped, so the process is killed instead, which ends the wait at once.
"""

import collections
import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs
import outcome
import trio

from .._json import DEEPEST, is_readable
from .._runtime import LONGEST_ARGUMENTS, MOST_ARGUMENTS, Program
from ._source import CALL, TOOL_ERROR, Wrapped, prelude, wrap

if TYPE_CHECKING:
    import pydantic_monty as monty

_STEPS_A_CALL = 4  # turns between a program and us; a call needs two
_STEPS = 10_000  # for names it looks up, and for sleep
_TOO_LONG = "the arguments of this call, or of all calls that are on their way, are too long"


@attrs.frozen
class Asked:
    """A call of a tool, or if it has no name the wish to sleep."""

    number: int
    name: str
    arguments: str
    size: int = 0
    """Bytes of the arguments."""
    seconds: float = 0.0


@attrs.frozen
class Stopped:
    """Where a program stopped: at its end, or until what it asked for is there."""

    snapshot: "monty.MontyComplete | monty.FutureSnapshot | monty.FunctionSnapshot"
    asked: list[Asked]
    """What it asked for since the last time."""
    pause: float = 0.0
    """Seconds for which all of it sleeps, if the snapshot is of a function."""


@attrs.define(eq=False)
class Worker:
    """One process, and what it printed so far."""

    program: Program
    session: "monty.MontySession"
    process: int
    token: trio.lowlevel.TrioToken
    wrapped: Wrapped = attrs.field(init=False)
    """The program as the process has it, once it began."""
    printed: collections.deque[str] = attrs.field(init=False, factory=collections.deque[str])
    """What it printed and nobody was given yet."""
    woken: trio.Event = attrs.field(init=False, factory=trio.Event)
    """Is set when there is something from the thread."""
    used: int = 0
    """Bytes printed."""
    flooded: bool = False
    """Whether that was too much."""
    ended: bool = False
    """Whether the process is known to have ended."""
    computed: float = 0.0
    """Seconds for which it computed."""
    asked: int = 0
    """Bytes of the arguments of all calls until now; counted in the threads."""
    answered: int = 0
    """Bytes of those that were answered; counted in the thread of trio, which runs at the same time."""

    # ------------------------------------------------------------ in the thread of trio

    def wake(self) -> None:
        """Have `turn` look at what came from its thread."""
        self.woken.set()

    async def turn(self, compute: "Callable[[], Stopped]") -> "Stopped":
        """Compute in a thread until the program stops, and emit what it prints meanwhile.

        A cancellation is for `watch` to see: the thread has to be out of the session before anybody goes on.
        `trio.to_thread.run_sync` does as much, at three times the cost, which a program pays for each call.

        Raises:
          MontyError: It failed, or its process ended.
        """
        came: list[outcome.Outcome[Stopped]] = []

        def deliver(result: outcome.Outcome[Stopped]) -> None:
            came.append(result)
            self.token.run_sync_soon(self.wake)

        trio.lowlevel.start_thread_soon(compute, deliver, "monty")
        with trio.CancelScope(shield=True):
            while not came or self.printed:
                await self.woken.wait()
                self.woken = trio.Event()
                while self.printed:
                    self.program.emit(self.printed.popleft())
        return came[0].unwrap()

    def kill(self) -> None:
        """End the process, whatever it does."""
        if not self.ended:
            # It is ours to reap, in close() or when a turn fails; until then its number is nobody else's.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process, signal.SIGKILL)

    async def watch(self, ended: Callable[[], None]) -> None:
        """Tell when the process has ended, where the kernel tells us, and kill it when this task is cancelled.

        It is cancelled when the program is over, too.
        """
        handle = None
        with contextlib.suppress(AttributeError, OSError):  # only Linux has it; elsewhere the next turn finds out
            handle = os.pidfd_open(self.process)
        try:
            if handle is None:
                await trio.sleep_forever()
            else:
                await trio.lowlevel.wait_readable(handle)
                ended()
        finally:
            self.kill()
            if handle is not None:
                os.close(handle)

    # ------------------------------------------------------------ in a thread

    @classmethod
    def open(cls, pool: "monty.Monty", program: Program, token: trio.lowlevel.TrioToken) -> "Worker":
        """Start the process, which then waits."""
        limits = program.limits
        session = pool.checkout(
            script_name="program.py",
            limits={
                "max_feed_duration_secs": limits.seconds,
                "max_memory": limits.memory,
                "max_suspensions": _STEPS + _STEPS_A_CALL * limits.calls,
            },
            os_policy={"sleep": "call_host"},
        )
        session.__enter__()
        process = session.worker_pid
        assert process is not None, "a session between turns knows its process"
        return cls(program, session, process, token)

    def close(self) -> None:
        """See that the process has ended, once it was killed."""
        self.session.__exit__(None, None, None)
        self.ended = True

    def begin(self) -> Stopped:
        """Run the program until it stops for the first time."""
        self.wrapped = wrap(self.program.source)
        return self.go(self._begin)

    def go(self, turn: "Callable[[], monty.SyncSnapshot]") -> Stopped:
        """Let the program compute until it stops."""
        import pydantic_monty as monty

        asked: list[Asked] = []
        began = time.monotonic()
        try:
            snapshot = turn()
            while not isinstance(snapshot, monty.MontyComplete | monty.FutureSnapshot):
                if isinstance(snapshot, monty.NameLookupSnapshot):
                    snapshot = snapshot.resume()  # we have no names but those of the prelude
                elif snapshot.is_os_function and snapshot.function_name == "time.sleep":
                    return Stopped(snapshot, asked, pause=_seconds(snapshot.args))
                else:
                    snapshot = self._answer(snapshot, asked)
        except monty.MontyCrashedError:
            self.ended = True
            raise
        finally:
            self.computed += time.monotonic() - began
        return Stopped(snapshot, asked)

    def _begin(self) -> "monty.SyncSnapshot":
        self.session.feed_run(prelude(self.program.tools), print_callback=self._print)
        return self.session.feed_start(self.wrapped.source, print_callback=self._print)

    def _answer(self, snapshot: "monty.FunctionSnapshot", asked: list[Asked]) -> "monty.SyncSnapshot":
        name, args = str(snapshot.function_name), snapshot.args
        if snapshot.is_os_function:
            if name != "asyncio.sleep":
                return snapshot.resume_not_handled()
            asked.append(Asked(snapshot.call_id, "", "", seconds=_seconds(args)))
        elif name != CALL:
            return snapshot.resume({"exc_type": "NameError", "message": f"name {name!r} is not defined"})
        else:
            call = self._see_call(snapshot.call_id, args)
            if not isinstance(call, Asked):
                return snapshot.resume(call)
            asked.append(call)
        return snapshot.resume({"future": ...})

    def _see_call(self, number: int, args: tuple[object, ...]) -> "Asked | monty.ExternalExceptionData":
        """Return the call that the arguments of `CALL` are, or what it raises; a program can call it by itself."""
        match args:
            case (str(name), str(arguments)) if name in self.program.tools:
                size = len(arguments.encode())
                if size > LONGEST_ARGUMENTS or self.asked - self.answered + size > MOST_ARGUMENTS:
                    return {"exc_type": TOOL_ERROR, "message": _TOO_LONG}
                if arguments.startswith("{") and is_readable(arguments):
                    self.asked += size
                    return Asked(number, name, arguments, size)
            case _:
                pass
        problem = f"the arguments of a tool are JSON, nested no more than {DEEPEST} deep"
        return {"exc_type": "ValueError", "message": problem}

    def _print(self, _: str, text: str) -> None:
        if self.flooded:
            return
        data = text.encode()
        room = self.program.limits.output - self.used
        if len(data) > room:
            self.flooded = True
            text = data[:room].decode(errors="ignore")
        self.used += len(data)
        if text:
            self.printed.append(text)
            self.token.run_sync_soon(self.wake)
        if self.flooded:
            self.kill()  # an exception in here would not end a program that goes on printing


def _seconds(args: tuple[object, ...]) -> float:
    match args:
        case (float(seconds), *_) if seconds > 0:
            return seconds
        case _:
            return 0.0

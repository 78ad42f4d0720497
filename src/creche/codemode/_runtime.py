"""The seam to whatever runs a program that a model wrote, and what goes through it.

A runtime is served for the length of a block, which owns every process of it. In the block, programs run: each in
a sandbox of its own, several at once, and none sees anything of another.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol

import attrs

from creche._util import is_count, is_duration, is_positive

LONGEST_SOURCE = 1_000_000
"""Characters of a program; ``run_code`` hands no longer one to a runtime."""
LONGEST_ARGUMENTS = 4 * 1024 * 1024
"""Bytes of JSON, as UTF-8, that the arguments of one call may have."""
MOST_ARGUMENTS = 16 * 1024 * 1024
"""Bytes that those of all calls of one program may have that have not been answered."""

ProgramFailure = Literal["exception", "timeout", "killed", "invalid_output", "output_limit"]
"""How a program can fail: it raised, or is no program; its computing took too long; its process ended under it, as when
memory ran out; it returned what is no JSON; it wrote too much."""


def _at_most(most: int) -> Callable[[object, "attrs.Attribute[Any]", Any], None]:
    """Return a validator that refuses what is more: no runtime has to do with numbers that do not fit into its own."""

    def check(owner: object, field: "attrs.Attribute[Any]", value: Any) -> None:
        if value > most:
            raise ValueError(f"{type(owner).__name__}.{field.name} is at most {most}, not {value!r}")

    return check


@attrs.frozen(kw_only=True)
class CodeLimits:
    """What one program may use."""

    memory: int = attrs.field(default=256 * 1024 * 1024, validator=[is_positive, _at_most(2**40)])
    """Bytes of memory, those of the interpreter not counted; at most 2 ** 40."""
    output: int = attrs.field(default=256 * 1024, validator=[is_positive, _at_most(2**30)])
    """Bytes of UTF-8 that it may print and return, together; at most 2 ** 30."""
    calls: int = attrs.field(default=1000, validator=[is_count, _at_most(1_000_000)])
    """Calls of tools, at most a million; one more raises a ``ToolCallError`` in the program."""
    seconds: float = attrs.field(default=600.0, validator=[is_duration, _at_most(1_000_000)])
    """The most that a program may compute, waiting not counted, whatever becomes of who runs it; at most a million. A net
    below the deadline of each run, which is its caller's to hold."""


@attrs.frozen(eq=False, kw_only=True)
class Program:
    """One program on its way into a sandbox."""

    source: str
    """The body of an async function, in Python: top-level ``await`` and ``return``. ``run_code`` refuses one of more than
    a million characters."""
    tools: frozenset[str]
    """Names of the tools that it may call, each as ``await tools.name(...)`` or ``await tools["name"](...)``."""
    call: Callable[[str, str], Awaitable[str]]
    """Contract: given the name of a tool and the keyword arguments as JSON text, gives the value as JSON text. It is called
    in the order of the program's calls, at once; what it returns is awaited in a task of its own, so calls overlap. A
    `creche.errors.ToolError` that this raises is raised in the program as a ``ToolCallError`` with its text. So is what a
    runtime refuses: a call over the limit, one whose arguments have more than 4 MiB, and one with which those of all
    calls that have no answer yet would have more than 16 MiB. When the program is over, however it is, whoever runs it
    cancels the calls that are left, and waits for them."""
    emit: Callable[[str], None]
    """Contract: synchronous; given what the program prints as it is printed, in order, in the task of trio."""
    limits: CodeLimits


@attrs.frozen(kw_only=True)
class ProgramEnd:
    """How a program came out. What it printed has been given to its ``emit`` by then."""

    value: str | None = None
    """What it returned, as JSON text; ``None`` if it ended without a ``return``, or failed."""
    failure: ProgramFailure | None = None
    """How it failed; ``None`` if it did not."""
    message: str = ""
    """Of a failure: what went wrong, with the line of the program if it is known."""

    def __attrs_post_init__(self) -> None:
        if self.failure is not None and self.value is not None:
            raise ValueError("a program that failed has no value")


class RunProgram(Protocol):
    """Runs programs in a runtime that is being served."""

    async def __call__(self, program: Program, /) -> ProgramEnd:
        """Run one program to its end.

        Contract: raises nothing but cancellation, which may come at any time and also while the program computes, as long
        as ``call`` raises nothing but a `creche.errors.ToolError` and ``emit`` nothing. However it ends, by then every
        process of the program is gone, and what it had printed was given to ``emit``.
        """
        ...


class CodeRuntime(Protocol):
    """A kind of sandbox for programs."""

    @property
    def name(self) -> str:
        """Such as ``"monty"``."""
        ...

    @property
    def notes(self) -> str:
        """What a model has to know of the language in it, in a few sentences; joins the description of ``run_code``."""
        ...

    def serve(self) -> AbstractAsyncContextManager[RunProgram]:
        """Be ready to run programs for the length of the block; when it is left, every process has ended.

        Contract: programs that still run then end as ``"killed"``, and so does at once every one that is run later. No
        process outlives this one either, also when this one is killed.

        Raises:
          PluginError: It cannot run here; the sentence says why and what to do.
        """
        ...

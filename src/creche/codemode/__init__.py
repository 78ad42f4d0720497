"""Code mode: programs that a model writes, in a sandbox that can be killed, with tools as its functions."""

from creche._util import publish

from ._runtime import (
    CodeLimits as CodeLimits,
    CodeRuntime as CodeRuntime,
    Program as Program,
    ProgramEnd as ProgramEnd,
    ProgramFailure as ProgramFailure,
    RunProgram as RunProgram,
)

__all__ = [
    "CodeLimits",
    "CodeRuntime",
    "Program",
    "ProgramEnd",
    "ProgramFailure",
    "RunProgram",
]

publish(globals(), __name__)

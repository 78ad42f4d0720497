"""Code mode: programs that a model writes, in a sandbox that can be killed, with tools as its functions."""

from creche._util import publish

from ._bubblewrap import BubblewrapRuntime as BubblewrapRuntime
from ._monty import MontyRuntime as MontyRuntime
from ._plugin import code_mode as code_mode
from ._runtime import (
    CodeLimits as CodeLimits,
    CodeRuntime as CodeRuntime,
    Program as Program,
    ProgramEnd as ProgramEnd,
    ProgramFailure as ProgramFailure,
    RunProgram as RunProgram,
)
from ._stubs import render_stubs as render_stubs

__all__ = [
    "BubblewrapRuntime",
    "CodeLimits",
    "CodeRuntime",
    "MontyRuntime",
    "Program",
    "ProgramEnd",
    "ProgramFailure",
    "RunProgram",
    "code_mode",
    "render_stubs",
]

publish(globals(), __name__)

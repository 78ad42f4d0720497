"""Code mode: programs that a model writes, in a sandbox that can be killed, with tools as its functions.

A turn calls ``run_code`` (`_run_code`), which hands a program to a runtime (`_runtime`, the seam) and runs its calls in the
pipeline of tools. `_monty` and `_bubblewrap` are the runtimes, `_stubs` writes what the prompt says of the tools, and
`_plugin` puts it together.
"""

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

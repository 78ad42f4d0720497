"""Tools: made from typed functions, seen through restrictions, run through the guarded pipeline."""

from creche._util import publish

from ._batch import run_calls as run_calls
from ._output import OutputShape as OutputShape, output_shape as output_shape
from ._pipeline import execute_call as execute_call
from ._stages import (
    Deny as Deny,
    Execute as Execute,
    Execution as Execution,
    Guard as Guard,
    PostExecute as PostExecute,
    PreExecute as PreExecute,
    Proceed as Proceed,
    ToolOutcome as ToolOutcome,
)
from ._tool import (
    RUN_CODE as RUN_CODE,
    Tool as Tool,
    ToolContext as ToolContext,
    ToolThreads as ToolThreads,
    as_tools as as_tools,
    tool as tool,
)
from ._visible import (
    VISIBLE as VISIBLE,
    Mode as Mode,
    Presentation as Presentation,
    Restriction as Restriction,
    VisibleTools as VisibleTools,
    native_provider as native_provider,
    present_as as present_as,
    restrict as restrict,
    visible as visible,
)

__all__ = [
    "RUN_CODE",
    "VISIBLE",
    "Deny",
    "Execute",
    "Execution",
    "Guard",
    "Mode",
    "OutputShape",
    "PostExecute",
    "PreExecute",
    "Presentation",
    "Proceed",
    "Restriction",
    "Tool",
    "ToolContext",
    "ToolOutcome",
    "ToolThreads",
    "VisibleTools",
    "as_tools",
    "execute_call",
    "native_provider",
    "output_shape",
    "present_as",
    "restrict",
    "run_calls",
    "tool",
    "visible",
]

publish(globals(), __name__)

"""Tools: made from typed functions, seen through restrictions, run through the guarded pipeline."""

from creche._util import publish

from ._approval import (
    Allow as Allow,
    ApprovalRequest as ApprovalRequest,
    Approver as Approver,
    Refuse as Refuse,
)
from ._batch import run_calls as run_calls
from ._context import (
    CallStep as CallStep,
    ToolContext as ToolContext,
    ToolProgressed as ToolProgressed,
    forget_calls as forget_calls,
)
from ._cut import LONGEST_RESULT as LONGEST_RESULT, ResultFolder as ResultFolder
from ._nested import begin_call as begin_call, call_tool as call_tool
from ._output import OutputShape as OutputShape, output_shape as output_shape
from ._pipeline import execute_call as execute_call
from ._stages import (
    Block as Block,
    Deny as Deny,
    Execute as Execute,
    Execution as Execution,
    Guard as Guard,
    PostExecute as PostExecute,
    PreExecute as PreExecute,
    Proceed as Proceed,
    RequestApproval as RequestApproval,
    ToolOutcome as ToolOutcome,
)
from ._tool import (
    RUN_CODE as RUN_CODE,
    Tool as Tool,
    ToolThreads as ToolThreads,
    as_tools as as_tools,
    tool as tool,
)
from ._visible import (
    VISIBLE as VISIBLE,
    CodeTool as CodeTool,
    Mode as Mode,
    Presentation as Presentation,
    Restriction as Restriction,
    VisibleTools as VisibleTools,
    present_as as present_as,
    restrict as restrict,
    tool_provider as tool_provider,
    visible as visible,
)

__all__ = [
    "LONGEST_RESULT",
    "RUN_CODE",
    "VISIBLE",
    "Allow",
    "ApprovalRequest",
    "Approver",
    "Block",
    "CallStep",
    "CodeTool",
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
    "Refuse",
    "RequestApproval",
    "Restriction",
    "ResultFolder",
    "Tool",
    "ToolContext",
    "ToolOutcome",
    "ToolProgressed",
    "ToolThreads",
    "VisibleTools",
    "as_tools",
    "begin_call",
    "call_tool",
    "execute_call",
    "forget_calls",
    "output_shape",
    "present_as",
    "restrict",
    "run_calls",
    "tool",
    "tool_provider",
    "visible",
]

publish(globals(), __name__)

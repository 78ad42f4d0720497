"""What passes through the pipeline of one call: the call on its way, the stages' events, the outcome.

The order of the stages is in `_pipeline.py`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, Literal, cast

import attrs

from creche.messages import ImagePart, Part, TextPart, ToolCall
from creche.prompt import AgentView
from creche.scope import Operation

from ._tool import Tool, ToolContext


def _as_parts(content: str | Iterable[Part]) -> tuple[Part, ...]:
    parts = (TextPart(content),) if isinstance(content, str) else tuple(content)
    for part in cast("tuple[object, ...]", parts):
        if not isinstance(part, TextPart | ImagePart):
            # Refused here, where whoever made it can be told: from a log it would spoil every request that follows.
            raise TypeError(f"an outcome consists of texts and images, and a {type(part).__name__} is neither")
    return parts


@attrs.frozen
class ToolOutcome:
    """How a call came out."""

    parts: tuple[Part, ...] = attrs.field(converter=_as_parts)
    """What the model is told; given as parts, or as one text."""
    code: str = attrs.field(default="", kw_only=True)
    """``""`` for a success, else the kind of error: ``"unknown-tool"``, ``"invalid-arguments"``, ``"denied"``,
    ``"failed"``, ``"retry"``, ``"exception"``, ``"invalid-result"``, ``"cancelled"``, ``"not-started"``,
    ``"abandoned"``, ``"internal"``, the code of a limit, or one that the body chose."""

    @property
    def is_error(self) -> bool:
        """Whether the call failed."""
        return bool(self.code)

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return "".join([part.text for part in self.parts if isinstance(part, TextPart)])


def failure(code: str, text: str) -> ToolOutcome:
    """Return the outcome of a call that failed."""
    return ToolOutcome((TextPart(f"Error: {text}"),), code=code)


@attrs.frozen(eq=False)
class Execution:
    """One call on its way through the pipeline."""

    call: ToolCall
    """What the model wrote."""
    tool: Tool = attrs.field(kw_only=True)
    """The tool it found in the caller's view."""
    arguments: Mapping[str, object] = attrs.field(kw_only=True)
    """The arguments as JSON values, read-only; they fit the tool. The body gets its own, structured by its types."""
    context: ToolContext = attrs.field(kw_only=True)
    """Who calls."""

    @property
    def agent(self) -> AgentView | None:
        """The agent that calls."""
        return self.context.agent


@attrs.frozen
class Proceed:
    """Let the call through."""

    arguments: Mapping[str, object] | None = None
    """JSON values in place of the model's arguments; they are checked like the model's."""


@attrs.frozen
class Deny:
    """Refuse the call; the model is told why."""

    reason: str
    """A sentence for the model."""


@attrs.frozen(eq=False)
class PreExecute(Operation[Proceed | Deny]):
    """A call is about to run: proceed, change its arguments, or deny it.

    The arguments are changed with the decision that is returned, or for the wrappers further in, and then for
    the body, with an event of other arguments that is passed inwards.
    """

    wire_name: ClassVar[str] = "tools/pre-execute"
    execution: Execution
    """The call."""


@attrs.frozen(eq=False)
class Execute(Operation[ToolOutcome]):
    """The body runs inside of this; wrappers see an outcome, never the body's exception.

    A wrapper may run the body again, or not at all; it cannot run another one, nor with other arguments.
    """

    wire_name: ClassVar[str] = "tools/execute"
    execution: Execution
    """The call."""


@attrs.frozen(eq=False)
class PostExecute(Operation[ToolOutcome]):
    """A call has an outcome, which wrappers may replace before it is recorded."""

    wire_name: ClassVar[str] = "tools/post-execute"
    execution: Execution
    """The call."""
    outcome: ToolOutcome = attrs.field(kw_only=True)
    """What came out."""


@attrs.frozen(eq=False)
class Guard:
    """An entry: may refuse a call that is visible, at a scope and all below it. A guard cannot allow anything."""

    check: Callable[[Execution], str | None]
    """Contract: synchronous; returns the reason to refuse, a sentence for the model, or ``None``. One that raises
    or returns anything else refuses, and is a `Fault` at its owner. Called once a call that nobody denied."""
    lets_through: Callable[[str], bool] | None = attrs.field(default=None, kw_only=True)
    """Tells by the name of a tool alone whether it refuses, if it goes by names alone. What it refuses of a parent, a
    child under a preset may not call either without a grant."""
    entry_shape: ClassVar[Literal["anonymous"]] = "anonymous"
    narrows: ClassVar[bool] = True

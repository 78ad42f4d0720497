"""What passes through the pipeline of one call: the call on its way, the stages' events, the outcome.

The order of the stages is in `_pipeline.py`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, Literal, cast

import attrs

from creche._util import is_text
from creche.messages import ImagePart, Part, TextPart, ToolCall
from creche.prompt import AgentView
from creche.scope import Operation

from ._context import ToolContext
from ._tool import Tool


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
    code: str = attrs.field(default="", validator=is_text, kw_only=True)
    """``""`` for a success, else the kind of error: ``"unknown-tool"``, ``"invalid-arguments"``, ``"denied"``,
    ``"approval-refused"``, ``"approval-unanswered"``, ``"failed"``, ``"retry"``, ``"timeout"``, ``"exception"``,
    ``"invalid-result"``, ``"blocked"``, ``"code-"`` and the kind of a `CodeError`, ``"cancelled"``, ``"not-started"``,
    ``"abandoned"``, ``"internal"``, the code of a limit, or one that the body chose."""
    json_text: str | None = attrs.field(default=None, kw_only=True, repr=False)
    """The value that the body returned as canonical JSON, which is what a program is given; ``None`` if it returned a text
    or parts, or failed, and then a program is given `text`."""

    @property
    def is_error(self) -> bool:
        """Whether the call failed."""
        return bool(self.code)

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return "".join([part.text for part in self.parts if isinstance(part, TextPart)])

    @property
    def reason(self) -> str:
        """Of a failure: the text without the word that tells the model that it is one."""
        return self.text.removeprefix(_ERROR)


_ERROR = "Error: "


def failure(code: str, text: str) -> ToolOutcome:
    """Return the outcome of a call that failed."""
    return ToolOutcome((TextPart(f"{_ERROR}{text}"),), code=code)


def unfinished(context: ToolContext | None) -> ToolOutcome:
    """Return the outcome of a call that was cancelled; without a context, of one that had no record yet."""
    if context is None or not context.began:
        what = "the turn" if context is None or context.is_direct else "what it was part of"
        return failure("not-started", f"the call was not started; {what} ended before it")
    if context.abandoned:
        return failure("abandoned", "the call was cancelled and its thread left behind; it may still run")
    return failure(
        "cancelled",
        f"the call was cancelled while it ran; what it had done until then stands{said_until_then(context)}",
    )


def said_until_then(context: ToolContext) -> str:
    """Return what a body had said until it was interrupted, as the end of a sentence."""
    return f". Until then:\n{context.said}" if context.said else ""


@attrs.frozen(eq=False)
class Execution:
    """One call on its way through the pipeline."""

    call: ToolCall
    """What the model wrote, or a program of the model called."""
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


def _check_code(deny: "Deny", attribute: "attrs.Attribute[str]", code: str) -> None:
    is_text(deny, attribute, code)
    if not code:
        raise ValueError("a refusal has a code; an empty one would be a success")


@attrs.frozen
class Deny:
    """Refuse the call; the model is told why."""

    reason: str
    """A sentence for the model."""
    code: str = attrs.field(default="denied", validator=_check_code, kw_only=True)
    """The kind of refusal, for programs; see `ToolOutcome.code`."""


@attrs.frozen
class RequestApproval:
    """Let the call through if somebody allows it: the approvers of the agent's scope chain are asked, the nearest first."""

    reason: str
    """Why it has to be asked for, a sentence for who decides."""
    subject: str | None = attrs.field(default=None, kw_only=True)
    """What is allowed if it is allowed for longer than this call, such as ``"bash: git status"``; the tool's name if
    absent."""
    arguments: Mapping[str, object] | None = attrs.field(default=None, kw_only=True)
    """JSON values in place of the model's arguments, as for `Proceed`."""


@attrs.frozen(eq=False)
class PreExecute(Operation[Proceed | Deny | RequestApproval]):
    """A call is about to run: proceed, change its arguments, deny it, or request an approval.

    The arguments are changed with the decision that is returned, or for the wrappers further in, and then for
    the body, with an event of other arguments that is passed inwards. The outermost wrapper decides: one that has no
    reason to lift what was decided further in returns that, or evolves it.
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


@attrs.frozen
class Block:
    """Take a call back as far as the model is concerned: its outcome is this feedback, and what it deferred is dropped.

    What it did is done.
    """

    feedback: str
    """A sentence for the model."""


@attrs.frozen(eq=False)
class PostExecute(Operation[ToolOutcome | Block]):
    """A call has an outcome: accept it as it is, return another one in its place, or block it."""

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
    or returns anything else refuses, and is a `Fault` at its owner. Called once a call that nobody denied, and once more
    after an approval was waited for."""
    lets_through: Callable[[str], bool] | None = attrs.field(default=None, kw_only=True)
    """Tells by the name of a tool alone whether it refuses, if it goes by names alone. What it refuses of a parent, a
    child under a preset may not call either without a grant."""
    entry_shape: ClassVar[Literal["anonymous"]] = "anonymous"
    narrows: ClassVar[bool] = True

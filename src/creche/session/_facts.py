"""What a record can say: one frozen class a kind.

Facts hold what happened and nothing that could be derived from other records. Each refuses a field of a wrong type when it is made: a record that
cannot be written would take the whole journal with it.
"""

from typing import Literal, get_args

import attrs

from creche._util import is_a, is_bool, is_finite, is_none_or, is_one_of, is_text, is_tuple_of, is_whole
from creche.messages import AssistantMessage, DeveloperMessage, SystemMessage, ToolMessage, UserMessage
from creche.models import FinishReason, RequestHead, StreamRun, Usage

Lane = Literal["next-turn", "next-step"]
TurnReason = Literal["completed", "blocked", "max-tokens", "limit", "error", "cancelled"]
HeaderReason = Literal["initial", "resume", "change", "series"]
Decision = Literal["allowed", "refused", "unanswered", "cancelled"]
Lasting = Literal["once", "agent", "project"]
Outcome = Literal["done", "truncated", "limit", "refused", "cancelled", "failed", "unknown"]


@attrs.frozen
class TurnStarted:
    """A turn begins."""


@attrs.frozen
class TurnEnded:
    """A turn is over."""

    reason: TurnReason = attrs.field(validator=is_one_of(*get_args(TurnReason)))
    """How."""
    detail: str = attrs.field(default="", validator=is_text, kw_only=True)
    """The cause of a cancellation, the reason of a refusal, the message of an error."""


@attrs.frozen
class StepStarted:
    """A step begins: one model request and the tool calls it causes."""


@attrs.frozen
class StepEnded:
    """A step is over; every call of it has its result."""


@attrs.frozen
class MessageAccepted:
    """A message is in the inbox."""

    id: str = attrs.field(validator=is_text)
    """Its delivery."""
    lane: Lane = attrs.field(validator=is_one_of(*get_args(Lane)), kw_only=True)
    """Whether it waits for a turn of its own or joins the next step."""
    message: UserMessage = attrs.field(validator=is_a(UserMessage), kw_only=True)
    """What it says."""


@attrs.frozen
class MessagesClaimed:
    """A turn took messages out of the inbox."""

    ids: tuple[str, ...] = attrs.field(validator=is_tuple_of(str, "texts"))
    """Their deliveries, in the order in which the model will see them."""


@attrs.frozen
class MessagesDropped:
    """Messages were taken out of the inbox unread."""

    ids: tuple[str, ...] = attrs.field(validator=is_tuple_of(str, "texts"))
    """Their deliveries."""
    cause: str = attrs.field(validator=is_text, kw_only=True)
    """Why."""


@attrs.frozen
class SystemSaid:
    """The system prompt stands here. An empty text reserves the place and says nothing."""

    message: SystemMessage = attrs.field(validator=is_a(SystemMessage))
    """The prompt."""


@attrs.frozen
class UserSaid:
    """A user-role message joined the history."""

    message: UserMessage = attrs.field(validator=is_a(UserMessage))
    """What it says, and whose it is."""
    delivery: str | None = attrs.field(default=None, validator=is_none_or(is_text), kw_only=True)
    """The delivery it came with, if it came through the inbox."""


@attrs.frozen
class AssistantSaid:
    """The model answered: one record an attempt, its stream embedded."""

    message: AssistantMessage = attrs.field(validator=is_a(AssistantMessage))
    """What it said."""
    stream: tuple[StreamRun, ...] = attrs.field(default=(), validator=is_tuple_of(StreamRun), kw_only=True)
    """Every delta, packed; `creche.models.expand_stream` gives them back."""
    finish: FinishReason | None = attrs.field(
        default=None, validator=is_none_or(is_one_of(*get_args(FinishReason))), kw_only=True
    )
    """Why it ended; ``None`` for an answer that was cut off."""
    usage: Usage = attrs.field(factory=Usage, validator=is_a(Usage), kw_only=True)
    """What the attempt cost, as far as the provider said."""


@attrs.frozen
class AttemptFailed:
    """An attempt at a request failed, or was cancelled before anything could be seen."""

    error: str = attrs.field(validator=is_text)
    """What went wrong, a sentence."""
    code: str = attrs.field(validator=is_text, kw_only=True)
    """The kind of failure, see `creche.models.FAILURES`; ``"cancelled"`` for a cancelled one."""
    stream: tuple[StreamRun, ...] = attrs.field(default=(), validator=is_tuple_of(StreamRun), kw_only=True)
    """What had come until then."""
    usage: Usage = attrs.field(factory=lambda: Usage(1), validator=is_a(Usage), kw_only=True)
    """What the attempt cost; the request counts even when its tokens are not known."""


@attrs.frozen
class RetryPlanned:
    """The attempt will be made again inside the open step."""

    attempt: int = attrs.field(validator=is_whole)
    """Number of the attempt that failed, from 1."""
    delay: float = attrs.field(validator=is_finite, kw_only=True)
    """Seconds until the next."""


@attrs.frozen
class HeaderWritten:
    """Settings and tools of the requests from here on."""

    head: RequestHead = attrs.field(validator=is_a(RequestHead))
    """Settings and tools."""
    reason: HeaderReason = attrs.field(validator=is_one_of(*get_args(HeaderReason)), kw_only=True)
    """Why it was written."""
    starts_series: bool = attrs.field(default=False, validator=is_bool, kw_only=True)
    """Whether the provider's prefix cache cannot be expected to hold here."""


@attrs.frozen
class RouteNoted:
    """What was known of the route when it changed. For people; it drives nothing."""

    provider: str = attrs.field(validator=is_text)
    """Name of the model provider."""
    model: str = attrs.field(validator=is_text, kw_only=True)
    """Name of the model."""
    context_window: int | None = attrs.field(default=None, validator=is_none_or(is_whole), kw_only=True)
    """Tokens that fit, if known."""
    system_prompt_update: str | None = attrs.field(default=None, validator=is_none_or(is_text), kw_only=True)
    """Whether a changed prompt may be appended after the history."""


@attrs.frozen
class ToolsChanged:
    """The model was told in its history which tools came and went."""

    message: DeveloperMessage = attrs.field(validator=is_a(DeveloperMessage))
    """Their names."""
    header: int | None = attrs.field(default=None, validator=is_none_or(is_whole), kw_only=True)
    """Sequence number of the header with the full declarations, if tools were added."""


@attrs.frozen
class ToolCalled:
    """A call is about to run. What has no such record never started."""

    call_id: str = attrs.field(validator=is_text)
    """Id of the call."""
    name: str = attrs.field(validator=is_text, kw_only=True)
    """Name of the tool."""
    arguments: str = attrs.field(validator=is_text, kw_only=True)
    """The arguments as the model wrote them."""


@attrs.frozen
class ToolReturned:
    """A call has its result."""

    message: ToolMessage = attrs.field(validator=is_a(ToolMessage))
    """The result as the model sees it."""
    code: str = attrs.field(default="", validator=is_text, kw_only=True)
    """The kind of error, such as ``"invalid-arguments"``; ``""`` for a success."""


@attrs.frozen
class CodeCalled:
    """A call that another call makes is about to run: a program of ``run_code`` calls a tool."""

    call_id: str = attrs.field(validator=is_text)
    """Its id: that of the call it is part of, ``:code:`` and its number there."""
    parent: str = attrs.field(validator=is_text, kw_only=True)
    """Id of the call it is part of."""
    name: str = attrs.field(validator=is_text, kw_only=True)
    """Name of the tool."""
    arguments: str = attrs.field(validator=is_text, kw_only=True)
    """The arguments, as JSON text."""


@attrs.frozen
class CodeReturned:
    """A call that another call made has its result, which is not part of the history."""

    message: ToolMessage = attrs.field(validator=is_a(ToolMessage))
    """The result; a text that is too long for the model is cut here too."""
    parent: str = attrs.field(validator=is_text, kw_only=True)
    """Id of the call it is part of."""
    code: str = attrs.field(default="", validator=is_text, kw_only=True)
    """The kind of error, such as ``"denied"``; ``""`` for a success."""


@attrs.frozen
class ApprovalRequested:
    """A call waits until somebody allows it."""

    call_id: str = attrs.field(validator=is_text)
    """Id of the call, which may be part of another one."""
    tool: str = attrs.field(validator=is_text, kw_only=True)
    """Name of the tool."""
    subject: str = attrs.field(validator=is_text, kw_only=True)
    """What would be allowed if it was allowed for longer than once."""
    reason: str = attrs.field(validator=is_text, kw_only=True)
    """Why it has to be asked for, a sentence."""


@attrs.frozen
class ApprovalDecided:
    """Whether a call is allowed. One for each request."""

    call_id: str = attrs.field(validator=is_text)
    """Id of the call."""
    tool: str = attrs.field(validator=is_text, kw_only=True)
    """Name of the tool."""
    subject: str = attrs.field(validator=is_text, kw_only=True)
    """What was decided on."""
    decision: Decision = attrs.field(validator=is_one_of(*get_args(Decision)), kw_only=True)
    """``"unanswered"`` when nobody is there who could answer."""
    lasting: Lasting = attrs.field(default="once", validator=is_one_of(*get_args(Lasting)), kw_only=True)
    """For how long: this call alone, this agent for good, or the project, which a plugin remembers."""
    by: str = attrs.field(default="", validator=is_text, kw_only=True)
    """Whose approver decided."""
    reason: str = attrs.field(default="", validator=is_text, kw_only=True)
    """Of a refusal: why, for the model."""


@attrs.frozen
class SubagentStarted:
    """A subagent was started. May stand outside a turn: a program can start one."""

    name: str = attrs.field(validator=is_text)
    """The last segment of its path."""
    session_id: str = attrs.field(validator=is_text, kw_only=True)
    """Its session, in the same journal."""
    provider: str = attrs.field(validator=is_text, kw_only=True)
    """Which subagent provider started it."""
    preset: str | None = attrs.field(default=None, validator=is_none_or(is_text), kw_only=True)
    """The preset it is composed under instead of its parent's scope."""
    grants: tuple[str, ...] = attrs.field(default=(), validator=is_tuple_of(str, "texts"), kw_only=True)
    """Tools it sees and its parent does not, by grant of the preset."""


@attrs.frozen
class SubagentEnded:
    """A subagent has settled. One for each that started."""

    session_id: str = attrs.field(validator=is_text)
    """Its session."""
    outcome: Outcome = attrs.field(validator=is_one_of(*get_args(Outcome)), kw_only=True)
    """How it ended."""
    text: str = attrs.field(default="", validator=is_text, kw_only=True)
    """What it answered, or what it had said until then."""
    diagnostic: str = attrs.field(default="", validator=is_text, kw_only=True)
    """Why it did not end well, at most 4096 bytes of UTF-8."""
    usage: Usage = attrs.field(factory=Usage, validator=is_a(Usage), kw_only=True)
    """What it and everything below it cost."""


@attrs.frozen
class SessionForked:
    """Everything before this record is shared with another session."""

    parent: str = attrs.field(validator=is_text)
    """Id of that session."""
    boundary: int = attrs.field(validator=is_whole, kw_only=True)
    """How many of its records are shared."""


Fact = (
    TurnStarted
    | TurnEnded
    | StepStarted
    | StepEnded
    | MessageAccepted
    | MessagesClaimed
    | MessagesDropped
    | SystemSaid
    | UserSaid
    | AssistantSaid
    | AttemptFailed
    | RetryPlanned
    | HeaderWritten
    | RouteNoted
    | ToolsChanged
    | ToolCalled
    | ToolReturned
    | CodeCalled
    | CodeReturned
    | ApprovalRequested
    | ApprovalDecided
    | SubagentStarted
    | SubagentEnded
    | SessionForked
)


@attrs.frozen
class Record:
    """One line of a session log.

    The log and the codec make records, of what has been checked; only its ``data`` comes from elsewhere.
    """

    seq: int
    """Its number, from 0 without gaps."""
    kind: str = attrs.field(kw_only=True)
    """Such as ``"tool/result"``; decides the class of ``data``."""
    data: Fact = attrs.field(kw_only=True)
    """What happened."""
    turn: int = attrs.field(default=0, kw_only=True)
    """The open turn, from 1; 0 outside of turns."""
    step: int = attrs.field(default=0, kw_only=True)
    """The open step, from 1 in each turn; 0 outside of steps."""
    time: float = attrs.field(default=0.0, kw_only=True)
    """When it was appended, in seconds since the epoch. Nothing that a model sees depends on it."""
    shadows: tuple[int, ...] = attrs.field(default=(), kw_only=True)
    """Sequence numbers of the surface records it takes the place of."""


@attrs.frozen
class SessionHeader:
    """Identity of a session; never changes."""

    id: str = attrs.field(validator=is_text)
    """Unique over all stores."""
    path: str = attrs.field(validator=is_text, kw_only=True)
    """Path of the agent, such as ``"lead/research-1"``."""
    created: float = attrs.field(validator=is_finite, kw_only=True)
    """Seconds since the epoch."""
    parent: str | None = attrs.field(default=None, validator=is_none_or(is_text), kw_only=True)
    """Session of the agent that started this one."""
    preset: str | None = attrs.field(default=None, validator=is_none_or(is_text), kw_only=True)
    """The preset the agent was composed under."""
    cwd: str | None = attrs.field(default=None, validator=is_none_or(is_text), kw_only=True)
    """The agent's working directory."""
    depth: int = attrs.field(default=0, validator=is_whole, kw_only=True)
    """How many agents are above it."""

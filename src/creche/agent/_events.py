"""What happens in an agent's loop, as events dispatched at the agent's scope."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, cast

import attrs

from creche._util import is_bool, is_duration, is_text
from creche.errors import ModelError
from creche.messages import UserMessage
from creche.models import Delta, RetryPolicy, Settings
from creche.scope import Notification, Operation

if TYPE_CHECKING:
    from ._agent import Agent


def _as_messages(messages: object) -> tuple[UserMessage, ...]:
    if isinstance(messages, str | UserMessage) or not isinstance(messages, Iterable):
        cure = f"; write [UserMessage({messages!r})]" if isinstance(messages, str) else ""
        raise TypeError(f"Enter takes a list of UserMessage values, not {messages!r}{cure}")
    entering = tuple(cast("Iterable[UserMessage]", messages))
    for message in entering:
        _check_message(message)
    return entering


def _check_message(message: object) -> None:
    if type(message) is not UserMessage:
        cure = f"; write UserMessage({message!r})" if isinstance(message, str) else ""
        raise TypeError(f"Enter takes UserMessage values, and {message!r} is none{cure}")


@attrs.frozen
class Enter:
    """Let the step begin with these messages. A turn whose first step has none ends without a request."""

    messages: tuple[UserMessage, ...] = attrs.field(converter=_as_messages)
    """What joins the history, in order. A snapshot left out is proposed again at the next step; another message left
    out is lost."""
    starts_series: bool = attrs.field(default=False, validator=is_bool, kw_only=True)
    """Whether the provider's prefix cache is not expected to hold from here on."""


@attrs.frozen
class Reject:
    """End the turn before the step; who waits for a reply gets `TurnRefused`. What was claimed for it is lost."""

    reason: str = attrs.field(validator=is_text)
    """A sentence, for the log and for who waits."""


@attrs.frozen(eq=False)
class PreStep(Operation[Enter | Reject]):
    """A step is about to begin with these messages, which are out of the inbox already.

    The prompt of the step is assembled, and rendered when the wrappers have returned. What is sent to the agent
    meanwhile joins a later step.
    """

    wire_name: ClassVar[str] = "agent/pre-step"
    agent: "Agent"
    """The agent."""
    messages: Sequence[UserMessage] = attrs.field(kw_only=True)
    """What was claimed, and last the snapshot of the runtime contexts if one is due."""
    turn: int = attrs.field(kw_only=True)
    """Number of the turn."""
    step: int = attrs.field(kw_only=True)
    """Number of the step."""


@attrs.frozen(eq=False)
class BuildRequest(Operation[Settings]):
    """A request is about to be prepared with these settings; wrappers may return others, for this attempt alone.

    Settings of another provider go to the adapter that is registered under its name. Nothing of the request is in
    the log yet.
    """

    wire_name: ClassVar[str] = "agent/build-request"
    agent: "Agent"
    """The agent."""
    settings: Settings = attrs.field(kw_only=True)
    """What the agent proposes: its route and options."""
    attempt: int = attrs.field(kw_only=True)
    """Number of the attempt in this step, from 1."""


@attrs.frozen
class Again:
    """Make the attempt once more."""

    delay: float = attrs.field(default=0.0, validator=is_duration)
    """Seconds until then."""


@attrs.frozen
class GiveUp:
    """Make no further attempt: the turn ends with the error."""


@attrs.frozen(eq=False)
class RecoverRequest(Operation[Again | GiveUp]):
    """An attempt failed and is in the log; whether it is made again is decided.

    Innermost is the retry policy of the adapter. A wrapper that has another route for the next attempt returns
    `Again`, and chooses the route around `BuildRequest`.
    """

    wire_name: ClassVar[str] = "agent/recover-request"
    agent: "Agent"
    """The agent."""
    error: ModelError = attrs.field(kw_only=True)
    """Why the attempt failed."""
    settings: Settings = attrs.field(kw_only=True)
    """What was asked."""
    attempt: int = attrs.field(kw_only=True)
    """Number of the attempt in its step, from 1."""
    retry: RetryPolicy = attrs.field(kw_only=True)
    """The retry policy of the adapter that was asked."""
    in_a_row: int = attrs.field(kw_only=True)
    """How many attempts in a row this provider and model had, which is what the policy counts."""


@attrs.frozen(eq=False)
class TurnStopping(Operation[bool]):
    """A turn is about to end well. A wrapper may wait, and may steer the agent into another step.

    After such a step it is dispatched again. It comes back with true, which decides nothing: what is in the inbox
    does.
    """

    wire_name: ClassVar[str] = "agent/turn-stopping"
    agent: "Agent"
    """The agent."""
    turn: int = attrs.field(kw_only=True)
    """Number of the turn."""


@attrs.frozen(eq=False)
class DeltaStreamed(Notification):
    """A model streamed a delta to an agent."""

    wire_name: ClassVar[str] = "agent/delta-streamed"
    agent_path: str
    """Path of the agent."""
    delta: Delta = attrs.field(kw_only=True)
    """The delta."""
    attempt: int = attrs.field(kw_only=True)
    """Number of the attempt in its step; a later one starts the answer anew."""


@attrs.frozen(eq=False)
class LimiterWaited(Notification):
    """A request is about to wait because the adapter's limit of concurrent requests is reached."""

    wire_name: ClassVar[str] = "agent/limiter-waited"
    agent_path: str
    """Path of the agent."""
    limit: int | float = attrs.field(kw_only=True)
    """How many requests may be under way at once."""


@attrs.frozen(eq=False)
class LimiterAcquired(Notification):
    """A request that had to wait for the adapter's limit of concurrent requests is under way."""

    wire_name: ClassVar[str] = "agent/limiter-acquired"
    agent_path: str
    """Path of the agent."""

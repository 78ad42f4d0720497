"""The seam to whatever can run a subagent, and what goes through it.

A provider is an entry: it comes and goes at runtime, and the nearest scope wins its name. What it cannot do
is refused before any code of it runs.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import ClassVar, Literal

import attrs

from creche._util import as_names
from creche.agent import Agent, Budget
from creche.errors import NotRegisteredError, UnsupportedCapabilityError
from creche.messages import AssistantPart
from creche.models import Model, Usage
from creche.prompt import Text
from creche.scope import Notification, Registration, Registry
from creche.session import Outcome


@attrs.frozen
class SubagentCapabilities:
    """What a provider can do beyond running a prompt."""

    output: bool = False
    """Whether an answer can be held to a class."""
    depth: bool = attrs.field(default=False, kw_only=True)
    """Whether it holds a depth limit."""
    tool_filter: bool = attrs.field(default=False, kw_only=True)
    """Whether tools can be taken from the child."""
    persona: bool = attrs.field(default=False, kw_only=True)
    """Whether the child can be given a persona."""


def _as_allowed(names: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if names is None else as_names(names, "allow=")


def _as_denied(names: Iterable[str]) -> tuple[str, ...]:
    return as_names(names, "deny=")


@attrs.frozen(eq=False)
class SubagentRequest:
    """What a subagent is asked for, with nothing left to be decided by defaults."""

    parent: Agent
    """The agent that asks."""
    prompt: str = attrs.field(kw_only=True)
    """The task."""
    name: str = attrs.field(kw_only=True)
    """The last segment of the child's path."""
    persona: Text | None = attrs.field(default=None, kw_only=True)
    """Who the child is."""
    allow: tuple[str, ...] | None = attrs.field(default=None, converter=_as_allowed, kw_only=True)
    """The only tools of its parent that it may call."""
    deny: tuple[str, ...] = attrs.field(default=(), converter=_as_denied, kw_only=True)
    """Tools of its parent that it may not call."""
    preset: str | None = attrs.field(default=None, kw_only=True)
    """The preset it is composed under, instead of its parent's scope."""
    output: type[object] | None = attrs.field(default=None, kw_only=True)
    """A class for a structured answer."""
    model: Model | str | None = attrs.field(default=None, kw_only=True)
    """Another model than the parent's."""
    budget: Budget | None = attrs.field(default=None, kw_only=True)
    """Tighter limits for the child and everything below it."""

    @property
    def has_filter(self) -> bool:
        """Whether tools are to be taken from the child."""
        return self.allow is not None or bool(self.deny)


@attrs.frozen
class SubagentResult:
    """How a subagent settled. Bad news is a value too."""

    outcome: Outcome
    """``done``, ``truncated``, ``limit``, ``refused``, ``cancelled``, ``failed`` or ``unknown``."""
    text: str = attrs.field(default="", kw_only=True)
    """What it answered last, or had said until then."""
    parts: tuple[AssistantPart, ...] = attrs.field(default=(), kw_only=True)
    """The whole of that message."""
    diagnostic: str = attrs.field(default="", kw_only=True)
    """Why it did not end well: at most 4096 bytes of UTF-8."""
    usage: Usage = attrs.field(factory=Usage, kw_only=True)
    """What it and everything below it cost."""
    path: str = attrs.field(default="", kw_only=True)
    """Path of the agent it was."""
    session_id: str = attrs.field(default="", kw_only=True)
    """Its session."""
    output: object = attrs.field(default=None, kw_only=True)
    """The structured answer that was asked for with ``output=``; ``None`` without, and if the outcome is not ``"done"``."""


@attrs.frozen
class ProviderAdded(Notification):
    """A subagent provider was registered; dispatched where it was."""

    wire_name: ClassVar[str] = "subagents/provider-added"
    name: str
    """Its name."""


@attrs.frozen
class ProviderRemoved(Notification):
    """A subagent provider is gone; dispatched where it was. Children that it started run on."""

    wire_name: ClassVar[str] = "subagents/provider-removed"
    name: str
    """Its name."""


@attrs.frozen(eq=False)
class SubagentProvider:
    """An entry: something that can run a subagent. May come and go at runtime."""

    name: str
    """Such as ``"spawn"``."""
    run: Callable[[SubagentRequest], Awaitable[SubagentResult]] = attrs.field(kw_only=True)
    """Contract: a call in the caller's task; it returns, raises before anything has started, or is cancelled with its
    caller, and by then the child has ended. It appends the child's `SubagentStarted` and its one `SubagentEnded` to
    the log of the parent, for nobody else knows when that is."""
    capabilities: SubagentCapabilities = attrs.field(factory=SubagentCapabilities, kw_only=True)
    """What it can do; a request for more is refused before anything starts."""
    inherits_parent_context: bool = attrs.field(default=False, kw_only=True)
    """Whether the child sees the parent's completed turns. It says nothing about tools or rights."""
    entry_shape: ClassVar[Literal["named"]] = "named"

    def on_registered(self, registry: Registry, registration: Registration) -> None:
        """Tell that it came, and see to it that its going is told."""
        registration.after_undo = self._tell_removed(registry)
        registry.emit(ProviderAdded(self.name), at=registration.scope)

    def _tell_removed(self, registry: Registry) -> Callable[[Registration], None]:
        def tell(registration: Registration) -> None:
            registry.emit(ProviderRemoved(self.name), at=registration.scope)

        return tell


async def run_subagent(provider_name: str, request: SubagentRequest) -> SubagentResult:
    """Run a request with the provider of a name that is visible to the parent.

    Raises:
      NotRegisteredError: There is no such provider.
      UnsupportedCapabilityError: The request needs what the provider does not have; nothing has started.
    """
    parent = request.parent
    known = parent.registry.merge(SubagentProvider, parent.scope)
    provider = known.get(provider_name)
    if provider is None:
        raise NotRegisteredError(
            f"no subagent provider {provider_name!r} is visible to agent {parent.path!r}; "
            f"visible: {', '.join(sorted(known)) or '(none)'}"
        )
    _check_capabilities(provider, request)
    return await provider.run(request)


def _check_capabilities(provider: SubagentProvider, request: SubagentRequest) -> None:
    capabilities = provider.capabilities
    needs = (
        ("output", request.output is not None, capabilities.output),
        ("budget", request.budget is not None, capabilities.depth),
        ("allow/deny", request.has_filter, capabilities.tool_filter),
        ("persona", request.persona is not None, capabilities.persona),
    )
    for option, asked, has in needs:
        if asked and not has:
            raise UnsupportedCapabilityError(
                f"subagent provider {provider.name!r} does not offer {option}=; leave it out, or name another provider"
            )

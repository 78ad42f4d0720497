"""What can be contributed to a prompt.

Source functions of all kinds are plain functions of the `AssembleContext`, called once an assembly; what
has to wait belongs into a wrapper around `AssemblePrompt`.
"""

import math
import re
from collections.abc import Callable, Iterable
from typing import ClassVar, Literal, Protocol

import attrs

from creche.errors import PromptError
from creche.messages import ToolSchema
from creche.models import ModelOptions, Settings
from creche.scope import ScopeKey
from creche.session import SessionLog

UNLISTED_TOOLS = "<unlisted-tools>"
"""The marker in a tool order where the tools that it does not list stand."""
OPEN_VARIABLE = "open"
"""Name of the built-in variable that writes two opening braces."""

VARIABLE_NAME = re.compile(r"[a-z][a-z0-9_]*")


class AgentView(Protocol):
    """What a source function can know of the agent whose prompt is assembled."""

    @property
    def id(self) -> str:
        """The agent's id, which is its session's."""
        ...

    @property
    def path(self) -> str:
        """Such as ``"lead/research-1"``."""
        ...

    @property
    def scope(self) -> ScopeKey:
        """The agent's own scope."""
        ...

    @property
    def parent(self) -> "AgentView | None":
        """The agent that started it, if one did."""
        ...

    @property
    def settings(self) -> Settings:
        """The provider, the model and the options that its requests propose."""
        ...

    @property
    def options(self) -> ModelOptions:
        """The agent's model options."""
        ...

    @property
    def cwd(self) -> str | None:
        """The agent's working directory, if it has one."""
        ...

    @property
    def session(self) -> SessionLog:
        """The agent's log."""
        ...


@attrs.frozen(eq=False)
class AssembleContext:
    """For whom a prompt is assembled. In diagnostics there is no agent, and every source function must cope."""

    scope: ScopeKey | None = None
    """The scope whose view is assembled; ``None`` is the global layer alone."""
    agent: AgentView | None = None
    """The agent, if it is for one."""

    def __attrs_post_init__(self) -> None:
        if self.agent is not None and self.scope is not self.agent.scope:
            raise ValueError(f"the scope of agent {self.agent.path!r} is another one; use AssembleContext.of(agent)")

    @classmethod
    def of(cls, agent: AgentView) -> "AssembleContext":
        """Return the context of an agent, with its scope."""
        return cls(agent.scope, agent)


Text = str | Callable[[AssembleContext], str]
"""A text, or a plain function that gives it at each assembly."""


def _check_order(entry: "Section | RuntimeContext", _attribute: object, order: float) -> None:
    if not math.isfinite(order):
        raise PromptError(f"{type(entry).__name__} {entry.name!r} has order {order}; an order is a finite number")


@attrs.frozen(eq=False)
class Section:
    """A part of the system prompt that stays as it is from step to step.

    Sections stand by order, then by name; the nearest scope wins a name. An empty text leaves nothing.
    """

    name: str
    """Such as ``"team:rules"``."""
    order: float = attrs.field(kw_only=True, validator=_check_order)
    """Where it stands; `section_order` has the named places, 200 to 999 are free."""
    text: Text = attrs.field(kw_only=True)
    """The text; ``{{name}}`` in it is the value of a variable."""
    interpolate: bool = attrs.field(default=True, kw_only=True)
    """Whether variables are put in; false leaves braces alone."""
    complete: bool = attrs.field(default=False, kw_only=True)
    """Whether this is the whole prompt; every other section is left out then."""
    entry_shape: ClassVar[Literal["named"]] = "named"


@attrs.frozen(eq=False)
class RuntimeContext:
    """A fact about now. It goes to the tail of the history, as part of a snapshot, when it changes."""

    name: str
    """Such as ``"weather"``."""
    order: float = attrs.field(kw_only=True, validator=_check_order)
    """Where it stands among the others; `context_order` has the named places."""
    text: Text = attrs.field(kw_only=True)
    """The text; ``{{name}}`` in it is the value of a variable."""
    interpolate: ClassVar[bool] = True
    complete: ClassVar[bool] = False
    entry_shape: ClassVar[Literal["named"]] = "named"


@attrs.frozen(eq=False)
class Variable:
    """A value for ``{{name}}``."""

    name: str = attrs.field()
    """Lower-case letters, digits and underscores, a letter first."""
    provider: Callable[[AssembleContext], str | None]
    """Called once an assembly; ``None`` means that there is no value this time."""
    entry_shape: ClassVar[Literal["named"]] = "named"

    @name.validator
    def _check_name(self, _attribute: object, name: str) -> None:
        if not VARIABLE_NAME.fullmatch(name):
            raise PromptError(f"{name!r} cannot be the name of a variable: it must be like [a-z][a-z0-9_]*")
        if name == OPEN_VARIABLE:
            raise PromptError(f"variable {name!r} is built in (it writes two opening braces); choose another name")


@attrs.frozen(eq=False)
class ToolSchemas:
    """What a tool provider has to offer."""

    schemas: tuple[ToolSchema, ...] = attrs.field(converter=tuple)
    """The tools as the model is to see them."""
    known_names: frozenset[str] = attrs.field(converter=frozenset, kw_only=True)
    """Names that exist, also those that are restricted away; the schemas' names if not given."""

    @known_names.default
    def _names_of_schemas(self) -> Iterable[str]:
        return [schema.name for schema in self.schemas]


@attrs.frozen(eq=False)
class ToolProvider:
    """A source of tool schemas; those of a scope and of all above it add up."""

    provide: Callable[[AssembleContext], ToolSchemas]
    """Called once an assembly."""
    entry_shape: ClassVar[Literal["anonymous"]] = "anonymous"


@attrs.frozen(eq=False)
class SuppressRuntimeContext:
    """Leaves out the runtime contexts of a scope and all below it, for as long as one of these is registered."""

    entry_shape: ClassVar[Literal["anonymous"]] = "anonymous"


@attrs.frozen(eq=False)
class ToolOrder:
    """The order of tools in the request; made by `tool_order`."""

    names: tuple[str, ...]
    """Tool names, and the marker once."""
    name: ClassVar[str] = "tool order"
    entry_shape: ClassVar[Literal["named"]] = "named"



def tool_order(names: Iterable[str]) -> ToolOrder:
    """Return an entry that orders the tools of a scope and all below it; the nearest wins.

    Args:
      names: Tool names, each at most once, and `UNLISTED_TOOLS` exactly once: there the others stand,
        sorted by name.

    Raises:
      PromptError: A name stands twice, or the marker not exactly once.
    """
    listed = tuple(names)
    twice = sorted({name for name in listed if listed.count(name) > 1})
    if twice:
        raise PromptError(f"tool order lists {', '.join(map(repr, twice))} more than once")
    if UNLISTED_TOOLS not in listed:
        raise PromptError(f"tool order {list(listed)!r} must contain {UNLISTED_TOOLS!r} once, where the others stand")
    return ToolOrder(listed)

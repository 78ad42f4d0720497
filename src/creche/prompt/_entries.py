"""What can be contributed to a prompt.

Source functions of all kinds are plain functions of the `AssembleContext`, called once an assembly; what
has to wait belongs into a wrapper around `AssemblePrompt`.

What can be wrong with an entry by itself is refused when it is made; what can only be wrong in its place, when
a prompt is assembled.
"""

import inspect
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import ClassVar, Literal, Protocol, cast

import attrs

from creche._util import as_names, is_bool, is_text, shown
from creche.errors import PromptError
from creche.messages import ToolSchema
from creche.models import ModelOptions, Settings
from creche.scope import ScopeKey, place_name
from creche.session import SessionLog

UNLISTED_TOOLS = "<unlisted-tools>"
"""The marker in a tool order where the tools that it does not list stand."""
OPEN_VARIABLE = "open"
"""Name of the built-in variable that writes two opening braces."""
TOOL_ORDER_NAME = "tool order"
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
            raise PromptError(
                f"{place_name(self.scope)} is not the scope of agent {self.agent.path!r}; use AssembleContext.of(agent)"
            )

    @classmethod
    def of(cls, agent: AgentView) -> "AssembleContext":
        """Return the context of an agent, with its scope."""
        return cls(agent.scope, agent)


Text = str | Callable[[AssembleContext], str]
"""A text, or a plain function that gives it at each assembly."""


class _Named(Protocol):
    @property
    def name(self) -> str: ...


def check_order(entry: "_Named", _attribute: object, order: float) -> None:
    """Refuse what is no finite number.

    Raises:
      PromptError: It is none.
    """
    if not _is_finite(order):
        raise PromptError(f"{type(entry).__name__} {entry.name!r} has order {order!r}; an order is a finite number")


def _is_finite(number: object) -> bool:
    # A whole number can be too long for a float, and is finite all the same.
    return isinstance(number, int) or (isinstance(number, float) and math.isfinite(number))


def _check_text(entry: "Section | RuntimeContext", _attribute: object, text: Text) -> None:
    if not isinstance(text, str):
        _check_source(f"the text of {type(entry).__name__} {entry.name!r}", text, "a string or a plain function")


def _check_source(what: str, source: object, expected: str) -> None:
    if not callable(source):
        raise PromptError(f"{what} is {shown(source)}; it is {expected}")
    if inspect.iscoroutinefunction(source):
        raise PromptError(
            f"{what} is the async function {getattr(source, '__qualname__', source)!r}; it is {expected}, "
            "and what has to wait belongs into a wrapper around AssemblePrompt"
        )


@attrs.frozen(eq=False)
class Section:
    """A part of the system prompt that stays as it is from step to step.

    Sections stand by order, then by name; the nearest scope wins a name. An empty text leaves nothing.
    """

    name: str = attrs.field(validator=is_text)
    """Such as ``"team:rules"``."""
    order: float = attrs.field(kw_only=True, validator=check_order)
    """Where it stands; `section_order` has the named places, 200 to 999 are free."""
    text: Text = attrs.field(kw_only=True, validator=_check_text)
    """The text; ``{{name}}`` in it is the value of a variable."""
    interpolate: bool = attrs.field(default=True, kw_only=True, validator=is_bool)
    """Whether variables are put in; false leaves braces alone."""
    complete: bool = attrs.field(default=False, kw_only=True, validator=is_bool)
    """Whether this is the whole prompt; every other section is left out then."""
    entry_shape: ClassVar[Literal["named"]] = "named"


@attrs.frozen(eq=False)
class RuntimeContext:
    """A fact about now. It goes to the tail of the history, as part of a snapshot, when it changes."""

    name: str = attrs.field(validator=is_text)
    """Such as ``"weather"``."""
    order: float = attrs.field(kw_only=True, validator=check_order)
    """Where it stands among the others; `context_order` has the named places."""
    text: Text = attrs.field(kw_only=True, validator=_check_text)
    """The text; ``{{name}}`` in it is the value of a variable."""
    entry_shape: ClassVar[Literal["named"]] = "named"


def check_variable_name(name: str) -> None:
    """Refuse what cannot be the name of a variable.

    Raises:
      PromptError: It is illegal or built in.
    """
    if not isinstance(cast("object", name), str) or not VARIABLE_NAME.fullmatch(name):
        raise PromptError(f"{name!r} cannot be the name of a variable: it must be like [a-z][a-z0-9_]*")
    if name == OPEN_VARIABLE:
        raise PromptError(f"variable {name!r} is built in (it writes two opening braces); choose another name")


def _check_name(_entry: object, _attribute: object, name: str) -> None:
    check_variable_name(name)


def _check_provider(entry: "Variable", _attribute: object, provider: Callable[[AssembleContext], str | None]) -> None:
    _check_source(f"the provider of variable {entry.name!r}", provider, "a plain function")


@attrs.frozen(eq=False)
class Variable:
    """A value for ``{{name}}``."""

    name: str = attrs.field(validator=_check_name)
    """Lower-case letters, digits and underscores, a letter first."""
    provider: Callable[[AssembleContext], str | None] = attrs.field(validator=_check_provider)
    """Contract: called once an assembly; ``None`` means that there is no value this time."""
    entry_shape: ClassVar[Literal["named"]] = "named"


def _check_listed(_entry: object, _attribute: object, names: tuple[str, ...]) -> None:
    twice = sorted([name for name, times in Counter(names).items() if times > 1])
    if twice:
        raise PromptError(f"tool order lists {', '.join(map(repr, twice))} more than once")
    if UNLISTED_TOOLS not in names:
        raise PromptError(f"tool order {list(names)!r} must contain {UNLISTED_TOOLS!r} once, where the others stand")


@attrs.frozen(eq=False)
class ToolOrder:
    """The order of tools in the request; made by `tool_order`."""

    names: tuple[str, ...] = attrs.field(validator=_check_listed)
    """Tool names, and the marker once."""
    entry_shape: ClassVar[Literal["named"]] = "named"

    @property
    def name(self) -> str:
        """The one name that all orders have, so that the nearest wins."""
        return TOOL_ORDER_NAME


def _as_schemas(schemas: Iterable[ToolSchema]) -> tuple[ToolSchema, ...]:
    found = tuple(schemas)
    for schema in found:
        _check_schema(schema)
    return found


def _check_schema(schema: object) -> None:
    if not isinstance(schema, ToolSchema):
        raise PromptError(f"ToolSchemas holds {shown(schema)}; it holds ToolSchema values")


def _as_names(names: Iterable[str]) -> frozenset[str]:
    return frozenset(as_names(names, "known_names="))


def _names_of(schemas: "ToolSchemas") -> frozenset[str]:
    return frozenset([schema.name for schema in schemas.schemas])


@attrs.frozen(eq=False)
class ToolSchemas:
    """What a tool provider has to offer.

    A provider whose tools have not changed returns the same object again: the order of its tools is kept with it.
    """

    schemas: tuple[ToolSchema, ...] = attrs.field(converter=_as_schemas)
    """The tools as the model is to see them."""
    known_names: frozenset[str] = attrs.field(
        default=attrs.Factory(_names_of, takes_self=True), converter=_as_names, kw_only=True
    )
    """Names that exist, also those that are restricted away; the schemas' names if not given."""
    orders_from: ScopeKey | None = attrs.field(default=None, kw_only=True)
    """The scope from which on these are the tools: a tool order of a scope above it was meant for others and does not
    hold; ``None`` lets every order hold."""
    # By order: what other providers offered before these schemas, and all of it in order.
    _orders: dict[ToolOrder | None, tuple[tuple["ToolSchemas", ...], tuple[ToolSchema, ...]]] = attrs.field(
        factory=dict[ToolOrder | None, tuple[tuple["ToolSchemas", ...], tuple[ToolSchema, ...]]],
        init=False,
        repr=False,
    )


def _check_provide(_entry: object, _attribute: object, provide: Callable[[AssembleContext], ToolSchemas]) -> None:
    _check_source("a tool provider", provide, "a plain function that returns ToolSchemas(...)")


@attrs.frozen(eq=False)
class ToolProvider:
    """A source of tool schemas; those of a scope and of all above it add up."""

    provide: Callable[[AssembleContext], ToolSchemas] = attrs.field(validator=_check_provide)
    """Contract: called once an assembly."""
    entry_shape: ClassVar[Literal["anonymous"]] = "anonymous"


@attrs.frozen(eq=False)
class SuppressRuntimeContext:
    """Leaves out the runtime contexts of a scope and all below it, for as long as one of these is registered."""

    entry_shape: ClassVar[Literal["anonymous"]] = "anonymous"


def tool_order(names: Iterable[str]) -> ToolOrder:
    """Return an entry that orders the tools of a scope and all below it; the nearest wins.

    Args:
      names: Tool names, each at most once, and `UNLISTED_TOOLS` exactly once: there the others stand,
        sorted by name.

    Raises:
      PromptError: A name stands twice, or the marker not exactly once.
      TypeError: It is no list of names.
    """
    return ToolOrder(as_names(names, "names="))

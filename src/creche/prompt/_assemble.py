"""From what is registered to one assembly: sections, contexts, tools and variables of one step.

What does not depend on the moment is derived once a registration and kept by the registry: the merged and
sorted entries, the finished pieces of fixed texts. The rest is evaluated at each assembly, in the order
that `assemble` reads in; a shadowed source function is never called.
"""

import inspect
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import ClassVar, TypeVar, cast

import attrs

from creche._util import is_a, is_bool, is_none_or, is_one_of, is_text, shown
from creche.errors import PromptError
from creche.messages import ToolSchema
from creche.scope import (
    Derivation,
    Level,
    NamedEntry,
    Operation,
    Registration,
    Registry,
    ScopeKey,
    place_name,
    scope_chain_of,
)

from ._entries import (
    UNLISTED_TOOLS,
    AssembleContext,
    RuntimeContext,
    Section,
    SuppressRuntimeContext,
    ToolOrder,
    ToolProvider,
    ToolSchemas,
    Variable,
    check_order,
    check_variable_name,
)

T = TypeVar("T")
N = TypeVar("N", bound=NamedEntry)


@attrs.frozen
class Origin:
    """Where a piece of a prompt comes from."""

    name: str = attrs.field(validator=is_text)
    """Name of the entry."""
    kind: str = attrs.field(default="section", kw_only=True, validator=is_one_of("section", "runtime context"))
    """``"section"`` or ``"runtime context"``."""
    order: float = attrs.field(default=0.0, kw_only=True, validator=check_order)
    """Where it stands."""
    owner: str = attrs.field(default="", kw_only=True, validator=is_text)
    """Who registered it."""
    scope: ScopeKey | None = attrs.field(default=None, kw_only=True, validator=is_none_or(is_a(ScopeKey)))
    """Where it is registered; ``None`` is the global layer."""
    interpolate: bool = attrs.field(default=True, kw_only=True, validator=is_bool)
    """Whether variables are put in."""
    complete: bool = attrs.field(default=False, kw_only=True, validator=is_bool)
    """Whether it is the whole prompt."""

    def __str__(self) -> str:
        # Nobody registered what a wrapper has made.
        whose = f"{self.owner!r} at {place_name(self.scope)}" if self.owner else "a wrapper around prompt/assemble"
        return f"{self.kind} {self.name!r} of {whose}"


@attrs.frozen
class Piece:
    """One section or runtime context of an assembly."""

    origin: Origin
    """Where it comes from."""
    text: str
    """Its text, before variables are put in."""

    def __attrs_post_init__(self) -> None:
        # Many are made in a step, and a validator for each field takes as long as all the rest of it.
        if type(self.origin) is not Origin or not isinstance(cast("object", self.text), str):
            raise TypeError(f"a Piece is an Origin and a text, not {shown(self.origin)} and {shown(self.text)}")

    @property
    def name(self) -> str:
        """Name of the entry."""
        return self.origin.name


def _as_pieces(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    return tuple(pieces)


def _as_tools(tools: Iterable[ToolSchema]) -> tuple[ToolSchema, ...]:
    return tuple(tools)


def _as_variables(variables: Mapping[str, str | None]) -> Mapping[str, str | None]:
    if isinstance(variables, MappingProxyType):
        return variables  # an assembly's own, whose names were checked already
    for name, value in variables.items():
        check_variable_name(name)
        _check_value(name, value)
    return MappingProxyType(dict(variables))


def _check_value(name: str, value: object) -> None:
    if value is not None and not isinstance(value, str):
        raise PromptError(f"variable {name!r} of an assembly is {_shown(value)}; it is a text or None")


_NO_VARIABLES: Mapping[str, str | None] = MappingProxyType({})


@attrs.frozen(eq=False)
class PromptAssembly:
    """Everything that one step tells the model besides history. Immutable; wrappers return an evolved copy."""

    sections: tuple[Piece, ...] = attrs.field(default=(), converter=_as_pieces)
    """The system prompt, in order."""
    contexts: tuple[Piece, ...] = attrs.field(default=(), converter=_as_pieces, kw_only=True)
    """The runtime contexts, in order."""
    tools: tuple[ToolSchema, ...] = attrs.field(default=(), converter=_as_tools, kw_only=True)
    """The tools, in order; the request's tools are these."""
    variables: Mapping[str, str | None] = attrs.field(default=_NO_VARIABLES, converter=_as_variables, kw_only=True)
    """Values of the registered variables; ``None`` is known but without a value this time."""
    suppressed: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    """Names of runtime contexts that a `SuppressRuntimeContext` leaves out."""

    def __attrs_post_init__(self) -> None:
        for name, kind in (("sections", Piece), ("contexts", Piece), ("tools", ToolSchema)):
            for each in getattr(self, name):
                if type(each) is not kind:
                    raise TypeError(f"PromptAssembly.{name} holds {shown(each)}; it holds {kind.__name__} values")
        for name, value in self.variables.items():
            _check_value(name, value)


class _Unwrapped(PromptAssembly):
    """An assembly that no wrapper will see. It is made at each step, and not checked: the registry's entries were."""

    __slots__ = ()

    def __attrs_post_init__(self) -> None:
        pass


@attrs.frozen(eq=False)
class AssemblePrompt(Operation[PromptAssembly]):
    """A prompt has been assembled; wrappers may return another.

    They cannot add to a complete section, nor to suppressed contexts.
    """

    wire_name: ClassVar[str] = "prompt/assemble"
    context: AssembleContext
    """For whom."""
    assembly: PromptAssembly = attrs.field(kw_only=True)
    """What the registry gives."""


# ---------------------------------------------------------------- derived once a registration


@attrs.frozen(eq=False)
class _Text:
    """One effective section or context; if its text is fixed, the piece is there and nothing gives it."""

    origin: Origin
    piece: Piece | None
    give: Callable[[AssembleContext], object]


@attrs.frozen(eq=False)
class _Sections:
    """The effective sections, in order, and those of them that claim to be the whole prompt."""

    texts: tuple[_Text, ...]
    pieces: tuple[Piece, ...] | None
    """All their pieces, if all of the texts are fixed."""
    complete: tuple[Origin, ...]


@attrs.frozen(eq=False)
class _Source:
    """One effective variable, or one tool provider."""

    label: str
    name: str
    owner: str
    give: Callable[[AssembleContext], object]


def _declared(levels: Iterable[Level], kind: type[T]) -> Iterator[tuple[T, Registration]]:
    for level in levels:
        for registration in level.tables[0]:
            entry = registration.entry
            assert isinstance(entry, kind), "a table holds one kind"
            yield entry, registration


def _effective(levels: Iterable[Level], kind: type[N]) -> list[tuple[N, Registration]]:
    nearest = {entry.name: (entry, registration) for entry, registration in _declared(levels, kind)}
    return list(nearest.values())


def _derive_sections(levels: tuple[Level, ...]) -> _Sections:
    texts = _sorted([by.once(_text) for _, by in _effective(levels, Section)])
    fixed = tuple([text.piece for text in texts if text.piece is not None])
    pieces = fixed if len(fixed) == len(texts) else None
    return _Sections(texts, pieces, tuple([text.origin for text in texts if text.origin.complete]))


def _derive_contexts(levels: tuple[Level, ...]) -> tuple[_Text, ...]:
    return _sorted([by.once(_text) for _, by in _effective(levels, RuntimeContext)])


def _sorted(texts: list[_Text]) -> tuple[_Text, ...]:
    return tuple(sorted(texts, key=lambda text: (text.origin.order, text.origin.name)))


def _text(by: Registration) -> _Text:
    entry = by.entry
    if isinstance(entry, Section):
        origin = Origin(
            entry.name,
            order=entry.order,
            owner=by.owner.name,
            scope=by.scope,
            interpolate=entry.interpolate,
            complete=entry.complete,
        )
    else:
        assert isinstance(entry, RuntimeContext), "sections and contexts alone have a text"
        origin = Origin(entry.name, kind="runtime context", order=entry.order, owner=by.owner.name, scope=by.scope)
    text = entry.text
    return _Text(origin, Piece(origin, text), str) if isinstance(text, str) else _Text(origin, None, text)


def _derive_variables(levels: tuple[Level, ...]) -> tuple[_Source, ...]:
    return tuple(
        [
            _Source(_label(f"variable {entry.name!r}", by), entry.name, by.owner.name, entry.provider)
            for entry, by in _effective(levels, Variable)
        ]
    )


def _derive_providers(levels: tuple[Level, ...]) -> tuple[_Source, ...]:
    return tuple(
        [
            _Source(_label("a tool provider", by), "", by.owner.name, entry.provide)
            for entry, by in _declared(levels, ToolProvider)
        ]
    )


def _label(what: str, by: Registration) -> str:
    return f"{what} of {by.owner.name!r} at {place_name(by.scope)}"


def _derive_order(levels: tuple[Level, ...]) -> Registration | None:
    found = [each for level in levels for each in level.tables[0]]
    return found[-1] if found else None


SECTIONS = Derivation((Section,), derive=_derive_sections)
CONTEXTS = Derivation((RuntimeContext,), derive=_derive_contexts)
VARIABLES = Derivation((Variable,), derive=_derive_variables)
PROVIDERS = Derivation((ToolProvider,), derive=_derive_providers)
ORDERS = Derivation((ToolOrder,), derive=_derive_order)


# ---------------------------------------------------------------- evaluated once a step


async def assemble(registry: Registry, context: AssembleContext) -> PromptAssembly:
    """Assemble the prompt of a scope: one a step.

    Each effective source function is called once, and none that is shadowed. It waits for wrappers alone.

    Raises:
      PromptError: A source function raised or gave no text, two sections are complete, a tool order lists
        an unknown name, or two providers offer a tool of one name. The message names entry and owner.
    """
    scope = context.scope
    suppressed = bool(registry.collect(SuppressRuntimeContext, scope))
    variables = _values(registry.read(VARIABLES, scope), context)
    sections, contexts = registry.read(SECTIONS, scope), registry.read(CONTEXTS, scope)
    providers = registry.read(PROVIDERS, scope)
    offered = _offered(providers, context)
    if len(sections.complete) > 1:
        raise PromptError(
            f"only one section can be the complete prompt, not {' and '.join(map(str, sections.complete))}"
        )
    pieces = sections.pieces if sections.pieces is not None else _pieces(sections.texts, context)
    left_out = tuple([text.origin.name for text in contexts]) if suppressed else ()
    is_wrapped = registry.wraps(AssemblePrompt)
    assembly = (PromptAssembly if is_wrapped else _Unwrapped)(
        pieces,
        contexts=() if suppressed else _pieces(contexts, context),
        tools=_ordered(offered, providers, _order_for(offered, registry.read(ORDERS, scope), scope)),
        variables=MappingProxyType(variables),
        suppressed=left_out,
    )
    if is_wrapped:
        assembly = await registry.around(AssemblePrompt(context, assembly=assembly), at=scope, innermost=_take_as_it_is)
    if sections.complete:
        assembly = attrs.evolve(assembly, sections=[each for each in pieces if each.origin is sections.complete[0]])
    if suppressed:
        assembly = attrs.evolve(assembly, contexts=(), suppressed=left_out)
    return assembly


async def _take_as_it_is(event: AssemblePrompt) -> PromptAssembly:
    return event.assembly


def _values(sources: tuple[_Source, ...], context: AssembleContext) -> dict[str, str | None]:
    values: dict[str, str | None] = {}
    for source in sources:
        try:
            value = source.give(context)
        except Exception as error:
            raise _raised(source.label, error) from error
        if value is not None and not isinstance(value, str):
            raise _gave(source.label, value, "a provider is a plain function that returns a text or None")
        values[source.name] = value
    return values


def _pieces(texts: tuple[_Text, ...], context: AssembleContext) -> tuple[Piece, ...]:
    pieces: list[Piece] = []
    for text in texts:
        piece = text.piece
        if piece is None:
            try:
                given = text.give(context)
            except Exception as error:
                raise _raised(str(text.origin), error) from error
            if not isinstance(given, str):
                raise _gave(str(text.origin), given, "its text is a string or a plain function that returns one")
            piece = Piece(text.origin, given)
        pieces.append(piece)
    return tuple(pieces)


def _offered(providers: tuple[_Source, ...], context: AssembleContext) -> tuple[ToolSchemas, ...]:
    offered: list[ToolSchemas] = []
    for provider in providers:
        try:
            schemas = provider.give(context)
        except Exception as error:
            raise _raised(provider.label, error) from error
        if not isinstance(schemas, ToolSchemas):
            raise _gave(provider.label, schemas, "it returns ToolSchemas(...)")
        offered.append(schemas)
    return tuple(offered)


def _raised(label: str, error: Exception) -> PromptError:
    return PromptError(f"{label} raised {_shown(error)}")


def _gave(label: str, value: object, expected: str) -> PromptError:
    if inspect.iscoroutine(value):
        value.close()  # else Python complains of it too, later and elsewhere
    return PromptError(f"{label} gave {_shown(value)}; {expected}")


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = 200

    def repr_instance(self, x: object, level: int) -> str:
        return shown(x)

    def repr_int(self, x: int, level: int) -> str:
        return shown(x)  # it may be longer than Python writes out


_shown = _Short().repr


# ---------------------------------------------------------------- the order of tools

_KEPT_ORDERS = 8


def _order_for(
    offered: tuple[ToolSchemas, ...], nearest: Registration | None, scope: ScopeKey | None
) -> ToolOrder | None:
    """Return the order that holds: the nearest, unless the tools are others than those it was declared for."""
    if nearest is None:
        return None
    chain = scope_chain_of(scope)
    for schemas in offered:
        below = schemas.orders_from
        if below is not None and below in chain and nearest.scope not in chain[: chain.index(below) + 1]:
            return None
    order = nearest.entry
    assert isinstance(order, ToolOrder), "the table holds one kind"
    return order


def _ordered(
    offered: tuple[ToolSchemas, ...], providers: tuple[_Source, ...], order: ToolOrder | None
) -> tuple[ToolSchema, ...]:
    """Return the tools in order: the same tuple for as long as the providers give the same and the order stands.

    So the request's head stays one value. What is kept lives with the schemas of the nearest provider, which
    are what one agent has for itself if anything is, and goes with them.
    """
    if not offered:
        return _put_in_order({}, (), order)
    kept = offered[-1]._orders
    others = offered[:-1]
    found = kept.get(order)
    if found is not None and found[0] == others:
        return found[1]
    ordered = _put_in_order(_by_name(offered, providers), offered, order)
    if len(kept) >= _KEPT_ORDERS:
        kept.clear()
    kept[order] = (others, ordered)
    return ordered


def _by_name(offered: tuple[ToolSchemas, ...], providers: tuple[_Source, ...]) -> dict[str, ToolSchema]:
    by_name: dict[str, ToolSchema] = {}
    owners: dict[str, str] = {}
    for schemas, provider in zip(offered, providers, strict=True):
        owner = provider.owner
        for schema in schemas.schemas:
            name = schema.name
            if name == UNLISTED_TOOLS:
                raise PromptError(
                    f"{owner!r} offers a tool named {name!r}, which is reserved for tool orders; rename it"
                )
            if name in by_name:
                raise PromptError(f"tool {name!r} is offered by {owners[name]!r} and by {owner!r}; rename one of them")
            by_name[name] = schema
            owners[name] = owner
    return by_name


def _put_in_order(
    by_name: Mapping[str, ToolSchema], offered: tuple[ToolSchemas, ...], order: ToolOrder | None
) -> tuple[ToolSchema, ...]:
    if order is None:
        return tuple([by_name[name] for name in sorted(by_name)])
    known = by_name.keys() | {name for schemas in offered for name in schemas.known_names}
    unknown = [name for name in order.names if name != UNLISTED_TOOLS and name not in known]
    if unknown:
        raise PromptError(
            f"tool order lists unknown tools {', '.join(map(repr, unknown))}; known: {', '.join(sorted(known)) or '(none)'}"
        )
    names: list[str] = []
    for name in order.names:
        if name == UNLISTED_TOOLS:
            names += sorted(by_name.keys() - set(order.names))
        elif name in by_name:
            names.append(name)
    return tuple([by_name[name] for name in names])

"""From what is registered to one assembly: sections, contexts, tools and variables of one step.

What does not depend on the moment is derived once a registration and kept by the registry: the merged and
sorted entries, the finished pieces of fixed texts. The rest is evaluated at each assembly, in the order
that `assemble` reads in; a shadowed source function is never called.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ClassVar

import attrs

from creche.errors import PromptError
from creche.messages import ToolSchema
from creche.scope import Derivation, Level, Operation, Registration, Registry, ScopeKey, place_name

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
)


@attrs.frozen
class Origin:
    """Where a piece of a prompt comes from."""

    name: str
    """Name of the entry."""
    kind: str = attrs.field(default="section", kw_only=True)
    """``"section"`` or ``"runtime context"``."""
    order: float = attrs.field(default=0.0, kw_only=True)
    """Where it stands."""
    owner: str = attrs.field(default="", kw_only=True)
    """Who registered it."""
    scope: ScopeKey | None = attrs.field(default=None, kw_only=True)
    """Where it is registered; ``None`` is the global layer."""
    interpolate: bool = attrs.field(default=True, kw_only=True)
    """Whether variables are put in."""
    complete: bool = attrs.field(default=False, kw_only=True)
    """Whether it is the whole prompt."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} of {self.owner!r} at {place_name(self.scope)}"


@attrs.frozen
class Piece:
    """One section or runtime context of an assembly."""

    origin: Origin
    """Where it comes from."""
    text: str
    """Its text, before variables are put in."""

    @property
    def name(self) -> str:
        """Name of the entry."""
        return self.origin.name


@attrs.frozen(eq=False)
class PromptAssembly:
    """Everything that one step tells the model besides history. Immutable; wrappers return an evolved copy."""

    sections: tuple[Piece, ...] = attrs.field(default=(), converter=tuple)
    """The system prompt, in order."""
    contexts: tuple[Piece, ...] = attrs.field(default=(), converter=tuple)
    """The runtime contexts, in order."""
    tools: tuple[ToolSchema, ...] = attrs.field(default=(), converter=tuple)
    """The tools, in order; the request's tools are these."""
    variables: Mapping[str, str | None] = attrs.field(factory=dict, converter=MappingProxyType)
    """Values of the registered variables; ``None`` is known but without a value this time."""
    suppressed: tuple[str, ...] = ()
    """Names of runtime contexts that a `SuppressRuntimeContext` leaves out."""


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


@attrs.frozen(eq=False)
class _Source:
    """One effective entry, and its piece if the text is fixed."""

    origin: Origin
    give: Callable[[AssembleContext], object] | None
    piece: Piece | None


def _derive_sources(levels: tuple[Level, ...]) -> tuple[_Source, ...]:
    effective: dict[str, Registration] = {}
    for level in levels:
        for registration in level.tables[0]:
            effective[registration.entry.name] = registration  # type: ignore[union-attr]  # sections and contexts are named
    sources = [_source(registration) for registration in effective.values()]
    return tuple(sorted(sources, key=lambda source: (source.origin.order, source.origin.name)))


def _source(registration: Registration) -> _Source:
    entry = registration.entry
    assert isinstance(entry, Section | RuntimeContext), "the table holds one kind"
    origin = Origin(
        entry.name,
        kind="section" if isinstance(entry, Section) else "runtime context",
        order=entry.order,
        owner=registration.owner.name,
        scope=registration.scope,
        interpolate=entry.interpolate,
        complete=entry.complete,
    )
    if isinstance(entry.text, str):
        return _Source(origin, None, Piece(origin, entry.text))
    return _Source(origin, entry.text, None)


def _derive_variables(levels: tuple[Level, ...]) -> tuple[tuple[str, Callable[..., object], Registration], ...]:
    effective: dict[str, Registration] = {}
    for level in levels:
        for registration in level.tables[0]:
            effective[registration.entry.name] = registration  # type: ignore[union-attr]  # variables are named
    return tuple((name, each.entry.provider, each) for name, each in effective.items())  # type: ignore[union-attr]


def _derive_providers(levels: tuple[Level, ...]) -> tuple[tuple[Callable[..., object], Registration], ...]:
    return tuple((each.entry.provide, each) for level in levels for each in level.tables[0])  # type: ignore[union-attr]


SECTIONS = Derivation((Section,), derive=_derive_sources)
CONTEXTS = Derivation((RuntimeContext,), derive=_derive_sources)
VARIABLES = Derivation((Variable,), derive=_derive_variables)
PROVIDERS = Derivation((ToolProvider,), derive=_derive_providers)


async def assemble(registry: Registry, context: AssembleContext) -> PromptAssembly:
    """Assemble the prompt of a scope: one a step.

    Raises:
      PromptError: A source function raised or gave no text, two sections are complete, a tool order lists
        an unknown name, or two providers offer a tool of one name. The message names entry and owner.
    """
    scope = context.scope
    suppressed = bool(registry.collect(SuppressRuntimeContext, scope))
    variables = {name: _value(name, give, context, by) for name, give, by in registry.read(VARIABLES, scope)}
    sources = registry.read(SECTIONS, scope)
    context_sources = registry.read(CONTEXTS, scope)
    schemas = _provided(registry.read(PROVIDERS, scope), context)
    complete = _complete(sources)
    sections = tuple([source.piece or _resolve(source, context) for source in sources])
    contexts = () if suppressed else tuple([each.piece or _resolve(each, context) for each in context_sources])
    order = registry.merge(ToolOrder, scope).get(ToolOrder.name)
    assembly = PromptAssembly(
        sections,
        contexts,
        _ordered(schemas, order) if schemas or order is not None else (),
        variables,
        tuple([source.origin.name for source in context_sources]) if suppressed else (),
    )
    assembly = await registry.around(
        AssemblePrompt(context, assembly=assembly), at=scope, innermost=_take_as_it_is
    )
    if complete is not None:
        whole = next(piece for piece in sections if piece.origin is complete)
        assembly = attrs.evolve(assembly, sections=(whole,))
    if suppressed and assembly.contexts:
        assembly = attrs.evolve(assembly, contexts=())
    return assembly


async def _take_as_it_is(event: AssemblePrompt) -> PromptAssembly:
    return event.assembly


def _value(
    name: str, give: Callable[..., object], context: AssembleContext, registration: Registration
) -> str | None:
    try:
        value = give(context)
    except Exception as error:
        raise PromptError(f"variable {name!r} of {registration.owner.name!r} raised {error!r}") from error
    if value is None or isinstance(value, str):
        return value
    _discard(value)
    raise PromptError(
        f"variable {name!r} of {registration.owner.name!r} gave {value!r}; "
        "a provider is a plain function that returns a text or None"
    )


def _resolve(source: _Source, context: AssembleContext) -> Piece:
    assert source.give is not None, "fixed texts have their piece"
    try:
        text = source.give(context)
    except Exception as error:
        raise PromptError(f"{source.origin} raised {error!r}") from error
    if isinstance(text, str):
        return Piece(source.origin, text)
    _discard(text)
    raise PromptError(f"{source.origin} gave {text!r}; its text is a string or a plain function that returns one")


def _discard(value: object) -> None:
    if inspect.iscoroutine(value):
        value.close()


def _complete(sources: tuple[_Source, ...]) -> Origin | None:
    complete = [source.origin for source in sources if source.origin.complete]
    if len(complete) > 1:
        raise PromptError(f"only one section can be the complete prompt, not {' and '.join(map(str, complete))}")
    return complete[0] if complete else None


def _provided(
    providers: tuple[tuple[Callable[..., object], Registration], ...], context: AssembleContext
) -> tuple[tuple[ToolSchemas, str], ...]:
    provided = []
    for provide, registration in providers:
        owner = registration.owner.name
        try:
            schemas = provide(context)
        except PromptError:
            raise
        except Exception as error:
            raise PromptError(f"a tool provider of {owner!r} raised {error!r}") from error
        if not isinstance(schemas, ToolSchemas):
            _discard(schemas)
            raise PromptError(f"a tool provider of {owner!r} gave {schemas!r}; it returns ToolSchemas(...)")
        provided.append((schemas, owner))
    return tuple(provided)


@functools.lru_cache(maxsize=1024)
def _ordered(provided: tuple[tuple[ToolSchemas, str], ...], order: ToolOrder | None) -> tuple[ToolSchema, ...]:
    # Kept by identity of what the providers gave, all of it immutable: the same tuple comes out for as long
    # as they give the same, and the request's head stays one value.
    by_name: dict[str, tuple[ToolSchema, str]] = {}
    for schemas, owner in provided:
        for schema in schemas.schemas:
            if schema.name == UNLISTED_TOOLS:
                raise PromptError(f"{owner!r} offers a tool named {UNLISTED_TOOLS!r}, which is reserved for tool orders")
            if schema.name in by_name:
                raise PromptError(f"tool {schema.name!r} is offered by {by_name[schema.name][1]!r} and by {owner!r}")
            by_name[schema.name] = (schema, owner)
    names = sorted(by_name) if order is None else _in_order(order, provided, by_name)
    return tuple([by_name[name][0] for name in names])


def _in_order(
    order: ToolOrder, provided: tuple[tuple[ToolSchemas, str], ...], present: Mapping[str, object]
) -> list[str]:
    known = {name for schemas, _ in provided for name in schemas.known_names}
    unknown = [name for name in order.names if name != UNLISTED_TOOLS and name not in known]
    if unknown:
        raise PromptError(
            f"tool order lists unknown tools {', '.join(map(repr, unknown))}; known: {', '.join(sorted(known)) or '(none)'}"
        )
    names: list[str] = []
    for name in order.names:
        if name == UNLISTED_TOOLS:
            names += sorted(set(present) - set(order.names))
        elif name in present:
            names.append(name)
    return names

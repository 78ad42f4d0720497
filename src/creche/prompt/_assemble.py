"""From what is registered to one assembly: sections, contexts, tools and variables of one step.

What does not depend on the moment is derived before, in `_sources.py`. The rest is evaluated at each assembly, in the
order that `assemble` reads in; a shadowed source function is never called.
"""

import inspect
from types import MappingProxyType

import attrs

from creche.errors import PromptError
from creche.scope import Registry

from ._assembly import AssemblePrompt, Piece, PromptAssembly, UnwrappedAssembly, short_repr
from ._entries import AssembleContext, SuppressRuntimeContext, ToolSchemas
from ._sources import CONTEXTS, ORDERS, PROVIDERS, SECTIONS, VARIABLES, Source, TextSource
from ._tool_order import in_order, order_for


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
    assembly = (PromptAssembly if is_wrapped else UnwrappedAssembly)(
        pieces,
        contexts=() if suppressed else _pieces(contexts, context),
        tools=in_order(offered, providers, order_for(offered, registry.read(ORDERS, scope), scope)),
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


def _values(sources: tuple[Source, ...], context: AssembleContext) -> dict[str, str | None]:
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


def _pieces(texts: tuple[TextSource, ...], context: AssembleContext) -> tuple[Piece, ...]:
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


def _offered(providers: tuple[Source, ...], context: AssembleContext) -> tuple[ToolSchemas, ...]:
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
    return PromptError(f"{label} raised {short_repr(error)}")


def _gave(label: str, value: object, expected: str) -> PromptError:
    if inspect.iscoroutine(value):
        value.close()  # else Python complains of it too, later and elsewhere
    return PromptError(f"{label} gave {short_repr(value)}; {expected}")

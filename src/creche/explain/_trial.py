"""An assembly with everything that is wrong with it, where `creche.prompt.assemble` stops at the first.

Rule 1: what an assembly is, `assemble` alone says, with two exceptions. Each effective entry is assembled alone, in a
registry of its own, which gives its text or the sentence about its failure. Then what all of them gave is assembled, as
fixed texts, with the wrappers around it. Worked out here is the order of the pieces if they cannot be assembled
together, because then `assemble` gives nothing; and which wrappers are for agents elsewhere (``here_only``), because it
does not say which ones ran.
Rule 2: so every effective source function is called once, and none that is shadowed or suppressed, as in a step.
Rule 3: wrappers are given assemblies that a step could give them, and no others: if an entry failed, they are not run.
"""

from collections.abc import Callable, Iterable

import attrs

from creche._util import shown, without_addresses
from creche.errors import CrecheError, InternalError, PromptError
from creche.messages import ToolSchema
from creche.prompt import (
    AssembleContext,
    Piece,
    PromptAssembly,
    RuntimeContext,
    Section,
    ToolProvider,
    ToolSchemas,
    Variable,
    assemble,
)
from creche.scope import Entry, Owner, Registration, Registry, Wrapper, make_registrar

from ._declared import CONTEXTS, ORDERS, PROVIDERS, SECTIONS, SUPPRESSIONS, VARIABLES, WRAPPERS, ByName

MOST_SHOWN = 1000
"""Characters that are shown of what a wrapper raised."""


@attrs.frozen(eq=False)
class Evaluated:
    """What one effective entry gave."""

    by: Registration
    """The registration of the entry."""
    shadowed: tuple[Registration, ...] = attrs.field(kw_only=True)
    """Those of its name that it hides, the nearest first."""
    failure: str = attrs.field(default="", kw_only=True)
    """What went wrong; ``""`` if nothing did."""
    piece: Piece | None = attrs.field(default=None, kw_only=True)
    """Of a section or context that did not fail."""
    value: str | None = attrs.field(default=None, kw_only=True)
    """Of a variable."""
    schemas: ToolSchemas | None = attrs.field(default=None, kw_only=True)
    """Of a tool provider that did not fail."""


@attrs.frozen(eq=False, kw_only=True)
class Trial:
    """What came of assembling."""

    sections: tuple[Evaluated, ...]
    """The effective sections."""
    contexts: tuple[Evaluated, ...]
    """The effective runtime contexts; not evaluated if suppressed."""
    variables: tuple[Evaluated, ...]
    """The effective variables."""
    providers: tuple[Evaluated, ...]
    """The tool providers."""
    suppressed_by: tuple[Registration, ...]
    """What suppresses contexts."""
    wrappers: tuple[Registration, ...]
    """Those that stand around the assembly, outermost first."""
    wrapped: bool
    """Whether they were run, to the end."""
    assembly: PromptAssembly
    """The result; without what failed, and without wrappers if one of them or an entry did."""
    problems: tuple[str, ...]
    """Everything that is wrong."""


async def try_assembling(registry: Registry, context: AssembleContext) -> Trial:
    """Assemble the prompt of a scope as far as it goes."""
    scope = context.scope
    suppressed_by = registry.read(SUPPRESSIONS, scope)
    variables = await _evaluate_all(registry.read(VARIABLES, scope), context)
    providers = tuple([await _evaluate((by,), context) for by in registry.read(PROVIDERS, scope)])
    sections = await _evaluate_all(registry.read(SECTIONS, scope), context)
    found = registry.read(CONTEXTS, scope)
    contexts = _leave(found) if suppressed_by else await _evaluate_all(found, context)
    evaluated = (*variables, *providers, *sections, *contexts)
    problems = [each.failure for each in evaluated if each.failure]
    wrappers = tuple([by for by in registry.read(WRAPPERS, scope) if _stands_around(by, context)])
    orders = () if any(each.failure for each in providers) else registry.read(ORDERS, scope)
    fixed = [*[(_fixed(each), each.by) for each in evaluated], *_as_they_are((*orders, *suppressed_by))]
    assembly, around = await _attempt(fixed, context, problems), None
    if wrappers and not problems:
        around = await _attempt([*fixed, *_as_they_are(wrappers)], context, problems)
    assembly = around or assembly or _as_far_as_it_goes(sections, contexts, variables, providers)
    return Trial(
        sections=sections,
        contexts=contexts,
        variables=variables,
        providers=providers,
        suppressed_by=suppressed_by,
        wrappers=wrappers,
        wrapped=around is not None,
        assembly=_without_failed(assembly, evaluated),
        problems=tuple(problems),
    )


# ---------------------------------------------------------------- one entry


async def _evaluate_all(found: ByName, context: AssembleContext) -> tuple[Evaluated, ...]:
    return tuple([await _evaluate(registrations, context) for registrations in found.values()])


async def _evaluate(found: tuple[Registration, ...], context: AssembleContext) -> Evaluated:
    """Assemble the first of the registrations of one name alone."""
    by, *shadowed = found
    entry = by.entry
    given: list[ToolSchemas] = []
    if isinstance(entry, ToolProvider):
        entry = ToolProvider(_noting(entry, given))
    try:
        alone = await assemble(_registry_of([(entry, by)]), context)
    except PromptError as error:
        return Evaluated(by, shadowed=tuple(shadowed), failure=str(error))
    return Evaluated(
        by,
        shadowed=tuple(shadowed),
        piece=next(iter((*alone.sections, *alone.contexts)), None),
        value=next(iter(alone.variables.values()), None),
        schemas=given[0] if given else None,
    )


def _leave(found: ByName) -> tuple[Evaluated, ...]:
    return tuple([Evaluated(by, shadowed=tuple(shadowed)) for by, *shadowed in found.values()])


def _noting(provider: ToolProvider, given: list[ToolSchemas]) -> Callable[[AssembleContext], ToolSchemas]:
    """Return what the tool provider does; what it gives is put into a list, too: an assembly has no known names."""

    def provide(context: AssembleContext) -> ToolSchemas:
        given.append(provider.provide(context))
        return given[0]

    return provide


# ---------------------------------------------------------------- all of them


async def _attempt(
    entries: list[tuple[Entry, Registration]], context: AssembleContext, problems: list[str]
) -> PromptAssembly | None:
    """Assemble entries, or add to the problems."""
    try:
        return await assemble(_registry_of(entries), context)
    except Exception as error:  # noqa: BLE001 - what a wrapper raises is part of the report, whatever it is
        problems.append("; ".join([shown_error(error), *map(str, getattr(error, "__notes__", ()))]))
        return None


def shown_error(error: Exception) -> str:
    """Return what is to be said of an error, in the same words in each process: of a stranger's, its repr."""
    return without_addresses(str(error)) if isinstance(error, CrecheError | InternalError) else shown(error, MOST_SHOWN)


def _fixed(each: Evaluated) -> Entry:
    """Return the entry with what it gave in place of its source function."""
    entry, value = each.by.entry, each.value
    if isinstance(entry, Section | RuntimeContext):
        return attrs.evolve(entry, text="" if each.piece is None else each.piece.text)
    if isinstance(entry, Variable):
        return Variable(entry.name, lambda _: value)
    schemas = each.schemas or ToolSchemas([])
    return ToolProvider(lambda _: schemas)


def _as_they_are(registrations: Iterable[Registration]) -> list[tuple[Entry, Registration]]:
    return [(by.entry, by) for by in registrations]


def _registry_of(entries: Iterable[tuple[Entry, Registration]]) -> Registry:
    """Return a registry of these entries alone, each for the owner and at the scope of a registration."""
    registry = Registry()
    for entry, by in entries:
        make_registrar(registry, Owner(by.owner.name), by.scope).add(entry)
    return registry


def _stands_around(by: Registration, context: AssembleContext) -> bool:
    wrapper = by.entry
    assert isinstance(wrapper, Wrapper), "the table of an operation holds wrappers alone"
    return by.scope is context.scope or not wrapper.here_only


def _as_far_as_it_goes(
    sections: Iterable[Evaluated],
    contexts: Iterable[Evaluated],
    variables: Iterable[Evaluated],
    providers: Iterable[Evaluated],
) -> PromptAssembly:
    """Return all that did not fail, in the usual order: two sections are complete, or the tools do not fit together."""
    tools = {schema.name: schema for each in providers if each.schemas is not None for schema in each.schemas.schemas}
    return PromptAssembly(
        _sorted(sections),
        contexts=_sorted(contexts),
        tools=_by_tool_name(tools.values()),
        variables={str(each.by.name): each.value for each in variables},
    )


def _by_tool_name(schemas: Iterable[ToolSchema]) -> list[ToolSchema]:
    return sorted(schemas, key=lambda schema: schema.name)


def _sorted(evaluated: Iterable[Evaluated]) -> list[Piece]:
    pieces = [each.piece for each in evaluated if each.piece is not None]
    return sorted(pieces, key=lambda piece: (piece.origin.order, piece.name))


def _without_failed(assembly: PromptAssembly, evaluated: Iterable[Evaluated]) -> PromptAssembly:
    failed = {(each.by.kind, each.by.name) for each in evaluated if each.failure}
    return attrs.evolve(
        assembly,
        sections=[piece for piece in assembly.sections if (Section, piece.name) not in failed],
        contexts=[piece for piece in assembly.contexts if (RuntimeContext, piece.name) not in failed],
    )

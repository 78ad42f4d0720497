"""Who declared what along a chain: what the report reads of the registry besides the assembly."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import cast

import attrs

from creche.prompt import (
    AssemblePrompt,
    RuntimeContext,
    Section,
    SuppressRuntimeContext,
    ToolOrder,
    ToolProvider,
    Variable,
)
from creche.scope import Derivation, Level, Registration
from creche.tools import CodeTool, Guard, Presentation, Restriction, Tool

ByName = Mapping[str, tuple[Registration, ...]]
"""Of each name all registrations on the chain, the nearest, which wins it, first."""
InOrder = tuple[Registration, ...]
"""All registrations on the chain, the farthest first."""


def _by_name(levels: tuple[Level, ...]) -> ByName:
    found: dict[str, tuple[Registration, ...]] = {}
    for by in _in_order(levels):
        name = cast("str", by.name)
        found[name] = (by, *found.get(name, ()))
    return MappingProxyType(found)


def _in_order(levels: Iterable[Level]) -> InOrder:
    return tuple([by for level in levels for by in level.tables[0]])


SECTIONS: Derivation[ByName] = Derivation((Section,), derive=_by_name)
CONTEXTS: Derivation[ByName] = Derivation((RuntimeContext,), derive=_by_name)
VARIABLES: Derivation[ByName] = Derivation((Variable,), derive=_by_name)
PROVIDERS: Derivation[InOrder] = Derivation((ToolProvider,), derive=_in_order)
ORDERS: Derivation[InOrder] = Derivation((ToolOrder,), derive=_in_order)
SUPPRESSIONS: Derivation[InOrder] = Derivation((SuppressRuntimeContext,), derive=_in_order)
WRAPPERS: Derivation[InOrder] = Derivation((AssemblePrompt,), derive=_in_order)
PRESENTATIONS: Derivation[InOrder] = Derivation((Presentation,), derive=_in_order)
CODE_TOOLS: Derivation[InOrder] = Derivation((CodeTool,), derive=_in_order)
GUARDS: Derivation[InOrder] = Derivation((Guard,), derive=_in_order)


@attrs.frozen(eq=False)
class Passage:
    """One registered tool on its way down the chain."""

    by: Registration
    """The registration of the tool."""
    stopped_by: tuple[Registration, ...] = attrs.field(default=(), kw_only=True)
    """The restrictions below it that do not let it through; none of a scope that has a tool of that name itself, or
    of one below such a scope: they concern that one."""


def _derive_passages(levels: tuple[Level, ...]) -> Mapping[str, tuple[Passage, ...]]:
    found: dict[str, tuple[Passage, ...]] = {}
    for level in levels:
        tools, restrictions = level.tables
        for rule in restrictions:
            restriction = rule.entry
            assert isinstance(restriction, Restriction), "the table holds one kind"
            for name, (nearest, *farther) in found.items():
                if not restriction.lets_through(name):
                    stopped = attrs.evolve(nearest, stopped_by=(*nearest.stopped_by, rule))
                    found[name] = (stopped, *farther)
        for by in tools:
            name = cast("str", by.name)
            found[name] = (Passage(by), *found.get(name, ()))
    return MappingProxyType(found)


PASSAGES: Derivation[Mapping[str, tuple[Passage, ...]]] = Derivation((Tool, Restriction), derive=_derive_passages)
"""Of each name all registered tools on the chain, the nearest first, and what stops them."""

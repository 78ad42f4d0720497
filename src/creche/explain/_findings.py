"""What is registered at the global layer, where everybody is told it, and looks like one agent's.

Four checks, each of them certain enough to be told; none of them is an error. Of one entry the first that holds is told.
"""

from creche.prompt import (
    CONTEXT_ORDERS,
    PERSONA_ORDER,
    PERSONA_SECTION,
    SECTION_ORDERS,
    AgentView,
    AssembleContext,
    RuntimeContext,
    Section,
    SuppressRuntimeContext,
    Variable,
)
from creche.scope import Derivation, Level, Registration, Registry, place_name
from creche.tools import Tool

from ._report import Finding, FindingCheck
from ._trial import Trial

CURE = "what is for one agent is registered at its scope: in setup=, or with registrar.at(agent.scope)"
_FIRST_PARTY = frozenset([name.partition(":")[0] for name in (*SECTION_ORDERS, *CONTEXT_ORDERS)])


def _derive_all(levels: tuple[Level, ...]) -> tuple[Registration, ...]:
    return tuple([by for level in levels for table in level.tables for by in table])


_TOLD: Derivation[tuple[Registration, ...]] = Derivation(
    (Section, RuntimeContext, Variable, Tool, SuppressRuntimeContext), derive=_derive_all
)


def find_misplaced(registry: Registry, context: AssembleContext, trial: Trial) -> tuple[Finding, ...]:
    """Return what at the global layer looks like one agent's, also where it is shadowed: others are told it."""
    failed: set[Registration] = set()
    if context.agent is None:
        failed.update([each.by for each in (*trial.sections, *trial.contexts, *trial.variables) if each.failure])
    found = [_judge(by, context.agent, failed=by in failed) for by in registry.read(_TOLD, None)]
    return tuple([each for each in found if each is not None])


def _judge(by: Registration, agent: AgentView | None, *, failed: bool) -> Finding | None:
    entry, home = by.entry, by.owner.scope
    if home is not None:
        return _finding("owned-below", by, f"is registered for all agents by one that stands at {place_name(home)}")
    if isinstance(entry, Section) and entry.order == PERSONA_ORDER and entry.name != PERSONA_SECTION:
        return _finding(
            "persona-order", by, f"has the order of the persona, {PERSONA_ORDER}, and is told to all agents"
        )
    if failed:
        return _finding("needs-an-agent", by, "fails where there is no agent")
    if agent is not None and isinstance(entry, Section | RuntimeContext) and _is_named_after(entry.name, agent):
        return _finding("named-after-agent", by, f"has the name of agent {agent.path!r}, and is told to all")
    return None


def _is_named_after(name: str, agent: AgentView) -> bool:
    first = name.partition(":")[0]
    return first not in _FIRST_PARTY and first in (agent.path, agent.path.rpartition("/")[2])


def _finding(check: FindingCheck, by: Registration, what: str) -> Finding:
    name = "" if by.name is None else str(by.name)
    subject = f"{by.kind.__name__} {name!r}" if name else by.kind.__name__
    return Finding(
        check,
        kind=by.kind.__name__,
        name=name,
        owner=by.owner.name,
        sentence=f"{subject} of {by.owner.name!r} at the global layer {what}; {CURE}",
    )

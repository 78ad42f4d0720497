"""Tools: which ones the model is shown, whose they are, and who takes the others away."""

from collections.abc import Iterator, Mapping
from operator import attrgetter

from creche.messages import ToolSchema
from creche.scope import Registration, Registry, ScopeKey
from creche.tools import RUN_CODE, VISIBLE, Guard, Restriction, VisibleTools

from ._declared import CODE_TOOLS, GUARDS, PASSAGES, Passage
from ._pieces import ADDED, CHANGED, TAKEN_OUT
from ._report import Rule, ToolReport, ToolState, place_of, places_of
from ._trial import Trial, shown_error

NOT_OFFERED = "no tool provider offers it"
KNOWN = "its tool provider knows the name and does not offer it"


def explain_tools(registry: Registry, scope: ScopeKey | None, trial: Trial) -> tuple[ToolReport, ...]:
    """Return the tools that the model calls itself, in order, and then all others that the chain knows, by name."""
    view = _View(registry, scope, trial)
    direct = [view.direct(schema) for schema in trial.assembly.tools]
    others = [*view.registered(), *view.taken_out(), *view.known()]
    return (*direct, *sorted(others, key=attrgetter("name")))


class _View:
    """What the chain of a scope has of tools, and what an assembly has of that."""

    def __init__(self, registry: Registry, scope: ScopeKey | None, trial: Trial) -> None:
        self._seen: VisibleTools = registry.read(VISIBLE, scope)
        self._passages: Mapping[str, tuple[Passage, ...]] = registry.read(PASSAGES, scope)
        self._code_tools = registry.read(CODE_TOOLS, scope)
        self._guards = registry.read(GUARDS, scope)
        self._shown = {schema.name for schema in trial.assembly.tools}
        self._providers = [(each.by, each.schemas) for each in trial.providers if each.schemas is not None]
        self._offered = {schema.name: (schema, by) for by, given in self._providers for schema in given.schemas}

    def direct(self, schema: ToolSchema) -> ToolReport:
        """Report on a tool of the assembly."""
        name = schema.name
        if name not in self._offered:
            return ToolReport(name, place=None, note=ADDED, state="direct", schema=schema)
        offered, by = self._offered[name]
        found = self._registered_as(name) if self._is_registered(name) else (by,)
        note = CHANGED if schema != offered else ""
        return self._report(name, found, state="direct", note=note, schema=schema)

    def registered(self) -> Iterator[ToolReport]:
        """Report on the tools of the chain that are not in the assembly."""
        for name, (nearest, *_) in self._passages.items():
            if self._is_registered(name) and name in self._shown:
                continue
            state: ToolState = "left-out"
            note = ""
            if nearest.stopped_by:
                state = "hidden"
            elif self._seen.mode == "code":
                state = "in-programs"
            else:
                note = TAKEN_OUT if self._is_registered(name) else NOT_OFFERED
            yield self._report(
                name,
                self._registered_as(name),
                state=state,
                note=note,
                hidden_by=tuple([_rule(by, name) for by in nearest.stopped_by]),
            )

    def taken_out(self) -> Iterator[ToolReport]:
        """Report on what was offered otherwise, and is not in the assembly."""
        for name, (_, by) in self._offered.items():
            if name not in self._shown and (name == RUN_CODE or not self._is_registered(name)):
                found = self._registered_as(name) if self._is_registered(name) else (by,)
                yield self._report(name, found, state="left-out", note=TAKEN_OUT)

    def known(self) -> Iterator[ToolReport]:
        """Report on names that a tool provider knows, and nobody offers."""
        elsewhere = {*self._offered, *self._passages, RUN_CODE}
        for by, given in self._providers:
            for name in given.known_names - elsewhere:
                yield self._report(name, (by,), state="known", note=KNOWN)

    def _is_registered(self, name: str) -> bool:
        """Tell whether what is offered under a name is the tool that is registered, and not another one."""
        tool = self._seen.direct.get(name)
        return tool is not None and name in self._offered and self._offered[name][0] is tool.schema

    def _registered_as(self, name: str) -> tuple[Registration, ...]:
        """Return the registrations of a tool, the nearest first."""
        if name == RUN_CODE:
            return self._code_tools[::-1]
        return tuple([passage.by for passage in self._passages[name]])

    def _report(
        self,
        name: str,
        found: tuple[Registration, ...],
        *,
        state: ToolState,
        note: str,
        schema: ToolSchema | None = None,
        hidden_by: tuple[Rule, ...] = (),
    ) -> ToolReport:
        by, *shadowed = found
        refused_by: list[Rule] = []
        notes = [note] if note else []
        for guard in self._guards:
            try:
                if _refuses(guard, name):
                    refused_by.append(_rule(guard, name))
            except Exception as error:  # noqa: BLE001 - whatever it raises, what else there is to say is said
                notes.append(f"a guard of {place_of(guard)} cannot tell whether it refuses it: {shown_error(error)}")
        return ToolReport(
            name,
            place=place_of(by),
            shadows=places_of(shadowed),
            note="; ".join(notes),
            state=state,
            schema=schema,
            hidden_by=hidden_by,
            refused_by=tuple(refused_by),
        )


def _rule(by: Registration, name: str) -> Rule:
    rule = by.entry
    if not isinstance(rule, Restriction):
        return Rule("guard", place=place_of(by))
    if name in rule.deny:
        return Rule("deny", names=tuple(sorted(rule.deny)), place=place_of(by))
    assert rule.allow is not None, "it does not let the name through"
    return Rule("allow", names=tuple(sorted(rule.allow)), place=place_of(by))


def _refuses(by: Registration, name: str) -> bool:
    guard = by.entry
    assert isinstance(guard, Guard), "the table holds one kind"
    return guard.lets_through is not None and not guard.lets_through(name)

"""Laws of the room of tools: what a scope sees, that nothing else runs, and which calls of an answer overlap."""

import functools
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from creche.errors import DuplicateNameError, RegistryError, ToolFailed
from creche.messages import AssistantMessage, ToolCall
from creche.prompt import AssembleContext
from creche.scope import (
    Owner,
    Registration,
    Registry,
    ScopeKey,
    ScopeParentBinding,
    bind_scope_parent,
    make_registrar,
)
from creche.session import (
    AssistantSaid,
    Record,
    SessionHeader,
    SessionLog,
    StepEnded,
    StepStarted,
    TurnEnded,
    TurnStarted,
)
from creche.testing import check_log
from creche.tools import CallStep, Tool, ToolContext, execute_call, restrict, run_calls, tool, tool_provider, visible

# ---------------------------------------------------------------- what a scope sees

NAMES = st.sampled_from(["a", "b", "c", "d"])
NAME_SETS = st.sets(NAMES, min_size=1)


@attrs.define(eq=False)
class Node:
    """What the naive model knows of one scope; the global layer is one, too."""

    key: ScopeKey | None
    parent: "Node | None" = None
    tools: dict[str, Tool] = attrs.field(factory=dict)
    filters: list[tuple[set[str] | None, set[str]]] = attrs.field(factory=list)
    binding: ScopeParentBinding | None = None

    def visible(self) -> dict[str, Tool]:
        seen = {} if self.parent is None else self.parent.visible()
        for allow, deny in self.filters:
            seen = {name: each for name, each in seen.items() if (allow is None or name in allow) and name not in deny}
        return seen | self.tools

    def known(self) -> set[str]:
        return {*self.tools, *(() if self.parent is None else self.parent.known())}

    def is_below(self, other: "Node") -> bool:
        return self is other or (self.parent is not None and self.parent.is_below(other))


class VisibleTools(RuleBasedStateMachine):
    """Tools and restrictions come and go in a tree that moves; every view is that of the recursive definition."""

    scopes = Bundle("scopes")
    standing_tools = Bundle("standing_tools")
    standing_filters = Bundle("standing_filters")

    def __init__(self) -> None:
        super().__init__()
        self.registry = Registry()
        self.pen = make_registrar(self.registry, Owner("test"), None)
        self.provide = tool_provider(self.registry).provide
        self.root = Node(None)
        self.nodes = [self.root]
        self.marks = itertools.count()
        self.ran: list[str] = []

    def place(self, scope: Node | None) -> Node:
        return self.root if scope is None else scope

    @precondition(lambda self: len(self.nodes) < 7)
    @rule(target=scopes, parent=st.none() | scopes)
    def open_scope(self, parent: Node | None) -> Node:
        node = Node(ScopeKey(f"s{len(self.nodes)}"), self.place(parent))
        node.binding = bind_scope_parent(node.key, node.parent.key)
        self.nodes.append(node)
        return node

    @rule(scope=scopes, parent=st.none() | scopes)
    def move_scope(self, scope: Node, parent: Node | None) -> None:
        above = self.place(parent)
        if not above.is_below(scope):
            scope.binding.rebind(above.key)
            scope.parent = above

    @rule(target=standing_tools, scope=st.none() | scopes, name=NAMES)
    def add_tool(self, scope: Node | None, name: str) -> tuple[Node, str, Registration] | None:
        node = self.place(scope)
        mark = f"tool {next(self.marks)}"
        run = functools.partial(self.ran.append, mark)
        added = Tool(name, description=mark, parameters={}, run=run, inline=True)
        if name in node.tools:
            with pytest.raises(DuplicateNameError):
                self.pen.at(node.key).add(added)
            return None
        node.tools[name] = added
        return node, name, self.pen.at(node.key).add(added)

    @rule(standing=consumes(standing_tools))
    def undo_tool(self, standing: tuple[Node, str, Registration] | None) -> None:
        if standing is not None:
            node, name, registration = standing
            registration.undo()
            del node.tools[name]

    @rule(target=standing_filters, scope=scopes, allow=st.none() | NAME_SETS, deny=st.sets(NAMES))
    def add_filter(
        self, scope: Node, allow: set[str] | None, deny: set[str]
    ) -> tuple[Node, object, Registration] | None:
        if allow is None and not deny:
            return None
        entry = restrict(allow=allow, deny=deny)
        if not (allow or set()) | deny <= scope.parent.known():
            with pytest.raises(RegistryError, match="which it does not inherit"):
                self.pen.at(scope.key).add(entry)
            return None
        made = (allow, deny)
        scope.filters.append(made)
        return scope, made, self.pen.at(scope.key).add(entry)

    @rule(standing=consumes(standing_filters))
    def undo_filter(self, standing: tuple[Node, object, Registration] | None) -> None:
        if standing is not None:
            node, made, registration = standing
            registration.undo()
            del node.filters[next(place for place, each in enumerate(node.filters) if each is made)]

    @rule(scope=st.none() | scopes)
    def read(self, scope: Node | None) -> None:
        """Read one view, so that views are kept at some scopes and not at others."""
        node = self.place(scope)
        assert visible(self.registry, node.key) == node.visible()

    @rule(scope=st.none() | scopes, name=NAMES)
    def call(self, scope: Node | None, name: str) -> None:
        """Rule: what runs is what is visible, and nothing else."""
        node = self.place(scope)
        self.ran.clear()
        context = ToolContext(None, registry=self.registry, call_id="c", name="", number=1)
        made = ToolCall("c", name=name, arguments="")
        outcome = trio.run(execute_call, self.registry, node.key, made, context)
        expected = node.visible().get(name)
        assert self.ran == ([] if expected is None else [expected.description])
        assert outcome.code == ("unknown-tool" if expected is None else "")

    @invariant()
    def every_view_is_the_models(self) -> None:
        for node in reversed(self.nodes):
            seen = node.visible()
            assert visible(self.registry, node.key) == seen
            offered = self.provide(AssembleContext(node.key))
            assert {schema.name: schema for schema in offered.schemas} == {
                name: each.schema for name, each in seen.items()
            }
            assert offered.known_names == node.known()


VisibleTools.TestCase.settings = settings(stateful_step_count=30)
test_a_view_is_the_parents_filtered_and_then_the_scopes_own = VisibleTools.TestCase


# ---------------------------------------------------------------- which calls overlap


@attrs.frozen
class Planned:
    """One call of an answer."""

    tool: str = "alone"
    seconds: int = 0
    fails: bool = False


PLANS = st.lists(
    st.builds(
        Planned,
        tool=st.sampled_from(["together", "also_together", "alone", "unknown"]),
        seconds=st.integers(0, 3),
        fails=st.booleans(),
    ),
    max_size=8,
)


@attrs.define(eq=False)
class Agent:
    """No more of an agent than a batch needs."""

    scope: ScopeKey
    session: SessionLog
    path: str = "lead"


@attrs.define(eq=False)
class Happened:
    """What a batch did on the virtual clock, by call."""

    ran: dict[str, tuple[float, float]] = attrs.field(factory=dict)
    committed: list[tuple[str, str, float]] = attrs.field(factory=list)


def _sleeper(name: str, happened: Happened, *, parallel: bool) -> Tool:
    @tool(name=name, parallel=parallel)
    async def sleep(seconds: int, fails: bool, context: ToolContext) -> None:
        began = trio.current_time()
        await trio.sleep(seconds)
        happened.ran[context.call_id] = began, trio.current_time()
        if fails:
            raise ToolFailed("as planned")

    return sleep


async def _run(plans: Iterable[Planned]) -> Happened:
    happened = Happened()
    registry = Registry()
    pen = make_registrar(registry, Owner("test"), None)
    for name in ("together", "also_together", "alone"):
        pen.add(_sleeper(name, happened, parallel=name != "alone"))

    def note(record: Record) -> None:
        if record.kind == "tool/result":
            happened.committed.append((record.data.message.call_id, record.data.code, trio.current_time()))

    session = SessionLog(SessionHeader("s", path="lead", created=0.0), publish=note)
    calls = [
        ToolCall(f"c{place}", name=plan.tool, arguments=json.dumps({"seconds": plan.seconds, "fails": plan.fails}))
        for place, plan in enumerate(plans)
    ]
    for fact in (TurnStarted(), StepStarted(), AssistantSaid(AssistantMessage(calls))):
        session.append(fact)
    agent = Agent(ScopeKey("lead"), session)
    step = CallStep(checkpoint=trio.lowlevel.checkpoint)
    await run_calls(agent, registry, calls, step=step, deliver=lambda _: None)
    for fact in (StepEnded(), TurnEnded("completed")):
        session.append(fact)
    check_log(session)
    return happened


def _groups(plans: list[Planned]) -> Iterator[list[tuple[str, Planned]]]:
    """Yield what overlaps: parallel calls in a row, and any other call by itself."""
    named = [(f"c{place}", plan) for place, plan in enumerate(plans)]
    for parallel, group in itertools.groupby(named, key=lambda each: "together" in each[1].tool):
        if parallel:
            yield list(group)
        else:
            yield from ([each] for each in group)


def _expected(plans: list[Planned]) -> tuple[Mapping[str, tuple[float, float]], list[tuple[str, str, float]]]:
    now, ran, committed = 0.0, {}, []
    for group in _groups(plans):
        ends = now
        for call_id, plan in group:
            if plan.tool == "unknown":
                committed.append((call_id, "unknown-tool", now))
                continue
            ran[call_id] = now, now + plan.seconds
            ends = max(ends, now + plan.seconds)
            committed.append((call_id, "failed" if plan.fails else "", ends))
        now = ends
    return ran, committed


@given(PLANS)
def test_calls_overlap_exactly_as_the_rule_says_and_results_come_in_order_as_soon_as_possible(plans):
    """Rule: parallel calls in a row begin together; anything else waits for all before it and holds up all after it."""
    happened = trio.run(_run, plans, clock=trio.testing.MockClock(autojump_threshold=0))
    assert (happened.ran, happened.committed) == _expected(plans)

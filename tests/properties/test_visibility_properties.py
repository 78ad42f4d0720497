"""Nothing runs that was not shown in its step, and what a guard refuses never runs: over random trees of scopes.

Programs and direct calls, restrictions, guards and presentations at any scope, and changes of all of them while the
calls of a step are under way.
"""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import attrs
import trio
import trio.testing
from hypothesis import HealthCheck, event, given, settings, strategies as st

from creche import AgentSpec, Preset, open_host
from creche.codemode import Program, ProgramEnd, code_mode
from creche.errors import CrecheError, ToolError
from creche.models import FunctionModel, call, say
from creche.prompt import AssemblePrompt
from creche.scope import Registrar, Registration
from creche.testing import check_log
from creche.tools import RUN_CODE, Guard, Tool, ToolContext, present_as, restrict, tool

NAMES = ("a", "b", "c", "d")


# ---------------------------------------------------------------- what is declared, and when


@attrs.frozen
class Adding:
    """Declare something at a scope."""

    kind: str
    names: frozenset[str] = frozenset()
    mode: str = "native"


@attrs.frozen
class Removing:
    """Take back one of the things that were declared at a scope."""

    which: int


@attrs.frozen
class Plan:
    """A tree of presets, an agent under one of them, what they declare, and what the model calls."""

    presets: Sequence[tuple[int | None, Sequence[Adding]]]
    own: Sequence[Adding]
    under: int
    steps: Sequence[Sequence[tuple[str, Sequence[str]]]]
    """Of each step its calls: the name of a tool and nothing, or ``run_code`` and the names that its program calls."""
    changes: Sequence[tuple[int, Adding | Removing]]
    """One for each body that begins, and each prompt that is assembled: a scope, counted from the root, and what happens
    there."""


def addings() -> st.SearchStrategy[Adding]:
    subsets = st.frozensets(st.sampled_from(NAMES), min_size=1, max_size=3)
    return st.one_of(
        st.builds(Adding, st.sampled_from(["tools", "allow", "deny", "guard"]), subsets),
        st.builds(Adding, st.just("present"), mode=st.sampled_from(["native", "code", "hybrid"])),
    )


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    count = draw(st.integers(1, 3))
    parents = [draw(st.none() | st.integers(0, number - 1)) if number else None for number in range(count)]
    some_tools = st.builds(Adding, st.just("tools"), st.frozensets(st.sampled_from(NAMES), min_size=2))
    presets = [
        (parent, [*([draw(some_tools)] if parent is None else []), *draw(st.lists(addings(), max_size=3))])
        for parent in parents
    ]
    one_call = st.one_of(
        st.tuples(st.sampled_from(NAMES), st.just(())),
        st.tuples(st.just(RUN_CODE), st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map(tuple)),
    )
    changes = st.tuples(st.integers(0, 3), st.one_of(addings(), st.builds(Removing, st.integers(0, 9))))
    return Plan(
        presets,
        own=draw(st.lists(addings(), max_size=3)),
        under=draw(st.integers(0, count - 1)),
        steps=draw(st.lists(st.lists(one_call, min_size=2, max_size=4), min_size=1, max_size=3)),
        changes=draw(st.lists(changes, max_size=6)),
    )


# ---------------------------------------------------------------- the world


class NamesRuntime:
    """Programs are lists of names, called one after the other."""

    name, notes = "names", ""

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Any]:
        yield self._run

    async def _run(self, program: Program) -> ProgramEnd:
        for name in json.loads(program.source):
            with suppress(ToolError):
                await program.call(name, "{}")
        return ProgramEnd()


@attrs.define(eq=False)
class World:
    """What is declared at the moment, and what has run."""

    plan: Plan
    pens: list[Registrar] = attrs.field(factory=list)
    """Of each scope that anything can be declared at, the agent's own last."""
    declared: dict[int, list[tuple[Registration, Adding]]] = attrs.field(factory=dict)
    request: Any = None
    ran: list[tuple[str, bool]] = attrs.field(factory=list)
    begun: int = 0

    def add(self, place: int, adding: Adding) -> None:
        """Declare something, unless it cannot stand there now."""
        for entry in self._entries(adding):
            with suppress(CrecheError):
                self.declared.setdefault(place, []).append((self.pens[place].add(entry), adding))

    def _entries(self, adding: Adding) -> list[Any]:
        names = adding.names
        match adding.kind:
            case "tools":
                return [self.tool(name) for name in sorted(names)]
            case "allow":
                return [restrict(allow=names)]
            case "deny":
                return [restrict(deny=names)]
            case "guard":
                return [Guard(lambda execution: "guarded" if execution.tool.name in names else None)]
            case _:
                return [present_as(adding.mode)]  # type: ignore[arg-type] - the strategy draws modes alone

    def tool(self, name: str) -> Tool:
        @tool(name=name)
        async def body(context: ToolContext) -> str:
            """Run."""
            self.begin(name, direct=context.parent is None)
            return "ran"

        return body

    def begin(self, name: str, *, direct: bool) -> None:
        """Check that a body may run now, and let the next change happen."""
        self.ran.append((name, direct))
        shown = [schema.name for schema in self.request.tools]
        if direct:
            assert name in shown, f"{name!r} ran and was not among {shown}"
        else:
            assert RUN_CODE in shown
            assert f"async def {name}(" in self.request.system, f"{name!r} ran in a program and has no stub"
        assert not self.guarded(name), f"{name!r} ran and is guarded"
        self.go_on()

    async def assembled(self, event: Any, go_on: Any) -> Any:
        """Change things while a prompt is being assembled, before and after it is handed on."""
        self.go_on()
        await trio.lowlevel.checkpoint()
        assembly = await go_on()
        await trio.lowlevel.checkpoint()
        self.go_on()
        return assembly

    def go_on(self) -> None:
        """Let the next change happen."""
        if self.begun < len(self.plan.changes):
            place, change = self.plan.changes[self.begun]
            self.begun += 1
            self.change(place % len(self.pens), change)

    def guarded(self, name: str) -> bool:
        """Tell whether a guard of the agent's chain refuses a tool; each of its scopes is in the list."""
        standing = [adding for place in self.declared.values() for _, adding in place]
        return any(adding.kind == "guard" and name in adding.names for adding in standing)

    def change(self, place: int, change: Adding | Removing) -> None:
        if isinstance(change, Adding):
            self.add(place, change)
            return
        standing = self.declared.get(place, [])
        if standing:
            registration, _ = standing.pop(change.which % len(standing))
            registration.undo()


def _chain(plan: Plan) -> list[int]:
    """Return the presets of the agent's chain, root first."""
    chain: list[int] = []
    at: int | None = plan.under
    while at is not None:
        chain.append(at)
        at = plan.presets[at][0]
    return chain[::-1]


async def _play(plan: Plan) -> World:
    world = World(plan)
    chain = _chain(plan)

    def declare(registrar: Registrar, addings: Sequence[Adding], *, on_chain: bool) -> None:
        if on_chain:
            world.pens.append(registrar)
            for adding in addings:
                world.add(len(world.pens) - 1, adding)
            return
        elsewhere = World(plan, pens=[registrar])  # a branch that the agent does not hang on; nothing of it may matter
        for adding in addings:
            elsewhere.add(0, adding)

    presets = [
        Preset(
            f"p{number}",
            extends=None if parent is None else f"p{parent}",
            setup=[lambda registrar, n=number: declare(registrar, plan.presets[n][1], on_chain=n in chain)],
        )
        for number, (parent, _) in enumerate(plan.presets)
    ]
    spec = AgentSpec("agent", setup=[lambda registrar: declare(registrar, plan.own, on_chain=True)])
    steps = iter(plan.steps)

    def answer(request: Any) -> Any:
        world.request = request
        step = next(steps, None)
        if step is None:
            return say("done")
        return [
            call(name, code=json.dumps(inner), description="calls") if name == RUN_CODE else call(name)
            for name, inner in step
        ]

    async with (
        open_host(model=FunctionModel(answer), plugins=[code_mode(NamesRuntime())], presets=presets) as host,
        host.open_agent(spec, preset=f"p{plan.under}") as agent,
    ):
        host.registrar.wrap(AssemblePrompt, world.assembled)
        await agent.ask("Go.")
        check_log(agent.session)
        _check_results(agent.session, world)
    return world


def _check_results(log: Any, world: World) -> None:
    """What ran has a result that says so, and nothing else has."""
    direct = [record.data.message for record in log.records("tool/result") if record.data.message.name != RUN_CODE]
    inner = [record.data.message for record in log.records("tool/code-result")]
    for messages, is_direct in ((direct, True), (inner, False)):
        said = sorted([message.name for message in messages if not message.is_error])
        assert said == sorted([name for name, was_direct in world.ran if was_direct is is_direct])


@settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.too_slow])
@given(plan=plans())
def test_nothing_runs_that_was_not_shown_in_its_step_and_no_guard_is_passed(plan: Plan) -> None:
    """Law: a body that begins was in its step's schemas or stubs, and no guard of its chain refuses it."""
    world = trio.run(_play, plan, clock=trio.testing.MockClock(autojump_threshold=0))
    event(f"ran: {min(len(world.ran), 3)}")
    event(f"in programs: {any(not direct for _, direct in world.ran)}")


@settings(deadline=None, max_examples=60)
@given(names=st.frozensets(st.sampled_from(NAMES), min_size=1), mode=st.sampled_from(["native", "code", "hybrid"]))
def test_what_is_shown_runs(names: frozenset[str], mode: str) -> None:
    """Law: where nothing changes and nothing is guarded, every call of what is shown runs."""
    direct = [(name, ()) for name in sorted(names)] if mode != "code" else []
    program = [(RUN_CODE, tuple(sorted(names)))] if mode != "native" else []
    plan = Plan(
        [(None, [Adding("tools", names), Adding("present", mode=mode)])],
        own=[],
        under=0,
        steps=[[*direct, *program]],
        changes=[],
    )
    world = trio.run(_play, plan, clock=trio.testing.MockClock(autojump_threshold=0))
    expected = [(name, True) for name, _ in direct] + [(name, False) for _, inner in program for name in inner]
    assert world.ran == expected

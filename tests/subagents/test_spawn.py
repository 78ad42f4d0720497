"""Spawn: what a fresh child sees, what is refused before it starts, what it is called, what it asks, how it comes out."""

from functools import partial

import attrs
import pytest
import trio

from creche import AgentSpec, Budget, ModelOptions, Plugin, Preset, Section, fork, open_host, say, spawn, tool
from creche.agent import BuildRequest, DeltaStreamed, PreStep, Reject
from creche.errors import (
    AgentClosedError,
    AgentError,
    AuthorityError,
    ConfigError,
    DuplicateNameError,
    LimitReachedError,
    NotRegisteredError,
    RegistryError,
    UnsupportedCapabilityError,
)
from creche.models import (
    Finished,
    FunctionModel,
    ModelProvider,
    PreparedCall,
    RetryPolicy,
    TextDelta,
    call,
    fail,
    model_error,
)
from creche.scope import Fault, Registry
from creche.session import RecordAppended, SubagentEnded, SubagentStarted
from creche.subagents import delegation
from creche.testing import record_events
from creche.tools import Guard, Tool, ToolContext, restrict


@tool(inline=True)
def read(path: str) -> str:
    """Read a file."""
    return f"contents of {path}"


@tool(inline=True)
def write(path: str) -> str:
    """Write a file."""
    return f"wrote {path}"


def names(request) -> list:
    """Say which tools there are."""
    return [say(" ".join(schema.name for schema in request.tools) or "(none)")]


def calling(name, **arguments):
    """Return a model function that makes one call in each child, and reports what came of it."""

    def answer(request):
        if request.last_tool_text or "/" not in request.agent_path:
            return [say(request.last_tool_text or "hello")]
        return [call(name, **arguments)]

    return answer


def settlements(agent) -> list[SubagentEnded]:
    return [record.data for record in agent.session.records("subagent/end")]


# ---------------------------------------------------------------- fresh


async def test_a_spawned_child_starts_fresh_with_a_session_of_its_own(checked_host):
    def model(request):
        return [say(" | ".join(request.user_texts))]

    async with (
        checked_host(FunctionModel(model), presets=[Preset("team")]) as checked,
        checked.host.open_agent(AgentSpec("lead", cwd="/work"), preset="team") as lead,
    ):
        await lead.ask("The number is 7.")
        result = await spawn(lead, "Which number?")
        child = checked.agent("lead/spawn-1")
        header = child.session.header
        assert result.text == "Which number?"
        assert (header.parent, header.depth, header.cwd, header.preset) == (lead.id, 1, "/work", "team")
        assert (child.preset, child.depth, child.cwd, child.parent) == ("team", 1, "/work", lead)
        assert (result.path, result.session_id) == ("lead/spawn-1", child.id)
        first = child.session.records()[0]
        assert (first.kind, first.data.message.text, first.data.message.source) == (
            "inbox/accepted",
            "Which number?",
            "agent",
        )


@pytest.mark.parametrize("start", [spawn, fork])
async def test_nobody_starts_a_child_without_an_agent(start):
    """Rule: a body may have no agent, which the types say; then it is told so."""
    context = ToolContext(None, registry=Registry(), call_id="c1", name="report", number=1)
    with pytest.raises(AgentError) as caught:
        await start(context.agent, "Which number?")
    assert str(caught.value) == (
        f"{start.__name__}() needs the agent that starts the subagent, and None is none; a tool that is called without an "
        "agent has nobody to start one for"
    )


async def test_a_child_is_told_whom_it_works_for_and_a_root_is_not(checked_host):
    async with checked_host(FunctionModel(lambda request: [say("hi")])) as checked:
        async with checked.host.open_agent(AgentSpec("lead")) as lead:
            await lead.ask("first")
            await spawn(lead, "A task.")
        assert [message.role for message in lead.session.derive_messages()] == ["system", "user", "assistant"]
        told = checked.agent("lead/spawn-1").session.derive_messages()[2]
        assert told.source == "runtime-context"
        assert told.text.endswith(
            "You are a subagent of 'lead'. Your last message is your report to it: nobody reads what you say before, "
            "and nobody answers questions."
        )


async def test_the_parents_log_has_one_start_and_one_settlement_in_a_turn_and_outside_of_one(checked_host):
    @tool
    async def delegate() -> str:
        """Spawn."""
        return (await spawn(lead, "In a turn.", name="inside")).text

    def model(request):
        if request.last_user_text == "delegate" and not request.last_tool_text:
            return [call("delegate")]
        return [say(f"I am {request.agent_path}")]

    async with checked_host(FunctionModel(model)) as checked:
        checked.host.registrar.add(delegate)
        async with checked.host.open_agent(AgentSpec("lead")) as lead:
            await spawn(lead, "Outside of turns.", name="outside")
            await lead.ask("delegate")
        records = [record for record in lead.session.records() if record.kind.startswith("subagent/")]
        inside, outside = checked.agent("lead/inside"), checked.agent("lead/outside")
        assert [(record.kind, record.turn) for record in records] == [
            ("subagent/start", 0),
            ("subagent/end", 0),
            ("subagent/start", 1),
            ("subagent/end", 1),
        ]
        assert [record.data for record in records] == [
            SubagentStarted("outside", session_id=outside.id, provider="spawn"),
            SubagentEnded(outside.id, outcome="done", text="I am lead/outside", usage=outside.usage),
            SubagentStarted("inside", session_id=inside.id, provider="spawn"),
            SubagentEnded(inside.id, outcome="done", text="I am lead/inside", usage=inside.usage),
        ]


# ---------------------------------------------------------------- one relation carries views, authority and hearing


async def test_a_child_sees_what_its_parent_sees_and_its_siblings_do_not(checked_host):
    """Rule: a child's key is bound under its parent's."""
    seen = {}

    def model(request):
        seen[request.agent_path] = (request.system, [schema.name for schema in request.tools])
        return [say("hi")]

    async with checked_host(FunctionModel(model), identity=False) as checked:
        host = checked.host
        host.registrar.add(read)
        rules = Section("rules", order=300, text="Lead's rules.")
        async with (
            host.open_agent(AgentSpec("lead", persona="You lead.", tools=[write], setup=[rules])) as lead,
            host.open_agent(AgentSpec("other")) as other,
        ):
            await spawn(lead, "A task.", name="child")
            await spawn(other, "A task.", name="child")
        assert seen["lead/child"] == ("You lead.\n\nLead's rules.", ["read", "write"])
        assert seen["other/child"] == ("", ["read"])


async def test_a_restriction_and_a_guard_of_the_parent_hold_for_its_children(checked_host):
    """Rule: a child's authority can only be narrower."""
    async with checked_host(FunctionModel(calling("write", path="x"))) as checked:
        checked.host.registrar.add(read)
        checked.host.registrar.add(write)
        hidden = AgentSpec("hidden", setup=[restrict(deny=["write"])])
        guarded = AgentSpec("guarded", setup=[Guard(lambda execution: "not here")])
        async with checked.host.open_agent(hidden) as lead:
            assert (await spawn(lead, "Write.")).text == "Error: there is no tool 'write'. Visible: read"
        async with checked.host.open_agent(guarded) as lead:
            assert (await spawn(lead, "Write.")).text == "Error: not here"
            # Further down, and under a filter that would let it through.
            assert (await spawn(lead, "Write.", allow=["write"])).text == "Error: not here"


async def test_a_parent_hears_its_children_and_siblings_hear_nothing(checked_host):
    async with checked_host(FunctionModel(lambda request: [say("hi")])) as checked:
        host = checked.host
        async with host.open_agent(AgentSpec("lead")) as lead, host.open_agent(AgentSpec("other")) as other:
            with (
                record_events(host.registrar.at(lead.scope), RecordAppended, DeltaStreamed) as heard,
                record_events(host.registrar.at(other.scope), RecordAppended, DeltaStreamed) as elsewhere,
                record_events(host.registrar, RecordAppended) as above,
            ):
                await spawn(lead, "A task.", name="child")
            child = checked.agent("lead/child")
            assert [event.record for event in heard if getattr(event, "record", None)] == [
                event.record for event in above
            ]
            assert [event.record for event in above if event.agent_path == "lead/child"] == list(
                child.session.records()
            )
            deltas = [event for event in heard if isinstance(event, DeltaStreamed)]
            assert [(event.agent_path, event.delta) for event in deltas] == [("lead/child", TextDelta("hi"))]
            assert elsewhere == []


async def test_a_persona_is_the_childs_alone(checked_host):
    async with (
        checked_host(FunctionModel(lambda request: [say(request.system)]), identity=False) as checked,
        checked.host.open_agent(AgentSpec("lead", persona="You lead.")) as lead,
    ):
        assert (await spawn(lead, "A task.", persona="You review.")).text == "You review."
        assert (await spawn(lead, "A task.")).text == "You lead."
        assert (await lead.ask("And you?")).text == "You lead."


# ---------------------------------------------------------------- filters


@pytest.mark.parametrize("options", [{"deny": ["write"]}, {"allow": ["read"]}])
async def test_a_filter_hides_a_tool_from_a_spawned_child_and_so_stops_it(checked_host, options):
    async with checked_host(FunctionModel(calling("write", path="x"))) as checked:
        checked.host.registrar.add(read)
        async with checked.host.open_agent(AgentSpec("lead", tools=[write])) as lead:
            result = await spawn(lead, "Write.", **options)
            assert result.text == "Error: there is no tool 'write'. Visible: read"
            (first, _) = checked.sent(checked.agents[-1])
            assert b'"write"' not in first.splitlines()[1]


@pytest.mark.parametrize("options", [{"deny": ["wriet"]}, {"allow": ["wriet"]}, {"allow": ()}, {"deny": "read"}])
async def test_a_filter_that_would_not_do_what_it_says_starts_nothing(checked_host, options):
    async with checked_host(FunctionModel(names)) as checked:
        checked.host.registrar.add(read)
        async with checked.host.open_agent(AgentSpec("lead")) as lead:
            with pytest.raises((RegistryError, TypeError)):
                await spawn(lead, "A task.", name="child", **options)
            assert ([agent.path for agent in checked.agents], len(lead.session)) == (["lead"], 0)
            assert (await spawn(lead, "A task.", name="child")).outcome == "done", "the name is free"


# ---------------------------------------------------------------- under a preset


def counted_setup(counts):
    def setup(registrar):
        counts.append(registrar.scope)

    return setup


async def test_a_child_under_a_preset_sees_that_preset_in_place_of_its_parents_scope(checked_host):
    reviewer = Preset("reviewer", persona="You review.", tools=[read])
    async with (
        checked_host(
            FunctionModel(lambda request: [say(request.system)]), presets=[reviewer], identity=False
        ) as checked,
        checked.host.open_agent(AgentSpec("lead", persona="You lead.", tools=[read, write])) as lead,
    ):
        result = await spawn(lead, "A task.", preset="reviewer")
        child = checked.agents[-1]
        assert result.text == "You review."
        assert b'"write"' not in checked.sent(child)[0].splitlines()[1]
        assert (child.preset, child.session.header.preset, child.grants) == ("reviewer", "reviewer", ())
        (started,) = lead.session.records("subagent/start")
        assert (started.data.preset, started.data.grants) == ("reviewer", ())


async def test_a_preset_that_shows_more_than_the_parent_sees_is_refused_before_anything_starts(checked_host):
    """Rule: a tool that is visible there and not to the parent must be in the preset's grants."""
    more = Preset("more", tools=[write, read])
    async with (
        checked_host(FunctionModel(names), presets=[more]) as checked,
        checked.host.open_agent(AgentSpec("lead")) as lead,
    ):
        with pytest.raises(AuthorityError) as caught:
            await spawn(lead, "A task.", name="child", preset="more")
        assert str(caught.value) == (
            "agent 'lead/child' could call 'read', 'write' under preset 'more', which 'lead' cannot; "
            "add them to grants= of preset 'more', or leave them out of it"
        )
        assert ([agent.path for agent in checked.agents], len(lead.session)) == (["lead"], 0)


async def test_grants_that_are_used_are_recorded(checked_host):
    """Rule: a grant that is not needed is none, and the start says which were."""
    more = Preset("more", tools=[write, read], grants=["write", "read", "unheard-of"])
    async with (
        checked_host(FunctionModel(names), presets=[more]) as checked,
        checked.host.open_agent(AgentSpec("lead", tools=[read])) as lead,
    ):
        assert (await spawn(lead, "A task.", preset="more")).text == "read write"
        (started,) = lead.session.records("subagent/start")
        assert (started.data.preset, started.data.grants) == ("more", ("write",))
        assert checked.agents[-1].grants == ("write",)


async def test_another_tool_of_the_same_name_counts_as_more(checked_host):
    other_read = Tool("read", description="Read anything.", parameters={"type": "object"}, run=lambda: "", inline=True)
    preset = Preset("more", tools=[other_read])
    async with (
        checked_host(FunctionModel(names), presets=[preset]) as checked,
        checked.host.open_agent(AgentSpec("lead", tools=[read])) as lead,
    ):
        with pytest.raises(AuthorityError, match="agent 'lead/spawn-1' could call 'read' under preset 'more'"):
            await spawn(lead, "A task.", preset="more")


async def test_a_grant_of_a_base_is_none_of_the_preset_that_extends_it(checked_host):
    presets = [Preset("base", tools=[write], grants=["write"]), Preset("team", extends="base")]
    async with (
        checked_host(FunctionModel(names), presets=presets) as checked,
        checked.host.open_agent(AgentSpec("lead")) as lead,
    ):
        assert (await spawn(lead, "A task.", preset="base")).text == "write"
        with pytest.raises(AuthorityError):
            await spawn(lead, "A task.", preset="team")


async def test_what_a_restriction_hides_from_the_parent_a_preset_cannot_bring_back(checked_host):
    """Rule: authority is what the parent sees, not what lies above it."""
    tools = Plugin("tools", setup=[read, write])
    author = Preset("author", setup=[restrict(deny=["read"])])
    async with (
        checked_host(FunctionModel(names), plugins=[tools], presets=[author]) as checked,
        checked.host.open_agent(AgentSpec("lead", setup=[restrict(deny=["write"])])) as lead,
    ):
        with pytest.raises(AuthorityError, match="could call 'write' under preset 'author'"):
            await spawn(lead, "A task.", preset="author")


async def test_a_child_under_another_preset_is_heard_there_and_watched_from_its_parent(checked_host):
    """Rule: listeners follow the preset; `watch`, usage and cancellation follow the tree of agents."""
    heard = []

    def setup(registrar):
        registrar.on(DeltaStreamed, lambda event: heard.append(event.agent_path))

    def model(request):
        return [say("hi")]

    async with (
        checked_host(FunctionModel(model), presets=[Preset("team", setup=[setup])]) as checked,
        checked.host.open_agent(AgentSpec("lead")) as lead,
    ):
        with (
            record_events(checked.host.registrar.at(lead.scope), DeltaStreamed) as at_parent,
            lead.watch(subtree=True) as watch,
        ):
            await spawn(lead, "A task.", name="child", preset="team")
        assert (heard, at_parent) == (["lead/child"], [])
        watched = [event.agent_path async for event in watch]
        assert watched.count("lead/child") == len(checked.agents[-1].session)
        assert lead.usage.requests == 1


async def test_an_unknown_preset_is_refused_with_those_there_are(checked_host):
    async with (
        checked_host(FunctionModel(names), presets=[Preset("team"), Preset("org")]) as checked,
        checked.host.open_agent(AgentSpec("lead")) as lead,
    ):
        with pytest.raises(NotRegisteredError) as caught:
            await spawn(lead, "A task.", preset="tema")
        assert str(caught.value) == "no preset 'tema'; presets: org, team; give it to open_host(presets=[...])"
        assert len(lead.session) == 0


# ---------------------------------------------------------------- limits


def delegating(request):
    """Delegate for ever."""
    return [say(request.last_tool_text) if request.last_tool_text else call("subagent", description="d", prompt="Go.")]


async def test_by_default_a_tree_is_three_levels_deep_and_the_model_is_told(checked_host):
    async with checked_host(FunctionModel(delegating), plugins=[delegation()]) as checked:
        async with checked.host.open_agent(AgentSpec("lead")) as lead:
            reply = await lead.ask("Go.")
        assert reply.text == (
            "Error: agent 'lead/subagent-1/subagent-1/subagent-1/subagent-1' would stand 4 levels below the root, and "
            "'the default' allows 3 (Budget(depth=...)); do the work yourself"
        )
        deepest = checked.agent("lead/subagent-1/subagent-1/subagent-1")
        (refused,) = deepest.session.records("tool/result")
        assert (refused.data.message.is_error, refused.data.code) == (True, "depth")
        assert deepest.session.records("subagent/start") == ()
        assert len(checked.agents) == 4


@pytest.mark.parametrize(
    ("budgets", "deepest", "owner"),
    [
        ({}, 3, "the default"),
        ({"host": 0}, 0, "the host"),
        ({"host": 5}, 5, "the host"),
        ({"spec": 5}, 5, "lead"),
        ({"preset": 4}, 4, "lead"),
        ({"host": 1, "spec": 5}, 1, "the host"),
        ({"host": 5, "preset": 2, "spec": 4}, 2, "lead"),
        ({"host": 5, "preset": 4, "spec": 0}, 0, "lead"),
    ],
)
async def test_a_budget_can_only_tighten_another_and_the_default_is_for_where_nobody_says_anything(
    checked_host, budgets, deepest, owner
):
    host, preset, spec = [Budget(depth=budgets[who]) if who in budgets else None for who in ("host", "preset", "spec")]
    async with checked_host(
        FunctionModel(delegating), plugins=[delegation()], presets=[Preset("team", budget=preset)], budget=host
    ) as checked:
        async with checked.host.open_agent(AgentSpec("lead", budget=spec), preset="team") as lead:
            reply = await lead.ask("Go.")
        assert max(agent.depth for agent in checked.agents) == deepest
        assert f"{owner!r} allows {deepest} (Budget(depth=...))" in reply.text


async def test_a_childs_budget_holds_for_what_is_below_it_and_cannot_be_raised_there(checked_host):
    async with (
        checked_host(FunctionModel(delegating), plugins=[delegation()]) as checked,
        checked.host.open_agent(AgentSpec("lead")) as lead,
    ):
        tight = await spawn(lead, "Go.", name="tight", budget=Budget(depth=1))
        assert "'lead/tight' allows 2 (Budget(depth=...))" in tight.text
        none = await spawn(lead, "Go.", name="none", budget=Budget(depth=0))
        assert "'lead/none' allows 1 (Budget(depth=...))" in none.text
        wide = await spawn(lead, "Go.", name="wide", budget=Budget(depth=9))
        assert "'the default' allows 3 (Budget(depth=...))" in wide.text
        forked = await fork(lead, "Go.", name="forked", budget=Budget(depth=0))
        assert "'lead/forked' allows 1 (Budget(depth=...))" in forked.text


async def test_a_child_that_would_stand_too_deep_is_refused_before_its_setup_is_run(checked_host):
    counts = []
    async with (
        checked_host(FunctionModel(names), budget=Budget(depth=0)) as checked,
        checked.host.open_agent(AgentSpec("lead")) as lead,
    ):
        with pytest.raises(LimitReachedError) as caught:
            async with lead.composer.compose(AgentSpec("child", setup=[counted_setup(counts)]), parent=lead):
                raise AssertionError
        assert (caught.value.code, counts, len(lead.session)) == ("depth", [], 0)


@pytest.mark.parametrize("limit", ["tokens", "cost", "tool_calls", "seconds", "breadth", "spawns"])
def test_a_limit_that_this_version_does_not_hold_is_refused(limit):
    with pytest.raises(UnsupportedCapabilityError) as caught:
        Budget(**{limit: 1})
    assert str(caught.value) == f"Budget({limit}=...) is not held by this version of creche; depth and requests are"


@attrs.frozen
class Verdict:
    ok: bool
    reasons: list[str]


async def test_a_child_can_be_held_to_a_class(checked_host):
    model = FunctionModel(lambda request: [say('{"ok": true, "reasons": ["short"]}')])
    async with checked_host(model) as checked, checked.host.open_agent(AgentSpec("lead")) as lead:
        result = await spawn(lead, "Judge it.", output=Verdict)
        assert result.output == Verdict(ok=True, reasons=["short"])
        assert (await spawn(lead, "Say something.")).output is None


async def test_a_child_whose_answer_does_not_fit_has_failed(checked_host):
    model = FunctionModel(lambda request: [say("yes")])
    async with checked_host(model) as checked, checked.host.open_agent(AgentSpec("lead")) as lead:
        result = await spawn(lead, "Judge it.", output=Verdict)
        assert (result.outcome, result.output, result.text) == ("failed", None, "yes")
        assert result.diagnostic.startswith("ModelError (malformed): the answer does not fit Verdict: ")


async def test_a_class_without_a_json_form_is_refused_before_anything_starts(checked_host):
    async with checked_host(FunctionModel(names)) as checked, checked.host.open_agent(AgentSpec("lead")) as lead:
        with pytest.raises(TypeError) as caught:
            await spawn(lead, "A task.", output=int)
        assert (
            str(caught.value)
            == "<class 'int'> is not a class with fields; give an attrs class, a dataclass or a TypedDict"
        )
        assert len(lead.session) == 0


# ---------------------------------------------------------------- names


async def test_a_program_counts_its_spawns_and_forks_apart(checked_host):
    async with checked_host(FunctionModel(names)) as checked, checked.host.open_agent(AgentSpec("lead")) as lead:
        for start in (spawn, fork, spawn, fork):
            await start(lead, "A task.")
        await spawn(lead, "A task.", name="given")
        await spawn(lead, "A task.")
        assert [agent.path for agent in checked.agents[1:]] == [
            "lead/spawn-1",
            "lead/fork-1",
            "lead/spawn-2",
            "lead/fork-2",
            "lead/given",
            "lead/spawn-3",
        ]


async def test_a_models_children_are_named_in_the_order_of_its_calls_whatever_order_they_start_in(checked_host):
    """Rule: paths repeat from run to run, and trio starts tasks in any order."""
    texts = [f"task {number}" for number in range(1, 21)]

    def model(request):
        if request.agent_path != "lead":
            return [say(f"{request.agent_path} did {request.last_user_text}")]
        if request.last_tool_text:
            return [say("done")]
        return [call("subagent", description="d", prompt=text) for text in texts]

    async with checked_host(FunctionModel(model), plugins=[delegation()]) as checked:
        async with checked.host.open_agent(AgentSpec("lead")) as lead:
            await lead.ask("Go.")
        assert [result.text for result in lead.session.tool_results()] == [
            f"lead/subagent-{number} did task {number}" for number in range(1, 21)
        ]


async def test_a_name_of_a_live_sibling_is_refused_and_free_again_afterwards(checked_host):
    begun, go_on = trio.Event(), trio.Event()

    async def model(request):
        begun.set()
        await go_on.wait()
        return [say("hi")]

    async with checked_host(FunctionModel(model)) as checked:
        host = checked.host
        async with host.open_agent(AgentSpec("lead")) as lead, host.open_agent(AgentSpec("other")) as other:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(spawn, lead, "A task.", name="child"))
                await begun.wait()
                with pytest.raises(DuplicateNameError) as caught:
                    await spawn(lead, "A task.", name="child")
                assert str(caught.value) == (
                    "an agent 'lead/child' is live already; give another name, or wait until that one has ended"
                )
                nursery.start_soon(partial(spawn, other, "A task.", name="child"))
                go_on.set()
            assert (await spawn(lead, "A task.", name="child")).path == "lead/child"
            assert len(settlements(lead)) == 2


@pytest.mark.parametrize("name", ["a/b", "", "*", " a"])
async def test_what_cannot_be_a_name_is_refused(checked_host, name):
    async with checked_host(FunctionModel(names)) as checked, checked.host.open_agent(AgentSpec("lead")) as lead:
        for start in (spawn, fork):
            with pytest.raises(ConfigError, match="cannot be a name"):
                await start(lead, "A task.", name=name)
        assert len(lead.session) == 0


# ---------------------------------------------------------------- what it asks


def asked(request):
    settings = request.settings
    return [say(f"{settings.provider}:{settings.model} {settings.options.effort} {settings.options.max_tokens}")]


async def test_a_child_asks_what_its_parent_asks_now_with_its_options(checked_host):
    """Rule: the route and the options that count are those of the parent's last request, not those it was made with."""
    route = []

    async def reroute(event, next_):
        settings = await next_()
        if not route or event.agent.path != "lead":
            return settings
        return attrs.evolve(settings, provider=route[0], model="m2", options=ModelOptions("high", max_tokens=50))

    other = FunctionModel(asked, provider="other", model="o")
    async with checked_host(FunctionModel(asked), presets=[Preset("team")]) as checked:
        host = checked.host
        host.registrar.add(ModelProvider("alias", model=other))
        host.registrar.wrap(BuildRequest, reroute)
        async with host.open_agent(AgentSpec("lead", options=ModelOptions("low"))) as lead:
            assert (await spawn(lead, "A task.")).text == "function:function low None"
            route.append("function")
            assert (await lead.ask("first")).text == "function:m2 high 50"
            assert (await spawn(lead, "A task.")).text == "function:m2 high 50"
            assert (await fork(lead, "A task.")).text == "function:m2 high 50"
            assert (await spawn(lead, "A task.", preset="team")).text == "function:m2 high 50"
    async with open_host(model=FunctionModel(asked), presets=[Preset("team")]) as host:
        alias = host.registrar.add(ModelProvider("alias", model=other))
        host.registrar.wrap(BuildRequest, reroute)
        async with host.open_agent(AgentSpec("lead", options=ModelOptions("low"))) as lead:
            route[0] = "alias"
            assert (await lead.ask("first")).text == "alias:m2 high 50"
            assert (await spawn(lead, "A task.")).text == "alias:m2 high 50"
            # The preset need not know the provider by that name.
            assert (await spawn(lead, "A task.", preset="team")).text == "other:m2 high 50"
            alias.undo()
            assert (await spawn(lead, "A task.")).text == "function:function low None"


async def test_what_an_adapter_fills_in_by_default_is_not_passed_on(checked_host):
    class WithDefault:
        provider, model, limiter = "own", "m", None

        def __init__(self):
            self.stream = FunctionModel(asked).stream

        async def prepare(self, settings):
            options = attrs.evolve(settings.options, effort="the adapter's", stop=("x",))
            return PreparedCall(attrs.evolve(settings, options=options), defaults=("effort", "stop"))

    async with checked_host(WithDefault()) as checked:
        other = FunctionModel(asked, provider="other", model="o")
        async with checked.host.open_agent(AgentSpec("lead", options=ModelOptions(max_tokens=9))) as lead:
            assert (await lead.ask("first")).text == "own:m the adapter's 9"
            assert (await spawn(lead, "A task.")).text == "own:m the adapter's 9"
    async with open_host(model=WithDefault()) as host, host.open_agent(AgentSpec("lead")) as lead:
        await lead.ask("first")
        assert (await spawn(lead, "A task.", model=other)).text == "other:o None None"


async def test_a_model_of_its_own_or_of_its_preset_comes_before_the_parents(checked_host):
    fast = FunctionModel(asked, provider="fast", model="f")
    team = Preset("team", model=FunctionModel(asked, provider="teams", model="t"))
    async with open_host(model=FunctionModel(asked), presets=[team, Preset("sub", extends="team")]) as host:
        host.registrar.add(ModelProvider("fast", model=fast))
        async with host.open_agent(AgentSpec("lead", options=ModelOptions("low"))) as lead:
            await lead.ask("first")
            assert (await spawn(lead, "A task.", model="fast:x")).text == "fast:x low None"
            assert (await spawn(lead, "A task.", preset="sub")).text == "teams:t low None"
            assert (await spawn(lead, "A task.", preset="team", model=fast)).text == "fast:f low None"
            spec = AgentSpec("child", options=ModelOptions(max_tokens=7))
            async with lead.composer.compose(spec, parent=lead) as child:
                delivery = child.send("A task.")
                await child.run_until_read()
                assert delivery.reply_nowait().text == "function:function None 7"
            before = len(lead.session)
            for model, error in (("slow:x", NotRegisteredError), ("fast", ConfigError)):
                with pytest.raises(error):
                    await spawn(lead, "A task.", model=model)
            assert (len(lead.session), len(host.agents)) == (before, 1)


# ---------------------------------------------------------------- how it comes out


async def failing(request):
    return [say("The beginning"), fail("the disk of the provider is full", code="invalid-request")]


class Truncating:
    """A model whose stream ends for a given reason."""

    provider, model, limiter = "own", "m", None

    def __init__(self, reason, text):
        self._reason, self._text = reason, text

    async def prepare(self, settings):
        return PreparedCall(settings)

    def stream(self, request):
        return self._Answer(self._reason, self._text)

    class _Answer:
        def __init__(self, reason, text):
            self._chunks = [*([TextDelta(text)] if text else []), Finished(reason)]

        async def __aenter__(self):
            await trio.lowlevel.checkpoint()
            return self

        async def __aexit__(self, *error):
            pass

        def __aiter__(self):
            return self

        async def __anext__(self):
            if not self._chunks:
                raise StopAsyncIteration
            return self._chunks.pop(0)


def bug(request):
    raise ZeroDivisionError("division by zero")


NO_RETRY = RetryPolicy(0)


@pytest.mark.parametrize(
    ("model", "outcome", "text", "diagnostic"),
    [
        (FunctionModel(lambda request: [say("All is well.")]), "done", "All is well.", ""),
        (
            FunctionModel(failing),
            "failed",
            "The beginning",
            "ModelError (invalid-request): the disk of the provider is full",
        ),
        (
            FunctionModel(lambda request: [], retry=NO_RETRY),
            "failed",
            "",
            "ModelError (empty-response): the model answered nothing",
        ),
        (
            FunctionModel(bug),
            "failed",
            "",
            "InternalError: turn 1 of agent 'lead/child' hit a bug: ZeroDivisionError('division by zero')",
        ),
        (Truncating("max-tokens", "Half an"), "truncated", "Half an", "the answer reached the limit of tokens"),
        (Truncating("max-tokens", ""), "truncated", "", "the answer reached the limit of tokens"),
        (Truncating("refusal", "I would rather"), "refused", "I would rather", "the model refused to answer"),
    ],
)
async def test_however_a_child_comes_out_the_result_and_the_settlement_say_so(model, outcome, text, diagnostic):
    """Rule: bad news is a value; what the child had said until then survives."""
    async with open_host(model=model) as host, host.open_agent(AgentSpec("lead")) as lead:
        result = await spawn(lead, "A task.", name="child")
        assert (result.outcome, result.text, result.diagnostic) == (outcome, text, diagnostic)
        assert result.usage.requests == 1
        (ended,) = settlements(lead)
        assert ended == SubagentEnded(
            result.session_id, outcome=outcome, text=text, diagnostic=diagnostic, usage=result.usage
        )


async def test_a_refused_step_and_a_limit_end_a_child_with_the_reason(checked_host):
    async def reject(event, next_):
        return Reject("not on Sundays")

    async def limit(event, next_):
        raise LimitReachedError("the month is used up", code="cost")

    async with checked_host(FunctionModel(names)) as checked:
        for wrapper, expected in (
            (reject, ("refused", "TurnRefused: turn 1 of agent 'lead/child' was refused: not on Sundays")),
            (limit, ("limit", "LimitReachedError (cost): the month is used up")),
        ):
            async with checked.host.open_agent(AgentSpec("lead")) as lead:
                checked.host.registrar.at(lead.scope).wrap(PreStep, wrapper)
                result = await spawn(lead, "A task.", name="child")
                assert (result.outcome, result.diagnostic) == expected


async def test_a_child_that_somebody_cancels_is_cancelled_and_its_caller_goes_on(checked_host):
    """Rule: what it had said until then can still be read."""

    async def model(request):
        if request.last_tool_text:
            return [say("never")]
        return [say("I will wait."), call("wait")]

    @tool
    async def wait(seconds: int = 1) -> str:
        """Wait."""
        checked.agents[-1].cancel("the user pressed stop")
        await trio.sleep_forever()

    async with checked_host(FunctionModel(model)) as checked:
        checked.host.registrar.add(wait)
        async with checked.host.open_agent(AgentSpec("lead")) as lead:
            result = await spawn(lead, "A task.", name="child")
            assert (result.outcome, result.text, result.diagnostic) == (
                "cancelled",
                "I will wait.",
                "TurnCancelled: turn 1 of agent 'lead/child' was cancelled (the user pressed stop)",
            )
            assert settlements(lead)[0].text == "I will wait."


async def test_what_was_streamed_before_a_cut_survives_if_there_is_no_message(checked_host):
    """Rule: a message of the child comes before a stream that was cut, and of those the latest counts."""
    attempts = []

    def model(request):
        if "first say" in request.last_user_text and not request.last_tool_text:
            return [say("I will read."), call("read", path="x")]
        attempts.append(None)
        return [say(f"Attempt {len(attempts)}"), fail("cut", code="stream-cut")]

    async with checked_host(FunctionModel(model, retry=RetryPolicy(1, first_delay=0))) as checked:
        checked.host.registrar.add(read)
        async with checked.host.open_agent(AgentSpec("lead")) as lead:
            assert (await spawn(lead, "A task.")).text == "Attempt 2"
            assert (await spawn(lead, "A task, but first say something.")).text == "I will read."


@pytest.mark.parametrize(("letter", "length"), [("x", 4096), ("ä", 4095), ("€", 4094), ("😀", 4093)])
async def test_a_diagnostic_is_cut_at_a_character_within_4096_bytes(letter, length):
    prefix = "ModelError (invalid-request): "
    bytes_of_one = len(letter.encode())
    # So that the last character that is begun lacks one byte.
    message = "x" * ((4096 - len(prefix) - (bytes_of_one - 1)) % bytes_of_one) + letter * 5000

    async def model(request):
        raise model_error("invalid-request", message, provider="p")

    async with open_host(model=FunctionModel(model)) as host, host.open_agent(AgentSpec("lead")) as lead:
        result = await spawn(lead, "A task.")
        assert len(result.diagnostic.encode()) == length
        assert f"{prefix}{message}".startswith(result.diagnostic)
        assert settlements(lead)[0].diagnostic == result.diagnostic


async def test_a_diagnostic_with_half_a_character_does_not_keep_a_child_from_being_settled(checked_host):
    async def model(request):
        raise model_error("invalid-request", "bad \ud800 text", provider="p")

    async with open_host(model=FunctionModel(model)) as host, host.open_agent(AgentSpec("lead")) as lead:
        assert (await spawn(lead, "A task.")).diagnostic == "ModelError (invalid-request): bad \ufffd text"


async def test_the_last_turn_of_a_child_counts(checked_host):
    """Rule: a child to which more is sent while it works goes on, and reports how that came out."""
    no, never = fail("no", code="invalid-request"), fail("never", code="invalid-request")
    answers = iter([[say("one")], [say("two")], [say("one")], [no], [no], [never], [no], [say("two")]])

    async def model(request):
        if request.last_user_text == "A task.":
            checked.agents[-1].send("And another.")
        return next(answers)

    async with checked_host(FunctionModel(model)) as checked, checked.host.open_agent(AgentSpec("lead")) as lead:
        result = await spawn(lead, "A task.")
        assert (result.outcome, result.text, result.usage.requests) == ("done", "two", 2)
        result = await spawn(lead, "A task.")
        assert (result.outcome, result.text, result.diagnostic) == ("failed", "one", "no")
        result = await spawn(lead, "A task.")
        assert (result.outcome, result.text, result.diagnostic) == ("failed", "", "never")
        result = await spawn(lead, "A task.")
        assert (result.outcome, result.text, result.diagnostic) == ("done", "two", "")


async def test_a_listener_that_fails_at_a_settlement_is_reported_and_hurts_nobody(checked_host):
    """upstream #8849: a failing projection at child settlement killed the process."""

    def fails(event):
        if event.record.kind in ("turn/end", "subagent/end"):
            raise ZeroDivisionError

    async with (
        checked_host(FunctionModel(lambda request: [say("hi")])) as checked,
        checked.host.open_agent(AgentSpec("lead")) as lead,
    ):
        with record_events(checked.host.registrar, Fault) as faults:
            listening = checked.host.registrar.at(lead.scope).on(RecordAppended, fails)
            assert (await spawn(lead, "A task.")).outcome == "done"
            listening.undo()
        assert len(faults) == 2
        assert (await lead.ask("Still there?")).text == "hi"


async def test_a_parent_that_has_ended_cannot_spawn(checked_host):
    async with checked_host(FunctionModel(names)) as checked:
        async with checked.host.open_agent(AgentSpec("lead")) as lead:
            pass
        for start, name in ((spawn, "spawn-1"), (fork, "fork-1")):
            with pytest.raises(AgentClosedError) as caught:
                await start(lead, "A task.")
            assert str(caught.value) == (
                f"agent 'lead/{name}' cannot be started: the agent above it does not run any more"
            )
        assert len(lead.session) == 0

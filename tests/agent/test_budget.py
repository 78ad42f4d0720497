"""Budgets: what this version holds it holds exactly, and what it does not hold it refuses."""

import attrs
import pytest
import trio

from creche import AgentSpec, Budget, FunctionModel, Preset, call, open_host, say, tool
from creche.agent import DEFAULT_DEPTH, DepthLimit, expand_setup
from creche.errors import ConfigError, LimitReachedError, UnsupportedCapabilityError
from creche.models import fail
from creche.prompt import PERSONA_ORDER, PERSONA_SECTION, Section
from creche.subagents import delegation, spawn


@pytest.mark.parametrize("limit", ["tokens", "cost", "tool_calls", "seconds", "breadth", "spawns"])
def test_a_limit_that_is_not_held_is_refused(limit):
    with pytest.raises(UnsupportedCapabilityError) as caught:
        Budget(**{limit: 1})
    assert str(caught.value) == f"Budget({limit}=...) is not held by this version of creche; depth and requests are"


def test_all_limits_that_are_not_held_are_named_at_once():
    with pytest.raises(UnsupportedCapabilityError, match=r"^Budget\(tokens=..., cost=...\) is not held"):
        Budget(cost=1.0, tokens=0, depth=1)


@pytest.mark.parametrize("depth", [-1, True, 1.5, "1"])
def test_a_depth_is_a_number_of_levels(depth):
    with pytest.raises(ValueError, match=rf"^Budget\(depth={depth!r}\): a depth is a whole number, 0 or more$"):
        Budget(depth=depth)


def test_a_limit_only_tightens():
    limit = DepthLimit(3, owner="the default")
    assert limit.tightened(None, 0, "lead") is limit
    assert limit.tightened(Budget(), 0, "lead") is limit
    assert limit.tightened(Budget(depth=3), 0, "lead") is limit
    assert limit.tightened(Budget(depth=7), 0, "lead") is limit
    assert limit.tightened(Budget(depth=1), 0, "lead") == DepthLimit(1, owner="lead")
    assert limit.tightened(Budget(depth=1), 1, "lead/a") == DepthLimit(2, owner="lead/a")


def test_a_refusal_names_the_limit_its_value_and_who_set_it():
    limit = DepthLimit(1, owner="lead")
    limit.check(1, "lead/a")
    with pytest.raises(LimitReachedError) as caught:
        limit.check(2, "lead/a/b")
    assert str(caught.value) == (
        "agent 'lead/a/b' would stand 2 levels below the root, and 'lead' allows 1 (Budget(depth=...)); "
        "do the work yourself"
    )
    assert caught.value.code == "depth"


@tool
async def look() -> str:
    """Look around."""
    return "a tree"


def hello(request):
    return [say("hi")]


def delegate(request):
    return [say(request.last_tool_text)] if request.last_tool_text else [call("subagent", description="d", prompt="go")]


@pytest.mark.parametrize(
    ("host", "spec", "deepest"),
    [(None, None, DEFAULT_DEPTH), (None, 1, 1), (2, None, 2), (2, 1, 1), (1, 7, 1), (5, None, 5), (None, 0, 0)],
)
async def test_agents_stand_as_deep_as_the_tightest_budget_above_them_allows(lead, host, spec, deepest):
    host_budget, budget = (None if depth is None else Budget(depth=depth) for depth in (host, spec))
    async with (
        lead(delegate, plugins=[delegation()], budget=host_budget) as opened,
        opened.host.open_agent(AgentSpec("deep", budget=budget)) as agent,
    ):
        text = (await agent.ask("go")).text
        assert [each.path for each in opened.agents[1:]] == [
            "/".join(["deep", *["subagent-1"] * depth]) for depth in range(deepest + 1)
        ]
        assert f"would stand {deepest + 1} levels below the root" in text


async def test_a_child_refused_for_its_depth_leaves_no_trace(lead):
    async with lead(hello, budget=Budget(depth=0)) as opened:
        with pytest.raises(LimitReachedError) as caught:
            await spawn(opened.agent, "go")
        assert caught.value.code == "depth"
        assert len(opened.agent.session) == 0
        assert opened.agent.children == ()


# ---------------------------------------------------------------- what an agent is made from


@pytest.mark.parametrize("name", ["", "a/b", "*", "a*", " a", "a\n"])
def test_a_name_is_a_segment_of_a_path(name):
    with pytest.raises(ConfigError) as caught:
        AgentSpec(name)
    sentence = f"{name!r} cannot be a name: it is a segment of paths, so no '/', no '*', no blank ends"
    assert caught.value.problems == (("name", sentence),)


@pytest.mark.parametrize("cwd", [".", "", "work/here"])
def test_a_working_directory_is_an_absolute_path(cwd):
    with pytest.raises(ConfigError) as caught:
        AgentSpec("lead", cwd=cwd)
    sentence = f"{cwd!r} is no absolute path, and would be another folder after os.chdir; give os.path.abspath({cwd!r})"
    assert caught.value.problems == (("cwd", sentence),)


def test_a_spec_takes_any_iterable_and_keeps_tuples():
    @tool
    async def look() -> str:
        """Look."""
        return "a tree"

    spec = AgentSpec("lead", tools=[look], setup=(each for each in [look]))
    assert (spec.tools, spec.setup) == ((look,), (look,))


def test_the_shorthands_of_a_spec_are_items_around_its_own():
    """Rule: before them, but for the presentation, which may need what the setup brings."""

    @tool
    async def look() -> str:
        """Look."""
        return "a tree"

    section = Section("own", order=300, text="")
    persona, *items = expand_setup(persona="You look.", tools=[look], mode="native", setup=[section])
    assert (persona.name, persona.text, persona.order) == (PERSONA_SECTION, "You look.", PERSONA_ORDER)
    assert (items[0], items[1], items[2].mode) == (look, section, "native")
    assert expand_setup(persona=None, tools=(), mode=None, setup=[section]) == (section,)


def test_the_field_types_of_a_spec_exist_at_run_time():
    """Rule: cattrs and others resolve them."""
    for cls in (AgentSpec, Preset):
        attrs.resolve_types(cls)


# ---------------------------------------------------------------- requests


@pytest.mark.parametrize("requests", [0, -1, True, 1.5, "1"])
def test_a_limit_of_requests_is_a_number_of_them(requests):
    sentence = rf"^Budget\(requests={requests!r}\): a limit of requests is a whole number, 1 or more$"
    with pytest.raises(ValueError, match=sentence):
        Budget(requests=requests)


async def test_an_agent_makes_as_many_requests_as_its_budget_has(lead, ends):
    async with lead(lambda request: [call("look")], tools=[look], budget=Budget(requests=3)) as opened:
        with pytest.raises(LimitReachedError) as caught:
            await opened.agent.ask("Look for ever.")
        assert caught.value.code == "requests"
        assert str(caught.value) == (
            "agent 'lead' may make no further request: 'lead' and everything below it may make 3 "
            "(Budget(requests=...)), and have"
        )
        assert len(opened.sent()) == 3
        assert [reason for reason, _ in ends(opened.agent.session)] == ["limit"]
        with pytest.raises(LimitReachedError):
            await opened.agent.ask("Again.")


async def test_every_attempt_is_a_request(lead, autojump_clock):
    async with lead(lambda request: fail("busy", code="overloaded"), budget=Budget(requests=2)) as opened:
        with pytest.raises(LimitReachedError):
            await opened.agent.ask("hi")
        assert opened.agent.usage.requests == 2


async def test_all_below_take_out_of_one_budget_and_stay_within_it(lead):
    async def children():
        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(one, number)

    async def one(number):
        results.append((await spawn(opened.agent, "Go.", budget=Budget(requests=2), name=f"c{number}")).outcome)

    results = []
    async with lead(lambda request: [say("hi")], budget=Budget(requests=4)) as opened:
        await children()
        assert sorted(results) == ["done"] * 4 + ["limit"] * 2
        assert opened.agent.usage.requests == 4


async def test_a_budget_of_a_child_can_be_tighter(lead):
    async with lead(lambda request: [call("look")], tools=[look], budget=Budget(requests=9)) as opened:
        result = await spawn(opened.agent, "Look for ever.", budget=Budget(requests=2), name="child")
        assert (result.outcome, result.usage.requests) == ("limit", 2)
        assert result.diagnostic.startswith("LimitReachedError (requests): agent 'lead/child' may make no further")


async def test_the_budget_of_the_host_is_that_of_each_of_its_root_agents():
    model = FunctionModel(lambda request: [say("hi")])
    async with open_host(model=model, budget=Budget(requests=1)) as host:
        for name in ("a", "b"):
            async with host.open_agent(AgentSpec(name)) as agent:
                await agent.ask("hi")
                with pytest.raises(LimitReachedError):
                    await agent.ask("hi")

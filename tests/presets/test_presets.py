"""Presets: compositions that nest, are mounted once, and are refused all problems at once."""

import re
from contextlib import asynccontextmanager

import attrs
import pytest
import trio

from creche import AgentSpec, Plugin, Preset, RuntimeContext, Section, open_host, say, tool
from creche.errors import ConfigError, NotRegisteredError, PluginError, RegistryError
from creche.models import FunctionModel, ModelProvider
from creche.presets import mount_presets
from creche.prompt import PERSONA_ORDER, PERSONA_SECTION, AssembleContext, assemble, render_prompt
from creche.scope import Owner, Registry, make_registrar, open_mounts, scope_chain_of
from creche.session import RecordAppended
from creche.testing import assert_no_leaks, check_log
from creche.tools import Guard, Tool, restrict, visible


@tool(inline=True)
def read(path: str) -> str:
    """Read a file."""
    return path


@tool(inline=True)
def write(path: str) -> str:
    """Write a file."""
    return path


def look(request):
    """Say the prompt and the tools."""
    shown = " | ".join([request.system.replace("\n\n", " / "), *(schema.name for schema in request.tools)])
    return [say(shown or "(nothing)")]


async def seen_under(presets, preset, **options):
    """Return what an agent under a preset sees."""
    async with (
        open_host(model=FunctionModel(look), presets=presets, identity=False, **options) as host,
        host.open_agent(AgentSpec("agent"), preset=preset) as agent,
    ):
        text = (await agent.ask("Go.")).text
        check_log(agent.session)
        return text


# ---------------------------------------------------------------- what holds under one


async def test_agents_under_a_preset_see_it_and_others_do_not():
    team = Preset(
        "team", persona="You are in the team.", tools=[read], setup=[Section("rules", order=200, text="Be kind.")]
    )
    async with open_host(model=FunctionModel(look), presets=[team, Preset("other")], identity=False) as host:
        with assert_no_leaks(host):
            async with (
                host.open_agent(AgentSpec("inside"), preset="team") as inside,
                host.open_agent(AgentSpec("other"), preset="other") as other,
                host.open_agent(AgentSpec("bare")) as bare,
            ):
                assert (await inside.ask("Go.")).text == "You are in the team. / Be kind. | read"
                assert (await other.ask("Go.")).text == "(nothing)"
                assert (await bare.ask("Go.")).text == "(nothing)"
                assert (inside.preset, other.preset, bare.preset) == ("team", "other", None)
                assert inside.session.header.preset == "team"


async def test_a_preset_builds_on_the_one_that_it_extends():
    """Rule: what the organisation says reaches every agent of every team; the nearest wins a name."""
    presets = [
        Preset("reviewer", extends="team", persona="You review."),
        Preset("org", persona="You are one of us.", setup=[Section("org", order=200, text="Org."), read]),
        Preset("team", extends="org", tools=[write], setup=[Section("team", order=201, text="Team.")]),
    ]
    assert await seen_under(presets, "reviewer") == "You review. / Org. / Team. | read | write"
    assert await seen_under(presets, "team") == "You are one of us. / Org. / Team. | read | write"
    assert await seen_under(presets, "org") == "You are one of us. / Org. | read"


async def test_a_restriction_holds_downwards_and_a_guard_too():
    refused = []

    def guard(execution):
        refused.append(execution.tool.name)

    presets = [
        Preset("org", tools=[read, write], setup=[Guard(guard)]),
        Preset("readers", extends="org", setup=[restrict(deny=["write"])]),
        Preset("authors", extends="readers"),
    ]
    assert await seen_under(presets, "authors") == " | read"
    async with open_host(presets=presets, model=FunctionModel(look)) as host:
        for wrong in ({"allow": ["wriet"]}, {"deny": ["wriet"]}):
            with pytest.raises(RegistryError, match="'wriet'"):
                async with host.open_agent(AgentSpec("a", setup=[restrict(**wrong)]), preset="authors"):
                    raise AssertionError


async def test_shorthands_come_before_the_other_items_of_a_setup():
    """Rule: `persona=` and `tools=` are shorthands for one item each, applied before the others; `present_as=` after."""
    order = []

    def note(registrar):
        order.append(sorted(registrar.registry.peek(Tool, registrar.scope)))
        order.append(sorted(registrar.registry.peek(Section, registrar.scope)))

    preset = Preset("team", persona="You.", tools=[read], present_as="native", setup=[note, write])
    async with open_host(presets=[preset]):
        assert order == [["read"], [PERSONA_SECTION]]


async def test_a_preset_is_mounted_once_for_all_its_agents_and_stands_until_the_host_ends():
    events = []

    @asynccontextmanager
    async def service(registrar):
        events.append("up")
        try:
            yield
        finally:
            events.append("down")

    async with open_host(model=FunctionModel(look), presets=[Preset("team", setup=[service])]) as host:
        for _ in range(2):
            async with host.open_agent(AgentSpec("a"), preset="team"), host.open_agent(AgentSpec("b"), preset="team"):
                assert events == ["up"]
        assert events == ["up"]
    assert events == ["up", "down"]


async def test_agents_of_one_preset_share_it_and_nothing_of_each_other():
    heard = []

    def listen(registrar):
        registrar.on(RecordAppended, lambda event: heard.append(event.agent_path))

    presets = [Preset("team", setup=[listen]), Preset("elsewhere")]
    async with (
        open_host(model=FunctionModel(look), presets=presets) as host,
        host.open_agent(AgentSpec("a", tools=[read]), preset="team") as a,
        host.open_agent(AgentSpec("b"), preset="team") as b,
        host.open_agent(AgentSpec("c"), preset="elsewhere") as c,
    ):
        assert scope_chain_of(a.scope)[1:] == scope_chain_of(b.scope)[1:]
        assert (sorted(visible(host.registry, a.scope)), sorted(visible(host.registry, b.scope))) == (["read"], [])
        await a.ask("Go.")
        await b.ask("Go.")
        await c.ask("Go.")
    assert set(heard) == {"a", "b"}


async def test_the_model_of_a_preset_is_its_own_or_its_nearest_bases():
    def asked(request):
        return [say(f"{request.settings.provider}:{request.settings.model}")]

    presets = [
        Preset("org", model="named:large"),
        Preset("team", extends="org"),
        Preset("fast", extends="team", model=FunctionModel(asked, provider="fast", model="f")),
        Preset("none"),
        Preset("own", model="named:x", setup=[ModelProvider("named", model=FunctionModel(asked, provider="nearer"))]),
    ]
    named = Plugin("models", setup=[ModelProvider("named", model=FunctionModel(asked, provider="named"))])
    async with open_host(model=FunctionModel(asked), plugins=[named], presets=presets) as host:
        answers = {}
        for preset in ("org", "team", "fast", "none", "own"):
            async with host.open_agent(AgentSpec("a"), preset=preset) as agent:
                answers[preset] = (await agent.ask("Go.")).text
        async with host.open_agent(AgentSpec("a", model="named:mine"), preset="fast") as agent:
            answers["mine"] = (await agent.ask("Go.")).text
    assert answers == {
        "org": "named:large",
        "team": "named:large",
        "fast": "fast:f",
        "none": "function:function",
        "own": "nearer:x",
        "mine": "named:mine",
    }


# ---------------------------------------------------------------- what is refused


async def refused(presets) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        async with open_host(presets=presets):
            raise AssertionError
    return caught.value


async def test_all_that_is_wrong_with_presets_is_said_at_once():
    mounted = []
    presets = [
        Preset("fine", setup=[lambda registrar: mounted.append(registrar.scope)]),
        Preset("twice"),
        Preset("twice"),
        Preset("orphan", extends="nobody"),
        Preset("selfish", extends="selfish"),
        Preset("a", extends="b"),
        Preset("b", extends="c"),
        Preset("c", extends="b"),
    ]
    error = await refused(presets)
    known = "a, b, c, fine, orphan, selfish, twice"
    assert error.problems == (
        ("presets.twice", "there are 2 of this name; rename all but one"),
        ("presets.orphan.extends", f"there is no preset 'nobody'; there are: {known}"),
        ("presets.selfish.extends", "'selfish' leads back to itself"),
        ("presets.a.extends", "'b' leads back to itself"),
        ("presets.b.extends", "'c' leads back to itself"),
        ("presets.c.extends", "'b' leads back to itself"),
    )
    assert str(error).startswith(
        "presets.twice: there are 2 of this name; rename all but one; presets.orphan.extends: "
    )
    assert mounted == [], "nothing is mounted before all of it fits"


async def test_a_preset_is_named_and_not_given():
    """Rule: the sentence says what to write, and does not hide it behind all that the preset is."""
    team = Preset("team", persona="You bake." * 100)
    with pytest.raises(TypeError) as caught:
        Preset("night", extends=team)
    assert str(caught.value) == "Preset.extends is a text or None, not Preset 'team'"
    async with open_host(model=FunctionModel(lambda request: [say("ok")]), presets=[team]) as host:
        with pytest.raises(TypeError) as caught:
            async with host.open_agent(AgentSpec("lead"), preset=team):
                raise AssertionError
        assert str(caught.value) == "preset= takes str, and Preset 'team' is none; give the name of a preset"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"name": 5}, "Preset.name is a text, not 5"),
        ({"extends": 5}, "Preset.extends is a text or None, not 5"),
        ({"model": 5}, "preset 'a': an adapter or 'provider:model', not 5"),
        ({"budget": 5}, "Preset.budget is Budget or None, not 5"),
    ],
)
def test_a_preset_is_made_of_what_it_says(options, sentence):
    with pytest.raises((TypeError, ConfigError), match=f"^{re.escape(sentence)}$"):
        Preset(**{"name": "a", **options})


def test_grants_are_a_list_of_names():
    with pytest.raises(TypeError) as caught:
        Preset("team", grants="read")
    assert str(caught.value) == "grants= takes a list, not 'read'; write grants=[...]"
    assert Preset("team", grants=["read", "read"]).grants == frozenset({"read"})


async def test_an_unknown_preset_is_refused_with_those_there_are():
    async with open_host(model=FunctionModel(look), presets=[Preset("b"), Preset("a")]) as host:
        for starting in (host.start_agent, open_and_close(host)):
            with pytest.raises(NotRegisteredError) as caught:
                await starting(AgentSpec("agent"), preset="c")
            assert str(caught.value) == "no preset 'c'; presets: a, b; give it to open_host(presets=[...])"
        assert host.agents == {}
    async with open_host(model=FunctionModel(look)) as host:
        with pytest.raises(LookupError, match=r"no preset 'c'; presets: \(none\);"):
            await host.start_agent(AgentSpec("agent"), preset="c")


def open_and_close(host):
    async def run(spec, preset):
        async with host.open_agent(spec, preset=preset):
            raise AssertionError

    return run


async def test_a_setup_that_fails_leaves_nothing_mounted_and_names_the_preset():
    """Rule: neither of the preset that failed, nor of those that were mounted before it."""
    events = []

    @asynccontextmanager
    async def service(registrar):
        events.append("up")
        try:
            yield
        finally:
            events.append("down")

    def fails(registrar):
        raise ZeroDivisionError("division by zero")

    presets = [
        Preset("org", setup=[service, read]),
        Preset("team", extends="org", setup=[write, service, fails]),
    ]
    registry = Registry()
    async with open_mounts(registry) as mounts:
        with pytest.raises(PluginError) as caught:
            await mount_presets(presets, mounts)
        assert str(caught.value) == "setup of plugin 'preset team' failed: ZeroDivisionError('division by zero')"
        assert (events, registry.scopes()) == (["up", "up", "down", "down"], ())
    events.clear()
    with pytest.raises(PluginError):
        async with open_host(presets=presets):
            raise AssertionError
    assert events == ["up", "up", "down", "down"]


async def test_a_mount_of_presets_that_is_cancelled_leaves_nothing(autojump_clock):
    async def waits(registrar):
        await trio.sleep_forever()

    registry = Registry()
    async with open_mounts(registry) as mounts:
        with trio.move_on_after(1) as scope:
            await mount_presets([Preset("a", tools=[read]), Preset("b", tools=[write], setup=[waits])], mounts)
        assert scope.cancelled_caught
        assert registry.scopes() == ()


# ---------------------------------------------------------------- standing scopes without agents


async def test_a_standing_preset_can_be_read_without_an_agent():
    presets = [
        Preset("org", setup=[Section("org", order=200, text="Org."), RuntimeContext("now", order=200, text="Now.")]),
        Preset("team", extends="org", grants=["read"]),
    ]
    registry = Registry()
    async with open_mounts(registry) as mounts:
        make_registrar(registry, Owner("host"), None).add(Section(PERSONA_SECTION, order=PERSONA_ORDER, text="You."))
        standing = (await mount_presets(presets, mounts)).get("team")
        assert [each.preset.name for each in standing.line()] == ["team", "org"]
        assert (standing.model, standing.budgets, standing.grants) == (None, (), frozenset({"read"}))
        assert [key.label for key in scope_chain_of(standing.scope)] == ["preset team", "preset org"]
        assembly = await assemble(registry, AssembleContext(standing.scope))
        assert render_prompt(assembly) == "You.\n\nOrg."
        assert [piece.text for piece in assembly.contexts] == ["Now."]


def test_a_preset_is_a_value_that_can_be_used_in_several_hosts():
    preset = Preset("team", tools=iter([read]), setup=iter([write]))
    assert (preset.tools, preset.setup) == ((read,), (write,))
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        preset.name = "other"
    assert preset != Preset("team", tools=[read], setup=[write])


@pytest.mark.parametrize("given", [list, reversed], ids=["bases first", "bases last"])
async def test_a_line_of_presets_may_be_longer_than_the_stack(given):
    line = [Preset(f"p{number}", extends=f"p{number - 1}" if number else None) for number in range(1200)]
    async with (
        open_host(model=FunctionModel(lambda request: [say("hi")]), presets=given(line)) as host,
        host.open_agent(AgentSpec("lead"), preset="p1199") as lead,
    ):
        assert (await lead.ask("hello")).text == "hi"
        assert len(scope_chain_of(lead.scope)) == 1201

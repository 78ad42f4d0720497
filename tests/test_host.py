"""The host: what it furnishes, how agents open and close, what comes and goes at runtime, and how all of it ends."""

from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio
import trio.lowlevel
import trio.testing

from creche import AgentSpec, ModelError, Plugin, Preset, Section, open_host, say, spawn, tool
from creche.agent import BuildRequest
from creche.errors import (
    AgentClosedError,
    AgentError,
    ConfigError,
    DuplicateNameError,
    NotRegisteredError,
    PluginError,
    ScopeClosedError,
    StoreError,
    UnsupportedCapabilityError,
)
from creche.host import AgentClosed, AgentOpened
from creche.models import FunctionModel, ModelProvider, Settings, call, fail
from creche.prompt import AssembleContext, RuntimeContext, assemble, render_context_sections, render_prompt
from creche.scope import Fault
from creche.session import load_sessions
from creche.testing import RecordingModel, assert_no_leaks, check_log, check_requests, record_events
from creche.tools import Guard, restrict, visible


def hello(request):
    return [say("hi")]


def tools(request):
    return [say(" ".join(schema.name for schema in request.tools) or "(none)")]


@tool(inline=True)
def read(path: str) -> str:
    """Read a file."""
    return path


def service(events, name):
    """Return a setup function that notes when it comes and when it has gone, which takes a while."""

    @asynccontextmanager
    async def setup(registrar):
        events.append(f"{name} up")
        try:
            yield
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.001)
            events.append(f"{name} down")

    return setup


# ---------------------------------------------------------------- models


async def test_agents_may_ask_a_model_by_an_alias():
    models = {
        "small": FunctionModel(lambda request: [say("small")]),
        "large": FunctionModel(lambda request: [say("large")]),
    }
    async with (
        open_host(model="fast", aliases={**models, "fast": "small"}) as host,
        host.open_agent(AgentSpec("lead")) as lead,
        host.open_agent(AgentSpec("big", model="large")) as big,
    ):
        assert [(await lead.ask("hi")).text, (await big.ask("hi")).text] == ["small", "large"]


async def test_the_standard_providers_are_there_and_a_plugin_can_take_the_place_of_one():
    own = FunctionModel(lambda request: [say(request.settings.model)], provider="openai")
    provider = Plugin("own", [ModelProvider("openai", model=own)])
    async with open_host(model="openai:gpt-5", plugins=[provider]) as host, host.open_agent(AgentSpec("lead")) as lead:
        assert (await lead.ask("hi")).text == "gpt-5"


class Lasting:
    """A model that keeps something open."""

    provider = model = "lasting"
    limiter = None

    def __init__(self):
        self.events = []
        self._inner = FunctionModel(lambda request: [say("hi")], provider="lasting", model="lasting")
        self.prepare, self.stream = self._inner.prepare, self._inner.stream

    @asynccontextmanager
    async def opened(self):
        self.events.append("open")
        try:
            yield
        finally:
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()
            self.events.append("closed")


async def test_what_a_model_keeps_open_is_open_until_the_host_ends():
    model = Lasting()
    async with open_host(model=model) as host:
        assert model.events == []
        for _ in range(2):
            async with host.open_agent(AgentSpec("lead")) as lead:
                await lead.ask("hi")
                await spawn(lead, "Go.")
        assert model.events == ["open"]
    assert model.events == ["open", "closed"]


async def test_a_model_that_a_wrapper_chose_is_kept_open_too():
    async def elsewhere(event, following):
        return Settings("lasting", model="m")

    model = Lasting()
    async with open_host(model=FunctionModel(hello)) as host, host.open_agent(AgentSpec("lead")) as lead:
        host.registrar.add(ModelProvider("lasting", model=model))
        host.registrar.wrap(BuildRequest, elsewhere)
        await lead.ask("hi")
        await lead.ask("hi")
        assert model.events == ["open"]
    assert model.events == ["open", "closed"]


async def test_it_is_closed_when_the_host_is_cancelled():
    model = Lasting()
    with trio.CancelScope() as scope:
        async with open_host(model=model) as host, host.open_agent(AgentSpec("lead")):
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert model.events == ["open", "closed"]


# ---------------------------------------------------------------- what every host has


async def test_a_host_has_an_identity_a_persona_and_a_suffix_in_this_order():
    async with open_host(persona="You help.", persona_suffix="On this machine.") as host:
        host.registrar.add(Section("rules", order=200, text="Be brief."))
        text = render_prompt(await assemble(host.registry, AssembleContext()))
    assert text == (
        "You are an agent run by creche, a nursery in which several agents work in one program.\n\n"
        "You help.\n\nBe brief.\n\nOn this machine."
    )


async def test_a_host_without_an_identity_and_a_persona_says_nothing():
    async with open_host(identity=False) as host:
        assembly = await assemble(host.registry, AssembleContext())
        assert (render_prompt(assembly), render_context_sections(assembly)) == ("", ())


async def test_texts_of_the_host_may_be_functions_and_name_what_the_agent_asks_and_where():
    def persona(context):
        return f"You are {context.agent.path}." if context.agent else "You are nobody."

    async with (
        open_host(
            model=FunctionModel(lambda request: [say(request.system)]),
            persona=persona,
            persona_suffix="{{provider}} {{model}} {{cwd}}",
            identity=False,
        ) as host,
        host.open_agent(AgentSpec("lead", cwd="/work")) as lead,
    ):
        assert (await lead.ask("Go.")).text == "You are lead.\n\nfunction function /work"


async def test_what_this_version_does_not_count_is_refused():
    with pytest.raises(UnsupportedCapabilityError) as caught:
        async with open_host(prices={}):
            raise AssertionError
    assert str(caught.value) == "open_host(prices=...): costs are not counted by this version of creche; leave it out"


async def test_a_plugin_that_does_not_start_comes_out_as_itself_and_takes_the_earlier_ones_along():
    events = []

    def fails(registrar):
        raise ZeroDivisionError("no")

    plugins = [Plugin("first", setup=[service(events, "first")]), Plugin("second", setup=[fails])]
    with pytest.raises(PluginError) as caught:
        async with open_host(plugins=plugins):
            raise AssertionError
    assert str(caught.value) == "setup of plugin 'second' failed: ZeroDivisionError('no')"
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert events == ["first up", "first down"]


# ---------------------------------------------------------------- opening


async def test_an_agent_lives_for_its_block_and_is_told_of_where_it_stands():
    model = RecordingModel(FunctionModel(hello))
    async with open_host(model=model) as host:
        with assert_no_leaks(host):
            async with host.open_agent(AgentSpec("lead", tools=[read])) as lead:
                pen = host.registrar.at(lead.scope)
                with record_events(host.registrar, AgentOpened, AgentClosed) as above:
                    assert dict(host.agents) == {lead.id: lead}
                    with pytest.raises(TypeError):
                        host.agents["x"] = lead
                    await lead.ask("Go.")
                    heard = []
                    pen.on(
                        AgentClosed, lambda event: heard.append((event.agent, list(visible(host.registry, lead.scope))))
                    )
            assert host.agents == {}
        assert (above, heard) == ([], [(lead, ["read"])])
        with pytest.raises(AgentClosedError):
            lead.send("Too late.")
        with pytest.raises(ScopeClosedError):
            pen.add(Section("late", order=200, text="x"))
    check_log(lead.session)
    check_requests(lead.session, model.sent_by(lead.id))


async def test_everybody_above_hears_agents_come_and_go():
    heard = []

    def note(registrar):
        registrar.on(AgentOpened, lambda event: heard.append(("opened", event.agent.path)))
        registrar.on(AgentClosed, lambda event: heard.append(("closed", event.agent.path)))

    async with (
        open_host(model=FunctionModel(hello), presets=[Preset("team", setup=[note])]) as host,
        host.open_agent(AgentSpec("elsewhere")),
        host.open_agent(AgentSpec("lead"), preset="team") as lead,
    ):
        await spawn(lead, "Go.", name="child")
    assert heard == [("opened", "lead"), ("opened", "lead/child"), ("closed", "lead/child"), ("closed", "lead")]


@pytest.mark.parametrize("start", ["open", "start"])
@pytest.mark.parametrize(
    ("spec", "error", "sentence"),
    [
        (
            {},
            ConfigError,
            "model: agent 'lead' has none: give AgentSpec(model=...), its preset's, or open_host(model=...)",
        ),
        (
            {"model": "fast"},
            ConfigError,
            "model: 'fast' is not of the form 'provider:model' and no alias; providers: anthropic, deepseek, local, ollama, openai, openrouter",
        ),
        ({"model": "fast:x"}, NotRegisteredError, None),
        (
            {"model": FunctionModel(hello), "setup": [lambda registrar: 1 / 0]},
            PluginError,
            "setup of plugin 'lead' failed: ZeroDivisionError('division by zero')",
        ),
    ],
)
async def test_what_keeps_an_agent_from_opening_comes_out_as_itself_and_nothing_is_left(start, spec, error, sentence):
    events = []
    own = AgentSpec(
        "lead",
        **{"setup": [service(events, "own"), *spec.get("setup", ())]} | {k: v for k, v in spec.items() if k != "setup"},
    )
    async with open_host() as host:
        with assert_no_leaks(host):
            with pytest.raises(error) as caught:
                await (host.start_agent(own) if start == "start" else opened(host, own))
            if sentence is not None:
                assert str(caught.value) == sentence
            assert events == ["own up", "own down"]
        async with host.open_agent(AgentSpec("lead", model=FunctionModel(hello))) as lead:
            assert (await lead.ask("Go.")).text == "hi", "the name is free, and the host lives"


async def test_a_name_of_a_live_agent_is_refused_and_free_again_afterwards():
    async with open_host(model=FunctionModel(hello)) as host:
        async with host.open_agent(AgentSpec("lead")):
            for starting in (host.start_agent(AgentSpec("lead")), opened(host, AgentSpec("lead"))):
                with pytest.raises(DuplicateNameError) as caught:
                    await starting
                assert str(caught.value) == (
                    "an agent 'lead' is live already; give another name, or wait until that one has ended"
                )
        async with host.open_agent(AgentSpec("lead")) as lead:
            assert (await lead.ask("Go.")).text == "hi"


async def opened(host, spec):
    async with host.open_agent(spec):
        raise AssertionError


class MineError(Exception):
    """An error of the program's own."""


@pytest.mark.parametrize(
    "error", [MineError("mine"), KeyboardInterrupt("stop"), ExceptionGroup("mine", [MineError("a")])]
)
async def test_an_error_in_the_block_comes_out_as_that_very_object(error):
    events = []

    async def program():
        async with (
            open_host(model=FunctionModel(hello), plugins=[Plugin("p", setup=[service(events, "p")])]) as host,
            host.open_agent(AgentSpec("lead", setup=[service(events, "own")])) as lead,
        ):
            await lead.ask("Go.")
            raise error

    with pytest.raises(type(error)) as caught:
        await program()
    assert caught.value is error
    assert events == ["p up", "own up", "own down", "p down"]


async def test_a_model_failure_comes_out_of_the_block_as_itself():
    async def program():
        async with (
            open_host(model=FunctionModel(lambda request: [fail("503 from the provider", code="quota")])) as host,
            host.open_agent(AgentSpec("lead")) as lead,
        ):
            await lead.ask("Go.")

    with pytest.raises(ModelError, match=r"^503 from the provider$"):
        await program()


async def test_an_undo_that_fails_when_an_agent_closes_is_a_fault_and_not_an_error():
    def fails(registration):
        raise MineError("undo")

    async with open_host(model=FunctionModel(hello)) as host:
        with record_events(host.registrar, Fault) as faults, assert_no_leaks(host):
            async with host.open_agent(AgentSpec("lead", tools=[read])) as lead:
                host.registrar.at(lead.scope).add(Section("s", order=200, text="x")).before_undo = fails
            agent = await host.start_agent(AgentSpec("other"))
            host.registrar.at(agent.scope).add(Section("s", order=200, text="x")).before_undo = fails
            await agent.aclose()
        assert [(fault.owner, fault.what) for fault in faults] == [
            ("lead", "undoing what was registered for it"),
            ("other", "undoing what was registered for it"),
        ]
        assert host.agents == {}


async def test_an_undo_that_fails_when_an_agent_closes_leaves_none_of_its_plugins_running():
    def fails(registration):
        raise MineError("undo")

    def elsewhere(registrar):
        registrar.add(Section("s", order=200, text="x")).before_undo = fails
        registrar.at(None).add(Section("t", order=200, text="x")).before_undo = fails

    events = []
    async with open_host(model=FunctionModel(hello)) as host:
        with record_events(host.registrar, Fault) as faults, assert_no_leaks(host):
            async with host.open_agent(AgentSpec("lead", setup=[elsewhere, service(events, "server")])):
                pass
            assert events == ["server up", "server down"]
        assert [(fault.owner, fault.what) for fault in faults] == [("lead", "undoing what was registered for it")] * 2


@pytest.mark.parametrize("where", ["a preset", "an agent"])
async def test_what_a_setup_forbids_stands_after_its_body_has_crashed(where):
    """Rule: a crash takes away what a plugin gave, never what it forbade."""
    crash, ran = trio.Event(), []

    @asynccontextmanager
    async def connection(registrar):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(die)
            yield
            nursery.cancel_scope.cancel()

    async def die():
        await crash.wait()
        raise MineError("the server hung up")

    @tool(inline=True)
    def remove() -> None:
        """Remove."""
        ran.append("remove")

    @tool(inline=True)
    def move() -> None:
        """Move."""
        ran.append("move")

    guard = Guard(lambda execution: "no" if execution.tool.name == "move" else None)
    setup = [restrict(deny=["remove"]), guard, connection]
    preset, spec = (setup, []) if where == "a preset" else ([], setup)
    model = FunctionModel(lambda r: [say("end")] if r.last_tool_text else [call("remove"), call("move")])
    async with open_host(
        model=model, plugins=[Plugin("tools", [remove, move])], presets=[Preset("safe", setup=preset)]
    ) as host:
        with record_events(host.registrar, Fault) as faults, assert_no_leaks(host):
            async with host.open_agent(AgentSpec("lead", setup=spec), preset="safe") as lead:
                crash.set()
                await trio.testing.wait_all_tasks_blocked()
                await lead.ask("x")
                assert "remove" not in visible(host.registry, lead.scope)
                await spawn(lead, "x")
        assert len(faults) == 1
    assert ran == []


# ---------------------------------------------------------------- agents that a program holds without a block


async def test_an_agent_that_was_started_lives_until_it_is_closed():
    events = []
    async with open_host(model=FunctionModel(hello)) as host:
        with assert_no_leaks(host):
            lead = await host.start_agent(AgentSpec("lead", setup=[service(events, "own")]))
            assert (await lead.ask("Go.")).text == "hi"
            for _ in range(2):
                await lead.aclose()
            assert (host.agents, lead.is_closed, events) == ({}, True, ["own up", "own down"])
            with pytest.raises(AgentClosedError):
                await lead.ask("Too late.")
    check_log(lead.session)


async def test_the_name_of_a_closed_agent_is_free_at_once(autojump_clock):
    """Rule: whoever waits for the end of an agent finds nothing left of it, whatever its plugins take to leave."""
    events = []
    async with open_host(model=FunctionModel(hello)) as host:
        for _ in range(3):
            lead = await host.start_agent(AgentSpec("lead", setup=[service(events, "own")]))
            await lead.aclose()
            assert events[-1] == "own down"
    assert events == ["own up", "own down"] * 3


async def test_the_name_of_a_closed_agent_is_free_also_while_what_nobody_read_goes_to_the_disk(autojump_clock):
    async with open_host(model=FunctionModel(hello), store=Journal()) as host:
        for _ in range(3):
            lead = await host.start_agent(AgentSpec("lead"))
            await lead.ask("Go.")
            lead.inject("A note that nobody reads.")
            await lead.aclose()
            assert host.agents == {}


async def test_an_agent_that_was_opened_with_a_block_ends_with_that():
    async with open_host(model=FunctionModel(hello)) as host, host.open_agent(AgentSpec("lead")) as lead:
        with pytest.raises(AgentError) as caught:
            await lead.aclose()
        assert str(caught.value) == "agent 'lead' was opened with a block and ends with it; leave the block"


async def test_closing_an_agent_ends_its_turn_and_its_children(autojump_clock):
    async def model(request):
        if "/" in request.agent_path:
            await trio.sleep_forever()
        return [call("delegate")]

    @tool
    async def delegate() -> str:
        """Spawn."""
        return (await spawn(lead, "Wait.", name="child")).text

    async with open_host(model=FunctionModel(model)) as host:
        host.registrar.add(delegate)
        lead = await host.start_agent(AgentSpec("lead"))
        delivery = lead.send("Go.")
        waiting = lead.send("Never read.")
        await trio.testing.wait_all_tasks_blocked()
        (child,) = lead.children
        with assert_no_leaks(host):
            await lead.aclose()
        assert str(delivery.result.error) == "turn 1 of agent 'lead' was cancelled (closed)"
        assert str(waiting.result.error) == "agent 'lead' does not run any more; open another one"
        for agent in (lead, child):
            check_log(agent.session)
        assert child.session.records("turn/end")[0].data.detail == "parent"


async def test_a_start_that_is_cancelled_leaves_nothing(autojump_clock):
    async def waits(registrar):
        await trio.sleep_forever()

    async with open_host(model=FunctionModel(hello)) as host:
        with assert_no_leaks(host):
            for starting in (host.start_agent, opened_with(host)):
                with trio.move_on_after(1) as scope:
                    await starting(AgentSpec("lead", tools=[read], setup=[waits]))
                assert scope.cancelled_caught
        assert (await host.start_agent(AgentSpec("lead"))).path == "lead"


def opened_with(host):
    async def run(spec):
        await opened(host, spec)

    return run


async def test_a_thousand_agents_are_started_asked_and_ended():
    async with open_host(model=FunctionModel(hello)) as host:
        agents = [await host.start_agent(AgentSpec(f"a{number}")) for number in range(1000)]
        async with trio.open_nursery() as nursery:
            for agent in agents:
                nursery.start_soon(agent.ask, "Go.")
        assert len(host.agents) == 1000
    assert host.agents == {}
    for agent in agents:
        check_log(agent.session)
        assert (agent.is_closed, agent.usage.requests) == (True, 1)


# ---------------------------------------------------------------- plugins at runtime


async def test_what_is_mounted_and_unmounted_during_a_turn_shows_at_the_next_step():
    """Rule: the next step simply sees the new registry: tools, sections and contexts alike."""
    mounted = []
    extra = Plugin(
        "extra",
        setup=[read, Section("extra", order=200, text="Extra."), RuntimeContext("now", order=200, text="Now.")],
    )

    @tool
    async def mount() -> str:
        """Mount the plugin."""
        mounted.append(await host.mount(extra))
        return "mounted"

    @tool
    async def unmount() -> str:
        """Unmount the plugin."""
        await mounted[0].unmount()
        return "unmounted"

    seen = []

    def model(request):
        seen.append(
            (
                [schema.name for schema in request.tools],
                request.system,
                request.messages[-1].text if request.messages[-1].role == "user" else "",
            )
        )
        return {"": [call("mount")], "mounted": [call("unmount")], "unmounted": [say("done")]}[request.last_tool_text]

    recording = RecordingModel(FunctionModel(model))
    async with open_host(model=recording, identity=False) as host:
        host.registrar.add(mount)
        host.registrar.add(unmount)
        async with host.open_agent(AgentSpec("lead")) as lead, host.open_agent(AgentSpec("other")) as other:
            await lead.ask("Go.")
            assert sorted(visible(host.registry, other.scope)) == ["mount", "unmount"]
    assert [names for names, _, _ in seen] == [["mount", "unmount"], ["mount", "read", "unmount"], ["mount", "unmount"]]
    assert [system for _, system, _ in seen] == ["", "Extra.", ""]
    assert seen[1][2].endswith("Now.")
    assert seen[2][2] == "There is no runtime context now. This supersedes every earlier snapshot."
    check_log(lead.session)
    check_requests(lead.session, recording.sent_by(lead.id))


async def test_a_plugin_can_be_mounted_for_one_agent_and_goes_with_it():
    events = []
    async with open_host(model=FunctionModel(tools)) as host:
        with assert_no_leaks(host):
            async with host.open_agent(AgentSpec("lead")) as lead, host.open_agent(AgentSpec("other")) as other:
                mounted = await host.mount(Plugin("own", setup=[read]), scope=lead.scope, config={"a": 1})
                assert mounted.config == {"a": 1}
                assert (await lead.ask("Go.")).text == "read"
                assert (await other.ask("Go.")).text == "(none)"
                assert (await spawn(lead, "Go.")).text == "read"
        with pytest.raises(ScopeClosedError):
            await host.mount(Plugin("late", setup=[service(events, "late")]), scope=lead.scope)
        assert events == []


async def test_a_plugin_that_fails_at_runtime_hurts_nobody():
    def fails(registrar):
        registrar.add(read)
        raise MineError("no")

    async with open_host(model=FunctionModel(tools)) as host, host.open_agent(AgentSpec("lead")) as lead:
        with pytest.raises(PluginError):
            await host.mount(Plugin("bad", setup=[fails]))
        assert (await lead.ask("Go.")).text == "(none)"


# ---------------------------------------------------------------- the end


async def test_a_host_ends_agents_first_then_presets_and_plugins_newest_first():
    """Rule: nothing is taken from an agent that still runs."""
    events = []

    def note(event):
        events.append(f"{event.agent.path} closed")

    async with open_host(
        model=FunctionModel(hello),
        plugins=[Plugin(name, setup=[service(events, name)]) for name in ("p1", "p2")],
        presets=[
            Preset("derived", extends="base", setup=[service(events, "derived")]),
            Preset("base", setup=[service(events, "base")]),
        ],
    ) as host:
        host.registrar.on(AgentClosed, note)
        await host.mount(Plugin("p3", setup=[service(events, "p3")]))
        await host.start_agent(AgentSpec("lead", setup=[service(events, "own")]), preset="derived")
    assert events == [
        "p1 up",
        "p2 up",
        "base up",
        "derived up",
        "p3 up",
        "own up",
        "lead closed",
        "own down",
        "p3 down",
        "derived down",
        "base down",
        "p2 down",
        "p1 down",
    ]


async def test_a_host_that_is_cancelled_ends_everything_all_the_same(autojump_clock):
    events, agents = [], []

    async def model(request):
        await trio.sleep_forever()

    with trio.move_on_after(5) as scope:
        async with open_host(model=FunctionModel(model), plugins=[Plugin("p", setup=[service(events, "p")])]) as host:
            agents.append(await host.start_agent(AgentSpec("started", setup=[service(events, "own")])))
            agents[0].send("Wait.")
            async with host.open_agent(AgentSpec("opened")) as opened_agent:
                agents.append(opened_agent)
                await opened_agent.ask("Wait.")
    assert scope.cancelled_caught
    assert events == ["p up", "own up", "own down", "p down"]
    for agent in agents:
        check_log(agent.session)
        assert agent.session.records("turn/end")[0].data.reason == "cancelled"


async def test_a_host_waits_for_agents_that_other_tasks_hold_and_tells_them(autojump_clock):
    """Rule: leaving the host's block ends every agent, also one whose block is in another task."""
    order = []

    async def hold(host):
        async with host.open_agent(AgentSpec("lead")) as lead:
            try:
                await lead.ask("Wait.")
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(3)

    async def hold_and_note(host):
        with pytest.raises(AgentClosedError) as caught:
            await hold(host)
        order.append(str(caught.value))

    async def model(request):
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        async with open_host(model=FunctionModel(model)) as host:
            nursery.start_soon(hold_and_note, host)
            await trio.testing.wait_all_tasks_blocked()
            (lead,) = host.agents.values()
        order.append("the host has ended")
    assert order == [
        "agent 'lead' was closed before its block ended, because the host has ended",
        "the host has ended",
    ]
    assert trio.current_time() >= 3
    check_log(lead.session)


async def test_a_host_that_has_ended_takes_nothing_more():
    async with open_host(model=FunctionModel(hello)) as host:
        pass
    for starting in (host.start_agent(AgentSpec("lead")), opened(host, AgentSpec("lead"))):
        with pytest.raises(ScopeClosedError) as caught:
            await starting
        assert str(caught.value) == "the host closes, so agent 'lead' cannot be opened"
    with pytest.raises(ScopeClosedError):
        await host.mount(Plugin("late", setup=[read]))


def test_blocks_that_are_left_in_the_wrong_order_are_trios_error_and_no_deadlock():
    async def program():
        async with (
            AsyncExitStack() as stack,
            open_host(model=FunctionModel(hello)) as host,
        ):
            await stack.enter_async_context(host.open_agent(AgentSpec("lead")))

    with pytest.raises(RuntimeError, match=r"^Cancel scope stack corrupted"):
        trio.run(program)


# ---------------------------------------------------------------- logs


async def test_a_store_that_is_a_folder_has_the_whole_tree_in_one_file_to_the_last_record(tmp_path):
    """Rule: what was logged after the last turn is durable when the agent has closed."""
    async with open_host(model=FunctionModel(hello), store=tmp_path / "logs") as host:
        async with host.open_agent(AgentSpec("lead")) as lead:
            await lead.ask("Go.")
            await spawn(lead, "Go.", name="child")
            lead.inject("A note that nobody reads.")
        async with host.open_agent(AgentSpec("silent")):
            pass
        (file,) = (tmp_path / "logs").iterdir()
        loaded = list(load_sessions(file).values())
        assert [session.header.path for session in loaded] == ["lead", "lead/child"]
        assert list(loaded[0].records()) == list(lead.session.records())
        assert [record.kind for record in loaded[0].records()][-4:] == [
            "subagent/start",
            "subagent/end",
            "inbox/accepted",
            "inbox/dropped",
        ]


class Journal:
    """A store and journal that waits at a checkpoint, notes what is begun, and fails if it is told to."""

    location = None

    def __init__(self, failure=None):
        self.begun, self.failure, self.seconds = [], failure, 0.001

    @asynccontextmanager
    async def open_journal(self, root):
        self.begin(root)
        yield self

    def begin(self, header):
        self.begun.append(header.path)

    def write(self, session_id, record):
        pass

    async def checkpoint(self):
        await trio.sleep(self.seconds)
        if self.failure is not None:
            raise self.failure


async def test_what_is_refused_before_it_starts_leaves_no_line_in_the_journal():
    store = Journal()
    async with (
        open_host(model=FunctionModel(hello), store=store, presets=[Preset("more", tools=[read])]) as host,
        host.open_agent(AgentSpec("lead")) as lead,
    ):
        for options in ({"preset": "more"}, {"deny": ["wriet"]}, {"model": "slow:x"}, {"output": int}):
            with pytest.raises(Exception, match=r"."):
                await spawn(lead, "Go.", name="child", **options)
        assert store.begun == ["lead"]
        await spawn(lead, "Go.", name="child")
        assert store.begun == ["lead", "lead/child"]


@pytest.mark.parametrize("failure", [StoreError("the disk is full"), OSError("gone"), None])
async def test_closing_records_that_cannot_be_made_durable_are_a_fault_at_the_agent(failure, autojump_clock):
    store, faults = Journal(), []
    async with open_host(model=FunctionModel(hello), store=store) as host:
        with assert_no_leaks(host):
            async with host.open_agent(AgentSpec("lead")) as lead:
                await lead.ask("Go.")
                await trio.sleep(1)
                store.failure, store.seconds = failure, (100 if failure is None else 0.001)
                listening = host.registrar.on(Fault, faults.append)
            listening.undo()
        assert trio.current_time() < 3, "it is waited for, and not for ever"
        assert [(fault.owner, fault.what, fault.error) for fault in faults] == [
            ("lead", "making its closing records durable", failure)
        ]

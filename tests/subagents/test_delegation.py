"""The tools through which a model delegates: what they say, when they are there, and what comes back."""

import pytest
import trio

from creche import AgentSpec, Plugin, Preset, open_host, say, spawn, tool
from creche.models import FunctionModel, call, fail
from creche.scope import Fault
from creche.session import SubagentEnded
from creche.subagents import (
    SubagentProvider,
    SubagentResult,
    delegation,
    delegation_tool,
    fork_provider,
    spawn_provider,
)
from creche.testing import record_events
from creche.tools import ToolContext, restrict, visible


def provider(name, **options):
    async def run(request):
        return SubagentResult("done", text=f"{name} {request.name} {request.prompt}")

    return SubagentProvider(name, run=run, **options)


def delegating(request):
    """Delegate once to each tool there is, and report what came of it."""
    if "/" in request.agent_path:
        return [say(f"{request.agent_path}: {request.last_user_text}")]
    if request.last_tool_text:
        return [say("done")]
    return [call(schema.name, description="d", prompt="A task.") for schema in request.tools] or [say("alone")]


class ScopeOf:
    """An item of a setup that notes where it is."""

    scope = None

    def __call__(self, registrar):
        self.scope = registrar.scope


def tools_of(host, agent):
    return sorted(visible(host.registry, agent.scope))


# ---------------------------------------------------------------- what the model is told


def test_the_wording_follows_what_the_child_will_see():
    """Rule: it follows `inherits_parent_context`, and promises nothing about tools or rights."""
    fresh, forked = delegation_tool(spawn_provider()), delegation_tool(fork_provider())
    assert (fresh.name, fresh.parallel, forked.name, forked.parallel) == ("subagent", True, "subagent_fork", True)
    assert fresh.description == (
        "Give a task to a subagent and wait for its report. It starts fresh and sees nothing of this conversation. "
        "Several calls in one answer run at the same time."
    )
    assert forked.description == (
        "Give a task to a subagent and wait for its report. It already sees this conversation's completed turns, not "
        "the one in flight. Several calls in one answer run at the same time."
    )
    assert '"The task, with everything it needs to know, and what its report must contain."' in fresh.parameters
    assert (
        '"The task. Say what happened in the turn in flight if it matters, and what its report must contain."'
        in forked.parameters
    )


def test_the_tool_of_another_provider_is_named_after_it():
    assert delegation_tool(provider("remote")).name == "subagent_remote"


# ---------------------------------------------------------------- what comes back


FAILED = """\
Error: subagent 'subagent-2' ended as 'failed'. ModelError (quota): no credit
What it had said until then:
I had begun"""


async def test_reports_come_back_in_the_models_order_whoever_is_done_first(checked_host, autojump_clock):
    delays = {"first": 3, "second": 1, "third": 2}

    async def model(request):
        if "/" in request.agent_path:
            await trio.sleep(delays[request.last_user_text])
            return [say(f"{request.last_user_text} is done")]
        if request.last_tool_text:
            return [say("all done")]
        return [call("subagent", description="d", prompt=name) for name in delays]

    async with checked_host(FunctionModel(model), plugins=[delegation()]) as checked:
        async with checked.host.open_agent(AgentSpec("lead")) as lead:
            reply = await lead.ask("Go.")
        assert trio.current_time() < 4
        assert reply.usage_tree.requests == 5
        assert [result.text for result in lead.session.tool_results()] == [f"{name} is done" for name in delays]


async def test_one_child_that_fails_is_that_calls_error_and_hurts_no_sibling(checked_host):
    """deepagents#694: one failing subagent cancelled all parallel subagents."""

    def model(request):
        if "/" not in request.agent_path:
            return (
                [say("ok")]
                if request.last_tool_text
                else [call("subagent", description="d", prompt=str(number)) for number in range(3)]
            )
        if request.last_user_text == "1":
            return [say("I had begun"), fail("no credit", code="quota")]
        return [say(f"{request.last_user_text} is done")]

    async with checked_host(FunctionModel(model), plugins=[delegation()]) as checked:
        async with checked.host.open_agent(AgentSpec("lead")) as lead:
            assert (await lead.ask("Go.")).text == "ok"
        results = [record.data for record in lead.session.records("tool/result")]
        assert [(result.message.text, result.code) for result in results] == [
            ("0 is done", ""),
            (FAILED, "subagent-failed"),
            ("2 is done", ""),
        ]
        assert sorted(record.data.outcome for record in lead.session.records("subagent/end")) == [
            "done",
            "done",
            "failed",
        ]


@pytest.mark.parametrize(
    ("result", "text", "code"),
    [
        (SubagentResult("done", text="The report."), "The report.", ""),
        (SubagentResult("done"), "The subagent ended without a report.", ""),
        (
            SubagentResult("truncated", text="Half", diagnostic="too long"),
            "Error: subagent 'subagent_remote-1' ended as 'truncated'. too long\nWhat it had said until then:\nHalf",
            "subagent-truncated",
        ),
        (
            SubagentResult("unknown"),
            "Error: subagent 'subagent_remote-1' ended as 'unknown'.",
            "subagent-unknown",
        ),
    ],
)
async def test_anything_but_done_is_an_error_with_the_diagnostic_before_the_partial_text(
    checked_host, result, text, code
):
    async def run(request):
        return result

    own = SubagentProvider("remote", run=run)
    plugins = [Plugin("own", setup=[own]), delegation("remote")]
    async with checked_host(FunctionModel(delegating), plugins=plugins) as checked:
        async with checked.host.open_agent(AgentSpec("lead")) as lead:
            await lead.ask("Go.")
        (returned,) = lead.session.records("tool/result")
        assert (returned.data.message.text, returned.data.code) == (text, code)


async def test_a_tool_called_without_an_agent_says_so():
    async with open_host() as host:
        context = ToolContext(None, registry=host.registry, call_id="c", name="", number=1)
        with pytest.raises(Exception, match="only an agent can delegate"):
            await delegation_tool(spawn_provider()).run(description="d", prompt="p", context=context)


# ---------------------------------------------------------------- coming and going with the provider


@pytest.mark.parametrize("where", ["host", "preset", "agent"])
async def test_a_tool_comes_and_goes_with_its_provider_wherever_the_plugin_is_mounted(checked_host, where):
    """Rule: the tool of an absent provider is absent."""
    offer = delegation("remote")
    presets = [Preset("team", setup=[offer] if where == "preset" else [])]
    plugins = [offer] if where == "host" else []
    async with checked_host(FunctionModel(delegating), presets=presets, plugins=plugins) as checked:
        spec = AgentSpec("lead", setup=[offer] if where == "agent" else [])
        async with checked.host.open_agent(spec, preset="team") as lead:
            assert (await lead.ask("Go.")).text == "alone"
            registration = checked.host.registrar.add(provider("remote"))
            assert (await lead.ask("Go.")).text == "done"
            assert lead.session.tool_results()[-1].text == "remote subagent_remote-1 A task."
            registration.undo()
            assert tools_of(checked.host, lead) == []
            with checked.host.registrar.add(provider("remote")):
                assert tools_of(checked.host, lead) == ["subagent_remote"]
            assert tools_of(checked.host, lead) == []


async def test_a_provider_of_a_preset_comes_before_that_of_the_host_for_its_agents(checked_host):
    """Rule: the nearest provider wins its name, and the tool mounted there is worded after it."""
    own = provider("spawn", inherits_parent_context=True)
    team = Preset("team", setup=[own, delegation()])
    async with checked_host(FunctionModel(delegating), plugins=[delegation()], presets=[team]) as checked:
        host = checked.host
        async with (
            host.open_agent(AgentSpec("inside"), preset="team") as inside,
            host.open_agent(AgentSpec("out")) as out,
        ):
            await inside.ask("Go.")
            await out.ask("Go.")
            inside_tool = visible(host.registry, inside.scope)["subagent"]
            out_tool = visible(host.registry, out.scope)["subagent"]
        assert "already sees" in inside_tool.description
        assert "starts fresh" in out_tool.description
        assert [result.text for result in inside.session.tool_results()] == [
            "spawn subagent-1 A task.",
            "inside/subagent_fork-1: A task.",
        ]
        assert [result.text for result in out.session.tool_results()] == [
            "out/subagent-1: A task.",
            "out/subagent_fork-1: A task.",
        ]


async def test_a_tool_of_the_host_runs_the_nearest_provider(checked_host):
    async with checked_host(
        FunctionModel(delegating), plugins=[delegation("spawn")], presets=[Preset("team", setup=[provider("spawn")])]
    ) as checked:
        async with checked.host.open_agent(AgentSpec("lead"), preset="team") as lead:
            await lead.ask("Go.")
        assert [result.text for result in lead.session.tool_results()] == ["spawn subagent-1 A task."]


async def test_a_provider_that_is_replaced_gives_the_tool_its_own_words(checked_host):
    team = ScopeOf()
    async with (
        checked_host(FunctionModel(delegating), presets=[Preset("team", setup=[team, delegation("spawn")])]) as checked,
        checked.host.open_agent(AgentSpec("lead"), preset="team") as lead,
    ):
        with checked.host.registrar.at(team.scope).add(provider("spawn", inherits_parent_context=True)):
            assert "already sees" in visible(lead.registry, lead.scope)["subagent"].description
        assert "starts fresh" in visible(lead.registry, lead.scope)["subagent"].description


async def test_a_provider_that_goes_during_a_turn_is_gone_at_the_next_step(checked_host):
    @tool(inline=True)
    def retire() -> str:
        """Take the provider back."""
        registration.undo()
        return "retired"

    def model(request):
        if not request.last_tool_text:
            return [call("retire")]
        return [say(" ".join(schema.name for schema in request.tools))]

    async with checked_host(FunctionModel(model), plugins=[delegation("remote")]) as checked:
        checked.host.registrar.add(retire)
        registration = checked.host.registrar.add(provider("remote"))
        async with checked.host.open_agent(AgentSpec("lead")) as lead:
            assert tools_of(checked.host, lead) == ["retire", "subagent_remote"]
            assert (await lead.ask("Go.")).text == "retire"


async def test_a_call_that_was_made_before_its_provider_went_is_an_error_result(checked_host):
    """Rule: who is called is decided when the call runs."""
    gone = []

    @tool(inline=True)
    def retire() -> str:
        """Take the provider back."""
        gone[0].undo()
        return "retired"

    def model(request):
        if request.last_tool_text:
            return [say("done")]
        return [call("retire"), call("subagent_remote", description="d", prompt="p")]

    async with checked_host(FunctionModel(model), plugins=[delegation("remote")]) as checked:
        checked.host.registrar.add(retire)
        gone.append(checked.host.registrar.add(provider("remote")))
        async with checked.host.open_agent(AgentSpec("lead")) as lead:
            await lead.ask("Go.")
        codes = [record.data.code for record in lead.session.records("tool/result")]
        assert codes == ["", "unknown-tool"]


async def test_the_plugin_takes_its_tools_with_it_and_hears_nothing_afterwards(checked_host):
    async with (
        checked_host(FunctionModel(delegating)) as checked,
        checked.host.open_agent(AgentSpec("lead")) as lead,
    ):
        mounted = await checked.host.mount(delegation("spawn", "remote"))
        assert tools_of(checked.host, lead) == ["subagent"]
        await mounted.unmount()
        assert tools_of(checked.host, lead) == []
        with checked.host.registrar.add(provider("remote")):
            assert tools_of(checked.host, lead) == []


async def test_taking_down_a_plugin_that_brings_the_provider_too_is_no_fault(checked_host):
    """Rule: the provider goes first, and the tool of the one behind it is not offered any more by who is leaving."""
    both = Plugin("both", setup=[delegation("spawn"), provider("spawn")])
    team = ScopeOf()
    async with (
        checked_host(FunctionModel(delegating), presets=[Preset("team", setup=[team])]) as checked,
        checked.host.open_agent(AgentSpec("lead"), preset="team") as lead,
    ):
        with record_events(checked.host.registrar, Fault) as faults:
            mounted = await checked.host.mount(both, scope=team.scope)
            assert tools_of(checked.host, lead) == ["subagent"]
            await mounted.unmount()
        assert (faults, tools_of(checked.host, lead)) == ([], [])


async def test_a_preset_may_hide_the_tools_and_the_provider_stays(checked_host):
    quiet = Preset("quiet", setup=[restrict(deny=["subagent", "subagent_fork"])])
    async with (
        checked_host(FunctionModel(delegating), plugins=[delegation()], presets=[quiet]) as checked,
        checked.host.open_agent(AgentSpec("lead"), preset="quiet") as lead,
    ):
        assert tools_of(checked.host, lead) == []
        assert (await spawn(lead, "A task.")).outcome == "done"


async def test_delegating_under_a_tool_of_ones_own_preset_takes_no_grant(checked_host):
    """Rule: two mounts are two tools, and one and the same tool is no more than the parent sees."""
    team = Preset("team", setup=[delegation()])
    async with checked_host(FunctionModel(delegating), presets=[team]) as checked:
        async with checked.host.open_agent(AgentSpec("lead"), preset="team") as lead:
            result = await spawn(lead, "A task.", preset="team")
            assert (result.outcome, checked.agents[-1].grants) == ("done", ())
        assert [record.data for record in lead.session.records("subagent/end")] == [
            SubagentEnded(checked.agents[-1].id, outcome="done", text=result.text, usage=result.usage)
        ]

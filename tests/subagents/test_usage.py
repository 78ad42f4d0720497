"""Usage: every request once, rolled up over the tree, for a turn what it started and for an agent all there was."""

from functools import partial

import attrs
import trio
import trio.testing

from creche import AgentSpec, Preset, Usage, fork, say, spawn
from creche.models import FunctionModel, call, fail
from creche.subagents import delegation

ONE = Usage(1, input_tokens=10, output_tokens=3, cached_tokens=2, reasoning_tokens=1)


def times(number) -> Usage:
    return Usage(
        *(number * value for value in attrs.astuple(ONE)[:1]),
        **{
            name: number * getattr(ONE, name)
            for name in ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
        },
    )


def cost(text: str):
    return say(text, usage=ONE)


def down_to(depth):
    """Delegate twice at each level above a depth."""

    def model(request):
        if request.agent_path.count("/") >= depth or request.last_tool_text:
            return [cost("done")]
        return [cost("Two of you."), *[call("subagent", description="d", prompt="Go.")] * 2]

    return model


def is_sum_of_tree(checked, agent) -> bool:
    """Tell whether an agent's usage is the sum of the sessions at and below it."""
    total = Usage()
    for each in checked.agents:
        if each.path == agent.path or each.path.startswith(f"{agent.path}/"):
            total += each.session.usage
    return agent.usage == total


async def test_a_tree_of_depth_three_counts_every_request_once(checked_host):
    """Rule: the usage of the root is the sum of its tree."""
    async with checked_host(FunctionModel(down_to(3)), plugins=[delegation()]) as checked:
        async with checked.host.open_agent(AgentSpec("lead")) as lead:
            reply = await lead.ask("Go.")
        requests = 2 * (1 + 2 + 4) + 8
        assert reply.usage == times(2)
        assert reply.usage_tree == lead.usage == times(requests)
        assert len(checked.model.sent) == requests
        assert len(checked.agents) == 15
        assert all(is_sum_of_tree(checked, agent) for agent in checked.agents)


async def test_every_result_and_every_settlement_has_the_usage_of_the_whole_child(checked_host):
    async with checked_host(FunctionModel(down_to(3)), plugins=[delegation()]) as checked:
        async with checked.host.open_agent(AgentSpec("lead")) as lead:
            result = await spawn(lead, "Go.")
        assert result.usage == times(2 * (1 + 2) + 4)
        for agent in checked.agents:
            usages = {record.data.session_id: record.data.usage for record in agent.session.records("subagent/end")}
            assert usages == {
                child.id: child.usage for child in checked.agents if child.session.header.parent == agent.id
            }


async def test_a_failed_child_is_paid_for_like_any_other(checked_host):
    def model(request):
        if "/" in request.agent_path:
            return [say("half"), fail("no", code="invalid-request")]
        return [cost("done")] if request.last_tool_text else [call("subagent", description="d", prompt="Go.")]

    async with checked_host(FunctionModel(model), plugins=[delegation()]) as checked:
        async with checked.host.open_agent(AgentSpec("lead")) as lead:
            reply = await lead.ask("Go.")
        assert (reply.usage.requests, reply.usage_tree.requests) == (2, 3)


async def test_a_fork_does_not_pay_for_what_it_inherited(checked_host):
    async with checked_host(FunctionModel(down_to(0))) as checked:
        async with checked.host.open_agent(AgentSpec("lead")) as lead:
            await lead.ask("first")
            await lead.ask("second")
            assert (await fork(lead, "A task.")).usage == ONE
        assert lead.usage == times(3)


async def test_a_turn_counts_what_it_started_and_not_what_a_program_started_meanwhile(checked_host, autojump_clock):
    """Rule: `usage_tree` is of this turn and all it started; the agent's usage has both."""

    async def model(request):
        if "/" in request.agent_path:
            await trio.sleep(1)
            return [cost("done")]
        if request.last_tool_text:
            return [cost("done")]
        await trio.sleep(0.5)
        return [cost("Go."), call("subagent", description="d", prompt="Go.")]

    async with (
        checked_host(FunctionModel(model), plugins=[delegation()]) as checked,
        checked.host.open_agent(AgentSpec("lead")) as lead,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(partial(spawn, lead, "Meanwhile."))
        reply = await lead.ask("Go.")
        assert reply.usage_tree == times(3)
        assert lead.usage == times(4)


async def test_usage_follows_the_tree_of_agents_also_under_another_preset(checked_host):
    async with (
        checked_host(FunctionModel(down_to(0)), presets=[Preset("team")]) as checked,
        checked.host.open_agent(AgentSpec("lead")) as lead,
    ):
        await spawn(lead, "Go.", preset="team")
        assert lead.usage == ONE


async def test_usage_can_be_read_while_children_run(checked_host, autojump_clock):
    async def model(request):
        if request.last_user_text == "wait":
            await trio.sleep(5)
        return [cost("done")]

    async with (
        checked_host(FunctionModel(model)) as checked,
        checked.host.open_agent(AgentSpec("lead")) as lead,
        trio.open_nursery() as nursery,
    ):
        await spawn(lead, "Go.")
        nursery.start_soon(partial(spawn, lead, "wait"))
        await trio.testing.wait_all_tasks_blocked()
        assert lead.usage == ONE
        await trio.sleep(6)
        assert lead.usage == times(2)


async def test_what_a_tree_costs_stops_at_the_largest_number(checked_host):
    """Rule: an outcome is a value, whatever providers say of what it cost."""
    huge = Usage(1, input_tokens=2**62)
    async with (
        checked_host(FunctionModel(lambda request: [say("done", usage=huge)])) as checked,
        checked.host.open_agent(AgentSpec("lead")) as lead,
    ):
        assert [(await spawn(lead, "go")).outcome for _ in range(3)] == ["done"] * 3
        assert lead.usage == Usage(3, input_tokens=2**63 - 1)

"""What users of agent frameworks ran into, as probes: a parallel call that fails, and a parent that is cancelled.

Each says in its name what happens here. With a thread in it, the clock is real.
"""

import threading
from functools import partial

import pytest
import trio
import trio.testing

from creche import AgentSpec, Plugin, open_host, tool
from creche.codemode import MontyRuntime, code_mode
from creche.models import ScriptedModel, ToolCallDelta, call, fail, say
from creche.session import SessionLog
from creche.subagents import delegation, spawn
from creche.testing import check_log


def results(log: SessionLog) -> list[tuple[str, str]]:
    """Return code and text of each result."""
    return [(record.data.code, record.data.message.text) for record in log.records("tool/result")]


# ---------------------------------------------------------------- one of two parallel calls fails


@pytest.fixture
def side_effects() -> list[str]:
    return []


@pytest.fixture
def pair(side_effects) -> Plugin:
    """A tool that works for a while, and one that fails at once."""

    @tool(parallel=True)
    async def work() -> str:
        """Work."""
        await trio.sleep(1)
        side_effects.append("worked")
        return "worked"

    @tool(name="fail", parallel=True)
    async def fail_at_once() -> str:
        """Fail."""
        raise ValueError("a bug")

    return Plugin("pair", setup=[work, fail_at_once])


async def test_the_other_call_finishes_and_the_turn_goes_on(pair, side_effects, autojump_clock):
    model = ScriptedModel({"lead": [[call("work"), call("fail")], lambda request: [say(request.last_tool_text)]]})
    async with open_host(model=model, plugins=[pair]) as host, host.open_agent(AgentSpec("lead")) as lead:
        reply = await lead.ask("Go.")
    check_log(lead.session)
    assert results(lead.session) == [("", "worked"), ("exception", "Error: ValueError: a bug")]
    assert (reply.text, side_effects) == ("Error: ValueError: a bug", ["worked"])


async def test_a_subagent_that_fails_costs_its_sibling_nothing(pair, side_effects, autojump_clock):
    delegate = [call("subagent", description="x", prompt="Go.") for _ in range(2)]
    model = ScriptedModel(
        {
            "lead": [delegate, say("done")],
            "lead/subagent-1": [[call("work")], say("I worked")],
            "lead/subagent-2": [fail("overloaded")] * 9,
        }
    )
    async with (
        open_host(model=model, plugins=[pair, delegation()]) as host,
        host.open_agent(AgentSpec("lead")) as lead,
    ):
        await lead.ask("Go.")
    check_log(lead.session)
    [first, second] = results(lead.session)
    assert first == ("", "I worked")
    assert second[0] == "subagent-failed"
    assert side_effects == ["worked"]


# ---------------------------------------------------------------- a parent is cancelled while a child's tool runs


async def test_an_async_tool_of_a_child_is_stopped_before_its_side_effect(pair, side_effects, autojump_clock):
    model = ScriptedModel({"lead/child": [[call("work")], say("done")]})
    async with open_host(model=model, plugins=[pair]) as host, host.open_agent(AgentSpec("lead")) as lead:
        began = trio.current_time()
        with trio.move_on_after(0.2):
            await spawn(lead, "Go.", name="child")
        assert trio.current_time() - began == pytest.approx(0.2)
        await trio.sleep(5)
    assert side_effects == []
    [ended] = lead.session.records("subagent/end")
    assert ended.data.outcome == "cancelled"


async def test_a_sync_tool_of_a_child_is_waited_for_and_nothing_of_it_goes_on_afterwards():
    """Rule: a thread cannot be stopped, so the cancellation waits for it; the log says that it was cancelled."""
    started, go_on = threading.Event(), threading.Event()
    ended: list[str] = []

    @tool
    def work() -> str:
        """Work."""
        started.set()
        go_on.wait(10)
        ended.append("ended")
        return "worked"

    logs: list[SessionLog] = []
    model = ScriptedModel({"lead/child": [[call("work")], say("done")]})
    async with (
        open_host(model=model, plugins=[Plugin("work", setup=[work])]) as host,
        host.open_agent(AgentSpec("lead")) as lead,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(partial(spawn, lead, "Go.", name="child"))
        await trio.to_thread.run_sync(started.wait)
        logs += [agent.session for agent in host.agents.values() if agent.path == "lead/child"]
        nursery.cancel_scope.cancel()
        go_on.set()
    assert ended == ["ended"]
    [log] = logs
    check_log(log)
    assert [code for code, _ in results(log)] == [""], "it came to its end, and its result is there"


async def test_history_has_no_call_without_a_result_after_a_cancel(pair, autojump_clock):
    model = ScriptedModel({"lead": [[call("work"), call("work")], say("later")]})
    async with open_host(model=model, plugins=[pair]) as host, host.open_agent(AgentSpec("lead")) as lead:
        with trio.move_on_after(0.2):
            await lead.ask("Go.")
        assert [code for code, _ in results(lead.session)] == ["cancelled", "cancelled"]
        assert (await lead.ask("And now?")).text == "later"
    check_log(lead.session)


async def test_who_leaves_a_stream_at_a_call_stops_the_call_and_the_turn(pair, side_effects, autojump_clock):
    model = ScriptedModel({"lead": [[call("work")], say("never")]})
    async with open_host(model=model, plugins=[pair]) as host, host.open_agent(AgentSpec("lead")) as lead:
        async with lead.stream("Go.") as deltas:
            async for delta in deltas:
                if isinstance(delta, ToolCallDelta):
                    break
        await trio.sleep(5)
    assert side_effects == []
    assert len(list(lead.session.records("assistant/message"))) <= 1, "no second request"
    check_log(lead.session)


# ---------------------------------------------------------------- the same in a program


async def test_in_a_program_a_failed_call_raises_and_the_other_one_can_finish(pair, side_effects):
    pytest.importorskip("pydantic_monty")
    program = """
import asyncio
worked = asyncio.gather(tools.work(), tools.work())
try:
    await tools.fail()
except ToolCallError as error:
    caught = str(error)
return [caught, await worked]
"""
    model = ScriptedModel(
        {
            "lead": [
                [call("run_code", code=program, description="try")],
                lambda request: [say(request.last_tool_text)],
            ]
        }
    )
    async with (
        open_host(model=model, plugins=[pair, code_mode(MontyRuntime())]) as host,
        host.open_agent(AgentSpec("lead", present_as="code")) as lead,
    ):
        reply = await lead.ask("Go.")
    check_log(lead.session)
    assert reply.text == '["ValueError: a bug",["worked","worked"]]'
    assert side_effects == ["worked", "worked"]

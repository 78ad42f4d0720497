"""Ctrl-C in the middle of the loop's own code."""

import signal

import pytest
import trio
import trio.lowlevel

from creche import AgentSpec, FunctionModel, call, open_host, say, spawn, tool
from creche.session import RecordAppended
from creche.testing import check_log


@tool(inline=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def answer(request):
    return [say(request.last_tool_text)] if request.last_tool_text else [call("add", a=1, b=2)]


@pytest.fixture(autouse=True)
def _interrupts_arrive():
    """A process that a shell started in the background ignores SIGINT, and so would these tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


KINDS = [
    "inbox/accepted",
    "turn/start",
    "inbox/claimed",
    "step/start",
    "user/message",
    "request/header",
    "assistant/message",
    "tool/call",
    "tool/result",
    "step/end",
    "turn/end",
]


@pytest.mark.parametrize("path", ["lead", "lead/spawn-1"])
@pytest.mark.parametrize("kind", KINDS)
def test_ctrl_c_at_any_record_ends_everything_and_leaves_the_logs_whole(kind, path):
    """Rule: the synchronous stretches of the loop are never cut; the interrupt reaches the main task."""
    logs = {}

    async def main():
        async with open_host(model=FunctionModel(answer)) as host:
            host.registrar.add(add)

            def hear(event):
                logs.update({agent.path: agent.session for agent in host.agents.values()})
                if event.record.kind == kind and event.agent_path == path:
                    signal.raise_signal(signal.SIGINT)

            host.registrar.on(RecordAppended, hear)
            async with host.open_agent(AgentSpec("lead")) as lead:
                await lead.ask("Go.")
                await spawn(lead, "Go.")
                await trio.lowlevel.checkpoint()

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
    assert logs, "something was logged"
    for log in logs.values():
        check_log(log)


def stuck_in_the_loop(late):
    @tool(inline=True)
    def stuck() -> None:
        """Never end."""
        signal.raise_signal(signal.SIGINT)
        late.append("the interrupt came late")

    return stuck


def stuck_in_a_task(late):
    @tool
    async def stuck() -> None:
        """Never end."""
        await trio.lowlevel.checkpoint()
        signal.raise_signal(signal.SIGINT)
        late.append("the interrupt came late")

    return stuck


@pytest.mark.parametrize("make", [stuck_in_the_loop, stuck_in_a_task])
def test_ctrl_c_interrupts_the_body_of_a_tool_where_it_is(make):
    """Rule: what a user wrote can be interrupted anywhere, or one that does not end could not be stopped."""
    logs, late = [], []

    async def main():
        model = FunctionModel(lambda request: [say("done")] if request.last_tool_text else [call("stuck")])
        async with (
            open_host(model=model) as host,
            host.open_agent(AgentSpec("lead", tools=[make(late)])) as lead,
        ):
            logs.append(lead.session)
            await lead.ask("Go.")

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
    check_log(logs[0])
    assert not late

"""Checked by mypy and pyright, never run: what the room of agents looks like to them."""

from collections.abc import Iterator
from typing import Literal, assert_type

import outcome

from creche.agent import (
    Agent,
    AgentSpec,
    Budget,
    BuildRequest,
    Delivery,
    DeltaStreamed,
    Enter,
    LimiterWaited,
    PreStep,
    Reject,
    Reply,
    ReplyStream,
    StreamRestarted,
    TurnStopping,
    Watch,
    run_turn,
)
from creche.messages import AssistantPart, TextPart, UserMessage
from creche.models import Delta, ModelOptions, Settings, Usage
from creche.scope import Next, Registrar, Registration
from creche.session import Lane, RecordAppended
from creche.subagents import SubagentResult, fork, spawn
from creche.tools import Tool, ToolContext, tool


@tool
def look() -> str:
    """Look."""
    return "a tree"


assert_type(AgentSpec("lead").tools, tuple[Tool, ...])
AgentSpec("lead", tools=[look], setup=[look, lambda registrar: None], budget=Budget(depth=1))
AgentSpec("lead", tools=(each for each in [look]), options=ModelOptions("high"))
AgentSpec("lead", "provider:model")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
AgentSpec("lead", tools=["look"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
AgentSpec("lead", present_as="both")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Budget(1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def say_something(agent: Agent) -> None:
    assert_type(agent.send("hello"), Delivery)
    assert_type(agent.steer([TextPart("hello")], source="agent"), Delivery)
    assert_type(agent.inject(UserMessage("hello")), Delivery)
    assert_type(await agent.ask("hello"), Reply)
    assert_type(agent.cancel("enough", keep_inbox=True), None)
    assert_type(await agent.wait_idle(), None)
    agent.send(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    agent.send("hello", "agent")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    agent.cancel("enough", True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def read(agent: Agent) -> None:
    async with agent.stream("hello") as deltas:
        assert_type(deltas, ReplyStream)
        async for delta in deltas:
            assert_type(delta, Delta | StreamRestarted)
        assert_type(deltas.reply, Reply)
    with agent.watch(subtree=True, after=3) as records:
        assert_type(records, Watch)
        async for event in records:
            assert_type(event, RecordAppended)
        assert_type(records.after, int)


async def wait(delivery: Delivery) -> None:
    assert_type(await delivery.reply(), Reply)
    assert_type(delivery.reply_nowait(), Reply)
    assert_type(delivery.lane, Lane)
    assert_type(delivery.result, outcome.Outcome[Reply] | None)


def look_at(agent: Agent, reply: Reply) -> None:
    assert_type(agent.parent, Agent | None)
    assert_type(agent.children, tuple[Agent, ...])
    assert_type(agent.name, str)
    assert_type(agent.usage, Usage)
    assert_type(reply.outcome, Literal["done", "truncated", "refused"])
    assert_type(reply.parts, tuple[AssistantPart, ...])


class Mine(Agent):  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]
    """Refused by both."""


async def enter(event: PreStep, following: Next[Enter | Reject]) -> Enter | Reject:
    assert_type(event.agent, Agent)
    return Enter([*event.messages, UserMessage("and")], starts_series=True) if event.step == 1 else await following()


async def build(event: BuildRequest, following: Next[Settings]) -> Settings:
    return await following()


async def stop(event: TurnStopping, following: Next[bool]) -> bool:
    return await following()


async def forget(event: PreStep, following: Next[Enter | Reject]) -> None:
    await following()


def hear(event: DeltaStreamed) -> None:
    assert_type(event.delta, Delta)


def registrations(registrar: Registrar) -> Iterator[Registration]:
    yield registrar.wrap(PreStep, enter)
    yield registrar.wrap(BuildRequest, build)
    yield registrar.wrap(TurnStopping, stop)
    yield registrar.on(DeltaStreamed, hear)
    registrar.wrap(PreStep, build)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    registrar.wrap(PreStep, forget)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    registrar.on(LimiterWaited, hear)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    registrar.on(PreStep, hear)  # type: ignore[type-var, arg-type]  # pyright: ignore[reportArgumentType]


async def run(agent: Agent) -> None:
    assert_type(await run_turn(agent), None)


@tool
async def starts_a_subagent(task: str, context: ToolContext) -> str:
    """Have it done."""
    result = await spawn(context.agent, task)
    assert_type(result, SubagentResult)
    return (await fork(context.agent, task)).text

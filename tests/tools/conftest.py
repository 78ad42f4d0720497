"""What the tests of the pipeline share: a registry, a log that stands after an answer, and an agent that is no more than these."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from creche.messages import AssistantMessage, ToolCall, UserMessage
from creche.models import ModelOptions, Settings
from creche.scope import Fault, Owner, Registrar, Registry, ScopeKey, bind_scope_parent, make_registrar
from creche.session import AssistantSaid, SessionHeader, SessionLog, StepEnded, StepStarted, TurnEnded, TurnStarted
from creche.testing import check_log
from creche.tools import CallStep, ToolContext, ToolOutcome, execute_call, run_calls


@attrs.define(eq=False)
class FakeAgent:
    """An agent as the room of tools sees it."""

    scope: ScopeKey
    path: str = "lead"
    id: str = "s1"
    parent: None = None
    cwd: None = None
    settings: Settings = attrs.field(factory=lambda: Settings("p", model="m"))
    options: ModelOptions = attrs.field(factory=ModelOptions)
    session: SessionLog = attrs.field(factory=lambda: SessionLog(SessionHeader("s1", path="lead", created=0.0)))


async def no_wait() -> None:
    """Stand for the checkpoint of a journal in memory."""


class Bench:
    """A registry with one agent under one preset, and short ways to have its tools called."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.pen: Registrar = make_registrar(self.registry, Owner("test"), None)
        preset = ScopeKey("preset")
        self.preset = self.pen.at(preset)
        self.agent = FakeAgent(ScopeKey("lead"))
        bind_scope_parent(self.agent.scope, preset)
        self.own = self.pen.at(self.agent.scope)
        self.faults: list[Fault] = []
        self.pen.on(Fault, self.faults.append)
        self.counts: dict[str, int] = {}
        self.step = CallStep(counts=self.counts)
        self.delivered: list[UserMessage] = []
        self.concluded = False

    def context(self, call_id: str = "c1") -> ToolContext:
        return ToolContext(self.agent, registry=self.registry, call_id=call_id, name="", number=1, step=self.step)

    async def call(self, name: str, *, context: ToolContext | None = None, **arguments: object) -> ToolOutcome:
        """Run one call through the pipeline."""
        return await self.call_text(name, json.dumps(arguments), context=context)

    async def call_text(self, name: str, arguments: str, *, context: ToolContext | None = None) -> ToolOutcome:
        call = ToolCall("c1", name=name, arguments=arguments)
        return await execute_call(self.registry, self.agent.scope, call, context or self.context())

    async def cancel(self, name: str, **arguments: object) -> tuple[bool, ToolContext]:
        """Run a call and cancel it when it waits; return whether the cancellation came out, and the call's context."""
        context = self.context()
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: self.call(name, context=context, **arguments))
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        return scope.cancelled_caught, context

    def answer(self, *calls: str | tuple[str, dict[str, object]]) -> Sequence[ToolCall]:
        """Log an answer with calls: a name, or a name and arguments."""
        named = [(each, {}) if isinstance(each, str) else each for each in calls]
        made = [
            ToolCall(f"c{number}", name=name, arguments=json.dumps(arguments))
            for number, (name, arguments) in enumerate(named, 1)
        ]
        for fact in (TurnStarted(), StepStarted(), AssistantSaid(AssistantMessage(made))):
            self.agent.session.append(fact)
        return made

    async def run(self, *calls: Any, checkpoint: Callable[[], Any] = no_wait) -> list[tuple[str, str, str]]:
        """Run the calls of an answer; return what was logged of each."""
        await self.run_calls(self.answer(*calls), checkpoint=checkpoint)
        self.close()
        return self.results()

    async def run_calls(self, calls: Sequence[ToolCall], *, checkpoint: Callable[[], Any] = no_wait) -> None:
        step = CallStep(counts=self.counts, checkpoint=checkpoint)
        deliver = self.delivered.append
        self.concluded = await run_calls(self.agent, self.registry, calls, step=step, deliver=deliver)

    def close(self) -> None:
        """End the turn, and check the log."""
        self.agent.session.append(StepEnded())
        self.agent.session.append(TurnEnded("completed"))
        check_log(self.agent.session)

    def results(self) -> list[tuple[str, str, str]]:
        """Return id, code and text of every result, in the order of the log."""
        results = [record.data for record in self.agent.session.records("tool/result")]
        return [(each.message.call_id, each.code, each.message.text) for each in results]

    def log(self) -> list[str]:
        """Return what was logged of calls, such as ``tool/call c1``."""
        return [
            f"{record.kind} {record.data.call_id if record.kind == 'tool/call' else record.data.message.call_id}"
            for record in self.agent.session.records()
            if record.kind in ("tool/call", "tool/result")
        ]


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def make_bench() -> Callable[[], Bench]:
    """For tests that run a program many times."""
    return Bench

"""One turn: from a claim of messages to the last reply.

`run_turn` is a coroutine that anybody may run: the loop of an opened agent, or whoever spawned a child. It
raises nothing but cancellation from outside; how the turn came out is told to the deliveries it claimed, and
to the log. The order within a turn::

    turn/start
      claim, assemble, snapshot, PreStep
      step/start
        attempts: BuildRequest, prepare, system prompt, users, header, checkpoint, stream     (_request.py)
        calls and results                                                                     (tools)
      step/end                                                    ... as long as calls were made
      TurnStopping
    turn/end
"""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING

import attrs
import outcome
import trio

from creche.errors import (
    CrecheError,
    InternalError,
    LimitReachedError,
    StoreError,
    TurnCancelled,
    TurnRefused,
)
from creche.messages import AssistantMessage, ToolSchema, UserMessage
from creche.models import FinishReason, Usage
from creche.prompt import AssembleContext, assemble, join_context_sections, render_context_sections, render_prompt
from creche.scope import Owner
from creche.session import (
    MemoryJournal,
    StepEnded,
    StepStarted,
    TurnEnded,
    TurnReason,
    TurnStarted,
    flush_closing,
    project_snapshot,
)

from ._events import Enter, PreStep, Reject, TurnStopping
from ._inbox import Delivery
from ._request import run_step
from ._spec import Reply

if TYPE_CHECKING:
    from ._agent import Agent

turns_above: ContextVar[tuple["Agent", ...]] = ContextVar("turns_above", default=())
"""The agents whose turns the current task works for, outermost first."""


@attrs.define(eq=False)
class Turn:
    """What is known of the open turn."""

    number: int
    """Its number."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """Cancelled by `Agent.cancel`."""
    cause: str | None = None
    """Why it was cancelled; the first cause counts."""
    deliveries: list[Delivery] = attrs.field(factory=list)
    """What it has claimed."""
    usage: Usage = attrs.field(factory=Usage)
    """What its own requests cost."""
    tree: Usage = attrs.field(factory=Usage)
    """What its subagents cost."""
    message: AssistantMessage | None = None
    """The last answer."""
    finish: FinishReason | None = None
    """Why that ended."""


@attrs.define(eq=False)
class StepPlan:
    """Everything that a step brings to its request besides history."""

    prompt: str
    """The rendered system prompt."""
    tools: tuple[ToolSchema, ...]
    """The tools of the assembly."""
    messages: tuple[UserMessage, ...]
    """What joins the history."""
    starts_series: bool
    """Whether a wrapper of `PreStep` says so."""


async def run_turn(agent: "Agent") -> None:
    """Run one turn of an agent, to its end or until it is cancelled."""
    turn = agent.begin_turn()
    token = turns_above.set((*turns_above.get(), agent))
    ending: tuple[TurnReason, str] = ("cancelled", "")
    result: outcome.Outcome[Reply] | None = None
    try:
        agent.session.append(TurnStarted())
        with turn.scope:
            await _run_steps(agent, turn)
            result = outcome.Value(_reply(turn))
            ending = ("max-tokens" if turn.finish == "max-tokens" else "completed", "")
    except Exception as error:  # noqa: BLE001 - told to whoever awaits the reply; the loop lives
        ending, result = _failed(agent, turn, error)
    except BaseExceptionGroup as group:
        error = _without_cancellation(group)
        if error is None:
            raise
        ending, result = _failed(agent, turn, error)
    finally:
        turns_above.reset(token)
        if result is None:
            ending, result = _cancelled(agent, turn)
        _close(agent, turn, ending, result)
        await _flush(agent)


def _failed(
    agent: "Agent", turn: Turn, error: Exception
) -> tuple[tuple[TurnReason, str], outcome.Outcome[Reply]]:
    if not isinstance(error, CrecheError):
        internal = InternalError(f"turn {turn.number} of agent {agent.path!r} hit a bug: {error!r}")
        internal.__cause__ = error
        return ("error", str(internal)), outcome.Error(internal)
    reasons: dict[type[CrecheError], TurnReason] = {TurnRefused: "blocked", LimitReachedError: "limit"}
    return (reasons.get(type(error), "error"), str(error)), outcome.Error(error)


def _without_cancellation(group: BaseExceptionGroup[BaseException]) -> Exception | None:
    """Return what went wrong beside a cancellation, or ``None`` if the group must go on as it is."""
    _, others = group.split(trio.Cancelled)
    if others is None:
        return None
    return others if isinstance(others, ExceptionGroup) else None


def _cancelled(agent: "Agent", turn: Turn) -> tuple[tuple[TurnReason, str], outcome.Outcome[Reply]]:
    cause = turn.cause or agent.end_cause
    error = TurnCancelled(f"turn {turn.number} of agent {agent.path!r} was cancelled ({cause})", cause=cause)
    return ("cancelled", cause), outcome.Error(error)


def _close(
    agent: "Agent", turn: Turn, ending: tuple[TurnReason, str], result: outcome.Outcome[Reply]
) -> None:
    """Log the end and settle who waits. Synchronous, so it happens whatever else is being cancelled."""
    if agent.session.phase != "idle":
        agent.session.append(TurnEnded(ending[0], detail=ending[1]))
    agent.end_turn(turn)
    if not turn.deliveries and isinstance(result, outcome.Error):
        # It failed before it could claim: what waits would start the same turn again, for ever.
        turn.deliveries = agent.inbox.waiting()
        agent.inbox.drop(turn.deliveries, ending[1])
    for delivery in turn.deliveries:
        delivery.settle(result)


async def _flush(agent: "Agent") -> None:
    if isinstance(agent.journal, MemoryJournal):
        return
    error: Exception | None = None
    try:
        if await flush_closing(agent.journal):
            return
    except StoreError as failed:
        error = failed
    agent.registry.report(Owner(agent.path, agent.scope), "making its closing records durable", error)


def _reply(turn: Turn) -> Reply:
    message = turn.message or AssistantMessage(())
    outcomes = {"max-tokens": "truncated", "refusal": "refused"}
    return Reply(
        message.text,
        parts=message.parts,
        outcome=outcomes.get(turn.finish or "stop", "done"),
        usage=turn.usage,
        usage_tree=turn.usage + turn.tree,
        turn=turn.number,
    )


async def _run_steps(agent: "Agent", turn: Turn) -> None:
    step = 0
    while True:
        step += 1
        plan = await _plan_step(agent, turn, step)
        if step == 1 and not plan.messages:
            return
        agent.session.append(StepStarted())
        try:
            goes_on = await run_step(agent, turn, plan)
        finally:
            agent.session.append(StepEnded())
        if goes_on or agent.inbox.next_step:
            continue
        await agent.registry.around(TurnStopping(agent, turn=turn.number), at=agent.scope, innermost=_stop)
        if not agent.inbox.next_step:
            return


async def _stop(event: TurnStopping) -> bool:
    return True


async def _plan_step(agent: "Agent", turn: Turn, step: int) -> StepPlan:
    claimed = agent.inbox.claim(with_turn=step == 1)
    turn.deliveries += claimed
    assembly = await assemble(agent.registry, AssembleContext.of(agent))
    contexts = join_context_sections(render_context_sections(assembly))
    snapshot = project_snapshot(agent.session.snapshot, contexts)
    messages: Sequence[UserMessage] = [delivery.message for delivery in claimed]
    if snapshot is not None:
        messages = [*messages, snapshot]
    decision = await agent.registry.around(
        PreStep(agent, messages=tuple(messages), turn=turn.number, step=step), at=agent.scope, innermost=_enter
    )
    if isinstance(decision, Reject):
        raise TurnRefused(
            f"turn {turn.number} of agent {agent.path!r} was refused: {decision.reason}", reason=decision.reason
        )
    return StepPlan(render_prompt(assembly), assembly.tools, decision.messages, decision.starts_series)


async def _enter(event: PreStep) -> Enter | Reject:
    return Enter(tuple(event.messages))

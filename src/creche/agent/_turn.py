"""One turn: from a claim of messages to the last reply.

`run_turn` is a coroutine that anybody may run: the loop of an opened agent, or whoever spawned a child. It
raises nothing but cancellation from outside; how the turn came out is told to the deliveries it claimed, and
to the log. The order within a turn::

    turn/start
      claim, assemble, snapshot, PreStep, render
      step/start
        attempts: BuildRequest, prepare, system prompt, users, header, checkpoint, stream     (_request.py)
        calls and results                                                                     (tools)
      step/end                      ... again while calls were made or something is to join the next step
      TurnStopping
    turn/end
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, cast

import attrs
import outcome
import trio

from creche._util import is_cancelled
from creche.errors import (
    AgentError,
    CrecheError,
    InternalError,
    InvalidArgumentsError,
    LimitReachedError,
    TurnCancelled,
    TurnRefused,
)
from creche.messages import AssistantMessage, ToolSchema, UserMessage
from creche.models import FinishReason, Usage, model_error
from creche.prompt import AssembleContext, assemble, join_context_sections, render_context_sections, render_prompt
from creche.scope import Owner
from creche.session import (
    AssistantSaid,
    MemoryJournal,
    StepEnded,
    StepStarted,
    TurnEnded,
    TurnReason,
    TurnStarted,
    flush_closing,
    project_snapshot,
)
from creche.tools import OutputShape, visible

from ._asking import turns_above
from ._events import Enter, PreStep, Reject, TurnStopping
from ._inbox import Delivery
from ._request import run_step
from ._spec import Reply, ReplyOutcome

if TYPE_CHECKING:
    from ._agent import Agent

NO_USAGE = Usage()
MOST_SENT_BACK = 1
"""How often an answer that does not fit its schema is sent back to the model."""
_NOTHING_SAID = AssistantMessage(())


# They say nothing but what they are, so one value serves all records.
_TURN_STARTED, _STEP_STARTED, _STEP_ENDED = TurnStarted(), StepStarted(), StepEnded()


@attrs.define(eq=False)
class Turn:
    """What is known of the open turn."""

    number: int
    """Its number."""
    cancel_scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """Cancelled by `Agent.cancel`."""
    cause: str | None = None
    """Why it was cancelled; the first cause counts."""
    deliveries: list[Delivery] = attrs.field(factory=list[Delivery])
    """What it has claimed."""
    waits_for: "list[Agent] | None" = None
    """The agents whose replies its tasks wait for."""
    usage: Usage = NO_USAGE
    """What its own requests cost."""
    tree: Usage = NO_USAGE
    """What the subagents that it started cost."""
    message: AssistantMessage = _NOTHING_SAID
    """The last answer."""
    finish: FinishReason | None = None
    """Why that ended."""
    is_over: bool = False
    """Whether it has ended."""
    shape: OutputShape | None = None
    """What its answer has to look like: what the newest of its deliveries says that says anything."""
    value: object = None
    """The structured answer, once it is read."""
    sent_back: int = 0
    """How often an answer did not fit and was sent back."""
    is_truncated: bool = False
    """Whether an answer hit the limit of tokens; a later answer does not mend that."""

    def cancel(self, cause: str) -> None:
        """Cancel it, unless it is cancelled already."""
        if self.cause is None:
            self.cause = cause
            self.cancel_scope.cancel()

    def note(self, said: AssistantSaid) -> None:
        """Note an answer."""
        self.message, self.finish = said.message, said.finish
        self.usage = said.usage if self.usage is NO_USAGE else self.usage + said.usage
        if said.finish == "max-tokens":
            self.is_truncated = True


@attrs.define(eq=False)
class StepPlan:
    """Everything that a step brings to its request besides history."""

    prompt: str
    """The rendered system prompt."""
    tools: tuple[ToolSchema, ...]
    """The tools of the assembly."""
    inside: Collection[str]
    """Names of the tools that the prompt describes to programs."""
    messages: tuple[UserMessage, ...]
    """What joins the history."""
    starts_series: bool
    """Whether a wrapper of `PreStep` says so."""


@attrs.define(eq=False)
class Ending:
    """How a turn came out: for the log, and for who waits."""

    reason: TurnReason
    detail: str
    result: outcome.Outcome[Reply]


@trio.lowlevel.enable_ki_protection  # its synchronous stretches stay whole: Ctrl-C reaches the main task instead
async def run_turn(agent: "Agent") -> None:
    """Run one turn of an agent, to its end or until it is cancelled.

    How it came out is told to who waits for the messages it claimed. By then the log says so, too, though it may
    not be durable yet; it is when this returns, or a `Fault` at the agent's scope says that it is not.

    Raises:
      AgentError: A turn of the agent is open.
    """
    if agent._turn is not None:
        raise AgentError(
            f"turn {agent._turn.number} of agent {agent.path!r} is open, and turns run one at a time; "
            "send() puts a message behind it"
        )
    turn = agent._turn = Turn(agent.session.turn + 1)
    # What has ended is left out, so that agents that start each other do not keep each other alive.
    token = turns_above.set((*[each for each in turns_above.get() if not each.is_over], turn))
    ending: Ending | None = None
    try:
        agent.session.append(_TURN_STARTED)
        with turn.cancel_scope:
            await _run_steps(agent, turn)
            # A cancellation that no checkpoint has noticed is one all the same.
            if turn.cause is None:
                ending = _completed(turn)
    except BaseExceptionGroup as group:
        wrong = _beside_cancellation(group)
        if wrong is None:
            raise
        ending = _failed(agent, turn, wrong)
    except trio.Cancelled as stray:
        if is_cancelled():
            raise
        ending = _failed(agent, turn, stray)
    except Exception as error:  # noqa: BLE001 - told to whoever awaits the reply; the loop lives
        ending = _failed(agent, turn, error)
    finally:
        turns_above.reset(token)
        _close(agent, turn, ending or _cancelled(agent, turn))
        await make_durable(agent)  # noqa: ASYNC102 - it is shielded inside, with a deadline


def _completed(turn: Turn) -> Ending:
    how = _outcome(turn)
    reply = Reply(
        turn.message.text,
        parts=turn.message.parts,
        output=turn.value if how == "done" else None,
        outcome=how,
        usage=turn.usage,
        usage_tree=turn.usage if turn.tree is NO_USAGE else turn.usage + turn.tree,
        turn=turn.number,
    )
    return Ending("max-tokens" if turn.is_truncated else "completed", "", outcome.Value(reply))


def _outcome(turn: Turn) -> ReplyOutcome:
    return "truncated" if turn.is_truncated else "refused" if turn.finish == "refusal" else "done"


def _failed(agent: "Agent", turn: Turn, error: BaseException) -> Ending:
    if not isinstance(error, CrecheError | InternalError):
        internal = InternalError(f"turn {turn.number} of agent {agent.path!r} hit a bug: {error!r}")
        internal.__cause__ = error
        error = internal
    reasons: dict[type[Exception], TurnReason] = {TurnRefused: "blocked", LimitReachedError: "limit"}
    return Ending(reasons.get(type(error), "error"), str(error), outcome.Error(error))


def _cancelled(agent: "Agent", turn: Turn) -> Ending:
    cause = turn.cause or ("closed" if agent.parent is None else "parent")
    error = TurnCancelled(f"turn {turn.number} of agent {agent.path!r} was cancelled ({cause})", cause=cause)
    return Ending("cancelled", cause, outcome.Error(error))


def _beside_cancellation(group: BaseExceptionGroup[BaseException]) -> Exception | None:
    """Return what went wrong, out of its groups if it is one thing; ``None`` if the group must go on as it is."""
    rest = group.split(trio.Cancelled)[1]
    while rest is not None and len(rest.exceptions) == 1:
        only = rest.exceptions[0]
        if not isinstance(only, BaseExceptionGroup):
            return only if isinstance(only, Exception) else None
        rest = cast("BaseExceptionGroup[BaseException]", only)
    return cast("Exception", rest) if isinstance(rest, ExceptionGroup) else None


def _close(agent: "Agent", turn: Turn, ending: Ending) -> None:
    """Log the end and settle who waits. Synchronous, so it happens whatever else is being cancelled."""
    started = agent.session.turn == turn.number
    try:
        if started:
            agent.session.append(TurnEnded(ending.reason, detail=ending.detail))
    finally:
        agent._turn = None
        turn.is_over = True
        if not started and isinstance(ending.result, outcome.Error):
            # What waits would start the same turn again, for ever.
            agent._inbox.drop(agent._inbox.waiting(), ending.detail, ending.result.error)
        for delivery in turn.deliveries:
            delivery._settle(ending.result)
        agent._tell_change()


async def make_durable(agent: "Agent") -> None:
    """Make durable what closes a turn or an agent, also while everything else is being cancelled.

    It raises nothing: what is over is over. A `Fault` at the agent's scope says when it did not succeed.
    """
    if isinstance(agent.journal, MemoryJournal) or not len(agent.session):
        return
    failure: Exception | None = None
    with trio.CancelScope(shield=True):  # what is inside has a deadline
        try:
            if await flush_closing(agent.journal):
                return
        except Exception as error:  # noqa: BLE001 - reported below, whatever the store raises
            failure = error
    agent.registry.report(Owner(agent.path, agent.scope), "making its closing records durable", failure)


async def _run_steps(agent: "Agent", turn: Turn) -> None:
    step = 0
    while True:
        step += 1
        plan = await _plan_step(agent, turn, step)
        if step == 1 and not plan.messages:
            return
        agent.session.append(_STEP_STARTED)
        try:
            goes_on = await run_step(agent, turn, plan)
        finally:
            agent.session.append(_STEP_ENDED)
        if not goes_on and turn.shape is not None and _outcome(turn) == "done":
            _read_output(agent, turn, turn.shape)
        if not goes_on and not agent._inbox.next_step:
            if agent.registry.wraps(TurnStopping):
                await agent.registry.around(TurnStopping(agent, turn=turn.number), at=agent.scope, innermost=_stop)
            if not agent._inbox.next_step:
                return
        # What waits is not claimed for a turn that has been cancelled meanwhile.
        await trio.lowlevel.checkpoint_if_cancelled()


def _read_output(agent: "Agent", turn: Turn, shape: OutputShape) -> None:
    """Read the structured answer, or send it back. Synchronous.

    Raises:
      ModelError: It does not fit, and was sent back before.
    """
    try:
        turn.value = shape.read(turn.message.text)
    except InvalidArgumentsError as error:
        if turn.sent_back == MOST_SENT_BACK:
            text = f"the answer does not fit {shape.cls.__name__}: {error}"
            route = agent.session.last_route
            raise model_error("malformed", text, provider="" if route is None else route.provider) from None
        turn.sent_back += 1
        told = f"Your answer does not fit its schema: {error}. Answer again, with one JSON object and nothing else."
        agent._inbox.accept(agent, told, "next-step", source="structured-output", wakes=True)


async def _stop(event: TurnStopping) -> bool:
    return True


async def _plan_step(agent: "Agent", turn: Turn, step: int) -> StepPlan:
    claimed = agent._inbox.claim(with_turn=step == 1)
    turn.deliveries += claimed
    for delivery in claimed:
        turn.shape = delivery.shape or turn.shape
    # In the same synchronous stretch in which the prompt is made, before its wrappers: these are the tools it describes.
    inside = visible(agent.registry, agent.scope).keys()
    assembly = await assemble(agent.registry, AssembleContext.of(agent))
    contexts = join_context_sections(render_context_sections(assembly))
    snapshot = project_snapshot(agent.session.snapshot, contexts)
    messages = [delivery.message for delivery in claimed]
    if snapshot is not None:
        messages.append(snapshot)
    if not agent.registry.wraps(PreStep):
        return StepPlan(render_prompt(assembly), assembly.tools, inside, tuple(messages), starts_series=False)
    decision = await agent.registry.around(
        PreStep(agent, messages=tuple(messages), turn=turn.number, step=step), at=agent.scope, innermost=_enter
    )
    if isinstance(decision, Reject):
        raise TurnRefused(
            f"turn {turn.number} of agent {agent.path!r} was refused: {decision.reason}", reason=decision.reason
        )
    return StepPlan(render_prompt(assembly), assembly.tools, inside, decision.messages, decision.starts_series)


async def _enter(event: PreStep) -> Enter | Reject:
    return Enter(event.messages)

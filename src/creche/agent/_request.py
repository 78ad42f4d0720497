"""One step: a request, as often as it takes, and the calls that its answer makes.

Rule 1: rendering is outside of the attempts: a retry sees the same prompt and the same tools. What the log comes
to say before a request is decided by the pure functions of `creche.session`, once an attempt, so that it fits the
call as it was prepared this time.
Rule 2: an attempt is a request that the adapter was asked to stream, and has exactly one record, however it ends.
Rule 3: nothing of a request is in the log before its call is prepared, and nothing of it when the turn is
cancelled by then. From an answer with calls to their results there is no await outside of `run_calls`.
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING

import attrs
import trio

from creche.errors import ModelError, UnsupportedCapabilityError
from creche.messages import UserMessage
from creche.models import (
    Assembler,
    Finished,
    Model,
    ModelRequest,
    PreparedCall,
    RequestHead,
    Settings,
    UsageReported,
    model_error,
    require_provider,
)
from creche.session import (
    AssistantSaid,
    AttemptFailed,
    RetryPlanned,
    UserSaid,
    project_header,
    project_route,
    project_system_prompt,
    project_tools,
)
from creche.tools import CallStep, run_calls

from ._budget import take_request
from ._events import Again, BuildRequest, DeltaStreamed, GiveUp, LimiterAcquired, LimiterWaited, RecoverRequest
from ._inbox import Delivery
from ._stream import StreamRestarted

if TYPE_CHECKING:
    from ._agent import Agent
    from ._turn import StepPlan, Turn


async def run_step(agent: "Agent", turn: "Turn", plan: "StepPlan") -> bool:
    """Run the open step; tell whether the model is to see the results of calls. A call may have concluded the turn.

    Raises:
      ModelError: The last attempt failed, or failed in a way that no retry mends.
      LimitReachedError: There is no request left in a budget.
      StoreError: The log could not be made durable, so nothing was sent, or no call was begun.
    """
    said = await _ask_model(agent, turn, plan)
    agent.session.append(said)
    turn.note(said)
    calls = said.message.tool_calls
    if not calls:
        return False
    step = CallStep(
        offered=frozenset([schema.name for schema in plan.tools]),
        inside=plan.inside,
        counts=agent._tool_counts,
        checkpoint=agent.journal.checkpoint,
    )
    return not await run_calls(agent, agent.registry, calls, step=step, deliver=agent._deliver)


async def _ask_model(agent: "Agent", turn: "Turn", plan: "StepPlan") -> AssistantSaid:
    """Ask the model until it answers or gives up."""
    number = in_a_row = 0
    last: tuple[str, str] | None = None
    while True:
        number += 1
        model, prepared = await _prepare(agent, turn, number)
        route = (prepared.settings.provider, prepared.settings.model)
        in_a_row, last = (in_a_row + 1 if route == last else 1), route
        await trio.lowlevel.checkpoint_if_cancelled()
        request = _admit(agent, turn, plan, prepared, number)
        await agent.journal.checkpoint()
        take_request(agent.allowances, agent.path)
        try:
            return await _Attempt(agent, turn, model, request, number).run()
        except ModelError as error:
            failed = RecoverRequest(
                agent, error=error, settings=prepared.settings, attempt=number, retry=prepared.retry, in_a_row=in_a_row
            )
        decision = await agent.registry.around(failed, at=agent.scope, innermost=_as_policy_says)
        if isinstance(decision, GiveUp):
            raise failed.error
        agent.session.append(RetryPlanned(number, delay=decision.delay))
        for delivery in turn.deliveries:
            if delivery._sink is not None:
                delivery._sink(StreamRestarted(number))
        await trio.sleep(decision.delay)


async def _as_policy_says(event: RecoverRequest) -> Again | GiveUp:
    delay = event.retry.delay(event.error, event.in_a_row)
    return GiveUp() if delay is None else Again(delay)


async def _prepare(agent: "Agent", turn: "Turn", attempt: int) -> tuple[Model, PreparedCall]:
    proposed = agent.settings
    if turn.shape is not None:
        proposed = attrs.evolve(proposed, options=attrs.evolve(proposed.options, output_schema=turn.shape.schema))
    settings = proposed
    if agent.registry.wraps(BuildRequest):
        event = BuildRequest(agent, settings=proposed, attempt=attempt)
        settings = await agent.registry.around(event, at=agent.scope, innermost=_as_proposed)
    model = agent.route.model
    if settings.provider != model.provider:
        model = require_provider(settings.provider, agent.registry, agent.scope)
        agent.composer.keep_open(model)
    prepared = await model.prepare(settings)
    if settings.options.output_schema is not None and not prepared.capabilities.structured_output:
        raise UnsupportedCapabilityError(
            f"model {settings.model!r} of {settings.provider!r} is not known to hold its answer to a schema; "
            "ask for text, or say that it can with a ModelCard"
        )
    return model, prepared


async def _as_proposed(event: BuildRequest) -> Settings:
    return event.settings


# -------------------------------------------------------------------- what the log comes to say


def _admit(agent: "Agent", turn: "Turn", plan: "StepPlan", prepared: PreparedCall, attempt: int) -> ModelRequest:
    """Bring the log to say what the request will, and return the request. Synchronous."""
    log = agent.session
    starts_series = plan.starts_series and attempt == 1
    _admit_prompt(agent, plan, prepared, starts_series=starts_series or log.generation != agent._generation)
    if attempt == 1:
        unsaid = list(turn.deliveries)
        for message in plan.messages:
            log.append(UserSaid(message, delivery=_take_delivery(unsaid, message)))
    head = _admit_head(agent, plan, prepared, starts_series=starts_series)
    route = project_route(
        log.last_route,
        head.settings.provider,
        model=head.settings.model,
        context_window=prepared.context_window,
        system_prompt_update=prepared.capabilities.system_prompt_update,
    )
    if route is not None:
        log.append(route)
    return ModelRequest(
        head, messages=log.derive_messages(), agent_path=agent.path, session_id=log.id, history=log.history
    )


def _take_delivery(unsaid: list[Delivery], message: UserMessage) -> str | None:
    """Take out the delivery that a message came with and return its id; one message may have been sent twice."""
    for delivery in unsaid:
        if delivery.message is message:
            unsaid.remove(delivery)
            return delivery.id
    return None


def _admit_prompt(agent: "Agent", plan: "StepPlan", prepared: PreparedCall, *, starts_series: bool) -> None:
    log, last, capabilities = agent.session, agent.session.last_header, prepared.capabilities
    tools_differ = last is not None and capabilities.tool_update is None and last.head.tools != plan.tools
    for update in project_system_prompt(
        log.system_nodes,
        plan.prompt,
        in_history=capabilities.system_prompt_update == "in-history",
        starts_series=starts_series or tools_differ,
    ):
        log.append(update.fact, replace=update.replace)


def _admit_head(agent: "Agent", plan: "StepPlan", prepared: PreparedCall, *, starts_series: bool) -> RequestHead:
    """Note settings and tools if they changed, and return them."""
    log = agent.session
    last, generation = log.last_header, log.generation
    if last is not None and _says_the_same(last.head, prepared, plan):
        head = last.head  # the very value that the log has: it keeps its encoding
    else:
        head = RequestHead(prepared.settings, tools=plan.tools, defaults=prepared.defaults)
    header = project_header(
        last,
        head,
        first_request=not agent._has_asked,
        series_cause=starts_series or generation != agent._generation,
    )
    if header is not None:
        record = log.append(header)
        if prepared.capabilities.tool_update is not None:
            announcement = project_tools(last, header, record.seq)
            if announcement is not None:
                log.append(announcement)
    agent._generation, agent._has_asked = generation, True
    return head


def _says_the_same(head: RequestHead, prepared: PreparedCall, plan: "StepPlan") -> bool:
    # Without making a head to compare with, which most steps would throw away.
    return head.settings == prepared.settings and head.tools == plan.tools and head.defaults == prepared.defaults


# -------------------------------------------------------------------- one attempt


@attrs.define(eq=False)
class _Attempt:
    """One try at a request."""

    agent: "Agent"
    turn: "Turn"
    model: Model
    request: ModelRequest
    number: int

    def run(self) -> Awaitable[AssistantSaid]:
        """Stream one answer. What does not come to its end is logged before it is raised."""
        limiter = self.model.limiter
        return self._stream() if limiter is None else self._stream_within(limiter)

    async def _stream_within(self, limiter: trio.CapacityLimiter) -> AssistantSaid:
        agent, has_to_wait = self.agent, limiter.available_tokens < 1
        if has_to_wait:
            agent.registry.emit(LimiterWaited(agent.path, limit=limiter.total_tokens), at=agent.scope)
        # On behalf of the attempt: one task may run the requests of several agents, one inside the other.
        await limiter.acquire_on_behalf_of(self)
        try:
            if has_to_wait:
                agent.registry.emit(LimiterAcquired(agent.path), at=agent.scope)
            return await self._stream()
        finally:
            limiter.release_on_behalf_of(self)

    async def _stream(self) -> AssistantSaid:
        answer = Assembler(taken=self.agent.session.call_ids)
        sinks = [delivery._sink for delivery in self.turn.deliveries if delivery._sink is not None]
        registry = self.agent.registry
        try:
            async with self.model.stream(self.request) as chunks:
                async for chunk in chunks:
                    answer.feed(chunk)
                    if isinstance(chunk, Finished | UsageReported):
                        continue
                    for sink in sinks:
                        sink(chunk)
                    if registry.hears(DeltaStreamed):
                        streamed = DeltaStreamed(self.agent.path, delta=chunk, attempt=self.number)
                        registry.emit(streamed, at=self.agent.scope)
            return _answered(answer, self.model.provider)
        except BaseException as error:
            self._log_unfinished(answer, error)
            raise

    def _log_unfinished(self, answer: Assembler, error: BaseException) -> None:
        usage = answer.usage
        stream = answer.stream()
        log, turn = self.agent.session, self.turn
        if isinstance(error, Exception):
            code = str(error.code) if isinstance(error, ModelError) else "unknown"
            text = str(error) if isinstance(error, ModelError) else repr(error)
            fact: AttemptFailed | AssistantSaid = AttemptFailed(text, code=code, stream=stream, usage=usage)
        else:
            message = answer.message(cut=True)
            if message.parts:
                fact = AssistantSaid(message, stream=stream, usage=usage)
            else:
                fact = AttemptFailed("cancelled", code="cancelled", stream=stream, usage=usage)
        log.append(fact)
        turn.usage += usage


def _answered(answer: Assembler, provider: str) -> AssistantSaid:
    """Return what the model said, or raise that it is no answer."""
    finished = answer.finished
    if finished is None:
        raise model_error("stream-cut", "the answer ended before it was complete", provider=provider)
    message = answer.message()
    if finished.reason in ("stop", "tool-calls") and not message.text.strip() and not message.tool_calls:
        raise model_error("empty-response", "the model answered nothing", provider=provider)
    return AssistantSaid(message, stream=answer.stream(), finish=finished.reason, usage=finished.usage)

"""One step: a request, as often as it takes, and the calls that its answer makes.

Rendering is outside of the attempts: a retry sees the same prompt and the same tools. What the log comes to
say before a request is decided by the pure functions of `creche.session`, once an attempt, so that it fits
the call as it was prepared this time.
"""

from typing import TYPE_CHECKING

import trio

from creche.errors import ModelError
from creche.models import (
    Assembler,
    Finished,
    Model,
    ModelRequest,
    PreparedCall,
    RequestHead,
    Settings,
    Usage,
    model_error,
    resolve_model,
)
from creche.session import (
    AssistantSaid,
    AttemptFailed,
    RetryPlanned,
    RouteNoted,
    UserSaid,
    project_header,
    project_route,
    project_system_prompt,
    project_tools,
)
from creche.tools import run_calls

from ._events import BuildRequest, DeltaStreamed, LimiterWaited
from ._stream import StreamRestarted

if TYPE_CHECKING:
    from ._agent import Agent
    from ._turn import StepPlan, Turn


async def run_step(agent: "Agent", turn: "Turn", plan: "StepPlan") -> bool:
    """Run the open step; tell whether it made calls, so that the model is to see their results.

    Raises:
      ModelError: The last attempt failed, or failed in a way that no retry mends.
      StoreError: The log could not be made durable, so nothing was sent.
    """
    attempt = 0
    while True:
        attempt += 1
        model, prepared = await _prepare(agent, attempt)
        request = _admit(agent, turn, plan, prepared, attempt)
        await agent.journal.checkpoint()
        try:
            answer = await _attempt(agent, turn, model, request, attempt)
            break
        except ModelError as error:
            delay = prepared.retry.delay(error, attempt)
            if delay is None:
                raise
            agent.session.append(RetryPlanned(attempt, delay=delay))
            for delivery in turn.deliveries:
                if delivery.sink is not None:
                    delivery.sink(StreamRestarted(attempt))
            await trio.sleep(delay)
    finished = answer.finished
    assert finished is not None, "an attempt that succeeds has finished"
    message = answer.message()
    agent.session.append(
        AssistantSaid(message, stream=answer.stream(), finish=finished.reason, usage=finished.usage)
    )
    turn.message, turn.finish = message, finished.reason
    turn.usage += finished.usage
    calls = message.tool_calls
    if calls:
        # Entered in the same synchronous stretch: from here on every call gets its result.
        await run_calls(
            agent, agent.registry, calls, counts=agent.tool_counts, checkpoint=agent.journal.checkpoint
        )
    return bool(calls)


async def _prepare(agent: "Agent", attempt: int) -> tuple[Model, PreparedCall]:
    event = BuildRequest(agent, settings=agent.settings, attempt=attempt)
    settings = await agent.registry.around(event, at=agent.scope, innermost=_as_proposed)
    model = agent.route.model
    if settings.provider != model.provider:
        model = resolve_model(f"{settings.provider}:{settings.model}", agent.registry, agent.scope).model
    return model, await model.prepare(settings)


async def _as_proposed(event: BuildRequest) -> Settings:
    return event.settings


def _admit(
    agent: "Agent", turn: "Turn", plan: "StepPlan", prepared: PreparedCall, attempt: int
) -> ModelRequest:
    """Bring the log to say what the request will, and return the request. Synchronous: all of it or a refusal."""
    log, last = agent.session, agent.session.last_header
    capabilities = prepared.capabilities
    asked = plan.starts_series and attempt == 1
    tools_differ = last is not None and capabilities.tool_update is None and last.head.tools != plan.tools
    for update in project_system_prompt(
        log.system_nodes,
        plan.prompt,
        in_history=capabilities.system_prompt_update == "in-history",
        starts_series=asked or log.generation != agent.generation or tools_differ,
    ):
        log.append(update.fact, replace=update.replace)
    if attempt == 1:
        deliveries = {id(delivery.message): delivery.id for delivery in turn.deliveries}
        for message in plan.messages:
            log.append(UserSaid(message, delivery=deliveries.get(id(message))))
    head = _head(agent, plan, prepared)
    generation = log.generation
    header = project_header(
        last, head, first_request=not agent.has_asked, series_cause=asked or generation != agent.generation
    )
    if header is not None:
        record = log.append(header)
        announcement = project_tools(last, header, record.seq) if capabilities.tool_update is not None else None
        if announcement is not None:
            log.append(announcement)
    agent.generation, agent.has_asked = generation, True
    route = RouteNoted(
        head.settings.provider,
        model=head.settings.model,
        context_window=prepared.context_window,
        system_prompt_update=capabilities.system_prompt_update,
    )
    if project_route(log.last_route, route) is not None:
        log.append(route)
    return ModelRequest(head, messages=log.derive_messages(), agent_path=agent.path, session_id=log.id)


def _head(agent: "Agent", plan: "StepPlan", prepared: PreparedCall) -> RequestHead:
    """Return settings and tools, as the very value that the log has if nothing changed: it keeps its encoding."""
    head = RequestHead(prepared.settings, tools=plan.tools, defaults=prepared.defaults)
    last = agent.session.last_header
    return last.head if last is not None and last.head == head else head


async def _attempt(
    agent: "Agent", turn: "Turn", model: Model, request: ModelRequest, attempt: int
) -> Assembler:
    """Stream one answer. What does not come to its end is logged here, before it is raised."""
    answer = Assembler()
    try:
        if model.limiter is None:
            await _stream(agent, turn, model, request, attempt, answer)
        else:
            if model.limiter.available_tokens < 1:
                agent.registry.emit(LimiterWaited(agent.path, limit=model.limiter.total_tokens), at=agent.scope)
            # On behalf of the request: one task may run the requests of several agents, one inside the other.
            await model.limiter.acquire_on_behalf_of(request)
            try:
                await _stream(agent, turn, model, request, attempt, answer)
            finally:
                model.limiter.release_on_behalf_of(request)
        _check(answer, model)
    except BaseException as error:
        _log_unfinished(agent, turn, answer, error)
        raise
    return answer


async def _stream(
    agent: "Agent", turn: "Turn", model: Model, request: ModelRequest, attempt: int, answer: Assembler
) -> None:
    sinks = [delivery.sink for delivery in turn.deliveries if delivery.sink is not None]
    async with model.stream(request) as chunks:
        async for chunk in chunks:
            answer.feed(chunk)
            if isinstance(chunk, Finished):
                continue
            for sink in sinks:
                sink(chunk)
            if agent.registry.hears(DeltaStreamed):
                agent.registry.emit(DeltaStreamed(agent.path, delta=chunk, attempt=attempt), at=agent.scope)


def _check(answer: Assembler, model: Model) -> None:
    if answer.finished is None:
        raise model_error("stream-cut", "the answer ended before it was complete", provider=model.provider)
    message = answer.message()
    if answer.finished.reason in ("stop", "tool-calls") and not message.text and not message.tool_calls:
        raise model_error("empty-response", "the model answered nothing", provider=model.provider)


def _log_unfinished(agent: "Agent", turn: "Turn", answer: Assembler, error: BaseException) -> None:
    usage = answer.finished.usage if answer.finished is not None else Usage(1)
    turn.usage += usage
    stream = answer.stream()
    if isinstance(error, ModelError):
        agent.session.append(AttemptFailed(str(error), code=error.code, stream=stream, usage=usage))
    elif isinstance(error, Exception):
        agent.session.append(AttemptFailed(repr(error), code="unknown", stream=stream, usage=usage))
    else:
        message = answer.message(cut=True)
        if message.parts:
            turn.message = message
            agent.session.append(AssistantSaid(message, stream=stream, usage=usage))
        else:
            agent.session.append(AttemptFailed("cancelled", code="cancelled", stream=stream, usage=usage))

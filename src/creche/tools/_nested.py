"""Calls that are part of another call, such as those of a program."""

from collections.abc import Awaitable

from creche.errors import AgentError
from creche.messages import ImagePart, TextPart, ToolCall, ToolMessage, UserMessage
from creche.prompt import AgentView
from creche.session import CodeCalled, CodeReturned

from ._context import DEFERRED_SOURCE, CallStep, ToolContext
from ._lane import Lane
from ._limit import cut_parts
from ._pipeline import execute_call
from ._stages import ToolOutcome, unfinished
from ._visible import VISIBLE


def call_tool(context: ToolContext, name: str, arguments: str) -> Awaitable[ToolOutcome]:
    """Call a tool as a part of a call that runs. It goes through the same pipeline as one of the model.

    Several may be under way at once, each awaited in a task of its own; they begin in the order in which this was called, and
    overlap as their tools allow. Each has its two records in the log. Images, which only a model can see, and what the
    call defers join the history after the results of the step.

    Args:
      context: The call that this one is part of.
      name: Name of the tool, as the calling agent sees it.
      arguments: The arguments, as JSON text.

    Returns:
      What gives the outcome, to be awaited at once; every failure of the call is one. It raises `StoreError` if the log
      could not be made durable, so that the body did not begin.

    Raises:
      AgentError: There is no step that the call could be part of.
    """
    agent, step = context.agent, context.step
    if agent is None or step is None:
        raise AgentError(
            f"call {context.call_id!r} is not part of a step of an agent, so no other call can be part of it"
        )
    registry = context.registry

    def overlaps() -> bool:
        tool = registry.read(VISIBLE, agent.scope).tools.get(name)
        return tool is not None and tool.parallel

    lane = context._lane = context._lane or Lane()
    place = lane.join(overlaps)
    number = step.counts[name] = step.counts.get(name, 0) + 1
    inner = ToolContext(
        agent,
        registry=registry,
        call_id=f"{context.call_id}:code:{lane.made}",
        name=name,
        number=number,
        parent=context,
        step=step,
    )
    context._deferred.append(inner)
    call = ToolCall(inner.call_id, name=name, arguments=arguments)

    async def finish() -> ToolOutcome:
        async with lane.turn(place):
            outcome = await _run(inner, agent, step, call)
        _hand_on(inner, context, outcome)
        return outcome

    return finish()


def _hand_on(inner: ToolContext, context: ToolContext, outcome: ToolOutcome) -> None:
    """Give what came besides the outcome to the call that it is part of."""
    if outcome.is_error:
        inner.concluded = False
    elif inner.concluded:
        context.conclude()
    images = [part for part in outcome.parts if isinstance(part, ImagePart)]
    if images:
        about = TextPart(f"What {inner.name!r} returned in call {inner.call_id!r}:")
        inner.defer(UserMessage((about, *images), source=DEFERRED_SOURCE))


async def _run(inner: ToolContext, agent: AgentView, step: CallStep, call: ToolCall) -> ToolOutcome:
    assert inner.parent is not None, "it is part of a call"
    parent, outcome = inner.parent.call_id, unfinished(None)
    agent.session.append(CodeCalled(call.id, parent=parent, name=call.name, arguments=call.arguments))
    try:
        await step.checkpoint()
        outcome = await execute_call(inner.registry, agent.scope, call, inner)
        return outcome
    except BaseException:
        outcome = unfinished(inner)
        raise
    finally:
        message = ToolMessage(call.id, name=call.name, parts=cut_parts(outcome.parts), is_error=outcome.is_error)
        agent.session.append(CodeReturned(message, parent=parent, code=outcome.code))

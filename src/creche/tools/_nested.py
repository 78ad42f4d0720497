"""Calls that are part of another call, such as those of a program.

One goes: take the next place, wait for its turn, its record, the pipeline, the record of its result, and what came besides
to the call that it is part of.
"""

from collections.abc import Awaitable, Mapping

import trio

from creche._util import canonical_json
from creche.errors import AgentError
from creche.messages import ImagePart, TextPart, ToolCall, ToolMessage, UserMessage
from creche.prompt import AgentView
from creche.session import CodeCalled, CodeReturned

from ._context import DEFERRED_SOURCE, CallStep, ToolContext, close_with, end_call, gate_of, is_over, take_in
from ._cut import cut_parts
from ._pipeline import execute_call
from ._stages import ToolOutcome, unfinished
from ._visible import VISIBLE


async def call_tool(context: ToolContext, name: str, arguments: Mapping[str, object] | str) -> ToolOutcome:
    """Call a tool as a part of a call whose body runs. It goes through the same pipeline as a call of the model.

    Several may be under way at once, in tasks of their own; they overlap as their tools allow. Each has its two records in
    the log. Images, which only a model can see, and what the call defers join the history after the results of the step.

    Args:
      context: The call that this one is part of.
      name: Name of the tool, as the calling agent sees it.
      arguments: The arguments as JSON values, or as JSON text.

    Returns:
      The outcome; every failure is one.

    Raises:
      AgentError: The call that this one is to be part of is over, or part of no step.
      StoreError: The log could not be made durable, so the body did not begin.
    """
    text = arguments if isinstance(arguments, str) else canonical_json(arguments)
    return await begin_call(context, name, text)


def begin_call(context: ToolContext, name: str, arguments: str) -> Awaitable[ToolOutcome]:
    """Take the next place for a call as of `call_tool`. Synchronous, so the order is that in which this is called.

    What it returns has to be awaited, in a task of its own and at once: the calls after it wait until then.

    Raises:
      AgentError: As for `call_tool`.
    """
    agent, step = context.agent, context.step
    if agent is None or step is None:
        raise AgentError(
            f"call {context.call_id!r} is not part of a step of an agent, so no other call can be part of it"
        )
    if is_over(context):
        raise AgentError(f"call {context.call_id!r} is over, so no other call can be part of it any more")
    registry = context.registry

    def overlaps() -> bool:
        tool = registry.read(VISIBLE, agent.scope).tools.get(name)
        return tool is not None and tool.parallel

    gate = gate_of(context)
    place = gate.join(overlaps)
    inner = ToolContext(
        agent,
        registry=registry,
        call_id=f"{context.call_id}:code:{gate.made}",
        name=name,
        number=step.count(name),
        parent=context,
        step=step,
    )
    take_in(context, inner)
    call = ToolCall(inner.call_id, name=name, arguments=arguments)

    async def finish() -> ToolOutcome:
        with trio.CancelScope() as running:
            async with gate.turn(place):
                outcome = await _run(inner, context, agent, step, call, running=running)
            _hand_on(inner, context, outcome)
            return outcome
        return unfinished(inner)  # what it is part of is over

    return finish()


async def _run(
    inner: ToolContext,
    context: ToolContext,
    agent: AgentView,
    step: CallStep,
    call: ToolCall,
    *,
    running: trio.CancelScope,
) -> ToolOutcome:
    if is_over(context):
        return unfinished(inner)
    outcome: ToolOutcome | None = None

    def close() -> None:
        """Record the result; from outside if what it is part of ends first, and then it is cancelled."""
        if is_over(inner):
            return
        end_call(inner)
        known = unfinished(inner) if outcome is None else outcome
        message = ToolMessage(call.id, name=call.name, parts=cut_parts(known.parts), is_error=known.is_error)
        agent.session.append(CodeReturned(message, parent=context.call_id, code=known.code))
        if outcome is None:
            running.cancel()

    agent.session.append(CodeCalled(call.id, parent=context.call_id, name=call.name, arguments=call.arguments))
    close_with(context, close)
    try:
        await step.checkpoint()
        outcome = await execute_call(inner.registry, agent.scope, call, inner)
        return outcome
    finally:
        close()


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

"""The calls of one answer: which overlap, and how each gets its record.

Rule 1: from the record that carries a call to that call's result there is one try/finally: `run_calls` is
entered in the same synchronous stretch in which the answer was logged, and when it is left, however it is
left, every call has its result.
Rule 2: a call record stands before its body begins, and is durable by then. A call without one never started,
and nothing starts after the turn was cancelled.
Rule 3: results are committed in the model's order, as soon as all before them are there.
Rule 4: parallel calls in a row overlap; any other call runs alone, after those before it and before those
after it. A lone call runs in the step's own task.
"""

from collections.abc import Callable, Iterator, Sequence

import attrs
import trio

from creche.messages import ToolCall, ToolMessage, UserMessage
from creche.prompt import AgentView
from creche.scope import Registry
from creche.session import ToolCalled, ToolReturned

from ._context import CallStep, ToolContext, end_call
from ._cut import LONGEST_RESULT, fit_result, text_length
from ._pipeline import execute_call
from ._stages import ToolOutcome, unfinished
from ._visible import VISIBLE


@attrs.define(eq=False)
class _Slot:
    """One call of the batch."""

    call: ToolCall
    context: ToolContext | None = None
    """What its body is given; there from its record on."""
    outcome: ToolOutcome | None = None
    """How it came out; there as soon as that is known, which may be before its turn in the log."""


async def run_calls(
    agent: AgentView,
    registry: Registry,
    calls: Sequence[ToolCall],
    *,
    step: CallStep,
    deliver: Callable[[UserMessage], object],
) -> bool:
    """Run the calls of the answer that was just logged, and log each call and each result.

    However it is left, every call has its result: those that were cancelled or never started, too.

    Args:
      agent: Who calls; its log is in the phase that follows an answer.
      registry: The shared registry.
      calls: The calls, in the model's order.
      step: What they share.
      deliver: Called with each message that a body deferred, when all results are in the log. Synchronous, and it raises
        nothing.

    Returns:
      Whether one of them concluded the turn.

    Raises:
      StoreError: The checkpoint failed, so the bodies that waited for it did not begin.
    """
    batch = _Batch(agent, registry, [_Slot(call) for call in calls], step)
    try:
        for group in batch.groups():
            await trio.lowlevel.checkpoint_if_cancelled()
            batch.record(group)
            await step.checkpoint()
            await batch.run(group)
    finally:
        batch.settle()
        for message in batch.deferred():
            deliver(message)
    return batch.concluded


@attrs.define(eq=False)
class _Batch:
    """The calls of one answer, and how far their results have come in the log."""

    agent: AgentView
    registry: Registry
    slots: list[_Slot]
    step: CallStep
    next: int = 0
    """Index of the first slot without a result in the log."""
    concluded: bool = False
    """Whether a call that succeeded concluded the turn."""

    def groups(self) -> Iterator[list[_Slot]]:
        """Yield the slots that may overlap; what is parallel is asked when its turn comes."""
        start = 0
        while start < len(self.slots):
            end = start + 1
            if self._overlaps(self.slots[start]):
                while end < len(self.slots) and self._overlaps(self.slots[end]):
                    end += 1
            yield self.slots[start:end]
            start = end

    def _overlaps(self, slot: _Slot) -> bool:
        tool = self.registry.read(VISIBLE, self.agent.scope).direct.get(slot.call.name)
        return tool is not None and tool.parallel

    def record(self, group: list[_Slot]) -> None:
        """Log that the calls of a group are about to run."""
        for slot in group:
            call = slot.call
            slot.context = ToolContext(
                self.agent,
                registry=self.registry,
                call_id=call.id,
                name=call.name,
                number=self.step.count(call.name),
                step=self.step,
            )
            self.agent.session.append(ToolCalled(call.id, name=call.name, arguments=call.arguments))

    async def run(self, group: list[_Slot]) -> None:
        """Run a group to its end."""
        if len(group) == 1:
            await self._run_one(group[0])
            return
        async with trio.open_nursery() as nursery:
            for slot in group:
                nursery.start_soon(self._run_one, slot, name=f"{self.agent.path} {slot.call.name}")

    async def _run_one(self, slot: _Slot) -> None:
        agent, call, context = self.agent, slot.call, slot.context
        assert context is not None, "it was recorded"
        tool = self.registry.read(VISIBLE, agent.scope).direct.get(call.name)
        limit = LONGEST_RESULT if tool is None else tool.longest_result
        outcome = await execute_call(self.registry, agent.scope, call, context)
        if text_length(outcome.parts) > limit:
            parts = await fit_result(self.registry, agent.scope, outcome.parts, limit=limit)
            outcome = attrs.evolve(outcome, parts=parts)
        slot.outcome = outcome
        self._commit()

    def _commit(self) -> None:
        """Log what has come out, as far as everything before it has."""
        while self.next < len(self.slots):
            slot = self.slots[self.next]
            if slot.outcome is None:
                return
            self._log(slot, slot.outcome)

    def settle(self) -> None:
        """Give every call that has no result one, in the model's order."""
        for slot in self.slots[self.next :]:
            self._log(slot, slot.outcome or unfinished(slot.context))

    def _log(self, slot: _Slot, outcome: ToolOutcome) -> None:
        message = ToolMessage(slot.call.id, name=slot.call.name, parts=outcome.parts, is_error=outcome.is_error)
        context = slot.context
        if context is not None:
            end_call(context)
            self.concluded = self.concluded or (context.concluded and not outcome.is_error)
        self.agent.session.append(ToolReturned(message, code=outcome.code))
        self.next += 1

    def deferred(self) -> Iterator[UserMessage]:
        """Yield what the bodies deferred, in the model's order."""
        for slot in self.slots:
            if slot.context is not None:
                yield from slot.context.deferred

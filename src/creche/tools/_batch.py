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

from collections.abc import Awaitable, Callable, Iterator, Sequence

import attrs
import trio

from creche.messages import ToolCall, ToolMessage
from creche.prompt import AgentView
from creche.scope import Registry
from creche.session import ToolCalled, ToolReturned

from ._pipeline import execute_call
from ._stages import ToolOutcome, failure
from ._tool import ToolContext
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
    counts: dict[str, int],
    checkpoint: Callable[[], Awaitable[None]],
) -> None:
    """Run the calls of the answer that was just logged, and log each call and each result.

    However it is left, every call has its result: those that were cancelled or never started, too.

    Args:
      agent: Who calls; its log is in the phase that follows an answer.
      registry: The shared registry.
      calls: The calls, in the model's order.
      counts: How often the agent has called each tool; added to, in the model's order.
      checkpoint: Awaited before bodies begin.

    Raises:
      StoreError: The checkpoint failed, so the bodies that waited for it did not begin.
    """
    batch = _Batch(agent, registry, [_Slot(call) for call in calls], counts)
    try:
        for group in batch.groups():
            await trio.lowlevel.checkpoint_if_cancelled()
            batch.record(group)
            await checkpoint()
            await batch.run(group)
    finally:
        batch.settle()


@attrs.define(eq=False)
class _Batch:
    """The calls of one answer, and how far their results have come in the log."""

    agent: AgentView
    registry: Registry
    slots: list[_Slot]
    counts: dict[str, int]
    next: int = 0
    """Index of the first slot without a result in the log."""

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
        tool = self.registry.read(VISIBLE, self.agent.scope).tools.get(slot.call.name)
        return tool is not None and tool.parallel

    def record(self, group: list[_Slot]) -> None:
        """Log that the calls of a group are about to run."""
        for slot in group:
            call = slot.call
            number = self.counts[call.name] = self.counts.get(call.name, 0) + 1
            slot.context = ToolContext(self.agent, registry=self.registry, call_id=call.id, number=number)
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
        assert slot.context is not None, "it was recorded"
        slot.outcome = await execute_call(self.registry, self.agent.scope, slot.call, slot.context)
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
            self._log(slot, slot.outcome or _unfinished(slot))

    def _log(self, slot: _Slot, outcome: ToolOutcome) -> None:
        message = ToolMessage(slot.call.id, name=slot.call.name, parts=outcome.parts, is_error=outcome.is_error)
        self.next += 1
        self.agent.session.append(ToolReturned(message, code=outcome.code))


def _unfinished(slot: _Slot) -> ToolOutcome:
    if slot.context is None or not slot.context.began:
        return failure("not-started", "the call was not started; the turn ended before it")
    if slot.context.abandoned:
        return failure("abandoned", "the call was cancelled and its thread left behind; it may still run")
    return failure("cancelled", "the call was cancelled while it ran; what it had done until then stands")

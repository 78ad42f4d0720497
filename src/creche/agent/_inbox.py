"""Messages on their way to an agent, in two lanes.

``next-turn``: each waits for a turn of its own. ``next-step``: all of them join the next step, of this turn
or of the one that comes. Every change is in the log before it is here, so what was accepted survives.
"""

from collections.abc import Callable

import attrs
import outcome
import trio

from creche.errors import AgentError
from creche.messages import UserMessage
from creche.models import Delta
from creche.session import Lane, MessageAccepted, MessagesClaimed, MessagesDropped, SessionLog

from ._spec import Reply
from ._stream import StreamRestarted


@attrs.define(eq=False)
class Delivery:
    """One message on its way, with the slot for its reply."""

    id: str
    """Its id, unique in its session."""
    message: UserMessage
    """What it says."""
    lane: Lane
    """Where it waits."""
    wakes: bool = True
    """Whether it starts a turn."""
    claimed: bool = False
    """Whether a turn has taken it."""
    sink: Callable[[Delta | StreamRestarted], None] | None = None
    """Called with each delta of the answers in the turn that claims it."""
    when_settled: Callable[[], None] | None = None
    """Called when it is settled."""
    result: outcome.Outcome[Reply] | None = None
    """The reply or the error, once settled."""
    _settled: trio.Event | None = None

    def settle(self, result: outcome.Outcome[Reply]) -> None:
        """Give it its reply; the first one counts."""
        if self.result is None:
            self.result = result
            if self._settled is not None:
                self._settled.set()
            if self.when_settled is not None:
                self.when_settled()

    def peek(self) -> Reply:
        """Return the reply of a settled message, or raise its error, any number of times."""
        match self.result:
            case outcome.Value(reply):
                return reply
            case outcome.Error(error):
                raise error
            case _:
                raise AgentError("the message is not answered yet; await its reply()")

    async def reply(self) -> Reply:
        """Wait for the reply; cancelling this leaves the message on its way.

        Raises:
          Exception: What `Agent.ask` raises.
        """
        await self.wait()
        return self.peek()

    async def wait(self) -> None:
        """Wait until it is settled; at least one checkpoint."""
        if self.result is not None:
            await trio.lowlevel.checkpoint()
            return
        if self._settled is None:
            self._settled = trio.Event()
        await self._settled.wait()


@attrs.define(eq=False)
class Inbox:
    """What an agent has accepted and not yet claimed."""

    _session: SessionLog
    next_turn: list[Delivery] = attrs.field(factory=list)
    """Each waits for a turn of its own."""
    next_step: list[Delivery] = attrs.field(factory=list)
    """All of them join the next step."""

    def accept(self, message: UserMessage, lane: Lane, *, wakes: bool) -> Delivery:
        """Log a message and take it in. Synchronous."""
        delivery = Delivery(f"m{len(self._session)}", message, lane, wakes)
        self._session.append(MessageAccepted(delivery.id, lane=lane, message=message))
        (self.next_turn if lane == "next-turn" else self.next_step).append(delivery)
        return delivery

    def claim(self, *, with_turn: bool) -> list[Delivery]:
        """Take what the coming step is to see: all of the next-step lane, and one of the other at a turn's start."""
        claimed = [*self.next_step, *(self.next_turn[:1] if with_turn else ())]
        if claimed:
            self._session.append(MessagesClaimed(tuple([delivery.id for delivery in claimed])))
            self.next_step.clear()
            if with_turn:
                del self.next_turn[:1]
            for delivery in claimed:
                delivery.claimed = True
        return claimed

    def drop(self, deliveries: list[Delivery], cause: str) -> None:
        """Take messages out unread. Synchronous; their waiters are the caller's to settle."""
        if deliveries:
            self._session.append(MessagesDropped(tuple([delivery.id for delivery in deliveries]), cause=cause))
            self.next_turn = [each for each in self.next_turn if each not in deliveries]
            self.next_step = [each for each in self.next_step if each not in deliveries]

    def waiting(self) -> list[Delivery]:
        """Return everything not yet claimed, in the order in which it would be."""
        return [*self.next_step, *self.next_turn]

"""Messages on their way to an agent, in two lanes.

Rule 1: ``next-turn``: each waits for a turn of its own. ``next-step``: all of them join the next step, of this
turn or of the one that comes.
Rule 2: a change is in the log before it is here, so what was accepted survives, and what the log refuses has not
happened.
Rule 3: whatever takes a message out settles it, and that once: the turn that claimed it, or whoever dropped it.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import attrs
import outcome
import trio

from creche._util import NoPublicConstructor, check_in_trio, final
from creche.errors import AgentClosedError, AgentError
from creche.messages import Part, UserMessage
from creche.models import Delta
from creche.session import Lane, MessageAccepted, MessagesClaimed, MessagesDropped, SessionLog
from creche.tools import OutputShape

from ._asking import begin_wait, end_wait
from ._spec import Reply
from ._stream import StreamRestarted

if TYPE_CHECKING:
    from ._agent import Agent

Said = str | UserMessage | Iterable[Part]
"""What can be said to an agent: a text, parts, or a whole message."""


@final
@attrs.define(eq=False)
class Delivery(metaclass=NoPublicConstructor):
    """One message on its way to an agent, with the slot for its reply."""

    id: str
    """Its id, unique in its session."""
    message: UserMessage
    """What it says."""
    lane: Lane
    """Where it waits."""
    wakes: bool
    """Whether it starts a turn."""
    _agent: "Agent" = attrs.field(alias="agent", repr=False)
    shape: OutputShape | None = attrs.field(default=None, repr=False)
    """What its answer has to look like."""
    claimed: bool = attrs.field(default=False, init=False)
    """Whether a turn has taken it."""
    result: outcome.Outcome[Reply] | None = attrs.field(default=None, init=False)
    """The reply or the error, once it is settled."""
    _sink: Callable[[Delta | StreamRestarted], None] | None = attrs.field(default=None, init=False, repr=False)
    _when_settled: Callable[[], None] | None = attrs.field(default=None, init=False, repr=False)
    _settled: trio.Event | None = attrs.field(default=None, init=False, repr=False)

    async def reply(self) -> Reply:
        """Wait for the reply; at least one checkpoint.

        Any number of tasks may wait for it, any number of times. Cancelling one of them leaves the message on its
        way; `Agent.ask` takes it back instead.

        Raises:
          AgentError: The message can be answered only after a turn that the caller works for.
          Exception: What `Agent.ask` raises.
        """
        turns = () if self.result is not None else begin_wait(self._agent)
        try:
            await self._wait()
        finally:
            end_wait(self._agent, turns)
        return self.reply_nowait()

    def reply_nowait(self) -> Reply:
        """Return the reply of a settled message, or raise its error.

        Raises:
          AgentError: It is not settled yet.
          Exception: What `Agent.ask` raises.
        """
        result = self.result
        if isinstance(result, outcome.Value):
            reply: Reply = result.value
            return reply
        if isinstance(result, outcome.Error):
            raise result.error
        raise AgentError("the message is not answered yet; await its reply()")

    async def _wait(self) -> None:
        if self.result is not None:
            await trio.lowlevel.checkpoint()
            return
        if self._settled is None:
            self._settled = trio.Event()
        await self._settled.wait()

    @trio.lowlevel.enable_ki_protection
    def _settle(self, result: outcome.Outcome[Reply]) -> None:
        self.result = result
        if self._settled is not None:
            self._settled.set()
        if self._when_settled is not None:
            self._when_settled()


@attrs.define(eq=False)
class Inbox:
    """What an agent has accepted and not yet claimed."""

    _session: SessionLog
    next_turn: list[Delivery] = attrs.field(factory=list[Delivery])
    """Each waits for a turn of its own."""
    next_step: list[Delivery] = attrs.field(factory=list[Delivery])
    """All of them join the next step."""
    closed: bool = False
    """Whether it takes nothing more."""
    _arrived: trio.Event | None = None

    @property
    def has_work(self) -> bool:
        """Whether something waits that starts a turn."""
        return bool(self.next_turn) or any([delivery.wakes for delivery in self.next_step])  # noqa: C419 - faster

    async def wait_for_work(self) -> None:
        """Wait until something has come that may start a turn."""
        self._arrived = trio.Event()
        await self._arrived.wait()

    def close(self) -> None:
        """Take nothing more, and wake who waits for work. Synchronous."""
        self.closed = True
        if self._arrived is not None:
            self._arrived.set()

    @trio.lowlevel.enable_ki_protection
    def accept(
        self,
        agent: "Agent",
        message: Said,
        lane: Lane,
        *,
        source: str,
        wakes: bool,
        shape: OutputShape | None = None,
    ) -> Delivery:
        """Log a message to the inbox's agent and take it in. Synchronous.

        Raises:
          AgentClosedError: It takes nothing more.
          AgentError: There is nothing in it, or nobody who says it.
          PortalError: This is not trio's thread, so nobody would be woken.
        """
        check_in_trio(f"agent {agent.path!r}", "write await portal.call(agent.send, ...)")
        if self.closed:
            raise self.closed_error()
        said = message if isinstance(message, UserMessage) else UserMessage(message, source=source)
        if not said.parts or not said.source:
            raise AgentError(f"a message needs a source and at least one part: {said!r}")
        delivery = Delivery._create(f"m{len(self._session)}", said, lane, wakes, agent, shape)
        self._session.append(MessageAccepted(delivery.id, lane=lane, message=said))
        (self.next_turn if lane == "next-turn" else self.next_step).append(delivery)
        if wakes and self._arrived is not None:
            self._arrived.set()
        return delivery

    @trio.lowlevel.enable_ki_protection
    def claim(self, *, with_turn: bool) -> list[Delivery]:
        """Take what the coming step is to see: the next-step lane, and at a turn's start one of the other. Synchronous."""
        claimed = [*self.next_step, *(self.next_turn[:1] if with_turn else ())]
        if claimed:
            self._session.append(MessagesClaimed(tuple([delivery.id for delivery in claimed])))
            self.next_step.clear()
            if with_turn:
                del self.next_turn[:1]
            for delivery in claimed:
                delivery.claimed = True
        return claimed

    def waiting(self) -> list[Delivery]:
        """Return everything not yet claimed, in the order in which it would be."""
        return [*self.next_step, *self.next_turn]

    @trio.lowlevel.enable_ki_protection
    def drop(self, deliveries: list[Delivery], cause: str, error: BaseException) -> None:
        """Take messages out unread and tell who waits for them. Synchronous."""
        if not deliveries:
            return
        self._session.append(MessagesDropped(tuple([delivery.id for delivery in deliveries]), cause=cause))
        gone = set(deliveries)
        self.next_turn = [each for each in self.next_turn if each not in gone]
        self.next_step = [each for each in self.next_step if each not in gone]
        for delivery in deliveries:
            delivery._settle(outcome.Error(error))

    def closed_error(self) -> AgentClosedError:
        """Return what is told to who comes too late."""
        return AgentClosedError(f"agent {self._session.header.path!r} does not run any more; open another one")

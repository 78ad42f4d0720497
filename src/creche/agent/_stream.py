"""The stream of one reply."""

from typing import TYPE_CHECKING

import attrs
import trio

from creche._util import NoPublicConstructor, final
from creche.errors import AgentError
from creche.models import Delta

from ._spec import Reply

if TYPE_CHECKING:
    from ._inbox import Delivery


@attrs.frozen
class StreamRestarted:
    """An attempt failed and the answer begins anew: what was streamed of it is void."""

    attempt: int
    """Number of the attempt that failed, from 1."""


@final
class ReplyStream(metaclass=NoPublicConstructor):
    """The deltas of one reply, as they come: iterate over it once.

    A turn may take several steps, and the deltas of all their answers come one after the other. They wait for a
    slow reader, who does not hold up the turn. The iterator ends when the turn has settled, and raises what
    `Agent.ask` would raise.
    """

    __slots__ = ("_delivery", "_receive")

    def __init__(self, delivery: "Delivery") -> None:
        # Unbounded, because what it holds at most is the turn's own answers, which the log holds as well.
        send, self._receive = trio.open_memory_channel[Delta | StreamRestarted](float("inf"))
        self._delivery = delivery
        delivery._sink = send.send_nowait
        delivery._when_settled = send.close

    @property
    def reply(self) -> Reply:
        """The reply, once the iterator has ended.

        Raises:
          AgentError: It has not ended yet.
          Exception: What `Agent.ask` raises.
        """
        if self._delivery.result is None:
            raise AgentError("the reply is there when the stream has ended: iterate over it first")
        return self._delivery.reply_nowait()

    def __aiter__(self) -> "ReplyStream":
        return self

    async def __anext__(self) -> Delta | StreamRestarted:
        try:
            return await self._receive.receive()
        except trio.EndOfChannel:
            pass  # the turn has settled
        self._delivery.reply_nowait()
        raise StopAsyncIteration

"""The stream of one reply, and the watch on an agent's records."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import attrs
import trio

from creche._util import NoPublicConstructor, final
from creche.errors import AgentError
from creche.models import Delta
from creche.session import Record, RecordAppended

from ._spec import Reply

if TYPE_CHECKING:
    from ._inbox import Delivery


@attrs.frozen
class StreamRestarted:
    """An attempt failed and the answer begins anew: what was streamed of it is void."""

    attempt: int
    """Number of the attempt that failed."""


@final
class ReplyStream(metaclass=NoPublicConstructor):
    """The deltas of one reply, as they come: iterate over it once.

    Deltas wait for a slow reader; they are bounded by the turn's answers. The iterator ends with the turn,
    and raises what the turn raised.
    """

    def __init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[Delta | StreamRestarted](float("inf"))
        self._delivery: Delivery | None = None

    @property
    def reply(self) -> Reply:
        """The reply, once the iterator has ended.

        Raises:
          AgentError: It has not ended yet.
        """
        if self._delivery is None or self._delivery.result is None:
            raise AgentError("the reply is there when the stream has ended: iterate over it first")
        return self._delivery.peek()

    def __aiter__(self) -> AsyncIterator[Delta | StreamRestarted]:
        return self

    async def __anext__(self) -> Delta | StreamRestarted:
        try:
            return await self._receive.receive()
        except trio.EndOfChannel:
            assert self._delivery is not None, "the stream was opened with a message"
            self._delivery.peek()
            raise StopAsyncIteration from None

    def follow(self, delivery: "Delivery") -> None:
        """Stream what is answered to a message."""
        self._delivery = delivery
        delivery.sink = self._send.send_nowait
        delivery.when_settled = self._send.close


WATCH_CAPACITY = 1000
"""How many records may wait for the reader of a watch."""


@final
class Watch(metaclass=NoPublicConstructor):
    """Records as they are appended: iterate over it once. Ends when the agent closes."""

    def __init__(self, capacity: int) -> None:
        self._send, self._receive = trio.open_memory_channel[RecordAppended](capacity)
        self._cut_after: tuple[str, int] | None = None

    def tell(self, path: str, record: Record) -> None:
        """Hand over a record; a reader that is too slow is cut. Synchronous."""
        try:
            self._send.send_nowait(RecordAppended(path, record=record))
        except trio.WouldBlock:
            self._cut_after = (path, record.seq - 1)
            self._send.close()
        except trio.ClosedResourceError:
            pass  # it was cut, or its agent has closed: nothing more to tell

    def close(self) -> None:
        """End the iterator after what is waiting."""
        self._send.close()

    def __aiter__(self) -> AsyncIterator[RecordAppended]:
        return self

    async def __anext__(self) -> RecordAppended:
        try:
            return await self._receive.receive()
        except trio.EndOfChannel:
            if self._cut_after is not None:
                path, seq = self._cut_after
                raise AgentError(
                    f"the watch was cut because its reader was too slow; after {path!r} record {seq}: "
                    f"watch again with after={seq}"
                ) from None
            raise StopAsyncIteration from None

"""The watch on an agent's records."""

from typing import TYPE_CHECKING

import trio

from creche._util import NoPublicConstructor, final
from creche.errors import AgentError
from creche.session import Record, RecordAppended

if TYPE_CHECKING:
    from ._agent import Agent

WATCH_CAPACITY = 1000
"""How many records may wait for the reader of a watch."""


@final
class Watch(metaclass=NoPublicConstructor):
    """Records as they are appended: iterate over it once. Ends when the agent closes.

    A reader that falls a thousand records behind is cut: after what was kept for it the iterator raises
    `AgentError`. Watching again with ``after=watch.after`` goes on from there.
    """

    __slots__ = ("_cut", "_path", "_receive", "_send", "after", "subtree")

    after: int
    """Number of the last record of the watched agent itself that was read; -1 before the first."""
    subtree: bool
    """Whether it has the records of the agents below, too."""

    def __init__(self, path: str, capacity: int, *, subtree: bool, after: int) -> None:
        self._path = path
        self._send, self._receive = trio.open_memory_channel[RecordAppended](capacity)
        self._cut = False
        self.after = after
        self.subtree = subtree

    def _tell(self, event: RecordAppended) -> None:
        try:
            self._send.send_nowait(event)
        except trio.WouldBlock:
            self._cut = True
            self._send.close()
        except trio.ClosedResourceError:
            pass  # it was cut, or its agent has closed: nothing more to tell

    def _close(self) -> None:
        self._send.close()

    def __aiter__(self) -> "Watch":
        return self

    async def __anext__(self) -> RecordAppended:
        try:
            event = await self._receive.receive()
        except trio.EndOfChannel:
            if self._cut:
                raise AgentError(
                    f"the watch on agent {self._path!r} was cut after its record {self.after}, because the reader was "
                    f"{WATCH_CAPACITY} records behind; go on with watch(after={self.after})"
                ) from None
            raise StopAsyncIteration from None
        if event.agent_path == self._path:
            self.after = event.record.seq
        return event


def tell_watches(agent: "Agent", record: Record) -> None:
    """Hand a record of an agent to whoever watches it, or an agent above it. Synchronous."""
    event: RecordAppended | None = None
    above: Agent | None = agent
    while above is not None:
        for watch in above._watches:
            if watch.subtree or above is agent:
                event = event or RecordAppended(agent.path, record=record)
                watch._tell(event)
        above = above.parent

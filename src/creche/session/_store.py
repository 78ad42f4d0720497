"""The seam to where logs are kept, and the store that keeps them in memory.

A tree of agents shares one journal. Writing never waits; what is written is durable after a checkpoint.
"""

from contextlib import AbstractAsyncContextManager
from typing import ClassVar, Literal, Protocol

import attrs
import trio

from creche.scope import Notification

from ._facts import Record, SessionHeader


@attrs.frozen
class RecordAppended(Notification):
    """A record is in a session's log; dispatched at the agent's scope."""

    wire_name: ClassVar[str] = "session/record-appended"
    agent_path: str
    """Path of the agent whose session it is."""
    record: Record = attrs.field(kw_only=True)
    """The record."""


class Journal(Protocol):
    """Where the sessions of one tree of agents are written."""

    @property
    def location(self) -> str | None:
        """Where a person finds it, such as the path of a file; ``None`` in memory."""
        ...

    def begin(self, header: SessionHeader, /) -> None:
        """Note a new session of the tree, before its first record. The root's is noted when the journal opens.

        Contract: called once a session; synchronous, does not fail for reasons of the disk.
        """
        ...

    def write(self, session_id: str, record: Record, /) -> None:
        """Note a record. Contract: synchronous; a failure of the disk shows at the next checkpoint."""
        ...

    async def checkpoint(self) -> None:
        """Wait until everything noted so far is durable.

        Contract: many may wait at once; cancelling one of them loses nothing.

        Raises:
          StoreError: It could not be written. It stays noted and the next checkpoint tries again.
        """
        ...


class SessionStore(Protocol):
    """Keeps the journals of trees of agents."""

    def open_journal(self, root: SessionHeader, /) -> AbstractAsyncContextManager[Journal]:
        """Open the journal of a tree and begin in it the session of the agent at its top.

        Contract: leaving the block releases it; it does not write what no checkpoint asked for.

        Raises:
          StoreError: It could not be opened.
        """
        ...


class MemoryJournal:
    """Keeps nothing: the sessions themselves are the only copy. Its checkpoints do not wait."""

    location: None = None
    """Nowhere."""

    def begin(self, header: SessionHeader, /) -> None:
        """Note nothing."""

    def write(self, session_id: str, record: Record, /) -> None:
        """Note nothing."""

    async def checkpoint(self) -> None:
        """Return at once; this is no trio checkpoint."""


class MemoryStore:
    """Keeps logs in memory alone."""

    def open_journal(self, root: SessionHeader, /) -> AbstractAsyncContextManager[MemoryJournal]:
        """Open nothing."""
        return _OPEN_MEMORY


class _OpenMemory:
    async def __aenter__(self) -> MemoryJournal:
        return _MEMORY_JOURNAL

    async def __aexit__(self, *error: object) -> Literal[False]:
        return False


_MEMORY_JOURNAL = MemoryJournal()
_OPEN_MEMORY = _OpenMemory()

CLOSING_FLUSH_SECONDS = 1.0
"""How long closing records may take to reach the disk while everything else is being cancelled."""


async def flush_closing(journal: Journal) -> bool:
    """Make closing records durable, shielded from cancellation for at most one second; tell whether it was.

    A write that has begun in a thread is waited for even then: a thread cannot be left behind.

    Raises:
      StoreError: They could not be written.
    """
    with trio.move_on_after(CLOSING_FLUSH_SECONDS, shield=True) as scope:
        await journal.checkpoint()
    return not scope.cancelled_caught

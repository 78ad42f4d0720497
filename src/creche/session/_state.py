"""What a log knows besides its records: values, shared with its forks."""

from collections.abc import Collection, Iterator

import attrs

from ._facts import HeaderWritten, Record, RouteNoted, UserSaid
from ._shelf import ShelfView
from ._surface import SurfaceState

CONTEXT_SOURCE = "runtime-context"
"""Source of the messages that hold a snapshot of the runtime contexts."""


@attrs.frozen
class SnapshotState:
    """What is known of the snapshots of runtime contexts in one history."""

    existed: bool = False
    """Whether there ever was one."""
    seq: int | None = attrs.field(default=None, kw_only=True)
    """The one on the surface; ``None`` if there is none or something took its place."""
    text: str = attrs.field(default="", kw_only=True)
    """Its text."""

    def after(self, record: Record) -> "SnapshotState":
        """Return the state after a record joined the surface."""
        data = record.data
        if isinstance(data, UserSaid) and data.message.source == CONTEXT_SOURCE:
            return SnapshotState(existed=True, seq=record.seq, text=data.message.text)
        if self.seq is not None and self.seq in record.shadows:
            return SnapshotState(existed=True)
        return self


class CallIds(Collection[str]):
    """The ids of a session's calls. A fork shares those of the turns that it begins with; nothing is copied.

    Args:
      above: The ids of the session that it was forked from.
      shared: How many of those were there at that time.
    """

    __slots__ = ("_above", "_own", "_shared")

    def __init__(self, above: "CallIds | None" = None, shared: int = 0) -> None:
        self._above = above
        self._shared = shared
        self._own: dict[str, int] = {}

    def add(self, call_id: str) -> None:
        """Note an id; one that is there stays where it is."""
        if call_id not in self:
            self._own[call_id] = len(self)

    def __contains__(self, call_id: object) -> bool:
        ids: CallIds | None = self
        before = len(self)
        while ids is not None and isinstance(call_id, str):
            number = ids._own.get(call_id)
            if number is not None:
                return number < before
            before = min(before, ids._shared)
            ids = ids._above
        return False

    def __iter__(self) -> Iterator[str]:
        if self._above is not None:
            yield from [each for _, each in zip(range(self._shared), self._above, strict=False)]
        yield from self._own

    def __len__(self) -> int:
        return self._shared + len(self._own)


@attrs.frozen(eq=False)
class Settled:
    """Where the last completed turn ended: what a fork shares."""

    records: ShelfView[Record]
    surface: SurfaceState = attrs.field(kw_only=True)
    turn: int = attrs.field(kw_only=True)
    header: HeaderWritten | None = attrs.field(kw_only=True)
    route: RouteNoted | None = attrs.field(kw_only=True)
    snapshot: SnapshotState = attrs.field(kw_only=True)
    calls: CallIds = attrs.field(kw_only=True)
    call_count: int = attrs.field(kw_only=True)

"""What a log knows besides its records: values, shared with its forks."""

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


@attrs.frozen(eq=False)
class Settled:
    """Where the last completed turn ended: what a fork shares."""

    records: ShelfView[Record]
    surface: SurfaceState = attrs.field(kw_only=True)
    turn: int = attrs.field(kw_only=True)
    header: HeaderWritten | None = attrs.field(kw_only=True)
    route: RouteNoted | None = attrs.field(kw_only=True)
    snapshot: SnapshotState = attrs.field(kw_only=True)

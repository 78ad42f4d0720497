"""Any past request, from the log alone."""

from collections.abc import Iterable

from creche.errors import SessionError
from creche.models import ModelRequest

from ._facts import AssistantSaid, AttemptFailed, HeaderWritten, Record
from ._log import SessionLog
from ._order import KIND_OF
from ._surface import Surface


def rebuild_request(log: SessionLog, step: int, *, turn: int | None = None, attempt: int = -1) -> ModelRequest:
    """Return the request of a past step, byte for byte, folded from the records alone.

    Costs O(records).

    Args:
      log: The session.
      step: Number of the step in its turn, from 1.
      turn: Number of the turn, from 1; the last one if absent.
      attempt: Which attempt of the step, from 0; negative counts from the last.

    Raises:
      SessionError: There was no such request.
    """
    wanted = log.turn if turn is None else turn
    ends = [
        record
        for record in log.records()
        if record.turn == wanted and record.step == step and isinstance(record.data, AssistantSaid | AttemptFailed)
    ]
    try:
        end = ends[attempt]
    except IndexError:
        raise SessionError(
            f"session {log.header.path!r} has no request for turn {wanted}, step {step}, attempt {attempt}; "
            f"attempts logged there: {len(ends)}"
        ) from None
    surface, header = fold_surface(log.records().first(end.seq))
    if header is None:
        raise SessionError(f"no header stands before record {end.seq} of session {log.header.path!r}")
    return ModelRequest(header.head, messages=surface.messages, agent_path=log.header.path, session_id=log.header.id)


def fold_surface(records: Iterable[Record]) -> tuple[Surface, HeaderWritten | None]:
    """Return the surface and the newest header after some records, folded from scratch."""
    surface = Surface()
    header = None
    for record in records:
        if KIND_OF[type(record.data)].surface:
            if record.shadows:
                surface.replace(record, surface.shadowed(record.shadows[0], record.shadows[-1]))
            else:
                surface.append(record)
        elif isinstance(record.data, HeaderWritten):
            header = record.data
    return surface, header

"""The sessions of a stored journal, read strictly.

Every line is replayed through the rules of `SessionLog.append`, so what comes out is what was appended, or an
error that names the line. Nothing is repaired here.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from creche.errors import CorruptLogError, IllegalRecordError, StoreError

from ._codec import SessionRecord, decode_format, decode_line
from ._facts import SessionForked, SessionHeader, TurnEnded
from ._log import SessionLog
from ._state import Settled


def load_sessions(path: str | os.PathLike[str]) -> dict[str, SessionLog]:
    """Return the sessions of a journal by their ids, in the order in which they began.

    A fork shares what it shares with its parent here too. An open turn is legal: the log ends in the middle of
    it. Costs O(records), in the caller's task.

    Args:
      path: A file that a `JsonlStore` wrote.

    Raises:
      CorruptLogError: The file does not read back; the message has the line, what was found and what was
        expected. A last line that was cut off is such an error.
      StoreError: The file cannot be read.
    """
    where = os.fspath(path)
    replay = _Replay()
    try:
        with Path(path).open("rb") as file:
            replay.take_all(file)
    except OSError as error:
        raise StoreError(f"journal {where} could not be read: {error}") from error
    except (CorruptLogError, IllegalRecordError) as error:
        raise CorruptLogError(f"{where}, line {replay.number}: {error}") from error
    return replay.logs


class _Replay:
    def __init__(self) -> None:
        self.logs: dict[str, SessionLog] = {}
        self.number = 1
        # Where a fork can begin: by session and number of records.
        self._settled: dict[tuple[str, int], Settled] = {}

    def take_all(self, lines: Iterable[bytes]) -> None:
        ahead = iter(lines)
        first = next(ahead, b"")
        if not first:
            raise CorruptLogError("expected the format version, found the end of the file")
        decode_format(_whole(first))
        for self.number, line in enumerate(ahead, 2):
            self._take(line)

    def _take(self, line: bytes) -> None:
        said = decode_line(_whole(line))
        if isinstance(said, SessionHeader):
            if said.id in self.logs:
                raise CorruptLogError(f"session {said.id!r} has begun already")
            self.logs[said.id] = SessionLog(said)
        elif said is not None:
            self._record(said)

    def _record(self, said: SessionRecord) -> None:
        log = self.logs.get(said.session_id)
        if log is None:
            raise CorruptLogError(
                f"no line before begins session {said.session_id!r}; begun are {', '.join(self.logs) or 'none'}"
            )
        fact = said.record.data
        if isinstance(fact, SessionForked) and not len(log):
            log._begin_at(self._find(fact))
        log._restore(said.record)
        if isinstance(fact, TurnEnded | SessionForked) and log._settled is not None:
            self._settled[log.id, len(log._settled.records)] = log._settled

    def _find(self, fork: SessionForked) -> Settled:
        settled = self._settled.get((fork.parent, fork.boundary))
        if settled is None:
            ends = [length for parent, length in self._settled if parent == fork.parent]
            raise CorruptLogError(
                f"the session was forked after {fork.boundary} records of session {fork.parent!r}; in this file it can be "
                + (
                    f"after {', '.join(map(str, ends))}"
                    if ends
                    else "nowhere: that session has no completed turn in it"
                )
            )
        return settled


def _whole(line: bytes) -> bytes:
    if not line.endswith(b"\n"):
        raise CorruptLogError(f"the line was cut off after {len(line)} bytes; a line ends with a newline")
    return line

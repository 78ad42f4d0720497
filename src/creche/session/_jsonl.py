"""Journals in files of JSON lines: one file a tree of agents, group commit.

Rule 1: writing notes a value and does nothing else. A checkpoint encodes, writes and syncs all that is noted,
in one hop to a thread: records never change, so they can be encoded there while the loop goes on.
Rule 2: one commit at a time. Who needs more than the one that runs waits for it, and the first to wake makes
the next one for all. What was not written is still noted, whether the disk failed or the task was cancelled.
Rule 3: the file holds whole commits. Its size after the last one is known; what a failed commit left beyond is
cut off, and the next begins there.
Rule 4: a file is created by its first commit, so an agent that does nothing has none, and no descriptor.
"""

import errno
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import attrs
import trio

from creche._util import final
from creche.errors import StoreError

from ._codec import FORMAT_LINE, encode_header, encode_record
from ._facts import Record, SessionHeader
from ._store import Journal

THREADS = 16
"""How many journals of one store may be writing at the same time."""


@final
class JsonlStore:
    """Keeps each tree of agents in a file of its own, one JSON line a record.

    Args:
      folder: Where the files go; made with its parents when the first file is.
      fsync: Whether a checkpoint waits until the disk has what was written. Without it what is written
        survives the end of the process, and not that of the machine.
    """

    def __init__(self, folder: str | os.PathLike[str], *, fsync: bool = True) -> None:
        self._folder = Path(folder).absolute()
        self._fsync = fsync
        self._limiter = trio.CapacityLimiter(THREADS)

    @asynccontextmanager
    async def open_journal(self, root: SessionHeader, /) -> AsyncIterator[Journal]:
        """Open the journal of a tree and begin in it the session of the agent at its top.

        Nothing touches the disk before the first checkpoint. Leaving the block closes the file; what no
        checkpoint asked for is not written.

        Yields:
          The journal. Its ``location`` is the path of the file.

        Raises:
          StoreError: There can be no such folder: a file stands in its way.
        """
        _check_folder(self._folder)
        journal = _JsonlJournal(_File(self._folder, root, fsync=self._fsync), self._limiter)
        journal.begin(root)
        try:
            yield journal
        finally:
            await journal.aclose()

    def __repr__(self) -> str:
        return f"JsonlStore({str(self._folder)!r}, fsync={self._fsync})"


def _check_folder(folder: Path) -> None:
    """Refuse at once what no checkpoint could mend."""
    if not folder.is_dir():
        nearest = next(each for each in (folder, *folder.parents) if each.exists())
        if not nearest.is_dir():
            raise StoreError(f"cannot keep logs in {str(folder)!r}: {str(nearest)!r} is a file; give store= a folder")


_Note = SessionHeader | tuple[str, Record]


@attrs.define(eq=False)
class _Commit:
    """One write to the file, on behalf of all that wait for it."""

    notes: list[_Note]
    until: int
    """How many notes are durable when it has succeeded."""
    over: trio.Event = attrs.field(factory=trio.Event)
    succeeded: bool = False
    failure: Exception | None = None

    def run(self, file: "_File") -> None:
        """Do it, in a thread; never raises."""
        try:
            file.append(b"".join(map(_encode, self.notes)))
        except Exception as error:  # noqa: BLE001 - whatever it is, everybody who waits is told
            self.failure = error
        else:
            self.succeeded = True


class _JsonlJournal:
    __slots__ = ("_closed", "_commit", "_durable", "_file", "_limiter", "_noted", "_notes")

    def __init__(self, file: "_File", limiter: trio.CapacityLimiter) -> None:
        self._file = file
        self._limiter = limiter
        self._notes: list[_Note] = []
        self._noted = 0
        self._durable = 0
        self._commit: _Commit | None = None
        self._closed = False

    @property
    def location(self) -> str:
        return str(self._file.path)

    def begin(self, header: SessionHeader, /) -> None:
        self._notes.append(header)
        self._noted += 1

    def write(self, session_id: str, record: Record, /) -> None:
        self._notes.append((session_id, record))
        self._noted += 1

    async def checkpoint(self) -> None:
        wanted = self._noted
        while self._durable < wanted:
            if self._closed:
                raise StoreError(f"journal {self.location} is closed; lines not written: {len(self._notes)}")
            commit = self._commit
            if commit is None:
                commit = await self._lead()
            else:
                await commit.over.wait()
            if commit.failure is not None and wanted <= commit.until:
                raise StoreError(
                    f"journal {self.location} could not be written: {commit.failure}; "
                    f"lines that wait for the next checkpoint: {len(self._notes)}"
                ) from commit.failure

    async def _lead(self) -> _Commit:
        commit = self._commit = _Commit(self._notes, self._noted)
        self._notes = []
        try:
            # Cancelled before the thread begins, it has not run; after that, it is waited for.
            await trio.to_thread.run_sync(commit.run, self._file, limiter=self._limiter)
        except Exception as error:  # noqa: BLE001 - no thread could be had
            commit.failure = error
        finally:
            self._commit = None
            if commit.succeeded:
                self._durable = commit.until
            else:
                self._notes = commit.notes + self._notes
            commit.over.set()
        return commit

    async def aclose(self) -> None:
        """Close the file, after the commit that is under way."""
        self._closed = True
        if self._commit is not None:
            with trio.CancelScope(shield=True):
                await self._commit.over.wait()
        self._file.close()


def _encode(note: _Note) -> bytes:
    try:
        return encode_header(note) if isinstance(note, SessionHeader) else encode_record(*note)
    except (TypeError, ValueError) as error:
        what = f"the header of {note.id}" if isinstance(note, SessionHeader) else f"record {note[1].seq} of {note[0]}"
        raise ValueError(f"{what} does not go into JSON: {error}") from error


class _File:
    """The file of one journal. Used by one thread at a time: the one that runs a commit, the loop's at the end."""

    __slots__ = ("_descriptor", "_fsync", "_names", "_size", "_torn", "path")

    def __init__(self, folder: Path, root: SessionHeader, *, fsync: bool) -> None:
        self._names = _file_names(root)
        self.path = folder / next(self._names)
        self._fsync = fsync
        self._descriptor: int | None = None
        self._size = 0
        self._torn = False

    def append(self, data: bytes) -> None:
        """Write at the end and wait for the disk; after a failure the next call writes at the same place.

        Raises:
          OSError: The disk is full, the file is gone, another program has changed it, and so on.
        """
        descriptor = self._descriptor
        if descriptor is not None:
            self._check(descriptor)
        try:
            if descriptor is None:
                descriptor = self._create()
                data = FORMAT_LINE + data
            self._write(descriptor, data)
        except BaseException:
            self._undo()
            raise
        self._size += len(data)

    def _create(self) -> int:
        folder = self.path.parent
        made = [each for each in (folder, *folder.parents) if not each.exists()]
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        while self._descriptor is None:
            try:
                self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                self.path = folder / next(self._names)
        if self._fsync:
            # A name is durable when the folder it stands in is.
            for each in (folder, *[each.parent for each in made]):
                _sync_folder(each)
        return self._descriptor

    def _check(self, descriptor: int) -> None:
        """Refuse a file that is not as the last commit left it; what is written into it would not read back."""
        found = os.fstat(descriptor)
        if found.st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, "The file was removed while it was in use", str(self.path))
        if found.st_size != self._size and not self._torn:
            what = f"Another program has changed the file: it has {found.st_size} bytes, and {self._size} were written"
            raise OSError(errno.EIO, what, str(self.path))

    def _write(self, descriptor: int, data: bytes) -> None:
        if self._torn:
            os.ftruncate(descriptor, self._size)
            self._torn = False
        rest, position = memoryview(data), self._size
        while rest:
            written = os.pwrite(descriptor, rest, position)
            rest, position = rest[written:], position + written
        if self._fsync:
            os.fsync(descriptor)

    def _undo(self) -> None:
        if self._descriptor is None:
            return
        if self._size == 0:
            # Nothing is in it that anybody was promised.
            self.close()
            with suppress(OSError):
                self.path.unlink()
            return
        self._torn = True
        with suppress(OSError):
            os.ftruncate(self._descriptor, self._size)
            self._torn = False

    def close(self) -> None:
        """Close the file if it is open."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _file_names(root: SessionHeader) -> Iterator[str]:
    """Yield the names that the file may have; all but the first are for the case that it is taken."""
    when = datetime.fromtimestamp(root.created, UTC).strftime("%Y%m%dT%H%M%SZ")
    name = f"{when}-{_in_file_name(root.path)[:40]}-{_in_file_name(root.id)[-8:]}"
    yield f"{name}.jsonl"
    yield from (f"{name}-{number}.jsonl" for number in count(2))


def _in_file_name(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text).strip(".-") or "agent"

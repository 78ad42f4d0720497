"""How a file gets another content: whole or not at all, and never over somebody else's.

Rule 1: the content goes to a new file in the same folder, or in the nearest one above it that is there, which then takes
the place of the old one in one step. So whoever looks sees the old file or the new one, and whatever ends the work
before that step leaves the old one and nothing beside it; only a process that is killed can leave the new file behind.
Folders that are not there are made just before that step, and taken back if it fails.

Rule 2: that step is taken only if the file is still the one whose content was looked at, which is compared under one
lock for the whole process. Two agents of a program never overwrite each other's work unseen. Another program is seen as
well, unless it writes within the microseconds between the comparison and the step, or writes as many bytes in place
within one tick of the file system's clock.

Rule 3: the new file has the mode of the old one, and its owner where that may be given. Hard links to the old file and
its extended attributes stay with the old file.
"""

import contextlib
import errno
import os
import secrets
import threading
from collections.abc import Iterator
from typing import BinaryIO

from attrs import field, frozen

from creche.errors import ToolFailed

from .._paths import reason
from ._folder import Place, Workspace, cannot_read
from ._text import CHUNK, open_regular

LARGEST = 16 << 20
"""Bytes of a file that is written or edited; such a file is in memory as a whole, some times over."""

ATTEMPTS = 20
"""How often the work is done anew because somebody else was faster, who then has finished."""

_LOCK = threading.Lock()  # noqa: TID251 - tool bodies run in threads, and this is held for a few calls of the system

_FLAGS: int = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


@frozen
class Original:
    """A file as it was when its content was looked at."""

    content: bytes
    """All of it."""

    status: os.stat_result = field(kw_only=True)
    """What ``fstat`` said just before."""


@contextlib.contextmanager
def open_original(place: Place) -> Iterator[Original]:
    """Read a file that may be replaced within the block.

    It stays open until the block ends, so that no other file can get its number meanwhile and be taken for it.

    Raises:
      ToolFailed: it is no regular file, is too large, cannot be read, or may not be written.
    """
    try:
        file = open_regular(place.real)
    except OSError as error:
        raise cannot_read(place.name, error) from error
    if file is None:
        raise ToolFailed(f"{place.name} is not a regular file, and only those are written")
    with file:
        yield _look(place, file)


def _look(place: Place, file: BinaryIO) -> Original:
    try:
        status = os.fstat(file.fileno())
        content = file.read(LARGEST + 1)
    except OSError as error:
        raise cannot_read(place.name, error) from error
    if len(content) > LARGEST:
        raise ToolFailed(f"{place.name} has {status.st_size} bytes, and at most {LARGEST} can be rewritten")
    if not os.access(place.real, os.W_OK):
        raise ToolFailed(f"{place.name} cannot be written: {os.strerror(errno.EACCES)}")
    return Original(content, status=status)


def put(workspace: Workspace, place: Place, content: bytes, original: Original | None) -> bool:
    """Give a file its content, and make the folders above it.

    Args:
      workspace: Asked between chunks whether somebody still waits.
      place: Where the file is, or will be.
      content: What it will have in it.
      original: What is replaced, still open; None if there must be nothing.

    Returns:
      Whether it was done; it is not if the file is another one by now, or has come into being.

    Raises:
      ToolFailed: the operating system refuses.
    """
    folder, missing = _folder_above(workspace, place)
    try:
        draft = os.path.join(folder, f".creche-{secrets.token_hex(8)}.tmp")
        try:
            with os.fdopen(os.open(draft, _FLAGS, 0o666), "wb") as file:
                _fill(workspace, file, content, original)
            with _LOCK:
                if not _is_still(place.real, original):
                    return False
                _move(draft, place.real, missing)
            return True
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(draft)
    except OSError as error:
        raise cannot_write(place.name, error) from error


def _fill(workspace: Workspace, file: BinaryIO, content: bytes, original: Original | None) -> None:
    if original is not None:
        with contextlib.suppress(OSError):  # only root gives files away; then the new file is the writer's own
            os.chown(file.fileno(), original.status.st_uid, original.status.st_gid)
        os.chmod(file.fileno(), original.status.st_mode & 0o777)  # not setuid: the kernel drops it on a write, too
    rest = memoryview(content)
    while rest:
        workspace.check_cancelled()
        file.write(rest[:CHUNK])
        rest = rest[CHUNK:]
    file.flush()
    workspace.check_cancelled()


def _folder_above(workspace: Workspace, place: Place) -> tuple[str, list[str]]:
    """Give the nearest folder above a place that is there, and those below it that are not, from the top."""
    folder, missing = os.path.dirname(place.real), list[str]()
    while folder != workspace.root and not os.path.lexists(folder):
        missing.insert(0, folder)
        folder = os.path.dirname(folder)
    return folder, missing


def _move(draft: str, real: str, missing: list[str]) -> None:
    """Put a file in its place, in folders that are made for it; all of it or nothing."""
    made: list[str] = []
    try:
        for folder in missing:
            with contextlib.suppress(FileExistsError):  # if it is no folder, the next step says so
                os.mkdir(folder)
                made.append(folder)
        os.replace(draft, real)
    except OSError:
        for folder in reversed(made):
            with contextlib.suppress(OSError):  # somebody else has put something in it
                os.rmdir(folder)
        raise


def _is_still(real: str, original: Original | None) -> bool:
    """Say whether what is at a path is what was looked at."""
    try:
        now = os.lstat(real)
    except FileNotFoundError:
        return original is None
    return original is not None and _identity(now) == _identity(original.status)


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return (
        status.st_dev,
        status.st_ino,
        status.st_mode,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def cannot_write(name: str, error: OSError) -> ToolFailed:
    """Translate an error of the operating system into a sentence for the model."""
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return ToolFailed(f"{name} cannot be written: a part of its path is not a folder")
    return ToolFailed(f"{name} cannot be written: {reason(error)}")

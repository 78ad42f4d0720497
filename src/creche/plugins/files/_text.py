"""Text in files that may be anything: a line, a chunk or a batch at a time, never the whole file.

Rule 1: a file is binary if a NUL byte is among its first 8 KiB; every other regular file is text, in UTF-8, and what is
not UTF-8 in it is replaced.

Rule 2: a line ends with a newline, and a carriage return before that newline belongs to the end. The number of lines is
the number of newlines, and one more if something follows the last of them.
"""

import os
import stat
from collections.abc import Callable, Iterator
from typing import BinaryIO

HEAD = 8192
CHUNK = 1 << 20
LONGEST = 8 << 20
"""Bytes of a line that are searched, at least; the rest of a longer line is passed over."""

_FLAGS: int = os.O_RDONLY | sum(
    getattr(os, flag, 0) for flag in ("O_BINARY", "O_CLOEXEC", "O_NOCTTY", "O_NOFOLLOW", "O_NONBLOCK")
)


def open_regular(real: str) -> BinaryIO | None:
    """Open a regular file; give None if it is anything else.

    A FIFO, a socket or a device is not opened: to open one may wait, or do something. If the file becomes one after the
    first look, opening does not wait, and the second look sees it.
    """
    if not stat.S_ISREG(os.lstat(real).st_mode):
        return None
    descriptor = os.open(real, _FLAGS)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "rb")


def is_binary(file: BinaryIO) -> bool:
    """Look at the head of a file that was just opened, and go back to its start."""
    head = file.read(HEAD)
    file.seek(0)
    return b"\0" in head


def decoded(line: bytes) -> str:
    """Give the text of a line without its end."""
    return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")


def count_lines(file: BinaryIO, check: Callable[[], None]) -> int:
    """Count the lines from here to the end of the file."""
    count = 0
    last = b"\n"
    while chunk := file.read(CHUNK):
        check()
        count += chunk.count(b"\n")
        last = chunk[-1:]
    return count + (last != b"\n")


def skip_lines(file: BinaryIO, count: int, check: Callable[[], None]) -> None:
    """Go to the start of the line after the next ``count``, or to the end of the file."""
    while count and (chunk := file.read(CHUNK)):
        check()
        ends = chunk.count(b"\n")
        if ends < count:
            count -= ends
            continue
        position = -1
        for _ in range(count):
            position = chunk.index(b"\n", position + 1)
        file.seek(position + 1 - len(chunk), os.SEEK_CUR)
        return


def batches(file: BinaryIO, check: Callable[[], None]) -> Iterator[list[str]]:
    """Give the lines of a file, some at a time, each without its end.

    Decoding many lines at once is what makes a search fast; no byte of a longer UTF-8 sequence looks like a newline, so
    it gives what decoding each line would.
    """
    while batch := file.read(CHUNK):
        check()
        if not batch.endswith(b"\n"):
            batch += file.readline(LONGEST)
            if not batch.endswith(b"\n"):
                skip_lines(file, 1, check)
        lines = batch.decode("utf-8", "replace").split("\n")
        if not lines[-1]:
            lines.pop()
        yield [line.removesuffix("\r") for line in lines]

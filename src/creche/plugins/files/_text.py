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

_FLAGS: int = os.O_RDONLY
for _flag in ("O_BINARY", "O_CLOEXEC", "O_NOCTTY", "O_NOFOLLOW", "O_NONBLOCK"):
    _FLAGS |= getattr(os, _flag, 0)


def open_regular(real: str) -> BinaryIO | None:
    """Open a regular file; give None if it is anything else.

    A FIFO, a socket or a device is not opened: to open one may wait, or do something. If the file becomes one after the
    first look, opening does not wait, and the second look sees it.
    """
    if not stat.S_ISREG(os.lstat(real).st_mode):
        return None
    descriptor = os.open(real, _FLAGS)
    try:
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return os.fdopen(descriptor, "rb") if regular else None
    finally:
        ...

"""Writing to a descriptor without waiting for who reads there.

A terminal is opened once more for that: one that has room says so, and may still make a large write wait. Where that
cannot be done, and for pipes, it is written in pieces: a pipe that has room takes `select.PIPE_BUF` bytes at once.
"""

import os
import select
from contextlib import suppress

MOST = 65536
"""Bytes that are written at once."""


def reopen(terminal: int) -> int:
    """Open a terminal once more, so that not to wait for it is a matter of ours alone."""
    with suppress(OSError):  # in some containers its name is that of another one, or of none
        again = os.open(os.ttyname(terminal), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        if os.fstat(again).st_rdev == os.fstat(terminal).st_rdev:
            return again
        os.close(again)
    return os.dup(terminal)


def has_room(descriptor: int, seconds: float) -> bool:
    """Wait until something can be written, outside of trio; tell whether it can."""
    return bool(select.select([], [descriptor], [], max(seconds, 0.0))[1])


def write_some(descriptor: int, data: bytearray) -> int:
    """Write as much as there is room for, in one piece or, if that might wait, in whole lines; return how many bytes that was.

    Raises:
      OSError: It is gone.
    """
    size = MOST
    if len(data) > select.PIPE_BUF and os.get_blocking(descriptor):
        size = data.rfind(b"\n", 0, select.PIPE_BUF) + 1 or select.PIPE_BUF
    try:
        return os.write(descriptor, data[:size])
    except BlockingIOError:
        return 0

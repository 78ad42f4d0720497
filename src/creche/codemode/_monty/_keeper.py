"""The way to the process that ends the workers when this one can no longer do so.

A worker that waits ends by itself when its pipe closes, one that computes does not look. The kernel's own means, the
signal of a parent's death, comes when the *thread* ends that started a process, which for us may be any. So a process
of its own, `_keeping`, is told who works before it computes, and kills who is left when nobody tells it more.
"""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio

from . import _keeping


@attrs.frozen
class Keeper:
    """The process that kills the workers when this one is gone."""

    pipe: int

    def watch(self, process: int) -> bool:
        """Have a process killed in the end; false if the keeper is gone and nobody would."""
        return self._tell(b"+%d\n" % process)

    def forget(self, process: int) -> None:
        """Have a process that ended left alone."""
        self._tell(b"-%d\n" % process)

    def _tell(self, order: bytes) -> bool:
        try:
            return os.write(self.pipe, order) == len(order)
        except OSError:  # it was killed
            return False


@asynccontextmanager
async def open_keeper() -> AsyncIterator[Keeper]:
    """Start the process for the length of the block."""
    process = await trio.lowlevel.open_process(
        [sys.executable, "-I", "-S", _keeping.__file__, str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # what a terminal sends to all, such as Ctrl-C, is not for it
    )
    assert isinstance(process.stdin, trio.lowlevel.FdStream)
    try:
        yield Keeper(process.stdin.fileno())
    finally:
        with trio.CancelScope(shield=True):
            await process.stdin.aclose()
            await process.wait()

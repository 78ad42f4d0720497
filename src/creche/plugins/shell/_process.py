"""One command and all that it starts, from the beginning to the end of its process group.

Rule 1: the command's shell leads a session and a process group of its own. When the shell has ended, or its time is up,
or the caller is cancelled, the group is ended: SIGTERM for all, and SIGKILL for those that are left after a short grace.
The kernel lets no process of a group slip through between, not even one that is just being forked. What has left the
group, as a daemon does with ``setsid``, is not reached.

Rule 2: the shell is reaped before this returns, and nothing here waits for the output to end: a process in the
background may hold the pipe for as long as it likes. What was in the pipe when the group had ended is still read.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import cast

import trio

from creche._util import open_hidden_nursery

from ._output import Output

LOOK = 0.01
"""Seconds between two looks whether a group is gone; the kernel has nothing to wait for."""

LOOKS = 10
"""How many looks a group is given after a signal."""

REAPING = 5
"""Seconds that a killed shell is waited for; it is late only where the kernel cannot kill, as on a dead network disk."""

_PIPE = 1 << 20
"""Bytes that may be in a pipe at most; more is from a process that was not reached and still prints."""


async def run_command(
    command: Sequence[str], *, folder: str, environment: Mapping[str, str], seconds: float, output: Output
) -> int | None:
    """Run a command until it ends, but not longer than some seconds.

    Args:
      command: The program and its arguments.
      folder: Where it starts.
      environment: All variables that it gets.
      seconds: How long it may take, without the grace.
      output: Takes what it and all that it starts print, also if this is cancelled.

    Returns:
      The exit code; negative, the signal that ended it; None if its time was up.

    Raises:
      OSError: it cannot be started.
    """
    process = await trio.lowlevel.open_process(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=folder,
        env=environment,
        start_new_session=True,
    )
    pipe = cast("trio.lowlevel.FdStream", process.stdout)
    code: int | None = None
    try:
        async with open_hidden_nursery("a shell command") as nursery:
            nursery.start_soon(_collect, pipe, output)
            try:
                with trio.move_on_after(seconds):
                    code = await process.wait()
            finally:
                with trio.move_on_after(REAPING, shield=True):
                    await _end(process)
    finally:
        _drain(pipe, output)
        pipe.close()
    return code


async def _collect(pipe: trio.lowlevel.FdStream, output: Output) -> None:
    while chunk := await pipe.receive_some(1 << 16):
        output.add(bytes(chunk))


def _drain(pipe: trio.lowlevel.FdStream, output: Output) -> None:
    """Take what is in the pipe, and wait for nothing: the descriptor is non-blocking."""
    left = _PIPE
    with contextlib.suppress(BlockingIOError):
        while left > 0 and (chunk := os.read(pipe.fileno(), left)):
            output.add(chunk)
            left -= len(chunk)


async def _end(process: trio.Process) -> None:
    """End what is left of the group, and reap the shell."""
    if _signal(process, signal.SIGTERM) and not await _is_gone(process):
        _signal(process, signal.SIGKILL)
        await _is_gone(process)
    await process.wait()


async def _is_gone(process: trio.Process) -> bool:
    for _ in range(LOOKS):
        await trio.sleep(LOOK)
        if process.poll() is not None:  # which reaps the shell: a zombie counts as a member
            _reap_orphans(process.pid)
        if not _signal(process, 0):
            return True
    return False


def _reap_orphans(group: int) -> None:
    """Reap what the shell left to us, as it does where this program is the first of a container."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass


def _signal(process: trio.Process, number: int) -> bool:
    """Send a signal to the group; say whether there is one.

    Its number is not given to another as long as it has a member. That it is none the less, between the end of the last
    member and a look some milliseconds later, would take the kernel once around all numbers.
    """
    try:
        os.killpg(process.pid, number)
    except (
        ProcessLookupError,
        PermissionError,
    ):  # the second is for zombies alone on macOS, and for other users' processes
        return False
    return True

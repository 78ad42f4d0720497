"""A program of its own: kills the workers of the process that started it when that one is gone.

It has to start quickly, and so imports little and nothing of ours.
"""

import contextlib
import os
import select
import signal
import sys


def keep(orders: int, parent: int) -> None:
    """Read orders, a line each, until they end or the parent does; then kill who is left.

    ``+12`` is to kill process 12 in the end, ``-12`` is not to, for it has ended.

    Args:
      orders: File descriptor of the pipe from the parent.
      parent: Process that writes to it. The pipe alone is not enough: a fork of the parent holds its end open.
    """
    watched = [orders]
    with contextlib.suppress(AttributeError, OSError):  # only Linux has it, and there the parent may be gone already
        watched.append(os.pidfd_open(parent))
    workers: set[int] = set()
    rest = b""
    while True:
        ready, _, _ = select.select(watched, (), ())
        read = os.read(orders, 65536) if orders in ready else b""
        *lines, rest = (rest + read).split(b"\n")
        for line in lines:
            (workers.add if line[:1] == b"+" else workers.discard)(int(line[1:]))
        if not read:
            break
    for worker in workers:
        with contextlib.suppress(ProcessLookupError):  # it ended with its pipe
            os.kill(worker, signal.SIGKILL)


if __name__ == "__main__":  # pragma: no cover - in a process of its own
    keep(sys.stdin.fileno(), int(sys.argv[1]))

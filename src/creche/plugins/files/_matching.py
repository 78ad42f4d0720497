"""A program of its own: searches lines for a regular expression, where that holds up nobody else.

It has to start quickly, and so imports little and nothing of ours. A frame is its length in eight bytes, then so many
bytes. The process that started it sends the pattern, its flags and the seconds it may take; then lists of lines, all
written by `marshal`, and gets a JSON list for each: index and start of the match, index and start, and so on.

When that process is gone, however it ended, there is nothing more to read, and this one ends. In the middle of a search
it cannot notice, so the kernel ends it after some seconds of computing.
"""

import contextlib
import json
import marshal
import re
import resource
import sys
import time
from typing import BinaryIO

HEADER = 8
"""Bytes of the length of a frame."""

MEMORY = 2 << 30
"""Bytes that it may have: what can be gone back to is kept, and of a long line that is much."""


def frame_of(content: bytes) -> bytes:
    """Give what is sent for some content."""
    return len(content).to_bytes(HEADER, "big") + content


def main(orders: BinaryIO, answers: BinaryIO) -> None:
    """Answer each list of lines, until there are no more."""
    given: tuple[str, int, int] = marshal.loads(_frame(orders))
    pattern, flags, seconds = given
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_AS, MEMORY)
    _limit(resource.RLIMIT_CPU, seconds)
    search = re.compile(pattern, flags).search
    while frame := _frame(orders):
        _limit(resource.RLIMIT_CPU, int(time.process_time()) + seconds)
        lines: list[str] = marshal.loads(frame)
        found: list[int] = []
        for index, line in enumerate(lines):
            if match := search(line):
                found += index, match.start()
        answers.write(frame_of(json.dumps(found).encode()))
        answers.flush()


def _frame(file: BinaryIO) -> bytes:
    return file.read(int.from_bytes(file.read(HEADER), "big"))


def _limit(kind: int, most: int) -> None:
    hard = resource.getrlimit(kind)[1]
    with contextlib.suppress(OSError, ValueError):  # the system does not have this one
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)

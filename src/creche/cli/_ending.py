"""How a command ends: its exit code, its result, and the one sentence about what went wrong.

Exit codes: 0 done, 1 failed, 2 wrong usage, 129 hung up, 130 interrupted, 143 terminated.
"""

import os
import sys
from contextlib import suppress
from typing import TextIO, cast

from ._text import printable

FAILED, USAGE, INTERRUPTED = 1, 2, 130


class WrongUsage(Exception):  # noqa: N818 - raised as a statement about what was typed
    """What was typed cannot be done; the message is a sentence for who typed it."""


def tell(text: str) -> int:
    """Write the result; one that nobody can read is a failure, and a reader that has left needs no words."""
    if (code := check_stdout()) is not None:
        return code
    try:
        encoding = sys.stdout.encoding
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except OSError as error:
        # What is left in the buffer would fail once more when the interpreter closes it.
        _throw_away(sys.stdout)
        return FAILED if isinstance(error, BrokenPipeError) else complain(unread(error), FAILED)
    return 0


def _throw_away(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def unread(error: OSError) -> str:
    """Return why a result could not be written."""
    return "nobody reads the answer" if isinstance(error, BrokenPipeError) else f"no result: {error.strerror}"


def check_stdout() -> int | None:
    """Return an exit code, and say why, if the process was started without a stdout."""
    if cast("TextIO | None", sys.stdout) is None:
        return complain("no result: stdout is closed", FAILED)
    return None


def is_terminal(stream: TextIO | None) -> bool:
    """Tell whether a stream of the process, if it has that one, is a terminal."""
    return stream is not None and stream.isatty()


def complain(sentence: str, code: int) -> int:
    """Write a sentence for people and return the exit code."""
    write_line(f"creche: {sentence}")
    return code


def write_line(line: str) -> None:
    """Write a line to stderr, without what a terminal would obey."""
    stream = cast("TextIO | None", sys.stderr)
    if stream is not None:
        try:
            stream.write(f"{printable(line)}\n")
            stream.flush()
        except OSError:  # there is nowhere left to say so
            with suppress(OSError):
                _throw_away(stream)

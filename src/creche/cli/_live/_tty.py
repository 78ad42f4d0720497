"""The terminal that stderr is: whether a live view can be there, how large it is, and how it is written to.

It is written to through a descriptor of our own that never waits, so a terminal that takes nothing, because somebody
typed Ctrl-S or because it hangs, holds up no agent. No mode of it is ever changed.
"""

import os
import stat
import sys
from contextlib import suppress
from typing import TextIO, cast

from attrs import define, field

from .._writing import has_room, reopen, write_some
from ._style import ASCII, UNICODE, Glyphs

NARROWEST = 20
"""Columns below which there are plain lines."""
MOST_DIGITS = 5
"""A number of columns with more digits is nobody's terminal, and may be longer than Python reads."""
USUAL = os.terminal_size((80, 24))
"""What a terminal is taken for that does not say its size."""


@define(eq=False)
class Tty:
    """A terminal."""

    descriptor: int
    """What it is written to through."""
    encoding: str = field(kw_only=True)
    """How text is encoded."""
    has_colour: bool = field(kw_only=True)
    """Whether anything is coloured."""
    shows_answer: bool = field(kw_only=True)
    """Whether stdout is this terminal as well."""

    @property
    def glyphs(self) -> Glyphs:
        """What can be drawn with."""
        drawn = "".join([UNICODE.branch, UNICODE.last, UNICODE.bar, UNICODE.dots])
        return UNICODE if drawn.encode(self.encoding, "replace").decode(self.encoding) == drawn else ASCII

    def size(self) -> os.terminal_size:
        """Return how large it is now."""
        size = _size(self.descriptor)
        told = _columns_told()
        return size if told is None else os.terminal_size((min(size.columns, told), size.lines))

    @property
    def is_ours(self) -> bool:
        """Whether we are in the foreground; a terminal that is not ours to know about is ours to write to."""
        try:
            return os.tcgetpgrp(self.descriptor) == os.getpgrp()
        except OSError:
            return True

    def has_room(self, seconds: float) -> bool:
        """Wait until something can be written, outside of trio; tell whether it can."""
        return has_room(self.descriptor, seconds)

    def write(self, data: bytearray) -> int:
        """Write as much as there is room for.

        Raises:
          OSError: It is gone.
        """
        return write_some(self.descriptor, data)

    def close(self) -> None:
        """Let go of it."""
        os.close(self.descriptor)


def find_tty() -> Tty | None:
    """Return the terminal for a live view; ``None`` if there is none that can show it, or that others write to."""
    err, out = cast("TextIO | None", sys.stderr), sys.stdout
    if err is None or not err.isatty() or not _can_move_cursor() or _size(err.fileno()).columns < NARROWEST:
        return None
    shows_answer = out.isatty() and _are_one(out.fileno(), err.fileno())
    if shows_answer is None or not (shows_answer or _is_kept(out)):
        return None
    return Tty(
        reopen(err.fileno()),
        encoding=err.encoding,
        has_colour=not os.environ.get("NO_COLOR"),
        shows_answer=shows_answer,
    )


def _can_move_cursor() -> bool:
    told = _columns_told()
    return (
        os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")
        and not os.environ.get("CI")
        and (told is None or told >= NARROWEST)
    )


def _columns_told() -> int | None:
    told = os.environ.get("COLUMNS", "")
    return int(told) if told.isdecimal() and len(told) <= MOST_DIGITS else None


def _size(descriptor: int) -> os.terminal_size:
    with suppress(OSError):  # it is gone, which is seen when it is written to
        size = os.get_terminal_size(descriptor)
        if size.columns and size.lines:
            return size
    return USUAL


def _are_one(terminal: int, other: int) -> bool | None:
    """Tell whether two terminals are one under two names, as /dev/tty is one for what controls us; ``None`` if nobody knows."""
    if os.path.samestat(os.fstat(terminal), os.fstat(other)):
        return True
    controlling = [_controls_us(terminal), _controls_us(other)]
    return all(controlling) if any(controlling) else None


def _controls_us(terminal: int) -> bool:
    try:
        os.tcgetpgrp(terminal)
    except OSError:
        return False
    return True


def _is_kept(stream: TextIO) -> bool:
    """Tell whether a stream goes where nobody reads it at once, and nobody writes from there to the terminal."""
    mode = os.fstat(stream.fileno()).st_mode
    return stat.S_ISREG(mode) or stat.S_ISCHR(mode)

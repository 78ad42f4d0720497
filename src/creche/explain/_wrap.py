"""A line in rows of a terminal: broken between words, and counted in cells.

As `textwrap` does it, but for two things: wide characters take two cells and combining ones none, and how long a word of
any length takes grows with it alone.
"""

import functools
import re
import unicodedata
from collections.abc import Iterator

_CHUNK = re.compile(" +|[^ ]+")
_AS_EMOJI = "\N{VARIATION SELECTOR-16}"
"""Asks for the character before it as an emoji, which then takes two cells in most terminals."""


def wrap(text: str, width: int, first: str, more: str) -> list[str]:
    """Return a line in rows, at least one, without spaces at their ends.

    Args:
      text: Printable characters.
      width: Cells that a row may take.
      first: What the first row begins with, in ASCII.
      more: What the others begin with.
    """
    rows: list[str] = []
    row, room, most = [first], width - len(first), width - len(more)
    for chunk in _CHUNK.findall(text):
        cells = _cells_of(chunk)
        if cells <= room:
            row.append(chunk)
            room -= cells
        elif chunk[0] == " ":
            room = 0  # it is where the row ends
        else:
            here, *below = ["", chunk] if cells <= most else _parts(chunk, room, most)
            row.append(here)
            for part in below:
                rows.append("".join(row).rstrip(" "))
                row = [more, part]
            room = most - _cells_of(row[-1])
    return [*rows, "".join(row).rstrip(" ")]


def _parts(word: str, room: int, most: int) -> Iterator[str]:
    """Yield what of a word goes into the rest of a row, and what into each of those below."""
    if word.isascii():
        yield word[:room]
        for start in range(room, len(word), most):
            yield word[start : start + most]
        return
    start = 0
    for at, char in enumerate(word):
        cells = _cells_of_char(char)
        if cells > room:
            yield word[start:at]
            start, room = at, most
        room -= cells
    yield word[start:]


def _cells_of(text: str) -> int:
    return len(text) if text.isascii() else sum(map(_cells_of_char, text))


@functools.lru_cache(maxsize=4096)
def _cells_of_char(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me"):
        return 1 if char == _AS_EMOJI else 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1

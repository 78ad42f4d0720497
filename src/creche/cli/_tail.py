"""The answer as it comes in on a terminal: what is complete goes up for good, the rest stays above the line that is typed.

Rule 1: a paragraph that is not complete is cut into rows here, because a terminal that redraws it must know where they are.
Once complete it is left to the terminal, so that it can be copied whole.
"""

import textwrap

from ._live import Unfinished

ANSWER = ""
"""Style of the pieces of an answer; everything else is a line."""
PLAIN, TYPED = "plain", "typed"
"""Styles of lines that stay as they are: they may be copied, or are asked about."""
NOTE, QUESTION = "note", "question"
"""Styles of lines that are broken between words."""

Fragment = tuple[str, str]
"""A style and a text."""


class Tail:
    """The paragraph that is not complete."""

    def __init__(self) -> None:
        self._paragraph = Unfinished()

    def __bool__(self) -> bool:
        return bool(self._paragraph)

    def take(self, fragment: Fragment) -> Fragment | None:
        """Add a piece of an answer, or a line about it; return what can be written for good, in whole lines."""
        style, text = fragment
        if style != ANSWER:
            return style, f"{text}\n"
        complete, newline, rest = text.rpartition("\n")
        whole = f"{self._paragraph.take()}{complete}\n" if newline else ""
        self._paragraph.add(rest)
        return (ANSWER, whole) if whole else None

    def take_rest(self) -> str:
        """Return what is there of it, as a line."""
        return f"{self._paragraph.take()}\n" if self._paragraph else ""

    def rows(self, columns: int, most: int) -> list[str]:
        """Return its last rows on a terminal."""
        return self._paragraph.rows(columns)[-most:]


def wrap_words(text: str, columns: int) -> str:
    """Return lines that break between words; a word that is too long is left to the terminal."""
    return "\n".join([_wrap_line(line, columns) for line in text.split("\n")])


def _wrap_line(line: str, columns: int) -> str:
    indent = line[: len(line) - len(line.lstrip())]
    rows = textwrap.wrap(line, columns, subsequent_indent=indent + "  ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(rows)

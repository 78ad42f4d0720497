"""Text of models and tools as it is shown to people: with nothing that a terminal would obey, and short. And plurals."""

import json
import re
from typing import cast

LONGEST_ARGUMENTS = 2000
"""Characters of arguments that are read for names and values."""

# Everything that moves the cursor, ends a line or begins a sequence, but for the end of a line and the tab.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
# What cannot be seen and changes the order or the width of what can, or cannot be encoded. The two joiners stay: they
# are part of how words and emoji are written.
_INVISIBLE = re.compile(
    "[\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def printable(text: str) -> str:
    """Return a text without what a terminal would obey; ends of lines and tabs stay."""
    if text.isascii() and text.isprintable():  # most of what a model streams
        return text
    return _INVISIBLE.sub("", _CONTROL.sub(" ", text.replace("\r\n", "\n")))


def one_line(text: str) -> str:
    """Return a text without what a terminal would obey, on one line."""
    if text.isascii() and text.isprintable():
        return text
    return printable(text).replace("\n", " ").replace("\t", " ")


def shortened(text: str, most: int) -> str:
    """Return a text on one line of at most so many characters, with one space for each run of white space."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def counted(number: int, noun: str) -> str:
    """Return a number with what it counts: ``1 line``, ``2 lines``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def short_arguments(arguments: str) -> str:
    """Return the arguments of a call for people: names and values, without braces."""
    if len(arguments) > LONGEST_ARGUMENTS:
        return arguments[:LONGEST_ARGUMENTS]
    try:
        values = json.loads(arguments)
    except ValueError:
        return arguments
    if not isinstance(values, dict):
        return arguments
    return ", ".join(f"{name}={value!r}" for name, value in cast("dict[str, object]", values).items())

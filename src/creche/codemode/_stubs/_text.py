"""Texts that others wrote, as parts of Python: names, literals, and lines that can be seen."""

import keyword
import re
import unicodedata

_LONGEST_TYPE_NAME = 60


def is_name(text: str) -> bool:
    """Whether a text can be written as an argument or a field, and means itself there."""
    return (
        text.isidentifier()
        and not keyword.iskeyword(text)
        and not text.startswith("__")  # mangled in a class
        and (text.isascii() or unicodedata.is_normalized("NFKC", text))
    )


def type_name(text: str) -> str:
    """Return a name for a type, made of the words of a text."""
    name = "".join(word[0].upper() + word[1:] for word in re.findall("[0-9A-Za-z]+", text))
    return (name if name[:1].isalpha() else f"Tool{name}")[:_LONGEST_TYPE_NAME]


def literal(value: object) -> str:
    """Return a text, a number, a truth value or ``None`` as Python, in double quotes where it can be."""
    text = repr(value)
    # In single quotes without a double one inside, it has neither.
    return f'"{text[1:-1]}"' if text.startswith("'") and '"' not in text else text


def one_line(text: object) -> str:
    """Return a text with its white space folded, and printable; ``""`` if it is none."""
    return printable(" ".join(text.split())) if isinstance(text, str) else ""


def printable(line: str) -> str:
    """Return a line with what cannot be seen as escapes."""
    return line if line.isprintable() else "".join(map(_visible, line))


def _visible(character: str) -> str:
    return character if character.isprintable() else repr(character)[1:-1]

"""What a model is told of wrong arguments: a path and a sentence for each problem.

Both go into the history, so a sentence shows little of a wrong value and a list ends after twenty.
"""

import difflib
import itertools
import json
from collections.abc import Iterable, Iterator
from typing import TypeGuard

import attrs

from ._hints import read_fields

Problem = tuple[str, str]
MOST_PROBLEMS = 20
_LONGEST_NAME = 100


class RefusedError(ValueError):
    """The message is a sentence for the model."""


class MismatchError(RefusedError):
    """A value is not of the kind that its place is for."""

    def __init__(self, expected: str, value: object) -> None:
        super().__init__(f"must be {expected}, not {shown(value)}")
        self.expected = expected


def leaves_of(error: Exception, path: str) -> Iterator[tuple[str, Exception]]:
    """Walk what cattrs raised down to the single errors; each brings its path."""
    from cattrs import BaseValidationError, ForbiddenExtraKeysError

    stack = [(path, error)]
    while stack:
        path, error = stack.pop()
        if isinstance(error, BaseValidationError):
            stack += reversed([_located(inner, path, error.cl) for inner in error.exceptions])
        elif isinstance(error, ForbiddenExtraKeysError):
            known = [field.name for field in read_fields(error.cl)[0]]
            for key in sorted(error.extra_fields):
                yield child_path(path, key), RefusedError(unknown(key, known, f"a field of {error.cl.__name__}"))
        else:
            yield path, error


def _located(error: Exception, path: str, cls: type) -> tuple[str, Exception]:
    """Read where an error happened from the notes that cattrs left on it."""
    from cattrs.errors import AttributeValidationNote, IterableValidationNote

    notes: list[object] = getattr(error, "__notes__", [])
    for note in reversed(notes):
        if isinstance(note, IterableValidationNote):
            return child_path(path, note.index), error
        if isinstance(note, AttributeValidationNote):
            key = (attrs.fields_dict(cls)[note.name].alias if attrs.has(cls) else None) or note.name
            missing = isinstance(error, KeyError) and error.args == (key,)
            return child_path(path, key), RefusedError("is required") if missing else error
    return path, error


def sentence_of(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "is nested too deeply"
    first = error.args[0] if error.args else None
    return clipped(first if isinstance(first, str) else repr(error), 300)


def unknown(name: str, known: Iterable[str], what: str) -> str:
    # Comparing is quadratic in the length, and a model may have put a whole file into a key.
    close = difflib.get_close_matches(name, known, n=1) if len(name) <= _LONGEST_NAME else []
    advice = f"did you mean {shown(close[0])}?" if close else f"known: {clipped(', '.join(known), 200) or 'none'}"
    return f"is not {what}; {advice}"


def limited(problems: Iterable[Problem]) -> list[Problem]:
    listed = list(itertools.islice(problems, MOST_PROBLEMS + 1))
    if len(listed) > MOST_PROBLEMS:
        listed[MOST_PROBLEMS:] = [("", f"these are the first {MOST_PROBLEMS} problems, there are more")]
    return listed


def is_object(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def child_path(path: str, key: str | int) -> str:
    if isinstance(key, int):
        return f"{path}[{key}]"
    if not key.isidentifier():
        return f"{path}[{shown(key)}]"
    key = clipped(key, 60)
    return f"{path}.{key}" if path else key


def shown(value: object) -> str:
    """Show a JSON value in a sentence: a little of it."""
    if is_object(value):
        return "an object"
    if is_array(value):
        return "an array"
    if isinstance(value, str):
        return json.dumps(clipped(value, 40), ensure_ascii=False)
    if value is None or isinstance(value, (bool, int, float)):
        return clipped(json.dumps(value), 40)
    return f"a {type(value).__name__}"


def clipped(text: str, most: int) -> str:
    """Cut the middle out: of a message about a value, the end matters."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-(most // 2) :]}"

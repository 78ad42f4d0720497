"""From what the body of a tool returned to the text a model reads.

Text goes as it is, None is ``"done"``, anything else is canonical JSON: keys in their own order, no
spaces, every character as itself. Equal values give equal bytes in every process, so sets are sorted.
An attrs object or a dataclass is written field by field, by its own class. cattrs would go by the annotation of the
field the object sits in, and drop what a subclass adds.
"""

import dataclasses
import enum
import json
from collections.abc import Mapping, Set as AbstractSet
from datetime import date, time
from pathlib import PurePath
from typing import cast

import attrs

from creche._util import clean_text


class _NoJsonFormError(TypeError):
    """The sentence is ready for people."""


def result_text(value: object) -> str:
    """Return the text of a result.

    Lone surrogates become U+FFFD: one of them in a history is a permanent HTTP 400.

    Args:
      value: What the body returned. Beside what JSON has: tuples, sets, mappings, attrs objects, enums, dates and
        paths, at any depth.

    Raises:
      TypeError: the value, or one inside it, has no JSON form; the sentence names its type.
    """
    if value is None:
        return "done"
    if isinstance(value, str):
        # str() of a member of a text enum is its name; this is its value.
        return clean_text(str.__str__(value))
    return clean_text(json_text(value))


def json_text(value: object) -> str:
    """Return the canonical JSON text of a value. Lone surrogates stay in it.

    Raises:
      TypeError: the value, or one inside it, has no JSON form; the sentence names its type.
    """
    try:
        return _encode(value)
    except _NoJsonFormError:
        raise
    except TypeError as error:
        raise TypeError(f"the result has a dict without a JSON form: {error}; use text for its keys") from None
    except RecursionError:
        raise TypeError("the result has no JSON form: it is nested too deeply; return something flatter") from None
    except ValueError as error:
        raise TypeError(f"the result has no JSON form: {_reason(error)}") from None


def _reason(error: ValueError) -> str:
    reason = str(error)
    if reason.startswith("Out of range float"):
        return "it holds a float that is nan or infinite; return None or text in its place"
    if reason.startswith("Circular"):
        return "it contains itself; return a tree"
    return "it holds an int with thousands of digits; return it as text"


def _plain(value: object) -> object:
    """Return what JSON has in the place of a value it does not have; the encoder asks level by level."""
    kind = type(value)
    if (fields := _fields_of(kind)) is not None:
        return {key: getattr(value, name) for name, key in fields}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return dict(cast("Mapping[object, object]", value))
    if isinstance(value, AbstractSet):
        return _in_order(list(cast("AbstractSet[object]", value)))
    raise _NoJsonFormError(
        f"the result holds a value of type {kind.__name__}, which has no JSON form; "
        "return text, numbers, lists, dicts, dataclasses or attrs objects"
    )


def _fields_of(kind: type) -> list[tuple[str, str]] | None:
    """Return the fields of a class that are given when a value is made, and their keys; ``None`` if it has no fields."""
    if attrs.has(kind):
        return [(field.name, field.alias or field.name) for field in attrs.fields(kind) if field.init]
    if dataclasses.is_dataclass(kind):
        return [(field.name, field.name) for field in dataclasses.fields(kind) if field.init]
    return None


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain).encode


def _in_order(items: list[object]) -> list[object]:
    """Sort the items of a set: numbers by size, anything else by its JSON text."""
    if all(isinstance(item, (int, float)) for item in items):
        return sorted(items, key=lambda item: cast("float", item))
    return sorted(items, key=_encode)

"""Validators of fields, for values that are written down: a wrong type is refused when the value is made.

Rule 1: what these let pass goes into JSON and reads back equal, so a whole number has at most 64 bits, a number
is finite, and a tuple is a tuple.
Rule 2: a wrong type is a `TypeError`, a value out of range a `ValueError`; one sentence names class and field.

Those of attrs take twice as long and do not tell true from 1. The type is asked for first, a subclass is rare.
"""

import math
from collections.abc import Callable
from typing import Any, cast

import attrs

from ._text import shown

Check = Callable[[Any, "attrs.Attribute[Any]", Any], None]

BOUND = 2**63
"""Whole numbers are smaller, and not smaller than its negative."""
LARGEST = BOUND - 1
"""The largest whole number."""


def is_text(owner: object, field: "attrs.Attribute[Any]", value: object) -> None:
    """Refuse what is no text."""
    if type(value) is not str and not isinstance(value, str):
        raise _wrong_type(owner, field, "a text", value)


def is_bool(owner: object, field: "attrs.Attribute[Any]", value: object) -> None:
    """Refuse what is neither true nor false."""
    if value is not True and value is not False:
        raise _wrong_type(owner, field, "true or false", value)


def is_whole(owner: object, field: "attrs.Attribute[Any]", value: Any) -> None:
    """Refuse what is no whole number, or one of more than 64 bits."""
    if type(value) is not int and (not isinstance(value, int) or isinstance(value, bool)):
        raise _wrong_type(owner, field, "a whole number", value)
    if not -BOUND <= value < BOUND:
        raise ValueError(f"{_name(owner, field)} is a whole number of at most 64 bits, not {shown(value)}")


def is_count(owner: object, field: "attrs.Attribute[Any]", value: Any) -> None:
    """Refuse what is no whole number from zero."""
    if type(value) is not int or not 0 <= value < BOUND:
        is_whole(owner, field, value)
        if value < 0:
            raise ValueError(f"{_name(owner, field)} is zero or more, not {shown(value)}")


def is_positive(owner: object, field: "attrs.Attribute[Any]", value: Any) -> None:
    """Refuse what is no whole number from one."""
    is_whole(owner, field, value)
    if value < 1:
        raise ValueError(f"{_name(owner, field)} is one or more, not {shown(value)}")


def is_duration(owner: object, field: "attrs.Attribute[Any]", value: Any) -> None:
    """Refuse what is no finite number from zero."""
    is_finite(owner, field, value)
    if value < 0:
        raise ValueError(f"{_name(owner, field)} is zero or more, not {value!r}")


def is_finite(owner: object, field: "attrs.Attribute[Any]", value: Any) -> None:
    """Refuse what is no number, or not a finite one."""
    if not isinstance(value, float):
        if not isinstance(value, int) or isinstance(value, bool):
            raise _wrong_type(owner, field, "a finite number", value)
        is_whole(owner, field, value)
    elif not math.isfinite(value):
        raise ValueError(f"{_name(owner, field)} is a finite number, not {value!r}")


def is_a(kind: type[Any]) -> Check:
    """Return a validator that refuses what is not exactly of a class: of another one, not all would be kept."""

    def check(owner: object, field: "attrs.Attribute[Any]", value: object) -> None:
        if type(value) is not kind:
            raise _wrong_type(owner, field, kind.__name__, value)

    return check


def is_one_of(*texts: str) -> Check:
    """Return a validator that refuses all but these texts."""
    listed = ", ".join(map(repr, texts))

    def check(owner: object, field: "attrs.Attribute[Any]", value: object) -> None:
        if type(value) is not str:
            raise _wrong_type(owner, field, f"one of {listed}", value)
        if value not in texts:
            raise ValueError(f"{_name(owner, field)} is one of {listed}, not {shown(value)}")

    return check


def is_tuple_of(kind: type[Any], plural: str = "") -> Check:
    """Return a validator that refuses what is no tuple, or has something else than this class in it."""
    only = {kind}
    what = f"a tuple of {plural or kind.__name__}"

    def check(owner: object, field: "attrs.Attribute[Any]", value: object) -> None:
        # The set is made without a step of Python for each: a stream has thousands of pieces.
        given = cast("tuple[object, ...]", value)
        if type(value) is not tuple or {*map(type, given)} - only:
            raise _wrong_type(owner, field, what, given)

    return check


def is_none_or(check: Check) -> Check:
    """Return a validator that lets ``None`` pass, and what another one does."""

    def check_given(owner: object, field: "attrs.Attribute[Any]", value: object) -> None:
        if value is not None:
            try:
                check(owner, field, value)
            except (TypeError, ValueError) as error:
                said, _, found = str(error).partition(", not ")
                comma = "," if ", " in said else ""
                raise type(error)(f"{said}{comma} or None, not {found}") from None

    return check_given


def _wrong_type(owner: object, field: "attrs.Attribute[Any]", expected: str, value: object) -> TypeError:
    return TypeError(f"{_name(owner, field)} is {expected}, not {shown(value)}")


def _name(owner: object, field: "attrs.Attribute[Any]") -> str:
    return f"{type(owner).__name__}.{field.name}"

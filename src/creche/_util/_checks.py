"""Checks of what people pass, for mistakes that a type checker would have found."""

from collections.abc import Iterable
from typing import TypeVar, cast

T = TypeVar("T")


def as_all(kind: type[T], given: object, option: str, cure: str) -> tuple[T, ...]:
    """Return a list of things of one class as a tuple.

    Args:
      kind: The class.
      given: What was passed.
      option: What it was passed as, such as ``"tools="``.
      cure: What to write instead of something else, such as ``"decorate the function with @tool"``.

    Raises:
      TypeError: It is not a list, or something else is in it.
    """
    if isinstance(given, kind | str) or not isinstance(given, Iterable):
        raise TypeError(f"{option} takes a list, not {given!r}; write {option}[...]")
    listed = tuple(cast("Iterable[object]", given))
    for each in listed:
        as_one(kind, each, option, cure)
    return cast("tuple[T, ...]", listed)


def as_names(given: object, option: str) -> tuple[str, ...]:
    """Return a list of names as a tuple.

    Raises:
      TypeError: It is one text, whose letters would pass for names, or something else than texts is in it.
    """
    return as_all(str, given, option, "give names")


def as_one(kind: type[T], given: object, option: str, cure: str) -> T:
    """Return a thing of one class as it is.

    Raises:
      TypeError: It is something else.
    """
    if not isinstance(given, kind):
        name = getattr(given, "__name__", given)
        raise TypeError(f"{option} takes {kind.__name__}, and {name!r} is none; {cure}")
    return given

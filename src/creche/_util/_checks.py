"""Checks of what people pass, for mistakes that a type checker would have found."""

import sys
from collections.abc import Iterable
from typing import TypeVar, cast

import trio

from creche.errors import PortalError

from ._text import shown

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
        raise TypeError(f"{option} takes a list, not {shown(given)}; write {option}[...]")
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
        name = getattr(given, "__name__", None)
        raise TypeError(f"{option} takes {kind.__name__}, and {repr(name) if name else shown(given)} is none; {cure}")
    return given


def check_in_trio(what: str, through_portal: str) -> None:
    """Check that trio runs in this thread, for what would be half done elsewhere.

    Args:
      what: What was used, such as ``"open_host()"``.
      through_portal: What to do in a program on asyncio, such as ``"write await portal.call(agent.cancel)"``.

    Raises:
      PortalError: It does not.
    """
    if trio.lowlevel.in_trio_run():
        return
    asyncio = sys.modules.get("asyncio")  # it is not imported for this
    if asyncio is not None and asyncio._get_running_loop() is not None:
        raise PortalError(
            f"{what} belongs to trio, and this is asyncio: open a portal (creche.open_portal), and {through_portal}"
        )
    raise PortalError(
        f"{what} belongs to trio, which does not run in this thread: plain code has creche.run_sync, and a tool that runs in a "
        "thread has trio.from_thread"
    )

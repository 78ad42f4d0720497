"""Dispatch: who hears a notification, and the chain of wrappers around an operation.

The functions that are called are derived once from the registry and kept like any view, so a dispatch
that nobody hears costs a look-up.
"""

import logging
from collections.abc import Awaitable, Callable
from operator import length_hint
from typing import Any, Generic, TypeVar

import attrs

from creche.errors import InternalError

from ._events import Fault, Listener, Notification, Operation, Wrapper, result_type_of
from ._keys import ScopeKey
from ._registration import Owner, Registration, place_name
from ._views import Level

E = TypeVar("E", bound=Operation[object])
R = TypeVar("R")

logger = logging.getLogger("creche")


@attrs.frozen(eq=False)
class Reached:
    """Whom a dispatch reaches: at the anchoring scope itself, and at scopes below it that declared nothing."""

    scope: ScopeKey | None
    here: tuple[Callable[..., Any], ...] = attrs.field(kw_only=True)
    below: tuple[Callable[..., Any], ...] = attrs.field(kw_only=True)
    by_here: tuple[Registration, ...] = attrs.field(kw_only=True)
    by_below: tuple[Registration, ...] = attrs.field(kw_only=True)


def derive_reached(levels: tuple[Level, ...]) -> Reached:
    """Return the functions of the visible listeners or wrappers, root first."""
    scope = levels[-1].scope if levels else None
    here: list[Registration] = []
    below: list[Registration] = []
    for level in levels:
        for registration in level.tables[0]:
            entry = registration.entry
            only_here: bool = entry.here_only  # type: ignore[union-attr]  # the tables of events hold these two alone
            if not only_here:
                below.append(registration)
            if not only_here or level.scope is scope:
                here.append(registration)
    return Reached(
        scope,
        here=tuple([_function(each) for each in here]),
        below=tuple([_function(each) for each in below]),
        by_here=tuple(here),
        by_below=tuple(below),
    )


def _function(registration: Registration) -> Callable[..., Any]:
    entry = registration.entry
    if isinstance(entry, Listener):
        return entry.hear
    assert isinstance(entry, Wrapper), "the tables of events hold listeners and wrappers alone"
    return entry.wrap


def notify(
    reached: Reached, event: Notification, at: ScopeKey | None, report: Callable[[Owner, str, Exception], None]
) -> None:
    """Call every listener; one that raises is reported and starves nobody."""
    calls = reached.here if reached.scope is at else reached.below
    remaining = iter(calls)
    for hear in remaining:
        try:
            hear(event)
        except Exception as error:  # noqa: BLE001 - contained here, reported at its owner
            registrations = reached.by_here if reached.scope is at else reached.by_below
            failed = registrations[len(calls) - length_hint(remaining) - 1]
            report(failed.owner, f"hearing {type(event).wire_name}", error)


class Onion(Generic[E, R]):
    """One dispatch of an operation through its wrappers; the list is fixed when it starts."""

    __slots__ = ("_innermost", "_registrations", "_result_type", "_wraps")

    def __init__(
        self,
        wraps: tuple[Callable[..., Any], ...],
        registrations: tuple[Registration, ...],
        innermost: Callable[[E], Awaitable[R]],
        operation: type[Operation[object]],
    ) -> None:
        self._wraps = wraps
        self._registrations = registrations
        self._innermost = innermost
        self._result_type = result_type_of(operation)

    async def run(self, event: E, depth: int = 0) -> R:
        """Run the wrappers from one depth inwards, then the operation itself."""
        if depth == len(self._wraps):
            return await self._innermost(event)

        async def go_on(changed: E | None = None) -> R:
            return await self.run(event if changed is None else changed, depth + 1)

        try:
            result: R = await self._wraps[depth](event, go_on)
        except Exception as error:
            if not getattr(error, "__notes__", None):
                error.add_note(self._blame(event, depth))
            raise
        if not isinstance(result, self._result_type):
            expected = getattr(self._result_type, "__name__", str(self._result_type))
            raise InternalError(
                f"{self._blame(event, depth)} returned {result!r} where {expected} was expected; "
                "return what `await next()` gives, or a value of that class"
            )
        return result

    def _blame(self, event: E, depth: int) -> str:
        by = self._registrations[depth]
        return f"the wrapper of {by.owner.name!r} at {place_name(by.scope)} around {type(event).wire_name}"


def log_fault(fault: Fault) -> None:
    """Report a fault that nobody heard."""
    logger.error("%s failed %s", fault.owner, fault.what, exc_info=fault.error)


"""Dispatch: who hears a notification, and the chain of wrappers around an operation.

The functions that are called are derived once from the registry and kept like any view, so a dispatch
that nobody hears costs a look-up.
"""

import logging
from collections.abc import Awaitable, Callable
from operator import length_hint
from typing import Any, Generic, TypeVar, cast

import attrs

from creche._util import shown
from creche.errors import InternalError

from ._events import Listener, Notification, Operation, Wrapper, result_type_of
from ._keys import ScopeKey
from ._registration import Owner, Registration, place_name
from ._views import Level

O = TypeVar("O", bound=Operation[Any])  # noqa: E741 - O as in operation
R = TypeVar("R")

logger = logging.getLogger("creche")


@attrs.frozen(eq=False)
class Heard:
    """The functions that one dispatch calls, root first, and the registration of each at the same index."""

    calls: tuple[Callable[..., Any], ...]
    registrations: tuple[Registration, ...]


@attrs.frozen(eq=False)
class Reached:
    """Whom a dispatch reaches: at the anchoring scope itself, and at scopes below it that declared nothing."""

    scope: ScopeKey | None
    here: Heard = attrs.field(kw_only=True)
    below: Heard = attrs.field(kw_only=True)

    def at(self, scope: ScopeKey | None) -> Heard:
        """Return whom it reaches from a scope that this is the view of."""
        return self.here if self.scope is scope else self.below


def derive_reached(levels: tuple[Level, ...]) -> Reached | None:
    """Return the functions of the visible listeners or wrappers, root first; ``None`` if there are none."""
    if not levels:
        return None
    scope = levels[-1].scope
    here: list[tuple[Callable[..., Any], Registration]] = []
    below: list[tuple[Callable[..., Any], Registration]] = []
    for level in levels:
        for registration in level.tables[0]:
            function, here_only = _function_of(registration)
            if not here_only:
                below.append((function, registration))
            if not here_only or level.scope is scope:
                here.append((function, registration))
    return Reached(scope, here=_heard(here), below=_heard(below))


def _function_of(registration: Registration) -> tuple[Callable[..., Any], bool]:
    entry = registration.entry
    if isinstance(entry, Listener):
        return entry.hear, entry.here_only  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - of any event
    assert isinstance(entry, Wrapper), "the tables of events hold listeners and wrappers alone"
    return entry.wrap, entry.here_only  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - of any event


def _heard(found: list[tuple[Callable[..., Any], Registration]]) -> Heard:
    return Heard(tuple([function for function, _ in found]), tuple([registration for _, registration in found]))


def notify(heard: Heard, event: Notification, report: Callable[[Owner, str, Exception], None]) -> None:
    """Call every listener; one that raises is reported and starves nobody."""
    remaining = iter(heard.calls)
    for hear in remaining:
        try:
            hear(event)
        except Exception as error:  # noqa: BLE001 - contained here, reported at its owner
            # Counting the calls would cost more than all the rest of this loop; what remains says who failed.
            failed = heard.registrations[len(heard.calls) - length_hint(remaining) - 1]
            report(failed.owner, f"hearing {type(event).wire_name}", error)


def log_fault(owner: Owner, what: str, error: BaseException | None) -> None:
    """Log a fault that nobody hears, or that came of hearing one."""
    logger.error("%s failed %s", owner.name, what, exc_info=error)


class Onion(Generic[O, R]):
    """One dispatch of an operation through its wrappers; the list is fixed when it starts."""

    __slots__ = ("_heard", "_innermost", "_result_type")

    def __init__(self, heard: Heard, innermost: Callable[[O], Awaitable[R]], operation: type[O]) -> None:
        self._heard = heard
        self._innermost = innermost
        self._result_type = result_type_of(operation)

    async def run(self, event: O, depth: int = 0) -> R:
        """Run the wrapper at one depth, and through it all that is inside."""
        passed: list[Exception] = []

        async def go_on(changed: O | None = None, /) -> R:
            inner = event if changed is None else changed
            if type(inner) is not type(event):
                raise TypeError(f"next() takes nothing, or another {type(event).__qualname__}, not {inner!r}")
            try:
                if depth + 1 < len(self._heard.calls):
                    return await self.run(inner, depth + 1)
                return self._checked(await self._innermost(inner), event, None)
            except Exception as error:
                passed.append(error)
                raise

        try:
            result = await self._heard.calls[depth](event, go_on)
        except Exception as error:
            if not any(error is each for each in passed):
                error.add_note(f"raised by {self._whose(event, depth)}")
            raise
        finally:
            passed.clear()  # else an error and the frames of its traceback keep each other alive
        return self._checked(result, event, depth)

    def _checked(self, result: Any, event: O, depth: int | None) -> R:
        """Return a result if it is one, else blame the wrapper it came from, or the operation itself."""
        if isinstance(result, self._result_type):
            return cast("R", result)
        expected = getattr(self._result_type, "__qualname__", str(self._result_type))
        if depth is None:
            raise InternalError(f"{type(event).wire_name} itself gave {shown(result)} where {expected} was expected")
        raise InternalError(
            f"{self._whose(event, depth)} returned {shown(result)} where {expected} was expected; "
            "return what `await next()` gives, or a value of that class"
        )

    def _whose(self, event: O, depth: int) -> str:
        by = self._heard.registrations[depth]
        return f"the wrapper of {by.owner.name!r} at {place_name(by.scope)} around {type(event).wire_name}"

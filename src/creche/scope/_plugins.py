"""A plugin, and a plugin in its place: its registrations, its bodies, and how it is taken down.

A setup is a list whose items are entries, plugins, or functions of a registrar. A function may be plain,
``async``, or an async context manager; the body of such a one lives in a task of its own (`_lifespans.py`).

Rule 1: taking a plugin down is two things in this order. Its registrations are undone, in one synchronous
stretch, so nothing reaches it any more; then its async exits run, newest first.
Rule 2: at any time at most one task works on a mounted plugin, sets it up or ends it. Others change its
state, cancel the setup under way, and wait for that task. What the task does is in `_mounts.py`, and so is why
what narrows authority is kept (its rule 4).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Literal

import attrs
import trio

from creche._util import NoPublicConstructor, final, is_text

from ._entries import Entry
from ._keys import ScopeKey
from ._lifespans import Lifespan
from ._registrar import Registrar
from ._registration import Owner, Registration, place_name, raise_together, undo_all

if TYPE_CHECKING:
    from ._mounts import Mounts

State = Literal["starting", "active", "waiting", "failed", "unmounted"]


def _as_setup(items: "Iterable[SetupItem]") -> "tuple[SetupItem, ...]":
    return tuple(items)


def _as_types(types: Iterable[type[object]]) -> tuple[type[object], ...]:
    return tuple(types)


@attrs.frozen(eq=False)
class Plugin:
    """A setup that can be mounted on a scope, any number of times."""

    name: str = attrs.field(validator=is_text)
    """Who its registrations belong to, in messages and attribution."""
    setup: "tuple[SetupItem, ...]" = attrs.field(converter=_as_setup)
    """Entries, plugins, and functions of a registrar, in order.

    Contract: a function is called once a setup, and what it raises fails the whole setup. It returns nothing
    (a registration is nothing, too), is async, or returns an async context manager.
    """
    requires: tuple[type[object], ...] = attrs.field(default=(), converter=_as_types, kw_only=True)
    """Service types that must be visible where it is mounted, for as long as it is."""


SetupItem = Entry | Plugin | Callable[[Registrar], object]
"""What a setup is a list of: entries, plugins, functions of a registrar."""


@final
class Mounted(metaclass=NoPublicConstructor):
    """A plugin in its place. `unmount` takes it down."""

    __slots__ = (
        "_after",
        "_busy",
        "_crash",
        "_idle",
        "_kept",
        "_mounts",
        "_parts",
        "_state",
        "_uses",
        "_waiting_in",
        "config",
        "owner",
        "plugin",
        "scope",
    )

    def __init__(self, mounts: "Mounts", plugin: Plugin, scope: ScopeKey | None, config: object) -> None:
        self.plugin: Plugin = plugin
        """What was mounted."""
        self.scope: ScopeKey | None = scope
        """Where; ``None`` is the global layer."""
        self.config: object = config
        """The configuration its registrar shows."""
        self.owner: Owner = Owner(plugin.name, scope)
        """Whose its registrations are; another one each time it is set up."""
        self._mounts = mounts
        self._state: State = "starting"
        # Its bodies and nested plugins, in order of setup, for as long as they need an end.
        self._parts: list[Lifespan | Mounted] = []
        # What narrows authority, of a setup of it that stood once and does not any more; nested plugins' too.
        self._kept: list[Registration] = []
        # The services it was set up with.
        self._uses: tuple[Registration | None, ...] = ()
        # Bodies of plugins that used its services; they leave first.
        self._after: list[Lifespan] = []
        # Where a setup under way waits, if it does, and what crashed during it.
        self._waiting_in: trio.CancelScope | None = None
        self._crash: Exception | None = None
        # Whether a task works on it, and what that sets when it is done, if anybody waits.
        self._busy = False
        self._idle: trio.Event | None = None

    @property
    def active(self) -> bool:
        """Whether its setup stands: false while it is set up, while a service is absent, and after its end."""
        return self._is("active")

    async def unmount(self) -> None:
        """Undo its registrations at once, then wait for its async exits, newest first. Idempotent.

        A setup under way is cancelled. If the wait is cancelled, the exits go on in the host.

        Raises:
          ExceptionGroup: Some undo failed; everything was undone all the same.
        """
        failures = self._take_down("unmounted")
        await self._mounts._settled(self)
        raise_together(failures)

    def _take_down(self, state: State) -> list[Exception]:
        """Undo what it and its nested plugins registered, newest first, and stop a setup under way. Synchronous.

        What narrows authority is kept, unless it is unmounted. Of a setup that did not come to its end
        everything is undone, and what is kept of an earlier one stays.
        """
        if not self._parts and not self._kept and state == "unmounted":
            self._leave(state)
            return undo_all(self.owner._registrations)
        family = list(self._family())
        if state == "unmounted":
            kept: list[Registration] = []
        elif self._is("active"):
            kept = [registration for each in family for registration in each._narrowing()]
        else:
            kept = self._kept
        going = {registration for each in family for registration in (*each.owner._registrations, *each._kept)}
        for each in family:
            each._kept = []
            each._leave(state if each is self else "unmounted")
        self._kept = kept
        return undo_all(sorted(going.difference(kept), key=lambda registration: registration.place))

    def _narrowing(self) -> Iterator[Registration]:
        """Yield what is kept of it alone if its setup ends here."""
        yield from self._kept
        if self._is("active"):
            yield from (each for each in self.owner._registrations if getattr(type(each.entry), "narrows", False))

    def _replace_kept(self) -> list[Exception]:
        """Undo what is kept of earlier setups, because another one stands. Synchronous; returns the failures."""
        kept, self._kept = self._kept, []
        return undo_all(kept)

    def _leave(self, state: State) -> None:
        if not self._is("failed", "unmounted"):
            self._state = state
        if self.plugin.requires:
            self._mounts._left(self)
        self.owner.closed = True
        if self._waiting_in is not None:
            self._waiting_in.cancel()

    def _is(self, *states: State) -> bool:
        return self._state in states

    def _family(self) -> "Iterator[Mounted]":
        """Yield it and the plugins nested in it."""
        yield self
        for part in self._parts:
            if isinstance(part, Mounted):
                yield from part._family()

    def _has_life(self) -> bool:
        """Tell whether something in it has to be waited for."""
        return any(isinstance(part, Lifespan) or part._busy or part._has_life() for part in self._parts)

    def _bodies(self) -> Iterator[Lifespan]:
        for each in self._family():
            for part in each._parts:
                if isinstance(part, Lifespan):
                    yield part

    async def _end_parts(self) -> None:
        """End its bodies and nested plugins, newest first. Swallows cancellation as `Lifespan.end` does."""
        for body in self._after:
            try:
                await body.ended.wait()
            except trio.Cancelled:
                break  # there is no time for manners
        self._after.clear()
        while self._parts:
            part = self._parts[-1]
            if isinstance(part, Lifespan):
                await part.end()
            else:
                await part._end_parts()
                if part._busy:
                    with trio.CancelScope(shield=True):
                        await part._wait_idle()
            if self._parts and self._parts[-1] is part:
                self._parts.pop()

    async def _wait_idle(self) -> None:
        if self._busy:
            if self._idle is None:
                self._idle = trio.Event()
            await self._idle.wait()

    def _rest(self) -> None:
        self._busy = False
        if self._idle is not None:
            self._idle.set()
            self._idle = None

    def __repr__(self) -> str:
        return f"<Mounted {self.plugin.name!r} at {place_name(self.scope)} ({self._state})>"

"""What is registered, by whom, where: entries, owners, registrations."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from creche._util import final
from creche.errors import ScopeClosedError

from ._events import Listener, Wrapper

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from ._keys import ScopeKey
    from ._layers import ScopedLayers


class NamedEntry(Protocol):
    """What can be registered under a name: the nearest scope wins it. `Registry.merge` reads it."""

    entry_shape: ClassVar[Literal["named"]]

    @property
    def name(self) -> str:
        """The name, unique within one scope."""
        ...


class AnonymousEntry(Protocol):
    """What is registered without a name and never shadowed. `Registry.collect` reads it."""

    entry_shape: ClassVar[Literal["anonymous"]]


Entry = NamedEntry | AnonymousEntry


def kind_of(entry: object) -> type:
    """Return the table an entry belongs into: its class, for listeners and wrappers the class of their event."""
    if type(entry) is Listener or type(entry) is Wrapper:
        return entry.event_type
    return type(entry)


@final
class Owner:
    """Who registers: a name for messages, and an end that undoes what is still registered."""

    __slots__ = ("_registrations", "closed", "name", "scope")

    def __init__(self, name: str, scope: ScopeKey | None = None) -> None:
        self.name = name
        """For messages and attribution."""
        self.scope = scope
        """Where its faults are dispatched; ``None`` is the global layer."""
        self.closed = False
        """Whether it takes no more registrations."""
        self._registrations: dict[Registration, None] = {}

    def close(self) -> None:
        """Undo everything the owner still has registered, newest first; idempotent.

        Raises:
          ExceptionGroup: Some undo failed; all the others were undone all the same.
        """
        self.closed = True
        undo_all(self._registrations)

    def check_open(self) -> None:
        """Refuse registrations after the end.

        Raises:
          ScopeClosedError: The owner is closing or closed.
        """
        if self.closed:
            raise ScopeClosedError(f"{self.name!r} is closing or closed and cannot register anything any more")

    def __repr__(self) -> str:
        return f"<Owner {self.name!r} registrations={len(self._registrations)}>"


@final
class Registration:
    """One entry in one layer, and the call that takes it back, once. A context manager too."""

    __slots__ = ("_layers", "before_undo", "entry", "kind", "owner", "place", "scope")

    def __init__(
        self, layers: ScopedLayers, entry: Entry, kind: type, scope: ScopeKey | None, owner: Owner, place: int
    ) -> None:
        self._layers: ScopedLayers | None = layers
        self.entry = entry
        """What was registered."""
        self.kind = kind
        """The table it lies in."""
        self.scope = scope
        """Where; ``None`` is the global layer."""
        self.owner = owner
        """Who registered it."""
        self.place = place
        """Its place in the order of registration over the whole registry."""
        self.before_undo: Callable[[Registration], None] | None = None
        """Called once, synchronously, just before the entry goes; what depends on it goes first."""

    def undo(self) -> None:
        """Take the entry back. Synchronous and idempotent."""
        if self._layers is not None:
            layers, self._layers = self._layers, None
            try:
                if self.before_undo is not None:
                    self.before_undo(self)
            finally:
                self.owner._registrations.pop(self, None)
                layers.remove(self)

    def __enter__(self) -> Registration:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.undo()

    def __repr__(self) -> str:
        return f"<Registration of {describe(self)}>"


def describe(registration: Registration) -> str:
    """Return a registration as messages name it: ``Tool 'read' of 'files' at scope 'root'``."""
    name = getattr(registration.entry, "name", None)
    what = f"{registration.kind.__name__} {name!r}" if isinstance(name, str) else registration.kind.__name__
    return f"{what} of {registration.owner.name!r} at {place_name(registration.scope)}"


def place_name(scope: ScopeKey | None) -> str:
    """Return a scope as messages name it."""
    return "the global layer" if scope is None else f"scope {scope.label!r}"


def undo_all(registrations: dict[Registration, None] | list[Registration]) -> None:
    """Undo newest first; a failing undo does not stop the others.

    Raises:
      ExceptionGroup: The failures, together.
    """
    failures = []
    for registration in reversed(list(registrations)):
        try:
            registration.undo()
        except Exception as error:  # noqa: BLE001 - collected and raised together
            failures.append(error)
    if failures:
        raise ExceptionGroup("some registrations could not be undone", failures)

"""Who registered what, where, and how it is taken back: owners and registrations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeVar, cast

from creche._util import NoPublicConstructor, final
from creche.errors import ScopeClosedError

from ._entries import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from ._entries import Entry
    from ._keys import ScopeKey
    from ._layers import ScopedLayers

T = TypeVar("T")


@final
class Owner:
    """Who registers: a name for messages, and an end that undoes what is still registered.

    Args:
      name: For messages and attribution; it need not be unique.
      scope: Where its faults are dispatched; ``None`` is the global layer.
    """

    __slots__ = ("_registrations", "closed", "name", "scope")

    def __init__(self, name: str, scope: ScopeKey | None = None) -> None:
        self.name: str = name
        """For messages and attribution."""
        self.scope: ScopeKey | None = scope
        """Where its faults are dispatched; ``None`` is the global layer."""
        self.closed: bool = False
        """Whether it takes no more registrations."""
        self._registrations: dict[Registration, None] = {}

    def close(self) -> None:
        """Undo everything the owner still has registered, newest first, and take nothing more. Idempotent.

        Raises:
          ExceptionGroup: Some undo failed; all the others were undone all the same.
        """
        self.closed = True
        raise_together(undo_all(self._registrations))

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
class Registration(metaclass=NoPublicConstructor):
    """One entry in one layer, and the call that takes it back, once.

    As a context manager it takes the entry back when the block ends.
    """

    __slots__ = ("_layers", "_made", "after_undo", "before_undo", "entry", "kind", "name", "owner", "place", "scope")

    def __init__(  # noqa: PLR0917 - this room's own, and keywords through a metaclass cost as much as all the rest
        self, layers: ScopedLayers, entry: Entry, kind: type[object], scope: ScopeKey | None, owner: Owner, place: int
    ) -> None:
        self._layers: ScopedLayers | None = layers
        self._made: tuple[Callable[[Registration], object], object] | None = None
        self.entry: Entry = entry
        """What was registered."""
        self.kind: type[object] = kind
        """The table it lies in."""
        self.name: object = name_of(entry)
        """The name it holds there: a text, a service's type, or ``None`` for an anonymous entry."""
        self.scope: ScopeKey | None = scope
        """Where; ``None`` is the global layer."""
        self.owner: Owner = owner
        """Who registered it."""
        self.place: int = place
        """Its place in the order of registration over the whole registry."""
        self.before_undo: Callable[[Registration], None] | None = None
        """Called once, synchronously, just before the entry goes; what depends on it goes first."""
        self.after_undo: Callable[[Registration], None] | None = None
        """Called once, synchronously, when the entry is gone; who is to know is told."""

    def once(self, make: Callable[[Registration], T]) -> T:
        """Return what a derivation makes of this registration alone, made once and shared by every view it is in.

        Args:
          make: A pure function at module level; what it gives is immutable. Right for good: a registration never changes.
        """
        made = self._made
        if made is None or made[0] is not make:
            made = self._made = (make, make(self))
        return cast("T", made[1])

    def undo(self) -> None:
        """Take the entry back. Synchronous; a second call does nothing, whatever holds the name by then.

        A dispatch under way keeps the list it began with, so a listener can still be called within it.
        """
        if self._layers is not None:
            layers, self._layers = self._layers, None
            try:
                if self.before_undo is not None:
                    self.before_undo(self)
            finally:
                self.owner._registrations.pop(self, None)
                layers.remove(self)
                if self.after_undo is not None:
                    self.after_undo(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.undo()

    def __repr__(self) -> str:
        what = self.kind.__name__ if self.name is None else f"{self.kind.__name__} {shown_name(self.name)}"
        return f"<Registration of {what} of {self.owner.name!r} at {place_name(self.scope)}>"


def place_name(scope: ScopeKey | None) -> str:
    """Return a scope as messages name it: ``scope 'lead'`` or ``the global layer``."""
    return "the global layer" if scope is None else f"scope {scope.label!r}"


def shown_name(name: object) -> str:
    """Return the name of a registration as messages show it."""
    return repr(name.__qualname__ if isinstance(name, type) else name)


def undo_all(registrations: Iterable[Registration]) -> list[Exception]:
    """Undo newest first, given in order of registration; a failing undo does not stop the others.

    Returns:
      The failures.
    """
    failures: list[Exception] = []
    for registration in reversed(list(registrations)):
        try:
            registration.undo()
        except Exception as error:  # noqa: BLE001 - collected, for the caller to raise or report
            failures.append(error)
    return failures


def raise_together(failures: list[Exception]) -> None:
    """Raise what `undo_all` returned, if anything.

    Raises:
      ExceptionGroup: The failures, together.
    """
    if failures:
        raise ExceptionGroup("some registrations could not be undone", failures)

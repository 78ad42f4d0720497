"""Where entries lie: a global layer and one layer a scope; a layer holds one table a kind of entry.

Rule 1: reading never makes a layer.
Rule 2: a table goes with its last entry and a layer with its last table, also after an insert that failed.
Rule 3: every change is counted, in its table and in its kind, so that a derived view can tell with one
comparison of numbers, or of the tables of one chain, that it is still right (`_views.py`).
"""

from collections.abc import Iterator
from typing import Any

from creche.errors import DuplicateNameError

from ._keys import ScopeKey
from ._registration import Registration, place_name, shown_name


class NamedEntries:
    """Entries with a name; a name is taken once."""

    __slots__ = ("_by_name", "version")

    def __init__(self) -> None:
        self._by_name: dict[object, Registration] = {}
        self.version: int = 0

    def insert(self, registration: Registration) -> None:
        """Add one.

        Raises:
          DuplicateNameError: The name is taken in this very table.
        """
        taken = self._by_name.setdefault(registration.name, registration)
        if taken is not registration:
            raise DuplicateNameError(_duplicate_message(taken, registration))
        self.version += 1

    def remove(self, registration: Registration) -> None:
        """Take one out that is in."""
        del self._by_name[registration.name]
        self.version += 1

    def __iter__(self) -> Iterator[Registration]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)


class AnonymousEntries:
    """Entries without a name; two equal values are two registrations."""

    __slots__ = ("_registrations", "version")

    def __init__(self) -> None:
        self._registrations: dict[Registration, None] = {}
        self.version: int = 0

    def insert(self, registration: Registration) -> None:
        """Add one."""
        self._registrations[registration] = None
        self.version += 1

    def remove(self, registration: Registration) -> None:
        """Take one out that is in."""
        del self._registrations[registration]
        self.version += 1

    def __iter__(self) -> Iterator[Registration]:
        return iter(self._registrations)

    def __len__(self) -> int:
        return len(self._registrations)


Table = NamedEntries | AnonymousEntries


class Layer:
    """What one scope declared, and the views kept for it and for those below it that declared nothing."""

    __slots__ = ("kept", "scope", "tables")

    def __init__(self, scope: ScopeKey | None) -> None:
        self.scope: ScopeKey | None = scope
        self.tables: dict[type[object], Table] = {}
        self.kept: dict[object, Any] = {}


class KindCount:
    """How often the tables of one kind, or of some, changed; how many there are, and how many of them in scopes."""

    __slots__ = ("groups", "scoped", "tables", "version")

    def __init__(self) -> None:
        self.version: int = 0
        self.tables: int = 0
        self.scoped: int = 0
        self.groups: list[KindCount] = []
        """The counts of several kinds that this one is part of."""

    def change(self, scope: ScopeKey | None, tables: int) -> None:
        """Count a change of a table at a scope, by which there are so many tables more."""
        self.version += 1
        self.tables += tables
        if scope is not None:
            self.scoped += tables
        for group in self.groups:
            group.change(scope, tables)


class ScopedLayers:
    """The global layer and the layers of scopes."""

    __slots__ = ("_groups", "by_scope", "counts", "global_layer")

    def __init__(self) -> None:
        self.global_layer: Layer = Layer(None)
        self.by_scope: dict[ScopeKey, Layer] = {}
        self.counts: dict[type[object], KindCount] = {}
        self._groups: dict[frozenset[type[object]], KindCount] = {}

    def count(self, kind: type[object]) -> KindCount:
        """Return the counter of a kind, made on first use."""
        count = self.counts.get(kind)
        if count is None:
            count = self.counts[kind] = KindCount()
        return count

    def count_of(self, kinds: frozenset[type[object]]) -> KindCount:
        """Return the counter of several kinds together, made on first use."""
        group = self._groups.get(kinds)
        if group is None:
            group = self._groups[kinds] = KindCount()
            for count in map(self.count, kinds):
                group.version += count.version
                group.tables += count.tables
                group.scoped += count.scoped
                count.groups.append(group)
        return group

    def layer(self, scope: ScopeKey | None) -> Layer | None:
        """Return the layer of a scope if it declared anything."""
        return self.global_layer if scope is None else self.by_scope.get(scope)

    def insert(self, registration: Registration) -> None:
        """Put a registration into its table; a failure leaves no table and no layer behind."""
        kind, scope = registration.kind, registration.scope
        layer = self.layer(scope) or Layer(scope)
        table = layer.tables.get(kind)
        if table is not None:
            table.insert(registration)
            self.counts[kind].change(scope, 0)
            return
        table = NamedEntries() if registration.entry.entry_shape == "named" else AnonymousEntries()
        table.insert(registration)
        self.count(kind).change(scope, 1)
        layer.tables[kind] = table
        if scope is not None:
            self.by_scope[scope] = layer

    def remove(self, registration: Registration) -> None:
        """Take a registration out, and its table and layer with it if it was the last."""
        kind, scope = registration.kind, registration.scope
        layer = self.layer(scope)
        assert layer is not None, "a registration that stands has a layer"
        table = layer.tables[kind]
        table.remove(registration)
        self.counts[kind].change(scope, 0 if table else -1)
        if table:
            return
        del layer.tables[kind]
        if scope is not None and not layer.tables:
            del self.by_scope[scope]


def _duplicate_message(taken: Registration, refused: Registration) -> str:
    cure = (
        "register through the agent's own registrar, registrar.at(agent.scope), to override it for one agent"
        if refused.scope is None
        else "register it at a narrower scope to shadow it there, or undo the first"
    )
    return (
        f"{refused.kind.__name__} {shown_name(refused.name)} is already registered at {place_name(refused.scope)} "
        f"by {taken.owner.name!r}, so {refused.owner.name!r} cannot register it there; {cure}"
    )

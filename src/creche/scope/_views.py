"""Derived reads of the registry, kept as long as they are right.

A *derivation* is a pure function from what the scopes of a chain declared to a finished value. Its value
is kept at the nearest scope of the reader's chain that declared any of its kinds (the anchor), so agents
without registrations of their own share what their preset's scope keeps.

When is a kept value wrong? When a table of its kinds on the anchor's chain changed, or a link of that
chain. Both are counted. If nothing of these kinds changed anywhere and no link moved, one comparison of
sums says so (each count only grows, so equal sums mean equal counts). Otherwise the tables of the chain
are compared one by one: what another agent registered then costs a walk, not a rebuild. The anchor is
looked for along the reader's own chain each time, so a scope that starts to declare something stops
sharing at once.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

import attrs

from ._keys import ScopeKey, links, scope_chain_of
from ._layers import KindCount, Layer, ScopedLayers, Table
from ._registration import Registration

T = TypeVar("T")


@attrs.frozen
class Level:
    """What one scope of a chain declared of a derivation's kinds."""

    scope: ScopeKey | None
    """The scope; ``None`` is the global layer."""
    tables: tuple[tuple[Registration, ...], ...] = attrs.field(kw_only=True)
    """One tuple a kind, in the order of the derivation's kinds; in order of registration."""


@attrs.frozen(eq=False)
class Derivation(Generic[T]):
    """A pure function of the entries visible from a scope, whose values the registry keeps.

    Derivations are module-level constants, compared by identity: a registry keeps a reader for each one it
    has ever been asked for.
    """

    kinds: tuple[type[object], ...]
    """The kinds of entry it reads: classes of entries, or of events for their listeners and wrappers."""
    derive: Callable[[tuple[Level, ...]], T] = attrs.field(kw_only=True)
    """Contract: pure, returns an immutable value; it is given the levels that declared anything, farthest first."""


class _Kept(Generic[T]):
    """A value, the counts it was last found right at, and the tables it came from."""

    __slots__ = ("stamp", "tables", "value")

    def __init__(self, value: T, tables: tuple[object, ...], stamp: int) -> None:
        self.value: T = value
        self.tables: tuple[object, ...] = tables
        self.stamp: int = stamp


class Reader(Generic[T]):
    """One derivation over the layers of one registry."""

    __slots__ = ("_count", "_derivation", "_kinds", "_layers")

    def __init__(self, layers: ScopedLayers, derivation: Derivation[T]) -> None:
        self._layers = layers
        self._derivation = derivation
        self._kinds = frozenset(derivation.kinds)
        self._count: KindCount = (
            layers.count(derivation.kinds[0]) if len(self._kinds) == 1 else layers.count_of(self._kinds)
        )

    def read(self, scope: ScopeKey | None) -> T:
        """Return the value at a scope, derived anew only if what it came from has changed."""
        layer = self._anchor(scope) if scope is not None and self._count.scoped else self._layers.global_layer
        stamp = links.moved + self._count.version
        kept: _Kept[T] | None = layer.kept.get(self)
        if kept is not None:
            if kept.stamp == stamp:
                return kept.value
            if kept.tables == self._tables(layer):
                kept.stamp = stamp
                return kept.value
        value = self._derivation.derive(self._levels(layer))
        layer.kept[self] = _Kept(value, self._tables(layer), stamp)
        return value

    def _anchor(self, scope: ScopeKey) -> Layer:
        """Return the nearest layer of the chain that declared any of the kinds, else the global one."""
        kinds, by_scope = self._kinds, self._layers.by_scope
        for key in scope_chain_of(scope):
            layer = by_scope.get(key)
            if layer is not None and not kinds.isdisjoint(layer.tables):
                return layer
        return self._layers.global_layer

    def _chain(self, anchor: Layer) -> list[Layer]:
        """Return the layers that there are from the anchor to the global one, nearest first."""
        found = [self._layers.by_scope.get(key) for key in scope_chain_of(anchor.scope)]
        return [*(layer for layer in found if layer is not None), self._layers.global_layer]

    def _tables(self, anchor: Layer) -> tuple[object, ...]:
        """Return every table of the chain with its version; tables compare by identity."""
        seen: list[Table | int] = []
        for layer in self._chain(anchor):
            for kind in self._derivation.kinds:
                table = layer.tables.get(kind)
                if table is not None:
                    seen += (table, table.version)
        return tuple(seen)

    def _levels(self, anchor: Layer) -> tuple[Level, ...]:
        kinds = self._derivation.kinds
        return tuple(
            Level(layer.scope, tables=tuple([tuple(layer.tables.get(kind, ())) for kind in kinds]))
            for layer in reversed(self._chain(anchor))
            if any(kind in layer.tables for kind in kinds)
        )

"""An append-only list whose beginning may be shared: records, surface and messages are three of these.

A fork shares its parent's prefix instead of copying it, and a request holds a view that is bounded by the
length at which it was taken. Both are right because nothing on a shelf ever changes: a shelf is appended
to, or replaced by a new shelf.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Generic, TypeVar, cast, overload

T = TypeVar("T")


class Shelf(Generic[T]):
    """An append-only list."""

    __slots__ = ("__weakref__", "_own", "_prefix", "_shared")

    def __init__(self, prefix: "ShelfView[T] | None" = None) -> None:
        self._prefix = prefix
        self._shared = 0 if prefix is None else len(prefix)
        self._own: list[T] = []

    def append(self, item: T) -> None:
        """Put an item at the end; views taken before do not see it."""
        self._own.append(item)

    def __len__(self) -> int:
        return self._shared + len(self._own)

    def view(self, length: int | None = None) -> "ShelfView[T]":
        """Return an immutable view of the first ``length`` items, of all that there are if absent. Copies nothing."""
        size = len(self) if length is None else max(0, min(length, len(self)))
        # Down to the shelf that holds the last of them, without recursion: forks of forks of forks are legal.
        shelf = self
        while shelf._prefix is not None and size <= shelf._shared:
            if size == shelf._shared:
                return shelf._prefix
            shelf = shelf._prefix._shelf
        return ShelfView(shelf, size)


class ShelfView(Sequence[T]):  # noqa: PLW1641 - equal contents, so not hashable
    """The first items of a shelf, as an immutable sequence."""

    __slots__ = ("_length", "_shelf")

    def __init__(self, shelf: Shelf[T], length: int) -> None:
        self._shelf = shelf
        self._length = length

    def first(self, length: int) -> "ShelfView[T]":
        """Return a view of the first ``length`` items."""
        return self._shelf.view(min(length, self._length))

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            return tuple(self[each] for each in range(*index.indices(self._length)))
        position = index + self._length if index < 0 else index
        if not 0 <= position < self._length:
            raise IndexError(f"there is no position {index} in a view of {self._length}")
        shelf = self._shelf
        while position < shelf._shared:
            assert shelf._prefix is not None, "what is shared comes from a prefix"
            shelf = shelf._prefix._shelf
        return shelf._own[position - shelf._shared]

    def __iter__(self) -> Iterator[T]:
        shelf = self._shelf
        prefix = shelf._prefix
        own = islice(shelf._own, self._length - shelf._shared)
        if prefix is None:
            return own
        # Innermost prefix first; without recursion, as in `Shelf.view`.
        stretches = [own]
        while prefix is not None:
            length = shelf._shared
            shelf = prefix._shelf
            prefix = shelf._prefix
            stretches.append(islice(shelf._own, length - shelf._shared))
        return chain.from_iterable(reversed(stretches))

    def __reversed__(self) -> Iterator[T]:
        for position in range(self._length - 1, -1, -1):
            yield self[position]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        theirs = cast("Sequence[object]", other)
        return len(self) == len(theirs) and all(mine == each for mine, each in zip(self, theirs, strict=True))

    def __repr__(self) -> str:
        return f"<view of {self._length} items>"

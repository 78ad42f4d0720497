"""Scope keys and the one relation between them.

Rule 1: a key's parent link is bound once. Whoever bound it holds the `ScopeParentBinding`, and nobody
else can move the key.
Rule 2: no link may make a key its own ancestor. A refused link changes nothing.
Rule 3: a chain is read often and moved almost never, so each key keeps its chain, and `links.moved`
counts the moves that can make a kept chain wrong. Binding a key that nobody has read and that is
nobody's parent makes nothing wrong, so opening an agent does not disturb the others.
"""

from creche._util import NoPublicConstructor, final
from creche.errors import ScopeBoundError, ScopeCycleError


class _Links:
    """Counts the moved links of the process; a kept chain is right while the count stands."""

    __slots__ = ("moved",)

    def __init__(self) -> None:
        self.moved: int = 0


links: _Links = _Links()


@final
class ScopeKey:
    """An opaque identity under which entries are registered, compared by identity.

    Args:
      label: For messages only; two keys with one label are two keys.
    """

    __slots__ = ("__weakref__", "_chain", "_chain_moved", "_closed", "_is_bound", "_is_parent", "_parent", "label")

    def __init__(self, label: str = "scope") -> None:
        self.label: str = label
        """For messages only."""
        self._parent: ScopeKey | None = None
        self._is_bound = False
        self._is_parent = False
        self._closed = False
        self._chain: tuple[ScopeKey, ...] | None = None
        self._chain_moved = -1

    def __repr__(self) -> str:
        return f"<ScopeKey {self.label!r}>"


@final
class ScopeParentBinding(metaclass=NoPublicConstructor):
    """The right to move one key; `bind_scope_parent` gives it to whoever bound the key."""

    __slots__ = ("_key",)

    def __init__(self, key: ScopeKey) -> None:
        self._key = key

    def rebind(self, parent: ScopeKey | None) -> None:
        """Move the key, and with it all below it, under another parent; ``None`` is the global layer.

        Synchronous: every read and every dispatch after it follows the new chain.

        Raises:
          ScopeCycleError: The parent is the key itself or below it; the link is unchanged.
        """
        _link(self._key, parent)

    def __repr__(self) -> str:
        return f"<ScopeParentBinding of {self._key.label!r}>"


def bind_scope_parent(key: ScopeKey, parent: ScopeKey | None) -> ScopeParentBinding:
    """Bind a key under a parent, once.

    A key that is never bound stands under the global layer, and anybody may still bind it.

    Args:
      key: The key to bind. It may have been read and registered at before.
      parent: Its parent; ``None`` binds it directly under the global layer.

    Returns:
      The only handle that can move the key again.

    Raises:
      ScopeBoundError: The key is bound already.
      ScopeCycleError: The link would make the key its own ancestor.
    """
    if key._is_bound:
        above = "the global layer" if key._parent is None else repr(key._parent.label)
        raise ScopeBoundError(
            f"scope {key.label!r} is already bound under {above}; "
            "only the holder of its binding can move it (ScopeParentBinding.rebind)"
        )
    _link(key, parent)
    return ScopeParentBinding._create(key)


def scope_parent_of(key: ScopeKey) -> ScopeKey | None:
    """Return the key's parent, or ``None`` if it stands directly under the global layer."""
    return key._parent


def scope_chain_of(key: ScopeKey | None) -> tuple[ScopeKey, ...]:
    """Return the key and its ancestors, nearest first; ``()`` for ``None``, the global layer."""
    if key is None:
        return ()
    chain = key._chain
    if chain is None or key._chain_moved != links.moved:
        keys = [key]
        while (parent := keys[-1]._parent) is not None:
            keys.append(parent)
        chain = key._chain = tuple(keys)
        key._chain_moved = links.moved
    return chain


def _link(key: ScopeKey, parent: ScopeKey | None) -> None:
    if parent is not None and key in scope_chain_of(parent):
        raise ScopeCycleError(
            f"scope {key.label!r} cannot be bound under {parent.label!r}: "
            f"{'that is the scope itself' if parent is key else 'that one is below it'}"
        )
    if key._is_parent or key._closed or key._chain is not None:
        links.moved += 1
    key._chain = None
    key._parent = parent
    key._is_bound = True
    if parent is not None:
        parent._is_parent = True

"""What can be registered: the two shapes of entry, and the entry that makes an object a service.

The *kind* of an entry is its exact class, and for listeners and wrappers the class of their event. A layer
holds one table a kind, and the class says which shape the table has: entries under a name, of which the
nearest scope's wins, or entries without one, which add up.
"""

from typing import Any, ClassVar, Literal, Protocol, TypeGuard

import attrs

from creche.errors import RegistryError

from ._events import Listener, Notification, Operation, Wrapper

Shape = Literal["named", "anonymous"]


class NamedEntry(Protocol):
    """What can be registered under a name: the nearest scope wins it. `Registry.merge` reads it.

    A class of entries is an attrs-frozen class with an ``entry_shape`` of its own. It may have a method
    ``check_registration(registry, scope)``, which is called before an entry of it is registered; what that
    raises refuses the registration.
    """

    entry_shape: ClassVar[Literal["named"]]

    @property
    def name(self) -> str:
        """The name, unique within one scope."""
        ...


class AnonymousEntry(Protocol):
    """What is registered without a name and never shadowed. `Registry.collect` reads it.

    Two equal ones are two entries. About its class, see `NamedEntry`.
    """

    entry_shape: ClassVar[Literal["anonymous"]]


@attrs.frozen(eq=False)
class Service:
    """An entry: an object that others find by exact type; see `Registrar.provide`."""

    name: type[object]
    """The type it is found by."""
    value: object = attrs.field(kw_only=True)
    """The service."""
    entry_shape: ClassVar[Literal["named"]] = "named"


Entry = NamedEntry | AnonymousEntry | Service
"""What a registrar adds."""


def is_entry(item: object) -> TypeGuard[Entry]:
    """Tell whether a value can be registered; the class of one cannot."""
    return hasattr(type(item), "entry_shape")


def kind_of(entry: Entry) -> type[object]:
    """Return the kind of an entry, which is the key of its table."""
    if isinstance(entry, (Listener, Wrapper)):
        hearing: Listener[Any] | Wrapper[Any] = entry
        return hearing.event_type
    return type(entry)


def name_of(entry: Entry) -> object:
    """Return the name that an entry takes, or ``None`` for an anonymous one."""
    return None if entry.entry_shape == "anonymous" else entry.name


def shape_of(kind: type[object]) -> Shape:
    """Return the shape of a kind's tables.

    Raises:
      RegistryError: It is no kind of entry.
    """
    if issubclass(kind, (Notification, Operation)):
        return "anonymous"
    shape: Shape | None = getattr(kind, "entry_shape", None)
    if shape is None:
        raise RegistryError(f"{kind.__qualname__} is not a kind of entry: it has no entry_shape")
    return shape

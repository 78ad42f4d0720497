"""What can be registered: the two shapes of entry, and the entry that makes an object a service.

The *kind* of an entry is its exact class, and for listeners and wrappers the class of their event. A layer
holds one table a kind, and the class says which shape the table has: entries under a name, of which the
nearest scope's wins, or entries without one, which add up.
"""

from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypeGuard, cast

import attrs

from creche.errors import RegistryError

from ._events import Listener, Notification, Operation, Wrapper

if TYPE_CHECKING:
    from ._registration import Registration
    from ._registry import Registry

Shape = Literal["named", "anonymous"]


class NamedEntry(Protocol):
    """What can be registered under a name: the nearest scope wins it. `Registry.merge` reads it.

    A class of entries is an attrs-frozen class with an ``entry_shape`` of its own. It may have two methods
    more. ``check_registration(registry, scope)`` is called before an entry of it is registered, and
    ``on_registered(registry, registration)`` right after; what either raises refuses the registration.

    A class whose entries take something away from who sees them says ``narrows: ClassVar[bool] = True``. They
    outlast a crash of their plugin, and the absence of a service that it requires, until it is unmounted. Such
    a class is anonymous: a name that is kept cannot be taken again by the plugin that comes back.
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

    found_by: type[object]
    """The type it is found by, and what it takes in place of a name."""
    value: object = attrs.field(kw_only=True)
    """The service."""
    entry_shape: ClassVar[Literal["named"]] = "named"

    @property
    def name(self) -> str:
        """The type's name, for messages."""
        return self.found_by.__qualname__

    def on_registered(self, registry: "Registry", registration: "Registration") -> None:
        """Tell the plugins that it came, and see to it that they go before it does."""
        registration.before_undo = registry.service_leaving
        registry.service_added()


Entry = NamedEntry | AnonymousEntry
"""What a registrar adds."""


def is_entry(item: object) -> TypeGuard[Entry]:
    """Tell whether a value can be registered; the class of one cannot."""
    return hasattr(type(item), "entry_shape")


def kind_of(entry: Entry) -> type[object]:
    """Return the kind of an entry, which is the key of its table."""
    if isinstance(entry, (Listener, Wrapper)):
        return cast("type[object]", entry.event_type)  # pyright: ignore[reportUnknownMemberType] - of any event
    return type(entry)


def name_of(entry: Entry) -> object:
    """Return what an entry takes in its table: a name, for a service its type, ``None`` if it is anonymous."""
    if isinstance(entry, Service):
        return entry.found_by
    return entry.name if entry.entry_shape == "named" else None


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

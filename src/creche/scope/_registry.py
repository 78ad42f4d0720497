"""The one store of entries of all kinds: what a scope sees, and whom a dispatch reaches."""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import ClassVar, Literal, Protocol, TypeVar, overload

import attrs

from creche._util import final
from creche.errors import NotRegisteredError, RegistryError, ScopeClosedError

from ._dispatch import Onion, Reached, derive_reached, log_fault, notify
from ._events import Fault, Listener, Notification, Operation, Wrapper
from ._keys import ScopeKey
from ._layers import ScopedLayers
from ._registration import AnonymousEntry, Entry, NamedEntry, Owner, Registration, kind_of, place_name, undo_all
from ._views import Derivation, Level, Reader

T = TypeVar("T")
R = TypeVar("R")
N = TypeVar("N", bound=NamedEntry)
A = TypeVar("A", bound=AnonymousEntry)
E = TypeVar("E", bound=Notification)
O = TypeVar("O", bound=Operation[object])  # noqa: E741 - O as in operation


def _merged(levels: tuple[Level, ...]) -> Mapping[str, object]:
    # A name that a nearer scope takes over keeps its place in the order.
    return MappingProxyType({each.entry.name: each.entry for level in levels for each in level.tables[0]})  # type: ignore[union-attr]  # merge is for named kinds


def _collected(levels: tuple[Level, ...]) -> tuple[object, ...]:
    return tuple([each.entry for level in levels for each in level.tables[0]])


@attrs.frozen(eq=False)
class Service:
    """An entry: an object that others find by exact type; see `Registrar.provide`."""

    name: type[object]
    """The type it is found by."""
    value: object = attrs.field(kw_only=True)
    """The service."""
    entry_shape: ClassVar[Literal["named"]] = "named"


def _services(levels: tuple[Level, ...]) -> Mapping[type[object], Registration]:
    return MappingProxyType({each.entry.name: each for level in levels for each in level.tables[0]})  # type: ignore[union-attr, misc]


SERVICES: Derivation[Mapping[type[object], Registration]] = Derivation((Service,), derive=_services)


class ServiceWatcher(Protocol):
    """Who is told of services that come and go: the mounted plugins."""

    def service_added(self) -> None:
        """Tell that one came. Synchronous, after it is registered."""

    def service_leaving(self, registration: Registration) -> None:
        """Tell that one goes. Synchronous, before it is gone."""


@final
class Registry:
    """The shared store of entries: a global layer and one layer a scope.

    Every read returns a finished, immutable mapping or tuple, kept until something on the reader's own
    chain changes; a read never makes a layer. Nothing here waits, apart from `around`.
    """

    __slots__ = ("_collects", "_layers", "_merges", "_places", "_reached", "_readers", "services_changed")

    def __init__(self) -> None:
        self._layers = ScopedLayers()
        self._places = 0
        self._readers: dict[Derivation[object], Reader[object]] = {}
        self._merges: dict[type, Reader[Mapping[str, object]]] = {}
        self._collects: dict[type, Reader[tuple[object, ...]]] = {}
        self._reached: dict[type, Reader[Reached]] = {}
        self.services_changed: ServiceWatcher | None = None

    # ---------------------------------------------------------------- seeing

    def merge(self, kind: type[N], scope: ScopeKey | None) -> Mapping[str, N]:
        """Return the entries of a named kind visible from a scope; the nearest wins a name.

        In order: the global layer, then the chain from the farthest to the nearest, each in order of
        registration; a name taken over keeps its place. ``None`` reads the global layer alone.

        Raises:
          RegistryError: The kind is anonymous.
        """
        reader = self._merges.get(kind)
        if reader is None:
            _check_shape(kind, "named", "merge", "collect")
            reader = self._merges[kind] = Reader(self._layers, Derivation((kind,), derive=_merged))
        return reader.read(scope)  # type: ignore[return-value]  # the tables of a kind hold that kind

    @overload
    def collect(self, kind: type[E], scope: ScopeKey | None) -> tuple[Listener[E], ...]: ...
    @overload
    def collect(self, kind: type[O], scope: ScopeKey | None) -> tuple[Wrapper[O], ...]: ...
    @overload
    def collect(self, kind: type[A], scope: ScopeKey | None) -> tuple[A, ...]: ...
    def collect(self, kind: type, scope: ScopeKey | None) -> tuple[object, ...]:
        """Return the entries of an anonymous kind visible from a scope; nothing is shadowed.

        In the order of `merge`. The kind of listeners and wrappers is the class of their event.

        Raises:
          RegistryError: The kind is named.
        """
        reader = self._collects.get(kind)
        if reader is None:
            _check_shape(kind, "anonymous", "collect", "merge")
            reader = self._collects[kind] = Reader(self._layers, Derivation((kind,), derive=_collected))
        return reader.read(scope)

    @overload
    def peek(self, kind: type[E], scope: ScopeKey | None) -> tuple[Listener[E], ...]: ...
    @overload
    def peek(self, kind: type[O], scope: ScopeKey | None) -> tuple[Wrapper[O], ...]: ...
    @overload
    def peek(self, kind: type[A], scope: ScopeKey | None) -> tuple[A, ...]: ...
    @overload
    def peek(self, kind: type[N], scope: ScopeKey | None) -> Mapping[str, N]: ...
    def peek(self, kind: type, scope: ScopeKey | None) -> Mapping[str, object] | tuple[object, ...]:
        """Return what a scope itself declared, chain-blind: never an ancestor's, never the global layer's.

        A mapping for named kinds, a tuple for anonymous ones.
        """
        layer = self._layers.layer(scope)
        level = Level(scope, tables=(tuple(layer.tables.get(kind, ())) if layer is not None else (),))
        return _merged((level,)) if _shape(kind) == "named" else _collected((level,))

    def read(self, derivation: Derivation[T], scope: ScopeKey | None) -> T:
        """Return a derived value at a scope; it is computed anew only when what it came from has changed."""
        reader = self._readers.get(derivation)  # type: ignore[arg-type]  # keyed by identity
        if reader is None:
            reader = self._readers[derivation] = Reader(self._layers, derivation)  # type: ignore[index, arg-type, assignment]
        return reader.read(scope)  # type: ignore[return-value]

    def is_empty(self, scope: ScopeKey) -> bool:
        """Tell whether a scope declares nothing, which means that it has no layer."""
        return scope not in self._layers.by_scope

    def scopes(self) -> tuple[ScopeKey, ...]:
        """Return the scopes that declare anything, in no particular order. For diagnostics."""
        return tuple(self._layers.by_scope)

    # ---------------------------------------------------------------- hearing

    def emit(self, event: Notification, *, at: ScopeKey | None) -> None:
        """Dispatch a notification at a scope: its own listeners hear it and those of its ancestors, root first.

        Synchronous. A listener that raises is reported as a `Fault` at its owner and starves nobody.
        With ``at=None`` the global listeners alone hear it.
        """
        reader = self._reached.get(type(event))
        if reader is None:
            reader = self._reader_of(type(event))
        reached = reader.read(at)
        if reached.here:
            notify(reached, event, at, self.report)

    def hears(self, event_type: type[Notification]) -> bool:
        """Tell whether anybody anywhere listens to a class, so that nobody need make an event for no one."""
        count = self._layers.counts.get(event_type)
        return count is not None and (count.scoped > 0 or event_type in self._layers.global_layer.tables)

    async def around(self, event: O, *, at: ScopeKey | None, innermost: Callable[[O], Awaitable[R]]) -> R:
        """Run an operation inside the wrappers visible from a scope, root outermost.

        The list of wrappers is fixed when the dispatch starts.

        Raises:
          InternalError: A wrapper returned something else than the operation's result; it names the owner.
        """
        reader = self._reached.get(type(event))
        if reader is None:
            reader = self._reader_of(type(event))
        reached = reader.read(at)
        wraps = reached.here if reached.scope is at else reached.below
        if not wraps:
            return await innermost(event)
        registrations = reached.by_here if reached.scope is at else reached.by_below
        onion: Onion[O, R] = Onion(wraps, registrations, innermost, type(event))
        return await onion.run(event)

    def report(self, owner: Owner, what: str, error: BaseException | None) -> None:
        """Dispatch a `Fault` at its owner's scope; logged as an error when nobody hears it there."""
        fault = Fault(owner.name, what=what, error=error)
        reached = self._reader_of(Fault).read(owner.scope)
        if not (reached.here if reached.scope is owner.scope else reached.below):
            log_fault(fault)
            return
        notify(reached, fault, owner.scope, _log_second_fault)

    # ---------------------------------------------------------------- services

    def find(self, service: type[T], scope: ScopeKey | None) -> T:
        """Return the service of exactly this type nearest to a scope.

        Raises:
          NotRegisteredError: None is visible; the message lists those that are.
        """
        registration = self.service_registration(service, scope)
        if registration is None:
            known = ", ".join(sorted(each.__qualname__ for each in self.read(SERVICES, scope))) or "(none)"
            raise NotRegisteredError(
                f"no service {service.__qualname__} is visible from {place_name(scope)}; visible: {known}; "
                "provide one with registrar.provide(service)"
            )
        return registration.entry.value  # type: ignore[union-attr, no-any-return]  # the table of services

    def service_registration(self, service: type[object], scope: ScopeKey | None) -> Registration | None:
        """Return the registration behind `find`, or ``None``."""
        return self.read(SERVICES, scope).get(service)

    # ---------------------------------------------------------------- writing, for `Registrar` and this room

    def insert(self, entry: Entry, scope: ScopeKey | None, owner: Owner) -> Registration:
        """Register an entry; see `Registrar.add`."""
        owner.check_open()
        if scope is not None and scope._closed:
            raise ScopeClosedError(f"scope {scope.label!r} is closed, so {owner.name!r} cannot register anything there")
        check = getattr(entry, "check_registration", None)
        if check is not None:
            check(self, scope)
        registration = Registration(self._layers, entry, kind_of(entry), scope, owner, self._places)
        self._layers.insert(registration)
        self._places += 1
        owner._registrations[registration] = None
        registered = getattr(entry, "on_registered", None)
        if registered is not None:
            registered(self, registration)
        return registration

    def close_scope(self, scope: ScopeKey) -> None:
        """Undo everything registered at a scope, newest first, whoever registered it, and take nothing more there.

        Raises:
          ExceptionGroup: Some undo failed; all the others were undone all the same.
        """
        scope._closed = True
        layer = self._layers.layer(scope)
        if layer is not None:
            standing = [each for table in layer.tables.values() for each in table]
            undo_all(sorted(standing, key=lambda registration: registration.place))

    def _reader_of(self, event_type: type) -> Reader[Reached]:
        reader = self._reached.get(event_type)
        if reader is None:
            derivation = Derivation((event_type,), derive=derive_reached)
            reader = self._reached[event_type] = Reader(self._layers, derivation)
        return reader

    def __repr__(self) -> str:
        return f"<Registry scopes={len(self._layers.by_scope)} registered={self._places}>"


def _log_second_fault(owner: Owner, what: str, error: BaseException | None) -> None:
    log_fault(Fault(owner.name, what=what, error=error))


def _shape(kind: type) -> str:
    if issubclass(kind, Notification | Operation):
        return "anonymous"
    shape: str | None = getattr(kind, "entry_shape", None)
    if shape is None:
        raise RegistryError(f"{kind.__qualname__} is not a kind of entry: it has no entry_shape")
    return shape


def _check_shape(kind: type, shape: str, method: str, other: str) -> None:
    if _shape(kind) != shape:
        raise RegistryError(f"{kind.__qualname__} entries are not {shape}: use {other}() instead of {method}()")

"""The one store of entries of all kinds: what a scope sees, and whom a dispatch reaches."""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol, TypeVar, cast, overload

from creche._util import final
from creche.errors import NotRegisteredError, RegistryError, ScopeClosedError

from ._dispatch import Onion, Reached, derive_reached, log_fault, notify
from ._entries import AnonymousEntry, Entry, NamedEntry, Service, Shape, kind_of, shape_of
from ._events import Fault, Listener, Notification, Operation, Signed, Wrapper
from ._keys import ScopeKey
from ._layers import ScopedLayers
from ._registration import Owner, Registration, place_name, raise_together, undo_all
from ._views import Derivation, Level, Reader

T = TypeVar("T")
R = TypeVar("R")
N = TypeVar("N", bound=NamedEntry)
A = TypeVar("A", bound=AnonymousEntry)
E = TypeVar("E", bound=Notification)
O = TypeVar("O", bound=Operation[object])  # noqa: E741 - O as in operation


def _merged(levels: tuple[Level, ...]) -> Mapping[str, Any]:
    # A name that a nearer scope takes over keeps its place in the order.
    return MappingProxyType({cast("str", each.name): each.entry for level in levels for each in level.tables[0]})


def _collected(levels: tuple[Level, ...]) -> tuple[Any, ...]:
    return tuple([each.entry for level in levels for each in level.tables[0]])


def _services(levels: tuple[Level, ...]) -> Mapping[object, Registration]:
    return MappingProxyType({each.name: each for level in levels for each in level.tables[0]})


SERVICES: Derivation[Mapping[object, Registration]] = Derivation((Service,), derive=_services)


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

    __slots__ = ("_collects", "_layers", "_merges", "_places", "_reached", "_readers", "_watcher")

    def __init__(self) -> None:
        self._layers = ScopedLayers()
        self._places = 0
        self._readers: dict[Derivation[Any], Reader[Any]] = {}
        self._merges: dict[type[object], Reader[Mapping[str, Any]]] = {}
        self._collects: dict[type[object], Reader[tuple[Any, ...]]] = {}
        self._reached: dict[type[object], Reader[Reached | None]] = {}
        self._watcher: ServiceWatcher | None = None

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
        return reader.read(scope)

    @overload
    def collect(self, kind: type[E], scope: ScopeKey | None) -> tuple[Listener[E], ...]: ...
    @overload
    def collect(self, kind: type[O], scope: ScopeKey | None) -> tuple[Wrapper[O], ...]: ...
    @overload
    def collect(self, kind: type[A], scope: ScopeKey | None) -> tuple[A, ...]: ...
    def collect(self, kind: type[object], scope: ScopeKey | None) -> tuple[object, ...]:
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
    def peek(self, kind: type[object], scope: ScopeKey | None) -> Mapping[str, object] | tuple[object, ...]:
        """Return what this one scope declared, chain-blind: never an ancestor's, never the global layer's.

        A mapping for named kinds, a tuple for anonymous ones. ``None`` is what the global layer declared.

        Raises:
          RegistryError: It is no kind of entry.
        """
        layer = self._layers.layer(scope)
        declared = () if layer is None else tuple(layer.tables.get(kind, ()))
        level = Level(scope, tables=(declared,))
        return _merged((level,)) if shape_of(kind) == "named" else _collected((level,))

    def read(self, derivation: Derivation[T], scope: ScopeKey | None) -> T:
        """Return a derived value at a scope; it is computed anew only when what it came from has changed."""
        reader: Reader[T] | None = self._readers.get(derivation)
        if reader is None:
            reader = self._readers[derivation] = Reader(self._layers, derivation)
        return reader.read(scope)

    def is_empty(self, scope: ScopeKey) -> bool:
        """Tell whether a scope declares nothing, which means that it has no layer."""
        return scope not in self._layers.by_scope

    def scopes(self) -> tuple[ScopeKey, ...]:
        """Return the scopes that declare anything, in no particular order. For diagnostics."""
        return tuple(self._layers.by_scope)

    # ---------------------------------------------------------------- hearing

    def emit(self, event: Notification, *, at: ScopeKey | None) -> None:
        """Dispatch a notification at a scope: its own listeners hear it and those of its ancestors, root first.

        Synchronous. The list of listeners is fixed when the dispatch starts: who is registered during it
        does not hear this one, who is undone during it still does. A listener that raises is reported as a
        `Fault` at its owner and starves nobody. With ``at=None`` the global listeners alone hear it.
        """
        reached = (self._reached.get(type(event)) or self._reader_of(type(event))).read(at)
        if reached is not None:
            notify(reached.at(at), event, log_fault if type(event) is Fault else self.report)

    def hears(self, event_type: type[Notification]) -> bool:
        """Tell whether anybody anywhere listens to a class, so that nobody need make an event for no one."""
        count = self._layers.counts.get(event_type)
        return count is not None and count.tables > 0

    def wraps(self, event_type: type[Operation[Any]]) -> bool:
        """Tell whether anybody anywhere wraps a class, so that an operation that nobody does needs no event."""
        count = self._layers.counts.get(event_type)
        return count is not None and count.tables > 0

    async def around(self, event: Signed[O, R], *, at: ScopeKey | None, innermost: Callable[[O], Awaitable[R]]) -> R:
        """Run an operation inside the wrappers visible from a scope, root outermost.

        The list of wrappers is fixed when the dispatch starts. What a wrapper raises comes out as it is, with
        a note that names the wrapper's owner.

        Args:
          event: The operation; each wrapper may pass another one of its class inwards.
          at: The scope it is dispatched at; ``None`` reaches the global wrappers alone.
          innermost: The operation itself, given the event that reached it. It may be called more than once,
            or not at all.

        Raises:
          InternalError: A wrapper returned something else than the operation's result; it names the owner.
        """
        operation = cast("O", event)
        reached = (self._reached.get(type(event)) or self._reader_of(type(event))).read(at)
        heard = None if reached is None else reached.at(at)
        if heard is None or not heard.calls:
            return await innermost(operation)
        return await Onion(heard, innermost, type(operation)).run(operation)

    def report(self, owner: Owner, what: str, error: BaseException | None) -> None:
        """Dispatch a `Fault` at its owner's scope; logged as an error when nobody hears it there.

        Args:
          owner: Whose code failed.
          what: What it was doing, such as ``"hearing agent/turn-ended"``.
          error: What it raised, if it raised.
        """
        reached = self._reader_of(Fault).read(owner.scope)
        if reached is None or not reached.at(owner.scope).calls:
            log_fault(owner, what, error)
        else:
            notify(reached.at(owner.scope), Fault(owner.name, what=what, error=error), log_fault)

    # ---------------------------------------------------------------- services

    @overload
    def find(self, service: type[T], scope: ScopeKey | None) -> T: ...
    @overload
    def find(self, service: Callable[..., T], scope: ScopeKey | None) -> T: ...
    def find(self, service: Callable[..., T], scope: ScopeKey | None) -> T:
        """Return the service of exactly this type nearest to a scope.

        Raises:
          NotRegisteredError: None is visible; the message lists those that are.
        """
        # The second overload is for protocols and abstract classes, which mypy does not take for a type[T].
        registration = self.service_registration(cast("type[T]", service), scope)
        if registration is None:
            known = ", ".join(sorted(_type_name(each) for each in self.read(SERVICES, scope))) or "(none)"
            raise NotRegisteredError(
                f"no service {_type_name(service)} is visible from {place_name(scope)}; visible: {known}; "
                "provide one with registrar.provide(service)"
            )
        return cast("T", cast("Service", registration.entry).value)

    def service_registration(self, service: type[object], scope: ScopeKey | None) -> Registration | None:
        """Return the registration behind `find`, or ``None``."""
        return self.read(SERVICES, scope).get(service)

    def service_added(self) -> None:
        """Tell the plugins that wait for a service that one came. Synchronous."""
        if self._watcher is not None:
            self._watcher.service_added()

    def service_leaving(self, registration: Registration) -> None:
        """Have the plugins that were set up with a service taken down before it goes. Synchronous."""
        if self._watcher is not None:
            self._watcher.service_leaving(registration)

    # ---------------------------------------------------------------- writing, for `Registrar` and those who own scopes

    def insert(self, entry: Entry, scope: ScopeKey | None, owner: Owner) -> Registration:
        """Register an entry for an owner; see `Registrar.add`, which is what contributors call."""
        owner.check_open()
        self.check_scope_open(scope, owner.name)
        check: Callable[[Registry, ScopeKey | None], object] | None = getattr(entry, "check_registration", None)
        if check is not None:
            check(self, scope)
        registration = Registration._create(self._layers, entry, kind_of(entry), scope, owner, self._places)
        self._layers.insert(registration)
        self._places += 1
        owner._registrations[registration] = None
        tell: Callable[[Registry, Registration], object] | None = getattr(entry, "on_registered", None)
        if tell is not None:
            try:
                tell(self, registration)
            except BaseException:
                registration.undo()
                raise
        return registration

    def check_scope_open(self, scope: ScopeKey | None, who: str) -> None:
        """Refuse registrations at a scope after its end.

        Raises:
          ScopeClosedError: `close_scope` was called for it.
        """
        if scope is not None and scope._closed:
            raise ScopeClosedError(f"scope {scope.label!r} is closed, so {who!r} cannot register anything there")

    def close_scope(self, scope: ScopeKey) -> None:
        """Undo everything registered at a scope, newest first, whoever registered it, and take nothing more there.

        The key stays where it is in the chains of those below it, and sees what its ancestors declare.

        Raises:
          ExceptionGroup: Some undo failed; all the others were undone all the same.
        """
        scope._closed = True
        scope._chain = None  # it holds the key itself, and is made again if anybody still asks
        layer = self._layers.layer(scope)
        if layer is not None:
            standing = [each for table in layer.tables.values() for each in table]
            raise_together(undo_all(sorted(standing, key=lambda registration: registration.place)))

    def _reader_of(self, event_type: type[object]) -> Reader[Reached | None]:
        reader = self._reached.get(event_type)
        if reader is None:
            derivation = Derivation((event_type,), derive=derive_reached)
            reader = self._reached[event_type] = Reader(self._layers, derivation)
        return reader

    def __repr__(self) -> str:
        return f"<Registry scopes={len(self._layers.by_scope)} registered={self._places}>"


def _check_shape(kind: type[object], shape: Shape, method: str, other: str) -> None:
    if shape_of(kind) != shape:
        raise RegistryError(f"{kind.__qualname__} entries are not {shape}: use {other}() instead of {method}()")


def _type_name(service: object) -> str:
    name: str = getattr(service, "__qualname__", repr(service))
    return name

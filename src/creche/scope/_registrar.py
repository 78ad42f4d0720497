"""The pen: writes entries into one scope for one owner."""

from collections.abc import Awaitable, Callable
from typing import TypeVar, cast, overload

from creche._util import NoPublicConstructor, final
from creche.errors import RegistryError

from ._entries import Entry, Service, is_entry
from ._events import Listener, Next, Notification, Operation, Signed, Wrapper
from ._keys import ScopeKey
from ._registration import Owner, Registration, place_name
from ._registry import Registry

T = TypeVar("T")
R = TypeVar("R")
E = TypeVar("E", bound=Notification)
O = TypeVar("O", bound=Operation[object])  # noqa: E741 - O as in operation


@final
class Registrar(metaclass=NoPublicConstructor):
    """Writes entries into one scope for one owner; the owner's end undoes them.

    A contributor need not know about scopes: mounted on the host it contributes globally, mounted in a
    preset it contributes to that preset's agents. All methods are synchronous.
    """

    __slots__ = ("_owner", "config", "registry", "scope")

    def __init__(self, registry: Registry, owner: Owner, scope: ScopeKey | None, config: object = None) -> None:
        self.registry: Registry = registry
        """The shared registry, to read from and to dispatch on."""
        self._owner = owner
        self.scope: ScopeKey | None = scope
        """Where it writes; ``None`` is the global layer."""
        self.config: object = config
        """What was given to ``mount(..., config=)``."""

    @property
    def owner(self) -> str:
        """Name of the owner, which its entries carry."""
        return self._owner.name

    def add(self, entry: Entry) -> Registration:
        """Register an entry: a section, a tool, a restriction, a listener...

        Every read after it sees the entry. What refuses it leaves nothing behind.

        Returns:
          The registration; ``undo()`` takes the entry back, and so does leaving it as a context manager.

        Raises:
          DuplicateNameError: The name is taken in this very scope.
          ScopeClosedError: The owner or the scope is closed.
          RegistryError: It is no entry.
        """
        if not is_entry(entry):
            raise RegistryError(
                f"{entry!r} is not an entry; entries are sections, contexts, variables, tools, restrictions, listeners "
                "and the like (a plain function becomes a tool with @tool)"
            )
        return self.registry.insert(entry, self.scope, self._owner)

    @overload
    def provide(self, service: T, *, as_: type[T] | None = None) -> Registration: ...
    @overload
    def provide(self, service: T, *, as_: Callable[..., T]) -> Registration: ...
    def provide(self, service: object, *, as_: Callable[..., object] | None = None) -> Registration:
        """Offer a service to this scope and those below it, found by exact type, the nearest first.

        Taking it back first undoes the registrations of the plugins that were set up with it. They come back
        when their scope sees a service of the type again.

        Args:
          service: The object.
          as_: The type it is found by, often a protocol; its own class if absent.

        Raises:
          DuplicateNameError: There is one of this type in this very scope.
          ScopeClosedError: The owner or the scope is closed.
        """
        found_by = type(service) if as_ is None else cast("type[object]", as_)
        return self.add(Service(found_by, value=service))

    @overload
    def get(self, service: type[T]) -> T: ...
    @overload
    def get(self, service: Callable[..., T]) -> T: ...
    def get(self, service: Callable[..., T]) -> T:
        """Return the service of exactly this type nearest to the registrar's scope.

        A plugin that keeps it names the type in ``requires``, so that it goes before the service does.

        Raises:
          NotRegisteredError: None is visible; the message lists those that are.
        """
        return self.registry.find(service, self.scope)

    def on(self, event_type: type[E], listener: Callable[[E], None], *, here_only: bool = False) -> Registration:
        """Hear a class of notification dispatched at this scope or below it.

        Args:
          event_type: The exact class.
          listener: Contract: synchronous; what it raises becomes a `Fault` at this owner and starves nobody.
          here_only: Hear only what is dispatched at exactly this scope.

        Raises:
          RegistryError: The class is no notification, or the listener is an async function.
          ScopeClosedError: The owner or the scope is closed.
        """
        return self.add(Listener(event_type, hear=listener, here_only=here_only))

    def wrap(
        self,
        event_type: Signed[O, R],
        wrapper: Callable[[O, Next[R]], Awaitable[R]],
        *,
        here_only: bool = False,
    ) -> Registration:
        """Stand around a class of operation dispatched at this scope or below it.

        Args:
          event_type: The exact class.
          wrapper: Contract: ``async def w(event, next)``; it returns what ``await next()`` gives, or another
            value of the operation's result; ``await next(changed)`` passes another event inwards; not
            calling ``next`` refuses the operation, calling it twice runs it twice.
          here_only: Stand only around what is dispatched at exactly this scope.

        Raises:
          RegistryError: The class is no operation.
          ScopeClosedError: The owner or the scope is closed.
        """
        return self.add(Wrapper(cast("type[O]", event_type), wrap=wrapper, here_only=here_only))

    def at(self, scope: ScopeKey | None) -> "Registrar":
        """Return a registrar of the same owner for another scope; ``None`` is the global layer."""
        return Registrar._create(self.registry, self._owner, scope, self.config)

    def __repr__(self) -> str:
        return f"<Registrar of {self.owner!r} at {place_name(self.scope)}>"


def make_registrar(registry: Registry, owner: Owner, scope: ScopeKey | None, config: object = None) -> Registrar:
    """Return a registrar; for those who own scopes: the host, presets, agents, mounted plugins."""
    return Registrar._create(registry, owner, scope, config)

"""The pen: writes entries into one scope for one owner."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from creche._util import NoPublicConstructor, final
from creche.errors import RegistryError

from ._events import Listener, Next, Notification, Operation, Wrapper
from ._keys import ScopeKey
from ._registration import Entry, Owner, Registration
from ._registry import Registry, Service

T = TypeVar("T")
R = TypeVar("R")
E = TypeVar("E", bound=Notification)
O = TypeVar("O", bound=Operation[Any])  # noqa: E741 - O as in operation


@final
class Registrar(metaclass=NoPublicConstructor):
    """Writes entries into one scope for one owner; the owner's end undoes them.

    A contributor need not know about scopes: mounted on the host it contributes globally, mounted in a
    preset it contributes to that preset's agents. All methods are synchronous.
    """

    __slots__ = ("_owner", "config", "registry", "scope")

    def __init__(self, registry: Registry, owner: Owner, scope: ScopeKey | None, config: object = None) -> None:
        self.registry = registry
        """The shared registry, to read from and to dispatch on."""
        self._owner = owner
        self.scope = scope
        """Where it writes; ``None`` is the global layer."""
        self.config = config
        """What was given to ``mount(..., config=)``."""

    @property
    def owner(self) -> str:
        """Name of the owner, which its entries carry."""
        return self._owner.name

    def add(self, entry: Entry) -> Registration:
        """Register an entry: a section, a tool, a restriction, a listener...

        Returns:
          The registration; ``undo()`` takes the entry back, and so does leaving it as a context manager.

        Raises:
          DuplicateNameError: The name is taken in this very scope.
          ScopeClosedError: The owner or the scope is closed.
        """
        if not hasattr(type(entry), "entry_shape"):
            raise RegistryError(
                f"{entry!r} is not an entry; entries are sections, contexts, variables, tools, restrictions, listeners "
                "and the like (a plain function becomes a tool with @tool)"
            )
        return self.registry.insert(entry, self.scope, self._owner)

    def provide(self, service: T, *, as_: type[T] | None = None) -> Registration:
        """Offer a service to this scope and those below it, found by exact type, the nearest first.

        Taking it back first undoes the registrations of the plugins that require it.

        Args:
          service: The object.
          as_: The type it is found by; its own class if absent.

        Raises:
          DuplicateNameError: There is one of this type in this very scope.
        """
        watcher = self.registry.services_changed
        registration = self.add(Service(as_ or type(service), value=service))
        if watcher is not None:
            registration.before_undo = watcher.service_leaving
            watcher.service_added()
        return registration

    def get(self, service: type[T]) -> T:
        """Return the service of exactly this type nearest to the registrar's scope.

        Raises:
          NotRegisteredError: None is visible.
        """
        return self.registry.find(service, self.scope)

    def on(self, event_type: type[E], listener: Callable[[E], None], *, here_only: bool = False) -> Registration:
        """Hear a class of notification dispatched at this scope or below it.

        Args:
          event_type: The exact class.
          listener: Contract: synchronous; what it raises becomes a `Fault` at this owner and starves nobody.
          here_only: Hear only what is dispatched at exactly this scope.
        """
        return self.add(Listener(event_type, hear=listener, here_only=here_only))

    def wrap(
        self,
        event_type: type[O],
        wrapper: Callable[[O, Next[Any]], Awaitable[object]],
        *,
        here_only: bool = False,
    ) -> Registration:
        """Stand around a class of operation dispatched at this scope or below it.

        Args:
          event_type: The exact class.
          wrapper: Contract: ``async def w(event, next)``; it returns what ``await next()`` gives, or another
            value of the operation's result; ``await next(changed)`` passes another event inwards; not
            calling ``next`` refuses the operation.
          here_only: Stand only around what is dispatched at exactly this scope.
        """
        return self.add(Wrapper(event_type, wrap=wrapper, here_only=here_only))

    def at(self, scope: ScopeKey | None) -> "Registrar":
        """Return a registrar of the same owner for another scope; ``None`` is the global layer."""
        return Registrar._create(self.registry, self._owner, scope, self.config)

    def __repr__(self) -> str:
        where = "the global layer" if self.scope is None else repr(self.scope.label)
        return f"<Registrar of {self.owner!r} at {where}>"


def make_registrar(registry: Registry, owner: Owner, scope: ScopeKey | None, config: object = None) -> Registrar:
    """Return a registrar; for those who own scopes: the host, presets, agents, mounted plugins."""
    return Registrar._create(registry, owner, scope, config)

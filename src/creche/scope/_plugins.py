"""Plugins: a setup mounted on a scope, undone as a whole.

A setup is a list whose items are entries, plugins, or functions of a registrar. A function may be plain,
``async``, or an async context manager; the body of such a one lives in a task of its own, so a crash in one
cannot cancel another. Taking a plugin down is two things in this order: its registrations are undone, in
one synchronous stretch, so nothing reaches it any more; then its async exits run, newest first.

A plugin that requires services is taken down when one of them leaves, registrations first, and set up
again when all are there.
"""

import inspect
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import attrs
import trio

from creche._util import NoPublicConstructor, final, open_hidden_nursery
from creche.errors import CrecheError, PluginError

from ._keys import ScopeKey
from ._registrar import Registrar, make_registrar
from ._registration import Entry, Owner, Registration, place_name
from ._registry import Registry

def _as_setup(items: "Iterable[SetupItem]") -> "tuple[SetupItem, ...]":
    return tuple(items)


@attrs.frozen(eq=False)
class Plugin:
    """A setup that can be mounted on a scope."""

    name: str
    """Who its registrations belong to, in messages and attribution."""
    setup: "tuple[SetupItem, ...]" = attrs.field(converter=_as_setup)
    """Entries, plugins, and functions of a registrar, in order."""
    requires: tuple[type[object], ...] = attrs.field(default=(), converter=tuple, kw_only=True)
    """Service types that must be visible where it is mounted, for as long as it is."""


SetupItem = Entry | Plugin | Callable[[Registrar], object]
"""What a setup is a list of: entries, plugins, functions of a registrar."""


class _Lifespan:
    """The task that lives in one async context manager of a setup."""

    __slots__ = ("ended", "stop")

    def __init__(self) -> None:
        self.stop = trio.Event()
        self.ended = trio.Event()


@final
class Mounted(metaclass=NoPublicConstructor):
    """A plugin in its place. `unmount` takes it down."""

    __slots__ = ("_children", "_lifespans", "_mounts", "_settling", "_state", "config", "owner", "plugin", "scope")

    def __init__(self, mounts: "Mounts", plugin: Plugin, scope: ScopeKey | None, config: object) -> None:
        self._mounts = mounts
        self.plugin = plugin
        """What was mounted."""
        self.scope = scope
        """Where; ``None`` is the global layer."""
        self.config = config
        """The configuration its registrar shows."""
        self.owner = Owner(plugin.name, scope)
        self._lifespans: list[_Lifespan] = []
        self._children: list[Mounted] = []
        self._state = "starting"
        self._settling = False

    @property
    def active(self) -> bool:
        """Whether its setup stands: false once unmounted, and while a service it requires is absent."""
        return self._state == "active"

    async def unmount(self) -> None:
        """Undo its registrations at once, then wait for its async exits. Idempotent.

        Raises:
          ExceptionGroup: Some undo failed; everything was undone all the same.
        """
        self._mounts.forget(self)
        try:
            self.take_down("unmounted")
        finally:
            await self.exits()

    def take_down(self, state: str) -> None:
        """Undo the registrations, its own and its nested plugins', newest first. Synchronous."""
        if self._state != "unmounted":
            self._state = state
        self.owner.close()
        for child in reversed(self._children):
            child.take_down(state)

    async def exits(self) -> None:
        """End the lifespans, newest first, and wait for each."""
        while self._children:
            child = self._children[-1]
            await child.exits()
            if self._children and self._children[-1] is child:
                self._children.pop()
        while self._lifespans:
            lifespan = self._lifespans[-1]
            lifespan.stop.set()
            await lifespan.ended.wait()
            if self._lifespans and self._lifespans[-1] is lifespan:
                self._lifespans.pop()

    def __repr__(self) -> str:
        return f"<Mounted {self.plugin.name!r} at {place_name(self.scope)} ({self._state})>"


@final
class Mounts(metaclass=NoPublicConstructor):
    """The mounted plugins of one host, and the nursery their bodies live in."""

    def __init__(self, registry: Registry, nursery: trio.Nursery) -> None:
        self.registry = registry
        self._nursery = nursery
        self._mounted: dict[Mounted, None] = {}

    async def mount(self, plugin: Plugin, *, scope: ScopeKey | None = None, config: object = None) -> Mounted:
        """Mount a plugin on a scope; a setup that fails leaves nothing behind.

        Raises:
          PluginError: A required service is missing, or the setup failed; from its cause.
        """
        mounted = Mounted._create(self, plugin, scope, config)
        missing = self._missing(mounted)
        if missing:
            raise PluginError(
                f"plugin {plugin.name!r} requires {', '.join(missing)}, which is not visible from {place_name(scope)}; "
                "mount what provides it first"
            )
        await self._start(mounted)
        self._mounted[mounted] = None
        return mounted

    async def apply(self, items: Iterable[SetupItem], registrar: Registrar, mounted: Mounted) -> None:
        """Run the items of a setup in order with one registrar, on behalf of something mounted."""
        for item in items:
            if hasattr(type(item), "entry_shape"):
                registrar.add(item)  # type: ignore[arg-type]  # an entry, by its shape
            elif isinstance(item, Plugin):
                child = await self.mount(item, scope=registrar.scope)
                mounted._children.append(child)
                self.forget(child)
            elif callable(item):
                await self._call(item, registrar, mounted)
            else:
                raise PluginError(
                    f"setup of {mounted.plugin.name!r} holds {item!r}; "
                    "its items are entries, plugins, or functions of a registrar"
                )

    def forget(self, mounted: Mounted) -> None:
        """Stop following a mounted plugin's requirements."""
        self._mounted.pop(mounted, None)

    # ---------------------------------------------------------------- setting up

    async def _start(self, mounted: Mounted) -> None:
        mounted.owner = Owner(mounted.plugin.name, mounted.scope)
        mounted._state = "active"
        registrar = make_registrar(self.registry, mounted.owner, mounted.scope, mounted.config)
        try:
            await self.apply(mounted.plugin.setup, registrar, mounted)
        except BaseException as error:
            mounted.take_down("failed")
            with trio.CancelScope(shield=True):
                await mounted.exits()
            if isinstance(error, CrecheError) or not isinstance(error, Exception):
                raise
            raise PluginError(f"setup of plugin {mounted.plugin.name!r} failed: {error!r}") from error

    async def _call(self, function: Callable[[Registrar], object], registrar: Registrar, mounted: Mounted) -> None:
        result = function(registrar)
        if isinstance(result, AbstractAsyncContextManager):
            lifespan = _Lifespan()
            await self._nursery.start(self._live, result, lifespan, mounted, name=f"plugin {mounted.plugin.name}")
        elif inspect.isawaitable(result):
            await result
        elif result is not None:
            raise PluginError(
                f"a setup function of {mounted.plugin.name!r} returned {result!r}; "
                "it returns nothing, is async, or is an async context manager"
            )

    async def _live(
        self,
        context: AbstractAsyncContextManager[object],
        lifespan: _Lifespan,
        mounted: Mounted,
        task_status: trio.TaskStatus[None],
    ) -> None:
        started = False
        try:
            async with context:
                mounted._lifespans.append(lifespan)
                started = True
                task_status.started()
                await lifespan.stop.wait()
        except Exception as error:
            if not started:
                raise
            lifespan.ended.set()
            self.registry.report(mounted.owner, f"running plugin {mounted.plugin.name!r}", error)
            if not lifespan.stop.is_set():
                self.forget(mounted)
                mounted.take_down("failed")
                await mounted.exits()
        finally:
            lifespan.ended.set()

    # ---------------------------------------------------------------- services that come and go

    def _missing(self, mounted: Mounted) -> list[str]:
        return [
            each.__qualname__
            for each in mounted.plugin.requires
            if self.registry.service_registration(each, mounted.scope) is None
        ]

    def service_leaving(self, registration: Registration) -> None:
        """Take down who requires a service that leaves, the latest mounted first."""
        for mounted in reversed(list(self._mounted)):
            needed = mounted.plugin.requires
            if mounted.active and any(
                self.registry.service_registration(each, mounted.scope) is registration for each in needed
            ):
                mounted.take_down("waiting")
                self._nursery.start_soon(self._settle, mounted)

    def service_added(self) -> None:
        """Set up again who waits and has all its services."""
        for mounted in list(self._mounted):
            if mounted._state == "waiting" and not self._missing(mounted):
                self._nursery.start_soon(self._settle, mounted)

    async def _settle(self, mounted: Mounted) -> None:
        if mounted._settling:
            return
        mounted._settling = True
        try:
            await mounted.exits()
            while mounted._state == "waiting" and not self._missing(mounted):
                await self._start(mounted)
                if not mounted.active:  # a service left, or it was unmounted, while it was being set up
                    await mounted.exits()
        except Exception as error:  # noqa: BLE001 - reported at its owner; the host lives
            if mounted._state == "unmounted":
                return
            self.forget(mounted)
            self.registry.report(mounted.owner, f"setting up plugin {mounted.plugin.name!r} again", error)
        finally:
            mounted._settling = False


@asynccontextmanager
async def open_mounts(registry: Registry) -> AsyncIterator[Mounts]:
    """Open the place where plugins are mounted; leaving it unmounts them all, newest first."""
    async with open_hidden_nursery("the mounted plugins") as nursery:
        mounts = Mounts._create(registry, nursery)
        registry.services_changed = mounts
        try:
            yield mounts
        finally:
            with trio.CancelScope(shield=True):
                for mounted in reversed(list(mounts._mounted)):
                    await mounted.unmount()
            registry.services_changed = None

"""Mounting: where the plugins of a host are set up, come and go with services, crash and are unmounted.

Rule 1: a setup that fails, is cancelled, or is taken down while it runs leaves nothing behind.
Rule 2: a plugin that requires services is taken down when one that it was set up with leaves, before that
one is gone, and set up again when all are there. What provides a service outlives the bodies of what used it.
Rule 3: a body that crashes takes its own plugin down, and nothing else.
Rule 4: what narrows authority fails closed. A setup is one plugin, so whatever crashes in it, or leaves it, would
lift what it forbids. An entry whose class says ``narrows: ClassVar[bool] = True`` therefore stands when the plugin
that had been set up with it crashes or waits for a service. It goes when what was mounted (the outermost plugin)
is unmounted, when its scope or the host closes, or when whoever registered it takes it back. A plugin that is set
up again has its new ones first, and loses the old ones as soon as its setup stands: there is no moment without
one, and none pile up. A setup that fails as it comes back leaves the old ones in place.
"""

import inspect
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import cast

import outcome
import trio

from creche._util import NoPublicConstructor, final, open_hidden_nursery
from creche.errors import CrecheError, PluginError, RegistryError, ScopeClosedError

from ._entries import is_entry
from ._keys import ScopeKey
from ._lifespans import Lifespan
from ._plugins import Mounted, Plugin, SetupItem, State
from ._registrar import Registrar, make_registrar
from ._registration import Owner, Registration, place_name
from ._registry import Registry


@final
class Mounts(metaclass=NoPublicConstructor):
    """The mounted plugins of one host, and the nursery their bodies live in."""

    __slots__ = ("_alive", "_closed", "_mounted", "_nursery", "_users", "_waiting", "registry")

    def __init__(self, registry: Registry, nursery: trio.Nursery) -> None:
        self.registry: Registry = registry
        """What the plugins register in."""
        self._nursery = nursery
        self._closed = False
        # In order of mounting, without nested ones: for as long as there is something to end.
        self._mounted: dict[Mounted, None] = {}
        # Those that come and go with services, nested ones too: who was set up with which, and who waits for one.
        self._users: dict[Registration, dict[Mounted, None]] = {}
        self._waiting: dict[Mounted, None] = {}
        self._alive: set[Lifespan] = set()

    # ---------------------------------------------------------------- setting up

    async def mount(self, plugin: Plugin, *, scope: ScopeKey | None = None, config: object = None) -> Mounted:
        """Mount a plugin on a scope; a setup that fails or is cancelled leaves nothing behind.

        It stays until it is unmounted, its body crashes (a `Fault` at its scope says so), or the host ends.

        Args:
          plugin: What to set up.
          scope: Where; ``None`` is the global layer.
          config: What the setup's functions find in ``registrar.config``.

        Raises:
          PluginError: A required service is missing, or the setup raised something that is not a `CrecheError`,
            which is the cause then, or it was taken down while it was set up.
          CrecheError: The setup raised it.
          ScopeClosedError: The scope is closed, or the host closes.
        """
        mounted = Mounted._create(self, plugin, scope, config)
        self._mounted[mounted] = None
        try:
            await self._mount(mounted)
        finally:
            if not mounted.active:
                self._mounted.pop(mounted, None)
        return mounted

    async def apply(self, items: Iterable[SetupItem], registrar: Registrar, mounted: Mounted) -> None:
        """Run the items of a setup in order with one registrar, on behalf of something mounted.

        Raises:
          PluginError: An item is none.
          ScopeClosedError: It was taken down meanwhile.
        """
        for item in items:
            mounted.owner.check_open()
            if is_entry(item):
                registrar.add(item)
            elif isinstance(item, Plugin):
                nested = Mounted._create(self, item, registrar.scope, None)
                mounted._parts.append(nested)
                await self._mount(nested)
            elif callable(item):
                await self._call(item, registrar, mounted)
            else:
                raise PluginError(
                    f"setup of {mounted.plugin.name!r} holds {item!r}; "
                    "its items are entries, plugins, or functions of a registrar"
                )

    async def _mount(self, mounted: Mounted) -> None:
        plugin, scope = mounted.plugin, mounted.scope
        if self._closed:
            raise ScopeClosedError(f"the host closes, so plugin {plugin.name!r} cannot be mounted")
        self.registry.check_scope_open(scope, plugin.name)
        if plugin.requires:
            missing = self._missing(mounted)
            if missing:
                raise PluginError(
                    f"plugin {plugin.name!r} requires {', '.join(missing)}, "
                    f"which is not visible from {place_name(scope)}; mount what provides it first"
                )
        mounted._busy = True
        try:
            await self._set_up(mounted)
        except BaseException:
            mounted._leave("failed")
            raise
        finally:
            mounted._rest()

    async def _set_up(self, mounted: Mounted) -> None:
        """Run the setup once. Whatever it raises, nothing of it is left."""
        if mounted.owner.closed:
            mounted.owner = Owner(mounted.plugin.name, mounted.scope)
        if mounted.plugin.requires:
            self._use(mounted, self._services(mounted))
        mounted._state = "starting"
        self._waiting.pop(mounted, None)
        registrar = make_registrar(self.registry, mounted.owner, mounted.scope, mounted.config)
        result = await outcome.acapture(self.apply, mounted.plugin.setup, registrar, mounted)
        mounted._waiting_in = None
        error = result.error if isinstance(result, outcome.Error) else None
        was_taken_down = not mounted._is("starting")
        if error is None and not was_taken_down:
            mounted._state = "active"
            self._report_undo(mounted, mounted._replace_kept())
            return
        self._drop(mounted, mounted._state if was_taken_down else "failed")
        await mounted._end_parts()
        if error is None or (was_taken_down and isinstance(error, Exception)):
            raise _taken_down(mounted) from (mounted._crash or error)
        if isinstance(error, CrecheError) or not isinstance(error, Exception):
            raise error
        raise PluginError(f"setup of plugin {mounted.plugin.name!r} failed: {error!r}") from error

    async def _call(self, function: Callable[[Registrar], object], registrar: Registrar, mounted: Mounted) -> None:
        result = function(registrar)
        if result is None:
            return
        with trio.CancelScope() as mounted._waiting_in:
            result = await self._finish(result, mounted)
        mounted.owner.check_open()
        if result is not None and not isinstance(result, Registration):
            raise PluginError(
                f"a setup function of {mounted.plugin.name!r} returned {result!r}; "
                "it returns nothing, is async, or is an async context manager"
            )

    async def _finish(self, result: object, mounted: Mounted) -> object:
        """Wait for what a setup function returned: for an awaitable, or until a body stands."""
        if isinstance(result, AbstractAsyncContextManager):
            context = cast("AbstractAsyncContextManager[object]", result)
            await self._nursery.start(self._live, context, mounted, name=f"plugin {mounted.plugin.name}")
            return None
        return await result if inspect.isawaitable(result) else result

    async def _live(
        self, context: AbstractAsyncContextManager[object], mounted: Mounted, *, task_status: trio.TaskStatus[None]
    ) -> None:
        body = Lifespan()
        mounted._parts.append(body)
        self._alive.add(body)
        try:
            await body.run(context, self._nursery, partial(self._crashed, mounted), task_status=task_status)
        finally:
            self._alive.discard(body)

    # ---------------------------------------------------------------- taking down

    def _drop(self, mounted: Mounted, state: State) -> None:
        """Take one down where nobody is to be told; what cannot be undone is a fault of its owner."""
        self._report_undo(mounted, mounted._take_down(state))

    def _report_undo(self, mounted: Mounted, failures: Iterable[Exception]) -> None:
        for failure in failures:
            self.registry.report(mounted.owner, f"undoing a registration of plugin {mounted.plugin.name!r}", failure)

    def _crashed(self, mounted: Mounted, body: Lifespan, error: Exception) -> None:
        """Report what a body raised. Unless it was leaving anyway, the plugin is unmounted."""
        if not body.is_leaving and mounted._is("starting", "active"):
            mounted._crash = error
            self._drop(mounted, "failed")
            self._settle_soon(mounted)
        doing = "leaving" if body.is_leaving else "running"
        self.registry.report(mounted.owner, f"{doing} plugin {mounted.plugin.name!r}", error)

    def _settle_soon(self, mounted: Mounted) -> None:
        """Have a task end what lives in it, and then set it up again if it may. Synchronous."""
        if mounted._busy:
            return
        if mounted._is("waiting") or mounted._has_life():
            mounted._busy = True
            self._nursery.start_soon(self._settle, mounted, name=f"plugin {mounted.plugin.name}")
        else:
            self._forget(mounted)

    def _forget(self, mounted: Mounted) -> None:
        """Let go of what came to its end, unless something that narrows is left of it."""
        if not mounted._kept:
            self._mounted.pop(mounted, None)

    async def _settled(self, mounted: Mounted) -> None:
        """Wait until no task works on it and nothing lives in it."""
        self._settle_soon(mounted)
        await mounted._wait_idle()

    async def _settle(self, mounted: Mounted) -> None:
        try:
            await mounted._end_parts()
            while mounted._is("waiting") and not self._closed and not self._missing(mounted):
                try:
                    await self._set_up(mounted)
                except Exception as error:  # noqa: BLE001 - reported at its owner; the host lives
                    if mounted._is("failed") and mounted._crash is None:
                        self.registry.report(mounted.owner, f"setting up plugin {mounted.plugin.name!r} again", error)
                    await trio.lowlevel.checkpoint()
        finally:
            if mounted._is("failed", "unmounted"):
                self._forget(mounted)
            mounted._rest()

    async def _close(self) -> None:
        """Unmount all, newest first; a cancelled host does the same in haste."""
        self._closed = True
        try:
            for mounted in reversed(list(self._mounted)):
                self._drop(mounted, "unmounted")
                await self._settled(mounted)
        finally:
            # Nothing lives here any more, unless an interrupt ended the loop. Then what is left is cancelled
            # with the nursery, in no order.
            for body in self._alive:
                body.unshield()

    # ---------------------------------------------------------------- services that come and go

    def _services(self, mounted: Mounted) -> tuple[Registration | None, ...]:
        """Return what it requires as its scope sees it at the moment; ``None`` for what is missing."""
        return tuple([self.registry.service_registration(each, mounted.scope) for each in mounted.plugin.requires])

    def _use(self, mounted: Mounted, services: tuple[Registration | None, ...]) -> None:
        """Note what one is set up with; ``()`` once it is not any more."""
        for registration in mounted._uses:
            users = self._users.get(registration) if registration is not None else None
            if registration is not None and users is not None:
                users.pop(mounted, None)
                if not users:
                    del self._users[registration]
        mounted._uses = services
        for registration in services:
            if registration is not None:
                self._users.setdefault(registration, {})[mounted] = None

    def _left(self, mounted: Mounted) -> None:
        """Note that one that requires services does not stand: it waits for them, or has come to its end."""
        self._use(mounted, ())
        if mounted._is("waiting"):
            self._waiting[mounted] = None
        else:
            self._waiting.pop(mounted, None)

    def _missing(self, mounted: Mounted) -> list[str]:
        found = zip(mounted.plugin.requires, self._services(mounted), strict=True)
        return [service.__qualname__ for service, registration in found if registration is None]

    def service_added(self) -> None:
        """Set up again who waits and has all its services."""
        for mounted in list(self._waiting):
            if mounted._is("waiting") and not self._missing(mounted):
                self._settle_soon(mounted)

    def service_leaving(self, registration: Registration) -> None:
        """Take down who was set up with a service that leaves, the latest set up first."""
        for mounted in reversed(list(self._users.get(registration, ()))):
            if mounted._is("starting", "active"):
                bodies = list(mounted._bodies())
                provider = self._mounted_of(registration.owner) if bodies else None
                if provider is not None:
                    provider._after.extend(bodies)
                self._drop(mounted, "waiting")
                self._settle_soon(mounted)

    def _mounted_of(self, owner: Owner) -> Mounted | None:
        family = (each for root in self._mounted for each in root._family())
        return next((each for each in family if each.owner is owner), None)


def _taken_down(mounted: Mounted) -> PluginError:
    name = mounted.plugin.name
    if mounted._crash is not None:
        return PluginError(f"plugin {name!r} crashed while it was being set up: {mounted._crash!r}")
    why = "a service that it requires left" if mounted._is("waiting") else "it was unmounted"
    return PluginError(f"plugin {name!r} was not set up to the end: {why} meanwhile")


@asynccontextmanager
async def open_mounts(registry: Registry) -> AsyncIterator[Mounts]:
    """Open the place where plugins are mounted; leaving it unmounts them all, newest first.

    An error raised in the block comes out as itself. When the block is cancelled, the plugins still leave
    one by one, newest first, each cancelled when its turn comes.

    Args:
      registry: What the plugins register in; it has one such place at a time.

    Yields:
      The place. It takes no more plugins after the block.

    Raises:
      RegistryError: The registry's plugins are mounted elsewhere.
    """
    if registry._watcher is not None:
        raise RegistryError("the plugins of this registry are mounted elsewhere; a registry has one place for them")
    async with open_hidden_nursery("the mounted plugins") as nursery:
        registry._watcher = mounts = Mounts._create(registry, nursery)
        try:
            yield mounts
        finally:
            try:
                with trio.CancelScope(shield=True):
                    await mounts._close()
            finally:
                registry._watcher = None

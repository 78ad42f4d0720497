"""The host: the root of a process's agents. It owns the registry, the services and the nursery.

It is also the composer: whoever makes an agent, the host included, does it through `Host.compose`.
"""

import os
import time
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import MappingProxyType
from typing import ClassVar

import attrs
import trio

from creche._util import NoPublicConstructor, final, open_hidden_nursery, publish
from creche.agent import DEFAULT_DEPTH, Agent, AgentSpec, Budget, DepthLimit, expand_setup
from creche.errors import (
    AgentClosedError,
    AuthorityError,
    ConfigError,
    DuplicateNameError,
    UnsupportedCapabilityError,
)
from creche.models import Model, ModelOptions, Route, Settings, resolve_model
from creche.presets import Preset, Standing, StandingPresets, mount_presets
from creche.prompt import (
    IDENTITY_SECTION,
    PERSONA_ORDER,
    PERSONA_SECTION,
    PERSONA_SUFFIX_SECTION,
    AssembleContext,
    Section,
    Text,
    Variable,
    section_order,
)
from creche.scope import (
    Mounted,
    Mounts,
    Notification,
    Owner,
    Plugin,
    Registrar,
    Registry,
    ScopeKey,
    bind_scope_parent,
    make_registrar,
    open_mounts,
)
from creche.session import Journal, JsonlStore, MemoryStore, SessionHeader, SessionLog, SessionStore
from creche.subagents import delegation_context, fork_provider, spawn_provider
from creche.tools import ToolThreads, native_provider, visible

IDENTITY = "You are an agent run by creche, a nursery in which several agents work in one program."
"""Text of the section `harness:identity`."""

TOOL_THREADS = 64
"""How many sync tool bodies may run at once in one host."""


@attrs.frozen(eq=False)
class AgentOpened(Notification):
    """An agent is ready to be asked; dispatched at its scope."""

    wire_name: ClassVar[str] = "host/agent-opened"
    agent: Agent
    """The agent."""


@attrs.frozen(eq=False)
class AgentClosed(Notification):
    """An agent has ended and its log is complete; dispatched at its scope, before what is registered there goes."""

    wire_name: ClassVar[str] = "host/agent-closed"
    agent: Agent
    """The agent."""


@final
class Host(metaclass=NoPublicConstructor):
    """The root of a process's agents. Made by `open_host`."""

    def __init__(
        self,
        mounts: Mounts,
        nursery: trio.Nursery,
        store: SessionStore,
        model: Model | str | None,
        budget: Budget | None,
    ) -> None:
        self.registry = mounts.registry
        """The shared registry."""
        self.registrar: Registrar = make_registrar(self.registry, Owner("host"), None)
        """Writes globally, for the host."""
        self._mounts = mounts
        self._nursery = nursery
        self._store = store
        self._model = model
        self._limit = DepthLimit(DEFAULT_DEPTH, owner="the default").tightened(budget, 0, "the host")
        if budget is not None and budget.depth is not None:
            self._limit = DepthLimit(budget.depth, owner="the host")
        self._presets = StandingPresets({})
        self._agents: dict[str, Agent] = {}
        self._names: set[str] = set()

    @property
    def agents(self) -> Mapping[str, Agent]:
        """The live agents by id, a read-only view."""
        return MappingProxyType(self._agents)

    # ---------------------------------------------------------------- plugins and agents

    async def mount(self, plugin: Plugin, *, scope: ScopeKey | None = None, config: object = None) -> Mounted:
        """Mount a plugin, at runtime too: the next step of every agent that sees the scope sees what it adds.

        Args:
          plugin: What to mount; a setup that fails leaves nothing behind.
          scope: Where; globally if absent.
          config: What its registrar shows as ``config``.

        Raises:
          PluginError: A required service is missing, or the setup failed.
        """
        return await self._mounts.mount(plugin, scope=scope, config=config)

    async def add_presets(self, presets: Iterable[Preset]) -> None:
        """Mount presets, for `open_host`."""
        self._presets = await mount_presets(presets, self._mounts)

    @asynccontextmanager
    async def open_agent(self, spec: AgentSpec, *, preset: str | None = None) -> AsyncIterator[Agent]:
        """Open an agent for the length of the block.

        Its loop runs in a task of its own until the block ends; ending the block cancels the open turn, ends
        the agents below it, and waits for all of that. An error raised in the block comes out as itself. What
        is registered on the agent's scope is undone when it closes.

        Args:
          spec: What it is made from.
          preset: Name of the preset it is composed under; the host's global layer alone if absent.

        Yields:
          The handle. It cannot be used after the block.

        Raises:
          ConfigError: Neither the spec, nor its preset, nor the host names a model.
          DuplicateNameError: A live agent has the name.
          NotRegisteredError: There is no such preset, or no such model provider.
          PluginError: An item of the setup failed.
          StoreError: The log could not be opened.
        """
        async with (
            self.compose(spec, preset=preset) as agent,
            open_hidden_nursery(f"agent {agent.path!r}") as nursery,
        ):
            nursery.start_soon(agent.run, name=f"agent {agent.path}")
            yield agent

    async def start_agent(self, spec: AgentSpec, *, preset: str | None = None) -> Agent:
        """Start an agent that lives until its ``aclose()``, or the host's end. Takes one task.

        Raises what `open_agent` raises.
        """
        return await self._nursery.start(self._live, spec, preset, name=f"agent {spec.name}")

    async def _live(self, spec: AgentSpec, preset: str | None, task_status: trio.TaskStatus[Agent]) -> None:
        with trio.CancelScope() as scope:
            async with self.compose(spec, preset=preset) as agent:
                agent.stop_with(scope)
                task_status.started(agent)
                await agent.run()

    # ---------------------------------------------------------------- composing

    @asynccontextmanager
    async def compose(
        self,
        spec: AgentSpec,
        *,
        parent: Agent | None = None,
        preset: str | None = None,
        session: SessionLog | None = None,
    ) -> AsyncIterator[Agent]:
        """Open an agent whose turns the caller runs; see `creche.agent.Composer`."""
        path = spec.name if parent is None else f"{parent.path}/{spec.name}"
        if path in self._names:
            raise DuplicateNameError(
                f"an agent {path!r} is live already; give another name, or wait until that one has ended"
            )
        if session is None:
            session = SessionLog(_header(spec, path, parent, preset))
        self._names.add(path)
        try:
            if parent is not None:
                parent.journal.begin(session.header)
                async with self._composed(spec, parent, preset, session, parent.journal) as agent:
                    yield agent
            else:
                async with self._open_journal(session) as journal:
                    async with self._composed(spec, None, preset, session, journal) as agent:
                        yield agent
        finally:
            self._names.discard(path)

    def _open_journal(self, session: SessionLog) -> AbstractAsyncContextManager[Journal]:
        return self._store.open_journal(session.header)

    @asynccontextmanager
    async def _composed(
        self,
        spec: AgentSpec,
        parent: Agent | None,
        preset: str | None,
        session: SessionLog,
        journal: Journal,
    ) -> AsyncIterator[Agent]:
        path = session.header.path
        standing = None if preset is None else self._presets.get(preset)
        grants = self._grants_used(parent, standing, path)
        scope = ScopeKey(path)
        above = standing.scope if standing is not None else parent.scope if parent is not None else None
        bind_scope_parent(scope, above)
        mounted: Mounted | None = None
        agent: Agent | None = None
        try:
            route, settings = self._route(spec, parent, standing, path)
            items = expand_setup(persona=spec.persona, tools=spec.tools, mode=spec.present_as, setup=spec.setup)
            if items:
                mounted = await self._mounts.mount(Plugin(path, items), scope=scope)
            if parent is not None and parent.is_closed:
                raise AgentClosedError(f"agent {parent.path!r} ended while {spec.name!r} was being composed")
            agent = Agent._create(
                spec,
                path=path,
                scope=scope,
                session=session,
                registry=self.registry,
                composer=self,
                journal=journal,
                route=route,
                settings=settings,
                parent=parent,
                preset=preset if preset is not None or parent is None else parent.preset,
                limit=self._depth_limit(spec, parent, standing, path),
                grants=grants,
            )
            self._publish(agent)
            yield agent
        finally:
            await self._take_down(scope, agent, mounted)

    def _publish(self, agent: Agent) -> None:
        self._agents[agent.id] = agent
        if agent.parent is not None:
            agent.parent.add_child(agent)
        if self.registry.hears(AgentOpened):
            self.registry.emit(AgentOpened(agent), at=agent.scope)

    async def _take_down(self, scope: ScopeKey, agent: Agent | None, mounted: Mounted | None) -> None:
        if agent is not None:
            if agent.children:
                with trio.CancelScope(shield=True):
                    await agent.wait_childless()
            agent.close()
            if self.registry.hears(AgentClosed):
                self.registry.emit(AgentClosed(agent), at=scope)
            self._agents.pop(agent.id, None)
            if agent.parent is not None:
                agent.parent.remove_child(agent, agent.usage)
        try:
            self.registry.close_scope(scope)
        finally:
            if mounted is not None:
                with trio.CancelScope(shield=True):
                    await mounted.unmount()

    # ---------------------------------------------------------------- what an agent is made with

    def _route(
        self, spec: AgentSpec, parent: Agent | None, standing: Standing | None, path: str
    ) -> tuple[Route, Settings]:
        own = spec.model or (standing.model if standing is not None else None)
        options = spec.options
        if parent is not None and options == _NO_OPTIONS:
            options = parent.options
        if own is None and parent is not None:
            route = _route_now(parent, self.registry)
        elif own is None and self._model is None:
            raise ConfigError(
                [("model", f"agent {path!r} has no model: give AgentSpec(model=...), its preset's, or open_host(model=...)")]
            )
        else:
            above = standing.scope if standing is not None else parent.scope if parent is not None else None
            route = resolve_model(own if own is not None else self._model or "", self.registry, above)
        return route, Settings(route.model.provider, model=route.name, options=options)

    def _depth_limit(
        self, spec: AgentSpec, parent: Agent | None, standing: Standing | None, path: str
    ) -> DepthLimit:
        limit = self._limit if parent is None else parent.limit
        depth = 0 if parent is None else parent.depth + 1
        limit.check(depth, path)
        for budget in (*(standing.budgets if standing is not None else ()), spec.budget):
            limit = limit.tightened(budget, depth, path)
        return limit

    def _grants_used(self, parent: Agent | None, standing: Standing | None, path: str) -> tuple[str, ...]:
        """Compare once what the preset shows with what the parent sees, by name and tool."""
        if parent is None or standing is None:
            return ()
        seen = visible(self.registry, parent.scope)
        more = sorted(
            name for name, each in visible(self.registry, standing.scope).items() if seen.get(name) is not each
        )
        refused = [name for name in more if name not in standing.grants]
        if refused:
            raise AuthorityError(
                f"agent {path!r} would see {', '.join(map(repr, refused))} under preset {standing.preset.name!r}, "
                f"which {parent.path!r} does not see; add them to the preset's grants= or leave them out"
            )
        return tuple(more)


_NO_OPTIONS = ModelOptions()


def _route_now(parent: Agent, registry: Registry) -> Route:
    """Return what the parent asks at the moment, which a wrapper may have changed since it was made."""
    header = parent.session.last_header
    if header is None:
        return parent.route
    settings = header.head.settings
    if settings.provider == parent.route.model.provider:
        return Route(parent.route.model, name=settings.model)
    return resolve_model(f"{settings.provider}:{settings.model}", registry, parent.scope)


def _header(spec: AgentSpec, path: str, parent: Agent | None, preset: str | None) -> SessionHeader:
    return SessionHeader(
        uuid.uuid4().hex,
        path=path,
        created=time.time(),
        parent=None if parent is None else parent.id,
        preset=preset,
        cwd=spec.cwd if spec.cwd is not None or parent is None else parent.cwd,
        depth=0 if parent is None else parent.depth + 1,
    )


@asynccontextmanager
async def open_host(
    *,
    model: Model | str | None = None,
    persona: Text | None = None,
    plugins: Iterable[Plugin] = (),
    presets: Iterable[Preset] = (),
    store: SessionStore | str | os.PathLike[str] | None = None,
    prices: Mapping[str, object] | None = None,
    budget: Budget | None = None,
    identity: bool = True,
    persona_suffix: Text | None = None,
) -> AsyncIterator[Host]:
    """Open a host for the length of the block; leaving it ends every agent and plugin, and waits for them.

    Args:
      model: What agents ask that name no model: an adapter, or ``"provider:model"``.
      persona: Who agents are that say nothing else.
      plugins: What is mounted globally, in order, before the presets.
      presets: Compositions that agents can be opened under.
      store: Where logs are kept: a folder for JSONL files, or a store; in memory if absent.
      prices: What tokens cost. Not counted by this version, so it is refused.
      budget: Limits of every agent and everything below it.
      identity: Whether the section `harness:identity` is there.
      persona_suffix: What varies by machine, at the very end of the system prompt.

    Yields:
      The host. An error raised in the block comes out as itself.

    Raises:
      PluginError: A plugin did not start.
      ConfigError: The presets do not fit together; all problems at once.
    """
    if prices is not None:
        raise UnsupportedCapabilityError("open_host(prices=...): costs are not counted by this version of creche")
    async with open_mounts(Registry()) as mounts, open_hidden_nursery("the host") as nursery:
        host = Host._create(mounts, nursery, _as_store(store), model, budget)
        _furnish(host.registrar, persona, persona_suffix, identity=identity)
        for plugin in plugins:
            await host.mount(plugin)
        await host.add_presets(presets)
        yield host


def _as_store(store: SessionStore | str | os.PathLike[str] | None) -> SessionStore:
    if store is None:
        return MemoryStore()
    return JsonlStore(store) if isinstance(store, str | os.PathLike) else store


def _furnish(registrar: Registrar, persona: Text | None, suffix: Text | None, *, identity: bool) -> None:
    """Register what every host has."""
    if identity:
        registrar.add(Section(IDENTITY_SECTION, order=section_order(IDENTITY_SECTION), text=IDENTITY))
    registrar.add(Section(PERSONA_SECTION, order=PERSONA_ORDER, text=persona or ""))
    if suffix is not None:
        order = section_order(PERSONA_SUFFIX_SECTION)
        registrar.add(Section(PERSONA_SUFFIX_SECTION, order=order, text=suffix))
    registrar.add(Variable("provider", _provider))
    registrar.add(Variable("model", _model))
    registrar.add(Variable("cwd", _cwd))
    registrar.provide(ToolThreads(trio.CapacityLimiter(TOOL_THREADS)))
    registrar.add(native_provider(registrar.registry))
    registrar.add(spawn_provider())
    registrar.add(fork_provider())
    registrar.add(delegation_context())


def _provider(context: AssembleContext) -> str | None:
    return None if context.agent is None else context.agent.settings.provider


def _model(context: AssembleContext) -> str | None:
    return None if context.agent is None else context.agent.settings.model


def _cwd(context: AssembleContext) -> str | None:
    return None if context.agent is None else context.agent.cwd


__all__ = ["AgentClosed", "AgentOpened", "Host", "open_host"]

publish(globals(), __name__)

"""The host: the root of a process's agents. It owns the registry, the services and the nursery.

It is also the composer: whoever makes an agent, the host included, does it through `Host.compose`.

Rule 1: what can be refused is refused before anything has started: no registration, no line in a journal.
Rule 2: an agent goes in this order. Its children; what is registered at its scope; the async exits of its
setup; what nobody has read, its log and its name.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from types import MappingProxyType
from typing import ClassVar

import attrs
import trio

from creche._util import NoPublicConstructor, as_one, check_in_trio, final, open_hidden_nursery
from creche.agent import Agent, AgentSpec, Budget, expand_setup, forget_turns, make_durable
from creche.errors import AgentClosedError
from creche.models import KeepsOpen, Model
from creche.presets import (
    Composition,
    StandingPresets,
    decide_composition,
    decide_route,
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
)
from creche.session import SessionLog, SessionStore

from ._lives import Life


@attrs.frozen(eq=False)
class AgentOpened(Notification):
    """An agent is ready to be asked; dispatched at its scope."""

    wire_name: ClassVar[str] = "host/agent-opened"
    agent: Agent
    """The agent."""


@attrs.frozen(eq=False)
class AgentClosed(Notification):
    """An agent's turns are over and it takes nothing more; dispatched at its scope, before what is registered there goes.

    Nothing can be added to its log any more but what it drops unread.
    """

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
        *,
        registrar: Registrar,
        store: SessionStore,
        presets: StandingPresets,
        model: Model | str | None,
        budget: Budget | None,
    ) -> None:
        self.registry: Registry = mounts.registry
        """The shared registry."""
        self.registrar: Registrar = registrar
        """Writes globally, for the host."""
        self.presets: StandingPresets = presets
        """The mounted presets; ``host.presets.get("reviewer").scope`` is the scope that agents are composed under."""
        self.model: Model | str | None = model
        """What agents ask that name no model."""
        self._mounts = mounts
        self._nursery = nursery
        self._store = store
        self._budget = budget
        self._life = Life("the host")
        self._lives: dict[str, Life] = {}
        self._agents: dict[str, Agent] = {}
        self._open_models: dict[int, Model] = {}

    @property
    def agents(self) -> Mapping[str, Agent]:
        """The live agents by id, a read-only view."""
        return MappingProxyType(self._agents)

    async def mount(self, plugin: Plugin, *, scope: ScopeKey | None = None, config: object = None) -> Mounted:
        """Mount a plugin, at runtime too: the next step of every agent that sees the scope sees what it adds.

        Args:
          plugin: What to mount; a setup that fails leaves nothing behind.
          scope: Where; globally if absent.
          config: What its registrar shows as ``config``.

        Returns:
          The plugin in its place; it stays until ``unmount()``, or the host's end.

        Raises:
          PluginError: A required service is missing, or the setup failed.
          ScopeClosedError: The scope is closed, or the host closes.
        """
        return await self._mounts.mount(plugin, scope=scope, config=config)

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
          ScopeClosedError: The host closes.
          AgentClosedError: The block was cut short because the host, in another task, ended first.

        Example:
          Ask one question::

              async with open_host(model=model) as host, host.open_agent(AgentSpec("lead")) as lead:
                  print((await lead.ask("What is in this folder?")).text)
        """
        async with (
            self.compose(spec, preset=preset) as agent,
            open_hidden_nursery(f"agent {agent.path!r}", cancel=False) as nursery,
        ):
            nursery.start_soon(agent.run, name=f"agent {agent.path}")
            try:
                yield agent
            finally:
                agent.end_run()
            return
        raise AgentClosedError(f"agent {spec.name!r} was closed before its block ended, because the host has ended")

    async def start_agent(self, spec: AgentSpec, *, preset: str | None = None) -> Agent:
        """Start an agent that lives until its ``aclose()``, or the host's end. Takes one task.

        Raises what `open_agent` raises.
        """
        check_in_trio("host.start_agent()", "write await portal.run(host.start_agent, ...)")
        self._life.check_open(spec.name)
        agent: Agent = await self._nursery.start(self._live, spec, preset, name=f"agent {spec.name}")
        return agent

    async def _live(self, spec: AgentSpec, preset: str | None, task_status: trio.TaskStatus[Agent]) -> None:
        forget_turns()
        async with self.compose(spec, preset=preset) as agent:
            agent.stop_with(self._lives[agent.id].cancel_scope)
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
        """Open an agent whose turns the caller runs; see `creche.agent.Composer`.

        The block has a cancel scope that whoever is above it holds. What it cancels ends here, so the caller
        goes on after the block.
        """
        check_in_trio("host.open_agent()", "write async with portal.open(host.open_agent(...))")
        as_one(AgentSpec, spec, "an agent", f"write AgentSpec({spec!r})")
        path = spec.name if parent is None else f"{parent.path}/{spec.name}"
        above = self._life if parent is None else self._lives.get(parent.id)
        if above is None:
            raise AgentClosedError(f"agent {path!r} cannot be started: the agent above it does not run any more")
        life = above.begin(path)
        opened = False
        try:
            with life.cancel_scope:
                made = decide_composition(
                    spec,
                    parent=parent,
                    standing=None if preset is None else self.presets.get(preset),
                    header=None if session is None else session.header,
                    registry=self.registry,
                    host=self._budget,
                )
                async with self._composed(life, made, session) as agent:
                    opened = True
                    yield agent
            if not opened:
                above.check_open(path)  # it was cancelled while it was being composed, which only `above` does
        finally:
            life.end()

    @asynccontextmanager
    async def _composed(self, life: Life, made: Composition, session: SessionLog | None) -> AsyncIterator[Agent]:
        parent, header = made.parent, made.header
        scope = ScopeKey(header.path)
        bind_scope_parent(scope, made.above)
        mounted: Mounted | None = None
        async with self._store.open_journal(header) if parent is None else nullcontext(parent.journal) as journal:
            try:
                mounted = await self._set_up(made.spec, scope)
                route, settings = decide_route(made, registry=self.registry, scope=scope, host=self.model)
                self.keep_open(route.model)
                life.check_above()
                if parent is not None:
                    journal.begin(header)
                agent = Agent._create(
                    made.spec,
                    path=header.path,
                    scope=scope,
                    session=SessionLog(header) if session is None else session,
                    registry=self.registry,
                    composer=self,
                    journal=journal,
                    route=route,
                    settings=settings,
                    parent=parent,
                    preset=header.preset,
                    limit=made.limit,
                    allowances=made.allowances,
                    grants=made.grants,
                )
                self._publish(life, agent)
                yield agent
            finally:
                with trio.CancelScope(shield=True):  # it takes what the agent's exits take
                    await self._take_down(life, scope, mounted)

    def keep_open(self, model: Model) -> None:
        """Keep open what a model holds between requests until the host ends; see `creche.agent.Composer`."""
        if id(model) in self._open_models:
            return
        self._open_models[id(model)] = model  # by identity: an adapter of a user's need not be hashable
        if isinstance(model, KeepsOpen):
            self._nursery.start_soon(self._hold, model, name=f"model provider {model.provider}")

    async def _hold(self, model: KeepsOpen) -> None:
        forget_turns()
        try:
            async with model.opened():
                await trio.sleep_forever()
        except Exception as error:  # noqa: BLE001 - an adapter that breaks its contract; requests open for themselves
            self.registry.report(Owner("host"), "keeping a model open", error)

    async def _set_up(self, spec: AgentSpec, scope: ScopeKey) -> Mounted | None:
        items = expand_setup(persona=spec.persona, tools=spec.tools, mode=spec.present_as, setup=spec.setup)
        return await self._mounts.mount(Plugin(scope.label, items), scope=scope) if items else None

    def _publish(self, life: Life, agent: Agent) -> None:
        life.agent = agent
        self._lives[agent.id] = life
        self._agents[agent.id] = agent
        if agent.parent is not None:
            agent.stop_with(life.cancel_scope)
            agent.parent.add_child(agent)
        if self.registry.hears(AgentOpened):
            self.registry.emit(AgentOpened(agent), at=agent.scope)

    @trio.lowlevel.enable_ki_protection
    async def _take_down(self, life: Life, scope: ScopeKey, mounted: Mounted | None) -> None:
        """End an agent, or what there is of one. Called in a shield."""
        agent = life.agent
        await life.end_below()
        if agent is not None:
            await agent.wait_childless()  # there are none; from here on it takes nothing more
            if self.registry.hears(AgentClosed):
                self.registry.emit(AgentClosed(agent), at=scope)
        owner, doing = Owner(scope.label, scope), "undoing what was registered for it"
        try:
            self.registry.close_scope(scope)
        except ExceptionGroup as failures:
            self.registry.report(owner, doing, failures)
        if mounted is not None:
            try:
                await mounted.unmount()
            except ExceptionGroup as failures:
                self.registry.report(owner, doing, failures)
        if agent is None:
            return
        if agent.parent is None:
            await make_durable(agent)
        # One synchronous stretch, so whoever is told that the agent does not run finds its name free.
        known = len(agent.session)
        life.end()
        agent.close()
        del self._lives[agent.id], self._agents[agent.id]
        if agent.parent is not None:
            agent.parent.remove_child(agent, agent.usage)
        elif len(agent.session) > known:
            await make_durable(agent)  # what nobody has read
        agent.end()

"""What composing an agent decides: its header, how deep its tree may go, what it may see, and what it asks.

All of it follows from the spec, the preset, the agent that starts it and the host.

Rule 1: the nearest says. The spec comes before its preset, that before the one it extends, that before the
agent that starts it, and the host is last.
Rule 2: whoever says nothing asks what the agent that starts it asks at the moment, which the last request
tells and not what that agent was made with. What an adapter filled in of its own is not passed on.
Rule 3: a limit below another can only be tighter. The default holds where nobody says anything.
Rule 4: under a preset an agent sees nothing that the agent that starts it does not, except by grant. Names
and tools are compared, once, before anything starts.
"""

import sys
import time
import uuid

import attrs

from creche.agent import DEFAULT_DEPTH, Agent, AgentSpec, Allowance, Budget, DepthLimit, allow
from creche.errors import AuthorityError, ConfigError
from creche.models import Model, ModelOptions, Route, Settings, find_provider, resolve_model
from creche.scope import Registry, ScopeKey
from creche.session import SessionHeader
from creche.tools import Guard, visible

from ._preset import Standing

_NOTHING_SAID = DepthLimit(sys.maxsize, owner="nobody")
_BY_DEFAULT = DepthLimit(DEFAULT_DEPTH, owner="the default")
_NO_OPTIONS = ModelOptions()


@attrs.frozen(eq=False)
class Composition:
    """What is decided about an agent before anything of it has started."""

    spec: AgentSpec
    """What it is made from."""
    parent: Agent | None = attrs.field(kw_only=True)
    """The agent that starts it."""
    standing: Standing | None = attrs.field(kw_only=True)
    """The preset it is composed under."""
    header: SessionHeader = attrs.field(kw_only=True)
    """Identity of its session."""
    limit: DepthLimit = attrs.field(kw_only=True)
    """How deep its tree may go."""
    allowances: tuple[Allowance, ...] = attrs.field(kw_only=True)
    """What its requests are taken out of."""
    grants: tuple[str, ...] = attrs.field(kw_only=True)
    """Tools that it is to see by grant of the preset and its parent does not see, sorted."""

    @property
    def above(self) -> ScopeKey | None:
        """The scope that its own is bound under."""
        if self.standing is not None:
            return self.standing.scope
        return None if self.parent is None else self.parent.scope


def decide_composition(
    spec: AgentSpec,
    *,
    parent: Agent | None,
    standing: Standing | None,
    header: SessionHeader | None,
    registry: Registry,
    host: Budget | None,
) -> Composition:
    """Decide what can be decided before anything has started.

    Args:
      spec: What the agent is made from.
      parent: The agent that starts it.
      standing: The preset it is composed under, instead of its parent's scope.
      header: That of the session it goes on with; a new one if absent.
      registry: The shared registry.
      host: Limits of every agent.

    Raises:
      LimitReachedError: It would stand too deep; ``code`` is ``"depth"``.
      AuthorityError: It would see a tool that its parent does not see and the preset does not grant.
    """
    if header is None:
        header = new_header(spec, parent=parent, standing=standing)
    return Composition(
        spec,
        parent=parent,
        standing=standing,
        header=header,
        limit=_limit(header, spec, parent, standing, host),
        allowances=_allowances(header, spec, parent, standing, host),
        grants=() if parent is None or standing is None else _grants(header, parent, standing, registry),
    )


def new_header(spec: AgentSpec, *, parent: Agent | None, standing: Standing | None) -> SessionHeader:
    """Return the header of a new session. Each has another id."""
    preset = None if standing is None else standing.preset.name
    if parent is None:
        return SessionHeader(uuid.uuid4().hex, path=spec.name, created=time.time(), preset=preset, cwd=spec.cwd)
    return SessionHeader(
        uuid.uuid4().hex,
        path=f"{parent.path}/{spec.name}",
        created=time.time(),
        parent=parent.id,
        preset=parent.preset if preset is None else preset,
        cwd=parent.cwd if spec.cwd is None else spec.cwd,
        depth=parent.depth + 1,
    )


def _limit(
    header: SessionHeader, spec: AgentSpec, parent: Agent | None, standing: Standing | None, host: Budget | None
) -> DepthLimit:
    limit = parent.limit if parent is not None else _NOTHING_SAID.tightened(host, 0, "the host")
    limit.check(header.depth, header.path)
    for budget in (*(standing.budgets if standing is not None else ()), spec.budget):
        limit = limit.tightened(budget, header.depth, header.path)
    return _BY_DEFAULT if limit is _NOTHING_SAID else limit


def _allowances(
    header: SessionHeader, spec: AgentSpec, parent: Agent | None, standing: Standing | None, host: Budget | None
) -> tuple[Allowance, ...]:
    # What is above is shared, so that all below it take out of one; what is said here is new with each agent.
    above = parent.allowances if parent is not None else allow(host, header.path)
    budgets = (*(standing.budgets if standing is not None else ()), spec.budget)
    return (*above, *[each for budget in budgets for each in allow(budget, header.path)])


def _grants(header: SessionHeader, parent: Agent, standing: Standing, registry: Registry) -> tuple[str, ...]:
    guards = [guard.lets_through for guard in registry.collect(Guard, parent.scope) if guard.lets_through is not None]
    seen = {
        name: each
        for name, each in visible(registry, parent.scope).items()
        if all(lets_through(name) for lets_through in guards)
    }
    offered = visible(registry, standing.scope)
    # Another tool of the same name does something else.
    more = sorted(name for name, each in offered.items() if seen.get(name) is not each)
    refused = [name for name in more if name not in standing.grants]
    if refused:
        raise AuthorityError(
            f"agent {header.path!r} could call {', '.join(map(repr, refused))} under preset {standing.preset.name!r}, "
            f"which {parent.path!r} cannot; add them to grants= of preset {standing.preset.name!r}, or leave them out of it"
        )
    return tuple(more)


def decide_route(
    composition: Composition, *, registry: Registry, scope: ScopeKey, host: Model | str | None
) -> tuple[Route, Settings]:
    """Decide what an agent asks, and what its requests propose.

    Args:
      composition: The agent.
      registry: The shared registry.
      scope: The agent's own scope, whose model providers it can name; its setup has been run.
      host: What agents ask that say nothing.

    Raises:
      ConfigError: Nobody names a model, or not in the form ``"provider:model"``.
      NotRegisteredError: There is no such model provider.
    """
    spec, parent, standing = composition.spec, composition.parent, composition.standing
    named = spec.model if spec.model is not None or standing is None else standing.model
    options = spec.options
    if parent is not None:
        route, now = asks_now(parent, registry)
        if options == _NO_OPTIONS:
            options = now.options
        if named is None:
            # Under the preset the provider may have no name, or another one.
            provider = now.provider if standing is None else route.model.provider
            same = options is now.options and provider == now.provider
            return route, now if same else Settings(provider, model=now.model, options=options)
    elif named is None:
        named = host
    if named is None:
        path = composition.header.path
        sentence = f"agent {path!r} has none: give AgentSpec(model=...), its preset's, or open_host(model=...)"
        raise ConfigError([("model", sentence)])
    route = resolve_model(named, registry, scope)
    return route, Settings(route.model.provider, model=route.name, options=options)


def asks_now(agent: Agent, registry: Registry) -> tuple[Route, Settings]:
    """Return what an agent asks at the moment, which wrappers may have changed since it was made.

    If the provider that it asked last is gone, whoever chose that one is too: then it asks what it was made to.
    """
    header = agent.session.last_header
    if header is None:
        return agent.route, agent.settings
    settings = header.head.settings
    if header.head.defaults:
        own = {name: getattr(_NO_OPTIONS, name) for name in header.head.defaults}
        settings = attrs.evolve(settings, options=attrs.evolve(settings.options, **own))
    if settings == agent.settings:
        return agent.route, agent.settings
    if settings.provider in (agent.settings.provider, agent.route.model.provider):
        return Route(agent.route.model, name=settings.model), settings
    provider = find_provider(settings.provider, registry, agent.scope)
    if provider is None:
        return agent.route, agent.settings
    return Route(provider, name=settings.model), settings

"""Other models to ask when one cannot be had.

Rule 1: the retry policy of an adapter comes first. When it gives up, the next model of the list is asked, in the
same step, and its own policy counts from one.
Rule 2: a model that was given up is not asked again in that turn, so every model has its attempts once a turn and
there is an end. The next turn begins with the agent's own model again.
Rule 3: names are looked up at the first request of an agent, and again by nobody: a wrong one is told at once, and
not in the middle of an outage.

Any `ModelError` counts: what one model refuses, such as a history too long for its window, another may take.
"""

from collections.abc import Iterator
from weakref import WeakKeyDictionary

import attrs

from creche._util import publish
from creche.agent import Again, Agent, BuildRequest, GiveUp, RecoverRequest
from creche.errors import ConfigError, PluginError
from creche.models import Model, ModelProvider, Settings, find_provider, resolve_model
from creche.scope import Next, Plugin, Registrar

_Place = tuple[str, str]  # the name of a provider, and of a model in its words


def fallback(*models: Model | str) -> Plugin:
    """Ask other models when one fails: the first of these that has not failed in the turn, for the rest of the turn.

    An attempt has failed for good when its retry policy gives up. When the last of the models has, its error comes
    out of `Agent.ask`. Every failed attempt is in the log, and so is the change of the model. An agent below, such
    as a subagent, has its own state; one that is started meanwhile asks what its parent asks at the moment.

    Options are kept, but for ``effort``: it is in the words of a provider, and another one may have other words. A
    model without a key, or without its SDK, has not failed at an attempt: that error comes out at once.

    Args:
      models: Adapters, ``"provider:model"`` texts or aliases, in the order in which they are asked. An adapter is
        registered as a `ModelProvider` under its own ``provider`` name at the scope of each agent that asks, so it
        needs a name that no other adapter has there: the agent's first request is a `ConfigError` if one has.

    Raises:
      PluginError: No model is given.

    Example:
      Another provider, then one's own machine::

          plugins = [fallback("anthropic:claude-sonnet-5-5", "ollama:llama3.2")]
          async with open_host(model="openai:gpt-5", plugins=plugins) as host:
              ...
    """
    if not models:
        raise PluginError("fallback: there is no model to fall back to; write fallback('provider:model')")

    def stand_by(registrar: Registrar) -> None:
        standby = _Standby(models, registrar)
        registrar.wrap(BuildRequest, standby.build)
        registrar.wrap(RecoverRequest, standby.recover)

    return Plugin("fallback", setup=[stand_by])


@attrs.define(eq=False)
class _Course:
    """What an agent can fall back to, and how far it has come in a turn."""

    places: tuple[_Place, ...]
    turn: int = 0
    instead: _Place | None = None
    given_up: set[_Place] = attrs.field(factory=set[_Place])

    def at_turn(self, turn: int) -> "_Course":
        """Begin anew if another turn has begun."""
        if self.turn != turn:
            self.turn, self.instead, self.given_up = turn, None, set()
        return self

    def give_up(self, asked: _Place) -> bool:
        """Give up what was asked, and go on to the next place; return whether there is one."""
        self.given_up.add(asked)
        if self.instead is not None:
            self.given_up.add(self.instead)  # an adapter may have another name for what it was asked
        self.instead = next((place for place in self.places if place not in self.given_up), self.instead)
        return self.instead is not None and self.instead not in self.given_up


class _Standby:
    """The two wrappers, and the course of every live agent that has asked."""

    def __init__(self, models: tuple[Model | str, ...], registrar: Registrar) -> None:
        self._models = models
        self._registrar = registrar
        self._courses: WeakKeyDictionary[Agent, _Course] = WeakKeyDictionary()

    async def build(self, event: BuildRequest, go_on: Next[Settings]) -> Settings:
        """Ask a fallback instead, if it has come to that."""
        proposed = await go_on()
        agent = event.agent
        course = self._courses.get(agent)
        if course is None:
            course = self._courses[agent] = _Course(tuple(self._places(agent)))
        instead = course.at_turn(agent.session.turn).instead
        if instead is None:
            return proposed
        provider, model = instead
        options = proposed.options
        if provider != proposed.provider:
            options = attrs.evolve(options, effort=None)
        return Settings(provider, model=model, options=options)

    async def recover(self, event: RecoverRequest, go_on: Next[Again | GiveUp]) -> Again | GiveUp:
        """Go on to the next model where the retry policy gives up."""
        decision = await go_on()
        if isinstance(decision, Again):
            return decision
        course = self._courses.get(event.agent)
        if course is None:  # mounted while the attempt was under way
            return decision
        asked = (event.settings.provider, event.settings.model)
        return Again() if course.at_turn(event.agent.session.turn).give_up(asked) else decision

    def _places(self, agent: Agent) -> Iterator[_Place]:
        """Yield the name of each fallback's provider, as the agent's loop will look it up, and of its model."""
        registry, scope = agent.registry, agent.scope
        taken = {agent.route.model.provider: agent.route.model}
        for route in [resolve_model(model, registry, scope) for model in self._models]:
            name = _provider_name(route.model, agent)
            if taken.setdefault(name, route.model) is not route.model:
                sentence = (
                    f"agent {agent.path!r} asks a provider {name!r} already, and the fallback to {route.name!r} is "
                    "another adapter of that name; give one of them another provider="
                )
                raise ConfigError([("fallback", sentence)])
            if route.model is not agent.route.model and find_provider(name, registry, scope) is not route.model:
                self._registrar.at(scope).add(ModelProvider(name, model=route.model))
            yield name, route.name


def _provider_name(adapter: Model, agent: Agent) -> str:
    """Return the name under which an agent finds an adapter, or else the adapter's own."""
    entries = agent.registry.merge(ModelProvider, agent.scope)
    names = [name for name, entry in entries.items() if entry.model is adapter]
    return names[0] if names and adapter.provider not in names else adapter.provider


__all__ = ["fallback"]

publish(globals(), __name__)

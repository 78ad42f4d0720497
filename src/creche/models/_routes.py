"""From the name of a model to its adapter.

Rule 1: ``"provider:model"`` is looked up among the `ModelProvider` entries of the scope chain, nearest first, then
among the standard providers. Rule 2: a text without a colon is an alias, a `ModelAlias` entry. An alias may lead to
another one.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

import attrs

from creche._util import is_text
from creche.errors import ConfigError, NotRegisteredError
from creche.scope import Registry, ScopeKey

from ._model import Model, check_model_given


@attrs.frozen(eq=False)
class ModelProvider:
    """An entry: an adapter under the name that routes ``"name:model"`` use.

    Raises:
      ConfigError: No route could have the name.
    """

    name: str = attrs.field(validator=is_text)
    """The provider's name."""
    model: Model = attrs.field(kw_only=True)
    """The adapter."""
    entry_shape: ClassVar[Literal["named"]] = "named"

    def __attrs_post_init__(self) -> None:
        if not self.name or ":" in self.name:
            raise ConfigError([("provider", f"{self.name!r} cannot name a provider: it is a text without a colon")])


@attrs.frozen(eq=False)
class ModelAlias:
    """An entry: another name of a model, without a colon."""

    name: str = attrs.field(validator=is_text)
    """The name."""
    model: Model | str = attrs.field(kw_only=True)
    """What it stands for: an adapter, ``"provider:model"``, or another alias."""
    entry_shape: ClassVar[Literal["named"]] = "named"

    def __attrs_post_init__(self) -> None:
        if not self.name or ":" in self.name:
            raise ConfigError([("aliases", f"{self.name!r} cannot be an alias: it is a text without a colon")])
        check_model_given(self.model, f"alias {self.name!r}")


class StandardProviders:
    """A service: the model providers that need no registration, each made at its first use. One a host.

    Args:
      factories: What makes the adapter of a provider, by the provider's name.
    """

    def __init__(self, factories: Mapping[str, Callable[[], Model]]) -> None:
        self._factories = factories
        self._made: dict[str, Model] = {}

    @property
    def names(self) -> frozenset[str]:
        """The names of the providers."""
        return frozenset(self._factories)

    def find(self, name: str) -> Model | None:
        """Return the adapter of a provider, ``None`` if there is none."""
        if name not in self._made and name in self._factories:
            self._made[name] = self._factories[name]()
        return self._made.get(name)


@attrs.frozen
class Route:
    """An adapter and the model to ask of it."""

    model: Model
    """The adapter."""
    name: str = attrs.field(kw_only=True)
    """Name of the model, in the provider's words."""


def resolve_model(model: Model | str, registry: Registry, scope: ScopeKey | None) -> Route:
    """Return the route of a model given as an adapter, as ``"provider:model"``, or by an alias.

    Raises:
      ConfigError: The text is neither of that form nor an alias, or aliases lead in a circle.
      NotRegisteredError: No such provider is visible from the scope.
    """
    model = _follow_aliases(model, registry, scope)
    if not isinstance(model, str):
        return Route(model, name=model.model)
    provider, _, name = model.partition(":")
    if not provider or not name:
        raise ConfigError([("model", f"{model!r} is not of the form 'provider:model'")])
    return Route(require_provider(provider, registry, scope), name=name)


def require_provider(name: str, registry: Registry, scope: ScopeKey | None) -> Model:
    """Return the adapter of a model provider that is visible from a scope.

    Raises:
      NotRegisteredError: There is none; the message lists those that there are.
    """
    found = find_provider(name, registry, scope)
    if found is None:
        raise NotRegisteredError(
            f"no model provider {name!r} is registered; registered: {_provider_names(registry, scope)}; "
            "register one with registrar.add(ModelProvider(name, model=adapter))"
        )
    return found


def _provider_names(registry: Registry, scope: ScopeKey | None) -> str:
    standard = _standard(registry, scope)
    names = {*registry.merge(ModelProvider, scope), *(standard.names if standard else ())}
    return ", ".join(sorted(names)) or "(none)"


def find_provider(name: str, registry: Registry, scope: ScopeKey | None) -> Model | None:
    """Return the adapter of a model provider that is visible from a scope, ``None`` if there is none."""
    entry = registry.merge(ModelProvider, scope).get(name)
    if entry is not None:
        return entry.model
    standard = _standard(registry, scope)
    return None if standard is None else standard.find(name)


def _standard(registry: Registry, scope: ScopeKey | None) -> StandardProviders | None:
    if registry.service_registration(StandardProviders, scope) is None:
        return None
    return registry.find(StandardProviders, scope)


def _follow_aliases(model: Model | str, registry: Registry, scope: ScopeKey | None) -> Model | str:
    passed: list[str] = []
    while isinstance(model, str) and ":" not in model:
        aliases = registry.merge(ModelAlias, scope)
        passed.append(model)
        if model not in aliases:
            known = f"; aliases: {', '.join(sorted(aliases))}" if aliases else ""
            sentence = f"{model!r} is not of the form 'provider:model' and no alias{known}; providers: {_provider_names(registry, scope)}"
            raise ConfigError([("model", sentence)])
        model = aliases[model].model
        if model in passed:
            raise ConfigError([("model", f"aliases lead in a circle: {' -> '.join([*passed, str(model)])}")])
    return model

"""Presets: named compositions, mounted once, under which agents are composed.

A preset that extends another is bound under it, so what the organisation says reaches every agent of every
team, and a restriction holds downwards.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack

import attrs

from creche._util import as_names, as_one, is_a, is_none_or, is_text
from creche.agent import Budget, expand_setup
from creche.errors import ConfigError, NotRegisteredError
from creche.models import Model, check_model_given
from creche.prompt import Text
from creche.scope import Mounts, Plugin, ScopeKey, SetupItem, bind_scope_parent
from creche.tools import Mode, Tool, as_tools


def _as_setup(items: Iterable[SetupItem]) -> tuple[SetupItem, ...]:
    return tuple(items)


def _as_names(names: Iterable[str]) -> frozenset[str]:
    return frozenset(as_names(names, "grants="))


def _check_model(preset: "Preset", _attribute: object, model: Model | str | None) -> None:
    check_model_given(model, f"preset {preset.name!r}")


@attrs.frozen(eq=False)
class Preset:
    """A named composition."""

    name: str = attrs.field(validator=is_text)
    """What agents and other presets call it."""
    extends: str | None = attrs.field(default=None, validator=is_none_or(is_text), kw_only=True)
    """The preset it builds on; it is mounted first."""
    setup: tuple[SetupItem, ...] = attrs.field(default=(), converter=_as_setup, kw_only=True)
    """What is registered on the preset's scope: entries, plugins, functions of a registrar."""
    persona: Text | None = attrs.field(default=None, kw_only=True)
    """Who its agents are."""
    tools: tuple[Tool, ...] = attrs.field(default=(), converter=as_tools, kw_only=True)
    """Tools of its agents."""
    present_as: Mode | None = attrs.field(default=None, kw_only=True)
    """How tools are shown to the model; the chain decides if absent."""
    model: Model | str | None = attrs.field(default=None, validator=_check_model, kw_only=True)
    """What its agents ask; its base's if absent."""
    budget: Budget | None = attrs.field(default=None, validator=is_none_or(is_a(Budget)), kw_only=True)
    """Limits of each of its agents and everything below them."""
    grants: frozenset[str] = attrs.field(default=frozenset(), converter=_as_names, kw_only=True)
    """Tools that a subagent under this preset may see although the agent that starts it does not."""


@attrs.frozen(eq=False)
class Standing:
    """A mounted preset."""

    preset: Preset
    """What was mounted."""
    scope: ScopeKey = attrs.field(kw_only=True)
    """The scope that agents are composed under."""
    base: "Standing | None" = attrs.field(kw_only=True)
    """The one it extends."""

    @property
    def model(self) -> Model | str | None:
        """What its agents ask: its own, or the nearest base's."""
        return next((each.preset.model for each in self.line() if each.preset.model is not None), None)

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """The limits of it and its bases."""
        return tuple(each.preset.budget for each in self.line() if each.preset.budget is not None)

    @property
    def grants(self) -> frozenset[str]:
        """Its own grants; a base's do not pass on."""
        return self.preset.grants

    def line(self) -> "tuple[Standing, ...]":
        """Return it and its bases, nearest first."""
        line: list[Standing] = [self]
        while (base := line[-1].base) is not None:
            line.append(base)
        return tuple(line)


class StandingPresets:
    """The mounted presets of one host."""

    def __init__(self, standing: Mapping[str, Standing]) -> None:
        self._standing = dict(standing)

    def get(self, name: str) -> Standing:
        """Return a mounted preset.

        Raises:
          NotRegisteredError: There is none of that name.
          TypeError: It is something else than a name.
        """
        as_one(str, name, "preset=", "give the name of a preset")
        standing = self._standing.get(name)
        if standing is None:
            known = ", ".join(sorted(self._standing)) or "(none)"
            raise NotRegisteredError(f"no preset {name!r}; presets: {known}; give it to open_host(presets=[...])")
        return standing


async def mount_presets(presets: Iterable[Preset], mounts: Mounts) -> StandingPresets:
    """Mount presets, each once and a base before what extends it; if one fails, none is left.

    Raises:
      ConfigError: A name is used twice, a base does not exist, or presets extend each other in a circle.
      PluginError: A setup failed.
      CrecheError: A setup raised it.
    """
    standing: dict[str, Standing] = {}
    async with AsyncExitStack() as undo:
        for preset in _in_order(_checked(tuple(presets))):
            base = None if preset.extends is None else standing[preset.extends]
            scope = ScopeKey(f"preset {preset.name}")
            bind_scope_parent(scope, None if base is None else base.scope)
            items = expand_setup(persona=preset.persona, tools=preset.tools, mode=preset.present_as, setup=preset.setup)
            mounted = await mounts.mount(Plugin(f"preset {preset.name}", items), scope=scope)
            undo.push_async_callback(mounted.unmount)
            standing[preset.name] = Standing(preset, scope=scope, base=base)
        undo.pop_all()
    return StandingPresets(standing)


def _in_order(presets: Mapping[str, Preset]) -> Iterable[Preset]:
    """Return presets in the order in which they are given, but each after the one that it extends."""
    ordered: dict[str, Preset] = {}

    for preset in presets.values():
        line = [preset]
        while line[-1].name not in ordered and (base := line[-1].extends) is not None:
            line.append(presets[base])
        for each in reversed(line):
            ordered.setdefault(each.name, each)
    return ordered.values()


def _checked(presets: tuple[Preset, ...]) -> dict[str, Preset]:
    by_name = {preset.name: preset for preset in presets}
    problems: list[tuple[str, str]] = []
    for name, number in Counter(preset.name for preset in presets).items():
        if number > 1:
            problems.append((f"presets.{name}", f"there are {number} of this name; rename all but one"))
    for preset in presets:
        where = f"presets.{preset.name}.extends"
        if preset.extends is None:
            continue
        if preset.extends not in by_name:
            problems.append((where, f"there is no preset {preset.extends!r}; there are: {', '.join(sorted(by_name))}"))
        elif _is_circular(preset, by_name):
            problems.append((where, f"{preset.extends!r} leads back to itself"))
    if problems:
        raise ConfigError(problems)
    return by_name


def _is_circular(preset: Preset, by_name: Mapping[str, Preset]) -> bool:
    seen: set[str] = set()
    current: Preset | None = preset
    while current is not None and current.extends is not None:
        if current.name in seen:
            return True
        seen.add(current.name)
        current = by_name.get(current.extends)
    return False

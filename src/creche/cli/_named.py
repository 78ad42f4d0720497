"""What ``MODULE:NAME`` names: presets, or a host, of a program of the user's.

Rule 1: the module is found as ``python -m`` would find it, in the working directory first, and runs when it is imported.
Rule 2: whatever the user's code raises is told in one sentence, with the line it came from. Code of the user's is also what
a module gives for a name, and what a thing of the user's says of its class and of what is in it.
"""

import importlib
import inspect
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from types import ModuleType
from typing import cast

import attrs

from creche.host import open_host
from creche.models import ScriptedModel
from creche.presets import Preset

from ._ending import WrongUsage
from ._users import users_code

KINDS = "Preset, list of presets or open_host(...), nor a function without arguments that returns one of these"


@attrs.frozen(eq=False)
class Named:
    """What was named."""

    host: AbstractAsyncContextManager[object]
    """A host that is not open yet, or something that takes its place."""
    preset: str | None = attrs.field(kw_only=True)
    """Name of the preset that is meant; ``None`` is the host's global layer."""
    alone: bool = attrs.field(default=False, kw_only=True)
    """Whether presets were named, and no host: then what its plugins bring is not there."""


def find_named(text: str) -> Named:
    """Return what ``MODULE:NAME`` or ``MODULE:NAME:PRESET`` names.

    Raises:
      WrongUsage: There is no such thing, or it is of another kind.
      UserCodeFailed: The module, or the function that it names, raised something.
    """
    module_name, name, wanted = _split(text)
    label = f"{module_name}:{name}"
    module = _import(module_name)
    found = _look_up(module, module_name, name)
    with users_code(f"{label} failed"):
        if callable(found) and not isinstance(found, AbstractAsyncContextManager):
            found = found()
            found = list(cast("Iterator[object]", found)) if inspect.isgenerator(found) else found
        if isinstance(found, AbstractAsyncContextManager):
            return Named(cast("AbstractAsyncContextManager[object]", found), preset=wanted)
        presets = _as_presets(found)
        if presets is None:
            if inspect.iscoroutine(found):
                found.close()  # else Python complains of it too, later and elsewhere
            raise WrongUsage(f"{label} is no {KINDS}, but of type {type(found).__name__}")
    chosen = _choose(presets, wanted, text)
    _check_bases(presets, label, module)
    return Named(open_host(model=ScriptedModel({}), presets=presets), preset=chosen, alone=True)


def _split(text: str) -> tuple[str, str, str | None]:
    module, _, rest = text.partition(":")
    name, colon, preset = rest.partition(":")
    if not module or not name or (colon and not preset):
        raise WrongUsage(
            f"{text!r} is not of the form MODULE:NAME or MODULE:NAME:PRESET, such as team:PRESETS:reviewer"
        )
    return module, name, preset if colon else None


def _import(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise WrongUsage(f"{name!r} is no name of a module; write team for team.py")
    try:
        here = os.getcwd()
    except OSError as error:
        raise WrongUsage(f"module {name!r} cannot be found: the working directory is gone ({error.strerror})") from None
    if sys.path[:1] != [here]:
        sys.path.insert(0, here)
    with users_code(f"module {name!r} cannot be imported"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is not None and f"{name}.".startswith(f"{error.name}."):
                raise WrongUsage(
                    f"there is no module {error.name!r} in {here!r}, nor among what is installed"
                ) from None
            raise


def _look_up(module: ModuleType, module_name: str, name: str) -> object:
    with users_code(f"{module_name}:{name} cannot be read"):
        found: object = getattr(module, name, _MISSING)
    if found is _MISSING:
        file = _contents(module).get("__file__")
        fitting = list(_presets_in(module))
        others = f"it has the presets {', '.join(fitting)}" if fitting else "it has no presets"
        raise WrongUsage(f"module {module_name!r}{f' ({file})' if file else ''} has no {name!r}; {others}")
    return found


_MISSING = object()


def _contents(module: ModuleType) -> Mapping[str, object]:
    # A module can put anything into its place while it is imported.
    return vars(module) if isinstance(cast("object", module), ModuleType) else {}


def _presets_in(module: ModuleType) -> dict[str, list[Preset]]:
    """Return the presets of a module by the names of what they are in."""
    found: dict[str, list[Preset]] = {}
    for name, value in list(_contents(module).items()):
        with suppress(Exception):  # nobody asked for this one, and there are those that do not even tell their class
            if presets := _as_presets(value):
                found[name] = presets
    return found


def _as_presets(found: object) -> list[Preset] | None:
    """Return presets as a list, ``None`` if it is something else."""
    if isinstance(found, Preset):
        return [found]
    if isinstance(found, Mapping):
        found = list(cast("Mapping[object, object]", found).values())
    if not isinstance(found, list | tuple):
        return None
    given = cast("Sequence[object]", found)
    presets = [each for each in given if isinstance(each, Preset)]
    return presets if presets and len(presets) == len(given) else None


def _choose(presets: list[Preset], wanted: str | None, text: str) -> str:
    names = [preset.name for preset in presets]
    if wanted is None:
        if len(names) > 1:
            raise WrongUsage(
                f"{text} has {len(names)} presets: {', '.join(names)}; say which, as in {text}:{names[-1]}"
            )
        return names[0]
    if wanted not in names:
        raise WrongUsage(f"{text.rpartition(':')[0]} has no preset {wanted!r}; it has: {', '.join(names)}")
    return wanted


def _check_bases(presets: list[Preset], which: str, module: ModuleType) -> None:
    names = {preset.name for preset in presets}
    for preset in presets:
        if preset.extends is not None and preset.extends not in names:
            wanted = {preset.name, preset.extends}
            held = {name: {each.name for each in inside} for name, inside in _presets_in(module).items()}
            fitting = [name for name, names in held.items() if wanted <= names]
            example = f", as in {which.partition(':')[0]}:{fitting[0]}:{preset.name}" if fitting else ""
            raise WrongUsage(
                f"preset {preset.name!r} extends {preset.extends!r}, which is not in {which}; name a list that has both{example}"
            )

"""What is public is public on purpose: listed, in order, with one path and a docstring."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "creche"
METHODS = (FunctionType, classmethod, staticmethod, property)


def _public_modules(folder: Path, prefix: str) -> Iterator[str]:
    """Yield the names of public modules without importing one, so that a broken room fails its own tests alone."""
    for found in pkgutil.iter_modules([str(folder)]):
        if not found.name.startswith("_"):
            yield f"{prefix}.{found.name}"
            if found.ispkg:
                yield from _public_modules(folder / found.name, f"{prefix}.{found.name}")


ROOMS = list(_public_modules(SOURCE, "creche"))


def _exports(name: str) -> dict[str, object]:
    module = importlib.import_module(name)
    return {export: getattr(module, export) for export in getattr(module, "__all__", ())}


def _own_objects(name: str) -> dict[str, type | FunctionType]:
    """Return the exported classes and functions that are ours, and not an alias of somebody else's."""
    return {
        export: value
        for export, value in _exports(name).items()
        if isinstance(value, (type, FunctionType)) and value.__module__.partition(".")[0] == "creche"
    }


def _order(name: str) -> tuple[int, list[tuple[int, int, str]]]:
    """Sort as ruff's RUF022 does: constants, classes, the rest; numbers by their value."""
    group = 0 if len(name) > 1 and name.isupper() else 1 if name[:1].isupper() else 2
    return group, [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


@pytest.mark.parametrize("name", ["creche", *ROOMS])
def test_a_public_module_lists_its_exports_in_order(name):
    listed = list(getattr(importlib.import_module(name), "__all__", []))
    assert listed == sorted(set(listed), key=_order)


@pytest.mark.parametrize("name", ["creche", *ROOMS])
def test_what_is_listed_is_what_can_be_imported(name):
    """Rule: a door shows its exports and nothing that it only uses; a room of one module shows what it defines."""
    module = importlib.import_module(name)
    visible = {
        public
        for public in dir(module)
        if not public.startswith("_") and not isinstance(value := getattr(module, public), ModuleType)
        if hasattr(module, "__path__") or public in _exports(name) or getattr(value, "__module__", None) == name
    }
    assert visible - {"publish"} == _exports(name).keys() - {"__version__"}


@pytest.mark.parametrize("name", ROOMS)
def test_a_public_object_has_its_rooms_path(name):
    elsewhere = {
        export: f"{value.__module__}.{value.__qualname__}"
        for export, value in _own_objects(name).items()
        if (value.__module__, value.__qualname__) != (name, export)
    }
    assert elsewhere == {}


@pytest.mark.parametrize("name", ROOMS)
def test_a_public_object_has_a_docstring(name):
    assert [export for export, value in _own_objects(name).items() if not (value.__doc__ or "").strip()] == []


@pytest.mark.parametrize("name", ROOMS)
def test_a_public_method_has_a_docstring(name):
    """Rule: it has its own, or the one of what it implements."""
    bare = [
        f"{export}.{member}"
        for export, owner in _own_objects(name).items()
        if isinstance(owner, type)
        for member, method in vars(owner).items()
        if not member.startswith("_") and isinstance(method, METHODS) and not inspect.getdoc(getattr(owner, member))
    ]
    assert bare == []


def test_the_root_repeats_about_thirty_everyday_names():
    assert 20 <= len(_exports("creche")) <= 40


def test_a_name_of_the_root_is_a_rooms_own():
    rooms = [_exports(name) for name in ROOMS]
    homeless = [
        export
        for export, value in _exports("creche").items()
        if not export.startswith("__") and not any(room.get(export, rooms) is value for room in rooms)
    ]
    assert homeless == []

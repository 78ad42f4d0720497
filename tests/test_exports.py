"""What is public is public on purpose: listed, in order, with one path and a docstring."""

import importlib
import inspect
import pkgutil
import re
from types import FunctionType, ModuleType

import pytest

import creche


def _public_modules(package: ModuleType) -> list[str]:
    names = [package.__name__]
    for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        if found.name.rpartition(".")[2].startswith("_"):
            continue
        names += _public_modules(importlib.import_module(found.name)) if found.ispkg else [found.name]
    return names


MODULES = _public_modules(creche)
ROOMS = [name for name in MODULES if name != "creche"]


def _exports(name: str) -> dict[str, object]:
    module = importlib.import_module(name)
    return {export: getattr(module, export) for export in getattr(module, "__all__", ())}


def _objects(names: list[str]) -> list[object]:
    """Every class and function of the modules, as a parameter that is called by its path."""
    return [
        pytest.param(name, export, value, id=f"{name}.{export}")
        for name in names
        for export, value in _exports(name).items()
        if isinstance(value, (type, FunctionType))
    ]


def _isort_key(name: str) -> tuple[int, list[tuple[int, int, str]]]:
    """The order of ruff's RUF022: constants, classes, the rest, and numbers by their value."""
    group = 0 if len(name) > 1 and name.isupper() else 1 if name[:1].isupper() else 2
    return group, [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


@pytest.mark.parametrize("name", MODULES)
def test_a_public_module_lists_its_exports_in_order(name):
    listed = getattr(importlib.import_module(name), "__all__", None)
    assert listed is not None, f"{name} has no __all__"
    assert list(listed) == sorted(set(listed), key=_isort_key)


@pytest.mark.parametrize("name", MODULES)
def test_what_is_listed_is_what_can_be_imported(name):
    """Rule: a door shows its exports and nothing that it only uses; a module of one file shows what it defines."""
    module = importlib.import_module(name)
    visible = {
        public: getattr(module, public)
        for public in dir(module)
        if not public.startswith("_") and not isinstance(getattr(module, public), ModuleType)
    }
    if hasattr(module, "__path__"):
        visible.pop("publish", None)
    else:
        listed = getattr(module, "__all__", ())
        visible = {key: value for key, value in visible.items() if key in listed or _is_defined_in(value, name)}
    assert set(getattr(module, "__all__", ())) == visible.keys() | (_exports(name).keys() & {"__version__"})


def _is_defined_in(value: object, name: str) -> bool:
    return isinstance(value, (type, FunctionType)) and value.__module__ == name


@pytest.mark.parametrize(("name", "export", "value"), _objects(ROOMS))
def test_a_public_object_has_its_rooms_path(name, export, value):
    assert (value.__module__, value.__qualname__) == (name, export)


@pytest.mark.parametrize(("name", "export", "value"), _objects(ROOMS))
def test_a_public_object_has_a_docstring(name, export, value):
    assert (value.__doc__ or "").strip(), f"{name}.{export} has no docstring"


@pytest.mark.parametrize(
    ("name", "export", "value"), [case for case in _objects(ROOMS) if isinstance(case.values[2], type)]
)
def test_a_public_method_has_a_docstring(name, export, value):
    """Rule: it has its own, or the one of what it implements."""
    bare = [
        member
        for member, what in vars(value).items()
        if not member.startswith("_")
        and isinstance(what, (FunctionType, classmethod, staticmethod, property))
        and not inspect.getdoc(getattr(value, member))
    ]
    assert bare == [], f"{name}.{export}: {', '.join(bare)} without a docstring"


def test_the_root_repeats_about_thirty_everyday_names():
    assert 20 <= len(_exports("creche")) <= 40


@pytest.mark.parametrize("export", [name for name in _exports("creche") if not name.startswith("__")])
def test_a_name_of_the_root_is_a_rooms_own(export):
    value = getattr(creche, export)
    assert any(_exports(room).get(export) is value for room in ROOMS), f"no room exports creche.{export}"

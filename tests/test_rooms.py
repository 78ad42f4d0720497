"""The walls between rooms, read from the source: through the door across rooms, relative inside one."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "creche"
FILES = sorted(SOURCE.rglob("*.py"))


def offences(source: str, module: str, *, is_door: bool) -> Iterator[str]:
    """Yield one sentence for each import that goes through a wall.

    Args:
      source: The text of the module.
      module: Its dotted name below ``creche``; empty for the root.
      is_door: Whether the file is an ``__init__.py``, from which a relative import starts one level lower.
    """
    path = module.split(".") if module else []
    package = path if is_door else path[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root, *target = alias.name.split(".")
                if root == "creche":
                    yield from _through_a_wall(node, package, target, [""], relative=False)
        elif isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names]
            target = node.module.split(".") if node.module else []
            if node.level:
                start = package[: max(len(package) - node.level + 1, 0)]
                yield from _through_a_wall(node, package, start + target, names, relative=True)
            elif target[0] == "creche":
                yield from _through_a_wall(node, package, target[1:], names, relative=False)


def _through_a_wall(
    node: ast.stmt, package: list[str], target: list[str], names: list[str], *, relative: bool
) -> Iterator[str]:
    """Yield what is wrong with one import of ``names`` from ``target``, a path below ``creche``."""
    where = f"line {node.lineno}: {'.'.join(['creche', *target])}"
    is_same_room = bool(package) and target[:1] == package[:1]
    if not target and not relative:
        if names != ["__version__"]:
            yield f"{where} is the root; import from the room"
    elif relative and not is_same_room:
        yield f"{where} leaves the room; import it absolutely"
    elif is_same_room and not relative:
        yield f"{where} is in this room; import it relatively"
    else:
        shared = 0
        while shared < min(len(package), len(target)) and package[shared] == target[shared]:
            shared += 1
        for name in names:
            door, *inside = [*target[shared:], name]
            # What starts with an underscore here is this folder's own; `creche._util` is a door all the same.
            if not door.startswith("_") or not shared:
                for part in inside:
                    if part.startswith("_"):
                        yield f"{where} reaches for {part}, which is private to {door}"


def _module_of(file: Path) -> str:
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_no_import_goes_through_a_wall(file):
    """Rule: across rooms through the door and absolute, inside a room relative."""
    assert list(offences(file.read_text("utf-8"), _module_of(file), is_door=file.name == "__init__.py")) == []


@pytest.mark.parametrize(
    ("module", "is_door", "source", "sentence"),
    [
        ("agent._loop", False, "from creche.session._log import Log", "reaches for _log"),
        ("agent._loop", False, "from creche.session import _log", "reaches for _log"),
        ("agent._loop", False, "import creche.session._log", "reaches for _log"),
        ("agent._loop", False, "def f():\n    from creche._util._public import final", "reaches for _public"),
        ("agent._loop", False, "from creche.agent import Agent", "in this room"),
        ("agent._loop", False, "from creche.agent._inbox import Inbox", "in this room"),
        ("agent", True, "from creche.agent._inbox import Inbox", "in this room"),
        ("agent._loop", False, "from creche import Agent", "is the root"),
        ("agent._loop", False, "import creche", "is the root"),
        ("agent._loop", False, "from ..session import Log", "leaves the room"),
        ("agent._loop", False, "from .. import session", "leaves the room"),
        ("agent", True, "from ..session import Log", "leaves the room"),
        ("host", False, "from .agent import Agent", "leaves the room"),
        ("", True, "from .agent import Agent", "leaves the room"),
        ("models.adapters._openai", False, "from ...scope import ScopeKey", "leaves the room"),
        (
            "models._model",
            False,
            "from .adapters._openai import Model",
            "reaches for _openai, which is private to adapters",
        ),
        ("plugins.files._tools", False, "from ..shell._run import run", "reaches for _run, which is private to shell"),
        ("plugins.files._tools", False, "from ..shell import _run", "reaches for _run, which is private to shell"),
    ],
)
def test_an_import_through_a_wall_is_named(module, is_door, source, sentence):
    (found,) = offences(source, module, is_door=is_door)
    assert sentence in found


@pytest.mark.parametrize(
    ("module", "is_door", "source"),
    [
        ("agent._loop", False, "from creche.session import Log"),
        ("agent._loop", False, "from creche._util import final"),
        ("agent._loop", False, "from ._inbox import Inbox"),
        ("agent._loop", False, "from . import _inbox"),
        ("agent._loop", False, "from ._inbox import _Slot"),
        ("plugins.files", True, "from ..shell import shell"),
        ("agent", True, "from ._loop import Agent as Agent"),
        ("models.adapters._openai", False, "from .._chunks import Chunk"),
        ("models.adapters", True, "from .. import _chunks"),
        ("host", False, "from creche.agent import Agent"),
        ("cli._main", False, "from creche import __version__"),
        ("", True, "from creche.agent import Agent as Agent"),
        ("agent._loop", False, "import trio._core, crechelike._x"),
    ],
)
def test_an_import_through_a_door_is_fine(module, is_door, source):
    assert list(offences(source, module, is_door=is_door)) == []

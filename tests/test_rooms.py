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
            names = [alias.name.split(".") for alias in node.names]
            for name in names:
                if name[0] == "creche":
                    yield from _absolute(node, path, name[1:], [])
        elif isinstance(node, ast.ImportFrom):
            name = (node.module or "").split(".") if node.module else []
            if node.level:
                above = node.level - 1
                target = [*package[: len(package) - above], *name]
                if above > len(package) or not target or not path or target[0] != path[0]:
                    yield f"line {node.lineno}: a relative import leaves the room"
            elif name[:1] == ["creche"]:
                yield from _absolute(node, path, name[1:], [alias.name for alias in node.names])


def _absolute(node: ast.stmt, path: list[str], target: list[str], names: list[str]) -> Iterator[str]:
    where = f"line {node.lineno}: {'.'.join(['creche', *target])}"
    if not target:
        if names != ["__version__"]:
            yield f"{where} is the root; import from the room"
    elif path and target[0] == path[0]:
        yield f"{where} is this very room; import relatively"
    else:
        # `creche._util` is private to the package, not to a room: everybody uses its door.
        private = [part for part in [*target[1:], *names] if part.startswith("_") and not part.startswith("__")]
        if private:
            yield f"{where} reaches for {private[0]}, which is private to {target[0]}"


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
        ("agent._loop", False, "from creche.agent import Agent", "this very room"),
        ("agent._loop", False, "from creche.agent._inbox import Inbox", "this very room"),
        ("agent._loop", False, "from creche import Agent", "is the root"),
        ("agent._loop", False, "import creche", "is the root"),
        ("agent._loop", False, "from ..session import Log", "leaves the room"),
        ("agent._loop", False, "from .. import session", "leaves the room"),
        ("agent", True, "from ..session import Log", "leaves the room"),
        ("host", False, "from .agent import Agent", "leaves the room"),
        ("", True, "from .agent import Agent", "leaves the room"),
        ("models.adapters._openai", False, "from ...scope import ScopeKey", "leaves the room"),
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

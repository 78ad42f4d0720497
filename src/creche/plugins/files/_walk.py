"""The order in which a folder is walked, for listing and for searching.

Rule 1: paths come in the order of their code points, as whole strings: ``a``, ``a-b``, ``a/x``, ``a0``. That is not the
order of a walk that sorts each folder by name, so a folder is two steps: ``a``, which shows it, and ``a/``, which enters
it, and the steps of one folder are sorted together. A page begins anywhere in that order without a walk through what
comes before, and only the folders above the current path are in memory.

Rule 2: symlinks are shown, never followed. Version control, caches and virtual environments are neither shown nor entered.

Rule 3: what vanishes during the walk is not there; a folder that cannot be read is found as ``a/`` with its trouble.
"""

import os
from collections.abc import Iterator

from attrs import field, frozen

from .._paths import reason
from ._folder import Place, Workspace, cannot_read

SKIPPED = frozenset(
    {
        ".cache",
        ".git",
        ".hg",
        ".hypothesis",
        ".mypy_cache",
        ".nox",
        ".pytest_cache",
        ".ruff_cache",
        ".svn",
        ".tox",
        ".venv",
        "__pycache__",
        "node_modules",
    }
)
"""Names of folders a recursive walk leaves out. The folder it starts in may be one of them."""

ENVIRONMENT = "pyvenv.cfg"
"""What is in a virtual environment of Python, whatever its name (PEP 405); a recursive walk leaves these out as well."""


@frozen
class Found:
    """One path met on the walk."""

    path: str
    """Relative to the workspace, with ``/``; ends in ``/`` if it is a folder that could not be entered."""

    real: str = field(kw_only=True)
    """Absolute."""

    is_folder: bool = field(default=False, kw_only=True)
    """Whether it was a folder when the folder around it was read."""

    trouble: str = field(default="", kw_only=True)
    """Why the folder could not be entered."""


def walk(workspace: Workspace, place: Place, *, recursive: bool = True, since: str = "") -> Iterator[Found]:
    r"""Walk a folder in order, or meet one file alone.

    Args:
      workspace: Where ``place`` is.
      place: Where to start; it is not found itself if it is a folder.
      recursive: Enter folders.
      since: Leave out the paths before this one. ``path + "\0"`` leaves out ``path`` as well, as no path has a NUL.

    Raises:
      ToolFailed: the very folder it starts in cannot be read.
    """
    if not place.is_folder:
        if place.path >= since:
            yield Found(place.path, real=place.real)
        return
    prefix = "" if place.path == "." else f"{place.path}/"
    try:
        steps = _steps(prefix, place.real, recursive=recursive, since=since)
    except OSError as error:
        raise cannot_read(place.name, error) from error
    while steps:
        path, real, is_folder = steps.pop()
        if not path.endswith("/"):
            yield Found(path, real=real, is_folder=is_folder)
            continue
        workspace.check_cancelled()
        try:
            steps += _steps(path, real, recursive=True, since=since)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            if path >= since:
                yield Found(path, real=real, is_folder=True, trouble=reason(error))


def _steps(prefix: str, real: str, *, recursive: bool, since: str) -> list[tuple[str, str, bool]]:
    """Give the steps of one folder, the first one last: path, real path, and whether it is a folder."""
    steps: list[tuple[str, str, bool]] = []
    with os.scandir(real) as entries:
        for entry in entries:
            path = prefix + entry.name
            inside = f"{path}/"
            is_folder = _is_folder(entry)
            enter = recursive and is_folder
            if enter and (entry.name in SKIPPED or os.path.lexists(os.path.join(entry.path, ENVIRONMENT))):
                continue
            if path >= since:
                steps.append((path, entry.path, is_folder))
            if enter and (inside >= since or since.startswith(inside)):
                steps.append((inside, entry.path, True))
    steps.sort(reverse=True)
    return steps


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        # Only where the folder does not tell kinds, and the entry cannot be asked: shown, not entered.
        return False

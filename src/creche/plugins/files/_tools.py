"""The three tools, bound to one folder, and the plugin that brings them."""

import contextlib
import os

import trio

from creche.errors import PluginError
from creche.scope import Plugin
from creche.tools import Tool, tool

from ._folder import Workspace, quoted
from ._listing import list_entries
from ._read import read_lines
from ._search import grep_lines


def files(root: str | os.PathLike[str] = ".") -> Plugin:
    """Give tools that read one folder: ``read``, ``list`` and ``grep``.

    All three run in threads and may overlap. Cancelling one ends it at the next file or chunk of a file; it has
    nothing to take back.

    Args:
      root: The folder. What resolves outside of it, by ``..`` or by a symlink, is refused. A relative one is taken from the
        current folder at the time of this call.

    Raises:
      PluginError: it is not a folder.
    """
    workspace = Workspace(root, check_cancelled=_check_cancelled)
    if not os.path.isdir(workspace.root):
        raise PluginError(f"files: {quoted(workspace.root)} is not a folder")
    return Plugin("files", setup=[_read(workspace), _list(workspace), _grep(workspace)])


def _check_cancelled() -> None:
    # Raised in a thread that trio did not start, where there is nobody to cancel: a direct call of the function.
    with contextlib.suppress(RuntimeError):
        trio.from_thread.check_cancelled()


def _read(workspace: Workspace) -> Tool:
    @tool(name="read", parallel=True)
    def read_file(path: str, *, offset: int = 1, limit: int = 2000) -> str:
        """Read lines of a text file.

        Gives plain lines, 100 kB at most, and a last line in brackets if there are more. Binary files are refused.

        Args:
          path: The file, relative to the working folder.
          offset: Number of the first line to read, from 1.
          limit: How many lines to read at most.
        """
        return read_lines(workspace, path, offset=offset, limit=limit)

    return read_file


def _list(workspace: Workspace) -> Tool:
    @tool(name="list", parallel=True)
    def list_folder(path: str = ".", *, recursive: bool = True, limit: int = 500, after: str = "") -> str:
        """List a folder, sorted by path.

        One line an entry: the path as a JSON string, then `file N bytes N lines`, `file N bytes binary`, `dir`,
        `symlink`, `other` (a FIFO, socket or device), or `unreadable` and why. A last line in brackets says how many
        more there are. A recursive list leaves out folders named .cache, .git, .hg, .hypothesis, .mypy_cache, .nox,
        .pytest_cache, .ruff_cache, .svn, .tox, .venv, __pycache__ and node_modules, and does not follow symlinks.

        Args:
          path: The folder, relative to the working folder.
          recursive: Also list the folders inside it.
          limit: How many entries to give at most, up to 5000.
          after: Continue after this path; the last line of the previous page says which.
        """
        return list_entries(workspace, path, recursive=recursive, limit=limit, after=after)

    return list_folder


def _grep(workspace: Workspace) -> Tool:
    @tool(name="grep", parallel=True)
    def grep_files(
        pattern: str,
        path: str = ".",
        *,
        glob: str = "",
        ignore_case: bool = False,
        limit: int = 200,
        after: str = "",
    ) -> str:
        """Search text files for lines that match a regular expression.

        One line a match: the path as a JSON string, then `:LINE: ` and the text, cut to 300 characters. A last line in
        brackets says how many more there are. Binary files and the folders that a recursive list leaves out are not
        searched; of a line longer than 8 MiB the beginning is. Avoid expressions with nested repetition, such as (a+)+:
        they can take forever and cannot be interrupted.

        Args:
          pattern: A regular expression in Python's syntax, searched in each line by itself.
          path: The folder or file to search, relative to the working folder.
          glob: Search only files that fit: `*.py` at any depth, `src/**/*.py` from the working folder; no braces.
          ignore_case: Take upper and lower case for the same.
          limit: How many matches to give at most, up to 5000.
          after: Continue after this `path:line`; the last line of the previous page says which.
        """
        return grep_lines(workspace, pattern, path, glob=glob, ignore_case=ignore_case, limit=limit, after=after)

    return grep_files

"""The tools, bound to one folder, and the plugin that brings them."""

import contextlib
import os

import trio

from creche.errors import PluginError
from creche.prompt import AgentView
from creche.scope import Plugin
from creche.tools import Tool, ToolContext, tool

from .._paths import quoted
from ._edit import edit_text
from ._find import find_files
from ._folder import Workspace
from ._listing import list_entries
from ._read import read_lines
from ._readings import Readings, digest_of_file
from ._results import Results
from ._search import grep_lines
from ._write import write_text

PAGED = 10_000_000
"""Characters; the answers of these tools come in pages, so nothing of one has to be cut."""

WRITE_GUIDANCE = """\
write is for new files and for files that change from end to end. Anything less is an edit, which shows what changes and \
leaves the rest as it is."""

EDIT_GUIDANCE = """\
Look at the lines around a place before you edit it. After an edit that was refused, read again instead of guessing."""


def files(root: str | os.PathLike[str] = ".", *, write: bool = False) -> Plugin:
    """Give tools for the files of one folder: ``read``, ``list``, ``glob`` and ``grep``, and on request two that write.

    What a tool gives that is too long for the model is kept for as long as the plugin is mounted, in a folder of its own
    that ``read`` and ``grep`` can look into; see `creche.tools.ResultFolder`.

    The four run in threads and may overlap. Cancelling one ends it at the next file or chunk of a file; it has
    nothing to take back. What ``grep`` may take long to search for is searched by a process of its own, which ends with
    the call, and after ten seconds with a chunk of a file: no pattern holds up anything else.

    ``write`` and ``edit`` replace a file in one step. Cancelled at any moment, they leave the old file or the new one,
    whole, and no other. Two agents that change one file at once both have their edits in it, or one is told to read
    again. An agent writes over a file only if it has read what is in it. Another program that changes a file is noticed
    as well, unless it does so within the microseconds of that step. A file that is replaced keeps its mode; hard links
    to it keep the old content.

    Args:
      root: The folder. What resolves outside of it, by ``..`` or by a symlink, is refused. A relative one is taken from the
        current folder at the time of this call.
      write: Whether to bring ``write`` and ``edit``; without them nothing in the folder changes.

    Raises:
      PluginError: it is not a folder.
    """
    workspace = Workspace(root, check_cancelled=_check_cancelled)
    if not os.path.isdir(workspace.root):
        raise PluginError(f"files: {quoted(workspace.root)} is not a folder")
    readings = Readings() if write else None
    results = Results(_check_cancelled)
    tools = [_read(workspace, readings, results), _list(workspace), _glob(workspace), _grep(workspace, results)]
    if readings is not None:
        tools += [_write(workspace, readings), _edit(workspace, readings)]
    return Plugin("files", setup=[results.offer, *tools])


def _check_cancelled() -> None:
    # Raised in a thread that trio did not start, where there is nobody to cancel: a direct call of the function.
    with contextlib.suppress(RuntimeError):
        trio.from_thread.check_cancelled()


def _agent_of(context: ToolContext | None) -> AgentView | None:
    return None if context is None else context.agent


def _read(workspace: Workspace, readings: Readings | None, results: Results) -> Tool:
    @tool(name="read", parallel=True, longest_result=PAGED)
    def read_file(path: str, *, offset: int = 1, limit: int = 2000, context: ToolContext | None = None) -> str:
        """Read lines of a text file.

        Gives plain lines, 100 kB at most, and a last line in brackets if there are more. Binary files are refused.

        Args:
          path: The file, relative to the working folder.
          offset: Number of the first line to read, from 1.
          limit: How many lines to read at most.
          context: Who calls; the model does not see this.
        """
        agent, result = _agent_of(context), results.space_of(path)
        if readings is None or agent is None or result is not None:
            return read_lines(result or workspace, path, offset=offset, limit=limit)
        real = workspace.resolve(path).real
        digest = digest_of_file(real, workspace.check_cancelled)
        text = read_lines(workspace, path, offset=offset, limit=limit)
        readings.note(agent, real, digest)
        return text

    return read_file


def _list(workspace: Workspace) -> Tool:
    @tool(name="list", parallel=True, longest_result=PAGED)
    def list_folder(path: str = ".", *, recursive: bool = True, limit: int = 500, after: str = "") -> str:
        """List a folder, sorted by path.

        One line an entry: the path as a JSON string, then `file N bytes N lines`, `file N bytes binary`, `dir`,
        `symlink`, `other` (a FIFO, socket or device), or `unreadable` and why. A last line in brackets says how many
        more there are. A recursive list leaves out folders named .cache, .git, .hg, .hypothesis, .mypy_cache, .nox,
        .pytest_cache, .ruff_cache, .svn, .tox, .venv, __pycache__ and node_modules, and those with a pyvenv.cfg in
        them, and does not follow symlinks.

        Args:
          path: The folder, relative to the working folder.
          recursive: Also list the folders inside it.
          limit: How many entries to give at most, up to 5000.
          after: Continue after this path; the last line of the previous page says which.
        """
        return list_entries(workspace, path, recursive=recursive, limit=limit, after=after)

    return list_folder


def _glob(workspace: Workspace) -> Tool:
    @tool(name="glob", parallel=True, longest_result=PAGED)
    def glob_files(pattern: str, path: str = ".", *, limit: int = 500, after: str = "") -> str:
        """Find files by their paths, sorted by path.

        One path a line, as a JSON string, relative to the working folder; folders are not found. A last line in brackets
        says how many more there are. The folders that a recursive list leaves out are not looked in.

        Args:
          pattern: What fits: `*.py` at any depth below `path`, `src/**/*.{c,h}` from there.
          path: The folder to look in, relative to the working folder.
          limit: How many paths to give at most, up to 5000.
          after: Continue after this path; the last line of the previous page says which.
        """
        return find_files(workspace, pattern, path, limit=limit, after=after)

    return glob_files


def _grep(workspace: Workspace, results: Results) -> Tool:
    @tool(name="grep", parallel=True, longest_result=PAGED)
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
        they take too long, and are ended after some seconds.

        Args:
          pattern: A regular expression in Python's syntax, searched in each line by itself.
          path: The folder or file to search, relative to the working folder.
          glob: Search only files that fit: `*.py` at any depth, `src/**/*.{c,h}` from the working folder.
          ignore_case: Take upper and lower case for the same.
          limit: How many matches to give at most, up to 5000.
          after: Continue after this `path:line`; the last line of the previous page says which.
        """
        space = results.space_of(path) or workspace
        return grep_lines(space, pattern, path, glob=glob, ignore_case=ignore_case, limit=limit, after=after)

    return grep_files


def _write(workspace: Workspace, readings: Readings) -> Tool:
    @tool(name="write", guidance=WRITE_GUIDANCE)
    def write_file(path: str, content: str, *, context: ToolContext | None = None) -> str:
        """Make a text the whole content of a file.

        Makes the file, and the folders above it, if they are not there. A file that is there has to be read first.

        Args:
          path: The file, relative to the working folder.
          content: All that is in the file afterwards, exactly.
          context: Who calls; the model does not see this.
        """
        return write_text(workspace, path, content, readings=readings, agent=_agent_of(context))

    return write_file


def _edit(workspace: Workspace, readings: Readings) -> Tool:
    @tool(name="edit", guidance=EDIT_GUIDANCE)
    def edit_file(
        path: str, old: str, new: str, *, replace_all: bool = False, context: ToolContext | None = None
    ) -> str:
        """Replace a text in a file.

        The text must be there exactly once, or it is said where it is. Line ends are kept as they are in the file.

        Args:
          path: The file, relative to the working folder.
          old: The text that is there, exactly, with its white space; it may be several lines.
          new: The text that takes its place; nothing, to remove it.
          replace_all: Replace it everywhere instead.
          context: Who calls; the model does not see this.
        """
        return edit_text(
            workspace, path, old, new, replace_all=replace_all, readings=readings, agent=_agent_of(context)
        )

    return edit_file

"""The ``list`` tool without the tool: one line an entry.

::

    "docs" dir
    "docs/notes.md" file 812 bytes 31 lines
    "logo.png" file 20311 bytes binary
    "latest" symlink
    "run/socket" other
    "private/" unreadable Permission denied
    [42 more; continue with after="private/"]

A line is a path, as `quoted` shows it, then words between single spaces: the kind; for a file its size, and its number
of lines, ``binary`` or ``unreadable``. The numbers are plain and the words never in the singular, so that a program can
read them. Only files have a size: that of a folder or a symlink says nothing. A line that starts with ``[`` is about
the page.
"""

import os
import stat

from .._paths import quoted, reason
from ._folder import Workspace
from ._page import continuation, counted, page_size
from ._text import count_lines, is_binary, open_regular
from ._walk import Found, walk


def list_entries(
    workspace: Workspace, path: str = ".", *, recursive: bool = True, limit: int = 500, after: str = ""
) -> str:
    """Give one page of the entries of a folder, in the order of their paths' code points.

    Args:
      workspace: The folder everything is relative to.
      path: A folder; anything else is listed alone.
      recursive: List the folders inside as well, without caches, virtual environments and version control.
      limit: Entries on the page.
      after: The last path of the page before.

    Raises:
      ToolFailed: no such path, or an argument that makes no sense.
    """
    limit = page_size(limit)
    since = f"{workspace.decoded(after)}\0" if after else ""
    found = walk(workspace, workspace.resolve(path), recursive=recursive, since=since)
    lines: list[str] = []
    last = after
    for entry in found:
        line = _line(workspace, entry)
        if line:
            lines.append(line)
            last = entry.path
        if len(lines) == limit:
            break
    more = counted(found)
    if more:
        lines.append(continuation(more, last))
    return "\n".join(lines) or ("[no more entries]" if after else "[no entries]")


def _line(workspace: Workspace, entry: Found) -> str:
    """Describe one entry; give nothing if it has vanished."""
    name = quoted(entry.path)
    if entry.trouble:
        return f"{name} unreadable {entry.trouble}"
    try:
        return f"{name} {_kind(workspace, entry)}"
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return f"{name} unreadable {reason(error)}"


def _kind(workspace: Workspace, entry: Found) -> str:
    if entry.is_folder:
        return "dir"
    status = os.lstat(entry.real)
    if stat.S_ISREG(status.st_mode):
        return f"file {status.st_size} bytes {_content(workspace, entry.real)}"
    return {stat.S_IFDIR: "dir", stat.S_IFLNK: "symlink"}.get(stat.S_IFMT(status.st_mode), "other")


def _content(workspace: Workspace, real: str) -> str:
    """Say what is in a regular file."""
    try:
        file = open_regular(real)
        if file is None:
            return "unreadable"
        with file:
            return "binary" if is_binary(file) else f"{count_lines(file, workspace.check_cancelled)} lines"
    except OSError:
        return "unreadable"

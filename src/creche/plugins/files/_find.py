"""The ``glob`` tool without the tool: one path a line, as `quoted` shows it.

::

    "src/app.py"
    "src/private/" unreadable Permission denied
    [42 more; continue with after="src/private/"]

Only what is no folder is found, in the order of the paths' code points; a folder that cannot be read is a line as in a
listing. A line that starts with ``[`` is about the page.
"""

from itertools import islice

from creche.errors import ToolFailed

from .._paths import quoted
from ._folder import Workspace
from ._glob import fits
from ._page import continuation, counted, page_size
from ._walk import Found, walk


def find_files(workspace: Workspace, pattern: str, path: str = ".", *, limit: int = 500, after: str = "") -> str:
    """Give one page of the files whose paths fit a glob.

    Args:
      workspace: The folder everything is relative to.
      pattern: A glob (see `_glob`); one with a slash is about the path from the folder that is looked in.
      path: The folder to look in, with the folders inside but not caches, virtual environments and version control.
      limit: Paths on the page.
      after: The last path of the page before.

    Raises:
      ToolFailed: no such folder, or an argument that makes no sense.
    """
    limit = page_size(limit)
    if not pattern:
        raise ToolFailed("the pattern is empty; * finds every file")
    place = workspace.resolve(path)
    if not place.is_folder:
        raise ToolFailed(f"{place.name} is not a folder, and glob looks in one")
    start = 0 if place.path == "." else len(place.path) + 1
    since = f"{workspace.decoded(after)}\0" if after else ""
    found = (
        entry
        for entry in walk(workspace, place, since=since)
        if entry.trouble or (not entry.is_folder and fits(entry.path[start:], pattern))
    )
    page = list(islice(found, limit))
    lines = [_line(entry) for entry in page]
    more = counted(found)
    if more:
        lines.append(continuation(more, page[-1].path))
    return "\n".join(lines) or ("[no more files]" if after else "[no files]")


def _line(entry: Found) -> str:
    name = quoted(entry.path)
    return f"{name} unreadable {entry.trouble}" if entry.trouble else name

r"""The ``grep`` tool without the tool: one line a matching line.

::

    "src/app.py":12: # TODO: say why
    "private/" unreadable Permission denied
    [7 more; continue with after="src/app.py:12"]

A match is a path, as `quoted` shows it, ``:``, the number of the line, ``: `` and its text. What could not be searched
is a line as in a listing. A line that starts with ``[`` is about the page. The order is that of the paths' code points,
then of the lines.

A regular expression that takes long, such as ``(a+)+$``, is ended after some seconds, and delays nobody else (see
`_matcher`).
"""

import re
from collections.abc import Iterator
from itertools import islice

from attrs import field, frozen

from creche.errors import ToolFailed

from .._paths import quoted, reason
from ._folder import Workspace
from ._glob import fits
from ._matcher import Matcher, open_matcher
from ._page import continuation, page_size
from ._text import batches, is_binary, open_regular
from ._walk import Found, walk

WIDTH = 300
"""Characters of a line that are shown."""

LONGEST_PATTERN = 1000
"""Characters of a pattern: `re` takes long to read one with thousands of classes, too."""


@frozen
class Hit:
    """A line that matches, or something that could not be searched."""

    path: str
    """Relative to the workspace."""

    line: int = field(kw_only=True)
    """Number of the line, from 1; 0 if this could not be searched."""

    text: str = field(kw_only=True)
    """The line, cut; or why it could not be searched."""

    def __str__(self) -> str:
        """Show it as a line of the answer."""
        name = quoted(self.path)
        return f"{name}:{self.line}: {self.text}" if self.line else f"{name} unreadable {self.text}"


def grep_lines(
    workspace: Workspace,
    pattern: str,
    path: str = ".",
    *,
    glob: str = "",
    ignore_case: bool = False,
    limit: int = 200,
    after: str = "",
) -> str:
    """Give one page of the lines that match a regular expression.

    Args:
      workspace: The folder everything is relative to.
      pattern: A regular expression of Python's `re`, searched in each line by itself.
      path: A folder, searched with the folders inside but not caches, virtual environments and version control; or one
        file.
      glob: Search only files whose path fits (see `_glob`).
      ignore_case: Take upper and lower case for the same.
      limit: Matching lines on the page.
      after: ``path:line`` of the last line of the page before.

    Raises:
      ToolFailed: no such path, an argument that makes no sense, or a pattern that takes too long.
    """
    limit = page_size(limit)
    regex = _compiled(pattern, ignore_case=ignore_case)
    place = workspace.resolve(path)
    if not (place.is_folder or place.is_file):
        raise ToolFailed(f"{place.name} is not a regular file, and only those are opened")
    begin = _position(workspace, after)
    found = walk(workspace, place, since=begin[0])
    with open_matcher(regex, workspace.check_cancelled) as matcher:
        hits = (
            hit
            for entry in found
            if entry.trouble or fits(entry.path, glob)
            for hit in _hits(workspace, entry, matcher)
            if (hit.path, hit.line) > begin
        )
        page = _page(hits, limit)
    return page or ("[no more matches]" if after else "[no matches]")


def _page(hits: Iterator[Hit], limit: int) -> str:
    """Show the first hits, and count the matches behind them; give nothing if there are none."""
    page = list(islice(hits, limit))
    lines = [str(hit) for hit in page]
    left = [hit.line > 0 for hit in hits]
    if left:
        lines.append(continuation(str(sum(left)), f"{page[-1].path}:{page[-1].line}"))
    return "\n".join(lines)


def _compiled(pattern: str, *, ignore_case: bool) -> re.Pattern[str]:
    if len(pattern) > LONGEST_PATTERN:
        raise ToolFailed(
            f"the pattern cannot be used: it has {len(pattern)} characters, {LONGEST_PATTERN} are the most"
        )
    try:
        return re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    except re.error as error:
        where = "" if error.pos is None else f" at position {error.pos}"
        raise ToolFailed(f"the pattern is no regular expression: {error.msg}{where}") from error
    except (RecursionError, OverflowError, FutureWarning) as error:
        # The warning, of a notation that may change its meaning, comes here only where warnings are errors.
        raise ToolFailed(f"the pattern cannot be used: {error}") from error


def _position(workspace: Workspace, after: str) -> tuple[str, int]:
    """Read ``path:line``."""
    if not after:
        return "", 0
    path, colon, line = after.rpartition(":")
    if not colon or not re.fullmatch("[0-9]{1,18}", line):
        raise ToolFailed(f"after is {quoted(after)}, which is not of the form path:line")
    return workspace.decoded(path), int(line)


def _hits(workspace: Workspace, entry: Found, matcher: Matcher) -> Iterator[Hit]:
    if entry.trouble:
        yield Hit(entry.path, line=0, text=entry.trouble)
    if entry.is_folder:
        return
    try:
        file = open_regular(entry.real)
        if file is None:
            return
        with file:
            if is_binary(file):
                return
            first = 1
            for batch in batches(file, workspace.check_cancelled):
                for index, start in matcher.find(batch, entry.path):
                    yield Hit(entry.path, line=first + index, text=_excerpt(batch[index], start))
                first += len(batch)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        yield Hit(entry.path, line=0, text=reason(error))


def _excerpt(text: str, start: int) -> str:
    """Cut a line to what is shown, so that the start of the match is in it."""
    if len(text) <= WIDTH:
        return text
    begin = max(0, min(start - WIDTH // 3, len(text) - WIDTH))
    cut = text[begin : begin + WIDTH]
    if begin:
        cut = "…" + cut[1:]
    return cut if begin + WIDTH == len(text) else cut[:-1] + "…"

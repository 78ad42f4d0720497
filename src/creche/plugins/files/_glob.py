"""Which paths fit a glob.

``*`` is any text without ``/``, ``?`` one character, ``[abc]`` one of some, ``{a,b}`` one of several texts, ``**`` between
slashes any number of folders. A glob without a slash is about the last part of the path, so ``*.py`` fits at any depth;
one with a slash is about the whole path. (`glob.translate` would do without the braces, and is new in Python 3.13.)
"""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import islice

from creche.errors import ToolFailed

MOST_ALTERNATIVES = 200
"""Globs that the braces of one may stand for."""

LONGEST_GLOB = 4096
"""Characters of a glob: as many as a path may have bytes."""

_BRACES = re.compile(r"\{([^{},]*+,[^{}]*+)\}")


def fits(path: str, glob: str) -> bool:
    """Say whether a relative path with ``/`` fits; an empty glob fits everything.

    Raises:
      ToolFailed: it is too long, or its braces stand for more globs than anybody would write out.
    """
    return not glob or any(_fits_one(path, each) for each in _alternatives(glob))


@lru_cache(maxsize=16)
def _alternatives(glob: str) -> tuple[str, ...]:
    """Give the globs without braces that a glob stands for. Braces without a comma are themselves, as in a shell."""
    if len(glob) > LONGEST_GLOB:
        raise ToolFailed(f"the glob has {len(glob)} characters, {LONGEST_GLOB} are the most")
    found = tuple(islice(_expanded(glob), MOST_ALTERNATIVES + 1))
    if len(found) > MOST_ALTERNATIVES:
        raise ToolFailed(f"the braces of the glob stand for more than {MOST_ALTERNATIVES} globs; write a plainer one")
    return found


def _expanded(glob: str) -> Iterator[str]:
    pending = [glob]
    while pending:
        each = pending.pop()
        braces = _BRACES.search(each)  # the innermost pair, the first of them
        if braces is None:
            yield each
        else:
            words = braces[1].split(",")
            pending += [f"{each[: braces.start()]}{word}{each[braces.end() :]}" for word in reversed(words)]


def _fits_one(path: str, glob: str) -> bool:
    if "/" not in glob:
        return fnmatchcase(path.rpartition("/")[2], glob)
    parts = path.split("/")
    ends = {0}  # how many parts the beginning of the glob can stand for: no backtracking, however many ** there are
    for wanted in glob.removeprefix("./").removeprefix("/").split("/"):
        if wanted == "**":
            ends = set(range(min(ends, default=len(parts) + 1), len(parts) + 1))
        else:
            ends = {end + 1 for end in ends if end < len(parts) and fnmatchcase(parts[end], wanted)}
    return len(parts) in ends

"""Which paths fit a glob.

``*`` is any text without ``/``, ``?`` one character, ``[abc]`` one of some, ``**`` between slashes any number of folders.
A glob without a slash is about the last part of the path, so ``*.py`` fits at any depth; one with a slash is about the
whole path. (`glob.translate` would do, and is new in Python 3.13.)
"""

from fnmatch import fnmatchcase


def fits(path: str, glob: str) -> bool:
    """Say whether a relative path with ``/`` fits; an empty glob fits everything."""
    if not glob:
        return True
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

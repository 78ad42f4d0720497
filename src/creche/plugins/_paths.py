r"""The one folder that a plugin's tools may see: what a path written by a model means, and how a path is shown to it.

Rule 1: a path is resolved, with all its symlinks, before anything is done with it, and what resolves outside the folder
is refused, whether it exists or not. This keeps a model in its folder; it is no sandbox against a process that swaps a
folder for a symlink between the check and the deed.

Rule 2: a path is shown as a JSON string in which every character that does not print is an escape. So a shown path
never breaks a line, is always valid UTF-8 (a byte of a name that is not UTF-8 shows as ``\udcXX``), and decodes to the
very name the operating system has. A path may be given back decoded or exactly as shown, quotes included.
"""

import json
import os

from creche.errors import ToolFailed

MAX_PATH = 4096
"""Bytes; what Linux takes. A longer path is refused before it is resolved, which takes a call for each of its parts."""

MAX_SHOWN = 200
"""Characters of a path in a message about a path that may be anything."""


def quoted(path: str) -> str:
    """Show a path as a JSON string that prints on one line."""
    text = json.dumps(path, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def unquoted(text: str) -> str | None:
    """Give the path that `quoted` shows as ``text``, or None if it is not such a text."""
    if not text.startswith('"'):
        return None
    try:
        path: object = json.loads(text)
    except ValueError:
        return None
    return path if isinstance(path, str) else None


def shortened(path: str) -> str:
    """Show a path that may be anything, in a message that should stay one sentence."""
    return quoted(path) if len(path) <= MAX_SHOWN else f"{quoted(path[:MAX_SHOWN])}..."


def reason(error: OSError) -> str:
    """Say in the operating system's words what went wrong."""
    return error.strerror or str(error)


def decoded_path(root: str, path: str) -> str:
    """Give the path meant by a text: as it is, or decoded if it is as `quoted` shows it and nothing has the name itself."""
    plain = unquoted(path)
    if plain is None or os.path.lexists(os.path.join(root, path)):
        return path
    return plain


def real_path(root: str, path: str) -> str:
    """Resolve a path, which need not exist, and make sure that it stays in the folder.

    Args:
      root: The folder; absolute, all symlinks resolved.
      path: Relative to it, or absolute and inside it.

    Returns:
      An absolute path; the part of it that exists has its symlinks resolved.

    Raises:
      ToolFailed: it is outside, or no path at all.
    """
    name = shortened(path)
    if "\0" in path:
        raise ToolFailed(f"{name} is not a path: it has a NUL character in it")
    try:
        length = len(os.fsencode(path))
    except UnicodeEncodeError:
        raise ToolFailed(f"{name} is not a path: it has a character in it that no file name can have") from None
    if length > MAX_PATH:
        raise ToolFailed(f"{name} is not a path: it has {length} bytes, {MAX_PATH} are the most")
    real = os.path.realpath(os.path.join(root, path))
    if real != root and not real.startswith(os.path.join(root, "")):
        raise ToolFailed(f"{name} is outside of the folder {quoted(root)}; give a path inside it")
    if os.path.realpath(real) != real:  # what comes after a symlink in a loop is left as it was, symlinks and all
        raise ToolFailed(f"{name} is not a path: a symlink in it leads back to itself")
    return real

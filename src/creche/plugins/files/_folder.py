r"""The one folder the file tools may see: what a path written by a model means, and how a path is shown to it.

Rule 1: a path is resolved, with all its symlinks, before anything is opened, and what resolves outside the folder is
refused. This keeps a model in its folder; it is no sandbox against a process that swaps a folder for a symlink between
the check and the opening.

Rule 2: a path is shown as a JSON string in which every character that does not print is an escape. So a shown path
never breaks a line, is always valid UTF-8 (a byte of a name that is not UTF-8 shows as ``\udcXX``), and decodes to the
very name the operating system has. A path may be given back decoded or exactly as shown, quotes included.
"""

import errno
import json
import os
import stat
from collections.abc import Callable

from attrs import field, frozen

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


def reason(error: OSError) -> str:
    """Say in the operating system's words what went wrong."""
    return error.strerror or str(error)


def cannot_read(name: str, error: OSError) -> ToolFailed:
    """Translate an error of the operating system into a sentence for the model."""
    if error.errno == errno.ENOENT:
        return ToolFailed(f"{name} does not exist")
    if error.errno == errno.ENOTDIR:
        return ToolFailed(f"{name} does not exist: a part of it is not a folder")
    return ToolFailed(f"{name} cannot be read: {reason(error)}")


@frozen
class Place:
    """Something that exists inside the folder."""

    path: str
    """Relative to the folder, with ``/``, all symlinks resolved; ``"."`` for the folder itself."""

    real: str = field(kw_only=True)
    """Absolute, all symlinks resolved."""

    mode: int = field(kw_only=True)
    """What ``lstat`` says it is."""

    @property
    def name(self) -> str:
        """The path as shown to the model."""
        return quoted(self.path)

    @property
    def is_folder(self) -> bool:
        """Whether it can be listed."""
        return stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        """Whether it may be opened: a FIFO, a socket or a device may not."""
        return stat.S_ISREG(self.mode)


def _real(path: str | os.PathLike[str]) -> str:
    return os.path.realpath(os.fspath(path))


def _no_check() -> None:
    """Let the work go on."""


@frozen
class Workspace:
    """The folder, and how work on it learns that nobody waits for it."""

    root: str = field(converter=_real)
    """Absolute, all symlinks resolved, when the value is made."""

    check_cancelled: Callable[[], None] = field(default=_no_check, kw_only=True)
    """Called between folders, files and chunks; what it raises ends the work."""

    def resolve(self, path: str) -> Place:
        """Find what a path written by a model stands for.

        Args:
          path: Relative to the root, or absolute and inside it; decoded, or as `quoted` shows it.

        Raises:
          ToolFailed: it is outside the root, does not exist, or is no path at all.
        """
        try:
            return self._locate(path)
        except ToolFailed:
            plain = unquoted(path)
            if plain is None:
                raise
            return self._locate(plain)

    def decoded(self, path: str) -> str:
        """Give the name meant by a path that need not exist: as it is, or decoded if it is as `quoted` shows it."""
        plain = unquoted(path)
        if plain is None or os.path.lexists(os.path.join(self.root, path)):
            return path
        return plain

    def _locate(self, path: str) -> Place:
        name = _shortened(path)
        if "\0" in path:
            raise ToolFailed(f"{name} is not a path: it has a NUL character in it")
        try:
            length = len(os.fsencode(path))
        except UnicodeEncodeError:
            raise ToolFailed(f"{name} is not a path: it has a character in it that no file name can have") from None
        if length > MAX_PATH:
            raise ToolFailed(f"{name} is not a path: it has {length} bytes, {MAX_PATH} are the most")
        real = os.path.realpath(os.path.join(self.root, path))
        if real != self.root and not real.startswith(os.path.join(self.root, "")):
            raise ToolFailed(f"{name} is outside of the folder {quoted(self.root)}; give a path inside it")
        try:
            mode = os.lstat(real).st_mode
        except OSError as error:
            raise cannot_read(name, error) from error
        return Place(os.path.relpath(real, self.root).replace(os.sep, "/"), real=real, mode=mode)


def _shortened(path: str) -> str:
    """Show a path that may be anything, in a message that should stay one sentence."""
    return quoted(path) if len(path) <= MAX_SHOWN else f"{quoted(path[:MAX_SHOWN])}..."

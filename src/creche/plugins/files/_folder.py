"""What a path written by a model stands for in the one folder that the file tools see (the rules are in `_paths`)."""

import errno
import os
import stat
from collections.abc import Callable

from attrs import field, frozen

from creche.errors import ToolFailed

from .._paths import decoded_path, quoted, real_path, reason, shortened, unquoted


def cannot_read(name: str, error: OSError) -> ToolFailed:
    """Translate an error of the operating system into a sentence for the model."""
    if error.errno == errno.ENOENT:
        return ToolFailed(f"{name} does not exist")
    if error.errno == errno.ENOTDIR:
        return ToolFailed(f"{name} does not exist: a part of it is not a folder")
    return ToolFailed(f"{name} cannot be read: {reason(error)}")


@frozen
class Place:
    """Something inside the folder, or a name that something new could have."""

    path: str
    """Relative to the folder, with ``/``, all symlinks resolved; ``"."`` for the folder itself."""

    real: str = field(kw_only=True)
    """Absolute, all symlinks resolved."""

    mode: int = field(kw_only=True)
    """What ``lstat`` says it is; 0 if there is nothing."""

    @property
    def name(self) -> str:
        """The path as shown to the model."""
        return quoted(self.path)

    @property
    def is_there(self) -> bool:
        """Whether it exists."""
        return self.mode != 0

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

    def resolve_new(self, path: str) -> Place:
        """Find what a path stands for that need not exist, nor the folders above it.

        Raises:
          ToolFailed: it is outside the root, or is no path at all.
        """
        plain = self.decoded(path)
        real = real_path(self.root, plain)
        try:
            return self._place(real, os.lstat(real).st_mode)
        except FileNotFoundError:
            return self._place(real, 0)
        except OSError as error:
            raise cannot_read(shortened(plain), error) from error

    def decoded(self, path: str) -> str:
        """Give the name meant by a path that need not exist: as it is, or decoded if it is as `quoted` shows it."""
        return decoded_path(self.root, path)

    def _locate(self, path: str) -> Place:
        real = real_path(self.root, path)
        try:
            return self._place(real, os.lstat(real).st_mode)
        except OSError as error:
            raise cannot_read(shortened(path), error) from error

    def _place(self, real: str, mode: int) -> Place:
        return Place(os.path.relpath(real, self.root).replace(os.sep, "/"), real=real, mode=mode)

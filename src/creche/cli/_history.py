"""What was typed into chats, over sessions: a file that its owner alone can read."""

import errno
import os
import stat
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

MOST_LINES = 2000
"""How many lines a chat begins with, the newest."""
LONGEST = 100_000
"""Characters of a line that is kept; over much longer ones the editor takes seconds."""


def open_history(file: Path, complain: Callable[[str], None]) -> History:
    """Return the history that is kept in a file.

    Args:
      file: The file; made if it is not there.
      complain: Told once, when it cannot be kept, why. The chat goes on without.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # such as a pipe, which would be read for ever
                raise OSError(errno.EINVAL, "it is no regular file")
            os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
    except OSError as error:
        complain(_problem(file, error))
        return InMemoryHistory()
    return _KeptHistory(file, complain)


class _KeptHistory(FileHistory):
    """A history whose file may go away: the first problem with it is told, and the chat goes on."""

    def __init__(self, file: Path, complain: Callable[[str], None]) -> None:
        super().__init__(file)
        self._file = file
        self._complain: Callable[[str], None] | None = complain

    def load_history_strings(self) -> Iterable[str]:
        try:
            lines = (line for line in super().load_history_strings() if len(line) <= LONGEST)
            return list(islice(lines, MOST_LINES))
        except OSError as error:
            self._tell(error)
            return []

    def append_string(self, string: str) -> None:
        if len(string) <= LONGEST:
            super().append_string(string)

    def store_string(self, string: str) -> None:
        try:
            super().store_string(string)
        except OSError as error:
            self._tell(error)

    def _tell(self, error: OSError) -> None:
        if self._complain is not None:
            self._complain(_problem(self._file, error))
            self._complain = None


def _problem(file: Path, error: OSError) -> str:
    return f"what is typed is not kept in {os.fspath(file)!r}: {error.strerror}"

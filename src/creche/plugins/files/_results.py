"""Results that were too long for the model: where they go, and how the tools of this room read them.

They lie in a folder of their own, outside of the one that is worked on, for as long as the plugin is mounted.
"""

import os
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from creche.scope import Registrar
from creche.tools import ResultFolder

from .._paths import unquoted
from ._folder import Workspace


class Results:
    """The folders of one plugin, one for each time it is mounted.

    Args:
      check_cancelled: As for a `Workspace`.
    """

    def __init__(self, check_cancelled: Callable[[], None]) -> None:
        self._check_cancelled = check_cancelled
        self._spaces: list[Workspace] = []

    @asynccontextmanager
    async def offer(self, registrar: Registrar) -> AsyncIterator[None]:
        """Offer a folder for the length of the block."""
        with tempfile.TemporaryDirectory(prefix="creche-results-", ignore_cleanup_errors=True) as folder:
            space = Workspace(folder, check_cancelled=self._check_cancelled)
            self._spaces.append(space)
            try:
                registrar.provide(ResultFolder(space.root))
                yield
            finally:
                self._spaces.remove(space)

    def space_of(self, path: str) -> Workspace | None:
        """Return the folder that an absolute path names a result in, given as it is or as it is shown."""
        plain = unquoted(path) or path
        for space in self._spaces:
            if plain.startswith(os.path.join(space.root, "")):
                return space
        return None

"""Which files an agent knows, so that it does not write over what it has not seen.

Rule 1: an agent knows a file if its content is the one that it has read, in part at least, or written itself. The content
is compared, by a digest, and not the times of the file: a file that was touched is known, one that was changed is not,
however quickly.

Rule 2: what is noted is the content before the reading. A change during the reading makes the file unknown.

Rule 3: only agents are watched; a program that calls a tool knows what it does. What an agent knows ends with it: when
its session is opened again, it reads again.
"""

import hashlib
import threading
from collections.abc import Callable
from weakref import WeakKeyDictionary

from creche.errors import ToolRetry
from creche.prompt import AgentView

from ._folder import Place
from ._store import LARGEST
from ._text import CHUNK, open_regular

MOST_KNOWN = 2000
"""Files an agent knows at most; beyond that the one that was noted first is forgotten, and has to be read again."""


def digest_of(content: bytes) -> bytes:
    """Give what a content is compared by."""
    return hashlib.blake2b(content, digest_size=16).digest()


def digest_of_file(real: str, check: Callable[[], None]) -> bytes | None:
    """Give what the content of a file is compared by; None if it is not one that could be written."""
    try:
        file = open_regular(real)
        if file is None:
            return None
        with file:
            digest, size = hashlib.blake2b(digest_size=16), 0
            while size <= LARGEST and (chunk := file.read(CHUNK)):
                check()
                digest.update(chunk)
                size += len(chunk)
    except OSError:
        return None
    return digest.digest() if size <= LARGEST else None


class Readings:
    """What every live agent knows of the files of one plugin."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[AgentView, dict[str, bytes]] = WeakKeyDictionary()
        self._lock = threading.Lock()  # noqa: TID251 - parallel reads of an agent are in several threads

    def note(self, agent: AgentView | None, real: str, digest: bytes | None) -> None:
        """Note that an agent has read or written a content."""
        if agent is None or digest is None:
            return
        with self._lock:
            known = self._known.setdefault(agent, {})
            known.pop(real, None)
            known[real] = digest
            if len(known) > MOST_KNOWN:
                del known[next(iter(known))]

    def knows(self, agent: AgentView | None, real: str, digest: bytes) -> bool:
        """Say whether the content is the one that the agent knows."""
        return agent is None or self._last(agent, real) == digest

    def check(self, agent: AgentView | None, place: Place, digest: bytes) -> None:
        """Refuse to let an agent write over a content that it does not know.

        Raises:
          ToolRetry: it has to read the file first, or again.
        """
        if self.knows(agent, place.real, digest):
            return
        if agent is not None and self._last(agent, place.real) is None:
            raise ToolRetry(f"{place.name} exists and you have not read it; read it before you write over it")
        raise ToolRetry(f"{place.name} has changed since you read it; read it again before you write over it")

    def _last(self, agent: AgentView, real: str) -> bytes | None:
        with self._lock:
            return self._known.get(agent, {}).get(real)

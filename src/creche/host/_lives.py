"""The tree of everything that has begun in a host and has not ended, and how a part of it ends.

Rule 1: nothing outlives what it was started under, not even while it is still being composed. Who ends takes
nothing more below it, cancels what is below and waits for it, and only then goes itself.
Rule 2: a name is taken from the first check of whoever has it until nothing of that one is left.
"""

import trio

from creche.agent import Agent
from creche.errors import AgentClosedError, DuplicateNameError, ScopeClosedError


class Life:
    """What has begun and has not ended, with all that was started under it. The host itself is the topmost."""

    __slots__ = ("_above", "_below", "_changed", "_ends", "_path", "_task", "agent", "cancel_scope")

    def __init__(self, path: str, above: "Life | None" = None) -> None:
        self.cancel_scope = trio.CancelScope()
        self.agent: Agent | None = None
        self._path = path
        self._above = above
        self._below: dict[str, Life] | None = None
        self._changed: trio.Event | None = None
        self._ends = False
        self._task = trio.lowlevel.current_task()

    def check_open(self, path: str) -> None:
        """Refuse to start anything once the end has begun."""
        if self.agent is None and self._ends:
            raise ScopeClosedError(f"the host closes, so agent {path!r} cannot be opened")
        if self.agent is not None and (self._ends or self.agent.is_closed):
            raise AgentClosedError(f"agent {self._path!r} does not run any more, so it cannot start agent {path!r}")

    def begin(self, path: str) -> "Life":
        """Begin something under it. Synchronous."""
        self.check_open(path)
        if self._below is None:
            self._below = {}
        if path in self._below:
            raise DuplicateNameError(
                f"an agent {path!r} is live already; give another name, or wait until that one has ended"
            )
        life = self._below[path] = Life(path, self)
        return life

    def end(self) -> None:
        """Note that nothing of it is left. Synchronous, idempotent."""
        above, self._above = self._above, None
        if above is not None:
            assert above._below is not None, "it was begun there"
            del above._below[self._path]
            if above._changed is not None:
                above._changed.set()

    def check_above(self) -> None:
        """Refuse to come to life once the end of what is above has begun."""
        assert self._above is not None, "the topmost does not begin under anything"
        self._above.check_open(self._path)

    @trio.lowlevel.enable_ki_protection
    async def end_below(self) -> None:
        """Take nothing more, cancel what is below, and wait for it. Called in a shield."""
        self._ends = True
        # Whoever holds something of this in a block that ends later would wait for itself. trio finds that out.
        task = trio.lowlevel.current_task()
        while below := [each for each in (self._below or {}).values() if each._task is not task]:
            for each in below:
                each.cancel_scope.cancel()
            self._changed = trio.Event()
            await self._changed.wait()

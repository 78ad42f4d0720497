"""A model that follows a script, one line of items an agent."""

from collections.abc import Callable, Iterable, Mapping
from typing import cast

import trio

from creche._util import final
from creche.errors import ScriptExhaustedError

from ._function import FunctionModel
from ._items import Answer, Item, as_items, ask
from ._model import PreparedCall
from ._request import ModelRequest, Settings

_WEIGHTS = {"**": (0, 0, -1), "*": (0, 1, 0)}
_Line = tuple[Callable[[ModelRequest], object] | tuple[Item, ...], ...]


@final
class ScriptedModel:
    """A model that says what its script has for the agent that asks.

    A pattern matches the path of an agent by segment: ``*`` is one segment, ``**`` any number; the most
    specific pattern wins (most literal segments, then most ``*``, then fewest ``**``; then the first in the
    script). Each agent has a cursor of its own, and each attempt takes one item.

    Args:
      script: From a pattern to its items: ``say(...)``, ``fail(...)``, a list of ``say`` and ``call``, or a
        function of the request, sync or async, that returns one of these.
      limit: How many requests may be under way at once; any number if absent.

    Raises:
      TypeError: The script holds something else.
    """

    def __init__(self, script: Mapping[str, Iterable[object]], *, limit: int | None = None) -> None:
        _check_script(script)
        self._script = {tuple(pattern.split("/")): _line(pattern, items) for pattern, items in script.items()}
        self._patterns = sorted(self._script, key=_specificity, reverse=True)
        self._cursors: dict[tuple[str, str], int] = {}
        self._inner = FunctionModel(self._next, provider="scripted", model="scripted", limit=limit)
        self.provider: str = self._inner.provider
        """``"scripted"``."""
        self.model: str = self._inner.model
        """``"scripted"``."""
        self.limiter: trio.CapacityLimiter | None = self._inner.limiter
        """How many requests may be under way at once."""

    async def prepare(self, settings: Settings, /) -> PreparedCall:
        """Return what the model claims; it never waits and never fails."""
        return await self._inner.prepare(settings)

    def stream(self, request: ModelRequest, /) -> Answer:
        """Open the answer: the next item of the script for the agent that asks."""
        return self._inner.stream(request)

    async def _next(self, request: ModelRequest) -> tuple[Item, ...]:
        path = request.agent_path
        items = self._items_for(path)
        agent = (request.session_id, path)
        cursor = self._cursors.get(agent, 0)
        if cursor >= len(items):
            raise ScriptExhaustedError(
                f"the script has {len(items)} item{'' if len(items) == 1 else 's'} for agent {path!r}, "
                f"which asks for number {cursor + 1}; last said to it: {request.last_user_text[:80]!r}",
                path=path,
            )
        self._cursors[agent] = cursor + 1
        item = items[cursor]
        return await ask(item, request, _nth(cursor, path)) if callable(item) else item

    def _items_for(self, path: str) -> _Line:
        segments = tuple(path.split("/"))
        for pattern in self._patterns:
            if _matches(pattern, segments):
                return self._script[pattern]
        patterns = ", ".join([repr("/".join(pattern)) for pattern in self._script])
        raise ScriptExhaustedError(
            f"no pattern of the script matches agent {path!r}; patterns: {patterns or '(none)'}", path=path
        )


def _check_script(script: object) -> None:
    if not isinstance(script, Mapping):
        raise TypeError(
            f"a script is a dict from paths of agents to lists of items, not {script!r}; write ScriptedModel({{'lead': [...]}})"
        )


def _line(pattern: str, items: object) -> _Line:
    if not isinstance(items, Iterable) or isinstance(items, (str, Mapping)):
        raise TypeError(f"the script for {pattern!r} is {items!r}; expected a list of items")
    line = enumerate(cast("Iterable[object]", items))
    return tuple([item if callable(item) else as_items(item, _nth(number, pattern)) for number, item in line])


def _nth(number: int, whom: str) -> str:
    return f"item {number + 1} of the script for {whom!r}"


def _specificity(pattern: tuple[str, ...]) -> tuple[int, int, int]:
    weights = [_WEIGHTS.get(segment, (1, 0, 0)) for segment in pattern]
    return sum(each[0] for each in weights), sum(each[1] for each in weights), sum(each[2] for each in weights)


def _matches(pattern: tuple[str, ...], segments: tuple[str, ...]) -> bool:
    if not pattern:
        return not segments
    if pattern[0] == "**":
        return any(_matches(pattern[1:], segments[skip:]) for skip in range(len(segments) + 1))
    return bool(segments) and pattern[0] in ("*", segments[0]) and _matches(pattern[1:], segments[1:])

"""A model that follows a script, one line of items an agent."""

from collections.abc import Mapping, Sequence

from creche._util import final
from creche.errors import ScriptExhaustedError

from .._request import ModelRequest
from ._function import FunctionModel

_WEIGHTS = {"**": (0, 0, -1), "*": (0, 1, 0)}


@final
class ScriptedModel:
    """A model that says what its script has for the agent that asks.

    A pattern matches the path of an agent by segment: ``*`` is one segment, ``**`` any number; the most
    specific pattern wins (most literal segments, then most ``*``). Each agent has a cursor of its own.

    Args:
      script: From a pattern to its items: ``say(...)``, ``fail(...)``, a list of ``say`` and ``call``, or a
        function of the request that returns one of these.
      limit: How many requests may be under way at once; any number if absent.
    """

    def __init__(self, script: Mapping[str, Sequence[object]], *, limit: int | None = None) -> None:
        self._script = {tuple(pattern.split("/")): tuple(items) for pattern, items in script.items()}
        self._patterns = sorted(self._script, key=_specificity, reverse=True)
        self._cursors: dict[str, int] = {}
        self._inner = FunctionModel(self._next, provider="scripted", model="scripted", limit=limit)
        self.provider = self._inner.provider
        """``"scripted"``."""
        self.model = self._inner.model
        """``"scripted"``."""
        self.limiter = self._inner.limiter
        """How many requests may be under way at once."""
        self.prepare = self._inner.prepare
        """As every model's."""
        self.stream = self._inner.stream
        """As every model's."""

    def _next(self, request: ModelRequest) -> object:
        items = self._items_for(request.agent_path)
        cursor = self._cursors.get(request.session_id, 0)
        if cursor >= len(items):
            raise ScriptExhaustedError(
                f"the script has {len(items)} item{'' if len(items) == 1 else 's'} for agent {request.agent_path!r}, "
                f"which asks for number {cursor + 1}; last said to it: {request.last_user_text[:80]!r}",
                path=request.agent_path,
            )
        self._cursors[request.session_id] = cursor + 1
        item = items[cursor]
        return item(request) if callable(item) else item

    def _items_for(self, path: str) -> tuple[object, ...]:
        segments = tuple(path.split("/"))
        for pattern in self._patterns:
            if _matches(pattern, segments):
                return self._script[pattern]
        patterns = ", ".join(repr("/".join(pattern)) for pattern in self._script)
        raise ScriptExhaustedError(f"no pattern of the script matches agent {path!r}; patterns: {patterns}", path=path)


def _specificity(pattern: tuple[str, ...]) -> tuple[int, int, int]:
    weights = [_WEIGHTS.get(segment, (1, 0, 0)) for segment in pattern]
    return sum(each[0] for each in weights), sum(each[1] for each in weights), sum(each[2] for each in weights)


def _matches(pattern: tuple[str, ...], segments: tuple[str, ...]) -> bool:
    if not pattern:
        return not segments
    if pattern[0] == "**":
        return any(_matches(pattern[1:], segments[skip:]) for skip in range(len(segments) + 1))
    return bool(segments) and pattern[0] in ("*", segments[0]) and _matches(pattern[1:], segments[1:])

"""What a fake model says: items, and the stream they make."""

from collections.abc import Iterable
from types import TracebackType

import attrs
import trio

from creche._util import canonical_json
from creche.errors import ModelError

from .._chunks import Chunk, Finished, TextDelta, ToolCallDelta
from .._failures import model_error
from .._request import ModelRequest, Usage


@attrs.frozen
class Say:
    """Some text of an answer."""

    pieces: tuple[str, ...]
    """The text, one delta a piece."""
    usage: Usage | None = attrs.field(default=None, kw_only=True)
    """What the answer is said to cost."""


@attrs.frozen
class Call:
    """A tool call of an answer."""

    name: str
    """Name of the tool."""
    arguments: str = attrs.field(kw_only=True)
    """The arguments as JSON text."""


@attrs.frozen
class Fail:
    """A failed attempt."""

    error: ModelError
    """What is raised, after what was said before it."""


Item = Say | Call | Fail


def say(*pieces: str, usage: Usage | None = None) -> Say:
    """Say a text, one delta a piece.

    Args:
      pieces: The text.
      usage: What the answer is said to cost; one request and no tokens if absent.
    """
    return Say(pieces, usage=usage)


def call(name: str, /, **arguments: object) -> Call:
    """Call a tool with these arguments."""
    return Call(name, arguments=canonical_json(arguments))


def fail(message: str = "the model failed", *, code: str = "server", retry_after: float | None = None) -> Fail:
    """Fail the attempt.

    Args:
      message: What the error says.
      code: A code of `creche.models.FAILURES`, which decides whether it is tried again.
      retry_after: Seconds the provider asks to wait.
    """
    return Fail(model_error(code, message, provider="scripted", retry_after=retry_after))


def as_items(answer: object, who: str) -> tuple[Item, ...]:
    """Return an answer as items.

    Raises:
      TypeError: It is neither an item nor a list of them.
    """
    items = (answer,) if isinstance(answer, Item) else answer
    if not isinstance(items, Iterable) or isinstance(items, str):
        raise TypeError(f"{who} gave {answer!r}; expected say(...), call(...), fail(...) or a list of them")
    items = tuple(items)
    for item in items:
        if not isinstance(item, Item):
            raise TypeError(f"{who} gave {item!r} in its list; expected say(...), call(...) or fail(...)")
    return items


class Answer:
    """The stream of some items: an async context manager and its own iterator. Waits once, at the start."""

    __slots__ = ("_chunks", "_error", "_request")

    def __init__(self, request: ModelRequest) -> None:
        self._request = request
        self._chunks: list[Chunk] = []
        self._error: ModelError | None = None

    async def items(self) -> tuple[Item, ...]:
        """Return what is to be said. Each fake model has its own."""
        raise NotImplementedError

    async def __aenter__(self) -> "Answer":
        await trio.lowlevel.checkpoint()
        self._chunks = self._stream_of(await self.items())
        self._chunks.reverse()
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._chunks = []

    def __aiter__(self) -> "Answer":
        return self

    async def __anext__(self) -> Chunk:
        if self._chunks:
            return self._chunks.pop()
        if self._error is not None:
            raise self._error
        raise StopAsyncIteration

    def _stream_of(self, items: tuple[Item, ...]) -> list[Chunk]:
        chunks: list[Chunk] = []
        usage = Usage(1)
        calls = 0
        for item in items:
            if isinstance(item, Say):
                chunks += [TextDelta(piece) for piece in item.pieces]
                usage = item.usage or usage
            elif isinstance(item, Call):
                # The length of the history makes the id unique in the session, and the same in every run.
                call_id = f"call-{len(self._request.messages)}-{calls}"
                chunks.append(ToolCallDelta(calls, id=call_id, name=item.name, arguments=item.arguments))
                calls += 1
            else:
                self._error = item.error
                return chunks
        chunks.append(Finished("tool-calls" if calls else "stop", usage=usage))
        return chunks

"""What a fake model says: items, and the stream they make."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Self, TypeGuard, cast

import attrs
import trio

from creche._util import canonical_json
from creche.errors import ModelError

from ._chunks import ONE_REQUEST, Chunk, Finished, FinishReason, TextDelta, ToolCallDelta
from ._failures import model_error
from ._request import ModelRequest, Usage


@attrs.frozen
class Say:
    """Some text of an answer."""

    pieces: tuple[str, ...]
    """The text, one delta a piece."""
    usage: Usage | None = attrs.field(default=None, kw_only=True)
    """What the answer is said to cost."""
    finish: FinishReason | None = attrs.field(default=None, kw_only=True)
    """Why the answer is said to end."""


@attrs.frozen
class Call:
    """A tool call of an answer."""

    name: str
    """Name of the tool."""
    arguments: str = attrs.field(kw_only=True)
    """The arguments as JSON text."""


@attrs.frozen
class Fail:
    """A failed attempt, after what was said before it."""

    message: str
    """What the error says."""
    code: str = attrs.field(default="server", kw_only=True)
    """A code of `creche.models.FAILURES`."""
    retry_after: float | None = attrs.field(default=None, kw_only=True)
    """Seconds the provider asks to wait."""

    def __attrs_post_init__(self) -> None:
        self.error("")  # refuses a code that there is not

    def error(self, provider: str) -> ModelError:
        """Return the error; another one each time, for an error that is raised remembers where."""
        return model_error(self.code, self.message, provider=provider, retry_after=self.retry_after)


Item = Say | Call | Fail
_ITEMS = (Say, Call, Fail)  # faster to ask about than the union


def say(*pieces: str, usage: Usage | None = None, finish: FinishReason | None = None) -> Say:
    """Say a text, one delta a piece.

    Args:
      pieces: The text.
      usage: What the answer is said to cost; one request and no tokens if absent.
      finish: Why the answer is said to end; because it is complete, or made calls, if absent.

    Raises:
      TypeError: A piece is no text.
    """
    for piece in pieces:
        _check_text(piece)
    return Say(pieces, usage=usage, finish=finish)


def _check_text(piece: object) -> None:
    if not isinstance(piece, str):
        raise TypeError(f"say() takes texts, not {piece!r}")


def call(name: str, /, **arguments: object) -> Call:
    """Call a tool with these arguments."""
    return Call(name, arguments=canonical_json(arguments))


def fail(message: str = "the model failed", *, code: str = "server", retry_after: float | None = None) -> Fail:
    """Fail the attempt.

    Args:
      message: What the error says.
      code: A code of `creche.models.FAILURES`, which decides whether it is tried again.
      retry_after: Seconds the provider asks to wait.

    Raises:
      ValueError: The table has no such code.
    """
    return Fail(message, code=code, retry_after=retry_after)


def as_items(answer: object, who: str) -> tuple[Item, ...]:
    """Return an answer as items.

    Raises:
      TypeError: It is neither an item nor a list of them.
    """
    if isinstance(answer, _ITEMS):
        return (answer,)
    if type(answer) is not list and (not isinstance(answer, Iterable) or isinstance(answer, (str, bytes, Mapping))):
        raise TypeError(f"{who} gave {answer!r}; expected say(...), call(...), fail(...) or a list of them")
    given = tuple(cast("Iterable[object]", answer))
    items = tuple([item for item in given if isinstance(item, _ITEMS)])
    if len(items) < len(given):
        wrong = [item for item in given if not isinstance(item, _ITEMS)]
        for item in wrong:
            if inspect.iscoroutine(item):
                item.close()  # else Python complains of it too, later and elsewhere
        raise TypeError(f"{who} gave {wrong[0]!r} in its list; expected say(...), call(...) or fail(...)")
    return items


async def ask(function: Callable[[ModelRequest], object], request: ModelRequest, who: str) -> tuple[Item, ...]:
    """Return what a function, sync or async, answers to a request.

    Raises:
      TypeError: It is neither an item nor a list of them.
    """
    answer = function(request)
    return as_items(await answer if _has_to_be_awaited(answer) else answer, who)


def _has_to_be_awaited(answer: object) -> TypeGuard[Awaitable[object]]:
    # A list is what most give, and asking an abstract class takes long.
    return type(answer) is not list and inspect.isawaitable(answer)


class Answer:
    """The stream of some items: an async context manager and its own iterator. Waits once, at the start."""

    __slots__ = ("_chunks", "_error", "_items", "_provider", "_request")

    def __init__(
        self,
        request: ModelRequest,
        items: Callable[[ModelRequest], Awaitable[tuple[Item, ...]]],
        provider: str,
    ) -> None:
        self._request = request
        self._items = items
        self._provider = provider
        self._chunks: list[Chunk] = []
        self._error: ModelError | None = None

    async def __aenter__(self) -> Self:
        await trio.lowlevel.checkpoint()
        self._chunks = self._stream_of(await self._items(self._request))
        self._chunks.reverse()
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._chunks = []
        self._error = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        if self._chunks:
            return self._chunks.pop()
        if self._error is not None:
            raise self._error
        raise StopAsyncIteration

    def _stream_of(self, items: tuple[Item, ...]) -> list[Chunk]:
        chunks: list[Chunk] = []
        usage = ONE_REQUEST
        finish: FinishReason | None = None
        calls = 0
        for item in items:
            if isinstance(item, Say):
                chunks += [TextDelta(piece) for piece in item.pieces]
                usage = item.usage or usage
                finish = item.finish or finish
            elif isinstance(item, Call):
                # The length of the history tells the ids of one step from those of another, alike in every run.
                call_id = f"call-{len(self._request.messages)}-{calls}"
                chunks.append(ToolCallDelta(calls, id=call_id, name=item.name, arguments=item.arguments))
                calls += 1
            else:
                self._error = item.error(self._provider)
                return chunks
        chunks.append(Finished(finish or ("tool-calls" if calls else "stop"), usage=usage))
        return chunks

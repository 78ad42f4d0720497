"""A model provider in the test's own program: a real HTTP server that says what a script tells it to."""

import inspect
import itertools
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, cast

import attrs
import trio

from creche._util import NoPublicConstructor, final, open_hidden_nursery
from creche.models import Call

from ._mock_items import MockAnswer, MockItem, MockRequest, Status, status
from ._mock_replies import MockReply, as_mock_items, error_reply, reply_with
from ._mock_wires import Spoken

if TYPE_CHECKING:
    from ._mock_http import Connection

_Items = tuple[MockItem, ...]
_Function = Callable[[MockRequest], object]
_Script = tuple[_Items, ...] | _Function
_PATHS = {"openai": "/chat/completions", "anthropic": "/v1/messages"}
# Both SDKs heed it: a mistake in the script shows at once, and not after their retries.
_NO_RETRY = {"x-should-retry": "false"}


@final
@attrs.define(eq=False, kw_only=True)
class MockProvider(metaclass=NoPublicConstructor):
    """A mock model provider that runs. Opened by `open_mock_provider`, ends with its block.

    An answer is under way from the moment at which its request is there, whole, to the one at which its last bytes
    are handed to the network; so a client that has read an answer to its end finds it gone from `streaming`.
    """

    openai_url: str = attrs.field(kw_only=False)
    """The base URL for clients of OpenAI's wire, such as ``"http://127.0.0.1:40123/v1"``."""
    anthropic_url: str
    """The base URL for clients of Anthropic's wire, such as ``"http://127.0.0.1:40123"``."""
    _script: _Script = attrs.field(alias="script", repr=False)
    requests: list[MockRequest] = attrs.field(factory=list[MockRequest], init=False, repr=False)
    """Every request so far, in order of arrival, those that were refused too."""
    streaming: int = attrs.field(default=0, init=False)
    """How many answers are under way."""
    most_streaming: int = attrs.field(default=0, init=False)
    """How many answers were under way at once, at most."""
    hung_up: int = attrs.field(default=0, init=False)
    """How many answers the client left before their end."""
    connections: int = attrs.field(default=0, init=False)
    """How many connections were opened so far."""
    _errors: list[Exception] = attrs.field(factory=list[Exception], init=False, repr=False)
    _asked: int = attrs.field(default=0, init=False, repr=False)
    _call_ids: Iterator[int] = attrs.field(factory=lambda: itertools.count(1), init=False, repr=False)
    _changed: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False, repr=False)

    async def wait_requests(self, count: int, /) -> None:
        """Wait until so many requests have come in all; at least one checkpoint. Their answers are then under way."""
        await trio.lowlevel.checkpoint()
        while len(self.requests) < count:
            await self._changed.park()

    async def wait_quiet(self) -> None:
        """Wait until no answer is under way; at least one checkpoint.

        After a client was cancelled, this is how a test waits for `hung_up` to know.
        """
        await trio.lowlevel.checkpoint()
        while self.streaming:
            await self._changed.park()

    async def _serve(self, connection: "Connection") -> None:
        """Answer the requests of a connection, one after the other."""
        self.connections += 1
        while (read := await connection.read()) is not None:
            method, request = read
            if not await self._answer(connection, method, request) or not connection.is_open:
                return

    async def _answer(self, connection: "Connection", method: str, request: MockRequest) -> bool:
        """Answer a request; return whether the answer came to its end."""
        self.requests.append(request)
        number = len(self.requests)
        asked, answer = self._take(method, request)  # before the first checkpoint: in order of arrival
        is_whole = False
        with _UnderWay(self) as under_way:
            async with open_hidden_nursery("an answer of a mock provider") as nursery:

                async def watch() -> None:
                    await connection.wait_left()
                    under_way.leave(nursery.cancel_scope)

                nursery.start_soon(watch)
                try:
                    reply = await self._reply(request, asked, answer, number)
                    is_whole = await connection.answer(reply, under_way.end)
                except trio.BrokenResourceError:
                    under_way.leave(nursery.cancel_scope)
        return is_whole

    def _take(self, method: str, request: MockRequest) -> tuple[Mapping[str, Any], _Items | _Function]:
        """Return the parsed body of a request, and its answer or what knows it."""
        path = request.path.partition("?")[0]
        if method != "POST" or not path.endswith(_PATHS[request.wire]):
            served = " and ".join(f"POST ...{each}" for each in _PATHS.values())
            return {}, (status(404, f"{method} {path} is not served here, but {served}"),)
        try:
            asked = request.json
        except ValueError:
            asked = None
        if not isinstance(asked, dict):
            return {}, (status(400, "the body is no JSON object"),)
        body = cast("Mapping[str, Any]", asked)
        if callable(self._script):
            return body, self._script
        self._asked += 1
        if self._asked > len(self._script):
            said = f"the script has answers for {len(self._script)} requests, and this is request {self._asked}"
            return body, (status(400, said, kind="script_exhausted", headers=_NO_RETRY),)
        return body, self._script[self._asked - 1]

    async def _reply(
        self, request: MockRequest, asked: Mapping[str, Any], answer: _Items | _Function, number: int
    ) -> MockReply:
        try:
            items = await self._ask(answer, request) if callable(answer) else answer
            call_ids = tuple([next(self._call_ids) for item in items if isinstance(item, Call)])
            return reply_with(Spoken(request.wire, asked=asked, number=number, items=items, call_ids=call_ids))
        except Exception as error:  # noqa: BLE001 - it comes out of the block of open_mock_provider
            self._errors.append(error)
            return error_reply(request.wire, self._failed(), number)

    async def _ask(self, function: _Function, request: MockRequest) -> _Items:
        # Once it has failed it is not asked again: a client that retries would only hear of the same mistake.
        if self._errors:
            return (self._failed(),)
        answer = function(request)
        if inspect.isawaitable(answer):
            answer = await answer
        return as_mock_items(answer, "what the script's function returned")

    def _failed(self) -> Status:
        return status(400, f"the script failed: {self._errors[0]!r}", kind="script_failed", headers=_NO_RETRY)

    def _raise_error(self) -> None:
        if self._errors:
            first, *others = self._errors
            for other in others:
                first.add_note(f"the script failed once more: {other!r}")
            now = sys.exception()
            if now is not None and not isinstance(now, Exception):
                now.add_note(f"the script of the mock provider failed: {first!r}")  # what cancels or interrupts goes on
                return
            raise first


@attrs.define(eq=False)
class _UnderWay:
    """Counts one answer while it is under way."""

    provider: MockProvider
    _is_over: bool = attrs.field(default=False, init=False)

    def __enter__(self) -> Self:
        provider = self.provider
        provider.streaming += 1
        provider.most_streaming = max(provider.most_streaming, provider.streaming)
        provider._changed.unpark_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self.provider.streaming -= 1
            self.provider._changed.unpark_all()

    def leave(self, cancel_scope: trio.CancelScope) -> None:
        if not self._is_over:
            self.provider.hung_up += 1
            self.end()
        cancel_scope.cancel()


@asynccontextmanager
async def open_mock_provider(
    script: Iterable[MockAnswer] | Callable[[MockRequest], MockAnswer | Awaitable[MockAnswer]], /
) -> AsyncIterator[MockProvider]:
    """Serve a mock model provider on 127.0.0.1 for the length of the block.

    A real HTTP server on a free port, which speaks OpenAI's chat completions and Anthropic's messages, streamed or
    whole as the request asks. Each delta is sent when it is written. Leaving the block ends every answer and closes
    every connection at once. It needs h11, which comes with the SDK of either.

    A virtual clock does not wait for sockets: under one, ``pause()`` may be over before a client has read what came
    before it.

    Args:
      script: Answers to requests in order of arrival, a finite list; a request beyond them is answered with status
        400 and an error of the type ``script_exhausted``. Or a function, sync or async, which is given each request.

        Contract: what the function raises comes out of the block when that ends, and replaces what the block
        raises; the request is answered with status 500, and so is every later one, without asking again. A client
        that leaves cancels it.

    Yields:
      The provider: where it listens, and what it was asked.

    Raises:
      TypeError: An answer is neither an item nor a list of them.
      ValueError: An answer has items that cannot stand together.
      ImportError: h11 is not installed.

    Example:
      An answer for any client::

          async with (
              open_mock_provider([say("Th", "ree.")]) as provider,
              openai.AsyncOpenAI(base_url=provider.openai_url, api_key="none") as client,
          ):
              answer = await client.chat.completions.create(
                  model="mock", messages=[{"role": "user", "content": "What is 1 + 2?"}]
              )
          assert answer.choices[0].message.content == "Three."
          assert provider.requests[0].json["model"] == "mock"
    """
    connection = _connection()
    checked = _checked(script)
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
    provider = MockProvider._create(f"{url}/v1", anthropic_url=url, script=checked)

    async def serve(stream: trio.SocketStream) -> None:
        await provider._serve(connection(stream))

    try:
        async with open_hidden_nursery("a mock provider") as nursery:
            await nursery.start(trio.serve_listeners, serve, listeners)
            yield provider
    finally:
        provider._raise_error()


def _connection() -> "type[Connection]":
    try:
        from ._mock_http import Connection
    except ModuleNotFoundError as error:
        if error.name != "h11":
            raise
        raise ImportError("the mock provider needs 'h11'; run: pip install 'creche[openai]'", name="h11") from error
    return Connection


def _checked(script: object) -> _Script:
    if callable(script):
        return cast("_Function", script)
    if not isinstance(script, Iterable) or isinstance(script, str | bytes | Mapping):
        raise TypeError(f"open_mock_provider() takes a list of answers or a function, not {script!r}; write [...]")
    answers = enumerate(cast("Iterable[object]", script), 1)
    return tuple([as_mock_items(answer, f"answer {number} of the script") for number, answer in answers])

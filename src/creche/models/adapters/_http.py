"""Streaming over HTTP with the official SDKs: one open client, one answer, and what can go wrong on the way.

The SDKs send the request and read the errors of the provider. The body is ours, already encoded, and so is the reading
of the stream: a delta costs a tenth of what the SDKs' own models of it cost.

Rule 1: an answer's connection is back in the pool or closed when its block has been left, also when it was cancelled.
Rule 2: no generator of the HTTP client is left unfinished. After the last event the body is read to its end; where
that does not come, or the answer is left early, the generators are ended by a cancellation.
Rule 3: whatever goes wrong is one `ModelError`. It names no key, and it has no cause: the SDK's own error holds the
request with its headers.
"""

import email.utils
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

import trio

from creche.errors import ModelError

from .._chunks import Chunk, Finished
from .._failures import failure_of_status, provider_error
from ._endpoint import Endpoint
from ._extras import import_extra
from ._reading import SHAPE_ERRORS, MakeError, describe_error

if TYPE_CHECKING:
    import httpx2

PATIENCE = 0.1
"""Seconds in which the body of an answer ends after its last event, or else the connection is closed."""
_LONGEST_EVENT = 64 * 1024 * 1024
_SHOWN = 300
_SHORTEST_KEY = 8  # what stands for a key where none is needed may be a common word


class Reader(Protocol):
    """Makes chunks of the events of one answer. It knows one wire and nothing of HTTP."""

    def feed(self, event: str, data: str) -> Iterable[Chunk]:
        """Return the chunks of one event; the last of an answer is `Finished`.

        Raises:
          ModelError: The event is an error, or nothing that the wire allows.
        """
        ...

    def end(self) -> Iterable[Chunk]:
        """Return what is left when the body has ended.

        Raises:
          ModelError: The answer is not complete.
        """
        ...


class Connection:
    """The client of an SDK, open while somebody has it open. It serves one run of trio at a time.

    Args:
      endpoint: Where it asks, with what key.
      make: Makes the client, given the SDK and the key.
    """

    def __init__(self, endpoint: Endpoint, make: Callable[[Any, str], Any]) -> None:
        self._endpoint = endpoint
        self._make = make
        self._sdk: Any = None
        self._client: Any = None
        self._key = ""
        self._users = 0

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Keep the client open for the length of the block; the last block to end closes it."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if not self._users and self._client is not None:
                client, self._client = self._client, None
                with trio.CancelScope(shield=True):  # closes idle sockets, and waits for nobody
                    await client.close()

    async def check(self) -> None:
        """See that a request could be made: the SDK is installed, there is a key.

        Raises:
          ConfigError: The SDK is not installed, or the address in the environment is none.
          ModelError: There is no key.
        """
        if self._sdk is None:
            sdk = self._endpoint.sdk
            self._sdk = await trio.to_thread.run_sync(import_extra, self._endpoint.provider, sdk, sdk)
        if self._client is None:
            self._key = self._endpoint.find_key()

    async def post(self, path: str, body: bytes) -> "httpx2.Response":
        """Send a request and return the response when its head is there.

        Raises:
          ModelError: There is no such response.
        """
        await self.check()
        sdk = self._sdk
        if self._client is None:
            self._client = self._make(sdk, self._key)
        try:
            stream = await self._client.post(
                path,
                cast_to=object,
                content=body,
                options={"headers": {"Content-Type": "application/json"}},
                stream=True,
                stream_cls=sdk.AsyncStream[object],
            )
        except sdk.APIStatusError as error:
            raise self._refused(error) from None
        except sdk.APITimeoutError:
            raise self.error("timeout", "no answer came in time") from None
        except sdk.APIConnectionError as error:
            raise self.error("transport", f"no connection: {error.__cause__ or error}") from None
        return cast("httpx2.Response", stream.response)

    def error(self, code: str, text: str, *, retry_after: float | None = None) -> ModelError:
        """Return an error that says who, what, and what to do about it, and names no key."""
        shown = " ".join(text.split())
        if len(self._key) >= _SHORTEST_KEY:
            shown = shown.replace(self._key, "***")
        if len(shown) > _SHOWN:
            shown = shown[:_SHOWN] + "..."
        if retry_after is not None:
            shown += f"; it asks to wait {retry_after:.3g} s"
        return provider_error(self._endpoint.provider, code, shown, retry_after=retry_after)

    def broken(self, error: Exception) -> ModelError:
        """Return what an error of the HTTP client in the middle of an answer means."""
        import httpx2

        if isinstance(error, httpx2.TimeoutException):
            return self.error("timeout", "the answer stopped coming")
        if isinstance(error, httpx2.SSEError | httpx2.DecodingError):
            return self.error("malformed", f"no event stream came: {error}")
        return self.error("stream-cut", f"the answer broke off: {error!r}")

    def _refused(self, error: Any) -> ModelError:
        kind, text = describe_error(error.body)
        text = text or error.response.text or error.response.reason_phrase
        status: int = error.status_code
        headers: Mapping[str, str] = error.response.headers
        request_id = headers.get("x-request-id") or headers.get("request-id")
        marks = f"HTTP {status}" + (f", request {request_id}" if request_id else "")
        code = failure_of_status(status, text, kind=kind)
        return self.error(code, f"{text} [{marks}]", retry_after=_retry_after(headers))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a response asks to wait: given in milliseconds, in seconds, or as a date."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        given = headers.get(name, "")
        try:
            return max(float(given) * unit, 0.0)
        except ValueError:
            pass  # absent, or a date
    date = email.utils.parsedate_tz(headers.get("retry-after", ""))
    try:
        return None if date is None else max(email.utils.mktime_tz(date) - time.time(), 0.0)
    except (OverflowError, ValueError):
        return None  # a date that no clock will show


class HttpAnswer:
    """The stream of one answer: an async context manager and its own iterator.

    Args:
      connection: Where to send it.
      path: Path of the endpoint.
      body: The request, encoded.
      reader: Makes chunks of the events.
    """

    __slots__ = (
        "_body",
        "_chunks",
        "_connection",
        "_events",
        "_is_finished",
        "_is_over",
        "_open",
        "_path",
        "_reader",
        "_response",
    )

    def __init__(self, connection: Connection, *, path: str, body: bytes, reader: Reader) -> None:
        self._connection = connection
        self._path = path
        self._body = body
        self._reader = reader
        self._chunks: deque[Chunk] = deque()
        self._is_finished = False
        self._is_over = False
        self._open: AbstractAsyncContextManager[None] = connection.opened()
        self._response: httpx2.Response | None = None
        self._events: AsyncIterator[Any] | None = None

    async def __aenter__(self) -> Self:
        import httpx2

        await self._open.__aenter__()
        try:
            self._response = await self._connection.post(self._path, self._body)
        except BaseException:
            await self._open.__aexit__(None, None, None)  # noqa: ASYNC102 - it is shielded inside
            raise
        self._events = aiter(httpx2.EventSource(self._response, max_event_size=_LONGEST_EVENT))
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._leave()
        finally:
            await self._open.__aexit__(None, None, None)  # noqa: ASYNC102 - it is shielded inside

    async def _leave(self) -> None:
        import httpx2

        assert self._events is not None, "it was entered"
        assert self._response is not None, "it was entered"
        try:
            with trio.CancelScope() as ending:
                ending.cancel()
                async for _ in self._events:
                    pass
        except httpx2.HTTPError:
            pass  # the answer is left, so nobody asks any more how it would have gone on
        finally:
            with trio.CancelScope(shield=True):  # gives the connection back or closes it, and waits for nobody
                await self._response.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        while not self._chunks:
            if self._is_over:
                raise StopAsyncIteration
            await (self._read_rest() if self._is_finished else self._read())
        return self._chunks.popleft()

    async def _read(self) -> None:
        import httpx2

        assert self._events is not None, "it was entered"
        try:
            event = await anext(self._events, None)
        except httpx2.HTTPError as error:
            raise self._connection.broken(error) from None
        self._is_over = event is None
        for chunk in read_event(self._reader, event, self._connection.error):
            self._chunks.append(chunk)
            self._is_finished = isinstance(chunk, Finished)

    async def _read_rest(self) -> None:
        import httpx2

        assert self._events is not None, "it was entered"
        self._is_over = True
        try:
            with trio.move_on_after(PATIENCE):
                async for _ in self._events:
                    pass
        except httpx2.HTTPError:
            pass  # the answer is complete, however its connection ends


def read_event(reader: Reader, event: "httpx2.ServerSentEvent | None", error: MakeError) -> tuple[Chunk, ...]:
    """Return the chunks of an event, or what is left at the end of the body.

    Raises:
      ModelError: Whatever is wrong with it.
    """
    try:
        return tuple(reader.end() if event is None else reader.feed(event.event, event.data))
    except SHAPE_ERRORS as wrong:
        what = "the end of the stream" if event is None else f"{event.data[:100]!r}"
        raise error("malformed", f"{what} is not what the protocol has ({wrong})") from None

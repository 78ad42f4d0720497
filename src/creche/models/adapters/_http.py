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
import functools
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

import trio

from creche.errors import CrecheError, ModelError

from .._chunks import Chunk, Finished
from .._failures import failure_of_status, provider_error
from ._endpoint import NO_KEY, Endpoint
from ._extras import import_extra
from ._reading import SHAPE_ERRORS, MakeError, describe_error

if TYPE_CHECKING:
    import ssl

    import httpx2

PATIENCE = 0.1
"""Seconds in which the body of an answer ends after its last event, or else the connection is closed."""
_LONGEST_EVENT = 64 * 1024 * 1024
_SHOWN = 300
_LOOKED_AT = 4096  # characters of what a provider says, for its meaning and for a key in it
_ERROR_BYTES = 65_536
_SHORTEST_KEY = (
    8  # characters; a shorter one is the placeholder of a local server, and taking it out would take words apart
)
_ERROR_SECONDS = 5.0
_FIRST_REDIRECT, _FIRST_ERROR = 300, 400
_KEPT_ALIVE = 100
_EVENTS_IN_A_ROW = 256  # of one piece of the body, before other tasks have their turn


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
      make: Makes the client, given the SDK, the key and the HTTP client that it is to use.
    """

    def __init__(self, endpoint: Endpoint, make: "Callable[[Any, str, httpx2.AsyncClient], Any]") -> None:
        self._endpoint = endpoint
        self._make = make
        self._sdk: Any = None
        self._clients: dict[str, Any] = {}
        """By key: one that is changed in the environment is used from the next request on."""
        self._users = 0

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Keep the client open for the length of the block; the last block to end closes it."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                clients, self._clients = self._clients, {}
                with trio.CancelScope(shield=True):  # closes idle sockets, and waits for nobody
                    for client in clients.values():
                        await client.close()

    async def check(self) -> str:
        """See that a request could be made, and return its key.

        Raises:
          ConfigError: The SDK is not installed, or the address in the environment is none.
          ModelError: There is no key.
        """
        if self._sdk is None:
            sdk = self._endpoint.sdk
            self._sdk = await trio.to_thread.run_sync(import_extra, self._endpoint.provider, sdk, sdk)
        return self._endpoint.find_key()

    async def post(self, path: str, body: bytes) -> "httpx2.Response":
        """Send a request and return the response when its head is there.

        Raises:
          ModelError: There is no such response.
        """
        key = await self.check()
        try:
            stream = await self._client(key).post(
                path,
                cast_to=object,
                content=body,
                options={"headers": {"Content-Type": "application/json", "Accept-Encoding": "identity"}},
                stream=True,
                stream_cls=self._sdk.AsyncStream[object],
            )
        except CrecheError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the SDK and what it stands on raise means no response
            failure = self._failure_of(error)
        else:
            return cast("httpx2.Response", stream.response)
        # Raised out here, so that the SDK's error, which holds the request with its headers, is not its context.
        raise failure

    def error(self, code: str, text: str, *, retry_after: float | None = None) -> ModelError:
        """Return an error that says who, what, and what to do about it, and names no key."""
        shown = " ".join(text[:_LOOKED_AT].split())
        for key in self._clients:
            if key != NO_KEY and len(key) >= _SHORTEST_KEY:
                shown = shown.replace(key, "***")
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
        if isinstance(error, httpx2.SSEError):
            return self.error("no-endpoint", f"no event stream came: {error}")
        if isinstance(error, httpx2.DecodingError):
            return self.error("malformed", f"the answer cannot be decoded: {error}")
        return self.error("stream-cut", f"the answer broke off: {error!r}")

    def _client(self, key: str) -> Any:
        import httpx2

        client = self._clients.get(key)
        if client is None:
            http = httpx2.AsyncClient(
                verify=_tls(),
                timeout=self._endpoint.timeout(),
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=_KEPT_ALIVE),
                follow_redirects=False,  # a conversation goes where it was sent, and nowhere else
                event_hooks={"response": [_refuse]},
            )
            client = self._clients[key] = self._make(self._sdk, key, http)
        return client

    def _failure_of(self, error: Exception) -> ModelError:
        if isinstance(error, self._sdk.APITimeoutError):
            return self.error("timeout", "no answer came in time")
        reason = error.__cause__ if isinstance(error, self._sdk.APIConnectionError) else error
        if isinstance(reason, _RefusedError):
            return self._refused(reason)
        if isinstance(error, self._sdk.APIConnectionError):
            return self.error("transport", f"no connection: {reason or error}")
        return self.error("invalid-request", f"the request cannot be made: {error!r}")

    def _refused(self, answer: "_RefusedError") -> ModelError:
        status, headers = answer.status, answer.headers
        request_id = headers.get("x-request-id") or headers.get("request-id")
        marks = f"HTTP {status}" + (f", request {request_id}" if request_id else "")
        if status < _FIRST_REDIRECT:
            return self.error(
                "malformed", f"the answer came compressed as {headers.get('content-encoding')!r}, unasked"
            )
        if status < _FIRST_ERROR:
            return self.error("no-endpoint", f"the endpoint has moved to {headers.get('location')!r} [{marks}]")
        kind, text = describe_error(answer.body)
        text = text or answer.text or answer.reason
        code = failure_of_status(status, text[:_LOOKED_AT], kind=kind)
        return self.error(code, f"{text[:_LOOKED_AT]} [{marks}]", retry_after=_retry_after(headers))


@functools.cache
def _tls() -> "ssl.SSLContext":
    """Return what all clients of the process trust; reading it takes longer than all else of a client."""
    import httpx2

    return httpx2.create_ssl_context()


class _RefusedError(Exception):
    """A response that is no answer, with as much of its body as came in a few seconds."""

    def __init__(self, response: "httpx2.Response", body: bytes) -> None:
        super().__init__(f"HTTP {response.status_code}")
        self.status: int = response.status_code
        self.reason: str = response.reason_phrase
        self.headers: Mapping[str, str] = response.headers
        self.text: str = body.decode("utf-8", "replace")
        self.body: object = None
        with suppress(ValueError, RecursionError):  # a page, most likely
            self.body = json.loads(self.text)


async def _refuse(response: "httpx2.Response") -> None:
    """Read the body of an error and raise it, here and not in the SDK, which reads it whole however long it is."""
    is_packed = response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity")
    if response.status_code < _FIRST_REDIRECT and not is_packed:
        response.encoding = "utf-8-sig"  # an event stream always is, with a mark at its beginning or without
        return
    body = bytearray()
    chunks = response.aiter_raw()
    with trio.CancelScope(deadline=trio.current_time() + _ERROR_SECONDS) as scope:
        async for chunk in _ended_well(chunks):
            body += chunk
            if len(body) > _ERROR_BYTES:
                scope.cancel()  # the generators end where they stand
    raise _RefusedError(response, bytes(body[:_ERROR_BYTES]))


async def _ended_well(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the chunks of a body; one that breaks off has ended."""
    import httpx2

    try:
        async for chunk in chunks:
            yield chunk
    except httpx2.HTTPError:
        pass


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
        "_count",
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
        self._count = 0
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
            await self._leave()  # noqa: ASYNC102 - it has a cancelled scope of its own, and is shielded inside
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
        self._count += 1
        if not self._count % _EVENTS_IN_A_ROW:
            await trio.lowlevel.checkpoint()
        try:
            event = await anext(self._events, None)
        except httpx2.HTTPError as error:
            failure = self._connection.broken(error)
        else:
            self._is_over = event is None
            for chunk in read_event(self._reader, event, self._connection.error):
                self._chunks.append(chunk)
                self._is_finished = isinstance(chunk, Finished)
            return
        raise failure

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
        what = "the end of the stream" if event is None else repr(event.data)
        raise error("malformed", f"this is not as the protocol has it ({wrong}): {what}") from None

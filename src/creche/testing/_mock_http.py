"""One connection to a mock provider: HTTP/1.1 on a trio stream. Imported on first use, for h11 comes with an extra.

Rule 1: what is handed over is sent at once, so that a client sees the first delta when it is written.
Rule 2: the end of a body goes out together with its last bytes. A client that knows the wire's own ending may
close right after it, and has not left early.
"""

from collections.abc import Callable, Iterable
from types import MappingProxyType

import attrs
import h11
import trio

from ._mock_items import Cut, MockRequest, Pause, Silent, Until, WireName
from ._mock_replies import MockReply

_RECEIVE_SIZE = 65536


@attrs.define(eq=False)
class Connection:
    """A client's connection."""

    _stream: trio.SocketStream = attrs.field(alias="stream")
    _protocol: h11.Connection = attrs.field(factory=lambda: h11.Connection(h11.SERVER), init=False)
    _method: str = attrs.field(default="", init=False)

    async def read(self) -> tuple[str, MockRequest] | None:
        """Wait for the next request, whole; return it with its method, or ``None`` if none comes any more."""
        try:
            if self._protocol.our_state is h11.DONE:
                self._protocol.start_next_cycle()
            event = await self._next_event()
            if not isinstance(event, h11.Request):
                return None
            body = bytearray()
            while isinstance(part := await self._next_event(), h11.Data):
                body += part.data
        except (trio.BrokenResourceError, h11.ProtocolError):
            return None  # the client left, or what it sends is no HTTP
        self._method = event.method.decode()
        return self._method, _request_of(event, bytes(body))

    async def _next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while (event := self._protocol.next_event()) is h11.NEED_DATA:
            if self._protocol.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            self._protocol.receive_data(await self._stream.receive_some(_RECEIVE_SIZE))
        return event

    async def wait_left(self) -> None:
        """Wait until the client closes the connection. What it sends in the meantime is kept for the next `read`."""
        try:
            while data := await self._stream.receive_some(_RECEIVE_SIZE):
                self._protocol.receive_data(data)
        except trio.BrokenResourceError:
            pass  # reset, which is a way to leave

    async def answer(self, reply: MockReply, when_over: Callable[[], None]) -> bool:
        """Send a reply, step by step; return whether it came to its end.

        Args:
          reply: What to send.
          when_over: Called before the last bytes are sent, or before the connection is to be closed instead.

        Raises:
          trio.BrokenResourceError: The client has left.
        """
        head: list[h11.Event] = [h11.Response(status_code=reply.code, headers=list(reply.headers))]
        step = next(reply.steps, b"")
        while True:
            if isinstance(step, bytes):
                following = next(reply.steps, None)
                data = [h11.Data(step)] if step and self._method != "HEAD" else []
                if following is None:
                    when_over()
                    await self._send(*head, *data, h11.EndOfMessage())
                    return True
                await self._send(*head, *data)
                head, step = [], following
            elif isinstance(step, Cut):
                when_over()
                return False
            else:
                await _wait(step)
                step = next(reply.steps, b"")

    async def _send(self, *events: h11.Event) -> None:
        await self._stream.send_all(b"".join(self._protocol.send(event) or b"" for event in events))

    @property
    def is_open(self) -> bool:
        """Whether another request may follow."""
        return self._protocol.our_state is h11.DONE


async def _wait(step: Pause | Until | Silent) -> None:
    if isinstance(step, Pause):
        await trio.sleep(step.seconds)
    elif isinstance(step, Until):
        await step.event.wait()
    else:
        await trio.sleep_forever()


def _request_of(event: h11.Request, body: bytes) -> MockRequest:
    path = event.target.decode("ascii", "replace")
    headers = _joined((name.decode("ascii"), value.decode("latin-1")) for name, value in event.headers)
    return MockRequest(_wire_of(path, headers), path=path, headers=MappingProxyType(headers), body=body)


def _joined(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    joined: dict[str, str] = {}
    for name, value in headers:
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined


def _wire_of(path: str, headers: dict[str, str]) -> WireName:
    is_anthropic = path.partition("?")[0].endswith("/v1/messages") or "anthropic-version" in headers
    return "anthropic" if is_anthropic else "openai"

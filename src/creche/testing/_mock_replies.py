"""From the items of an answer to what is sent for it, on either wire. Pure: nothing here waits or sends.

Rule 1: a status or a page is a whole answer; before it an answer may only wait.
Rule 2: nothing comes after an item that ends an answer early.
Rule 3: an answer starts on the wire with the first item that says something. So a fault or a wait before it
comes before the HTTP head.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import assert_never, cast

import attrs

from creche.models import Call, Say

from ._mock_items import (
    MOCK_ITEMS,
    Cut,
    Garbage,
    MockItem,
    Page,
    Pause,
    Raw,
    Silent,
    Status,
    Think,
    Unended,
    Until,
    WireName,
)
from ._mock_wires import Event, Spoken, Writer, json_bytes, writer_of

Step = bytes | Pause | Until | Silent | Cut
"""What to send, or what to do between two sends."""
Headers = tuple[tuple[str, str], ...]

_OPENAI_KINDS = {404: "invalid_request_error", 429: "rate_limit_exceeded"}
_ANTHROPIC_KINDS = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_FIRST_SERVER_STATUS = 500


@attrs.frozen
class MockReply:
    """What to send for an answer: the head, and the steps that make the body. The last step ends the body."""

    code: int
    """The HTTP status."""
    headers: Headers = attrs.field(kw_only=True)
    """The headers."""
    steps: Iterator[Step] = attrs.field(kw_only=True)
    """The steps; a `Cut` or a `Silent` is the last one."""


def as_mock_items(answer: object, who: str) -> tuple[MockItem, ...]:
    """Return an answer as items.

    Raises:
      TypeError: It is neither an item nor a list of them.
      ValueError: They cannot stand in one answer, or not in this order.
    """
    if isinstance(answer, MOCK_ITEMS):
        return (answer,)
    if not isinstance(answer, Iterable) or isinstance(answer, str | bytes | Mapping):
        raise TypeError(f"{who} is {answer!r}; expected say(...), status(...) or another item, or a list of them")
    items: list[MockItem] = []
    for item in cast("Iterable[object]", answer):
        if not isinstance(item, MOCK_ITEMS):
            raise TypeError(f"{who} has {item!r} in its list; expected say(...), status(...) or another item")
        items.append(item)
    for place, item in enumerate(items):
        name = type(item).__name__.lower()
        if isinstance(item, Status | Page) and not all(isinstance(each, Pause | Until) for each in items[:place]):
            raise ValueError(f"{who} has {name}(...) after something that is sent; it is a whole answer")
        if isinstance(item, Status | Page | Silent | Cut | Unended) and place + 1 < len(items):
            raise ValueError(f"{who} goes on after {name}(...), which ends it")
    return tuple(items)


def reply_with(spoken: Spoken) -> MockReply:
    """Return what to send for an answer.

    Raises:
      ValueError: A call whose arguments are no JSON is not streamed, and Anthropic's wire has no form for it.
    """
    last = spoken.items[-1] if spoken.items else None
    waits = [item for item in spoken.items if isinstance(item, Pause | Until)]
    if isinstance(last, Status):
        refusal = error_reply(spoken.wire, last, spoken.number)
        return attrs.evolve(refusal, steps=_in_order(waits, refusal.steps))
    if isinstance(last, Page):
        body = last.body.encode()
        headers = _headers(last.content_type, spoken.number, ("content-length", str(len(body))))
        return MockReply(last.code, headers=headers, steps=_in_order(waits, (body,)))
    if spoken.asked.get("stream"):
        headers = _headers("text/event-stream", spoken.number, ("cache-control", "no-cache"))
        return MockReply(200, headers=headers, steps=_streamed(writer_of(spoken), spoken.items))
    headers = _headers("application/json", spoken.number)
    return MockReply(200, headers=headers, steps=iter(_unstreamed(writer_of(spoken), spoken.items)))


def error_reply(wire: WireName, error: Status, number: int) -> MockReply:
    """Return what to send for an error."""
    code, kind = error.code, error.kind
    if wire == "openai":
        default = _OPENAI_KINDS.get(code, "server_error" if code >= _FIRST_SERVER_STATUS else "invalid_request_error")
        inside: Event = {"message": error.message, "type": kind or default, "param": None, "code": kind}
        body = json_bytes({"error": inside})
    else:
        default = _ANTHROPIC_KINDS.get(code, "api_error" if code >= _FIRST_SERVER_STATUS else "invalid_request_error")
        inside = {"type": kind or default, "message": error.message}
        body = json_bytes({"type": "error", "error": inside, "request_id": f"req_{number}"})
    headers = _headers("application/json", number, ("content-length", str(len(body))), *error.headers)
    return MockReply(code, headers=headers, steps=iter((body,)))


def _headers(content_type: str, number: int, *more: tuple[str, str]) -> Headers:
    # OpenAI names the request in the first of these headers, Anthropic in the second.
    return (("content-type", content_type), ("x-request-id", f"req_{number}"), ("request-id", f"req_{number}"), *more)


def _in_order(waits: Iterable[Step], rest: Iterable[Step]) -> Iterator[Step]:
    yield from waits
    yield from rest


def _streamed(writer: Writer, items: Sequence[MockItem]) -> Iterator[Step]:
    by_hand = any(isinstance(item, Raw) for item in items)
    started = by_hand
    for item in items:
        if isinstance(item, Say | Think | Call) and not started:
            started = True
            yield from writer.start()
        yield from _steps_of(writer, item)
    if by_hand or (items and isinstance(items[-1], Silent | Cut | Unended)):
        return
    if not started:
        yield from writer.start()
    yield from writer.end()


def _steps_of(writer: Writer, item: MockItem) -> Iterable[Step]:
    match item:
        case Say() | Think() | Call():
            return writer.say(item)
        case Garbage():
            return (item.data,)
        case Raw():
            return map(writer.raw, item.events)
        case Pause() | Until() | Silent() | Cut():
            return (item,)
        case Unended() | Status() | Page():
            return ()  # the latter two are no part of a stream, by rule 1
        case _:
            assert_never(item)


def _unstreamed(writer: Writer, items: Sequence[MockItem]) -> list[Step]:
    """Return the waits and the one body; of one that ends early half is sent, if anything was said before."""
    last = items[-1] if items else None
    ends_early = isinstance(last, Silent | Cut | Unended)
    body = b"".join(map(_raw_body, items))
    if not body and (not ends_early or any(isinstance(item, Say | Think | Call) for item in items)):
        body = json_bytes(writer.whole())
        if ends_early:
            body = body[: len(body) // 2]
    steps: list[Step] = [item for item in items if isinstance(item, Pause | Until)]
    if body:
        steps.append(body)
    if isinstance(last, Silent | Cut):
        steps.append(last)
    return steps


def _raw_body(item: MockItem) -> bytes:
    if isinstance(item, Garbage):
        return item.data
    events = item.events if isinstance(item, Raw) else ()
    return b"".join(event.encode() if isinstance(event, str) else json_bytes(event) for event in events)

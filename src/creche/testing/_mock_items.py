"""What a mock provider is asked, and what it can be told to answer.

`say` and `call` of `creche.models` are items too; the ones here are what only a wire has: faults, waits and raw bytes.
"""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast

import attrs
import trio

from creche._util import canonical_json
from creche.models import Call, Say

WireName = Literal["openai", "anthropic"]


@attrs.frozen
class MockRequest:
    """A request as a mock provider got it."""

    wire: WireName
    """Which wire it speaks, by its path; of a path that is not served, by its headers."""
    path: str = attrs.field(kw_only=True)
    """What it asked for, the query included."""
    headers: Mapping[str, str] = attrs.field(kw_only=True, repr=False, hash=False)
    """Its headers, names in lower case; what came several times is joined by commas."""
    body: bytes = attrs.field(kw_only=True, repr=False)
    """Its body, byte for byte."""

    @property
    def json(self) -> Any:
        """The body, parsed anew each time."""
        return json.loads(self.body)


@attrs.frozen
class Think:
    """Some reasoning of an answer."""

    pieces: tuple[str, ...]
    """The text, one delta a piece."""
    signature: str | None = attrs.field(default=None, kw_only=True)
    """What ends the reasoning on Anthropic's wire; the other one has no place for it."""


@attrs.frozen
class Status:
    """An error in the wire's own shape."""

    code: int
    """The HTTP status."""
    message: str = attrs.field(kw_only=True)
    """What it says."""
    kind: str | None = attrs.field(default=None, kw_only=True)
    """Its type; what the provider says with that status if absent."""
    headers: tuple[tuple[str, str], ...] = attrs.field(default=(), kw_only=True)
    """More headers."""


@attrs.frozen
class Page:
    """A body that is no answer of a model, such as a gateway's page of an error."""

    body: str
    """The text."""
    content_type: str = attrs.field(kw_only=True)
    """Its type."""
    code: int = attrs.field(kw_only=True)
    """The HTTP status."""


@attrs.frozen
class Silent:
    """Nothing more, and the connection stays open."""


@attrs.frozen
class Cut:
    """The end of the connection."""


@attrs.frozen
class Unended:
    """The end of the HTTP body, without the wire's own ending."""


@attrs.frozen
class Garbage:
    """Raw bytes."""

    data: bytes
    """The bytes."""


@attrs.frozen
class Raw:
    """Raw events."""

    events: tuple[Mapping[str, object] | str, ...] = attrs.field(hash=False)
    """Each the JSON of an event, or a text that stands where the JSON would."""


@attrs.frozen
class Pause:
    """A wait for some time."""

    seconds: float
    """How long."""


@attrs.frozen
class Until:
    """A wait for an event."""

    event: trio.Event
    """The event."""


MockItem = Say | Call | Think | Status | Page | Silent | Cut | Unended | Garbage | Raw | Pause | Until
"""A piece of an answer of a mock provider."""
MockAnswer = MockItem | Iterable[MockItem]
"""What a mock provider answers to one request: an item, or a list of them."""

MOCK_ITEMS = (
    Say,
    Call,
    Think,
    Status,
    Page,
    Silent,
    Cut,
    Unended,
    Garbage,
    Raw,
    Pause,
    Until,
)  # as type checkers see it
_ERROR_STATUSES = range(400, 600)
_STATUSES = range(200, 600)
_BODILESS = (204, 304)


def think(*pieces: str, signature: str | None = None) -> Think:
    """Think aloud, one delta a piece: ``reasoning_content`` on OpenAI's wire, a thinking block on Anthropic's.

    Args:
      pieces: The text.
      signature: What Anthropic's wire ends the block with.

    Raises:
      TypeError: A piece is no text.
    """
    for piece in pieces:
        _check_text(piece, "think()")
    return Think(pieces, signature=signature)


def status(
    code: int,
    message: str = "the mock provider refuses",
    *,
    retry_after: float | str | None = None,
    kind: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Status:
    """Answer with an HTTP status and an error in the wire's shape.

    Args:
      code: The status, from 400 to 599.
      message: What the error says.
      retry_after: The header of that name: seconds, or a date as text.
      kind: The error's type, on OpenAI's wire its code too; what the provider says with that status if absent.
      headers: More headers.

    Raises:
      ValueError: It is no status of an error.
    """
    if code not in _ERROR_STATUSES:
        raise ValueError(f"status() takes the status of an error, 400 to 599, not {code!r}; page() takes the others")
    more = dict(headers or {})
    if retry_after is not None:
        more["retry-after"] = str(retry_after)
    return Status(code, message=message, kind=kind, headers=tuple(more.items()))


def page(body: str, content_type: str = "text/html", code: int = 200) -> Page:
    """Answer with a body that is no answer of a model, as a gateway or a login page does.

    Args:
      body: The text.
      content_type: Its type.
      code: The HTTP status.

    Raises:
      ValueError: It is no status of an answer with a body.
    """
    if code not in _STATUSES or code in _BODILESS:
        raise ValueError(f"page() takes a status of 200 to 599 that has a body, not {code!r}")
    return Page(body, content_type=content_type, code=code)


def silent() -> Silent:
    """Send nothing more, and keep the connection open until the client leaves. First in an answer, not even a head."""
    return Silent()


def cut() -> Cut:
    """Close the connection here, in the middle of the HTTP body. First in an answer, before any head."""
    return Cut()


def unended() -> Unended:
    """End the HTTP body properly here, without what ends an answer on the wire."""
    return Unended()


def garbage(data: str | bytes) -> Garbage:
    """Put raw bytes into the stream here; in an answer that is not streamed they are the whole body."""
    return Garbage(data.encode() if isinstance(data, str) else data)


def raw(*events: Mapping[str, object] | str) -> Raw:
    """Send raw events.

    An answer with such an item writes nothing by itself: no start, no finish, no ``[DONE]``. Where the request
    does not ask for a stream, the events are the body, one after the other.

    Args:
      events: A mapping is sent as an event of the wire, on Anthropic's named by its ``type``; a text as the
        line of data that it is, such as ``"[DONE]"``.

    Raises:
      TypeError: An event is neither, or JSON has no form for what is in it.
    """
    for event in cast("tuple[object, ...]", events):
        if not isinstance(event, Mapping | str):
            raise TypeError(f"raw() takes mappings and texts, not {event!r}")
    canonical_json(events)  # refuses here what would fail in the middle of an answer
    return Raw(events)


def pause(seconds: float) -> Pause:
    """Wait for some seconds, a float, before the answer goes on.

    Raises:
      ValueError: It is less than zero, or not finite.
    """
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"pause() takes finite seconds from zero, not {seconds!r}; silent() waits for ever")
    return Pause(seconds)


def until(event: trio.Event) -> Until:
    """Wait for an event before the answer goes on.

    Raises:
      TypeError: It is no `trio.Event`.
    """
    if not isinstance(cast("object", event), trio.Event):
        raise TypeError(f"until() takes a trio.Event, not {event!r}")
    return Until(event)


def _check_text(piece: object, who: str) -> None:
    if not isinstance(piece, str):
        raise TypeError(f"{who} takes texts, not {piece!r}")

"""The wire form of a history that grows, which is added to instead of being made anew."""

from collections.abc import Callable
from typing import Protocol
from weakref import WeakKeyDictionary

import attrs

from creche.messages import Message

from .._request import ModelRequest


class Pieces(Protocol):
    """The messages of one history in their wire form, as far as they have come."""

    def add(self, message: Message, /) -> None:
        """Take the next message."""
        ...

    def pieces(self) -> list[bytes]:
        """Return the messages so far, see `piece`. More may be added afterwards."""
        ...


@attrs.define(eq=False)
class _Known:
    form: str
    messages: Pieces
    count: int = 0


class Histories:
    """The wire forms of the histories that an adapter is asked with, each kept for as long as its history lives.

    So a step costs what is new in it. A form is right because a history only grows: of two requests with one
    `ModelRequest.history`, the messages of the shorter begin those of the longer.
    """

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[object, _Known] = WeakKeyDictionary()

    def body(self, head: bytes, request: ModelRequest, form: str, make: Callable[[], Pieces]) -> bytes:
        """Return a body: a JSON object that begins with a head and ends with the messages.

        Args:
          head: The object without its closing brace.
          request: Whose messages they are.
          form: Name of their form, with everything that it depends on besides the messages.
          make: Begins a history without messages.
        """
        messages, history = request.messages, request.history
        known = None if history is None else self._known.get(history)
        if known is None or known.form != form or known.count > len(messages):
            known = _Known(form, make())
            if history is not None:
                self._known[history] = known
        while known.count < len(messages):
            known.messages.add(messages[known.count])
            known.count += 1
        first, *rest = known.messages.pieces() or [b","]
        return b"".join([head, b',"messages":[', first[1:], *rest, b"]}"])  # a long history is copied once

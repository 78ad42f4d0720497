"""What every wire needs: texts that a strict server takes, whatever stands in the history.

A history keeps what was said, also a call of a tool that there is not, with arguments that are no JSON. A server that
refused it would refuse every later request of the session as well. So what goes out is always well formed; what comes
back is told apart by the tools. All of it is a function of one message, so the bytes of a prefix stay what they are.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from typing import NoReturn, Protocol, cast
from weakref import WeakKeyDictionary

import attrs

from creche._util import canonical_json, clean_text, unfenced
from creche.messages import ImagePart, Message, Part, TextPart

from .._request import ModelRequest

NO_TEXT = "(no text)"
"""Stands for a message without text, which a strict server refuses."""
NO_OUTPUT = "(no output)"
"""Stands for a result without text."""

_LONGEST_NAME = 64
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_AN_ID = re.compile(r"[a-zA-Z0-9_-]+")
_HALF_A_PAIR = re.compile(r"\\u[dD][89a-fA-F]")


def wire_name(name: str) -> str:
    """Return the name of a tool as every server takes it: letters, digits, ``_`` and ``-``, at most 64."""
    return _NOT_IN_A_NAME.sub("_", name)[:_LONGEST_NAME] or "_"


def wire_id(call_id: str, longest: int) -> str:
    """Return the id of a call as a strict server takes it; one that has to be changed becomes its digest."""
    if len(call_id) <= longest and _AN_ID.fullmatch(call_id):
        return call_id
    return f"call_{hashlib.sha256(call_id.encode()).hexdigest()[:24]}"


def wire_arguments(arguments: str) -> str:
    """Return arguments as the JSON text of an object: as the model wrote them, if that is one."""
    text = unfenced(arguments)
    if not text:
        return "{}"
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        return canonical_json({"not_an_object": arguments})
    if _HALF_A_PAIR.search(text):
        return clean_text(canonical_json(cast("dict[str, object]", value)))
    return text


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def image_note(image: ImagePart) -> str:
    """Return what a model that sees no images is told of one."""
    return f"[{image.media_type}, {len(image.data) * 3 // 4} bytes; this model is not known to see images]"


def seen_parts(parts: Iterable[Part], *, images: bool) -> list[Part]:
    """Return the parts as a model sees them, with notes in place of images if it sees none, and without empty texts."""
    seen: list[Part] = []
    for part in parts:
        if isinstance(part, ImagePart):
            seen.append(part if images else TextPart(image_note(part)))
        elif part.text.strip():
            seen.append(part)
    return seen


def piece(text: str) -> bytes:
    """Return a part of a JSON list in UTF-8, with the comma that divides it from the one before; of no text, nothing."""
    return f",{text}".encode() if text else b""


def listed(pieces: Iterable[bytes]) -> bytes:
    """Return the JSON list of some pieces."""
    return b"[" + b"".join(pieces)[1:] + b"]"


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
        for place in range(known.count, len(messages)):
            known.messages.add(messages[place])
        known.count = len(messages)
        first, *rest = known.messages.pieces() or [b","]
        return b"".join([head, b',"messages":[', first[1:], *rest, b"]}"])  # a long history is copied once

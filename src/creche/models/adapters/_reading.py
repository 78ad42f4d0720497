"""What the readers of both wires share: fields that may be absent or null, and how an answer ends.

A field of another type than the wire has it is a `TypeError`, which the adapter makes an error of the provider.
"""

import json
from collections.abc import Callable, Mapping
from typing import cast

from creche._util import canonical_json
from creche.errors import ModelError

from .._chunks import FinishReason
from .._failures import failure_of_status

Object = Mapping[str, object]
MakeError = Callable[[str, str], ModelError]
"""Makes the error of a failure, given its code and a sentence."""

SHAPE_ERRORS = (AttributeError, LookupError, TypeError, ValueError)
"""What reading JSON of an unexpected shape raises: a text where an object should be, a null for a list."""
CUT = "the answer ended before it was complete"
_NOTHING: Object = {}
_FIRST_STATUS = 400
_MOST_TOKENS = 2**40  # sums of these stay in range


def as_object(value: object) -> Object:
    """Return an object; an absent one is empty."""
    if value is None:
        return _NOTHING
    if not isinstance(value, dict):
        raise TypeError(f"{value!r:.60} is no object")
    return cast("Object", value)


def as_list(value: object) -> list[object]:
    """Return a list; an absent one is empty."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.60} is no list")
    return cast("list[object]", value)


def as_text(value: object) -> str:
    """Return a text; an absent one is empty."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.60} is no text")
    return value


def as_count(value: object) -> int:
    """Return a number of tokens; what is none, or cannot be one, is zero, for nothing depends on it."""
    return value if type(value) is int and 0 <= value < _MOST_TOKENS else 0


def decode_event(data: str, error: MakeError) -> Object:
    """Return the JSON object of an event.

    Raises:
      ModelError: It is none.
    """
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise error("malformed", f"the stream had what is no JSON object: {data!r}")
    return cast("Object", body)


def describe_error(body: object) -> tuple[str, str]:
    """Return the provider's words for a kind of error, divided by blanks, and what it says.

    Args:
      body: The body of an error in either wire's shape.
    """
    while isinstance(body, dict) and isinstance(inner := cast("Object", body).get("error"), dict):
        body = cast("object", inner)
    if not isinstance(body, dict):
        return "", body if isinstance(body, str) else ""
    error = cast("Object", body)
    words = [word for word in (error.get("code"), error.get("type")) if isinstance(word, str)]
    text = error.get("message") or error.get("error") or error.get("detail")
    return " ".join(words), text if isinstance(text, str) else ""


def failed_midway(body: Object, error: MakeError) -> ModelError:
    """Return the error that an event in the middle of an answer tells of."""
    kind, text = describe_error(body)
    code = as_object(body["error"]).get("code") if isinstance(body.get("error"), dict) else None
    status = code if type(code) is int and code >= _FIRST_STATUS else 0
    said = text or canonical_json(body.get("error") or body)
    return error(failure_of_status(status, said, kind=kind), f"in the middle of an answer: {said}")


def finish_of(reason: str, reasons: Mapping[str, FinishReason], error: MakeError, *, has_calls: bool) -> FinishReason:
    """Return why an answer ended.

    Raises:
      ModelError: The protocol has no such reason. Not retryable: the same answer would cost the same again.
    """
    if reason not in reasons:
        raise error("unknown", f"the answer ended with {reason!r}, which the protocol does not have")
    finish = reasons[reason]
    if finish in ("stop", "tool-calls"):
        return "tool-calls" if has_calls else "stop"  # servers disagree; the calls are there or not
    return finish

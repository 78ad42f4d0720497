"""Text and JSON as they cross a wire: valid UTF-8, one spelling a value."""

import json
from collections.abc import Callable

canonical_json: Callable[[object], str] = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=True
).encode
"""JSON text of a value: keys in their own order, no spaces; NaN and infinities are a `ValueError`."""


def clean_text(text: str) -> str:
    """Return the text with lone surrogates replaced by U+FFFD, the same object if there are none.

    One lone surrogate in a history makes every later request invalid UTF-8, which providers refuse.

    Raises:
      TypeError: It is no text; bytes have the methods of one.
    """
    if type(text) is not str:
        _check_text(text)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def unfenced(text: str) -> str:
    """Return a text without blank ends and without a Markdown fence around it, which some models write about JSON."""
    body = text.strip()
    if body.startswith("```") and body.endswith("```"):
        body = body.strip("`").removeprefix("json").strip()
    return body


def clean_optional(text: str | None) -> str | None:
    """Return the text as `clean_text` does, and ``None`` as it is."""
    return None if text is None else clean_text(text)


def _check_text(given: object) -> None:
    if not isinstance(given, str):
        raise TypeError(f"expected a text, not {given!r:.200}")

"""Text and JSON as they cross a wire: valid UTF-8, one spelling a value."""

import json
import re
from collections.abc import Callable, Iterable
from typing import cast

canonical_json: Callable[[object], str] = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=True
).encode
"""JSON text of a value: keys in their own order, no spaces; NaN and infinities are a `ValueError`."""


def clean_text(text: str) -> str:
    """Return the text with lone surrogates replaced by U+FFFD, the same object if there are none.

    One lone surrogate in a history makes every later request invalid UTF-8, which providers refuse.

    What is no text comes back as it is: as a converter of a field this does not know which, and the validator
    `is_text` does.
    """
    if type(text) is not str and not isinstance(cast("object", text), str):
        return text
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


def listed(texts: Iterable[str]) -> tuple[str, ...]:
    """Return a list of texts as a tuple.

    One text alone is no list of them, though its letters would pass for one: it comes back as it is, like all that is
    no list, for the validator `is_tuple_of` to refuse.
    """
    if isinstance(texts, str) or not isinstance(cast("object", texts), Iterable):
        return cast("tuple[str, ...]", texts)
    return tuple(texts)


def clean_all(texts: Iterable[str]) -> tuple[str, ...]:
    """Return a list of texts as `listed` does, each of them as `clean_text` does."""
    given = listed(texts)
    return tuple([clean_text(text) for text in given]) if type(given) is tuple else given


def shown(value: object, most: int = 200) -> str:
    """Return how a message shows anything: short, and the same in each process.

    What has a name in creche is shown by that, for all that it is may be a page; what has no repr by its class, so that
    who made a mistake is told of this one.
    """
    try:
        name = getattr(value, "name", None)
        if isinstance(name, str) and type(value).__module__.startswith("creche."):
            return f"{type(value).__name__} {name!r}"
        text = without_addresses(repr(value))
    except Exception:  # noqa: BLE001 - whatever a stranger's class does when it is asked for its repr
        return f"<{type(value).__name__}, which cannot be shown>"
    return text if len(text) <= most else f"{text[: most // 2 - 2]}...{text[1 - most // 2 :]}"


def without_addresses(text: str) -> str:
    """Return the repr of something without the addresses of objects in it, which are others in each process."""
    return _ADDRESS.sub("", text)


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

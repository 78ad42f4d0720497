"""JSON that comes out of a sandbox or goes into one, and that no side may choke on.

Whoever wrote it may mean harm, and what reads it does so in trio's thread. So every step is linear in the text, and
a text that would take long to look through is refused by its count of brackets alone.
"""

import json
from itertools import accumulate

from creche._util import canonical_json, clean_text

DEEPEST = 200
"""Lists and objects inside each other. Readers of JSON have a limit, which depends on who calls them from where."""
MOST_PARTS = 100_000
"""Lists and objects in one text."""

_OPENING = bytes.maketrans(b"[{]}", b"\x01\x01\x00\x00")
_OTHERS = bytes(byte for byte in range(256) if byte not in b"[{]}")
_STEP = (-1, 1)


def is_readable(text: str) -> bool:
    """Whether a text is JSON, nested no deeper than `DEEPEST`, with no more than `MOST_PARTS` lists and objects."""
    brackets = text.count("[") + text.count("{")
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    if brackets <= DEEPEST:
        return True
    outside = _brackets(text)
    return outside.count(1) <= MOST_PARTS and _depth(outside) <= DEEPEST


def depth_of(text: str) -> int:
    """Return how many lists and objects are inside each other in a text that is JSON."""
    return _depth(_brackets(text))


def _brackets(text: str) -> bytes:
    """Return a 1 for each bracket of JSON that opens, and a 0 for each that closes."""
    # Strings are whole: where no quote is escaped, every second part is outside of one.
    parts = text.replace("\\\\", "").replace('\\"', "").split('"')[::2]
    return "".join(parts).encode(errors="replace").translate(_OPENING, _OTHERS)


def _depth(brackets: bytes) -> int:
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0)


def without_surrogates(text: str) -> str:
    """Return JSON text without lone surrogates, neither as such nor escaped."""
    if "\\ud" in text or "\\uD" in text:
        text = canonical_json(json.loads(text))
    return clean_text(text)

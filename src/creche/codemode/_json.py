"""JSON that comes out of a sandbox or goes into one, and that no side may choke on."""

import json
import re

from creche._util import canonical_json, clean_text

DEEPEST = 200
"""Lists and objects inside each other. Readers of JSON have a limit, which depends on who calls them from where."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')


def is_readable(text: str) -> bool:
    """Whether a text is JSON, and nested no deeper than `DEEPEST`."""
    if text.count("[") + text.count("{") > DEEPEST and _depth(text) > DEEPEST:
        return False
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def without_surrogates(text: str) -> str:
    """Return JSON text without lone surrogates, neither as such nor escaped."""
    if "\\ud" in text or "\\uD" in text:
        text = canonical_json(json.loads(text))
    return clean_text(text)


def _depth(text: str) -> int:
    depth = deepest = 0
    for token in _TOKEN.findall(text):
        depth += (token in "[{") - (token in "]}")
        deepest = max(deepest, depth)
    return deepest

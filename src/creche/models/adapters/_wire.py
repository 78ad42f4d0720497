"""What every wire needs: texts that a strict server takes, whatever stands in the history.

A history keeps what was said, also a call of a tool that there is not, with arguments that are no JSON. A server that
refused it would refuse every later request of the session as well. So what goes out is always well formed; what comes
back is told apart by the tools. All of it is a function of one part, so the bytes of a prefix stay what they are.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterable
from typing import NoReturn, cast

from creche._util import canonical_json, clean_text, unfenced
from creche.messages import ImagePart, Part, ReasoningPart, TextPart

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
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        if isinstance(value, dict):
            return clean_text(canonical_json(cast("object", value))) if _HALF_A_PAIR.search(text) else text
    except (ValueError, RecursionError):
        pass  # no JSON, or nothing that is JSON everywhere
    return canonical_json({"not_an_object": arguments})


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is too large a number")
    return number


def sign(provider: str, state: str = "") -> str:
    """Return the signature that a provider puts under its reasoning; see `ReasoningPart.signature`."""
    return f"{provider}:{state}"


def own_state(part: ReasoningPart, provider: str) -> str | None:
    """Return what a provider's signature says, ``None`` if the reasoning is not signed by it."""
    own = sign(provider)
    signature = part.signature or ""
    return signature.removeprefix(own) if signature.startswith(own) else None


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

"""From a request to the body of a chat completion.

Rule 1: messages stand last in the body and each is encoded once, so the bodies of successive requests share their
bytes as far as the canonical bytes of the requests do.
Rule 2: results of tools are text on this wire. Their images follow in a user message after the last result of a step.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import assert_never

import attrs

from creche._util import canonical_json
from creche.messages import (
    AssistantMessage,
    DeveloperMessage,
    ImagePart,
    Message,
    Part,
    ReasoningPart,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)

from .._request import ModelRequest
from ._histories import Histories
from ._wire import NO_OUTPUT, NO_TEXT, listed, own_state, piece, seen_parts, wire_arguments, wire_id, wire_name

_CHOICES = ("auto", "none", "required")


@attrs.frozen(kw_only=True)
class Dialect:
    """How an endpoint deviates from the others that speak this wire."""

    provider: str
    """Name of the provider, which signs reasoning."""
    is_openai: bool
    """Whether it is OpenAI's own: it takes a cache key, has another name for the longest answer, and refuses ids of
    calls that are longer than 40 characters."""
    replays_reasoning: bool
    """Whether it wants the reasoning of earlier answers back."""
    images: bool
    """Whether the model sees images."""

    @property
    def form(self) -> str:
        """Name of the form that a message takes on this wire."""
        return f"openai {self!r}"


def encode_body(request: ModelRequest, dialect: Dialect, histories: Histories) -> bytes:
    """Return the body of the request, JSON in UTF-8."""
    head = canonical_json(_settings(request, dialect))[:-1].encode()
    if request.tools:
        head += request.head.kept("openai tools", lambda: _tools(request))
    return histories.body(head, request, dialect.form, lambda: ChatPieces(dialect))


def _settings(request: ModelRequest, dialect: Dialect) -> dict[str, object]:
    options = request.settings.options
    longest = "max_completion_tokens" if dialect.is_openai else "max_tokens"
    choice: object = options.tool_choice
    if choice is not None and choice not in _CHOICES:
        choice = {"type": "function", "function": {"name": wire_name(str(choice))}}
    fields: dict[str, object] = {
        "model": request.settings.model,
        "stream": True,
        "stream_options": {"include_usage": True},
        longest: options.max_tokens,
        "temperature": options.temperature,
        "top_p": options.top_p,
        "seed": options.seed,
        "stop": list(options.stop) or None,
        "reasoning_effort": options.effort,
        "tool_choice": choice if request.tools else None,
        "prompt_cache_key": cache_key(request) if dialect.is_openai else None,
    }
    return {name: value for name, value in fields.items() if value is not None} | _format(options.output_schema)


def _format(schema: str | None) -> dict[str, object]:
    if schema is None:
        return {}
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": json.loads(schema)}}}


def _tools(request: ModelRequest) -> bytes:
    return b',"tools":' + listed([piece(f'{{"type":"function","function":{tool.encoded}}}') for tool in request.tools])


def cache_key(request: ModelRequest) -> str:
    """Return the key that brings requests with one head to one cache: a digest of their first canonical lines."""
    first = request.messages[0] if request.messages else None
    prompt = first.encoded if isinstance(first, SystemMessage) else ""
    digest = hashlib.sha256(f"{request.settings.model}\n{request.head.tools_line}\n{prompt}".encode())
    return f"creche-{digest.hexdigest()[:32]}"


# ---------------------------------------------------------------- messages


class ChatPieces:
    """The messages of one history, as far as they have come.

    Args:
      dialect: How the endpoint deviates from the others.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._form = dialect.form
        self._pieces: list[bytes] = []
        self._shown: list[ImagePart] = []  # of the results in a row

    def add(self, message: Message) -> None:
        """Take the next message."""
        if self._shown and not isinstance(message, ToolMessage):
            self._pieces.append(_images_of_tools(self._shown))
            self._shown = []
        encoded = message.kept(self._form, lambda: piece(_encode(message, self._dialect)))
        if encoded:
            self._pieces.append(encoded)
        if isinstance(message, ToolMessage) and self._dialect.images:
            self._shown += [part for part in message.parts if isinstance(part, ImagePart)]

    def pieces(self) -> list[bytes]:
        """Return the messages so far."""
        return [*self._pieces, _images_of_tools(self._shown)] if self._shown else self._pieces


def _encode(message: Message, dialect: Dialect) -> str:
    """Return the wire form of a message, ``""`` if there is nothing of it that the wire could carry."""
    match message:
        case SystemMessage():
            return canonical_json({"role": "system", "content": message.text}) if message.text else ""
        case UserMessage():
            return canonical_json({"role": "user", "content": _content(message.parts, dialect)})
        case AssistantMessage():
            return _encode_answer(message, dialect)
        case ToolMessage():
            seen = seen_parts(message.parts, images=dialect.images)
            texts = [part.text for part in seen if isinstance(part, TextPart)]
            result = "\n".join(texts) or ("(an image follows)" if seen else NO_OUTPUT)
            return canonical_json(
                {"role": "tool", "tool_call_id": _call_id(message.call_id, dialect), "content": result}
            )
        case DeveloperMessage():
            return ""
        case _:
            assert_never(message)


def _content(parts: Sequence[Part], dialect: Dialect) -> object:
    seen = seen_parts(parts, images=dialect.images)
    if not any(isinstance(part, ImagePart) for part in seen):
        # A note about an image that is not seen stands on a line of its own; texts are one text, however they were cut.
        joint = "\n" if any(isinstance(part, ImagePart) for part in parts) else ""
        return joint.join([part.text for part in seen if isinstance(part, TextPart)]) or NO_TEXT
    return [_part(part) for part in seen]


def _part(part: Part) -> dict[str, object]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    return {"type": "image_url", "image_url": {"url": f"data:{part.media_type};base64,{part.data}"}}


def _images_of_tools(images: Iterable[ImagePart]) -> bytes:
    parts: list[Part] = [TextPart("Images from the results above:"), *images]
    return piece(canonical_json({"role": "user", "content": [_part(part) for part in parts]}))


def _encode_answer(message: AssistantMessage, dialect: Dialect) -> str:
    calls = [_call(part, dialect) for part in message.parts if isinstance(part, ToolCall)]
    if not message.text.strip() and not calls:
        return ""
    answer: dict[str, object] = {"role": "assistant", "content": message.text}
    if dialect.replays_reasoning:
        thoughts = [part for part in message.parts if isinstance(part, ReasoningPart)]
        reasoning = "".join([part.text for part in thoughts if own_state(part, dialect.provider) is not None])
        if reasoning or calls:
            answer["reasoning_content"] = reasoning  # next to calls also an empty one is missed
    if calls:
        answer["tool_calls"] = calls
    return canonical_json(answer)


def _call(call: ToolCall, dialect: Dialect) -> dict[str, object]:
    function = {"name": wire_name(call.name), "arguments": wire_arguments(call.arguments)}
    return {"id": _call_id(call.id, dialect), "type": "function", "function": function}


def _call_id(call_id: str, dialect: Dialect) -> str:
    return wire_id(call_id, _LONGEST_ID) if dialect.is_openai else call_id


_LONGEST_ID = 40

"""What is said between people, agents and models: pure, immutable values.

Rule 1: a message is encoded once, into one JSON line with its keys in a fixed order, and keeps that
encoding (`encoded`). Canonical bytes and wire forms are made of it, so a step costs what is new in it.
Rule 2: the arguments of a tool call are kept as the JSON text the model wrote, never parsed and written
again.
Rule 3: what an adapter makes of a message it may keep with it (`kept`), so wire forms are made once, too.
Rule 4: a field of a wrong type is refused when the value is made, and every text that is encoded is valid Unicode from the start: a lone surrogate becomes U+FFFD when the
value is made.
"""

import base64
import binascii
import functools
import json
from collections.abc import Iterable, Mapping
from typing import ClassVar, assert_never, cast

import attrs

from creche._util import (
    Keeping,
    canonical_json,
    clean_all,
    clean_optional,
    clean_text,
    is_bool,
    is_none_or,
    is_text,
    is_tuple_of,
    shown,
)

__all__ = [
    "AssistantMessage",
    "AssistantPart",
    "DeveloperMessage",
    "ImagePart",
    "Message",
    "Part",
    "ReasoningPart",
    "SystemMessage",
    "TextPart",
    "ToolCall",
    "ToolMessage",
    "ToolSchema",
    "UserMessage",
    "schema_text",
]


@attrs.frozen
class TextPart:
    """A stretch of text."""

    text: str = attrs.field(converter=clean_text, validator=is_text)
    """The text."""
    type: ClassVar[str] = "text"


@attrs.frozen
class ReasoningPart:
    """What a model thought aloud before it answered."""

    text: str = attrs.field(converter=clean_text, validator=is_text)
    """The reasoning, as far as the provider shows it."""
    signature: str | None = attrs.field(
        default=None, converter=clean_optional, validator=is_none_or(is_text), kw_only=True
    )
    """Provider-private state that some providers need back, unchanged: the provider's name, a colon, and the rest.

    Reasoning without a signature, or with that of another provider, is not sent back.
    """
    type: ClassVar[str] = "reasoning"


def _image_data(data: str | bytes) -> str:
    if isinstance(data, bytes):
        return base64.b64encode(data).decode()
    if not isinstance(cast("object", data), str):
        raise TypeError(f"ImagePart.data is bytes, or their base64, not {shown(data)}")
    text = clean_text(data)
    try:
        binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise ValueError(
            f"{text[:40]!r} is not the base64 of a file ({error}); give its bytes, or their base64; an address is not "
            "looked up"
        ) from None
    return text


@attrs.frozen
class ImagePart:
    """An image, the whole file of it.

    Args:
      data: The bytes of the file, or their base64.
      media_type: Such as ``"image/png"``.

    Raises:
      ValueError: The text is no base64, such as an address.

    Example:
      Ask about a picture::

          picture = ImagePart(Path("cat.png").read_bytes(), media_type="image/png")
          await agent.ask([TextPart("What is this?"), picture])
    """

    data: str = attrs.field(converter=_image_data, repr=False)
    """The bytes of the file in base64."""
    media_type: str = attrs.field(converter=clean_text, validator=is_text, kw_only=True)
    """Such as ``"image/png"``."""
    type: ClassVar[str] = "image"


@attrs.frozen
class ToolCall:
    """A call of a tool, requested by a model."""

    id: str = attrs.field(converter=clean_text, validator=is_text)
    """Unique within one answer, and as a provider gives it within one session; the result carries it too."""
    name: str = attrs.field(converter=clean_text, validator=is_text, kw_only=True)
    """Name of the tool."""
    arguments: str = attrs.field(converter=clean_text, validator=is_text, kw_only=True)
    """The arguments as the JSON text the model wrote."""
    type: ClassVar[str] = "tool-call"


Part = TextPart | ImagePart
"""What people, tools and the framework say."""
AssistantPart = TextPart | ReasoningPart | ToolCall
"""What a model says."""


def _parts(content: str | Iterable[Part]) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (TextPart(content),)
    parts = tuple(content)
    for part in parts:
        _check_part(part)
    return parts


def _check_part(part: object) -> None:
    # Exactly these: of a subclass not all would be written.
    if type(part) is not TextPart and type(part) is not ImagePart:
        raise TypeError(f"{part!r} is no part of a message; give one text, or TextPart and ImagePart values")


def _assistant_parts(parts: Iterable[AssistantPart]) -> tuple[AssistantPart, ...]:
    answer = tuple(parts)
    for part in answer:
        _check_assistant_part(part)
    return answer


def _check_assistant_part(part: object) -> None:
    if type(part) is not TextPart and type(part) is not ToolCall and type(part) is not ReasoningPart:
        raise TypeError(f"{part!r} is no part of an answer; give TextPart, ReasoningPart and ToolCall values")


def _text_of(parts: Iterable[object]) -> str:
    return "".join([part.text for part in parts if isinstance(part, TextPart)])


# The encodings are written by hand: the bytes are those of `canonical_json`, in a third of the time.


def _encode_parts(parts: Iterable[Part | AssistantPart]) -> str:
    return f"[{','.join([_encode_part(part) for part in parts])}]"


def _encode_part(part: Part | AssistantPart) -> str:
    match part:
        case TextPart():
            return f'{{"type":"text","text":{canonical_json(part.text)}}}'
        case ReasoningPart():
            signature = "null" if part.signature is None else canonical_json(part.signature)
            return f'{{"type":"reasoning","text":{canonical_json(part.text)},"signature":{signature}}}'
        case ImagePart():
            return (
                f'{{"type":"image","media_type":{canonical_json(part.media_type)},"data":{canonical_json(part.data)}}}'
            )
        case ToolCall():
            return (
                f'{{"type":"tool-call","id":{canonical_json(part.id)},"name":{canonical_json(part.name)},'
                f'"arguments":{canonical_json(part.arguments)}}}'
            )
        case _:
            assert_never(part)


@attrs.frozen
class SystemMessage(Keeping):
    """The system prompt, or a later version of it further down the history."""

    text: str = attrs.field(converter=clean_text, validator=is_text)
    """The prompt."""
    role: ClassVar[str] = "system"

    @functools.cached_property
    def encoded(self) -> str:
        """One JSON line, encoded once."""
        return f'{{"role":"system","text":{canonical_json(self.text)}}}'


@attrs.frozen
class UserMessage(Keeping):
    """A message to the agent: from a person, from another agent, or from the framework.

    Args:
      parts: Parts, or a text.
      source: Who speaks. Models do not see it.
    """

    parts: tuple[Part, ...] = attrs.field(converter=_parts)
    """What is said."""
    source: str = attrs.field(default="user", validator=is_text, kw_only=True)
    """``"user"``, ``"agent"``, ``"runtime-context"``, ``"tool"``, or ``"plugin:<name>"``."""
    role: ClassVar[str] = "user"

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return _text_of(self.parts)

    @functools.cached_property
    def encoded(self) -> str:
        """One JSON line, encoded once."""
        return f'{{"role":"user","content":{_encode_parts(self.parts)}}}'


@attrs.frozen
class AssistantMessage(Keeping):
    """What a model answered."""

    parts: tuple[AssistantPart, ...] = attrs.field(converter=_assistant_parts)
    """Text, reasoning and tool calls in the order in which they came."""
    role: ClassVar[str] = "assistant"

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return _text_of(self.parts)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls, in the model's order."""
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])

    @functools.cached_property
    def encoded(self) -> str:
        """One JSON line, encoded once."""
        return f'{{"role":"assistant","content":{_encode_parts(self.parts)}}}'


@attrs.frozen
class ToolMessage(Keeping):
    """The result of one tool call, as the model sees it."""

    call_id: str = attrs.field(converter=clean_text, validator=is_text)
    """Id of the call it answers."""
    name: str = attrs.field(converter=clean_text, validator=is_text, kw_only=True)
    """Name of the tool."""
    parts: tuple[Part, ...] = attrs.field(converter=_parts, kw_only=True)
    """What came back."""
    is_error: bool = attrs.field(default=False, validator=is_bool, kw_only=True)
    """Whether the call failed."""
    role: ClassVar[str] = "tool"

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return _text_of(self.parts)

    @functools.cached_property
    def encoded(self) -> str:
        """One JSON line, encoded once."""
        return (
            f'{{"role":"tool","call_id":{canonical_json(self.call_id)},"name":{canonical_json(self.name)},'
            f'"is_error":{"true" if self.is_error else "false"},"content":{_encode_parts(self.parts)}}}'
        )


@attrs.frozen
class DeveloperMessage(Keeping):
    """Tells a model, in the middle of the history, which tools came and went.

    Only models that declare ``tool_update`` get it; adapters of others leave it out.
    """

    additions: tuple[str, ...] = attrs.field(default=(), converter=clean_all, validator=is_tuple_of(str, "texts"))
    """Names of tools that are new since the last request."""
    removals: tuple[str, ...] = attrs.field(
        default=(), converter=clean_all, validator=is_tuple_of(str, "texts"), kw_only=True
    )
    """Names of tools that are gone."""
    role: ClassVar[str] = "developer"

    @functools.cached_property
    def encoded(self) -> str:
        """One JSON line, encoded once."""
        return canonical_json({"role": "developer", "additions": self.additions, "removals": self.removals})


Message = SystemMessage | UserMessage | AssistantMessage | ToolMessage | DeveloperMessage
"""What a history is made of."""


def schema_text(parameters: str | Mapping[str, object]) -> str:
    """Return the JSON Schema of an object as canonical JSON text.

    Raises:
      ValueError: It is not a JSON object.
    """
    # A text is written anew: with a line break in it, it would not be one line of canonical bytes.
    try:
        text = canonical_json(json.loads(parameters) if isinstance(parameters, str) else dict(parameters))
        if clean_text(text) is not text:
            text = canonical_json(json.loads(clean_text(text)))  # two keys may have become one
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{shown(parameters)} is not a JSON Schema: {error}") from error
    if not text.startswith("{"):
        raise ValueError(f"{shown(parameters)} is not the JSON Schema of an object; give a dict, or its JSON text")
    return text


@attrs.frozen
class ToolSchema:
    """What a model is told about a tool.

    Args:
      name: The name it calls.
      description: What the tool does and when to use it.
      parameters: A JSON Schema of an object, as a mapping or as JSON text.

    Raises:
      ValueError: The parameters are not a JSON object.
    """

    name: str = attrs.field(converter=clean_text, validator=is_text)
    """The name it calls."""
    description: str = attrs.field(converter=clean_text, validator=is_text, kw_only=True)
    """What the tool does and when to use it."""
    parameters: str = attrs.field(converter=schema_text, kw_only=True, repr=False)
    """The JSON Schema of the arguments, as canonical JSON text: immutable, and always the same bytes."""

    @functools.cached_property
    def encoded(self) -> str:
        """One JSON object, encoded once."""
        return (
            f'{{"name":{canonical_json(self.name)},"description":{canonical_json(self.description)},'
            f'"parameters":{self.parameters}}}'
        )

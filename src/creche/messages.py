"""What is said between people, agents and models: pure, immutable values.

Rule 1: a message is encoded once, into one JSON line with its keys in a fixed order, and keeps that
encoding (`encoded`). Canonical bytes and wire forms are made of it, so a step costs what is new in it.
Rule 2: the arguments of a tool call are kept as the JSON text the model wrote, never parsed and written
again.
Rule 3: text is valid Unicode from the start: a lone surrogate becomes U+FFFD when the value is made.
"""

import functools
from collections.abc import Iterable, Mapping
from typing import ClassVar

import attrs

from creche._util import canonical_json, clean_text, publish


@attrs.frozen
class TextPart:
    """A stretch of text."""

    text: str = attrs.field(converter=clean_text)
    """The text."""
    type: ClassVar[str] = "text"


@attrs.frozen
class ReasoningPart:
    """What a model thought aloud before it answered."""

    text: str = attrs.field(converter=clean_text)
    """The reasoning, as far as the provider shows it."""
    signature: str | None = attrs.field(default=None, kw_only=True)
    """Provider-private state that some providers need back, unchanged."""
    type: ClassVar[str] = "reasoning"


@attrs.frozen
class ImagePart:
    """An image."""

    data: str = attrs.field(repr=False)
    """The bytes of the file in base64."""
    media_type: str = attrs.field(kw_only=True)
    """Such as ``"image/png"``."""
    type: ClassVar[str] = "image"


@attrs.frozen
class ToolCall:
    """A call of a tool, requested by a model."""

    id: str
    """Unique within one session; the result carries it too."""
    name: str = attrs.field(kw_only=True)
    """Name of the tool."""
    arguments: str = attrs.field(converter=clean_text, kw_only=True)
    """The arguments as the JSON text the model wrote."""
    type: ClassVar[str] = "tool-call"


Part = TextPart | ImagePart
"""What people, tools and the framework say."""
AssistantPart = TextPart | ReasoningPart | ToolCall
"""What a model says."""


def _parts(content: str | Iterable[Part]) -> tuple[Part, ...]:
    return (TextPart(content),) if isinstance(content, str) else tuple(content)


def _text_of(parts: Iterable[object]) -> str:
    return "".join([part.text for part in parts if isinstance(part, TextPart)])


def _encode_part(part: Part | AssistantPart) -> dict[str, object]:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ReasoningPart():
            return {"type": "reasoning", "text": part.text, "signature": part.signature}
        case ImagePart():
            return {"type": "image", "media_type": part.media_type, "data": part.data}
        case ToolCall():
            return {"type": "tool-call", "id": part.id, "name": part.name, "arguments": part.arguments}


@attrs.frozen
class SystemMessage:
    """The system prompt, or a later version of it further down the history."""

    text: str = attrs.field(converter=clean_text)
    """The prompt."""
    role: ClassVar[str] = "system"

    @functools.cached_property
    def encoded(self) -> str:
        """One JSON line, encoded once."""
        return canonical_json({"role": "system", "text": self.text})


@attrs.frozen
class UserMessage:
    """A message to the agent: from a person, from another agent, or from the framework.

    Args:
      parts: Parts, or a text.
      source: Who speaks. Models do not see it.
    """

    parts: tuple[Part, ...] = attrs.field(converter=_parts)
    """What is said."""
    source: str = attrs.field(default="user", kw_only=True)
    """``"user"``, ``"agent"``, ``"runtime-context"``, ``"tool"``, or ``"plugin:<name>"``."""
    role: ClassVar[str] = "user"

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return _text_of(self.parts)

    @functools.cached_property
    def encoded(self) -> str:
        """One JSON line, encoded once."""
        return canonical_json({"role": "user", "content": [_encode_part(part) for part in self.parts]})


@attrs.frozen
class AssistantMessage:
    """What a model answered."""

    parts: tuple[AssistantPart, ...] = attrs.field(converter=tuple)
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
        return canonical_json({"role": "assistant", "content": [_encode_part(part) for part in self.parts]})


@attrs.frozen
class ToolMessage:
    """The result of one tool call, as the model sees it."""

    call_id: str
    """Id of the call it answers."""
    name: str = attrs.field(kw_only=True)
    """Name of the tool."""
    parts: tuple[Part, ...] = attrs.field(converter=_parts, kw_only=True)
    """What came back."""
    is_error: bool = attrs.field(default=False, kw_only=True)
    """Whether the call failed."""
    role: ClassVar[str] = "tool"

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return _text_of(self.parts)

    @functools.cached_property
    def encoded(self) -> str:
        """One JSON line, encoded once."""
        return canonical_json(
            {
                "role": "tool",
                "call_id": self.call_id,
                "name": self.name,
                "is_error": self.is_error,
                "content": [_encode_part(part) for part in self.parts],
            }
        )


@attrs.frozen
class DeveloperMessage:
    """Tells a model, in the middle of the history, which tools came and went.

    Only models that declare ``tool_update`` get it; adapters of others leave it out.
    """

    additions: tuple[str, ...] = ()
    """Names of tools that are new since the last request."""
    removals: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    """Names of tools that are gone."""
    role: ClassVar[str] = "developer"

    @functools.cached_property
    def encoded(self) -> str:
        """One JSON line, encoded once."""
        return canonical_json({"role": "developer", "additions": self.additions, "removals": self.removals})


Message = SystemMessage | UserMessage | AssistantMessage | ToolMessage | DeveloperMessage
"""What a history is made of."""


def _schema_text(parameters: str | Mapping[str, object]) -> str:
    return parameters if isinstance(parameters, str) else canonical_json(parameters)


@attrs.frozen
class ToolSchema:
    """What a model is told about a tool.

    Args:
      name: The name it calls.
      description: What the tool does and when to use it.
      parameters: A JSON Schema of an object, as a mapping or as JSON text.
    """

    name: str
    """The name it calls."""
    description: str = attrs.field(kw_only=True)
    """What the tool does and when to use it."""
    parameters: str = attrs.field(converter=_schema_text, kw_only=True, repr=False)
    """The JSON Schema of the arguments, as JSON text, so that it is immutable and always the same bytes."""

    @functools.cached_property
    def encoded(self) -> str:
        """One JSON object, encoded once."""
        return (
            f'{{"name":{canonical_json(self.name)},"description":{canonical_json(self.description)},'
            f'"parameters":{self.parameters}}}'
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
]

publish(globals(), __name__)

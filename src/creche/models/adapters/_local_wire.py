"""A request as llama.cpp's server takes it: plain chat messages, for a model whose template knows no tools.

A call of a tool stands in the history as the JSON object that the model wrote, its result as a message of the user.
Reasoning and the news of tools that came and went are left out. Neighbours of one role become one message, because
many a template insists on turns.
"""

from collections.abc import Iterable, Sequence
from typing import assert_never

from creche._util import canonical_json
from creche.messages import (
    AssistantMessage,
    DeveloperMessage,
    Message,
    Part,
    ReasoningPart,
    SystemMessage,
    TextPart,
    ToolMessage,
    ToolSchema,
    UserMessage,
)

from .._request import ModelRequest
from ._local_schema import answer_schema, describe_tools
from ._wire import seen_parts, wire_arguments

LONGEST_ANSWER = 512
"""Tokens of an answer, where the request does not say how many."""


def encode_request(request: ModelRequest, tools: Sequence[ToolSchema]) -> str:
    """Return the JSON text of a request.

    Args:
      request: The request.
      tools: What the answer may call.
    """
    options = request.settings.options
    may_reply = options.tool_choice in (None, "auto")
    guide = describe_tools(tools, may_reply=may_reply) if tools else ""
    body: dict[str, object] = {
        "messages": chat_messages(request.messages, guide),
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,  # more occasions to stop, while a long prompt is read
        "max_tokens": LONGEST_ANSWER if options.max_tokens is None else options.max_tokens,
        "stop": [text for text in options.stop if text],  # an empty one would end every answer at once
    }
    body |= {name: value for name in ("temperature", "top_p", "seed") if (value := getattr(options, name)) is not None}
    if (schema := answer_schema(request, tools)) is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": {"schema": schema}}
    return canonical_json(body)


def chat_messages(messages: Iterable[Message], guide: str = "") -> list[dict[str, str]]:
    """Return a history as chat messages.

    Args:
      messages: The history. Of several system prompts the newest counts.
      guide: What the model is told of its tools, for the end of the system prompt.
    """
    system = ""
    turns: list[tuple[str, list[str]]] = []
    for message in messages:
        if isinstance(message, SystemMessage):
            system = message.text
            continue
        role, text = _turn(message)
        if not text:
            continue
        if not turns or turns[-1][0] != role:
            turns.append((role, []))
        turns[-1][1].append(text)
    if prompt := "\n\n".join([text for text in (system, guide) if text.strip()]):
        turns.insert(0, ("system", [prompt]))
    return [{"role": role, "content": "\n\n".join(texts)} for role, texts in turns]


def _turn(message: UserMessage | AssistantMessage | ToolMessage | DeveloperMessage) -> tuple[str, str]:
    match message:
        case UserMessage():
            return "user", _text_of(message.parts)
        case AssistantMessage():
            return "assistant", _answer_text(message)
        case ToolMessage():
            return "user", f"{'Error' if message.is_error else 'Result'} of {message.name}: {_text_of(message.parts)}"
        case DeveloperMessage():
            return "user", ""
        case _:
            assert_never(message)


def _text_of(parts: Iterable[Part]) -> str:
    return "\n".join([part.text for part in seen_parts(parts, images=False) if isinstance(part, TextPart)])


def _answer_text(message: AssistantMessage) -> str:
    texts: list[str] = []
    for part in message.parts:
        if isinstance(part, TextPart):
            texts.append(part.text)
        elif not isinstance(part, ReasoningPart):
            texts.append(f'{{"tool": {canonical_json(part.name)}, "arguments": {wire_arguments(part.arguments)}}}')
    return "\n".join([text for text in texts if text.strip()])

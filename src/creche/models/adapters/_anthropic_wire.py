"""From a request to the body of a call of Anthropic's messages.

Rule 1: messages stand last in the body and each is encoded once, so the bodies of successive requests share their
bytes as far as the canonical bytes of the requests do. The breakpoints of the cache keep to it: on the last tool, on
the system prompt, and one for the whole body, which the server sets behind what comes last.
Rule 2: results in a row are one user message. A step's results are complete before the next request, so such a message
does not change after it was sent.
Rule 3: a later system prompt follows the user messages behind it: the server takes one after a user message only, and
only before an answer or at the end, and never two in a row. So it is held back until then, and those that wait are one
message. An answer always follows what it was given when it was asked for; only where a request got no answer may a
later request have the system prompt in another place than that one had it.
Rule 4: thinking goes back only to the provider that signed it, as it came.
"""

import json
from collections.abc import Iterable, Sequence
from typing import assert_never

import attrs

from creche._util import canonical_json
from creche.messages import (
    AssistantMessage,
    AssistantPart,
    DeveloperMessage,
    ImagePart,
    Message,
    Part,
    ReasoningPart,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolSchema,
    UserMessage,
)

from .._request import ModelOptions, ModelRequest
from ._anthropic_schema import reduce_schema
from ._cards import Thinking
from ._histories import Histories
from ._wire import NO_OUTPUT, NO_TEXT, listed, own_state, piece, seen_parts, wire_arguments, wire_id, wire_name

THINKING_MARK, REDACTED_MARK = "t:", "r:"
"""What a signature has behind the provider's name: that of a thinking block, or the data of a redacted one."""

_UNTHINKING = ("none", "off")
_BREAKPOINT = '"cache_control":{"type":"ephemeral"}'
_BUDGETS = {"low": 2_048, "medium": 8_192}
_LARGEST_BUDGET = 16_384
_SMALLEST_BUDGET = 1_024  # the server takes none below
_LONGEST_ID = 64


@attrs.frozen(kw_only=True)
class Dialect:
    """What the body depends on besides the request."""

    provider: str
    """Name of the provider, which signs reasoning."""
    images: bool
    """Whether the model sees images."""
    thinking: Thinking | None
    """How the model is asked to think."""
    max_tokens: int
    """Longest answer if the request does not say, for the server insists on one."""

    @property
    def form(self) -> str:
        """Name of the form that a message takes on this wire."""
        return f"anthropic {self.provider} {self.images}"


def encode_body(request: ModelRequest, dialect: Dialect, histories: Histories) -> bytes:
    """Return the body of the request, JSON in UTF-8."""
    head = f"{canonical_json(_settings(request, dialect))[:-1]},{_BREAKPOINT}".encode()
    if request.tools:
        head += request.head.kept("anthropic tools", lambda: _tools(request.tools))
    return histories.body(head + _system(request), request, dialect.form, lambda: MessagesPieces(dialect))


def _settings(request: ModelRequest, dialect: Dialect) -> dict[str, object]:
    options = request.settings.options
    longest = dialect.max_tokens if options.max_tokens is None else options.max_tokens
    thinking = _thinking(options.effort, dialect.thinking, longest)
    fields: dict[str, object] = {
        "model": request.settings.model,
        "stream": True,
        "max_tokens": longest,
        "temperature": options.temperature,
        "top_p": options.top_p,
        "stop_sequences": list(options.stop) or None,
        "thinking": thinking,
        "output_config": _output_config(options, thinking) or None,
        "tool_choice": _tool_choice(options.tool_choice, thinking) if request.tools else None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _thinking(effort: str | None, way: Thinking | None, max_tokens: int) -> dict[str, object] | None:
    if effort is None:
        return None
    if effort in _UNTHINKING:
        return {"type": "disabled"}
    if way == "adaptive":
        return {"type": "adaptive", "display": "summarized"}
    if way == "budget" and max_tokens > _SMALLEST_BUDGET:
        # Half of the tokens at most, for the answer has to fit as well.
        budget = min(_BUDGETS.get(effort, _LARGEST_BUDGET), max_tokens // 2)
        return {"type": "enabled", "budget_tokens": max(budget, _SMALLEST_BUDGET)}
    return None


def _output_config(options: ModelOptions, thinking: dict[str, object] | None) -> dict[str, object]:
    config: dict[str, object] = {}
    if thinking is not None and thinking["type"] == "adaptive":
        config["effort"] = options.effort
    if options.output_schema is not None:
        config["format"] = {"type": "json_schema", "schema": reduce_schema(json.loads(options.output_schema))}
    return config


def _tool_choice(choice: str | None, thinking: dict[str, object] | None) -> dict[str, object] | None:
    if choice is None:
        return None
    if choice in ("auto", "none"):
        return {"type": choice}
    if thinking is not None and thinking["type"] == "enabled":
        return {"type": "auto"}  # with a budget to think the server refuses to be told what to call
    return {"type": "any"} if choice == "required" else {"type": "tool", "name": wire_name(choice)}


def _tools(tools: Sequence[ToolSchema]) -> bytes:
    schemas = [
        f'"name":{canonical_json(tool.name)},"description":{canonical_json(tool.description)},'
        f'"input_schema":{tool.parameters}'
        for tool in tools
    ]
    return f',"tools":[{{{"},{".join(schemas)},{_BREAKPOINT}}}]'.encode()


def _system(request: ModelRequest) -> bytes:
    text = request.system
    if not text.strip():
        return b""
    return f',"system":[{{"type":"text","text":{canonical_json(text)},{_BREAKPOINT}}}]'.encode()


# ---------------------------------------------------------------- messages


class MessagesPieces:
    """The messages of one history after its leading system prompt, as far as they have come.

    Args:
      dialect: What their form depends on.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._form = dialect.form
        self._pieces: list[bytes] = []
        self._prompts: list[bytes] = []  # wait for the end of the user messages
        self._results: list[bytes] = []  # in a row
        self._follows_user = False
        self._is_first = True

    def add(self, message: Message) -> None:
        """Take the next message."""
        is_first, self._is_first = self._is_first, False
        encoded = message.kept(self._form, lambda: piece(_encode(message, self._dialect)))
        if isinstance(message, ToolMessage):
            self._results.append(encoded)
            return
        if self._results:
            self._pieces.append(_joined("user", self._results))
            self._results, self._follows_user = [], True
        if not encoded:
            return
        if isinstance(message, SystemMessage):
            self._prompts += [] if is_first else [encoded]
            return
        is_answer = isinstance(message, AssistantMessage)
        if is_answer and self._prompts and self._follows_user:
            self._pieces.append(_joined("system", self._prompts))
            self._prompts = []
        self._pieces.append(encoded)
        self._follows_user = not is_answer

    def pieces(self) -> list[bytes]:
        """Return the messages so far."""
        waiting = [_joined("user", self._results)] if self._results else []
        if self._prompts:
            waiting.append(_joined("system", self._prompts))
        return [*self._pieces, *waiting] if waiting else self._pieces


def _joined(role: str, blocks: Iterable[bytes]) -> bytes:
    return b',{"role":"%b","content":%b}' % (role.encode(), listed(blocks))


def _message(role: str, blocks: Iterable[str]) -> str:
    return f'{{"role":"{role}","content":[{",".join(blocks)}]}}'


def _encode(message: Message, dialect: Dialect) -> str:
    """Return the wire form of a message, ``""`` if there is nothing of it that the wire could carry.

    Of a system prompt and of a result it is the block that goes into a message.
    """
    match message:
        case SystemMessage():
            return _text(message.text) if message.text.strip() else ""
        case UserMessage():
            return _message("user", _blocks(message.parts, dialect) or [_text(NO_TEXT)])
        case AssistantMessage():
            blocks = _answer(message.parts, dialect)
            return _message("assistant", blocks) if blocks else ""
        case ToolMessage():
            content = ",".join(_blocks(message.parts, dialect)) or _text(NO_OUTPUT)
            is_error = ',"is_error":true' if message.is_error else ""
            call_id = canonical_json(wire_id(message.call_id, _LONGEST_ID))
            return f'{{"type":"tool_result","tool_use_id":{call_id}{is_error},"content":[{content}]}}'
        case DeveloperMessage():
            return ""
        case _:
            assert_never(message)


def _blocks(parts: Iterable[Part], dialect: Dialect) -> list[str]:
    seen = seen_parts(parts, images=dialect.images)
    return [_image(part) if isinstance(part, ImagePart) else _text(part.text) for part in seen]


def _text(text: str) -> str:
    return f'{{"type":"text","text":{canonical_json(text)}}}'


def _image(image: ImagePart) -> str:
    source = canonical_json({"type": "base64", "media_type": image.media_type, "data": image.data})
    return f'{{"type":"image","source":{source}}}'


def _answer(parts: Iterable[AssistantPart], dialect: Dialect) -> list[str]:
    blocks: list[str] = []
    end = 0  # behind the last block that is no thinking, for the server refuses an answer that ends with some
    for part in parts:
        match part:
            case TextPart():
                block = _text(part.text) if part.text.strip() else ""
            case ReasoningPart():
                block = _thought(part, dialect.provider)
            case ToolCall():
                block = _call(part)
            case _:
                assert_never(part)
        if block:
            blocks.append(block)
            end = end if isinstance(part, ReasoningPart) else len(blocks)
    return blocks[:end]


def _thought(part: ReasoningPart, provider: str) -> str:
    state = own_state(part, provider) or ""
    if state.startswith(THINKING_MARK):
        seal = canonical_json(state.removeprefix(THINKING_MARK))
        return f'{{"type":"thinking","thinking":{canonical_json(part.text)},"signature":{seal}}}'
    if state.startswith(REDACTED_MARK):
        return f'{{"type":"redacted_thinking","data":{canonical_json(state.removeprefix(REDACTED_MARK))}}}'
    return ""


def _call(call: ToolCall) -> str:
    call_id, name = canonical_json(wire_id(call.id, _LONGEST_ID)), canonical_json(wire_name(call.name))
    return f'{{"type":"tool_use","id":{call_id},"name":{name},"input":{wire_arguments(call.arguments)}}}'

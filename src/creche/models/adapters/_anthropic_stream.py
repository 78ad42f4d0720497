"""From the events of Anthropic's messages to chunks.

Rule 1: what an event does not have may be absent, null or empty, and a kind of event or block that is not known is
left out. What has another type than the wire gives it is a `TypeError`, which whoever feeds the reader translates.
Rule 2: the answer is over with ``message_stop``, or with the body if a reason to stop has come.
Rule 3: the counts of tokens grow as the answer does, and each event says them anew.
"""

import json
from collections.abc import Callable, Mapping
from typing import cast

import attrs

from creche._util import canonical_json
from creche.errors import ModelError

from .._chunks import Chunk, Finished, FinishReason, ReasoningDelta, TextDelta, ToolCallDelta, UsageReported
from .._failures import failure_of_status
from .._request import Usage
from ._anthropic_wire import REDACTED_MARK, THINKING_MARK
from ._http import describe_error

_REASONS: Mapping[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool-calls",
    "max_tokens": "max-tokens",
    "model_context_window_exceeded": "max-tokens",
    "refusal": "refusal",
}
# Which kind of block a delta belongs to, where the block's own beginning is missing.
_BLOCK_OF_DELTA = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "tool_use",
}
_Object = dict[str, object]


@attrs.define(eq=False)
class _Block:
    """A block that is open."""

    kind: str
    call: int = 0
    """Which call it is."""
    signature: str = ""
    input: _Object = attrs.field(factory=dict[str, object])
    """The arguments that came with the beginning, for servers that send them whole."""
    has_arguments: bool = False


class MessagesReader:
    """Reads one answer.

    Args:
      error: Makes the error of a failure, given its code and a sentence.
      provider: Name of the provider, which signs reasoning.
    """

    def __init__(self, error: Callable[[str, str], ModelError], *, provider: str) -> None:
        self._error = error
        self._provider = provider
        self._blocks: dict[int | None, _Block] = {}
        self._calls = 0
        self._reason = ""
        self._counts: dict[str, int] = {}

    def feed(self, event: str, data: str) -> list[Chunk]:
        """Return the chunks of one event."""
        if not data:
            return []
        body = self._decode(data)
        kind = _text(body.get("type")) or event
        if kind.startswith("content_block_"):
            return self._read_block(kind, body)
        match kind:
            case "message_start":
                self._count(_object(_object(body.get("message")).get("usage")))
                return [UsageReported(self._usage())]
            case "message_delta":
                self._reason = _text(_object(body.get("delta")).get("stop_reason")) or self._reason
                self._count(_object(body.get("usage")))
            case "message_stop":
                return self._finish()
            case _:
                if kind == "error" or body.get("error"):
                    raise self._failed(body)
        return []

    def end(self) -> list[Chunk]:
        """Return what is left when the body has ended without ``message_stop``."""
        if not self._reason:
            raise self._error("stream-cut", "the answer ended before it was complete")
        return self._finish()

    def _decode(self, data: str) -> _Object:
        try:
            body = json.loads(data)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise self._error("malformed", f"the stream had {data[:100]!r}, which is no JSON object")
        return cast("_Object", body)

    def _failed(self, body: _Object) -> ModelError:
        kind, text = describe_error(body)
        text = text or canonical_json(body)
        return self._error(failure_of_status(0, text, kind=kind), f"in the middle of an answer: {text}")

    def _read_block(self, kind: str, body: _Object) -> list[Chunk]:
        index = body.get("index")
        place = index if isinstance(index, int) else None
        match kind:
            case "content_block_start":
                return self._begin(place, _object(body.get("content_block")))
            case "content_block_delta":
                return self._continue(place, _object(body.get("delta")))
            case "content_block_stop":
                return self._leave(place)
            case _:
                return []

    def _begin(self, place: int | None, said: _Object) -> list[Chunk]:
        chunks = self._leave(place)
        block = self._blocks[place] = self._open(_text(said.get("type")))
        match block.kind:
            case "text":
                chunks += _spoken(_text(said.get("text")))
            case "thinking":
                block.signature = _text(said.get("signature"))
                chunks += _thought(_text(said.get("thinking")))
            case "redacted_thinking":
                chunks += self._signed(REDACTED_MARK, _text(said.get("data")))
            case "tool_use":
                block.input = _object(said.get("input"))
                chunks.append(ToolCallDelta(block.call, id=_text(said.get("id")), name=_text(said.get("name"))))
            case _:
                pass  # such as a tool that the server runs itself
        return chunks

    def _open(self, kind: str) -> _Block:
        block = _Block(kind, self._calls)
        self._calls += kind == "tool_use"
        return block

    def _continue(self, place: int | None, delta: _Object) -> list[Chunk]:
        kind = _text(delta.get("type"))
        block = self._blocks.get(place)
        if block is None:
            block = self._blocks[place] = self._open(_BLOCK_OF_DELTA.get(kind, ""))
        match block.kind, kind:
            case "text", "text_delta":
                return _spoken(_text(delta.get("text")))
            case "thinking", "thinking_delta":
                return _thought(_text(delta.get("thinking")))
            case "thinking", "signature_delta":
                block.signature += _text(delta.get("signature"))
            case "tool_use", "input_json_delta":
                if arguments := _text(delta.get("partial_json")):
                    block.has_arguments = True
                    return [ToolCallDelta(block.call, arguments=arguments)]
            case _:
                pass  # such as a citation
        return []

    def _leave(self, place: int | None) -> list[Chunk]:
        block = self._blocks.pop(place, None)
        if block is None:
            return []
        if block.kind == "tool_use" and not block.has_arguments:
            return [ToolCallDelta(block.call, arguments=canonical_json(block.input))]
        return self._signed(THINKING_MARK, block.signature)

    def _signed(self, mark: str, state: str) -> list[Chunk]:
        return [ReasoningDelta("", signature=f"{self._provider}:{mark}{state}")] if state else []

    def _finish(self) -> list[Chunk]:
        reason = self._reason or "end_turn"
        if reason not in _REASONS:
            raise self._error("malformed", f"the answer ended with {reason!r}, which the protocol does not have")
        chunks = [chunk for place in list(self._blocks) for chunk in self._leave(place)]
        finish = _REASONS[reason]
        if finish in ("stop", "tool-calls"):
            finish = "tool-calls" if self._calls else "stop"  # servers disagree; the calls are there or not
        return [*chunks, Finished(finish, usage=self._usage())]

    def _count(self, usage: _Object) -> None:
        said = {**usage, **_object(usage.get("output_tokens_details"))}
        self._counts |= {name: count for name, count in said.items() if isinstance(count, int) and count > 0}

    def _usage(self) -> Usage:
        count = self._counts.get
        written, read = count("cache_creation_input_tokens", 0), count("cache_read_input_tokens", 0)
        return Usage(
            1,
            input_tokens=count("input_tokens", 0) + written + read,
            output_tokens=count("output_tokens", 0),
            cached_tokens=read,
            cache_write_tokens=written,
            reasoning_tokens=count("thinking_tokens", 0),
        )


def _spoken(text: str) -> list[Chunk]:
    return [TextDelta(text)] if text else []


def _thought(text: str) -> list[Chunk]:
    return [ReasoningDelta(text)] if text else []


def _object(value: object) -> _Object:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is no object")
    return cast("_Object", value)


def _text(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value

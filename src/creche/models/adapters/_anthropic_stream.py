"""From the events of Anthropic's messages to chunks.

Rule 1: what an event does not have may be absent, null or empty, and a kind of event or block that is not known is
left out. What has another type than the wire gives it is a `TypeError`, which whoever feeds the reader translates.
Rule 2: the answer is over with ``message_stop``, or with the body if a reason to stop has come.
Rule 3: the counts of tokens grow as the answer does, and each event says them anew.
"""

from collections.abc import Mapping

import attrs

from creche._util import canonical_json

from .._chunks import Chunk, Finished, FinishReason, ReasoningDelta, TextDelta, ToolCallDelta, UsageReported
from .._request import Usage
from ._anthropic_wire import REDACTED_MARK, THINKING_MARK
from ._reading import CUT, MakeError, Object, as_count, as_object, as_text, decode_event, failed_midway, finish_of
from ._wire import sign

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


@attrs.define(eq=False)
class _Block:
    """A block that is open."""

    kind: str
    call: int = 0
    """Which call it is."""
    signature: str = ""
    input: Object = attrs.field(factory=dict[str, object])
    """The arguments that came with the beginning, for servers that send them whole."""
    has_arguments: bool = False


class MessagesReader:
    """Reads one answer.

    Args:
      error: Makes the error of a failure.
      provider: Name of the provider, which signs reasoning.
    """

    def __init__(self, error: MakeError, *, provider: str) -> None:
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
        body = decode_event(data, self._error)
        kind = as_text(body.get("type")) or event
        if kind.startswith("content_block_"):
            return self._read_block(kind, body)
        match kind:
            case "message_start":
                self._count(as_object(as_object(body.get("message")).get("usage")))
                return [UsageReported(self._usage())]
            case "message_delta":
                self._reason = as_text(as_object(body.get("delta")).get("stop_reason")) or self._reason
                self._count(as_object(body.get("usage")))
            case "message_stop":
                return self._finish()
            case _:
                if kind == "error" or body.get("error"):
                    raise failed_midway(body, self._error)
        return []

    def end(self) -> list[Chunk]:
        """Return what is left when the body has ended without ``message_stop``."""
        if not self._reason:
            raise self._error("stream-cut", CUT)
        return self._finish()

    def _read_block(self, kind: str, body: Object) -> list[Chunk]:
        index = body.get("index")
        place = index if isinstance(index, int) else None
        match kind:
            case "content_block_start":
                return self._begin(place, as_object(body.get("content_block")))
            case "content_block_delta":
                return self._continue(place, as_object(body.get("delta")))
            case "content_block_stop":
                return self._leave(place)
            case _:
                return []

    def _begin(self, place: int | None, said: Object) -> list[Chunk]:
        chunks = self._leave(place)
        block = self._blocks[place] = self._open(as_text(said.get("type")))
        match block.kind:
            case "text":
                chunks += _spoken(as_text(said.get("text")))
            case "thinking":
                block.signature = as_text(said.get("signature"))
                chunks += _thought(as_text(said.get("thinking")))
            case "redacted_thinking":
                chunks += self._signed(REDACTED_MARK, as_text(said.get("data")))
            case "tool_use":
                block.input = as_object(said.get("input"))
                chunks.append(ToolCallDelta(block.call, id=as_text(said.get("id")), name=as_text(said.get("name"))))
            case _:
                pass  # such as a tool that the server runs itself
        return chunks

    def _open(self, kind: str) -> _Block:
        block = _Block(kind, self._calls)
        self._calls += kind == "tool_use"
        return block

    def _continue(self, place: int | None, delta: Object) -> list[Chunk]:
        kind = as_text(delta.get("type"))
        block = self._blocks.get(place)
        if block is None:
            block = self._blocks[place] = self._open(_BLOCK_OF_DELTA.get(kind, ""))
        match block.kind, kind:
            case "text", "text_delta":
                return _spoken(as_text(delta.get("text")))
            case "thinking", "thinking_delta":
                return _thought(as_text(delta.get("thinking")))
            case "thinking", "signature_delta":
                block.signature += as_text(delta.get("signature"))
            case "tool_use", "input_json_delta":
                if arguments := as_text(delta.get("partial_json")):
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
        return [ReasoningDelta("", signature=sign(self._provider, f"{mark}{state}"))] if state else []

    def _finish(self) -> list[Chunk]:
        finish = finish_of(self._reason or "end_turn", _REASONS, self._error, has_calls=self._calls > 0)
        chunks = [chunk for place in list(self._blocks) for chunk in self._leave(place)]
        return [*chunks, Finished(finish, usage=self._usage())]

    def _count(self, usage: Object) -> None:
        said = {**usage, **as_object(usage.get("output_tokens_details"))}
        self._counts |= {name: number for name, count in said.items() if (number := as_count(count))}

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

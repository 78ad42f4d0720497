"""The events of an answer on each of the two wires. Pure: nothing here waits or sends.

Rule: texts that follow each other are one block, also across a wait; a call or a signature is a block's end.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

import attrs

from creche._util import canonical_json
from creche.models import Call, FinishReason, Say, Usage

from ._mock_items import MockItem, Think, WireName

Event = dict[str, object]

_OPENAI_FINISH: Mapping[FinishReason, str] = {
    "stop": "stop",
    "tool-calls": "tool_calls",
    "max-tokens": "length",
    "refusal": "content_filter",
}
_ANTHROPIC_FINISH: Mapping[FinishReason, str] = {
    "stop": "end_turn",
    "tool-calls": "tool_use",
    "max-tokens": "max_tokens",
    "refusal": "refusal",
}


@attrs.frozen
class Spoken:
    """An answer to one request."""

    wire: WireName
    """On which wire."""
    asked: Mapping[str, Any] = attrs.field(kw_only=True)
    """The request's body."""
    number: int = attrs.field(kw_only=True)
    """Which request it was, from 1."""
    items: tuple[MockItem, ...] = attrs.field(kw_only=True)
    """What is answered."""
    call_ids: tuple[int, ...] = attrs.field(kw_only=True)
    """Numbers for the calls, one each."""

    @property
    def model(self) -> object:
        """The model that the request names."""
        return self.asked.get("model", "mock")

    @property
    def usage(self) -> Usage:
        """What the answer is said to cost."""
        given = [item.usage for item in self.items if isinstance(item, Say) and item.usage is not None]
        return given[-1] if given else Usage(1)

    @property
    def finish(self) -> FinishReason:
        """Why the answer is said to end."""
        given: FinishReason = "tool-calls" if any(isinstance(item, Call) for item in self.items) else "stop"
        for item in self.items:
            if isinstance(item, Say) and item.finish is not None:
                given = item.finish
        return given


def json_bytes(value: object) -> bytes:
    """Return the JSON of a value as a body has it."""
    try:
        return canonical_json(value).encode()
    except UnicodeEncodeError:
        # A lone surrogate: JSON has an escape for it, UTF-8 has nothing.
        return json.dumps(value, separators=(",", ":")).encode()


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


@attrs.define(eq=False)
class OpenAIWriter:
    """Chat completions."""

    _spoken: Spoken = attrs.field(alias="spoken")
    _calls: int = attrs.field(default=0, init=False)

    def start(self) -> Iterator[bytes]:
        """Yield the chunk that names the role."""
        yield self._chunk({"role": "assistant", "content": ""})

    def say(self, item: Say | Think | Call, /) -> Iterator[bytes]:
        """Yield one chunk a piece; for a call one with its name and two with its arguments."""
        if isinstance(item, Call):
            index, self._calls = self._calls, self._calls + 1
            yield self._chunk({"tool_calls": [{"index": index, **self._call(item, index, "")}]})
            for half in _halves(item.arguments):
                yield self._chunk({"tool_calls": [{"index": index, "function": {"arguments": half}}]})
            return
        field = "content" if isinstance(item, Say) else "reasoning_content"
        for piece in item.pieces:
            yield self._chunk({field: piece})

    def end(self) -> Iterator[bytes]:
        """Yield why it ended, the usage if the request asks for it, and the last line."""
        yield self._chunk({}, finish=_OPENAI_FINISH[self._spoken.finish])
        if self._with_usage:
            yield self.raw({**self._frame("chat.completion.chunk"), "choices": [], "usage": self._usage()})
        yield self.raw("[DONE]")

    def raw(self, event: Mapping[str, object] | str, /) -> bytes:
        """Return a line of data."""
        return b"data: " + (event.encode() if isinstance(event, str) else json_bytes(event)) + b"\n\n"

    def whole(self) -> Event:
        """Return a completion."""
        items = self._spoken.items
        texts = [piece for item in items if isinstance(item, Say) for piece in item.pieces]
        message: Event = {"role": "assistant", "content": "".join(texts) if texts else None, "refusal": None}
        if thoughts := [piece for item in items if isinstance(item, Think) for piece in item.pieces]:
            message["reasoning_content"] = "".join(thoughts)
        if calls := [item for item in items if isinstance(item, Call)]:
            message["tool_calls"] = [self._call(item, index, item.arguments) for index, item in enumerate(calls)]
        choice: Event = {"index": 0, "message": message, "finish_reason": _OPENAI_FINISH[self._spoken.finish]}
        return {**self._frame("chat.completion"), "choices": [choice], "usage": self._usage()}

    @property
    def _with_usage(self) -> bool:
        options = self._spoken.asked.get("stream_options")
        return isinstance(options, dict) and bool(cast("Mapping[str, object]", options).get("include_usage"))

    def _frame(self, kind: str) -> Event:
        return {"id": f"chatcmpl-{self._spoken.number}", "object": kind, "created": 0, "model": self._spoken.model}

    def _chunk(self, delta: Event, *, finish: str | None = None) -> bytes:
        choice: Event = {"index": 0, "delta": delta, "finish_reason": finish}
        usage: Event = {"usage": None} if self._with_usage else {}
        return self.raw({**self._frame("chat.completion.chunk"), "choices": [choice], **usage})

    def _call(self, item: Call, index: int, arguments: str) -> Event:
        function: Event = {"name": item.name, "arguments": arguments}
        return {"id": f"call_{self._spoken.call_ids[index]}", "type": "function", "function": function}

    def _usage(self) -> Event:
        usage = self._spoken.usage
        return {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        }


@attrs.define(eq=False)
class AnthropicWriter:
    """Messages."""

    _spoken: Spoken = attrs.field(alias="spoken")
    _calls: int = attrs.field(default=0, init=False)
    _blocks: int = attrs.field(default=0, init=False)
    _open: str = attrs.field(default="", init=False)

    def start(self) -> Iterator[bytes]:
        """Yield the message without its content."""
        usage: Event = {**self._usage(), "output_tokens": 0}
        del usage["output_tokens_details"]
        yield self.raw({"type": "message_start", "message": self._message([], None, usage)})

    def say(self, item: Say | Think | Call, /) -> Iterator[bytes]:
        """Yield one delta a piece, two for a call, in blocks."""
        if isinstance(item, Call):
            yield from self._enter("tool_use", {**self._tool_use(item, self._calls), "input": {}})
            self._calls += 1
            for half in _halves(item.arguments):
                yield self._delta({"type": "input_json_delta", "partial_json": half})
            yield from self._leave()
            return
        if isinstance(item, Say):
            for piece in item.pieces:
                yield from self._enter("text", {"type": "text", "text": ""})
                yield self._delta({"type": "text_delta", "text": piece})
            return
        yield from self._enter("thinking", {"type": "thinking", "thinking": "", "signature": ""})
        for piece in item.pieces:
            yield self._delta({"type": "thinking_delta", "thinking": piece})
        if item.signature is not None:
            yield self._delta({"type": "signature_delta", "signature": item.signature})
            yield from self._leave()

    def end(self) -> Iterator[bytes]:
        """Yield the end of the block, why the message ended and what it cost, and the last event."""
        yield from self._leave()
        delta: Event = {"stop_reason": _ANTHROPIC_FINISH[self._spoken.finish], "stop_sequence": None}
        yield self.raw({"type": "message_delta", "delta": delta, "usage": self._usage()})
        yield self.raw({"type": "message_stop"})

    def raw(self, event: Mapping[str, object] | str, /) -> bytes:
        """Return an event, named by its type; of a text, the line of data alone."""
        if isinstance(event, str):
            return b"data: " + event.encode() + b"\n\n"
        name = str(event.get("type", ""))
        return (f"event: {name}\n".encode() if name else b"") + b"data: " + json_bytes(event) + b"\n\n"

    def whole(self) -> Event:
        """Return a message."""
        content: list[Event] = []
        calls = 0
        for item in self._spoken.items:
            if isinstance(item, Say) and item.pieces:
                text = "".join(item.pieces)
                if content and content[-1]["type"] == "text":
                    text = f"{content.pop()['text']}{text}"
                content.append({"type": "text", "text": text})
            elif isinstance(item, Think):
                thinking: Event = {"thinking": "".join(item.pieces), "signature": item.signature or ""}
                content.append({"type": "thinking", **thinking})
            elif isinstance(item, Call):
                content.append({**self._tool_use(item, calls), "input": json.loads(item.arguments)})
                calls += 1
        return self._message(content, _ANTHROPIC_FINISH[self._spoken.finish], self._usage())

    def _message(self, content: list[Event], stop_reason: str | None, usage: Event) -> Event:
        return {
            "id": f"msg_{self._spoken.number}",
            "type": "message",
            "role": "assistant",
            "model": self._spoken.model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": usage,
        }

    def _tool_use(self, item: Call, index: int) -> Event:
        return {"type": "tool_use", "id": f"toolu_{self._spoken.call_ids[index]}", "name": item.name}

    def _usage(self) -> Event:
        usage = self._spoken.usage
        return {
            "input_tokens": max(usage.input_tokens - usage.cached_tokens, 0),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": usage.cached_tokens,
            "output_tokens": usage.output_tokens,
            "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
        }

    def _enter(self, kind: str, block: Event) -> Iterator[bytes]:
        if self._open != kind:
            yield from self._leave()
            self._open = kind
            yield self.raw({"type": "content_block_start", "index": self._blocks, "content_block": block})

    def _delta(self, delta: Event) -> bytes:
        return self.raw({"type": "content_block_delta", "index": self._blocks, "delta": delta})

    def _leave(self) -> Iterator[bytes]:
        if self._open:
            yield self.raw({"type": "content_block_stop", "index": self._blocks})
            self._open = ""
            self._blocks += 1


Writer = OpenAIWriter | AnthropicWriter
"""What writes one answer."""


def writer_of(spoken: Spoken) -> Writer:
    """Return what writes an answer on its wire."""
    return OpenAIWriter(spoken) if spoken.wire == "openai" else AnthropicWriter(spoken)

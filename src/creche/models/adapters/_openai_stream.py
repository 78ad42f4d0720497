"""From the events of a chat completion to chunks.

Rule 1: what a delta does not have may be absent, null or empty; a call may come without an index, an id, or a name of
its own in later deltas. Rule 2: the answer is over with ``[DONE]``, or with the body if a reason to finish has come.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from creche._util import canonical_json
from creche.errors import ModelError

from .._chunks import Chunk, Finished, FinishReason, ReasoningDelta, TextDelta, ToolCallDelta
from .._failures import failure_of_status
from .._request import Usage
from ._http import describe_error

DONE = "[DONE]"
_REASONS: Mapping[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "tool_calls": "tool-calls",
    "function_call": "tool-calls",
    "length": "max-tokens",
    "content_filter": "refusal",
}
_FAILED = {
    "insufficient_system_resource": "overloaded",
    "error": "server",
    "abort": "stream-cut",
}
"""Reasons to finish that are failures, by the providers that have them."""
_FIRST_STATUS = 400


class ChatReader:
    """Reads one answer.

    Args:
      error: Makes the error of a failure, given its code and a sentence.
      signature: What reasoning is signed with, so that it can be sent back; ``""`` for none.
    """

    def __init__(self, error: Callable[[str, str], ModelError], *, signature: str = "") -> None:
        self._error = error
        self._signature = signature
        self._is_reasoning = False
        self._is_refusal = False
        self._has_calls = False
        self._last_index = -1
        self._reason: str | None = None
        self._usage = Usage(1)

    def feed(self, event: str, data: str) -> list[Chunk]:
        """Return the chunks of one event."""
        if data == DONE:
            return [*self._end_of_reasoning(), self._finished()]
        if not data:
            return []
        body = self._decode(data)
        if body.get("error"):
            raise self._failed(body)
        usage = body.get("usage")
        if isinstance(usage, dict):
            self._usage = read_usage(cast("dict[str, Any]", usage))
        chunks: list[Chunk] = []
        for choice in body.get("choices") or ():
            if not choice.get("index"):  # more than one answer is never asked for
                self._read_choice(choice, chunks)
        return chunks

    def end(self) -> list[Chunk]:
        """Return what is left when the body has ended without ``[DONE]``, which not every server sends."""
        if self._reason is None:
            raise self._error("stream-cut", "the answer ended before it was complete")
        return [*self._end_of_reasoning(), self._finished()]

    def _decode(self, data: str) -> dict[str, Any]:
        try:
            body = json.loads(data)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise self._error("malformed", f"the stream had {data[:100]!r}, which is no JSON object")
        return cast("dict[str, Any]", body)

    def _failed(self, body: dict[str, Any]) -> ModelError:
        kind, text = describe_error(body)
        error: object = body["error"]
        code = cast("dict[str, object]", error).get("code") if isinstance(error, dict) else None
        status = code if isinstance(code, int) and code >= _FIRST_STATUS else 0
        text = text or (error if isinstance(error, str) else canonical_json(body["error"]))
        return self._error(failure_of_status(status, text, kind=kind), f"in the middle of an answer: {text}")

    def _read_choice(self, choice: dict[str, Any], chunks: list[Chunk]) -> None:
        delta: dict[str, Any] = choice.get("delta") or {}
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(reasoning, str) and reasoning:
            self._is_reasoning = True
            chunks.append(ReasoningDelta(reasoning))
        text = delta.get("content")
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._is_refusal = True
            text = (text or "") + refusal
        if text:
            chunks += self._end_of_reasoning()
            chunks.append(TextDelta(text if isinstance(text, str) else _joined(text)))
        for call in delta.get("tool_calls") or ():
            chunks += self._end_of_reasoning()
            chunks.append(self._read_call(call))
        self._reason = choice.get("finish_reason") or self._reason

    def _read_call(self, call: dict[str, Any]) -> ToolCallDelta:
        self._has_calls = True
        function: dict[str, Any] = call.get("function") or {}
        index, call_id = call.get("index"), call.get("id")
        if not isinstance(index, int):
            # Without an index another call begins with an id, or else where none has begun.
            index = self._last_index + 1 if call_id or self._last_index < 0 else self._last_index
        self._last_index = index
        arguments = function.get("arguments")
        return ToolCallDelta(
            index,
            id=call_id,
            name=function.get("name"),
            arguments=arguments if arguments is None or isinstance(arguments, str) else canonical_json(arguments),
        )

    def _end_of_reasoning(self) -> list[Chunk]:
        if not self._is_reasoning or not self._signature:
            return []
        self._is_reasoning = False
        return [ReasoningDelta("", signature=self._signature)]

    def _finished(self) -> Finished:
        reason = self._reason
        if reason in _FAILED:
            raise self._error(_FAILED[reason], f"the answer ended with {reason!r}")
        if reason is not None and reason not in _REASONS:
            raise self._error("malformed", f"the answer ended with {reason!r}, which the protocol does not have")
        finish = _REASONS[reason or "stop"]
        if self._is_refusal:
            finish = "refusal"
        elif finish in ("stop", "tool-calls"):
            finish = "tool-calls" if self._has_calls else "stop"  # servers disagree; the calls are there or not
        return Finished(finish, usage=self._usage)


def _joined(content: Any) -> str:
    """Return the text of content that came in parts."""
    parts = cast("list[dict[str, Any]]", content)
    return "".join([part.get("text") or "" for part in parts])


def read_usage(usage: dict[str, Any]) -> Usage:
    """Return what the provider says a request cost; what it does not say is zero."""
    read: dict[str, Any] = usage.get("prompt_tokens_details") or {}
    written: dict[str, Any] = usage.get("completion_tokens_details") or {}
    return Usage(
        1,
        input_tokens=_count(usage.get("prompt_tokens")),
        output_tokens=_count(usage.get("completion_tokens")),
        cached_tokens=_count(read.get("cached_tokens") or usage.get("prompt_cache_hit_tokens")),
        cache_write_tokens=_count(read.get("cache_write_tokens")),
        reasoning_tokens=_count(written.get("reasoning_tokens")),
    )


def _count(number: object) -> int:
    return number if isinstance(number, int) and number > 0 else 0

"""From the events of a chat completion to chunks.

Rule 1: what a delta does not have may be absent, null or empty; a call may come without an index, an id, or a name of
its own in later deltas. Rule 2: the answer is over with ``[DONE]``, or with the body if a reason to finish has come.
"""

from collections.abc import Mapping

from creche._util import canonical_json
from creche.errors import ModelError

from .._chunks import Chunk, Finished, FinishReason, ReasoningDelta, TextDelta, ToolCallDelta
from .._request import Usage
from ._reading import (
    CUT,
    MakeError,
    Object,
    as_count,
    as_list,
    as_object,
    as_text,
    decode_event,
    failed_midway,
    finish_of,
)

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


class ChatReader:
    """Reads one answer.

    Args:
      error: Makes the error of a failure.
      signature: What reasoning is signed with, so that it can be sent back; ``""`` for none.
    """

    def __init__(self, error: MakeError, *, signature: str = "") -> None:
        self._error = error
        self._signature = signature
        self._is_reasoning = False
        self._is_refusal = False
        self._has_calls = False
        self._last_index = -1
        self._reason = ""
        self._usage = Usage(1)

    def feed(self, event: str, data: str) -> list[Chunk]:
        """Return the chunks of one event."""
        if data == DONE:
            return [*self._end_of_reasoning(), self._finished()]
        if not data:
            return []
        body = decode_event(data, self._error)
        if body.get("error"):
            raise failed_midway(body, self._error)
        if body.get("usage") is not None:
            self._usage = read_usage(as_object(body["usage"]))
        chunks: list[Chunk] = []
        for each in as_list(body.get("choices")):
            choice = as_object(each)
            if not choice.get("index"):  # more than one answer is never asked for
                self._read_choice(choice, chunks)
        return chunks

    def end(self) -> list[Chunk]:
        """Return what is left when the body has ended without ``[DONE]``, which not every server sends."""
        if not self._reason:
            raise self._cut()
        return [*self._end_of_reasoning(), self._finished()]

    def _cut(self) -> ModelError:
        return self._error("stream-cut", CUT)

    def _read_choice(self, choice: Object, chunks: list[Chunk]) -> None:
        delta = as_object(choice.get("delta"))
        reasoning = as_text(delta.get("reasoning_content") or delta.get("reasoning"))
        if reasoning:
            self._is_reasoning = True
            chunks.append(ReasoningDelta(reasoning))
        text, refusal = _text_of(delta.get("content")), as_text(delta.get("refusal"))
        self._is_refusal = self._is_refusal or bool(refusal)
        if text or refusal:
            chunks += self._end_of_reasoning()
            chunks.append(TextDelta(text + refusal))
        for call in as_list(delta.get("tool_calls")):
            chunks += self._end_of_reasoning()
            chunks.append(self._read_call(as_object(call)))
        self._reason = as_text(choice.get("finish_reason")) or self._reason

    def _read_call(self, call: Object) -> ToolCallDelta:
        self._has_calls = True
        function = as_object(call.get("function"))
        index, call_id = call.get("index"), as_text(call.get("id"))
        if type(index) is not int or index < 0:
            # Without an index another call begins with an id, or else where none has begun.
            index = self._last_index + 1 if call_id or self._last_index < 0 else self._last_index
        self._last_index = index
        arguments: object = function.get("arguments")
        return ToolCallDelta(
            index,
            id=call_id,
            name=as_text(function.get("name")),
            arguments=as_text(arguments) if arguments is None or isinstance(arguments, str) else _json_of(arguments),
        )

    def _end_of_reasoning(self) -> list[Chunk]:
        if not self._is_reasoning or not self._signature:
            return []
        self._is_reasoning = False
        return [ReasoningDelta("", signature=self._signature)]

    def _finished(self) -> Finished:
        reason = self._reason or "stop"
        if reason in _FAILED:
            raise self._error(_FAILED[reason], f"the answer ended with {reason!r}")
        finish = finish_of(reason, _REASONS, self._error, has_calls=self._has_calls)
        return Finished("refusal" if self._is_refusal else finish, usage=self._usage)


def _json_of(arguments: object) -> str:
    """Return the text of arguments that a server sends as the object they are."""
    return canonical_json(as_object(arguments))


def _text_of(content: object) -> str:
    """Return the text of content, which some servers send in parts."""
    return (
        as_text(content)
        if isinstance(content, str)
        else "".join([as_text(as_object(part).get("text")) for part in as_list(content)])
    )


def read_usage(usage: Object) -> Usage:
    """Return what the provider says a request cost; what it does not say is zero."""
    read, written = as_object(usage.get("prompt_tokens_details")), as_object(usage.get("completion_tokens_details"))
    return Usage(
        1,
        input_tokens=as_count(usage.get("prompt_tokens")),
        output_tokens=as_count(usage.get("completion_tokens")),
        cached_tokens=as_count(read.get("cached_tokens")) or as_count(usage.get("prompt_cache_hit_tokens")),
        cache_write_tokens=as_count(read.get("cache_write_tokens")),
        reasoning_tokens=as_count(written.get("reasoning_tokens")),
    )

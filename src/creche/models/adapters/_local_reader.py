"""What llama.cpp's server says, as chunks: its events, and the JSON object of an answer that is held to a schema.

The object is read as it comes, so a reply streams like any other text although it stands in a JSON string: escapes and
halves of surrogate pairs may be split over deltas. A call's arguments are passed on as the JSON text they are.
"""

import json
from collections.abc import Callable, Generator
from typing import Any

from creche._util import clean_text
from creche.errors import ModelError

from .._chunks import Chunk, Delta, Finished, FinishReason, ReasoningDelta, TextDelta, ToolCallDelta, UsageReported
from .._failures import failure_of_status, provider_error
from .._request import Usage

_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HIGH_SURROGATES = ("\ud800", "\udbff")
_SPACES = " \t\r\n"

_Reading = Generator[None, str, None]


class LocalReader:
    """Makes chunks of the events of one answer.

    Args:
      provider: Name of the provider, for messages.
      structured: Whether the answer is the JSON object of `answer_schema` with tools, rather than text.
    """

    def __init__(self, provider: str, *, structured: bool) -> None:
        self._provider = provider
        self._object = ObjectReader() if structured else None
        self._reason: FinishReason = "stop"

    def feed(self, event: str) -> list[Chunk]:
        """Return the chunks of one event; the last of an answer is `Finished`.

        Raises:
          ModelError: The event is an error, or the answer has not the form it is held to.
        """
        data = json.loads(event)
        if "error" in data:
            raise self._refused(data["error"])
        chunks: list[Chunk] = []
        for choice in data.get("choices", ()):
            chunks += self._deltas(choice["delta"])
            if choice["finish_reason"] == "length":
                self._reason = "max-tokens"
        if progress := data.get("prompt_progress"):
            known = Usage(1, input_tokens=progress["total"], cached_tokens=progress["cache"])
            return [UsageReported(known), *chunks]
        if usage := data.get("usage"):
            called = self._object is not None and self._object.called
            reason = "tool-calls" if called and self._reason == "stop" else self._reason
            chunks.append(Finished(reason, usage=_usage(usage)))
        return chunks

    def error(self, code: str, text: str) -> ModelError:
        """Return an error that says who, what, and what to do about it."""
        return provider_error(self._provider, code, text)

    def _deltas(self, delta: dict[str, Any]) -> list[Delta]:
        if thought := delta.get("reasoning_content"):
            return [ReasoningDelta(thought)]
        text: str = delta.get("content") or ""
        if not text:
            return []
        if self._object is None:
            return [TextDelta(text)]
        try:
            return self._object.feed(text)
        except ValueError as error:
            raise self.error("malformed", f"the answer has not the form it is held to: {error}") from None

    def _refused(self, error: dict[str, Any]) -> ModelError:
        text: str = error.get("message", "")
        code = failure_of_status(error.get("code", 0), text)
        hint = "; LocalModel(context=...) makes it larger" if code == "context-overflow" else ""
        return self.error(code, f"{text}{hint}")


def _usage(usage: dict[str, Any]) -> Usage:
    return Usage(
        1,
        input_tokens=usage["prompt_tokens"],
        output_tokens=usage["completion_tokens"],
        cached_tokens=usage.get("prompt_tokens_details", {}).get("cached_tokens", 0),
    )


class ObjectReader:
    """Makes deltas of the text of ``{"reply": ...}`` or ``{"tool": NAME, "arguments": {...}}``, however it is cut.

    A reply is a string, of which the content is passed on, or an object, which is passed on as JSON text. A call has no
    id here, so it is given one where the answer is added up.
    """

    def __init__(self) -> None:
        self.called: bool = False
        """Whether the answer is a call, as far as is known."""
        self._pieces: list[str] = []
        self._complete = False
        self._out: list[Delta] = []
        self._reading = self._read()
        next(self._reading)

    def feed(self, text: str) -> list[Delta]:
        """Return the deltas of more text.

        Raises:
          ValueError: The text has not that form.
        """
        for character in text:
            self._reading.send(character)
        self._flush()
        deltas, self._out = self._out, []
        return deltas

    def _read(self) -> _Reading:
        _expect("{", (yield from self._solid()))
        key = yield from self._name()
        _expect(":", (yield from self._solid()))
        if key == "tool":
            name = yield from self._name()
            self._out.append(ToolCallDelta(0, name=clean_text(name)))
            self.called = True
            _expect(",", (yield from self._solid()))
            yield from self._name()
            _expect(":", (yield from self._solid()))
        first = yield from self._solid()
        if first == '"' and not self.called:
            yield from self._string(self._pieces.append)
        else:
            _expect("{", first)
            yield from self._value()
        self._complete = True
        while True:  # what closes the object says nothing
            yield

    def _solid(self) -> Generator[None, str, str]:
        """Return the next character that is not a space."""
        while (character := (yield)) in _SPACES:
            pass
        return character

    def _name(self) -> Generator[None, str, str]:
        _expect('"', (yield from self._solid()))
        characters: list[str] = []
        yield from self._string(characters.append)
        return "".join(characters)

    def _string(self, take: Callable[[str], None]) -> _Reading:
        """Read the rest of a string; each half of a surrogate pair is taken alone."""
        while (character := (yield)) != '"':
            if character != "\\":
                take(character)
                continue
            escape = yield
            if escape == "u":
                take(chr(int((yield) + (yield) + (yield) + (yield), 16)))
            else:
                take(_ESCAPES.get(escape, escape))

    def _value(self) -> _Reading:
        """Pass on the rest of an object as it is."""
        self._pieces.append("{")
        depth = 1
        in_string = escaped = False
        while depth:
            character = yield
            self._pieces.append(character)
            if in_string:
                in_string = escaped or character != '"'
                escaped = character == "\\" and not escaped
            elif character == '"':
                in_string = True
            else:
                depth += (character in "{[") - (character in "}]")

    def _flush(self) -> None:
        text = "".join(self._pieces)
        self._pieces.clear()
        if text and not self._complete and _HIGH_SURROGATES[0] <= text[-1] <= _HIGH_SURROGATES[1]:
            self._pieces.append(text[-1])  # the other half may come
            text = text[:-1]
        if text:
            text = clean_text(text)
            self._out.append(ToolCallDelta(0, arguments=text) if self.called else TextDelta(text))


def _expect(wanted: str, character: str) -> None:
    if character != wanted:
        raise ValueError(f"expected {wanted!r}, not {character!r}")

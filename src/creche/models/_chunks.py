"""What a model streams, and the answer it adds up to.

Rule 1: an adapter yields deltas in the order in which they came, then `Finished`, which is last. A failure
is a raised `ModelError`, never a chunk.
Rule 2: a call whose answer was cut off by ``max-tokens`` is dropped; half a call must not run.
Rule 3: what is kept in the log is the message and the stream in runs of equal kind; expanding the runs
gives back every delta.
"""

from collections.abc import Iterable, Iterator
from typing import Literal

import attrs

from creche.messages import AssistantMessage, AssistantPart, ReasoningPart, TextPart, ToolCall

from ._failures import model_error
from ._request import Usage

FinishReason = Literal["stop", "tool-calls", "max-tokens", "refusal"]


@attrs.frozen
class TextDelta:
    """More text of the answer."""

    text: str
    """The text."""


@attrs.frozen
class ReasoningDelta:
    """More of what the model thinks aloud."""

    text: str
    """The text."""
    signature: str | None = attrs.field(default=None, kw_only=True)
    """Provider-private state of the reasoning, when it comes."""


@attrs.frozen
class ToolCallDelta:
    """More of a tool call."""

    index: int
    """Which call of this answer, as the provider numbers them."""
    id: str = attrs.field(default="", kw_only=True)
    """The call's id, if this delta has it."""
    name: str = attrs.field(default="", kw_only=True)
    """The tool's name, if this delta has it."""
    arguments: str = attrs.field(default="", kw_only=True)
    """More of the arguments' JSON text."""


@attrs.frozen
class Finished:
    """The answer is complete."""

    reason: FinishReason = "stop"
    """Why it ended."""
    usage: Usage = attrs.field(factory=lambda: Usage(1), kw_only=True)
    """What the request cost."""


Delta = TextDelta | ReasoningDelta | ToolCallDelta
Chunk = TextDelta | ReasoningDelta | ToolCallDelta | Finished
"""What an adapter yields."""


@attrs.frozen
class StreamRun:
    """Deltas of one kind in a row, packed."""

    kind: Literal["text", "reasoning", "tool-call"]
    """Which kind of delta."""
    pieces: tuple[str, ...] = attrs.field(kw_only=True)
    """Their texts, or the pieces of the arguments."""
    index: int = attrs.field(default=0, kw_only=True)
    """Which call, for tool calls."""
    id: str = attrs.field(default="", kw_only=True)
    """The call's id, carried by the first delta of the run."""
    name: str = attrs.field(default="", kw_only=True)
    """The tool's name or the reasoning's signature, carried by the first delta of the run."""


def pack_stream(deltas: Iterable[Delta]) -> tuple[StreamRun, ...]:
    """Return the deltas as runs; `expand_stream` gives them back."""
    runs: list[StreamRun] = []
    pieces: list[str] = []
    head: tuple[Literal["text", "reasoning", "tool-call"], int, str, str] | None = None
    for delta in deltas:
        match delta:
            case TextDelta():
                kind, extra, piece = ("text", 0, "", ""), False, delta.text
            case ReasoningDelta():
                kind, extra, piece = ("reasoning", 0, "", delta.signature or ""), bool(delta.signature), delta.text
            case ToolCallDelta():
                kind, extra, piece = (
                    ("tool-call", delta.index, delta.id, delta.name),
                    bool(delta.id or delta.name),
                    delta.arguments,
                )
        if head is None or extra or head[:2] != kind[:2]:
            if head is not None:
                runs.append(StreamRun(head[0], pieces=tuple(pieces), index=head[1], id=head[2], name=head[3]))
            head, pieces = kind, []  # type: ignore[assignment]  # mypy widens the literals
        pieces.append(piece)
    if head is not None:
        runs.append(StreamRun(head[0], pieces=tuple(pieces), index=head[1], id=head[2], name=head[3]))
    return tuple(runs)


def expand_stream(runs: Iterable[StreamRun]) -> Iterator[Delta]:
    """Yield every delta of the packed runs, in order."""
    for run in runs:
        for number, piece in enumerate(run.pieces):
            first = number == 0
            match run.kind:
                case "text":
                    yield TextDelta(piece)
                case "reasoning":
                    yield ReasoningDelta(piece, signature=(run.name or None) if first else None)
                case "tool-call":
                    yield ToolCallDelta(
                        run.index, id=run.id if first else "", name=run.name if first else "", arguments=piece
                    )


@attrs.define(eq=False)
class _OpenCall:
    index: int
    id: str
    name: str = ""
    arguments: list[str] = attrs.field(factory=list)


@attrs.define(eq=False)
class Assembler:
    """Adds deltas up to one assistant message. Lives for one attempt."""

    deltas: list[Delta] = attrs.field(factory=list)
    """Every delta so far."""
    finished: Finished | None = None
    """How it ended, once it has."""
    _parts: list[TextPart | ReasoningPart | _OpenCall] = attrs.field(factory=list)
    _open: dict[int, _OpenCall] = attrs.field(factory=dict)
    _texts: list[str] = attrs.field(factory=list)
    _text_kind: str = ""
    _signature: str | None = None

    def feed(self, chunk: Chunk) -> None:
        """Take the next chunk.

        Raises:
          ModelError: A chunk came after the end.
        """
        if self.finished is not None:
            raise model_error("malformed", "the model streamed on after it had finished")
        match chunk:
            case TextDelta():
                self._say("text", chunk.text, None)
            case ReasoningDelta():
                self._say("reasoning", chunk.text, chunk.signature)
            case ToolCallDelta():
                self._call(chunk)
            case Finished():
                self.finished = chunk
                return
        self.deltas.append(chunk)

    def message(self, *, cut: bool = False) -> AssistantMessage:
        """Return what was said.

        Args:
          cut: The stream did not end by itself: calls and blank parts are left out.
        """
        self._close_text()
        without_calls = cut or (self.finished is not None and self.finished.reason == "max-tokens")
        parts: list[AssistantPart] = []
        taken: set[str] = set()
        for part in self._parts:
            if isinstance(part, _OpenCall):
                if not without_calls:
                    call_id = part.id if part.id and part.id not in taken else _free_id(part, taken)
                    taken.add(call_id)
                    parts.append(ToolCall(call_id, name=part.name, arguments="".join(part.arguments)))
            elif not cut or part.text.strip():
                parts.append(part)
        return AssistantMessage(tuple(parts))

    def stream(self) -> tuple[StreamRun, ...]:
        """Return the deltas, packed."""
        return pack_stream(self.deltas)

    def _say(self, kind: str, text: str, signature: str | None) -> None:
        if kind != self._text_kind:
            self._close_text()
            self._text_kind = kind
        self._texts.append(text)
        self._signature = signature or self._signature

    def _close_text(self) -> None:
        text = "".join(self._texts)
        if text or self._signature:
            is_text = self._text_kind == "text"
            self._parts.append(TextPart(text) if is_text else ReasoningPart(text, signature=self._signature))
        self._texts = []
        self._text_kind = ""
        self._signature = None

    def _call(self, delta: ToolCallDelta) -> None:
        self._close_text()
        call = self._open.get(delta.index)
        # Some providers number two calls alike; another id on the same index is another call.
        if call is None or (delta.id and call.id and delta.id != call.id):
            call = self._open[delta.index] = _OpenCall(delta.index, delta.id)
            self._parts.append(call)
        call.id = call.id or delta.id
        call.name = call.name or delta.name
        call.arguments.append(delta.arguments)


def _free_id(call: _OpenCall, taken: set[str]) -> str:
    number = call.index
    while (name := f"call-{number}") in taken:
        number += 1
    return name

"""What a model streams, and the answer it adds up to.

Rule 1: an adapter yields deltas in the order in which they came, then `Finished`, which is last. A failure
is a raised `ModelError`, never a chunk.
Rule 2: calls of an answer that was cut off, by ``max-tokens`` or by a refusal, are dropped; half a call must
not run.
Rule 3: what is kept in the log is the message and the stream in runs of equal kind; expanding the runs
gives back every delta.
Rule 4: the message depends on what was said, not on how it was cut into deltas.
Rule 5: a chunk refuses a field of a wrong type when it is made, so that an adapter's bug fails its own attempt
and does not spoil the log.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal, assert_never, get_args

import attrs

from creche._util import clean_text, is_a, is_none_or, is_one_of, is_text, is_tuple_of, is_whole, listed
from creche.messages import AssistantMessage, AssistantPart, ReasoningPart, TextPart, ToolCall

from ._failures import model_error
from ._request import Usage

FinishReason = Literal["stop", "tool-calls", "max-tokens", "refusal"]
"""Why an answer ended."""

ONE_REQUEST = Usage(1)

CUT_OFF: tuple[FinishReason, ...] = ("max-tokens", "refusal")
RunKind = Literal["text", "reasoning", "tool-call"]


def _or_empty(text: str | None) -> str:
    return "" if text is None else text


def _or_none(text: str | None) -> str | None:
    return None if text == "" else text


@attrs.frozen
class TextDelta:
    """More text of the answer."""

    text: str = attrs.field(validator=is_text)
    """The text."""


@attrs.frozen
class ReasoningDelta:
    """More of what the model thinks aloud."""

    text: str = attrs.field(validator=is_text)
    """The text."""
    signature: str | None = attrs.field(default=None, converter=_or_none, validator=is_none_or(is_text), kw_only=True)
    """Provider-private state of the reasoning; it ends a stretch of it, what follows is another one."""


@attrs.frozen
class ToolCallDelta:
    """More of a tool call. What a delta does not have may be ``None``, as many a wire has it, and is kept empty."""

    index: int = attrs.field(validator=is_whole)
    """Which call of this answer, as the provider numbers them."""
    id: str = attrs.field(default="", converter=_or_empty, validator=is_text, kw_only=True)
    """The call's id, if this delta has it."""
    name: str = attrs.field(default="", converter=_or_empty, validator=is_text, kw_only=True)
    """The tool's name, whole, if this delta has it."""
    arguments: str = attrs.field(default="", converter=_or_empty, validator=is_text, kw_only=True)
    """More of the arguments' JSON text."""


@attrs.frozen
class Finished:
    """The answer is complete."""

    reason: FinishReason = attrs.field(default="stop", validator=is_one_of(*get_args(FinishReason)))
    """Why it ended."""
    usage: Usage = attrs.field(factory=lambda: Usage(1), validator=is_a(Usage), kw_only=True)
    """What the request cost."""


@attrs.frozen
class UsageReported:
    """What the request costs as far as is known; `Finished` has the last word. It counts if the answer is cut."""

    usage: Usage = attrs.field(validator=is_a(Usage))
    """What it costs so far."""


Delta = TextDelta | ReasoningDelta | ToolCallDelta
"""A piece of an answer."""
Chunk = TextDelta | ReasoningDelta | ToolCallDelta | UsageReported | Finished
"""What an adapter yields."""


# ---------------------------------------------------------------- kept in runs


@attrs.frozen
class StreamRun:
    """Deltas of one kind in a row, packed."""

    kind: RunKind = attrs.field(validator=is_one_of(*get_args(RunKind)))
    """Which kind of delta."""
    pieces: tuple[str, ...] = attrs.field(converter=listed, validator=is_tuple_of(str, "texts"), kw_only=True)
    """Their texts, or the pieces of the arguments; two of them may have half of a character each."""
    index: int = attrs.field(default=0, validator=is_whole, kw_only=True)
    """Which call, for tool calls."""
    id: str = attrs.field(default="", validator=is_text, kw_only=True)
    """The call's id, carried by the first delta of the run."""
    name: str = attrs.field(default="", validator=is_text, kw_only=True)
    """The tool's name or the reasoning's signature, carried by the first delta of the run."""


def pack_stream(deltas: Iterable[Delta]) -> tuple[StreamRun, ...]:
    """Return the deltas as runs; `expand_stream` gives them back."""
    runs: list[StreamRun] = []
    head: tuple[RunKind, int, str, str] | None = None
    pieces: list[str] = []
    for delta in deltas:
        own, piece = _head_and_piece(delta)
        # What only the first delta of a run can carry begins another one.
        if head is None or own[2] or own[3] or own[:2] != head[:2]:
            if head is not None:
                runs.append(_run(head, pieces))
            head, pieces = own, []
        pieces.append(piece)
    if head is not None:
        runs.append(_run(head, pieces))
    return tuple(runs)


def _head_and_piece(delta: Delta) -> tuple[tuple[RunKind, int, str, str], str]:
    match delta:
        case TextDelta():
            return ("text", 0, "", ""), delta.text
        case ReasoningDelta():
            return ("reasoning", 0, "", delta.signature or ""), delta.text
        case ToolCallDelta():
            return ("tool-call", delta.index, delta.id, delta.name), delta.arguments
        case _:
            assert_never(delta)


def _run(head: tuple[RunKind, int, str, str], pieces: list[str]) -> StreamRun:
    kind, index, call_id, name = head
    return StreamRun(kind, pieces=pieces, index=index, id=call_id, name=name)


def expand_stream(runs: Iterable[StreamRun]) -> Iterator[Delta]:
    """Yield every delta of the packed runs, in order."""
    for run in runs:
        call_id, name = run.id, run.name
        for piece in run.pieces:
            match run.kind:
                case "text":
                    yield TextDelta(piece)
                case "reasoning":
                    yield ReasoningDelta(piece, signature=name)
                case "tool-call":
                    yield ToolCallDelta(run.index, id=call_id, name=name, arguments=piece)
                case _:
                    assert_never(run.kind)
            call_id = name = ""


# ---------------------------------------------------------------- added up


@attrs.define(eq=False)
class _Stretch:
    """Text or reasoning, as far as it has come."""

    kind: Literal["text", "reasoning"]
    pieces: list[str]
    signature: str | None = None

    def part(self) -> TextPart | ReasoningPart:
        text = "".join(self.pieces)
        return TextPart(text) if self.kind == "text" else ReasoningPart(text, signature=self.signature)


@attrs.define(eq=False)
class _OpenCall:
    """A tool call, as far as it has come."""

    index: int
    id: str
    name: str
    arguments: list[str]


@attrs.define(eq=False)
class Assembler:
    """Adds deltas up to one assistant message. Lives for one attempt.

    Args:
      taken: Ids of the calls in the history. No call of the answer gets one of them: many a provider counts its
        calls anew in each answer, others refuse a history in which an id stands twice.
    """

    deltas: list[Delta] = attrs.field(factory=list[Delta], init=False)
    """Every delta so far."""
    finished: Finished | None = attrs.field(default=None, init=False)
    """How it ended, once it has."""
    usage: Usage = attrs.field(default=ONE_REQUEST, init=False)
    """What it costs, as far as the provider has said."""
    _taken: Collection[str] = attrs.field(default=(), alias="taken", kw_only=True)
    _parts: list[_Stretch | _OpenCall] = attrs.field(factory=list[_Stretch | _OpenCall], init=False)
    _message: AssistantMessage | None = attrs.field(default=None, init=False)
    _open: dict[int, _OpenCall] = attrs.field(factory=dict[int, _OpenCall], init=False)

    def feed(self, chunk: Chunk) -> None:
        """Take the next chunk.

        Raises:
          ModelError: A chunk came after the end, or the answer ends with a call that names no tool.
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
            case UsageReported():
                self.usage = chunk.usage
                return
            case Finished():
                self._finish(chunk)
                return
            case _:
                assert_never(chunk)
        self.deltas.append(chunk)

    def message(self, *, cut: bool = False) -> AssistantMessage:
        """Return what was said.

        A call whose id is missing or in use is given one: ``call-`` and a number that is free.

        Args:
          cut: The stream did not end by itself: calls and blank parts are left out.
        """
        if cut or self.finished is None:
            return self._add_up(cut=cut, without_calls=cut)
        # Nothing comes after the end, so the message stays what it is.
        if self._message is None:
            self._message = self._add_up(cut=False, without_calls=self.finished.reason in CUT_OFF)
        return self._message

    def _add_up(self, *, cut: bool, without_calls: bool) -> AssistantMessage:
        calls = [] if without_calls else [part for part in self._parts if isinstance(part, _OpenCall)]
        ids = iter(_ids_of(calls, self._taken))
        parts: list[AssistantPart] = []
        for each in self._parts:
            if isinstance(each, _Stretch):
                part = each.part()
                if not cut or part.text.strip():
                    parts.append(part)
            elif not without_calls:
                parts.append(ToolCall(next(ids), name=each.name, arguments="".join(each.arguments)))
        return AssistantMessage(parts)

    def stream(self) -> tuple[StreamRun, ...]:
        """Return the deltas, packed."""
        return pack_stream(self.deltas)

    def _say(self, kind: Literal["text", "reasoning"], text: str, signature: str | None) -> None:
        if not text and not signature:
            return  # many a wire has an empty text in every chunk
        last = self._parts[-1] if self._parts else None
        if not isinstance(last, _Stretch) or last.kind != kind or last.signature is not None:
            last = _Stretch(kind, [])
            self._parts.append(last)
        last.pieces.append(text)
        last.signature = signature

    def _call(self, delta: ToolCallDelta) -> None:
        call = self._open.get(delta.index)
        if call is None or (delta.id and call.id and delta.id != call.id):
            call = self._open[delta.index] = self._other_call(delta, call)
        call.id = call.id or delta.id
        call.name = call.name or delta.name
        call.arguments.append(delta.arguments)

    def _other_call(self, delta: ToolCallDelta, current: _OpenCall | None) -> _OpenCall:
        """Return the call that a delta belongs to which is not, by its index and id, more of the current one."""
        if current is not None:
            # Some providers number two calls alike, and there another id is another call. Others make up an
            # id for each delta; but only the first delta of a call names the tool.
            for part in self._parts:
                if isinstance(part, _OpenCall) and part.index == delta.index and part.id == delta.id:
                    return part
            if not delta.name:
                return current
        call = _OpenCall(delta.index, delta.id, delta.name, [])
        self._parts.append(call)
        return call

    def _finish(self, chunk: Finished) -> None:
        self.finished = chunk
        self.usage = chunk.usage
        nameless = [part.index for part in self._parts if isinstance(part, _OpenCall) and not part.name]
        if nameless and chunk.reason not in CUT_OFF:
            raise model_error("malformed", f"the model's tool call {nameless[0]} does not say which tool")


def _ids_of(calls: Sequence[_OpenCall], taken: Collection[str]) -> list[str]:
    """Return the ids that the provider gave, once each, and made up ones where there is none."""
    given = [clean_text(call.id) for call in calls]
    ids: list[str] = []
    for call, own in zip(calls, given, strict=True):
        is_free = own and own not in ids and own not in taken
        ids.append(own if is_free else _free_id(len(taken) + call.index, (*ids, *given), taken))
    return ids


def _free_id(number: int, here: Sequence[str], taken: Collection[str]) -> str:
    while (made := f"call-{number}") in here or made in taken:
        number += 1
    return made

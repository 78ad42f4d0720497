"""What holds for any stream, any cutting of an answer, any request."""

import json
import re

import attrs
import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from creche.errors import ScriptExhaustedError
from creche.messages import (
    AssistantMessage,
    DeveloperMessage,
    ImagePart,
    ReasoningPart,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolSchema,
    UserMessage,
)
from creche.models import (
    Assembler,
    Finished,
    ModelOptions,
    ModelRequest,
    ReasoningDelta,
    RequestHead,
    ScriptedModel,
    Settings,
    TextDelta,
    ToolCallDelta,
    expand_stream,
    pack_stream,
    say,
)

SHORT = st.text('ab{"\\\n\ud83d\ude00é', max_size=3)
MAYBE = st.none() | SHORT
FILES = st.binary(max_size=3)

# ---------------------------------------------------------------- packing

DELTAS = st.lists(
    st.builds(TextDelta, SHORT)
    | st.builds(ReasoningDelta, SHORT, signature=MAYBE)
    | st.builds(ToolCallDelta, st.integers(0, 2), id=MAYBE, name=MAYBE, arguments=MAYBE),
    max_size=12,
)


@given(DELTAS)
def test_expanding_packed_deltas_gives_back_every_delta(deltas):
    runs = pack_stream(deltas)
    assert list(expand_stream(runs)) == deltas
    assert pack_stream(expand_stream(runs)) == runs


@given(DELTAS)
def test_runs_are_as_few_as_can_be(deltas):
    """Rule: a run ends where the kind or the call changes, or a delta has what only a first one can carry."""

    def key(delta):
        return type(delta), getattr(delta, "index", 0)

    def carries(delta):
        return any(getattr(delta, name, "") for name in ("id", "name", "signature"))

    breaks = [
        number
        for number, delta in enumerate(deltas)
        if number == 0 or key(delta) != key(deltas[number - 1]) or carries(delta)
    ]
    assert len(pack_stream(deltas)) == len(breaks)
    assert sum(len(run.pieces) for run in pack_stream(deltas)) == len(deltas)


# ---------------------------------------------------------------- the answer


@st.composite
def answers(draw):
    """Draw the parts of an answer: no two in a row of which one would be the other's rest."""
    parts = []
    for number in range(draw(st.integers(0, 7))):
        kind = draw(st.sampled_from(["text", "reasoning", "reasoning", "call", "call"]))
        text = draw(SHORT)
        last = parts[-1] if parts else None
        if kind == "call":
            # Some wires give no ids, and some give one twice.
            call_id = draw(st.sampled_from(["", "", "id", "call-0", "call-1", "call-2"]))
            parts.append(ToolCall(call_id, name=f"tool {number}", arguments=text))
        elif kind == "text" and text and not isinstance(last, TextDelta):
            parts.append(TextDelta(text))
        elif kind == "reasoning":
            signature = draw(st.sampled_from([None, f"signature {number}"]))
            joins = isinstance(last, ReasoningDelta) and last.signature is None
            if (text or signature) and not joins:
                parts.append(ReasoningDelta(text, signature=signature))
    return parts


def cut(draw, text):
    """Draw a way to cut a text into pieces, some of which may be empty."""
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


class Wire:
    """Deltas that add up to some parts: cut anywhere, the rests of calls anywhere after their beginnings."""

    def __init__(self, draw):
        self.draw = draw
        self.stream = []
        self.rests = []
        self.index = 0

    def send(self, part):
        if isinstance(part, ToolCall):
            first, *rest = cut_call(self.draw, part, self.index)
            self.index += 1
            self.stream.append(first)
            self.rests += [rest] if rest else []
        else:
            *pieces, last = cut(self.draw, part.text)
            for piece in pieces:
                self.stream.append(attrs.evolve(part, text=piece, **unsigned(part)))
                self.send_others()
            self.stream.append(attrs.evolve(part, text=last))
        self.send_others()

    def send_others(self):
        """Send what may come in between: the rest of a call, or an empty text, which says nothing."""
        for other in self.draw(st.lists(st.sampled_from(["rest", "text", "reasoning"]), max_size=2)):
            if other == "rest":
                self.send_rest()
            else:
                self.stream.append(TextDelta("") if other == "text" else ReasoningDelta(""))

    def send_rest(self):
        if self.rests:
            rest = self.draw(st.sampled_from(self.rests))
            self.stream.append(rest.pop(0))
            if not rest:
                self.rests.remove(rest)


def unsigned(part):
    return {"signature": None} if isinstance(part, ReasoningDelta) else {}


@st.composite
def streams(draw, parts):
    wire = Wire(draw)
    for part in parts:
        wire.send(part)
    while wire.rests:
        wire.send_rest()
    return wire.stream


def cut_call(draw, part, index):
    pieces = cut(draw, part.arguments)
    first = ToolCallDelta(index, id=part.id, name=part.name, arguments=pieces[0])
    every = draw(st.booleans())
    rest = [ToolCallDelta(index, id=part.id if every else None, arguments=piece) for piece in pieces[1:]]
    if draw(st.booleans()):
        # The id and the name come late, in deltas of their own.
        late = [ToolCallDelta(index, id=part.id), ToolCallDelta(index, name=part.name)]
        return [ToolCallDelta(index, arguments=pieces[0]), *draw(st.permutations(late)), *rest]
    return [first, *rest]


def expected_parts(parts):
    given = [part.id for part in parts if isinstance(part, ToolCall)]
    taken, index, made = set(), 0, []
    for part in parts:
        match part:
            case TextDelta():
                made.append(TextPart(part.text))
            case ReasoningDelta():
                made.append(ReasoningPart(part.text, signature=part.signature))
            case ToolCall():
                call_id = part.id
                if not call_id or call_id in taken:
                    call_id = next(
                        name for n in range(index, 99) if (name := f"call-{n}") not in taken and name not in given
                    )
                taken.add(call_id)
                index += 1
                made.append(attrs.evolve(part, id=call_id))
    return made


@given(st.data())
def test_an_answer_is_the_same_message_however_it_is_cut(data):
    """Rule: the message depends on what was said, not on how it was cut into deltas."""
    parts = data.draw(answers())
    stream = data.draw(streams(parts))
    answer = Assembler()
    for delta in stream:
        answer.feed(delta)
    early = answer.message()
    answer.feed(Finished())
    assert list(answer.message().parts) == expected_parts(parts)
    assert answer.message() == early
    assert list(expand_stream(answer.stream())) == stream
    again = Assembler()
    for delta in expand_stream(answer.stream()):
        again.feed(delta)
    assert again.message() == answer.message()


@given(st.data())
def test_calls_that_a_wire_numbers_alike_are_told_apart_by_their_ids(data):
    calls = [ToolCall(f"id-{number}", name="tool", arguments=data.draw(SHORT)) for number in range(3)]
    rests = []
    for call in calls:
        pieces = cut(data.draw, call.arguments)
        rests.append(
            [ToolCallDelta(0, id=call.id, name=call.name, arguments=pieces[0])]
            + [ToolCallDelta(0, id=call.id, arguments=piece) for piece in pieces[1:]]
        )
    answer = Assembler()
    firsts = [rest.pop(0) for rest in rests]
    for delta in [*firsts, *data.draw(st.permutations([delta for rest in rests for delta in rest[:1]]))]:
        answer.feed(delta)
    for rest in rests:
        for delta in rest[1:]:
            answer.feed(delta)
    assert list(answer.message().parts) == calls


@given(DELTAS)
def test_any_deltas_give_an_answer_whose_calls_have_ids_of_their_own(deltas):
    """Rule: the log refuses an answer with two calls of one id."""
    answer = Assembler()
    for delta in deltas:
        answer.feed(delta)
    ids = [call.id for call in answer.message().tool_calls]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    assert answer.message(cut=True).tool_calls == ()
    answer.message().encoded.encode()


# ---------------------------------------------------------------- canonical bytes

PARTS = st.lists(st.builds(TextPart, SHORT) | st.builds(ImagePart, FILES, media_type=SHORT), max_size=2)
SAID = st.lists(
    st.builds(TextPart, SHORT)
    | st.builds(ReasoningPart, SHORT, signature=MAYBE)
    | st.builds(ToolCall, SHORT, name=SHORT, arguments=SHORT),
    max_size=2,
)
NAMES = st.lists(SHORT, max_size=2)
MESSAGES = st.lists(
    st.builds(SystemMessage, SHORT)
    | st.builds(UserMessage, PARTS, source=st.sampled_from(["user", "agent"]))
    | st.builds(AssistantMessage, SAID)
    | st.builds(ToolMessage, SHORT, name=SHORT, parts=PARTS, is_error=st.booleans())
    | st.builds(DeveloperMessage, NAMES, removals=NAMES),
    max_size=3,
)
PARAMETERS = st.dictionaries(SHORT, st.none() | st.booleans() | SHORT, max_size=2)
SCHEMAS = st.builds(ToolSchema, SHORT, description=SHORT, parameters=PARAMETERS)
NUMBERS = st.none() | st.sampled_from([0, 1, 0.0, -0.0, 1.0, 0.5, True, False])
SHARES = st.none() | st.sampled_from([1, 1.0, 0.5, True])
OPTIONS = st.builds(
    ModelOptions,
    MAYBE,
    max_tokens=st.none() | st.sampled_from([1, True, 2]),
    temperature=NUMBERS,
    top_p=SHARES,
    seed=st.none() | st.sampled_from([0, False]),
    stop=NAMES,
    tool_choice=MAYBE,
)
HEADS = st.builds(
    RequestHead,
    st.builds(Settings, SHORT, model=SHORT, options=OPTIONS),
    tools=st.lists(SCHEMAS, max_size=2),
    defaults=NAMES,
)
REQUESTS = st.builds(ModelRequest, HEADS, messages=MESSAGES, agent_path=SHORT, session_id=SHORT)


def told(request):
    """Return what a model is told by a request, as values."""
    messages = [
        attrs.evolve(each, source="user") if isinstance(each, UserMessage) else each for each in request.messages
    ]
    return request.settings, request.tools, messages


FIELDS = {
    SystemMessage: {"text": SHORT},
    UserMessage: {"parts": PARTS, "source": st.sampled_from(["user", "agent"])},
    AssistantMessage: {"parts": SAID},
    ToolMessage: {"call_id": SHORT, "name": SHORT, "parts": PARTS, "is_error": st.booleans()},
    DeveloperMessage: {"additions": NAMES, "removals": NAMES},
    TextPart: {"text": SHORT},
    ImagePart: {"data": FILES, "media_type": SHORT},
    ReasoningPart: {"text": SHORT, "signature": MAYBE},
    ToolCall: {"id": SHORT, "name": SHORT, "arguments": SHORT},
    ToolSchema: {"name": SHORT, "description": SHORT, "parameters": PARAMETERS},
    Settings: {"provider": SHORT, "model": SHORT},
    ModelOptions: {
        "effort": MAYBE,
        "max_tokens": st.sampled_from([None, 1, True, 2]),
        "temperature": NUMBERS,
        "top_p": SHARES,
        "seed": st.sampled_from([None, 0, False, 1]),
        "stop": NAMES,
        "tool_choice": MAYBE,
    },
}


def asking(value):
    """Return a request that has this value in it."""
    head, messages = RequestHead(Settings("p", model="m")), [SystemMessage("")]
    match value:
        case Settings():
            head = RequestHead(value)
        case ModelOptions():
            head = RequestHead(Settings("p", model="m", options=value))
        case ToolSchema():
            head = attrs.evolve(head, tools=[value])
        case ImagePart():
            messages.append(UserMessage([value]))
        case TextPart() | ReasoningPart() | ToolCall():
            messages.append(AssistantMessage([value]))
        case _:
            messages.append(value)
    return ModelRequest(head, messages=messages)


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, fields in FIELDS.items() for name in fields])
@given(data=st.data())
@settings(max_examples=30)
def test_bytes_are_equal_exactly_if_what_a_model_is_told_is(kind, name, data):
    """Rule: equality of requests is defined on canonical bytes. Two that differ in one field at most are compared."""
    values = {each: data.draw(strategy) for each, strategy in FIELDS[kind].items()}
    one, other = asking(kind(**values)), asking(kind(**values | {name: data.draw(FIELDS[kind][name])}))
    assert (one.canonical_bytes() == other.canonical_bytes()) == (told(one) == told(other))


@given(REQUESTS, REQUESTS)
def test_bytes_tell_any_two_requests_apart(one, other):
    assert (one.canonical_bytes() == other.canonical_bytes()) == (told(one) == told(other))
    same = ModelRequest(attrs.evolve(one.head, defaults=[]), messages=[attrs.evolve(each) for each in one.messages])
    assert same.canonical_bytes() == one.canonical_bytes()


@given(REQUESTS, MESSAGES)
def test_appended_messages_leave_the_bytes_before_them_alone(request, more):
    longer = ModelRequest(request.head, messages=[*request.messages, *more])
    before, after = request.canonical_bytes(), longer.canonical_bytes()
    assert after.startswith(before)
    assert (before == after) == (not more)
    assert after.count(b"\n") == 2 + len(longer.messages)


@given(REQUESTS)
def test_each_line_is_canonical_json(request):
    """Rule: one JSON line of settings, one of tools, one a message, keys in declared order, no spaces."""
    *lines, end = request.canonical_bytes().decode().split("\n")
    assert end == ""
    for line in lines:
        assert json.dumps(json.loads(line), ensure_ascii=False, separators=(",", ":")) == line


# ---------------------------------------------------------------- scripts

SEGMENTS = st.lists(st.sampled_from(["a", "b", "*", "**"]), min_size=1, max_size=4)
PATHS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4).map("/".join)


def as_expression(pattern):
    """Return a regular expression for a path each of whose segments ends with a slash."""
    pieces = {"*": "[^/]*/", "**": "(?:[^/]*/)*"}
    return "".join([pieces.get(segment, f"{segment}/") for segment in pattern])


@given(st.lists(SEGMENTS, min_size=1, max_size=5, unique_by=tuple), PATHS)
def test_the_most_specific_of_the_patterns_that_match_answers(patterns, path):
    model = ScriptedModel({"/".join(pattern): [say("/".join(pattern))] for pattern in patterns})
    matching = [pattern for pattern in patterns if re.fullmatch(as_expression(pattern), f"{path}/")]

    def weight(pattern):
        literals = sum("*" not in segment for segment in pattern)
        return literals, pattern.count("*"), -pattern.count("**")

    answer = said(model, path)
    assert answer == ("/".join(max(matching, key=weight)) if matching else None)


def said(model, path):
    request = ModelRequest(RequestHead(Settings("p", model="m")), messages=(), agent_path=path)
    try:
        model._next(request).send(None)
    except ScriptExhaustedError:
        return None
    except StopIteration as stopped:
        return stopped.value[0].pieces[0]
    raise AssertionError("a scripted item does not wait")

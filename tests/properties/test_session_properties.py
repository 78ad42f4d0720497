"""Laws of the log, over random legal runs with replacements, forks and attempts at the illegal."""

import tempfile
from pathlib import Path
from types import UnionType
from typing import Literal, Union, get_args, get_origin

import attrs
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from creche.errors import IllegalRecordError
from creche.messages import (
    AssistantMessage,
    DeveloperMessage,
    ImagePart,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolSchema,
    UserMessage,
)
from creche.models import ModelOptions, ModelRequest, RequestHead, Settings, Usage
from creche.session import (
    CONTEXT_SOURCE,
    FORMAT_LINE,
    KINDS,
    AssistantSaid,
    AttemptFailed,
    HeaderWritten,
    MessageAccepted,
    MessagesClaimed,
    Record,
    RetryPlanned,
    RouteNoted,
    SessionForked,
    SessionHeader,
    SessionLog,
    SessionRecord,
    SnapshotState,
    StepEnded,
    StepStarted,
    SubagentStarted,
    SystemSaid,
    ToolCalled,
    ToolReturned,
    ToolsChanged,
    TurnEnded,
    TurnStarted,
    UserSaid,
    decode_line,
    encode_header,
    encode_record,
    fold_surface,
    load_sessions,
    rebuild_request,
)

# ---------------------------------------------------------------- the codec


COUNTS = st.integers(0, 2**63 - 1)
# Fields that take less than their type.
SPECIAL = {
    ModelOptions: {
        "output_schema": st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
        "max_tokens": st.none() | st.integers(1, 2**63 - 1),
        "temperature": st.none() | st.floats(0, 1e300),
        "top_p": st.none() | st.floats(0, 1, exclude_min=True),
    },
    ImagePart: {"data": st.binary(max_size=9)},
}


def values_of(kind):
    """Return a strategy for values of a type, with every field of every class drawn."""
    if kind is ToolSchema:
        texts = st.text(max_size=5)
        return st.builds(kind, texts, description=texts, parameters=st.dictionaries(texts, texts, max_size=3))
    if attrs.has(kind):
        special = SPECIAL.get(kind, {})
        fields = {
            field.alias: COUNTS
            if kind is Usage
            else special[field.name]
            if field.name in special
            else values_of(field.type)
            for field in attrs.fields(kind)
        }
        return st.builds(kind, **fields)
    if get_origin(kind) is tuple:
        return st.lists(values_of(get_args(kind)[0]), max_size=3).map(tuple)
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if get_origin(kind) in {Union, UnionType}:
        return st.one_of([values_of(each) for each in get_args(kind)])
    return {
        str: st.text(max_size=20),
        int: st.integers(-(2**63), 2**63 - 1),
        float: st.floats(allow_nan=False, allow_infinity=False),
        bool: st.booleans(),
        type(None): st.none(),
    }[kind]


@st.composite
def stored_records(draw):
    kind = draw(st.sampled_from(sorted(KINDS)))
    numbers = st.integers(min_value=0)
    return Record(
        draw(numbers),
        kind=kind,
        data=draw(values_of(KINDS[kind].fact)),
        turn=draw(numbers),
        step=draw(numbers),
        time=draw(values_of(float)),
        shadows=draw(st.lists(numbers, max_size=3).map(tuple)),
    )


@given(st.text(), stored_records())
def test_any_record_reads_back_equal_from_one_line(session_id, record):
    """Law: decode(encode(x)) == x, and a line is one line."""
    line = encode_record(session_id, record)
    assert decode_line(line) == SessionRecord(session_id, record=record)
    assert line.count(b"\n") == 1


@given(values_of(SessionHeader))
def test_any_header_reads_back_equal_from_one_line(header):
    line = encode_header(header)
    assert decode_line(line) == header
    assert line.count(b"\n") == 1


# ---------------------------------------------------------------- the log

WORDS = st.sampled_from(["", "a", "b", "🐢 c"])


def head_of(name):
    return RequestHead(Settings("p", model="m"), tools=[ToolSchema(name, description="", parameters="{}")])


def legal_facts(log):
    """Return a strategy for what may be appended now, going by the documented phases and not by the log's table."""
    aside = [
        WORDS.map(lambda text: MessageAccepted("d", lane="next-turn", message=UserMessage(text))),
        st.just(SubagentStarted("x", session_id="x", provider="spawn")),
    ]
    if log.phase == "idle":
        onward = [st.just(TurnStarted())]
    elif log.phase == "turn":
        aside.append(st.just(MessagesClaimed(("d",))))
        onward = [st.just(StepStarted()), st.just(StepStarted()), st.just(TurnEnded("completed"))]
    elif log.phase == "step":
        onward, more = facts_of_a_step(log)
        aside += more
    else:
        onward = facts_of_an_answer(log)
    # Runs shall get somewhere: four of five facts lead on.
    return st.sampled_from([*onward * (4 * len(aside) // len(onward) + 1), *aside]).flatmap(lambda chosen: chosen)


def facts_of_a_step(log):
    # The same few ids in every step: what is settled in one must not settle anything in another.
    calls = st.lists(st.sampled_from(["c1", "c2", "c3"]), unique=True, max_size=3)
    usage = st.builds(Usage, st.just(1), input_tokens=st.integers(0, 9))
    header = st.sampled_from(["t", "u"]).map(lambda name: HeaderWritten(head_of(name), reason="change"))
    sent = [
        st.builds(lambda text, ids, usage: AssistantSaid(answer_of(text, ids), usage=usage), WORDS, calls, usage),
        st.builds(lambda usage: AttemptFailed("lost", code="transport", usage=usage), usage),
    ]
    said = [
        WORDS.map(lambda text: SystemSaid(SystemMessage(text))),
        st.builds(lambda text, source: UserSaid(UserMessage(text, source=source)), WORDS, SOURCES),
    ]
    rest = [
        header,
        st.just(RouteNoted("p", model="m")),
        st.just(ToolsChanged(DeveloperMessage(("t",)))),
        st.just(RetryPlanned(1, delay=0.5)),
        st.just(StepEnded()),
    ]
    # Nothing is sent before there is a header.
    return [*said, *(sent if log.last_header else [header])], rest


def answer_of(text, ids):
    said = [TextPart(text)] if text else []
    return AssistantMessage([*said, *[ToolCall(each, name="t", arguments="") for each in ids]])


def facts_of_an_answer(log):
    recorded = {record.data.call_id for record in log.records("tool/call") if (record.turn, record.step) == now(log)}
    return [
        *[st.just(ToolCalled(call, name="t", arguments="")) for call in log.unanswered if call not in recorded],
        *[st.builds(result_of, st.just(call), WORDS) for call in log.unanswered],
        *([] if log.unanswered else [st.just(StepEnded())]),
    ]


def result_of(call, text):
    return ToolReturned(ToolMessage(call, name="t", parts=text))


SOURCES = st.sampled_from(["user", CONTEXT_SOURCE])


def now(log):
    last = list(log.records())[-1]
    return last.turn, last.step


def naive_surface(records):
    nodes = []
    for record in records:
        if record.shadows:
            places = [place for place, node in enumerate(nodes) if node.seq in record.shadows]
            assert [nodes[place].seq for place in places] == list(record.shadows)
            nodes[places[0] : places[-1] + 1] = [record]
        elif isinstance(record.data, SystemSaid | UserSaid | AssistantSaid | ToolReturned | ToolsChanged):
            nodes.append(record)
    return nodes


def naive_messages(nodes):
    messages = [node.data.message for node in nodes]
    silent = [SystemMessage(""), AssistantMessage(())]
    return [message for message in messages if message not in silent]


def naive_snapshot(records):
    state = SnapshotState()
    for record in records:
        if isinstance(record.data, UserSaid) and record.data.message.source == CONTEXT_SOURCE:
            state = SnapshotState(existed=True, seq=record.seq, text=record.data.message.text)
        elif state.seq in record.shadows:
            state = SnapshotState(existed=True)
    return state


def naive_numbers(records):
    """Return turn and step of each record, counted by hand; a fork's own first record stands outside of both."""
    turn = step = open_turn = open_step = 0
    numbers = []
    for record in records:
        if isinstance(record.data, TurnStarted):
            turn, open_turn, step = turn + 1, turn + 1, 0
        if isinstance(record.data, StepStarted):
            step, open_step = step + 1, step + 1
        numbers.append((open_turn, open_step))
        if isinstance(record.data, StepEnded):
            open_step = 0
        if isinstance(record.data, TurnEnded):
            open_turn = 0
    return numbers


@attrs.define(eq=False)
class World:
    """A log, and what was seen of it."""

    log: SessionLog
    views: list = attrs.field(factory=list)
    sent: list = attrs.field(factory=list)
    checked: int = 0

    def look(self):
        for view in (self.log.records(), self.log.surface(), self.log.derive_messages()):
            self.views.append((view, list(view)))

    def append(self, fact, replace=None):
        if isinstance(fact, AssistantSaid | AttemptFailed) and replace is None:
            request = ModelRequest(self.log.last_header.head, messages=self.log.derive_messages())
            self.sent.append((now(self.log), request.canonical_bytes()))
        self.log.append(fact, replace=replace)


class Sessions(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.lines = [FORMAT_LINE]
        self.worlds = []
        self.begin(SessionLog(SessionHeader("s0", path="root", created=0.0)))

    def begin(self, log):
        self.worlds.append(World(log))
        self.lines.append(encode_header(log.header))
        log.attach(publish=None, write=lambda *line: self.lines.append(encode_record(*line)))

    @rule(data=st.data())
    def append(self, data):
        world = data.draw(st.sampled_from(self.worlds))
        world.look()
        for _ in range(data.draw(st.integers(1, 10))):
            world.append(data.draw(legal_facts(world.log)))

    @rule(data=st.data())
    def try_anything(self, data):
        world = data.draw(st.sampled_from(self.worlds))
        other = data.draw(st.sampled_from(self.worlds))
        fact = data.draw(legal_facts(other.log) | st.just(SessionForked("s0", boundary=1)))
        if isinstance(fact, AssistantSaid | AttemptFailed) and not world.log.last_header:
            return
        before = list(world.log.records()), world.log.phase, world.log.unanswered, world.log.usage
        lines, sent = len(self.lines), len(world.sent)
        try:
            world.append(fact)
        except IllegalRecordError:
            after = list(world.log.records()), world.log.phase, world.log.unanswered, world.log.usage
            assert after == before
            assert len(self.lines) == lines
            del world.sent[sent:]

    @precondition(lambda self: any(world.log.phase != "idle" and world.log.surface() for world in self.worlds))
    @rule(data=st.data())
    def replace(self, data):
        able = [world for world in self.worlds if world.log.phase != "idle" and world.log.surface()]
        world = data.draw(st.sampled_from(able))
        world.look()
        places = st.integers(0, len(world.log.surface()) - 1)
        first, last = sorted([data.draw(places), data.draw(places)])
        nodes = world.log.surface()[first : last + 1]
        fact = data.draw(
            st.sampled_from([UserSaid(UserMessage("short")), SystemSaid(SystemMessage("")), *shortened(nodes)])
        )
        protected = first == 0 and isinstance(nodes[0].data, SystemSaid)
        span = (nodes[0].seq, nodes[-1].seq)
        if protected and not (len(nodes) == 1 and isinstance(fact, SystemSaid)):
            with pytest.raises(IllegalRecordError):
                world.append(fact, span)
        else:
            before = world.log.unanswered, world.log.phase, world.log.usage
            world.append(fact, span)
            assert (world.log.unanswered, world.log.phase, world.log.usage) == before

    @precondition(lambda self: len(self.worlds) < 6)
    @rule(data=st.data())
    def fork(self, data):
        world = data.draw(st.sampled_from(self.worlds))
        name = f"s{len(self.worlds)}"
        child = world.log.fork(SessionHeader(name, path=f"root/{name}", created=0.0, parent=world.log.id))
        records = list(world.log.records())
        ends = [record.seq + 1 for record in records if isinstance(record.data, TurnEnded)]
        shared = records[: ends[-1]] if ends else []
        assert list(child.records())[: len(shared)] == shared
        assert [record.data for record in list(child.records())[len(shared) :]] == (
            [SessionForked(world.log.id, boundary=len(shared))] if shared else []
        )
        assert (child.phase, child.boundary, child.usage) == ("idle", len(shared), Usage())
        self.begin(child)
        sent = [each for each in world.sent if each[0][0] <= child.turn]
        self.worlds[-1].sent.extend(sent)

    @invariant()
    def what_is_derived_equals_a_fold_from_scratch(self):
        """Law: surface, messages, numbers and counters are functions of the records."""
        for world in self.worlds:
            if len(world.log) == world.checked:
                continue
            world.checked = len(world.log)
            log, records = world.log, list(world.log.records())
            nodes = naive_surface(records)
            assert list(log.surface()) == nodes
            assert list(log.derive_messages()) == naive_messages(nodes)
            assert [record.seq for record in records] == list(range(len(log)))
            assert [(record.turn, record.step) for record in records] == naive_numbers(records)
            assert log.generation == sum(bool(record.shadows) for record in records)
            assert list(log.system_nodes) == [node for node in nodes if isinstance(node.data, SystemSaid)]
            assert log.snapshot == naive_snapshot(records)
            headers = [record.data for record in records if isinstance(record.data, HeaderWritten)]
            assert log.last_header == (headers[-1] if headers else None)
            own = [record.data for record in records[log.boundary :]]
            spent = [fact.usage for fact in own if isinstance(fact, AssistantSaid | AttemptFailed)]
            assert log.usage == sum(spent, start=Usage())
            folded, header = fold_surface(records)
            assert (folded.nodes, folded.messages, header) == (nodes, log.derive_messages(), log.last_header)

    @invariant()
    def views_that_were_taken_never_change(self):
        """Law: a view is what it was when it was taken, whatever its log and the log's forks did since."""
        for world in self.worlds:
            for view, contents in world.views[-12:]:
                assert list(view) == contents
                assert len(view) == len(contents)

    def teardown(self):
        """Law: every request is rebuilt as it was sent; the journal loads as what was appended."""
        for world in self.worlds:
            attempts = {}
            for where, sent in world.sent:
                attempt = attempts[where] = attempts.get(where, -1) + 1
                rebuilt = rebuild_request(world.log, where[1], turn=where[0], attempt=attempt)
                assert rebuilt.canonical_bytes() == sent
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "journal.jsonl")
            path.write_bytes(b"".join(self.lines))
            loaded = load_sessions(path)
        assert list(loaded) == [world.log.id for world in self.worlds]
        for world in self.worlds:
            again = loaded[world.log.id]
            assert again.records() == world.log.records()
            assert (again.phase, again.unanswered, again.usage) == (
                world.log.phase,
                world.log.unanswered,
                world.log.usage,
            )
            assert (again.surface(), again.snapshot) == (world.log.surface(), world.log.snapshot)


def shortened(nodes):
    """Return what may take the place of one tool result: the same with another content."""
    if len(nodes) == 1 and isinstance(nodes[0].data, ToolReturned):
        message = nodes[0].data.message
        return [ToolReturned(attrs.evolve(message, parts="short"), code=nodes[0].data.code)]
    return []


TestASessionObeysItsLaws = Sessions.TestCase
TestASessionObeysItsLaws.settings = settings(max_examples=40, stateful_step_count=20)

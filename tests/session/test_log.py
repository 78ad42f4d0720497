import itertools
import re
import time

import attrs
import pytest
from trio.testing import assert_no_checkpoints

from creche.errors import IllegalRecordError
from creche.messages import AssistantMessage, ToolCall
from creche.models import Usage
from creche.session import (
    KINDS,
    ApprovalRequested,
    AssistantSaid,
    AttemptFailed,
    CodeCalled,
    HeaderWritten,
    MessageAccepted,
    Record,
    RouteNoted,
    SessionForked,
    SessionHeader,
    SnapshotState,
    StepEnded,
    StepStarted,
    TurnEnded,
    TurnStarted,
)

CHILD = SessionHeader("s2", path="lead/child", created=0.0)

# The table of legal order, written down a second time: phases in which a kind may stand, and where it leads.
PHASES = ("idle", "turn", "step", "answered")
LEGAL = {
    "turn/start": ("idle", "turn"),
    "turn/end": ("turn", "idle"),
    "step/start": ("turn", "step"),
    "step/end": ("step answered", "turn"),
    "inbox/accepted": ("idle turn step answered", None),
    "inbox/claimed": ("turn", None),
    "inbox/dropped": ("idle turn step answered", None),
    "system/message": ("step", None),
    "user/message": ("step", None),
    "request/header": ("step", None),
    "request/context": ("step", None),
    "tools/changed": ("step", None),
    "assistant/message": ("step", "answered"),
    "assistant/attempt": ("step", None),
    "model/retry": ("step", None),
    "tool/call": ("answered", None),
    "tool/result": ("answered", None),
    "tool/code-call": ("answered", None),
    "tool/code-result": ("answered", None),
    "approval/requested": ("answered", None),
    "approval/decided": ("answered", None),
    "subagent/start": ("idle turn step answered", None),
    "subagent/end": ("idle turn step answered", None),
    "session/fork": ("idle", None),
}


def test_the_table_knows_every_kind():
    assert KINDS.keys() == LEGAL.keys()


# What the samples of these kinds are the end of.
INNER = CodeCalled("c1:code:2", parent="c1", name="look", arguments="{}")
ASKED = ApprovalRequested("c1:code:2", tool="look", subject="look: near", reason="It is near.")
BEFORE = {"tool/code-result": [INNER], "approval/decided": [INNER, ASKED]}


@pytest.mark.parametrize(("kind", "phase"), [(kind, phase) for kind in LEGAL for phase in LEGAL[kind][0].split()])
def test_a_kind_stands_where_the_table_says(kind, phase, say, log_at, samples):
    """Rule: the table decides where a record may stand, and which phase it leads to."""
    log = log_at("answered, nothing called" if (kind, phase) == ("step/end", "answered") else phase)
    # The logs of `log_at` have the calls c1 and c2, of which c1 is recorded. A fork's own record is the fork's.
    fact = {"tool/call": say.call("c2"), "tool/result": say.result("c2")}.get(kind, samples[kind])
    say.extend(log, *BEFORE.get(kind, []))
    if kind == "session/fork":
        log = say.extend(say.log(), TurnStarted(), TurnEnded("completed")).fork(CHILD)
        assert [record.kind for record in log.records()][2:] == [kind]
    else:
        record = log.append(fact)
        assert (record.seq, record.kind, record.data) == (len(log) - 1, kind, fact)
    assert log.phase == (LEGAL[kind][1] or phase)


@pytest.mark.parametrize(
    ("kind", "phase"), [(kind, phase) for kind in LEGAL for phase in PHASES if phase not in LEGAL[kind][0].split()]
)
def test_a_kind_stands_nowhere_else(kind, phase, log_at, samples, refused):
    """Rule: what the table refuses leaves the log as it was, and is told what would be legal."""
    log = log_at(phase)
    last = list(log.records())[-1].kind if len(log) else "the beginning"
    legal = ", ".join(sorted(each for each in LEGAL if phase in LEGAL[each][0].split()))
    assert refused(log, samples[kind]) == (
        f"{kind} cannot follow {last} in session 'lead' (phase {phase!r}); legal here: {legal}"
    )


def test_what_is_not_a_fact_is_refused(say, refused):
    assert refused(say.log(), 3) == f"3 is not a fact; the kinds of record are {', '.join(sorted(KINDS))}"


# ---------------------------------------------------------------- numbers


def test_records_are_numbered_without_gaps_and_know_their_turn_and_step(say):
    """Rule: turns count from 1, steps from 1 in each turn; outside of one, the number is 0."""
    log = say.extend(
        say.log(), *[TurnStarted(), StepStarted(), StepEnded(), StepStarted(), say.answer("c1"), say.call("c1")]
    )
    say.extend(log, say.result("c1"), StepEnded(), TurnEnded("completed"), TurnStarted(), StepStarted())
    assert [record.seq for record in log.records()] == list(range(11))
    assert [(record.turn, record.step) for record in log.records()] == [
        *[(1, 0), (1, 1), (1, 1), (1, 2), (1, 2), (1, 2), (1, 2), (1, 2), (1, 0)],
        *[(2, 0), (2, 1)],
    ]
    assert log.turn == 2


@pytest.mark.parametrize("kind", ["inbox/accepted", "inbox/dropped", "subagent/start", "subagent/end"])
def test_a_record_between_turns_belongs_to_none(kind, say, samples):
    log = say.extend(say.log(), TurnStarted(), StepStarted(), StepEnded(), TurnEnded("completed"))
    record = log.append(samples[kind])
    assert (record.turn, record.step) == (0, 0)


def test_a_record_has_the_time_at_which_it_was_appended(say):
    before = time.time()
    record = say.log().append(TurnStarted())
    assert before <= record.time <= time.time()


def test_a_record_cannot_be_changed(say):
    record = say.log().append(TurnStarted())
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        record.seq = 3


# ---------------------------------------------------------------- beyond the table


@pytest.mark.parametrize("ids", [("c1", "c1"), ("c1", ""), ("",)], ids=["twice", "one without", "none"])
def test_the_calls_of_an_answer_have_ids_of_their_own(ids, say, log_at, refused):
    assert refused(log_at("step"), say.answer(*ids)) == f"an answer's calls need ids of their own, not {list(ids)!r}"


def test_a_call_is_recorded_once(say, log_at, refused):
    assert refused(log_at("answered"), say.call("c1")) == (
        "call 'c1' was recorded already; without a result are ['c1', 'c2']"
    )


def test_a_call_belongs_to_the_open_step(say, log_at, refused):
    assert refused(log_at("answered"), say.call("c3")) == (
        "call 'c3' is not one of the open step; without a result are ['c1', 'c2']"
    )


def test_a_call_that_has_its_result_cannot_start(say, log_at, refused):
    log = say.extend(log_at("answered"), say.result("c2"))
    assert refused(log, say.call("c2")) == "call 'c2' is not one of the open step; without a result are ['c1']"


@pytest.mark.parametrize("call_id", ["c1", "c3"], ids=["answered", "unknown"])
def test_a_result_belongs_to_a_call_without_one(call_id, say, log_at, refused):
    log = say.extend(log_at("answered"), say.result("c1"))
    assert refused(log, say.result(call_id)) == (
        f"call {call_id!r} is not one of the open step or has its result; without one are ['c2']"
    )


def test_a_call_that_never_started_may_have_a_result(say, log_at):
    """Rule: what is cancelled before it starts gets its result all the same."""
    log = say.extend(log_at("answered"), say.result("c2"))
    assert log.unanswered == ("c1",)


@pytest.mark.parametrize("done", [(), ("c1",), ("c2",)])
def test_a_step_does_not_end_before_every_call_has_its_result(done, say, log_at, refused):
    """Rule: history never has a call without a result."""
    log = say.extend(log_at("answered"), *[say.result(each) for each in done])
    left = [each for each in ("c1", "c2") if each not in done]
    assert refused(log, StepEnded()) == f"the step cannot end before every call has its result: {left!r}"
    say.extend(log, *[say.result(each) for each in left], StepEnded())
    assert (log.phase, log.unanswered) == ("turn", ())


def test_a_step_may_end_without_an_answer(say, log_at):
    log = say.extend(log_at("step"), AttemptFailed("no", code="transport"), StepEnded(), StepStarted())
    assert (log.phase, list(log.records())[-1].step) == ("step", 2)


def test_an_answer_may_come_after_failed_attempts(say, log_at):
    log = say.extend(log_at("step"), AttemptFailed("no", code="transport"), say.answer(text="yes"))
    assert (log.phase, log.usage) == ("answered", Usage(2))


# ---------------------------------------------------------------- reading


def test_records_of_one_kind_are_in_order(say, log_at):
    log = say.extend(log_at("answered"), say.result("c2"), say.result("c1"))
    assert [record.seq for record in log.records("tool/result")] == [4, 5]
    assert log.records("turn/end") == ()


def test_an_unknown_kind_is_named(say):
    with pytest.raises(KeyError) as caught:
        say.log().records("tool/results")
    assert caught.value.args == (f"no kind of record 'tool/results'; kinds: {', '.join(sorted(KINDS))}",)


def test_the_results_are_those_the_model_sees(say, log_at):
    log = say.extend(log_at("answered"), say.result("c2", "two"), say.result("c1", "one"))
    log.append(say.result("c2", "short"), replace=(4, 4))
    assert [message.text for message in log.tool_results()] == ["short", "one"]


def test_usage_is_the_sum_of_all_attempts(say, log_at):
    log = log_at("step")
    log.append(AttemptFailed("no", code="transport", usage=Usage(1, input_tokens=5)))
    log.append(say.answer(usage=Usage(1, input_tokens=6, output_tokens=2)))
    assert log.usage == Usage(2, input_tokens=11, output_tokens=2)


def test_the_newest_header_and_route_are_known(say, log_at, samples):
    log = log_at("step")
    assert (log.last_header, log.last_route) == (None, None)
    say.extend(log, HeaderWritten(say.head(), reason="initial"), RouteNoted("p", model="x"))
    say.extend(log, samples["request/header"], samples["request/context"])
    assert (log.last_header, log.last_route) == (samples["request/header"], samples["request/context"])


def test_a_log_shows_whose_it_is(log_at):
    assert repr(log_at("answered")) == "<SessionLog 'lead' records=4 answered>"
    assert log_at("idle").id == "s1"


# ---------------------------------------------------------------- who is told


async def test_appending_does_not_wait(say):
    """Rule: facts can be recorded while a cancellation is on its way."""
    with assert_no_checkpoints():
        say.log().append(TurnStarted())


def test_a_record_is_in_the_log_and_in_the_journal_before_it_is_heard_of(say):
    heard = []
    log = say.log(
        write=lambda session_id, record: heard.append((session_id, record.seq, len(log))),
        publish=lambda record: heard.append((record.kind, record.seq, len(log))),
    )
    log.append(TurnStarted())
    assert heard == [("s1", 0, 1), ("turn/start", 0, 1)]


def test_a_listener_cannot_append(say):
    """Rule: appending from a listener of records is refused loudly, and changes nothing."""
    errors = []

    def listen(record):
        with pytest.raises(IllegalRecordError) as caught:
            log.append(StepStarted())
        errors.append(str(caught.value))

    log = say.log(publish=listen)
    log.append(TurnStarted())
    assert errors == ["step/start cannot be appended by a listener of the record before it; note it and append later"]
    assert len(log) == 1


def test_a_listener_that_raises_does_not_close_the_log(say):
    def listen(record):
        raise RuntimeError(record.kind)

    log = say.log(publish=listen)
    with pytest.raises(RuntimeError, match="turn/start"):
        log.append(TurnStarted())
    log.attach(publish=None, write=None)
    log.append(StepStarted())
    assert log.phase == "step"


def test_a_refused_record_is_told_to_nobody(say):
    heard = []
    log = say.log(publish=heard.append, write=lambda _, record: heard.append(record))
    with pytest.raises(IllegalRecordError):
        log.append(StepStarted())
    assert heard == []


def test_attaching_gives_the_journal_what_no_journal_has(say):
    """Rule: every record of a session is written once, whenever its journal comes."""
    first, second, heard = [], [], []
    log = say.extend(say.log(), TurnStarted())
    log.attach(publish=heard.append, write=lambda *line: first.append(line))
    log.append(StepStarted())
    log.attach(publish=None, write=None)
    log.append(StepEnded())
    log.attach(publish=None, write=lambda *line: second.append(line))
    log.append(TurnEnded("completed"))
    log.attach(publish=None, write=lambda *line: second.append(line))
    records = list(log.records())
    assert first == [("s1", record) for record in records[:2]]
    assert second == [("s1", record) for record in records[2:]]
    assert heard == records[1:2]


# ---------------------------------------------------------------- forks


def a_turn(say, number=1):
    return [
        *[TurnStarted(), StepStarted(), say.user(f"question {number}"), say.answer(text=f"answer {number}")],
        *[StepEnded(), TurnEnded("completed")],
    ]


def test_a_fork_begins_with_the_completed_turns(say):
    """Rule: neither the turn in flight nor the inbox goes with a fork."""
    log = say.extend(say.log(), *a_turn(say))
    waiting = MessageAccepted("d1", lane="next-turn", message=say.user("later").message)
    say.extend(log, waiting, TurnStarted(), StepStarted(), say.user("in flight"))
    child = log.fork(CHILD)
    *shared, own = child.records()
    assert shared == list(log.records())[:6]
    assert (own.seq, own.kind, own.data) == (6, "session/fork", SessionForked("s1", boundary=6))
    assert (own.turn, own.step) == (0, 0)
    assert [message.text for message in child.derive_messages()] == ["question 1", "answer 1"]
    assert (child.phase, child.turn, child.boundary, child.usage) == ("idle", 1, 6, Usage())


def test_a_fork_and_its_parent_grow_apart(say):
    log = say.extend(say.log(), *a_turn(say))
    child = say.extend(log.fork(CHILD), *a_turn(say, 2))
    say.extend(log, *a_turn(say, 3))
    assert [message.text for message in child.derive_messages()] == [
        *["question 1", "answer 1", "question 2", "answer 2"]
    ]
    assert [message.text for message in log.derive_messages()] == ["question 1", "answer 1", "question 3", "answer 3"]
    assert (len(log), len(child), child.turn) == (12, 13, 2)


def test_a_fork_takes_along_what_the_next_request_is_decided_by(say):
    log = say.log()
    say.extend(log, TurnStarted(), StepStarted(), say.system("Be kind."), say.user("now", source="runtime-context"))
    log.append(say.user("now: later", source="runtime-context"), replace=(3, 3))
    header = log.append(HeaderWritten(say.head("look"), reason="initial")).data
    route = log.append(RouteNoted("p", model="m")).data
    say.extend(log, say.answer(text="yes"), StepEnded(), TurnEnded("completed"))
    child = log.fork(CHILD)
    assert (child.last_header, child.last_route, child.generation) == (header, route, 1)
    assert child.snapshot == log.snapshot == SnapshotState(existed=True, seq=4, text="now: later")
    assert child.system_nodes == log.system_nodes
    assert child.surface() == log.surface()


def test_a_fork_of_nothing_is_an_empty_session(say):
    log = say.extend(say.log(), TurnStarted())
    child = log.fork(CHILD)
    assert (len(child), child.boundary, child.phase) == (0, 0, "idle")
    child.append(TurnStarted())


def test_a_fork_of_a_fork_shares_with_both(say):
    log = say.extend(say.log(), *a_turn(say))
    child = log.fork(CHILD)
    twin = child.fork(attrs.evolve(CHILD, id="s3"))
    say.extend(child, *a_turn(say, 2))
    grandchild = child.fork(attrs.evolve(CHILD, id="s4"))
    assert list(twin.records())[-1].data == SessionForked("s2", boundary=6)
    assert list(grandchild.records())[-1].data == SessionForked("s2", boundary=13)
    assert list(grandchild.records())[:13] == list(child.records())


def test_the_journal_of_a_fork_gets_its_own_records_alone(say):
    """Rule: the shared prefix is in the journal already; the first record of the fork refers to it."""
    log = say.extend(say.log(), *a_turn(say))
    lines = []
    child = log.fork(CHILD)
    child.attach(publish=None, write=lambda *line: lines.append(line))
    child.append(TurnStarted())
    assert [(session_id, record.seq, record.kind) for session_id, record in lines] == [
        ("s2", 6, "session/fork"),
        ("s2", 7, "turn/start"),
    ]


@pytest.mark.parametrize("boundary", [0, 6])
def test_only_a_fork_says_that_it_is_one(boundary, say, refused):
    log = say.extend(say.log(), *(a_turn(say) if boundary else []))
    for each in (log, log.fork(CHILD)):
        assert refused(each, SessionForked("s1", boundary=boundary)) == (
            "session/fork can only be the first record of a fork; `SessionLog.fork` appends it"
        )


def test_forking_costs_the_same_at_any_length(say):
    """Rule: a fork copies nothing; its shelves are empty but for its own record."""
    log = say.log()
    for number in range(300):
        say.extend(log, *a_turn(say, number))
    child = log.fork(CHILD)
    assert child.derive_messages() is child.fork(attrs.evolve(CHILD, id="s3")).derive_messages()
    assert len(child._records._own) == 1


# ---------------------------------------------------------------- replacing, as far as it is the log's


@pytest.mark.parametrize("kind", sorted(kind for kind in KINDS if not KINDS[kind].surface))
def test_only_what_the_model_sees_can_take_a_place_in_it(kind, say, samples, log_at, refused):
    log = say.extend(log_at("step"), say.user("hello"))
    assert refused(log, samples[kind], replace=(2, 2)) == (
        f"{kind} is not part of the history, so it cannot take a record's place in it"
    )


def test_nothing_is_replaced_between_turns(say, refused):
    log = say.extend(say.log(), *a_turn(say))
    assert refused(log, say.user("hi"), replace=(2, 2)) == (
        "user/message can take a record's place only while a turn is open"
    )


@pytest.mark.parametrize("phase", ["turn", "step", "answered"])
def test_a_record_takes_a_place_wherever_a_turn_is_open(phase, say, log_at):
    log = say.extend(say.log(), *a_turn(say), TurnStarted())
    say.extend(log, *{"turn": [], "step": [StepStarted()], "answered": [StepStarted(), say.answer("c1")]}[phase])
    record = log.append(say.user("short"), replace=(2, 3))
    assert (record.shadows, record.turn, record.step) == ((2, 3), 2, 0 if phase == "turn" else 1)
    assert (log.phase, log.generation) == (phase, 1)


def test_a_replaced_result_of_an_earlier_step_settles_no_call_of_this_one(say):
    """Rule: a record that takes a place says nothing about the open step, even if two calls have one id."""
    log = say.extend(say.log(), TurnStarted(), StepStarted(), say.answer("c1"), say.result("c1", "long"), StepEnded())
    say.extend(log, StepStarted(), say.answer("c1"))
    log.append(say.result("c1", "short"), replace=(3, 3))
    assert log.unanswered == ("c1",)
    with pytest.raises(IllegalRecordError, match=re.escape("the step cannot end before every call has its result")):
        log.append(StepEnded())


# ---------------------------------------------------------------- restoring


@pytest.fixture
def stored(say):
    """The records of a session with a replacement in it."""
    log = say.extend(say.log(), *a_turn(say), TurnStarted(), StepStarted(), say.user("more"))
    log.append(say.user("short"), replace=(2, 3))
    say.extend(log, say.answer("c1"), say.call("c1"), say.result("c1"), StepEnded(), TurnEnded("completed"))
    return log


def test_restored_records_make_the_same_log(stored, say, state):
    again = say.log()
    for record in stored.records():
        again._restore(attrs.evolve(record, time=5.0))
    assert [attrs.evolve(record, time=5.0) for record in stored.records()] == list(again.records())
    assert {record.time for record in again.records()} == {5.0}
    assert again.derive_messages() == stored.derive_messages()
    assert (again.usage, again.generation, again.turn) == (stored.usage, stored.generation, stored.turn)


def test_restored_records_are_told_to_nobody_and_written_never_again(stored, say):
    heard, lines = [], []
    again = say.log(publish=heard.append, write=lambda *line: lines.append(line))
    for record in stored.records():
        again._restore(record)
    again.attach(publish=heard.append, write=lambda *line: lines.append(line))
    assert (heard, lines) == ([], [])
    again.append(TurnStarted())
    assert (len(heard), len(lines)) == (1, 1)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"seq": 10}, "seq is 10, expected 9"),
        ({"kind": "system/message"}, "kind is 'system/message', expected 'user/message'"),
        ({"turn": 1}, "turn is 1, expected 2"),
        ({"step": 0}, "step is 0, expected 1"),
        ({"shadows": (2, 4, 3)}, "shadows is (2, 4, 3), expected (2, 3)"),
        ({"seq": 8, "turn": 3}, "seq is 8, expected 9; turn is 3, expected 2"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_what_append_would_not_have_made_is_not_restored(changes, problem, stored, say, state):
    again = say.log()
    records = list(stored.records())
    for record in records[:9]:
        again._restore(record)
    before = state(again)
    with pytest.raises(IllegalRecordError) as caught:
        again._restore(attrs.evolve(records[9], **changes))
    assert str(caught.value) == f"user/message is not the record that can stand here: {problem}"
    assert state(again) == before


def test_what_could_not_be_appended_is_not_restored(stored, say):
    records = list(stored.records())
    for first, second in itertools.pairwise(records[:6]):
        again = say.log()
        for record in records[: first.seq]:
            again._restore(record)
        with pytest.raises(IllegalRecordError):
            again._restore(second)


def test_a_record_of_a_kind_that_is_none_is_not_restored(say):
    with pytest.raises(IllegalRecordError, match="3 is not a fact"):
        say.log()._restore(Record(0, kind="x", data=3))


def test_an_answer_with_several_parts_counts_its_calls_only(say, log_at):
    log = log_at("step")
    log.append(
        AssistantSaid(
            AssistantMessage([*say.answer("c9", text="So.").message.parts, ToolCall("c8", name="x", arguments="")])
        )
    )
    assert log.unanswered == ("c9", "c8")

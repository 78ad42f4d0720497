import pytest

from creche.errors import IllegalRecordError
from creche.messages import AssistantMessage, DeveloperMessage
from creche.session import (
    AssistantSaid,
    SnapshotState,
    StepEnded,
    StepStarted,
    ToolsChanged,
    TurnStarted,
    fold_surface,
)

ROW = pytest.param

# What `log` holds, by sequence number: 2 system, 3 user, 4 snapshot, 5 answer with two calls, 6 and 7 results,
# and, in the open second step, 10 user.


@pytest.fixture
def log(say):
    log = say.extend(say.log(), TurnStarted(), StepStarted(), say.system("Be kind."), say.user("hello"))
    say.extend(log, say.user("It is May.", source="runtime-context"), say.answer("c1", "c2", text="Hm."))
    say.extend(log, say.result("c1", "one"), say.result("c2", "two", is_error=True, code="failed"), StepEnded())
    return say.extend(log, StepStarted(), say.user("and?"))


def surface(log):
    return [record.seq for record in log.surface()]


def texts(messages):
    return [message.text for message in messages]


# ---------------------------------------------------------------- joining


def test_the_surface_is_what_the_model_sees_in_order(log):
    assert surface(log) == [2, 3, 4, 5, 6, 7, 10]
    assert texts(log.derive_messages()) == ["Be kind.", "hello", "It is May.", "Hm.", "one", "two", "and?"]


def test_a_history_is_one_thing_until_something_is_replaced(log, say):
    """Rule: of two views of one history, the shorter begins the longer; so adapters may keep what they made of it."""
    history, before = log.history, log.derive_messages()
    say.extend(log, say.answer(text="Well."))
    assert log.history is history
    assert list(log.derive_messages())[: len(before)] == list(before)
    log.append(say.system("Be brief."), replace=(2, 2))
    assert log.history is not history


@pytest.mark.parametrize("text", ["", "Be kind."], ids=["empty", "with text"])
def test_an_empty_prompt_takes_its_place_and_says_nothing(text, say, log_at):
    """Rule: an empty system prompt reserves the place; no message is derived from it."""
    log = say.extend(log_at("step"), say.system(text))
    assert surface(log) == [2]
    assert texts(log.derive_messages()) == ([text] if text else [])
    assert [node.seq for node in log.system_nodes] == [2]


def test_an_empty_answer_says_nothing(log_at, say):
    log = say.extend(log_at("step"), AssistantSaid(AssistantMessage(())))
    assert (surface(log), len(log.derive_messages())) == ([2], 0)


def test_an_announcement_of_tools_is_part_of_the_history(log_at, say):
    message = DeveloperMessage(("look",))
    log = say.extend(log_at("step"), ToolsChanged(message))
    assert list(log.derive_messages()) == [message]


def test_a_history_is_a_view_that_later_records_do_not_lengthen(log, say):
    before = log.derive_messages()
    copy = list(before)
    say.extend(log, say.user("go on"))
    log.append(say.user("short"), replace=(3, 6))
    assert list(before) == copy
    assert texts(log.derive_messages()) == ["Be kind.", "short", "two", "and?", "go on"]


def test_appending_keeps_the_list_of_messages_and_replacing_starts_a_new_one(log, say):
    """Rule: a step costs what is new in it; only a replacement copies."""
    shelf = log._surface._messages
    say.extend(log, say.user("go on"))
    assert log._surface._messages is shelf
    log.append(say.user("short"), replace=(3, 3))
    assert log._surface._messages is not shelf


# ---------------------------------------------------------------- replacing


@pytest.mark.parametrize(
    ("span", "shadows", "after"),
    [
        ((3, 3), (3,), [2, 11, 4, 5, 6, 7, 10]),
        ((3, 6), (3, 4, 5, 6), [2, 11, 7, 10]),
        ((10, 10), (10,), [2, 3, 4, 5, 6, 7, 11]),
        ((3, 10), (3, 4, 5, 6, 7, 10), [2, 11]),
    ],
    ids=["one", "a range", "the last", "all but the prompt"],
)
def test_a_record_takes_the_place_of_a_range_and_cites_it(span, shadows, after, log, say):
    """Rule: neighbours stay where they are, and the record says all that it shadows."""
    record = log.append(say.user("short"), replace=span)
    assert (record.seq, record.shadows) == (11, shadows)
    assert surface(log) == after
    assert log.generation == 1


def test_a_range_goes_by_place_and_not_by_number(log, say):
    """Rule: what took a place stands there, whatever its number is."""
    log.append(say.user("short"), replace=(3, 4))
    assert surface(log) == [2, 11, 5, 6, 7, 10]
    record = log.append(say.user("shorter"), replace=(11, 6))
    assert record.shadows == (11, 5, 6)
    assert (surface(log), log.generation) == ([2, 12, 7, 10], 2)


def test_a_fold_from_scratch_agrees(log, say):
    log.append(say.user("short"), replace=(3, 4))
    log.append(say.system("Be brief."), replace=(2, 2))
    folded, header = fold_surface(log.records())
    assert (folded.nodes, folded.messages) == (log.surface(), log.derive_messages())
    assert (folded.generation, folded.system_nodes, header) == (2, log.system_nodes, None)


@pytest.mark.parametrize(
    ("span", "problem"),
    [
        ((8, 8), "record 8 is not on the surface, so nothing can take its place"),
        ((3, 9), "record 9 is not on the surface, so nothing can take its place"),
        ((99, 3), "record 99 is not on the surface, so nothing can take its place"),
        ((-1, 3), "record -1 is not on the surface, so nothing can take its place"),
        ((11, 11), "record 11 is not on the surface, so nothing can take its place"),
        ((5, 3), "record 5 stands after record 3 on the surface; give the earlier one first"),
    ],
    ids=["not of the surface", "end not of the surface", "unknown", "negative", "itself", "backwards"],
)
def test_a_range_must_be_on_the_surface_and_in_order(span, problem, log, say, refused):
    assert refused(log, say.user("short"), replace=span) == problem


def test_what_was_replaced_is_not_on_the_surface_any_more(log, say):
    log.append(say.user("short"), replace=(3, 4))
    with pytest.raises(IllegalRecordError, match="record 4 is not on the surface"):
        log.append(say.user("again"), replace=(4, 4))


@pytest.fixture
def refused_in_place(log, say, refused):
    return lambda make, span: refused(log, make(say), replace=span)


PROTECTED = "the leading system prompt can be replaced only by a system prompt, alone"
ONE_RESULT = "a tool result can take the place of exactly one tool result"
CONTENT = "only the content of a tool result can be replaced"
ATTEMPT = "an answer is the record of an attempt, so it cannot take the place of another record"


@pytest.mark.parametrize(
    ("make", "span", "problem"),
    [
        ROW(lambda say: say.user("x"), (2, 2), PROTECTED, id="prompt by user"),
        ROW(lambda say: say.user("x"), (2, 4), PROTECTED, id="prompt in a range"),
        ROW(lambda say: say.system("x"), (2, 3), PROTECTED, id="prompt and more by prompt"),
        ROW(lambda say: say.result("c1"), (2, 2), PROTECTED, id="prompt by result"),
        ROW(lambda say: say.answer(text="x"), (2, 2), PROTECTED, id="prompt by answer"),
        ROW(lambda say: say.answer(text="x"), (5, 5), ATTEMPT, id="answer by answer"),
        ROW(lambda say: say.answer("c1"), (3, 6), ATTEMPT, id="range by answer"),
        ROW(lambda say: say.result("c1"), (5, 5), ONE_RESULT, id="answer by result"),
        ROW(lambda say: say.result("c1"), (6, 7), ONE_RESULT, id="two results by one"),
        ROW(lambda say: say.result("c2"), (6, 6), CONTENT, id="another call's result"),
        ROW(lambda say: say.result("c1", name="see"), (6, 6), CONTENT, id="another tool's result"),
        ROW(lambda say: say.result("c1", is_error=True), (6, 6), CONTENT, id="success by error"),
        ROW(lambda say: say.result("c2", is_error=True), (7, 7), CONTENT, id="error without its code"),
        ROW(lambda say: say.result("c2", is_error=True, code="other"), (7, 7), CONTENT, id="error with another code"),
    ],
)
def test_what_must_not_be_replaced_is_refused(make, span, problem, refused_in_place):
    """Rule: the rules at the head of the module; a refused replacement leaves the log as it was."""
    assert refused_in_place(make, span) == problem


@pytest.mark.parametrize(
    ("make", "span"),
    [
        (lambda say: say.system("Be brief."), (2, 2)),
        (lambda say: say.system(""), (2, 2)),
        (lambda say: say.system("Later."), (3, 4)),
        (lambda say: say.user("a summary"), (5, 7)),
        (lambda say: say.result("c1", "short"), (6, 6)),
        (lambda say: say.result("c2", "", is_error=True, code="failed"), (7, 7)),
    ],
    ids=["prompt", "prompt by nothing", "range by a later prompt", "call and results", "result", "failed result"],
)
def test_what_may_be_replaced_is(make, span, log, say):
    fact = make(say)
    log.append(fact, replace=span)
    assert fact in [record.data for record in log.surface()]


def test_a_later_prompt_is_not_protected(log, say):
    say.extend(log, say.system("Be brief."))
    log.append(say.user("a summary"), replace=(10, 11))
    assert surface(log) == [2, 3, 4, 5, 6, 7, 12]
    assert [node.seq for node in log.system_nodes] == [2]


def test_without_a_prompt_the_first_record_is_like_any_other(say, log_at):
    log = say.extend(log_at("step"), say.user("hello"), say.system("Late."))
    log.append(say.user("hi"), replace=(2, 3))
    assert (surface(log), log.system_nodes) == ([4], ())


# ---------------------------------------------------------------- snapshots of runtime contexts


def test_the_snapshot_on_the_surface_is_known(log, say):
    assert log.snapshot == SnapshotState(existed=True, seq=4, text="It is May.")
    say.extend(log, say.user("It is June.", source="runtime-context"), say.user("not one"))
    assert log.snapshot == SnapshotState(existed=True, seq=11, text="It is June.")


@pytest.mark.parametrize("make", [lambda say: say.user("summary"), lambda say: say.system("")], ids=["user", "system"])
def test_a_snapshot_that_was_replaced_is_not_retained(make, log, say):
    """Rule: a replacement that shadows the snapshot makes the next step write it again."""
    log.append(make(say), replace=(3, 5))
    assert log.snapshot == SnapshotState(existed=True)


def test_a_snapshot_replaced_by_a_snapshot_is_retained(log, say):
    log.append(say.user("It is June.", source="runtime-context"), replace=(4, 4))
    assert log.snapshot == SnapshotState(existed=True, seq=11, text="It is June.")


def test_replacing_something_else_keeps_the_snapshot(log, say):
    log.append(say.user("hi"), replace=(3, 3))
    assert log.snapshot == SnapshotState(existed=True, seq=4, text="It is May.")


def test_there_is_no_snapshot_before_the_first(say, log_at):
    assert say.extend(log_at("step"), say.user("hello")).snapshot == SnapshotState()

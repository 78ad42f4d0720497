import pytest

from creche.errors import SessionError
from creche.models import ModelRequest
from creche.session import (
    AttemptFailed,
    HeaderWritten,
    SessionHeader,
    StepEnded,
    StepStarted,
    TurnEnded,
    TurnStarted,
    rebuild_request,
)


@pytest.fixture
def sent():
    return []


@pytest.fixture
def send(sent):
    """Note the request that a log would make now, as canonical bytes."""

    def note(log):
        request = ModelRequest(log.last_header.head, messages=log.derive_messages())
        sent.append(request.canonical_bytes())

    return note


@pytest.fixture
def log(say, send):
    """Two turns: two steps, the second with a failed attempt and a changed header; then one step with a replacement."""
    log = say.extend(say.log(), TurnStarted(), StepStarted(), say.system("Be kind."), say.user("hello"))
    log.append(HeaderWritten(say.head("look"), reason="initial"))
    send(log)
    say.extend(log, say.answer("c1"), say.call("c1"), say.result("c1", "a long text"), StepEnded(), StepStarted())
    send(log)
    say.extend(log, AttemptFailed("lost", code="transport"), HeaderWritten(say.head(), reason="change"))
    send(log)
    say.extend(log, say.answer(text="a tortoise"), StepEnded(), TurnEnded("completed"), TurnStarted(), StepStarted())
    log.append(say.user("summary"), replace=(3, 7))
    say.extend(log, say.user("and now?"))
    send(log)
    return say.extend(log, say.answer(text="nothing"), StepEnded(), TurnEnded("completed"))


@pytest.mark.parametrize(
    ("number", "where"),
    [
        (0, {"step": 1, "turn": 1}),
        (1, {"step": 2, "turn": 1, "attempt": 0}),
        (2, {"step": 2, "turn": 1, "attempt": 1}),
        (2, {"step": 2, "turn": 1}),
        (1, {"step": 2, "turn": 1, "attempt": -2}),
        (3, {"step": 1}),
        (3, {"step": 1, "turn": 2}),
    ],
    ids=["first step", "failed attempt", "retry", "newest attempt", "last but one", "last turn", "replaced history"],
)
def test_a_past_request_is_rebuilt_byte_for_byte(number, where, log, sent):
    """Rule: what a model saw can be rebuilt from the records alone, whatever came after."""
    request = rebuild_request(log, **where)
    assert request.canonical_bytes() == sent[number]
    assert (request.agent_path, request.session_id) == ("lead", "s1")


def test_a_fork_rebuilds_the_requests_it_shares_and_its_own(log, sent, send, say):
    child = log.fork(SessionHeader("s2", path="lead/child", created=0.0))
    say.extend(child, TurnStarted(), StepStarted(), say.user("go on"))
    send(child)
    say.extend(child, say.answer(text="done"))
    assert rebuild_request(child, 2, turn=1).canonical_bytes() == sent[2]
    assert rebuild_request(child, 1, turn=2).canonical_bytes() == sent[3]
    assert rebuild_request(child, 1).canonical_bytes() == sent[4]
    assert rebuild_request(child, 1).agent_path == "lead/child"


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ({"step": 3, "turn": 1}, "turn 1, step 3, attempt -1; attempts logged there: 0"),
        ({"step": 1, "turn": 3}, "turn 3, step 1, attempt -1; attempts logged there: 0"),
        ({"step": 2, "turn": 1, "attempt": 2}, "turn 1, step 2, attempt 2; attempts logged there: 2"),
        ({"step": 1, "attempt": -2}, "turn 2, step 1, attempt -2; attempts logged there: 1"),
    ],
    ids=["step", "turn", "attempt", "attempt from the end"],
)
def test_a_request_that_never_was_is_named(where, problem, log):
    with pytest.raises(SessionError) as caught:
        rebuild_request(log, **where)
    assert str(caught.value) == f"session 'lead' has no request for {problem}"


def test_an_attempt_without_a_header_cannot_be_rebuilt(say, log_at):
    log = say.extend(log_at("step"), say.answer(text="yes"))
    with pytest.raises(SessionError) as caught:
        rebuild_request(log, 1)
    assert str(caught.value) == "no header stands before record 2 of session 'lead'"

"""Calls that are part of another call, and approvals: where their records stand."""

import pytest

from creche.messages import ToolMessage
from creche.session import (
    ApprovalDecided,
    ApprovalRequested,
    CodeCalled,
    CodeReturned,
    SessionHeader,
    StepEnded,
    TurnEnded,
)


def inner(number: int = 1, parent: str = "c1") -> CodeCalled:
    return CodeCalled(f"{parent}:code:{number}", parent=parent, name="look", arguments="{}")


def inner_result(number: int = 1, parent: str = "c1") -> CodeReturned:
    return CodeReturned(ToolMessage(f"{parent}:code:{number}", name="look", parts="seen"), parent=parent)


def asked(call_id: str = "c1", subject: str = "look") -> ApprovalRequested:
    return ApprovalRequested(call_id, tool="look", subject=subject, reason="It is far.")


def decided(call_id: str = "c1", subject: str = "look", **said: str) -> ApprovalDecided:
    return ApprovalDecided(call_id, tool="look", subject=subject, **{"decision": "allowed", **said})


@pytest.fixture
def log(log_at):
    """The calls c1 and c2 are open; c1 is recorded."""
    return log_at("answered")


def test_a_call_that_is_part_of_another_stands_within_that_ones_records(log, say, refused):
    """Rule: from the record of a call to its result, and no longer."""
    assert refused(log, inner(parent="c2")) == "call 'c2', which 'c2:code:1' is to be part of, is not running"
    log.append(inner())
    assert refused(log, inner()) == "call 'c1:code:1' was recorded already"
    assert refused(log, say.result("c1")) == "call 'c1' has calls in it without a result: ['c1:code:1']"
    assert refused(log, inner_result(2)) == (
        "call 'c1:code:2' is not running as part of 'c1'; running are ['c1:code:1']"
    )
    log.append(inner_result())
    log.append(say.result("c1"))
    assert refused(log, inner(2)) == "call 'c1', which 'c1:code:2' is to be part of, is not running"


def test_a_call_can_be_part_of_one_that_is_itself_part_of_another(log, refused):
    log.append(inner())
    deeper = "c1:code:1"
    log.append(inner(parent=deeper))
    assert refused(log, inner_result()) == "call 'c1:code:1' has calls in it without a result: ['c1:code:1:code:1']"
    log.append(inner_result(parent=deeper))
    log.append(inner_result())


def test_an_id_of_the_model_is_not_taken_again(log, refused):
    fact = CodeCalled("c2", parent="c1", name="look", arguments="{}")
    assert refused(log, fact) == "call 'c2' was recorded already"


def test_nothing_of_it_is_part_of_the_history(log):
    before = tuple(log.derive_messages())
    for fact in (inner(), asked("c1:code:1"), decided("c1:code:1"), inner_result()):
        log.append(fact)
    assert tuple(log.derive_messages()) == before


def test_a_request_and_its_decision_stand_within_the_records_of_their_call(log, say, refused):
    """Rule: one at a time a call, of a call that runs, decided before its result."""
    assert refused(log, asked("c2")) == "an approval cannot be requested for call 'c2', which is not running"
    log.append(asked())
    assert refused(log, asked()) == "an approval cannot be requested for call 'c1', which waits for one already"
    assert refused(log, say.result("c1")) == "call 'c1' waits for an approval that is not decided"
    assert refused(log, decided(subject="see")) == "no approval of 'see' with tool 'look' is requested for call 'c1'"
    log.append(decided())
    assert refused(log, decided()) == "no approval of 'look' with tool 'look' is requested for call 'c1'"
    log.append(say.result("c1"))


@pytest.mark.parametrize(
    ("said", "allowed"),
    [
        ({"lasting": "once"}, False),
        ({"lasting": "agent"}, True),
        ({"lasting": "project"}, True),
        ({"decision": "refused"}, False),
        ({"decision": "unanswered", "lasting": "agent"}, False),
        ({"decision": "cancelled", "lasting": "agent"}, False),
    ],
)
def test_what_is_allowed_for_longer_is_known_by_tool_and_subject(log, said, allowed):
    log.append(asked(subject="look: far"))
    log.append(decided(subject="look: far", **said))
    assert list(log.allowed) == ([("look", "look: far")] if allowed else [])


def test_a_fork_begins_with_nothing_allowed(log, say):
    """Rule: what was allowed to an agent holds for no other."""
    log.append(asked())
    log.append(decided(lasting="agent"))
    say.extend(log, say.result("c1"), say.call("c2"), say.result("c2"), StepEnded(), TurnEnded("completed"))
    fork = log.fork(SessionHeader("s2", path="lead/fork-1", created=0.0))
    assert list(log.allowed) == [("look", "look")]
    assert list(fork.allowed) == []

"""What holds for one kind of record beyond its place in the table of `_order.py`, and what the log notes of it.

Rule 1: a check refuses before anything has changed; a follow-up cannot fail: it only notes what is checked.
Rule 2: neither is asked about a record that takes the place of others, which has rules of its own
(`_surface.py`): it stands for what it replaced, in an earlier step as like as not.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from creche.errors import IllegalRecordError
from creche.messages import ToolCall

from ._facts import (
    ApprovalDecided,
    ApprovalRequested,
    AssistantSaid,
    AttemptFailed,
    CodeCalled,
    CodeReturned,
    HeaderWritten,
    Record,
    RouteNoted,
    SessionForked,
    StepEnded,
    StepStarted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnStarted,
    UserSaid,
)
from ._order import KIND_OF, Kind, Phase
from ._state import Settled

if TYPE_CHECKING:
    from ._log import SessionLog


def _check_answer(log: "SessionLog", fact: AssistantSaid) -> None:
    ids = _call_ids(fact)
    if ids and (len(set(ids)) != len(ids) or not all(ids)):
        raise IllegalRecordError(f"an answer's calls need ids of their own, not {ids!r}")


def _call_ids(fact: AssistantSaid) -> list[str]:
    # Not `tool_calls`, which makes a tuple first: this runs twice an answer.
    return [part.id for part in fact.message.parts if isinstance(part, ToolCall)]


def _check_call(log: "SessionLog", fact: ToolCalled) -> None:
    started = log._pending.get(fact.call_id)
    if started is None or started:
        problem = "was recorded already" if started else "is not one of the open step"
        raise IllegalRecordError(f"call {fact.call_id!r} {problem}; without a result are {list(log._pending)!r}")


def _check_result(log: "SessionLog", fact: ToolReturned) -> None:
    if fact.message.call_id not in log._pending:
        raise IllegalRecordError(
            f"call {fact.message.call_id!r} is not one of the open step or has its result; "
            f"without one are {list(log._pending)!r}"
        )
    _check_nothing_open(log, fact.message.call_id)


def _check_nothing_open(log: "SessionLog", call_id: str) -> None:
    """Refuse the result of a call while something that is part of it is open."""
    if not log._inner and not log._asked:
        return
    if call_id in log._asked:
        raise IllegalRecordError(f"call {call_id!r} waits for an approval that is not decided")
    inner = [each for each, parent in log._inner.items() if parent == call_id]
    if inner:
        raise IllegalRecordError(f"call {call_id!r} has calls in it without a result: {inner!r}")


def _check_inner_call(log: "SessionLog", fact: CodeCalled) -> None:
    if not _runs(log, fact.parent):
        raise IllegalRecordError(f"call {fact.parent!r}, which {fact.call_id!r} is to be part of, is not running")
    if fact.call_id in log._inner or fact.call_id in log._call_ids:
        raise IllegalRecordError(f"call {fact.call_id!r} was recorded already")


def _runs(log: "SessionLog", call_id: str) -> bool:
    return log._pending.get(call_id, False) or call_id in log._inner


def _check_inner_result(log: "SessionLog", fact: CodeReturned) -> None:
    parent = log._inner.get(fact.message.call_id)
    if parent is None or parent != fact.parent:
        raise IllegalRecordError(
            f"call {fact.message.call_id!r} is not running as part of {fact.parent!r}; running are {list(log._inner)!r}"
        )
    _check_nothing_open(log, fact.message.call_id)


def _check_request(log: "SessionLog", fact: ApprovalRequested) -> None:
    if not _runs(log, fact.call_id) or fact.call_id in log._asked:
        problem = "waits for one already" if fact.call_id in log._asked else "is not running"
        raise IllegalRecordError(f"an approval cannot be requested for call {fact.call_id!r}, which {problem}")


def _check_decision(log: "SessionLog", fact: ApprovalDecided) -> None:
    if log._asked.get(fact.call_id) != (fact.tool, fact.subject):
        raise IllegalRecordError(
            f"no approval of {fact.subject!r} with tool {fact.tool!r} is requested for call {fact.call_id!r}"
        )


def _check_step_end(log: "SessionLog", fact: StepEnded) -> None:
    if log._pending:
        raise IllegalRecordError(f"the step cannot end before every call has its result: {list(log._pending)!r}")


def _check_fork(log: "SessionLog", fact: SessionForked) -> None:
    if not log._boundary or not log._boundary == fact.boundary == len(log._records):
        raise IllegalRecordError("session/fork can only be the first record of a fork; `SessionLog.fork` appends it")


_CHECKS: Mapping[type, Callable[["SessionLog", Any], None]] = {
    AssistantSaid: _check_answer,
    ToolCalled: _check_call,
    ToolReturned: _check_result,
    CodeCalled: _check_inner_call,
    CodeReturned: _check_inner_result,
    ApprovalRequested: _check_request,
    ApprovalDecided: _check_decision,
    StepEnded: _check_step_end,
    SessionForked: _check_fork,
}


def _turn_started(log: "SessionLog", record: Record, fact: TurnStarted) -> None:
    log._turn = record.turn
    log._step = 0


def _turn_ended(log: "SessionLog", record: Record, fact: TurnEnded) -> None:
    log._settled = Settled(
        log._records.view(),
        surface=log._surface.state(),
        turn=log._turn,
        header=log._last_header,
        route=log._last_route,
        snapshot=log._snapshot,
        calls=log._call_ids,
        call_count=len(log._call_ids),
    )


def _step_started(log: "SessionLog", record: Record, fact: StepStarted) -> None:
    log._step = record.step


def _user_said(log: "SessionLog", record: Record, fact: UserSaid) -> None:
    log._snapshot = log._snapshot.after(record)


def _attempt_failed(log: "SessionLog", record: Record, fact: AttemptFailed) -> None:
    log.usage += fact.usage


def _answered(log: "SessionLog", record: Record, fact: AssistantSaid) -> None:
    log.usage += fact.usage
    log._pending = dict.fromkeys(_call_ids(fact), False)
    for call_id in log._pending:
        log._call_ids.add(call_id)


def _called(log: "SessionLog", record: Record, fact: ToolCalled) -> None:
    log._pending[fact.call_id] = True


def _returned(log: "SessionLog", record: Record, fact: ToolReturned) -> None:
    del log._pending[fact.message.call_id]


def _inner_called(log: "SessionLog", record: Record, fact: CodeCalled) -> None:
    log._inner[fact.call_id] = fact.parent


def _inner_returned(log: "SessionLog", record: Record, fact: CodeReturned) -> None:
    del log._inner[fact.message.call_id]


def _requested(log: "SessionLog", record: Record, fact: ApprovalRequested) -> None:
    log._asked[fact.call_id] = (fact.tool, fact.subject)


def _decided(log: "SessionLog", record: Record, fact: ApprovalDecided) -> None:
    del log._asked[fact.call_id]
    if fact.decision == "allowed" and fact.lasting != "once":
        log._allowed |= {(fact.tool, fact.subject)}


def _header_written(log: "SessionLog", record: Record, fact: HeaderWritten) -> None:
    log._last_header = fact


def _route_noted(log: "SessionLog", record: Record, fact: RouteNoted) -> None:
    log._last_route = fact


_FOLLOW_UPS: Mapping[type, Callable[["SessionLog", Record, Any], None]] = {
    TurnStarted: _turn_started,
    TurnEnded: _turn_ended,
    StepStarted: _step_started,
    UserSaid: _user_said,
    AttemptFailed: _attempt_failed,
    AssistantSaid: _answered,
    ToolCalled: _called,
    ToolReturned: _returned,
    CodeCalled: _inner_called,
    CodeReturned: _inner_returned,
    ApprovalRequested: _requested,
    ApprovalDecided: _decided,
    HeaderWritten: _header_written,
    RouteNoted: _route_noted,
}


@attrs.frozen
class Rule:
    """All that the log has to know of one kind, in one place so that appending looks it up once."""

    kind: Kind
    """Its row in the table. What each append asks of it stands here once more, without a step in between."""
    where: frozenset[Phase] = attrs.field(kw_only=True)
    then: Phase | None = attrs.field(kw_only=True)
    surface: bool = attrs.field(kw_only=True)
    check: "Callable[[SessionLog, Any], None] | None" = attrs.field(kw_only=True)
    """Raises `IllegalRecordError` if the fact cannot stand here although its kind can."""
    follow: "Callable[[SessionLog, Record, Any], None] | None" = attrs.field(kw_only=True)
    """Notes what later records and readers need to know of it."""


RULES: dict[type, Rule] = {
    fact: Rule(
        kind,
        where=kind.where,
        then=kind.then,
        surface=kind.surface,
        check=_CHECKS.get(fact),
        follow=_FOLLOW_UPS.get(fact),
    )
    for fact, kind in KIND_OF.items()
}
"""Every rule by the class of its fact."""

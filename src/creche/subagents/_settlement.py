"""How a child came out, as its parent's log and its caller are told.

Rule 1: each child that has started is settled once, synchronously, whatever else is being cancelled.
Rule 2: the outcome is that of its last turn. Bad news is a value, with what the child had said until then.
Rule 3: of what it had said, an answer comes before a stream that was cut, and a later one before an earlier
one. What it inherited with a fork was said by another.
"""

import logging
from collections.abc import Iterator, Mapping

import outcome

from creche._util import clean_text
from creche.agent import Agent, Delivery
from creche.errors import InternalError
from creche.messages import AssistantMessage, TextPart
from creche.models import TextDelta, expand_stream
from creche.session import (
    AssistantSaid,
    AttemptFailed,
    Fact,
    MessagesClaimed,
    Outcome,
    SessionLog,
    SubagentEnded,
    TurnEnded,
    TurnReason,
)

from ._provider import SubagentResult

logger = logging.getLogger("creche")

DIAGNOSTIC_BYTES = 4096
"""Longest diagnostic of a result, in bytes of UTF-8."""

_OUTCOMES: Mapping[TurnReason, Outcome] = {
    "completed": "done",
    "max-tokens": "truncated",
    "blocked": "refused",
    "limit": "limit",
    "error": "failed",
    "cancelled": "cancelled",
}


def settle(parent: Agent, child: Agent, delivery: Delivery | None) -> SubagentResult:
    """Append the settlement of a child to its parent's log and return it as a result. Synchronous.

    Args:
      parent: Who is told.
      child: Its turns are over, and so are its own children.
      delivery: The prompt, if it got that far.
    """
    how, diagnostic = _ending(child.session, delivery)
    message = _last_words(child.session)
    result = SubagentResult(
        how,
        text=message.text,
        parts=message.parts,
        diagnostic=_cut(diagnostic),
        usage=child.usage,
        path=child.path,
        session_id=child.id,
        output=_output(how, delivery),
    )
    parent.session.append(
        SubagentEnded(child.id, outcome=how, text=result.text, diagnostic=result.diagnostic, usage=result.usage)
    )
    return result


def _output(how: Outcome, delivery: Delivery | None) -> object:
    result = delivery.result if how == "done" and delivery is not None else None
    return result.value.output if isinstance(result, outcome.Value) else None


def _ending(session: SessionLog, delivery: Delivery | None) -> tuple[Outcome, str]:
    ended = next((fact for fact in _own_facts(session) if isinstance(fact, TurnEnded)), None)
    if ended is None:
        return "cancelled", "it ended before its first turn"
    how = _OUTCOMES[ended.reason]
    if how == "truncated":
        return how, "the answer reached the limit of tokens"
    if how == "done":
        answer = next((fact for fact in _own_facts(session) if isinstance(fact, AssistantSaid)), None)
        refused = answer is not None and answer.finish == "refusal"
        return ("refused", "the model refused to answer") if refused else (how, "")
    if delivery is not None and _claimed_in(session, delivery) == session.turn:
        return how, _describe(delivery, session.header.path)
    return how, ended.detail


def _own_facts(session: SessionLog) -> Iterator[Fact]:
    """Yield the facts of a session, newest first, without those that it shares with the one it was forked from."""
    records = session.records()
    for seq in range(len(records) - 1, session.boundary - 1, -1):
        yield records[seq].data


def _claimed_in(session: SessionLog, delivery: Delivery) -> int:
    """Return the number of the turn that took a message."""
    records = session.records()
    claims = (records[seq] for seq in range(session.boundary, len(records)))
    return next(
        (each.turn for each in claims if isinstance(each.data, MessagesClaimed) and delivery.id in each.data.ids), 0
    )


def _describe(delivery: Delivery, path: str) -> str:
    assert isinstance(delivery.result, outcome.Error), "a turn that did not end well has told so"
    error = delivery.result.error
    if isinstance(error, InternalError):  # the parent gets a sentence; who has to mend it wants the traceback
        logger.error("subagent %r hit a bug", path, exc_info=error)
    code = getattr(error, "code", "")
    return f"{type(error).__name__}{f' ({code})' if code else ''}: {error}"


def _cut(text: str) -> str:
    return clean_text(text).encode()[:DIAGNOSTIC_BYTES].decode(errors="ignore")


def _last_words(session: SessionLog) -> AssistantMessage:
    cut = ""
    for fact in _own_facts(session):
        if isinstance(fact, AssistantSaid) and fact.message.text:
            return fact.message
        if isinstance(fact, AttemptFailed) and not cut:
            cut = "".join([delta.text for delta in expand_stream(fact.stream) if isinstance(delta, TextDelta)])
    return AssistantMessage((TextPart(cut),) if cut else ())

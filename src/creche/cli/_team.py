"""What each agent of a tree does now: a projection of what listeners hear.

Rule 1: time comes from outside, in seconds of any clock; nothing here reads one, and nothing waits.
Rule 2: hearing costs little, however many agents there are: a row is made when it is looked at, and kept until its
agent is heard of again.
"""

from bisect import insort
from collections.abc import Callable, Iterator
from typing import Any

from creche.agent import LimiterAcquired, LimiterWaited
from creche.models import Usage
from creche.scope import Registrar
from creche.session import (
    ApprovalDecided,
    ApprovalRequested,
    AssistantSaid,
    AttemptFailed,
    CodeCalled,
    CodeReturned,
    Outcome,
    RecordAppended,
    RetryPlanned,
    RouteNoted,
    StepStarted,
    SubagentEnded,
    SubagentStarted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnReason,
    TurnStarted,
)
from creche.tools import ToolProgressed

from ._agent_state import NO_USAGE, AgentState, Call
from ._rows import AgentRow, Doing, Kind, Totals

Heard = RecordAppended | LimiterWaited | LimiterAcquired | ToolProgressed
"""What a team can be told."""


class Team:
    """The agents of a tree, kept up to date with what listeners hear."""

    def __init__(self) -> None:
        self._states: dict[str, AgentState] = {}
        self._sessions: dict[str, AgentState] = {}
        self._usage = NO_USAGE

    # ---------------------------------------------------------------- hearing

    def follow(self, registrar: Registrar, clock: Callable[[], float]) -> None:
        """Hear what happens at the registrar's scope and below it."""

        def hear(event: Heard) -> None:
            self.hear(event, clock())

        registrar.on(RecordAppended, hear)
        registrar.on(LimiterWaited, hear)
        registrar.on(LimiterAcquired, hear)
        registrar.on(ToolProgressed, hear)

    def hear(self, event: Heard, now: float) -> None:
        """Take note of one event."""
        if isinstance(event, RecordAppended) and type(event.record.data) not in _NOTES:
            return
        if isinstance(event, ToolProgressed) and not self._is_open(event):
            return
        state = self._state(event.agent_path, now)
        match event:
            case RecordAppended(record=record):
                _NOTES[type(record.data)](self, state, record.data, now)
            case ToolProgressed(call_id=call_id):
                state.calls[call_id].progress = _progress(event)
            case LimiterWaited():
                state.between = Doing("waits", text="waits for the model's limit", since=now)
            case LimiterAcquired():
                state.between = Doing("asks", text="", since=now)
        self._changed(state)

    def _is_open(self, event: ToolProgressed) -> bool:
        state = self._states.get(event.agent_path)
        return state is not None and event.call_id in state.calls

    def _state(self, path: str, now: float) -> AgentState:
        """Return the state of an agent; one that is new is below the agent that its path says."""
        state = self._states.get(path)
        if state is None:
            above = path.rpartition("/")[0]
            parent = self._state(above, now) if above else None
            state = self._states[path] = AgentState(
                path,
                parent=parent,
                depth=0 if parent is None else parent.depth + 1,
                began=now,
                route="" if parent is None else parent.route,  # a fork's first request notes none
                between=Doing("prepares", text="prepares its request", since=now),
            )
            if parent is not None:
                insort(parent.children, state, key=_by_name)
            self._changed(state)
        return state

    def _changed(self, state: AgentState) -> None:
        state.row = None
        if state.parent is not None:
            state.parent.row = None  # which may wait for it

    def _begin(self, state: AgentState, _fact: TurnStarted, now: float) -> None:
        state.between = Doing("prepares", text="prepares its request", since=now)
        state.ended, state.report = None, ""

    def _ask(self, state: AgentState, _fact: StepStarted, now: float) -> None:
        state.between = Doing("asks", text="", since=now)

    def _note_route(self, state: AgentState, fact: RouteNoted, _now: float) -> None:
        state.route = f"{fact.provider}:{fact.model}"

    def _note_answer(self, state: AgentState, fact: AssistantSaid, now: float) -> None:
        self._count(state, fact.usage)
        state.between = Doing("prepares", text="reads the answer", since=now)

    def _note_failure(self, state: AgentState, fact: AttemptFailed, now: float) -> None:
        self._count(state, fact.usage)
        state.between = Doing("prepares", text="got no answer", since=now)

    def _count(self, state: AgentState, usage: Usage) -> None:
        state.usage += usage
        self._usage += usage

    def _plan_retry(self, state: AgentState, fact: RetryPlanned, now: float) -> None:
        state.between = Doing("asks", text="", since=now, until=now + fact.delay)

    def _open_call(self, state: AgentState, fact: ToolCalled | CodeCalled, now: float) -> None:
        parent = fact.parent if isinstance(fact, CodeCalled) else ""
        state.calls[fact.call_id] = Call(fact.name, fact.arguments, since=now, parent=parent)

    def _close_call(self, state: AgentState, fact: ToolReturned | CodeReturned, now: float) -> None:
        state.calls.pop(fact.message.call_id, None)
        state.between = Doing("prepares", text="prepares its request", since=now)

    def _await_approval(self, state: AgentState, fact: ApprovalRequested, now: float) -> None:
        state.asked[fact.call_id] = (fact.tool, now)

    def _note_decision(self, state: AgentState, fact: ApprovalDecided, _now: float) -> None:
        state.asked.pop(fact.call_id, None)

    def _start_subagent(self, state: AgentState, fact: SubagentStarted, now: float) -> None:
        self._sessions[fact.session_id] = self._state(f"{state.path}/{fact.name}", now)

    def _settle_subagent(self, state: AgentState, fact: SubagentEnded, now: float) -> None:
        child = self._sessions.pop(fact.session_id, None)
        if child is not None:
            kind, text = _OUTCOMES[fact.outcome]
            child.end(kind, _with_detail(kind, text, fact.diagnostic), now)
            child.report = fact.text.lstrip().partition("\n")[0]
            self._changed(child)

    def _end(self, state: AgentState, fact: TurnEnded, now: float) -> None:
        kind, text = _REASONS[fact.reason]
        state.end(kind, _with_detail(kind, text, fact.detail), now)

    # ---------------------------------------------------------------- looking

    def rows(self) -> list[AgentRow]:
        """Return the agents in the order of the tree: each before those that it started, and these by name and number."""
        roots = [state for state in self._states.values() if state.parent is None]
        return [state.to_row() for state in _in_order(roots)]

    def totals(self) -> Totals:
        """Return all agents together."""
        states = self._states.values()
        ends = [state.ended for state in states if state.ended is not None and state.between.is_over]
        return Totals(
            len(states),
            at_work=len(states) - len(ends),
            usage=self._usage,
            began=min([state.began for state in states], default=None),
            ended=max(ends) if ends and len(ends) == len(states) else None,
        )


_NOTES: dict[type[object], Callable[[Team, AgentState, Any, float], None]] = {
    TurnStarted: Team._begin,
    TurnEnded: Team._end,
    StepStarted: Team._ask,
    RouteNoted: Team._note_route,
    AssistantSaid: Team._note_answer,
    AttemptFailed: Team._note_failure,
    RetryPlanned: Team._plan_retry,
    ToolCalled: Team._open_call,
    ToolReturned: Team._close_call,
    CodeCalled: Team._open_call,
    CodeReturned: Team._close_call,
    ApprovalRequested: Team._await_approval,
    ApprovalDecided: Team._note_decision,
    SubagentStarted: Team._start_subagent,
    SubagentEnded: Team._settle_subagent,
}

_CUT_OFF: tuple[Kind, str] = ("done", "done, but an answer was cut off")
_REASONS: dict[TurnReason, tuple[Kind, str]] = {
    "completed": ("done", "done"),
    "max-tokens": _CUT_OFF,
    "blocked": ("failed", "refused"),
    "limit": ("failed", "failed"),
    "error": ("failed", "failed"),
    "cancelled": ("cancelled", "cancelled"),
}
_OUTCOMES: dict[Outcome, tuple[Kind, str]] = {
    "done": ("done", "done"),
    "truncated": _CUT_OFF,
    "refused": ("failed", "refused"),
    "limit": ("failed", "failed"),
    "failed": ("failed", "failed"),
    "unknown": ("failed", "failed"),
    "cancelled": ("cancelled", "cancelled"),
}


def _by_name(state: AgentState) -> tuple[str, int, str]:
    """Return what siblings are sorted by: those that were started at once came in any order."""
    name = state.path.rpartition("/")[2]
    stem, _, number = name.rpartition("-")
    return (stem, int(number), name) if number.isdecimal() else (name, 0, name)


def _in_order(roots: list[AgentState]) -> Iterator[AgentState]:
    waiting = roots[::-1]
    while waiting:
        state = waiting.pop()
        yield state
        waiting += state.children[::-1]


def _with_detail(kind: Kind, text: str, detail: str) -> str:
    return f"{text}: {detail}" if kind == "failed" and detail else text


def _progress(event: ToolProgressed) -> str:
    if event.done is None:
        return event.text
    of = "" if event.total is None else f" of {event.total:g}"
    return f"{event.text} ({event.done:g}{of})"

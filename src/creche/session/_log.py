"""The log of one session: append-only, validated, immutable, numbered.

`SessionLog.append` is a plain function, so facts can be recorded while a cancellation is on its way. A
refused record leaves everything as it was. The order it holds to is the table of `_order.py`.
"""

import time
from collections.abc import Callable
from typing import Any, overload

import attrs

from creche._util import final
from creche.errors import IllegalRecordError
from creche.messages import Message, ToolMessage
from creche.models import Usage

from ._facts import (
    AssistantSaid,
    AttemptFailed,
    Fact,
    HeaderWritten,
    Record,
    RouteNoted,
    SessionForked,
    SessionHeader,
    StepEnded,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    UserSaid,
)
from ._order import IN_A_TURN, KIND_OF, KINDS, Kind, Phase
from ._shelf import Shelf, ShelfView
from ._surface import Surface, SurfaceState

@final
class SessionLog:
    """The append-only log of one agent, and the history that the model sees.

    Args:
      header: Who it belongs to.
      publish: Called with each record after it is in the log. Contract: synchronous, does not raise, does
        not append.
      write: Called with each record just before `publish`, to hand it to a journal.
    """

    __slots__ = (
        "_boundary",
        "_last_header",
        "_last_route",
        "_phase",
        "_pending",
        "_publish",
        "_publishing",
        "_records",
        "_settled",
        "_snapshot",
        "_step",
        "_surface",
        "_turn",
        "_write",
        "header",
        "usage",
    )

    def __init__(
        self,
        header: SessionHeader,
        *,
        publish: Callable[[Record], None] | None = None,
        write: Callable[[str, Record], None] | None = None,
    ) -> None:
        self.header = header
        """Who it belongs to."""
        self.usage = Usage()
        """What this session's own requests cost."""
        self._publish = publish
        self._write = write
        self._publishing = False
        self._records: Shelf[Record] = Shelf()
        self._surface = Surface()
        self._phase: Phase = "idle"
        self._turn = 0
        self._step = 0
        # Calls of the open step without a result, in the model's order; true once the call is recorded.
        self._pending: dict[str, bool] = {}
        self._settled: _Settled | None = None
        self._boundary = 0
        self._last_header: HeaderWritten | None = None
        self._last_route: RouteNoted | None = None
        self._snapshot = SnapshotState()

    # ---------------------------------------------------------------- reading

    @property
    def id(self) -> str:
        """The session's id."""
        return self.header.id

    @property
    def turn(self) -> int:
        """Number of the last turn, open or not; 0 before the first."""
        return self._turn

    @property
    def phase(self) -> Phase:
        """Where in the legal order the log stands."""
        return self._phase

    @property
    def boundary(self) -> int:
        """How many records at the beginning are shared with the session it was forked from."""
        return self._boundary

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def records(self, kind: None = None) -> ShelfView[Record]: ...
    @overload
    def records(self, kind: str) -> tuple[Record, ...]: ...
    def records(self, kind: str | None = None) -> ShelfView[Record] | tuple[Record, ...]:
        """Return the records so far, all of them as a view or those of one kind as a tuple.

        Raises:
          KeyError: There is no such kind of record; the message lists those there are.
        """
        if kind is None:
            return self._records.view()
        if kind not in KINDS:
            raise KeyError(f"no kind of record {kind!r}; kinds: {', '.join(sorted(KINDS))}")
        return tuple([record for record in self._records.view() if record.kind == kind])

    def surface(self) -> ShelfView[Record]:
        """Return the records that the history is made of, in the order in which the model sees them."""
        return self._surface.nodes

    def derive_messages(self) -> ShelfView[Message]:
        """Return the history as an immutable view that later records do not lengthen. Copies nothing."""
        return self._surface.messages

    def tool_results(self) -> tuple[ToolMessage, ...]:
        """Return the tool results on the surface, in the model's order."""
        return tuple([node.data.message for node in self._surface.nodes if isinstance(node.data, ToolReturned)])

    @property
    def generation(self) -> int:
        """How often something on the surface was replaced."""
        return self._surface.generation

    @property
    def system_nodes(self) -> tuple[Record, ...]:
        """The system prompts on the surface, in order."""
        return self._surface.system_nodes

    @property
    def last_header(self) -> HeaderWritten | None:
        """The newest settings and tools, if any request was made."""
        return self._last_header

    @property
    def last_route(self) -> RouteNoted | None:
        """What was last noted about the route."""
        return self._last_route

    @property
    def snapshot(self) -> "SnapshotState":
        """What stands on the surface of the runtime contexts."""
        return self._snapshot

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Ids of the open step's calls without a result, in the model's order."""
        return tuple(self._pending)

    # ---------------------------------------------------------------- writing

    def append(self, fact: Fact, *, replace: tuple[int, int] | None = None) -> Record:
        """Put a fact at the end of the log. Synchronous; listeners hear it after it is in the log.

        Args:
          fact: What happened.
          replace: First and last sequence number, both on the surface, of the records it takes the place
            of. Without it a surface record joins at the end.

        Returns:
          The record.

        Raises:
          IllegalRecordError: It cannot stand here, or a listener of records tries to append; the log is
            unchanged.
        """
        kind = KIND_OF.get(type(fact))
        if kind is None:
            raise IllegalRecordError(f"{fact!r} is not a fact; the kinds of record are {', '.join(sorted(KINDS))}")
        if self._publishing:
            raise IllegalRecordError(
                f"{kind.name} cannot be appended by a listener of the record before it; note it and append later"
            )
        if replace is None:
            if self._phase not in kind.where:
                raise IllegalRecordError(self._misplaced(kind))
            shadowed: tuple[Record, ...] = ()
        else:
            shadowed = self._check_replace(kind, fact, replace)
        check = _CHECKS.get(type(fact))
        if check is not None and replace is None:
            check(self, fact)
        record = self._record(kind, fact, shadowed)
        self._records.append(record)
        if kind.surface:
            if shadowed:
                self._surface.replace(record, shadowed)
            else:
                self._surface.append(record)
            self._snapshot = self._snapshot.after(record)
        if kind.then is not None and replace is None:
            self._phase = kind.then
        follow = _FOLLOWS.get(type(fact))
        if follow is not None:
            follow(self, fact)
        self._tell(record)
        return record

    def attach(
        self, *, publish: Callable[[Record], None] | None, write: Callable[[str, Record], None] | None
    ) -> None:
        """Set who is told of records from here on; for the agent that owns the log."""
        self._publish = publish
        self._write = write

    def fork(self, header: SessionHeader) -> "SessionLog":
        """Return a session that begins with this one's completed turns. Constant time, nothing is copied.

        Nothing pending goes with it: neither the turn in flight nor the inbox. Its own first record says
        where it was forked; with no completed turn it is an empty session without such a record.
        """
        child = SessionLog(header)
        settled = self._settled
        if settled is not None:
            child._records = Shelf(settled.records)
            child._surface = Surface(settled.surface)
            child._turn = settled.turn
            child._last_header = settled.header
            child._last_route = settled.route
            child._snapshot = settled.snapshot
            child._boundary = len(settled.records)
            child.append(SessionForked(self.id, boundary=child._boundary))
            child._settled = settled
        return child

    # ---------------------------------------------------------------- inside

    def _record(self, kind: Kind, fact: Fact, shadowed: tuple[Record, ...]) -> Record:
        if self._phase == "idle":
            if kind.then == "turn":
                self._turn += 1
                self._step = 0
            turn = self._turn if kind.then == "turn" else 0
            step = 0
        else:
            if kind.then == "step":
                self._step += 1
            turn = self._turn
            step = 0 if self._phase == "turn" and kind.then != "step" else self._step
        return Record(
            len(self._records),
            kind=kind.name,
            data=fact,
            turn=turn,
            step=step,
            time=time.time(),
            shadows=tuple([each.seq for each in shadowed]) if shadowed else (),
        )

    def _tell(self, record: Record) -> None:
        if self._write is not None:
            self._write(self.header.id, record)
        if self._publish is not None:
            self._publishing = True
            try:
                self._publish(record)
            finally:
                self._publishing = False

    def _check_replace(self, kind: Kind, fact: Fact, replace: tuple[int, int]) -> tuple[Record, ...]:
        if not kind.surface:
            raise IllegalRecordError(f"{kind.name} is not part of the history, so it cannot take a record's place in it")
        if self._phase not in IN_A_TURN:
            raise IllegalRecordError(f"{kind.name} can take a record's place only while a turn is open")
        shadowed = self._surface.shadowed(*replace)
        self._surface.check_replacement(fact, shadowed)
        return shadowed

    def _misplaced(self, kind: Kind) -> str:
        legal = ", ".join(sorted(each.name for each in KINDS.values() if self._phase in each.where))
        last = self._records.view()[-1].kind if len(self._records) else "the beginning"
        return (
            f"{kind.name} cannot follow {last} in session {self.header.path!r} (phase {self._phase!r}); "
            f"legal here: {legal}"
        )

    def _settle(self) -> None:
        self._settled = _Settled(
            self._records.view(),
            surface=self._surface.state(),
            turn=self._turn,
            header=self._last_header,
            route=self._last_route,
            snapshot=self._snapshot,
        )

    def __repr__(self) -> str:
        return f"<SessionLog {self.header.path!r} records={len(self._records)} {self._phase}>"


def _check_answer(log: SessionLog, fact: AssistantSaid) -> None:
    ids = [call.id for call in fact.message.tool_calls]
    if len(set(ids)) != len(ids) or not all(ids):
        raise IllegalRecordError(f"an answer's calls need ids of their own, not {ids!r}")


def _check_call(log: SessionLog, fact: ToolCalled) -> None:
    started = log._pending.get(fact.call_id)
    if started is None or started:
        problem = "was recorded already" if started else "is not one of the open step"
        raise IllegalRecordError(f"call {fact.call_id!r} {problem}; without a result are {list(log._pending)!r}")


def _check_result(log: SessionLog, fact: ToolReturned) -> None:
    if fact.message.call_id not in log._pending:
        raise IllegalRecordError(
            f"call {fact.message.call_id!r} is not one of the open step or has its result; "
            f"without one are {list(log._pending)!r}"
        )


def _check_step_end(log: SessionLog, fact: StepEnded) -> None:
    if log._pending:
        raise IllegalRecordError(f"the step cannot end before every call has its result: {list(log._pending)!r}")


def _follow_answer(log: SessionLog, fact: AssistantSaid) -> None:
    log.usage += fact.usage
    log._pending = {call.id: False for call in fact.message.tool_calls}


def _follow_attempt(log: SessionLog, fact: AttemptFailed) -> None:
    log.usage += fact.usage


def _follow_call(log: SessionLog, fact: ToolCalled) -> None:
    log._pending[fact.call_id] = True


def _follow_result(log: SessionLog, fact: ToolReturned) -> None:
    log._pending.pop(fact.message.call_id, None)


def _follow_header(log: SessionLog, fact: HeaderWritten) -> None:
    log._last_header = fact


def _follow_route(log: SessionLog, fact: RouteNoted) -> None:
    log._last_route = fact


def _follow_turn_end(log: SessionLog, fact: TurnEnded) -> None:
    log._settle()


_CHECKS: dict[type, Callable[[SessionLog, Any], None]] = {
    AssistantSaid: _check_answer,
    ToolCalled: _check_call,
    ToolReturned: _check_result,
    StepEnded: _check_step_end,
}
"""What must hold for one kind beyond its place in the table, checked before it is appended."""

_FOLLOWS: dict[type, Callable[[SessionLog, Any], None]] = {
    AssistantSaid: _follow_answer,
    AttemptFailed: _follow_attempt,
    ToolCalled: _follow_call,
    ToolReturned: _follow_result,
    HeaderWritten: _follow_header,
    RouteNoted: _follow_route,
    TurnEnded: _follow_turn_end,
}
"""What the log itself notes of one kind."""

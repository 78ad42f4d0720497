"""The log of one session: append-only, validated, immutable, numbered.

`SessionLog.append` is a plain function, so facts can be recorded while a cancellation is on its way. A
refused record leaves everything as it was. The order it holds to is the table of `_order.py`.

Appending is three steps, and reading a stored log takes the same three: the fact is admitted, the one record
that it can become is drafted, and the record enters. Only the last step changes anything. What comes from
elsewhere must be equal to the draft.
"""

import time
from collections.abc import Callable, Collection
from typing import overload

from creche._util import final
from creche.errors import IllegalRecordError
from creche.messages import Message, ToolMessage
from creche.models import Usage

from ._facts import (
    Fact,
    HeaderWritten,
    Record,
    RouteNoted,
    SessionForked,
    SessionHeader,
    ToolReturned,
)
from ._order import IN_A_TURN, KINDS, Kind, Phase
from ._rules import RULES, Rule
from ._shelf import Shelf, ShelfView
from ._state import CallIds, Settled, SnapshotState
from ._surface import Surface

_NO_SNAPSHOT = SnapshotState()
_NO_USAGE = Usage()


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
        "_allowed",
        "_asked",
        "_boundary",
        "_call_ids",
        "_inner",
        "_last_header",
        "_last_route",
        "_pending",
        "_phase",
        "_publish",
        "_publishing",
        "_records",
        "_settled",
        "_snapshot",
        "_step",
        "_surface",
        "_turn",
        "_write",
        "_written",
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
        self.header: SessionHeader = header
        """Who it belongs to."""
        self.usage: Usage = _NO_USAGE
        """What this session's own requests cost."""
        self._publish = publish
        self._write = write
        # How many records a journal had when `_write` was last absent; while it is set, the journal has all.
        self._written = 0
        self._publishing = False
        self._phase: Phase = "idle"
        self._step = 0
        # Calls of the open step without a result, in the model's order; true once the call is recorded.
        self._pending: dict[str, bool] = {}
        # Calls that are part of another one and run, and of which; calls that wait for an approval, and of what.
        self._inner: dict[str, str] = {}
        self._asked: dict[str, tuple[str, str]] = {}
        # What was allowed for longer than once. A fork begins with nothing: the agent is another one.
        self._allowed: frozenset[tuple[str, str]] = frozenset()
        self._begin_at(None)

    def _begin_at(self, settled: Settled | None) -> None:
        """Begin where another session's last completed turn ended, or with nothing."""
        self._settled = settled
        if settled is None:
            self._records: Shelf[Record] = Shelf()
            self._surface = Surface()
            self._turn = 0
            self._boundary = 0
            self._last_header: HeaderWritten | None = None
            self._last_route: RouteNoted | None = None
            self._snapshot = _NO_SNAPSHOT
            self._call_ids = CallIds()
        else:
            self._records = Shelf(settled.records)
            self._surface = Surface(settled.surface)
            self._turn = settled.turn
            self._boundary = self._written = len(settled.records)
            self._last_header = settled.header
            self._last_route = settled.route
            self._snapshot = settled.snapshot
            self._call_ids = CallIds(settled.calls, settled.call_count)

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

    @property
    def history(self) -> object:
        """What `derive_messages` returns a view of: it only grows, and there is another one once something was replaced."""
        return self._surface.history

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
    def call_ids(self) -> Collection[str]:
        """Ids of every call in the session, those that it shares with what it was forked from included."""
        return self._call_ids

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Ids of the open step's calls without a result, in the model's order."""
        return tuple(self._pending)

    @property
    def allowed(self) -> Collection[tuple[str, str]]:
        """What was allowed to this agent for longer than one call: pairs of a tool's name and a subject."""
        return self._allowed

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
        rule, shadowed = self._admit(fact, replace)
        record = self._draft(rule, fact, shadowed, time.time())
        self._enter(rule, record, shadowed)
        if self._write is not None:
            self._write(self.header.id, record)
        if self._publish is not None:
            self._publishing = True
            try:
                self._publish(record)
            finally:
                self._publishing = False
        return record

    def attach(self, *, publish: Callable[[Record], None] | None, write: Callable[[str, Record], None] | None) -> None:
        """Set who is told of records from here on; for the agent that owns the log.

        What no journal has been given yet, such as the first record of a fork, is given to ``write`` at once;
        the records that a fork shares with its parent are not, and neither are those of a loaded log. So the
        journal has to have heard of the session before.
        """
        if self._write is not None:
            self._written = len(self._records)
        self._publish = publish
        self._write = write
        if write is not None:
            for record in self._records.view()[self._written :]:
                write(self.header.id, record)

    def fork(self, header: SessionHeader) -> "SessionLog":
        """Return a session that begins with this one's completed turns. Constant time, nothing is copied.

        Nothing pending goes with it: neither the turn in flight nor the inbox. Its own first record says
        where it was forked; with no completed turn it is an empty session without such a record.
        """
        child = SessionLog(header)
        if self._settled is not None:
            child._begin_at(self._settled)
            child.append(SessionForked(self.header.id, boundary=child._boundary))
        return child

    def _restore(self, record: Record) -> None:
        """Put a stored record at the end and tell nobody; `append` would have made the same one at that time.

        Raises:
          IllegalRecordError: It cannot stand here, or would be another record here; the log is unchanged.
        """
        replace = (record.shadows[0], record.shadows[-1]) if record.shadows else None
        rule, shadowed = self._admit(record.data, replace)
        draft = self._draft(rule, record.data, shadowed, record.time)
        wrong = [
            f"{name} is {getattr(record, name)!r}, expected {getattr(draft, name)!r}"
            for name in ("seq", "kind", "turn", "step", "shadows")
            if getattr(record, name) != getattr(draft, name)
        ]
        if wrong:
            raise IllegalRecordError(f"{draft.kind} is not the record that can stand here: {'; '.join(wrong)}")
        self._enter(rule, record, shadowed)
        self._written = len(self._records)

    # ---------------------------------------------------------------- inside

    def _admit(self, fact: Fact, replace: tuple[int, int] | None) -> tuple[Rule, tuple[Record, ...]]:
        rule = RULES.get(type(fact))
        if rule is None:
            raise IllegalRecordError(f"{fact!r} is not a fact; the kinds of record are {', '.join(sorted(KINDS))}")
        if self._publishing:
            raise IllegalRecordError(
                f"{rule.kind.name} cannot be appended by a listener of the record before it; note it and append later"
            )
        if replace is not None:
            return rule, self._check_replace(rule.kind, fact, replace)
        if self._phase not in rule.where:
            raise IllegalRecordError(self._misplaced(rule.kind))
        if rule.check is not None:
            rule.check(self, fact)
        return rule, ()

    def _draft(self, rule: Rule, fact: Fact, shadowed: tuple[Record, ...], when: float) -> Record:
        phase = self._phase
        turn, step = self._turn, self._step
        if phase == "idle":
            turn, step = (turn + 1 if rule.then == "turn" else 0), 0
        elif phase == "turn":
            step = step + 1 if rule.then == "step" else 0
        records = self._records
        return Record(
            # `len(records)`, without the call: this and the like are a fifth of what a record costs.
            records._shared + len(records._own),
            kind=rule.kind.name,
            data=fact,
            turn=turn,
            step=step,
            time=when,
            shadows=tuple([each.seq for each in shadowed]) if shadowed else (),
        )

    def _enter(self, rule: Rule, record: Record, shadowed: tuple[Record, ...]) -> None:
        self._records._own.append(record)
        if shadowed:
            # It stands for what it replaced, in an earlier step as like as not, and says nothing about this one.
            self._snapshot = self._snapshot.after(record)
            self._surface.replace(record, shadowed)
            return
        if rule.surface:
            self._surface.append(record)
        if rule.follow is not None:
            rule.follow(self, record, record.data)
        if rule.then is not None:
            self._phase = rule.then

    def _check_replace(self, kind: Kind, fact: Fact, replace: tuple[int, int]) -> tuple[Record, ...]:
        if not kind.surface:
            raise IllegalRecordError(
                f"{kind.name} is not part of the history, so it cannot take a record's place in it"
            )
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

    def __repr__(self) -> str:
        return f"<SessionLog {self.header.path!r} records={len(self._records)} {self._phase}>"

"""What is known of one agent while it works, and the one thing of it that its row says."""

from collections.abc import Collection

from attrs import Factory, define, evolve

from creche.models import Usage

from ._rows import AgentRow, Doing, Kind
from ._text import counted, short_arguments

NO_USAGE = Usage()


@define(eq=False)
class Call:
    """A call without a result."""

    name: str
    """Name of the tool."""
    arguments: str
    """JSON text."""
    since: float
    """When it began."""
    parent: str = ""
    """Id of the call whose program made it."""
    progress: str = ""
    """How far it is, in words."""

    @property
    def text(self) -> str:
        """What is called, in words."""
        if self.progress:
            return f"calls {self.name}: {self.progress}"
        within = " in a program" if self.parent else ""
        return f"calls {self.name} {short_arguments(self.arguments)}".rstrip() + within


@define(eq=False)
class AgentState:
    """What is known of one agent."""

    path: str
    """Its path."""
    parent: "AgentState | None"
    """The agent that started it."""
    depth: int
    """How many agents are above it."""
    began: float
    """When it was first heard of."""
    route: str
    """The provider and model that it asks, if known."""
    between: Doing
    """What it does when no call is open."""
    usage: Usage = NO_USAGE
    """What its requests cost."""
    report: str = ""
    """First line of its report, if it is a subagent that has settled."""
    ended: float | None = None
    """When its last turn ended."""
    calls: dict[str, Call] = Factory(dict[str, Call])
    """Calls without a result, as they began."""
    asked: dict[str, tuple[str, float]] = Factory(dict[str, tuple[str, float]])
    """Calls that wait for an approval: of which tool, since when."""
    children: "list[AgentState]" = Factory(list["AgentState"])
    """The agents that it started, by name and number."""
    row: AgentRow | None = None
    """Kept until something changes."""

    def to_row(self) -> AgentRow:
        """Return its row, the same one while nothing changes."""
        if self.row is None:
            self.row = AgentRow(
                self.path,
                parent=None if self.parent is None else self.parent.path,
                depth=self.depth,
                doing=self._doing(),
                usage=self.usage,
                began=self.began,
                ended=self.ended,
                report=self.report,
            )
        return self.row

    def end(self, kind: Kind, text: str, now: float) -> None:
        """Note that its turn is over, and with it all that was open."""
        self.between = Doing(kind, text=text, since=now)
        self.ended = now
        self.calls.clear()
        self.asked.clear()

    def _doing(self) -> Doing:
        if self.between.is_over:
            return self.between
        if self.asked:  # first, because somebody has to do something
            tool, since = next(iter(self.asked.values()))
            return Doing("waits", text=f"waits for an approval to call {tool}{_more(self.asked)}", since=since)
        if waited_for := self._waited_for():
            since = min([child.began for child in waited_for])
            return Doing("waits", text=f"waits for {counted(len(waited_for), 'subagent')}", since=since)
        if self.calls:
            running = self.calls.keys() - {call.parent for call in self.calls.values()}
            newest = next(self.calls[call_id] for call_id in reversed(self.calls) if call_id in running)
            return Doing("calls", text=f"{newest.text}{_more(running)}", since=newest.since)
        if self.between.kind == "asks":
            return evolve(self.between, text=f"asks {self.route or 'its model'}")
        return self.between

    def _waited_for(self) -> "list[AgentState]":
        """Return the subagents that an open call waits for; those are named after the tool."""
        tools = {call.name for call in self.calls.values()}
        live = [child for child in self.children if not child.between.is_over] if tools else []
        return [child for child in live if child.path.rpartition("/")[2].rpartition("-")[0] in tools]


def _more(what: Collection[object]) -> str:
    return f" and {len(what) - 1} more" if len(what) > 1 else ""

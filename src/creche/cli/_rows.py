"""Agents as rows for people: what each does now, since when, and what it cost. Pure values."""

from typing import Literal

from attrs import field, frozen

from creche.models import Usage

Kind = Literal["prepares", "asks", "calls", "waits", "done", "failed", "cancelled"]


@frozen
class Doing:
    """What an agent does."""

    kind: Kind
    """What sort of thing; ``waits`` is for a limit, an approval, subagents or the next attempt."""
    text: str = field(kw_only=True)
    """In words that go on after its name, as they came from models and tools: not yet fit for a terminal."""
    since: float = field(kw_only=True)
    """When it began."""
    until: float | None = field(default=None, kw_only=True)
    """When it asks again, if it waits to; ``text`` is for after that."""

    @property
    def is_over(self) -> bool:
        """Whether its turn has ended."""
        return self.kind in ("done", "failed", "cancelled")

    def says(self, now: float) -> str:
        """Return it in words, at a time."""
        if self.until is not None and now < self.until:
            return f"asks again in {self.until - now:.1f} s"
        return self.text


@frozen
class AgentRow:
    """One agent."""

    path: str
    """Its path."""
    parent: str | None = field(kw_only=True)
    """Path of the agent that started it."""
    depth: int = field(kw_only=True)
    """How many agents are above it."""
    doing: Doing = field(kw_only=True)
    """What it does."""
    usage: Usage = field(kw_only=True)
    """What its own requests cost so far, the open one not counted."""
    began: float = field(kw_only=True)
    """When it was first heard of."""
    ended: float | None = field(kw_only=True)
    """When its last turn ended; ``None`` while one is open or about to be."""
    report: str = field(default="", kw_only=True)
    """First line of what a subagent that has settled answered; as it came from the model."""

    @property
    def name(self) -> str:
        """The last segment of its path."""
        return self.path.rpartition("/")[2]

    def seconds(self, now: float) -> float:
        """Return how long it has been there, until its end if it has ended."""
        return (now if self.ended is None else self.ended) - self.began


@frozen
class Totals:
    """All agents together."""

    agents: int = 0
    """How many were heard of."""
    at_work: int = field(default=0, kw_only=True)
    """How many of them have not ended."""
    usage: Usage = field(factory=Usage, kw_only=True)
    """What their requests cost."""
    began: float | None = field(default=None, kw_only=True)
    """When the first was heard of."""
    ended: float | None = field(default=None, kw_only=True)
    """When the last one ended, if all have."""

    def seconds(self, now: float) -> float:
        """Return how long they have been there, until the end of the last if all have ended."""
        return 0.0 if self.began is None else (now if self.ended is None else self.ended) - self.began

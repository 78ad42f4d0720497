"""What the agents do, as plain lines, one an event."""

import time
from collections.abc import Callable, Iterable

from creche.agent import Agent, LimiterWaited
from creche.host import Host
from creche.models import Usage
from creche.scope import Fault
from creche.session import (
    ApprovalDecided,
    ApprovalRequested,
    AssistantSaid,
    AttemptFailed,
    CodeCalled,
    Fact,
    Record,
    RecordAppended,
    RetryPlanned,
    RouteNoted,
    SubagentEnded,
    SubagentStarted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
)

from ._output import Output
from ._routes import Routes
from ._text import one_line, short_arguments
from ._told import asks_again

WIDTH = 96
"""Longest line, in characters."""
WIDTH_OF_FAILURES = 400
"""Longest line about why something failed."""


def last_said(records: Iterable[Record]) -> str:
    """Return the last answer among records, whole or cut off; ``""`` if there is none."""
    said = [record.data.message.text for record in records if isinstance(record.data, AssistantSaid)]
    return said[-1] if said else ""


class Progress:
    """Tells what happens in lines, with the seconds since the beginning.

    Args:
      write: Writes a line; nothing is told without it.
      speaker: Path of an agent whose answers are shown elsewhere.
      is_brief: Whether only what goes wrong is told, because what the agents do is shown elsewhere.
    """

    def __init__(self, write: Callable[[str], None] | None, *, speaker: str = "", is_brief: bool = False) -> None:
        self._write = write
        self._speaker = speaker
        self._is_brief = is_brief
        self._begun = time.monotonic()
        self._names: dict[str, str] = {}
        self._routes = Routes()
        self._lead: Agent | None = None
        self.location: str | None = None
        """Where the log is, once it is known."""
        self.stopped: list[str] = []
        """Paths of the agents whose turn was cancelled."""

    @classmethod
    def beside(cls, output: Output | None, *, speaker: str = "") -> "Progress":
        """Return one that tells what an output does not show of itself."""
        if output is None:
            return cls(None, speaker=speaker)
        return cls(output.line, speaker=speaker, is_brief=output.shows_agents)

    @property
    def where(self) -> str:
        """Where the log is, for people."""
        return f"log: {self.location}" if self._lead is not None and len(self._lead.session) else "nothing was logged"

    @property
    def usage(self) -> Usage:
        """What all agents cost so far."""
        return Usage() if self._lead is None else self._lead.usage

    @property
    def answer(self) -> str:
        """What the lead said last, whole or cut off."""
        return "" if self._lead is None else last_said(self._lead.session.records("assistant/message"))

    def follow(self, host: Host, lead: Agent) -> None:
        """Follow every agent of a host from here on."""
        self._lead, self.location = lead, lead.journal.location
        host.registrar.on(RecordAppended, self._record)
        if self._write is not None:
            if not self._is_brief:
                host.registrar.on(
                    LimiterWaited, lambda event: self.line(event.agent_path, "waits for the model's limit")
                )
            host.registrar.on(Fault, self._tell_fault)

    def _tell_fault(self, fault: Fault) -> None:
        self.line(fault.owner, f"failed {fault.what}: {fault.error!r}", width=WIDTH_OF_FAILURES)

    def line(self, path: str, text: str, *, width: int = WIDTH) -> None:
        """Tell one thing about an agent."""
        if self._write is not None:
            shown = one_line(text)
            whole = f"{time.monotonic() - self._begun:6.2f}s  {path:<22} {shown}"
            self._write(whole if len(whole) <= width else whole[: width - 3] + "...")

    def _record(self, event: RecordAppended) -> None:
        told = self._sentence(event)
        failed = isinstance(event.record.data, AttemptFailed)
        if told is not None and (failed or not self._is_brief):
            self.line(event.agent_path, told, width=WIDTH_OF_FAILURES if failed else WIDTH)

    def _sentence(self, event: RecordAppended) -> str | None:
        told = None
        match event.record.data:
            case TurnEnded("cancelled"):
                self.stopped.append(event.agent_path)
            case SubagentStarted(name, provider=provider, session_id=session_id):
                self._names[session_id] = name
                told = f"starts {name} ({provider})"
            case SubagentEnded(session_id, outcome=outcome):
                told = f"hears from {self._names.pop(session_id, session_id)}: {outcome}"
            case AssistantSaid(message) if message.text and not message.tool_calls:
                told = None if event.agent_path == self._speaker else f"says {message.text.splitlines()[0]}"
            case RouteNoted() as noted:
                route = self._routes.note(event.agent_path, noted)
                told = None if route is None else f"asks {route}"
            case AttemptFailed(error, code=code) if code != "cancelled":
                told = f"got no answer: {error}"
            case RetryPlanned(delay=delay):
                told = asks_again(delay)
            case _:
                told = _sentence_about_call(event.record.data)
        return told


def _sentence_about_call(fact: Fact) -> str | None:
    match fact:
        case ToolCalled(name=name, arguments=arguments):
            return f"calls {name} {short_arguments(arguments)}"
        case CodeCalled(name=name, arguments=arguments):
            return f"calls {name} {short_arguments(arguments)} in a program"
        case ToolReturned(message, code=code) if code:
            return f"is told that {message.name} failed ({code}): {message.text}"
        case ApprovalRequested(tool=name):
            return f"waits for an approval to call {name}"
        case ApprovalDecided(decision="allowed" | "refused" as decision):
            return f"is {decision}"
        case _:
            return None  # the rest is for the log

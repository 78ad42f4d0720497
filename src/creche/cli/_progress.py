"""What the agents do, as plain lines, one an event."""

import json
import time
from typing import TextIO, cast

from creche.agent import Agent, LimiterWaited
from creche.host import Host
from creche.scope import Fault
from creche.session import (
    AssistantSaid,
    AttemptFailed,
    RecordAppended,
    RetryPlanned,
    SubagentEnded,
    SubagentStarted,
    ToolCalled,
    ToolReturned,
)

WIDTH = 96
"""Longest line, in characters."""


class Progress:
    """Writes what happens to a stream, with the seconds since the beginning; to none if there is none."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._begun = time.monotonic()
        self._paths: dict[str, str] = {}
        self.location: str | None = None
        """Where the log is, once it is known."""

    def follow(self, host: Host, lead: Agent) -> None:
        """Follow every agent of a host from here on."""
        self.location = lead.journal.location
        if self._stream is None:
            return
        host.registrar.on(RecordAppended, self._record)
        host.registrar.on(LimiterWaited, lambda event: self.line(event.agent_path, "waits for the model's limit"))
        host.registrar.on(Fault, lambda event: self.line(event.owner, f"failed {event.what}: {event.error!r}"))

    def line(self, path: str, text: str) -> None:
        """Write one line."""
        assert self._stream is not None, "without a stream nothing is followed"
        shown = "".join(char if char.isprintable() else " " for char in text)
        whole = f"{time.monotonic() - self._begun:6.2f}s  {path:<22} {shown}"
        self._stream.write(whole if len(whole) <= WIDTH else whole[: WIDTH - 3] + "...")
        self._stream.write("\n")
        self._stream.flush()

    def _record(self, event: RecordAppended) -> None:
        told = self._tell(event)
        if told is not None:
            self.line(event.agent_path, told)

    def _tell(self, event: RecordAppended) -> str | None:
        told = None
        match event.record.data:
            case SubagentStarted(name, provider=provider, session_id=session_id):
                self._paths[session_id] = name
                told = f"starts {name} ({provider})"
            case SubagentEnded(session_id, outcome=outcome):
                told = f"hears from {self._paths.pop(session_id, session_id)}: {outcome}"
            case ToolCalled(name=name, arguments=arguments):
                told = f"calls {name} {_short(arguments)}"
            case ToolReturned(message, code=code) if code:
                told = f"is told that {message.name} failed ({code}): {message.text}"
            case AssistantSaid(message) if message.text and not message.tool_calls:
                told = f"says {message.text.splitlines()[0]}"
            case AttemptFailed(error):
                told = f"got no answer: {error}"
            case RetryPlanned(delay=delay):
                told = f"asks again in {delay:.1f} s"
            case _:
                pass  # the rest is for the log
        return told


def _short(arguments: str) -> str:
    """Return arguments for people: names and values, without braces."""
    try:
        values = json.loads(arguments)
    except ValueError:
        return arguments
    if not isinstance(values, dict):
        return arguments
    return ", ".join(f"{name}={value!r}" for name, value in cast("dict[str, object]", values).items())

"""The terminal as an approver: each call that has to be asked for is shown, and a line of the user decides.

Rule 1: one question at a time; what was allowed meanwhile is not asked.
Rule 2: the user is asked until the answer is one of those offered; a terminal that has ended answers nothing more.
"""

import os
import sys
from collections.abc import Callable

import trio

from creche.scope import Plugin
from creche.tools import Allow, ApprovalRequest, Approver, Refuse

WIDEST = 2000
"""Characters of a subject that are shown."""

_QUESTION = "    y: once, a: always for this agent, p: always in this project, n: no, or why not"
_ANSWERS: dict[str, Allow | Refuse] = {"y": Allow(), "a": Allow("agent"), "p": Allow("project"), "n": Refuse()}


class Terminal:
    """Asks on the terminal.

    Args:
      write: Writes one line.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._turn = trio.StrictFIFOLock()
        self._read = b""
        self._has_ended = False

    @property
    def plugin(self) -> Plugin:
        """What brings it to every agent."""
        return Plugin("terminal", setup=[Approver(self.answer)])

    async def answer(self, request: ApprovalRequest) -> Allow | Refuse | None:
        """Ask about one call."""
        agent = request.agent
        async with self._turn:
            if agent is not None and request.subject in agent.session.allowed:
                return Allow()
            who = "a program" if agent is None else agent.path
            self._write(f"{who} asks to call {request.tool}: {request.reason}")
            for line in _printable(request.subject).splitlines() or [""]:
                self._write(f"    {line}")
            return await self._decide()

    async def _decide(self) -> Allow | Refuse | None:
        while not self._has_ended:
            self._write(_QUESTION)
            said = (await self._line()).strip()
            if said.lower() in _ANSWERS:
                return _ANSWERS[said.lower()]
            if len(said) > 1:
                return Refuse(said)
        return None

    async def _line(self) -> str:
        """Wait for a line of the user; nothing of a line that is not finished is lost when this is cancelled."""
        while b"\n" not in self._read:
            await trio.lowlevel.wait_readable(sys.stdin.fileno())
            more = os.read(sys.stdin.fileno(), 4096)
            if not more:
                self._has_ended = True
                return ""
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        return line.decode(errors="replace")


def _printable(text: str) -> str:
    shown = text if len(text) <= WIDEST else f"{text[:WIDEST]}... ({len(text):,} characters)"
    return "".join([char if char.isprintable() or char == "\n" else " " for char in shown])


def allow_all() -> Plugin:
    """Return the plugin that allows everything that is asked for."""

    async def answer(request: ApprovalRequest) -> Allow:
        return Allow()

    return Plugin("--yes", setup=[Approver(answer)])

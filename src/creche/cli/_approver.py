"""The terminal as an approver: each call that has to be asked for is shown, and a line of the user decides.

Rule 1: one question at a time; what was allowed for the project meanwhile is not asked.
Rule 2: what was typed before a question is no answer to it. The user is asked until the answer is one of those
offered; a terminal that has ended answers nothing more.
"""

import os
import sys
from typing import Protocol

import trio

from creche.scope import Plugin
from creche.tools import Allow, ApprovalRequest, Approver, Refuse

from ._asking import Asking

WIDEST = 2000
"""Characters of a subject that are shown, half of them from its end."""

_QUESTION = "    yes, always for this agent (a), always in this project (p), no, or no and why?"
_ANSWERS: dict[str, Allow | Refuse] = {
    "y": Allow(),
    "yes": Allow(),
    "a": Allow("agent"),
    "always": Allow("agent"),
    "p": Allow("project"),
    "project": Allow("project"),
    "n": Refuse(),
    "no": Refuse(),
}


class Answers(Protocol):
    """Somebody who can be asked."""

    def line(self, line: str, /) -> None:
        """Show a line, without what a terminal would obey."""
        ...

    async def answer(self, question: str, /) -> str | None:
        """Show a question and wait for the line that answers it; ``None`` when nobody answers any more.

        Contract: what was typed before the question was shown is no part of the answer.
        """
        ...


class Keyboard:
    """Reads answers from stdin.

    Args:
      output: Where questions are written.
    """

    def __init__(self, output: Asking) -> None:
        self.line = output.line
        self._output = output
        self._has_ended = False

    async def answer(self, question: str) -> str | None:
        """Ask, and wait for a line."""
        with self._output.asking() as ask:
            await ask(question)
            return await self._line()

    async def _line(self) -> str | None:
        read = b""
        while not self._has_ended:
            await trio.lowlevel.wait_readable(sys.stdin.fileno())
            more = os.read(sys.stdin.fileno(), 4096)
            read += more
            if b"\n" in more:
                return read.partition(b"\n")[0].decode(errors="replace")
            self._has_ended = not more
        return None


class Terminal:
    """Asks for approvals on the terminal.

    Args:
      answers: Whom to ask.
    """

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._turn = trio.StrictFIFOLock()
        self._has_ended = False
        self._in_project: set[tuple[str, str]] = set()

    @property
    def plugin(self) -> Plugin:
        """What brings it to every agent."""
        return Plugin("terminal", setup=[Approver(self.answer)])

    async def answer(self, request: ApprovalRequest) -> Allow | Refuse | None:
        """Ask about one call."""
        agent, about = request.agent, (request.tool, request.subject)
        async with self._turn:
            if self._has_ended:
                return None
            if about in self._in_project:
                return Allow()
            who = "a call without an agent" if agent is None else agent.path
            self._answers.line(f"{who} asks to call {request.tool}: {request.reason}")
            said = request.arguments.get("description")
            for text in (request.subject, f"({said})" if isinstance(said, str) else ""):
                for line in _shortened(text).split("\n") if text else ():
                    self._answers.line(f"    {line}")
            answer = await self._decide()
            if answer == Allow("project"):
                self._in_project.add(about)
            return answer

    async def _decide(self) -> Allow | Refuse | None:
        while (line := await self._answers.answer(_QUESTION)) is not None:
            word, _, reason = line.strip().partition(" ")
            answer = _ANSWERS.get(word.lower().rstrip(",:"))
            if isinstance(answer, Refuse):
                return Refuse(reason.strip())
            if answer is not None and not reason:
                return answer
        self._has_ended = True
        self._answers.line("    nobody answers here any more; what has to be asked for is refused")
        return None


def _shortened(text: str) -> str:
    half = WIDEST // 2
    left_out = f"\n... {len(text) - WIDEST:,} characters ...\n"
    return text if len(text) <= WIDEST else f"{text[:half]}{left_out}{text[-half:]}"

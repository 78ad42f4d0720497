"""A chat without a terminal: each line of stdin is a turn, so that it can be scripted.

Rule: answers go to stdout and everything else to stderr, also what commands say.
"""

import json
import os
import sys
import time
from contextlib import suppress
from functools import partial
from typing import TextIO, cast

import attrs
import trio

from creche.agent import Agent
from creche.errors import CrecheError, InternalError
from creche.models import Usage

from ._approver import Keyboard
from ._console import Console
from ._ending import FAILED, WrongUsage, complain, unread
from ._inspect import command_text
from ._lead import LEAD, Job, open_lead, speak
from ._outcome import End, account, end_of
from ._output import attend
from ._progress import Progress, last_said
from ._stopped import Stopped, run_until_stopped
from ._team import Team
from ._text import printable
from ._typed import Command, Message, Name, read_line


def chat_in_lines(job: Job, *, as_json: bool) -> int:
    """Take the lines of stdin as turns; return the exit code."""
    console = Console()
    progress = Progress(None if as_json else console.line, speaker=LEAD)
    chat = _Chat(console, progress, as_json=as_json)
    note = ""
    ended = run_until_stopped(lambda: trio.run(attend, console, partial(chat.run, job)), console)
    if isinstance(ended, Stopped):
        chat.code, note = ended.code, ended.sentence
        if ended.by_signal:
            chat.end_turn(End("cancelled", error=note, code=chat.code))
            console.drain()
    if console.error is not None:
        chat.code, note = FAILED, unread(console.error)
    if as_json and not note:
        return chat.code
    return complain(f"{note}. {account(progress)}" if note else account(progress), chat.code)


class _Chat:
    """Turns, one after the other.

    Args:
      console: Where it is written.
      progress: Told what the agents do.
      as_json: Whether each turn is written as one JSON object, and nothing else.
    """

    def __init__(self, console: Console, progress: Progress, *, as_json: bool) -> None:
        self.code = 0
        """The exit code."""
        self._console = console
        self._progress = progress
        self._as_json = as_json
        self._team = Team()
        self._turn: _Turn | None = None

    async def run(self, job: Job) -> None:
        """Take lines until there are no more."""
        answers = None if self._as_json else Keyboard(self._console)
        async with open_lead(job, self._progress, answers) as (host, lead):
            self._team.follow(host.registrar, time.monotonic)
            if not self._as_json:
                speak(host, lead, self, lambda: self._progress.line(LEAD, "begins the answer anew"))
            stdin = _Stdin()
            if stdin.is_terminal and not self._as_json:
                self._console.line("creche: each line is a turn, /help says what else can be typed, Ctrl-D leaves")
            while (line := await stdin.line()) is not None:
                if not await self._take(line, lead):
                    break

    async def _take(self, data: bytes, lead: Agent) -> bool:
        """Do what a line says; return whether there may be another one."""
        try:
            line = read_line(data.decode())
        except UnicodeDecodeError as error:
            self._refuse_line(f"a line is not sent, because it is no UTF-8: {error}")
            return True
        except WrongUsage as wrong:
            self._refuse_line(str(wrong))
            return True
        match line:
            case None:
                pass
            case Message(text):
                await self._ask(text, lead)
            case Command(name):
                return await self._obey(name, lead)
        return True

    async def _obey(self, name: Name, lead: Agent) -> bool:
        match name:
            case "quit":
                return False
            case "cancel":
                self._console.line("nothing runs that could be cancelled")
            case _:
                self._console.line(await command_text(name, self._team, lead, time.monotonic()))
        return True

    async def _ask(self, text: str, lead: Agent) -> None:
        self._turn = _Turn(lead)
        try:
            end = end_of(await lead.ask(text))
        except (CrecheError, InternalError) as error:
            end = End("failed", error=str(error))
        self.end_turn(end)

    def end_turn(self, end: End) -> None:
        """Tell how the open turn ended, if one is open."""
        turn, self._turn = self._turn, None
        if turn is None:
            return
        self.code = self.code or end.code
        if self._as_json:
            whole = attrs.evolve(end, answer=end.answer or turn.answer)
            self._console.say(json.dumps(whole.told(turn.usage, self._progress.location)) + "\n")
        elif end.code in (0, FAILED) and (note := end.error or end.note):
            self._console.line(f"creche: {note}")

    def _refuse_line(self, sentence: str) -> None:
        """Say why a line is not sent; the exit code says it as well."""
        self._console.line(f"creche: {sentence}")
        self.code = self.code or FAILED

    # ---------------------------------------------------------------- the answer, without what a terminal would obey

    def say(self, text: str) -> None:
        """Write more of the answer."""
        self._console.say(printable(text))

    def end_line(self) -> None:
        """Let what comes next begin on a line of its own."""
        self._console.end_line()


class _Turn:
    """What a turn costs and says, whatever becomes of it."""

    def __init__(self, lead: Agent) -> None:
        self._lead = lead
        self._before = lead.usage
        self._records = len(lead.session.records())

    @property
    def usage(self) -> Usage:
        """What it and all that it started cost."""
        before = attrs.asdict(self._before)
        return Usage(**{name: number - before[name] for name, number in attrs.asdict(self._lead.usage).items()})

    @property
    def answer(self) -> str:
        """What was said last in it."""
        return last_said(self._lead.session.records()[self._records :])


class _Stdin:
    """Reads stdin line by line."""

    def __init__(self) -> None:
        stdin = cast("TextIO | None", sys.stdin)
        self.is_terminal = stdin is not None and stdin.isatty()
        """Whether somebody types."""
        self._file = None if stdin is None else stdin.fileno()
        self._read = bytearray()

    async def line(self) -> bytes | None:
        """Wait for a line; ``None`` when there are no more.

        Raises:
          WrongUsage: It cannot be read.
        """
        searched = 0  # a line may have many millions of characters
        while self._file is not None and self._read.find(b"\n", searched) < 0:
            searched = len(self._read)
            with suppress(OSError):  # a file has always something, and nobody can wait for that
                await trio.lowlevel.wait_readable(self._file)
            try:
                more = os.read(self._file, 65536)
            except OSError as error:
                raise WrongUsage(f"stdin cannot be read: {error.strerror}") from None
            self._read += more
            if not more:
                self._file = None
        if not self._read:
            return None
        line, _, self._read = self._read.partition(b"\n")
        return bytes(line)

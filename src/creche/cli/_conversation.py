"""A conversation with a lead on a terminal: what is typed reaches the lead, and what becomes of it is shown.

Rule 1: a line that is typed while a turn runs joins its next step; if that never comes, it begins the next turn.
Rule 2: a turn that fails says so in one sentence, and the conversation goes on.
Rule 3: Ctrl-C cancels what runs, or else clears the line, or else says how to leave; a second one leaves.
"""

import time
from typing import assert_never

import trio

from creche._util import open_hidden_nursery
from creche.agent import Agent
from creche.host import Host
from creche.scope import Fault
from creche.session import MessagesClaimed, MessagesDropped, RecordAppended

from ._desk import Desk, Signalled
from ._ending import INTERRUPTED, WrongUsage
from ._inspect import command_text, status_text
from ._keys import Interrupted, Left, Typed
from ._lead import speak
from ._signals import code_and_word
from ._team import Team
from ._text import shortened
from ._told import Sentences
from ._typed import Command, Message, Name, read_line

JOINS = "joins the turn at its next step"
LONGEST = 60
"""Characters of a line that are repeated."""
TICK = 1.0
"""Seconds after which the status is shown anew while somebody works."""


class Conversation:
    """What is typed, and what becomes of it."""

    def __init__(self, host: Host, lead: Agent, desk: Desk) -> None:
        self._lead = lead
        self._desk = desk
        self._changed = trio.Event()
        self._unread: dict[str, tuple[str, int | None]] = {}
        """Lines that the lead has not read: what they say, and the turn that they are for."""
        self._sentences = Sentences(lead.path)
        self._team = Team()
        self._team.follow(host.registrar, time.monotonic)
        host.registrar.on(RecordAppended, self._hear)
        host.registrar.on(Fault, lambda event: desk.note(f"{event.owner} failed {event.what}: {event.error!r}"))
        host.registrar.at(lead.scope).on(RecordAppended, self._hear_of_lines, here_only=True)
        speak(host, lead, desk, lambda: desk.note("the answer begins anew"))

    async def run(self) -> int:
        """Go on until the user leaves; return the exit code."""
        async with open_hidden_nursery("the chat") as nursery:
            nursery.start_soon(self._keep_status, name="status")
            async for key in self._desk.keys:
                match key:
                    case Typed(text):
                        if not await self._take(text):
                            return 0
                    case Interrupted():
                        if not self._interrupt(key):
                            return INTERRUPTED
                    case Left():
                        return 0
                    case Signalled(number):
                        return code_and_word(number)[0]
                    case _:
                        assert_never(key)
        raise AssertionError("the desk is open for as long as the conversation")

    # ---------------------------------------------------------------- what is typed

    async def _take(self, typed: str) -> bool:
        """Do what a line says; return whether the conversation goes on."""
        echo = "> " + typed.rstrip().replace("\n", "\n  ")
        try:
            line = read_line(typed)
        except WrongUsage as wrong:
            self._desk.echo(echo)
            self._desk.note(str(wrong))
            return True
        if line is not None:
            self._desk.echo(echo)
        match line:
            case None:
                pass
            case Message(text):
                self._say(text)
            case Command(name):
                return await self._obey(name)
        return True

    async def _obey(self, name: Name) -> bool:
        match name:
            case "quit":
                return False
            case "cancel":
                self._cancel("the turn is being cancelled")
            case _:
                self._desk.line(await command_text(name, self._team, self._lead, time.monotonic()))
        return True

    def _say(self, text: str) -> None:
        turn = self._lead.session.turn if self._lead.is_busy else None
        if turn is not None:
            self._desk.note(f"  {JOINS}")
        self._unread[self._lead.steer(text).id] = (text, turn)

    def _interrupt(self, key: Interrupted) -> bool:
        """Do what Ctrl-C does; return whether the conversation goes on."""
        if key.again:
            return False
        if self._is_working:
            self._cancel("Ctrl-C: the turn is being cancelled; another one leaves")
        elif key.has_draft:
            self._desk.clear()
        else:
            self._desk.note("Ctrl-C again leaves, and so does Ctrl-D")
        return True

    def _cancel(self, told: str) -> None:
        self._desk.note(told if self._is_working else "nothing runs that could be cancelled")
        self._lead.cancel()

    @property
    def _is_working(self) -> bool:
        return self._lead.is_busy or bool(self._unread)

    # ---------------------------------------------------------------- what happens

    def _hear(self, event: RecordAppended) -> None:
        self._changed.set()
        sentence = self._sentences.take(event)
        if sentence is not None:
            self._desk.note(sentence)

    def _hear_of_lines(self, event: RecordAppended) -> None:
        """Tell what becomes of lines that the lead had not read, if it is not what they were typed for."""
        match event.record.data:
            case MessagesClaimed(ids):
                for text, turn in self._take_unread(ids):
                    if turn not in (None, event.record.turn):
                        self._desk.note(f"too late for that turn, begins the next one: {shortened(text, LONGEST)}")
            case MessagesDropped(ids):
                for text, _ in self._take_unread(ids):
                    self._desk.note(f"not read: {shortened(text, LONGEST)}")
            case _:
                pass

    def _take_unread(self, ids: tuple[str, ...]) -> list[tuple[str, int | None]]:
        return [self._unread.pop(each) for each in ids if each in self._unread]

    async def _keep_status(self) -> None:
        while True:
            self._changed = trio.Event()
            now = time.monotonic()
            self._desk.status(status_text(self._team, len(self._unread), now))
            with trio.move_on_after(TICK if self._is_working else float("inf")):
                await self._changed.wait()

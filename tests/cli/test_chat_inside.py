"""What cannot be brought about from outside of a chat's process."""

import os
import pty
import sys
import termios

import pytest
import trio

from creche.agent import AgentSpec
from creche.cli import _chat, _signals
from creche.cli._conversation import Conversation
from creche.cli._desk import open_desk
from creche.cli._keys import Left, Typed
from creche.errors import InternalError, StoreError
from creche.host import open_host
from creche.models import FunctionModel, say
from creche.prompt import Section
from creche.scope import Owner


@pytest.fixture
def terminal(monkeypatch):
    """A pseudo-terminal as stdin and stdout of this process; its other side."""
    ours, theirs = pty.openpty()
    with open(theirs, encoding="utf-8", closefd=False) as stdin, open(theirs, "w", encoding="utf-8") as stdout:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stdout", stdout)
        monkeypatch.setenv("TERM", "xterm")
        yield ours
        monkeypatch.undo()
    os.close(ours)


async def test_a_bug_in_the_thread_is_an_internal_error_and_leaves_the_terminal_as_it_was(terminal, tmp_path):
    def fail():
        raise ZeroDivisionError("a bug")

    before = termios.tcgetattr(terminal)

    async def talk():
        async with open_desk(tmp_path / "history") as desk:
            desk._editor.call(fail)
            await trio.sleep_forever()

    with pytest.raises(InternalError, match="a task of the terminal crashed: ZeroDivisionError"):
        await talk()
    assert termios.tcgetattr(terminal) == before


async def test_what_waits_to_be_read_when_a_question_is_shown_is_no_answer(terminal, tmp_path):
    async with open_desk(tmp_path / "history") as desk:
        editor = desk._editor

        def type_and_ask():
            os.write(terminal, b"y\r")
            editor.begin_question(answers.append)
            editor._app._redraw()

        answers = []
        editor.call(type_and_ask)
        with trio.fail_after(30):
            assert await desk.keys.receive() == Typed("y")
        assert answers == []


class FakeDesk:
    """A desk that somebody reads."""

    def __init__(self, *keys):
        self.shown = []
        self.line = self.note = self.echo = self.say = self.shown.append
        send, self.keys = trio.open_memory_channel(len(keys))
        for key in keys:
            send.send_nowait(key)

    def end_line(self):
        pass

    def status(self, status):
        pass


async def test_a_prompt_that_cannot_be_assembled_is_told_of_and_so_is_a_fault():
    def fail(_context):
        raise ValueError("no moon")

    desk = FakeDesk(Typed("/prompt"), Typed(" "), Left())
    async with open_host(model=FunctionModel(lambda _: [say("x")])) as host, host.open_agent(AgentSpec("lead")) as lead:
        host.registrar.add(Section("moon", order=200, text=fail))
        conversation = Conversation(host, lead, desk)
        host.registry.report(Owner("weather", None), "looking up", ValueError("rain"))
        assert await conversation.run() == 0
    assert desk.shown[:2] == ["weather failed looking up: ValueError('rain')", "> /prompt"]
    assert "no moon" in desk.shown[2]
    assert len(desk.shown) == 3


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (KeyboardInterrupt(), 130, "creche: interrupted. 0 requests, "),
        (StoreError("the disk is full"), 1, "creche: the disk is full. 0 requests, "),
    ],
)
def test_what_ends_a_chat_before_it_has_begun_is_one_sentence(error, code, sentence, monkeypatch, capfd):
    async def fail(_job, _progress):
        raise error

    monkeypatch.setattr(_chat, "_converse", fail)
    monkeypatch.setattr(_signals, "end_soon", lambda _number: None)  # it would end this process
    assert _chat._chat_on_terminal(None) == code
    assert capfd.readouterr().err.startswith(sentence)

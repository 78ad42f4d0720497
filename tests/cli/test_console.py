"""Where the answer goes, and the lines about it."""

import contextlib
import errno
import os
import re
import sys

import pytest
import trio
import trio.testing

from creche.agent import AgentSpec
from creche.cli._console import Console
from creche.cli._ending import complain, tell
from creche.cli._progress import Progress
from creche.host import open_host
from creche.models import FunctionModel, call, fail, say
from creche.plugins.fallback import fallback
from creche.session import RecordAppended
from creche.subagents import delegation


@pytest.fixture
def streams(monkeypatch):
    """Put something in the place of stdout and stderr."""
    with contextlib.ExitStack() as opened:

        def put(out, err):
            for name, descriptor in (("stdout", out), ("stderr", err)):
                stream = opened.enter_context(open(descriptor, "w", encoding="utf-8"))
                monkeypatch.setattr(sys, name, stream)

        yield put
        monkeypatch.undo()


async def test_a_reader_that_is_slow_holds_up_nobody_and_gets_everything_in_order(streams):
    read, write = os.pipe()
    streams(write, os.dup(write))
    console = Console()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(console.run)
        console.say("a" * 100_000)
        console.line("one")
        await trio.testing.wait_all_tasks_blocked()
        console.say("b" * 100_000)
        console.close()
        await trio.testing.wait_all_tasks_blocked()
        got = b""
        while not got.endswith(b"b" * 100_000):
            await trio.lowlevel.wait_readable(read)
            got += os.read(read, 65536)
    os.close(read)
    assert got.decode() == "a" * 100_000 + "one\n" + "b" * 100_000


async def test_what_a_cancellation_leaves_is_written_once(streams):
    read, write = os.pipe()
    streams(write, os.dup(write))
    console = Console()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(console.run)
        console.say("x" * 100_000)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    got = os.read(read, 70_000)
    console.drain()
    got += os.read(read, 70_000)
    os.close(read)
    assert got == b"x" * 100_000


async def test_on_one_screen_a_line_does_not_join_the_answer_and_nothing_is_obeyed(streams, monkeypatch):
    screen, terminal = os.openpty()
    streams(terminal, os.dup(terminal))
    monkeypatch.setattr(sys, "stdin", sys.stdout)
    console = Console()
    console.say("Half")
    console.line("told\x1b[2J\nand \u202emore")
    console.say("whole\n")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(console.run)
        with console.asking() as ask:
            await ask("asked")
        console.say("\x1b[2J\u202ethe end\r\n")
        console.close()
    expected = b"Half\r\ntold [2J\r\nand more\r\nwhole\r\nasked\r\n [2Jthe end\r\n"
    shown = b""
    while len(shown) < len(expected):
        shown += os.read(screen, 1000)
    assert shown == expected
    os.close(screen)


def test_nothing_in_a_complaint_is_obeyed_by_a_terminal(capsys):
    assert complain("the provider said \x1b]0;mine\x07\u202e", 1) == 1
    assert capsys.readouterr().err == "creche: the provider said  ]0;mine \n"


async def test_a_stdout_that_takes_nothing_ends_the_work_and_stderr_goes_on(streams, tmp_path):
    full = os.open("/dev/full", os.O_WRONLY)
    streams(full, os.open(tmp_path / "told", os.O_CREAT | os.O_WRONLY))
    console = Console()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(console.run)
        with console.unread:
            console.say("answer")
            await trio.sleep_forever()
        console.say("more")
        console.line("told")
        console.close()
    assert console.error.errno == errno.ENOSPC
    assert (tmp_path / "told").read_text("utf-8") == "told\n"


def test_without_a_stderr_nothing_is_told(streams, monkeypatch, tmp_path):
    streams(os.open(tmp_path / "said", os.O_CREAT | os.O_WRONLY), os.open("/dev/full", os.O_WRONLY))
    monkeypatch.setattr(sys, "stderr", None)
    console = Console()
    console.line("told")
    console.say("caf\udce9")
    console.drain()
    assert complain("told", 7) == 7
    monkeypatch.setattr(sys, "stdout", None)
    assert tell("said") == 1
    assert (tmp_path / "said").read_text("utf-8") == "caf\\udce9"


def test_a_stderr_that_takes_nothing_is_no_failure(streams):
    streams(os.open(os.devnull, os.O_WRONLY), os.open("/dev/full", os.O_WRONLY))
    console = Console()
    console.line("told")
    console.drain()
    assert console.error is None


# ---------------------------------------------------------------- progress


async def test_progress_tells_of_limits_faults_and_other_models():
    lines = []

    def answer(request):
        if request.agent_path == "lead":
            return say("Both.") if request.last_tool_text else [call("subagent", description=w, prompt=w) for w in "ab"]
        return fail(code="quota") if request.last_user_text == "b" else say("A.")

    def wrong(event):
        if event.record.kind == "turn/end" and event.agent_path == "lead":
            raise ValueError("mine")

    first = FunctionModel(answer, provider="first", limit=1)
    second = FunctionModel(lambda request: say("B."), provider="second")
    async with (
        open_host(model=first, plugins=[delegation(), fallback(second)]) as host,
        host.open_agent(AgentSpec("lead")) as lead,
    ):
        progress = Progress(lines.append)
        assert progress.where == "nothing was logged"
        assert progress.usage.requests == 0
        progress.follow(host, lead)
        host.registrar.on(RecordAppended, wrong)
        await lead.ask("Go.")
        assert progress.usage.requests == 5
    told = [re.sub(r"^ *[\d.]+s  (\S+) +", r"\1 ", line) for line in lines]
    for line in (
        "lead/subagent-2 got no answer: the model failed",
        "lead/subagent-2 asks again",
        "lead/subagent-2 asks second:function",
        "lead/subagent-2 says B.",
        "lead says Both.",
        "host failed hearing session/record-appended: ValueError('mine')",
    ):
        assert line in told, told
    # Which of the two comes second is chance.
    waited = re.compile("lead/subagent-[12] waits for the model's limit")
    assert any(map(waited.fullmatch, told)), told
    assert not any("asks first" in line for line in told)


def test_a_line_is_short_and_printable():
    lines = []
    Progress(lines.append).line("lead", "a\tb\x1b[31m" + "x" * 200)
    (line,) = lines
    assert len(line) == 96
    assert line.endswith("...")
    assert "a b [31mxxx" in line

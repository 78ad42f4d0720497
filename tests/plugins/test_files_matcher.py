"""Patterns that take long: they are searched by a process of its own, so nobody waits for them but who asked."""

import os
import re
import select
import signal
import subprocess
import sys

import pytest
import trio

from creche import AgentSpec, FunctionModel, TurnCancelled, call, open_host, say
from creche.errors import ToolFailed
from creche.plugins.files import _matcher, files
from creche.plugins.files._folder import Workspace
from creche.plugins.files._matcher import open_matcher
from creche.plugins.files._search import grep_lines

FOREVER = "(x+x+)+y"
LINE = "x" * 1000
DIED = "the process that searches for the pattern has died; write a plainer one, or search fewer or shorter lines"


class Started(list[subprocess.Popen[bytes]]):
    """The processes that were started, and what is called after each."""

    @staticmethod
    def then():
        pass


@pytest.fixture
def started(monkeypatch):
    processes = Started()
    popen = subprocess.Popen

    def start(*args, **options):
        process = popen(*args, **options)
        processes.append(process)
        processes.then()
        return process

    monkeypatch.setattr(subprocess, "Popen", start)
    yield processes
    for process in processes:
        assert process.returncode is not None, "it outlived the call"
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "a").write_text(LINE)
    return Workspace(tmp_path)


def refusal(*args, **options):
    with pytest.raises(ToolFailed) as caught:
        grep_lines(*args, **options)
    return str(caught.value)


def found(pattern, lines, flags=0):
    with open_matcher(re.compile(pattern, flags), lambda: None) as matcher:
        return list(matcher.find(lines, "a"))


# ---------------------------------------------------------------- what takes long is ended


def test_a_pattern_that_takes_forever_is_ended(workspace, started, monkeypatch):
    monkeypatch.setattr(_matcher, "SECONDS", 1)
    assert refusal(workspace, FOREVER) == (
        'the pattern takes more than 1 seconds on lines of "a"; write it without repetitions inside or next to each other, '
        "such as (a+)+ or .*.*, or search fewer or shorter lines"
    )
    assert len(started) == 1


async def test_an_agent_with_such_a_pattern_holds_up_no_other_and_is_cancelled_at_once(workspace, started):
    searching = trio.Event()
    started.then = lambda: trio.from_thread.run_sync(searching.set)
    model = FunctionModel(lambda _: call("grep", pattern=FOREVER))
    async with (
        open_host(model=model, plugins=[files(workspace.root)]) as host,
        host.open_agent(AgentSpec("searcher")) as searcher,
        host.open_agent(AgentSpec("other", model=FunctionModel(lambda _: say("hello")))) as other,
    ):
        with trio.fail_after(_matcher.SECONDS / 2):
            delivery = searcher.send("Go.")
            await searching.wait()
            assert (await other.ask("Hello")).text == "hello"
            assert started[0].poll() is None
            searcher.cancel("enough")
            with pytest.raises(TurnCancelled):
                await delivery.reply()
            assert started[0].returncode == -signal.SIGKILL


HOST = f"""
import subprocess, sys
from creche.plugins.files import _matcher
from creche.plugins.files._folder import Workspace
from creche.plugins.files._search import grep_lines

started, told = [], []

class Popen(subprocess.Popen):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        started.append(self)

def look():
    if started and not told:  # it has its lines, or they are in its pipe
        told.append(print(started[0].pid, flush=True))

subprocess.Popen = Popen
_matcher.SECONDS, _matcher._LATE = 1000, -999  # of computing it has one
grep_lines(Workspace(sys.argv[1], check_cancelled=look), {FOREVER!r})
"""


def test_a_host_that_is_killed_leaves_no_process_even_in_the_middle_of_a_search(workspace):
    """Rule: it can notice nothing then, so the kernel ends it after some seconds of computing."""
    with subprocess.Popen([sys.executable, "-c", HOST, workspace.root], stdout=subprocess.PIPE, text=True) as host:
        watched = os.pidfd_open(int(host.stdout.readline()))
        host.kill()
    try:
        assert select.select([watched], (), (), 30)[0]
    finally:
        os.close(watched)


def test_what_waits_for_lines_ends_with_what_it_waits_for(started):
    with open_matcher(re.compile("x+"), lambda: None) as matcher:
        assert list(matcher.find(["x"], "a")) == [(0, 0)]
        assert matcher._channel is not None
        matcher._channel.close()
        assert started[0].wait(30) == 0


# ---------------------------------------------------------------- a process that fails


def test_a_process_that_dies_is_one_sentence(workspace, started, monkeypatch):
    def kill():
        started[0].kill()

    started.then = kill
    assert refusal(workspace, FOREVER) == DIED
    started.then = Started.then
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert refusal(workspace, FOREVER) == DIED


def test_a_process_that_dies_in_the_middle_is_one_sentence(tmp_path, workspace, started):
    def kill():
        for process in started:  # it has its lines, or they are in its pipe
            process.kill()

    assert refusal(Workspace(tmp_path, check_cancelled=kill), FOREVER) == DIED


def test_a_process_that_cannot_be_started_is_one_sentence(workspace, started, monkeypatch):
    sentence = "the process that searches for the pattern cannot be started: "
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert refusal(workspace, FOREVER) == f"{sentence}No such file or directory"
    monkeypatch.setattr(sys, "executable", "")
    assert refusal(workspace, FOREVER) == f"{sentence}Permission denied"
    assert not started


# ---------------------------------------------------------------- the same answers


def test_a_process_finds_what_would_be_found_here(started):
    lines = [f"{'é' * (number % 3)}\udcff\U0001f600 {number}" for number in range(2 * _matcher.MOST_LINES + 5)] + [""]
    for pattern, flags in ((r"7\d*$", 0), ("^$|É{2}", re.IGNORECASE), ("\udcff.*?1|\ud800", 0), ("(?i:É)+", 0)):
        search = re.compile(pattern, flags).search
        expected = [(index, match.start()) for index, line in enumerate(lines) if (match := search(line))]
        assert found(pattern, lines, flags) == expected
        assert expected
    assert found("x+", lines) == found("x+", []) == []
    assert len(started) == 5, "where there are no lines, there is nothing to start"


def test_a_line_longer_than_any_buffer_is_searched(started):
    assert found("y+$", ["x" * (4 << 20) + "yy"]) == [(0, 4 << 20)]


def test_only_what_can_take_long_has_a_process(started, monkeypatch):
    for pattern in ("TODO", r"\bself\.x", "^[a-z]$", "."):
        found(pattern, ["TODO"])
    assert not started
    monkeypatch.setattr(_matcher, "STEPS", 100)
    assert found("....y", ["x" * 20]) == []
    assert not started
    assert found("....y", ["x" * 20 + "y"]) == [(0, 16)]
    assert len(started) == 1


def test_a_pattern_longer_than_anybody_would_write_is_refused(workspace):
    assert refusal(workspace, "x" * 1001) == "the pattern cannot be used: it has 1001 characters, 1000 are the most"
    assert grep_lines(workspace, "x" * 1000) == f'"a":1: {LINE[:299]}…'

"""The live view in this process, on a pseudo-terminal that the tests read."""

import os
import re
import sys

import pytest
import trio
import trio.testing

from creche.cli._console import Console
from creche.cli._live import Screen, Tty, find_tty
from creche.cli._output import attend, open_output
from creche.cli._writing import write_some
from creche.errors import CrecheError

from .window import UNSET, set_size


@pytest.fixture
def enter(monkeypatch):
    """Let a test be on a terminal from there on; what comes back is its other side."""
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = os.openpty()
    set_size(ours, 80, 24)
    with open(theirs, "w", encoding="utf-8") as stream:

        def enter_it():
            monkeypatch.setattr(sys, "stdout", stream)
            monkeypatch.setattr(sys, "stderr", stream)
            return ours

        yield enter_it
        monkeypatch.undo()
    os.close(ours)


LAST = b"\x1b[?7h\r\n"
"""What only the last write ends with."""


def read(terminal):
    """Read what a terminal is written, to the end."""
    shown = b""
    while not shown.endswith(LAST):
        shown += os.read(terminal, 65536)
    return shown.decode()


# ---------------------------------------------------------------- where there is a live view


def test_a_terminal_is_drawn_on(enter):
    enter()
    tty = find_tty()
    assert (tty.has_colour, tty.shows_answer, tty.size()) == (True, True, (80, 24))
    assert tty.descriptor != sys.stderr.fileno()
    assert os.get_blocking(sys.stderr.fileno()), "not to wait is a matter of ours alone"
    tty.close()
    output = open_output()
    assert isinstance(output, Screen)
    output.drain()


@pytest.mark.parametrize(
    "variables",
    [{"TERM": "dumb"}, {"TERM": "unknown"}, {"TERM": ""}, {"CI": "true"}, {"COLUMNS": "1"}, {"COLUMNS": "0"}],
    ids=str,
)
def test_what_the_environment_says_is_heeded(variables, enter, monkeypatch):
    enter()
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert find_tty() is None
    assert isinstance(open_output(), Console)


def test_a_terminal_without_a_name_is_not_drawn_on(enter, monkeypatch):
    enter()
    monkeypatch.delenv("TERM")
    assert find_tty() is None


def test_the_columns_that_the_environment_says_are_the_most(enter, monkeypatch):
    terminal = enter()
    monkeypatch.setenv("COLUMNS", "60")
    tty = find_tty()
    assert tty.size() == (60, 24)
    set_size(terminal, 50, 10)
    assert tty.size() == (50, 10)
    tty.close()


@pytest.mark.parametrize("columns", ["9" * 5000, "\u00b2", "-5"])
def test_a_number_of_columns_that_is_none_is_not_heeded(columns, enter, monkeypatch):
    enter()
    monkeypatch.setenv("COLUMNS", columns)
    tty = find_tty()
    assert tty.size() == (80, 24)
    tty.close()


def test_a_terminal_that_does_not_say_its_size_has_the_usual_one(enter, monkeypatch):
    terminal = enter()
    set_size(terminal, 0, 0)
    tty = find_tty()
    assert tty.size() == (80, 24)
    tty.close()
    monkeypatch.setattr(os, "get_terminal_size", lambda descriptor: os.fstat(-1))
    tty = find_tty()
    assert tty.size() == (80, 24)
    tty.close()


def test_a_terminal_that_is_too_narrow_is_not_drawn_on(enter):
    terminal = enter()
    set_size(terminal, 19, 24)
    assert find_tty() is None


def test_terminals_that_may_be_one_are_not_drawn_on(enter, monkeypatch):
    """Rule: where it cannot be told whether what is drawn and what is said go to one terminal, there are plain lines."""
    enter()
    ours, theirs = os.openpty()
    with open(theirs, "w", encoding="utf-8") as another:
        monkeypatch.setattr(sys, "stdout", another)
        assert find_tty() is None
        monkeypatch.setattr(os, "tcgetpgrp", lambda descriptor: os.fstat(-1) if descriptor == theirs else 1)
        tty = find_tty()
        assert not tty.shows_answer
        tty.close()
    os.close(ours)


def test_without_a_stderr_there_are_plain_lines(enter, monkeypatch):
    enter()
    monkeypatch.setattr(sys, "stderr", None)
    assert find_tty() is None


def test_a_terminal_that_cannot_be_opened_anew_is_used_as_it_is(enter, monkeypatch):
    enter()
    monkeypatch.setattr(os, "ttyname", lambda descriptor: os.devnull)
    tty = find_tty()
    assert os.fstat(tty.descriptor).st_rdev == os.fstat(sys.stderr.fileno()).st_rdev
    tty.close()


# ---------------------------------------------------------------- what is written


def test_a_terminal_that_takes_nothing_more_is_not_waited_for(enter):
    terminal = enter()
    tty = find_tty()
    while tty.write(bytearray(b"x" * 4096)) or tty.has_room(0.1):
        pass
    assert tty.write(bytearray(b"x")) == 0
    assert os.read(terminal, 65536)
    assert tty.has_room(5.0)
    tty.close()


async def test_what_waits_when_everything_is_cancelled_is_written_once(enter):
    terminal = enter()
    screen = Screen(find_tty())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(screen.run)
        screen.say("one\nand ")
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    screen.say("two")
    screen.drain()
    shown = read(terminal)
    assert (shown.count("one"), shown.count("two")) == (1, 1)


async def test_between_two_writes_no_mode_is_changed_however_much_is_drawn(enter, monkeypatch):
    """Rule: who is killed between two writes leaves nothing to restore."""
    terminal = enter()
    set_size(terminal, 200, 100)
    pieces = []
    write = os.write

    def keep(descriptor, data):
        pieces.append(bytes(data))
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", keep)
    screen = Screen(find_tty())
    screen.say("drawn anew " * 1500)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(screen.run)
        shown = b""
        while b"\x1b[83A" not in shown:  # what brings the cursor to the first row again
            await trio.lowlevel.wait_readable(terminal)
            shown += os.read(terminal, 65536)
        nursery.cancel_scope.cancel()
    screen.drain()
    assert len(pieces[0]) > 4000
    for piece in pieces:
        assert piece.count(b"\x1b[?7l") == piece.count(b"\x1b[?7h")
        assert piece.rfind(b"\x1b[?7l") <= piece.rfind(b"\x1b[?7h")


def test_what_may_make_us_wait_is_written_in_whole_lines():
    read, write = os.pipe()
    assert write_some(write, bytearray(b"x" * 3000 + b"\n" + b"y" * 3000)) == 3001
    assert write_some(write, bytearray(b"y" * 9000)) == 4096
    os.set_blocking(write, False)
    assert write_some(write, bytearray(b"y" * 9000)) == 9000
    os.close(read)
    os.close(write)


class Counted(Tty):
    """A terminal that notes when it is written to."""

    def write(self, data):
        written.append(trio.current_time())
        return super().write(data)


written = []


async def test_it_is_written_at_most_ten_times_a_second_and_not_at_all_without_news(enter, autojump_clock):
    terminal = enter()
    tty = find_tty()
    written.clear()
    screen = Screen(
        Counted(tty.descriptor, encoding="utf-8", has_colour=False, shows_answer=True), clock=trio.current_time
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(screen.run)
        for number in range(300):
            screen.say(f"{number}\n")
            await trio.sleep(0.01)
        await trio.sleep(10)
        screen.close()
    assert 20 <= len(written) <= 33
    shown = read(terminal)
    assert re.findall(r"(\d+)\r\n", shown) == [str(number) for number in range(300)]
    screen.drain()


async def test_what_fails_is_raised_when_everything_is_written(enter):
    terminal = enter()
    output = open_output()

    async def work():
        output.say("So far")
        raise CrecheError("it failed")

    with pytest.raises(CrecheError, match="it failed"):
        await attend(output, work)
    assert "So far\r\n" in read(terminal)
    output.drain()


async def test_work_without_output_is_just_done():
    async def work():
        return 7

    assert await attend(None, work) == 7


async def test_a_terminal_that_is_gone_stops_the_work(enter, monkeypatch):
    enter()
    output = open_output()
    monkeypatch.setattr(os, "write", lambda descriptor, data: os.fstat(-1))
    assert await attend(output, trio.sleep_forever) is None
    assert isinstance(output.error, OSError)
    output.drain()


def test_a_run_is_drained_however_it_ends(enter):
    terminal = enter()
    output = open_output()

    async def work():
        output.line("told\x1b[2J")
        output.say("So far")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trio.run(attend, output, work)
    output.drain()
    shown = read(terminal)
    assert shown.count("told [2J\r\n") == 1
    assert shown.endswith("\x1b[JSo far\r\n\x1b[?7l\x1b[K\x1b[?7h\r\n")
    with pytest.raises(ValueError, match="7"):
        trio.run(attend, None, raise_seven)


async def raise_seven():
    raise ValueError("7")

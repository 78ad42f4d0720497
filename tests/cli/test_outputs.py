"""What holds for plain lines and for the live view alike, on a pseudo-terminal."""

import errno
import io
import os
import signal
import sys
import termios

import pytest
import trio
import trio.testing

from creche.cli._approver import Keyboard
from creche.cli._console import Console
from creche.cli._live import Screen, find_tty
from creche.cli._output import attend

from .window import UNSET, set_size

_wait = trio.lowlevel.wait_task_rescheduled


@pytest.fixture
def window():
    """Both sides of a pseudo-terminal: ours, and the program's."""
    ours, theirs = os.openpty()
    set_size(ours, 80, 24)
    yield ours, theirs
    os.close(ours)


@pytest.fixture(params=["console", "screen"])
def output(request, window, monkeypatch):
    """An output on the terminal, from which this process reads as well."""
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with open(window[1], "r+b", buffering=0) as both, io.TextIOWrapper(both, encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "stderr", stream)
        yield Console() if request.param == "console" else Screen(find_tty())
        monkeypatch.undo()


def test_ctrl_c_when_the_output_is_about_to_wait_ends_the_work(output, monkeypatch):
    """Rule: Ctrl-C reaches the work. In the output, it could arrive between the two steps of `trio.Event.wait`, which
    notes the task and then waits: the event would wake a task that has ended, which trio cannot do."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # some shells let it be ignored
    pressed = []

    async def press_and_wait(abort):
        is_event = sys._getframe(1).f_code is trio.Event.wait.__code__
        if is_event and trio.lowlevel.current_task().name == "output" and not pressed:
            pressed.append(True)
            signal.raise_signal(signal.SIGINT)
        return await _wait(abort)

    async def work():
        try:
            with output.asking() as ask:
                await ask("Well?")
                await trio.sleep_forever()
        finally:
            output.line("stopped")

    monkeypatch.setattr("trio._core.wait_task_rescheduled", press_and_wait)
    try:
        with pytest.raises(KeyboardInterrupt):
            trio.run(attend, output, work)
    finally:
        output.drain()
        signal.signal(signal.SIGINT, before)
    assert pressed


async def test_what_is_typed_before_a_question_is_shown_is_no_answer_to_it(output, window):
    """Rule: what was typed before a question is no answer to it, also if the terminal was stopped meanwhile."""
    ours, theirs = window
    termios.tcflow(theirs, termios.TCOOFF)  # what Ctrl-S does
    answer = None

    async def ask():
        nonlocal answer
        answer = await Keyboard(output).answer("Well?")
        output.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(output.run)
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        os.write(ours, b"y\n")
        await trio.testing.wait_all_tasks_blocked()
        termios.tcflow(theirs, termios.TCOON)
        shown = b""
        while b"Well?" not in shown:
            await trio.lowlevel.wait_readable(ours)
            shown += os.read(ours, 4096)
        await trio.testing.wait_all_tasks_blocked()
        assert answer is None
        os.write(ours, b"n\n")
    assert answer == "n"


async def test_a_question_is_not_waited_for_on_a_terminal_that_is_gone(output, window, monkeypatch):
    monkeypatch.setattr(os, "write", gone)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(output.run)
            with output.asking() as ask:
                await ask("Well?")
            output.close()


def gone(_descriptor, _data):
    raise OSError(errno.EIO, "Input/output error")

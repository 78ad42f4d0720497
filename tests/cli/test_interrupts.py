"""Ctrl-C while the task that writes output is between two of its steps."""

import os
import signal
import sys

import pytest
import trio

from creche.cli._console import Console
from creche.cli._live import Screen, find_tty
from creche.cli._output import run_attended

from .window import UNSET, set_size

_wait = trio.lowlevel.wait_task_rescheduled


@pytest.fixture(params=["console", "screen"])
def output(request, monkeypatch):
    """An output on a pseudo-terminal that nobody reads."""
    ours, theirs = os.openpty()
    set_size(ours, 80, 24)
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with open(theirs, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "stderr", stream)
        yield Console() if request.param == "console" else Screen(find_tty())
        monkeypatch.undo()
    os.close(ours)


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
                ask("Well?")
                await trio.sleep_forever()
        finally:
            output.line("stopped")

    monkeypatch.setattr("trio._core.wait_task_rescheduled", press_and_wait)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_attended(output, work)
    finally:
        signal.signal(signal.SIGINT, before)
    assert pressed

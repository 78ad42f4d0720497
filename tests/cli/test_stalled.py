"""Terminals that take nothing, because somebody typed Ctrl-S or because they hang: what must end ends all the same."""

import os
import signal

import pytest
import trio

from creche.models import call, say
from creche.testing import open_mock_provider, until

from .window import open_window

SOON = 10
"""Seconds in which something that takes about one has to have happened, on a machine that is busy."""
FLOOD = "".join([f"{number} of many lines\n" for number in range(9000)])
ENDINGS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@pytest.fixture(params=["Ctrl-S", "nobody reads"])
def stop(request):
    """How the terminal is stopped: what is typed for that."""
    return "\x13" if request.param == "Ctrl-S" else ""


@pytest.fixture(params=["xterm", "dumb"])
def term(request):
    """A terminal that is drawn on, and one that gets plain lines."""
    return request.param


@pytest.mark.parametrize("number", ENDINGS)
async def test_a_signal_ends_a_run_and_its_commands(stop, term, number, command, folder):
    """Rule: after a signal a program ends within about a second, whatever its terminal does."""
    stopped = trio.Event()
    fifo = folder / "pid"
    os.mkfifo(fifo)
    sleeper = call("bash", command="echo $$ >pid; exec sleep 1000", description="sleep")
    script = [[say("I begin.\n"), until(stopped), say(FLOOD), sleeper]]
    async with open_mock_provider(script) as mock:
        started = command("Go.", "--model", "mock", "--base-url", mock.openai_url, "--shell", "--yes")
        async with open_window(started, TERM=term) as window:
            await window.wait_for("I begin.")
            window.type(stop)
            stopped.set()
            with trio.fail_after(30):
                pid = int(await trio.to_thread.run_sync(fifo.read_text, abandon_on_cancel=True))
            window.process.send_signal(number)
            with trio.fail_after(SOON):
                assert await window.process.wait() == ENDINGS[number]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_ctrl_z_is_ignored_where_it_was(command):
    rest = trio.Event()
    async with open_mock_provider([[say("I begin.\n"), until(rest), say("Done.")]]) as mock:
        started = command("Go.", "--model", "mock", "--base-url", mock.openai_url)
        async with open_window(started, ignored=[signal.SIGTSTP]) as window:
            await window.wait_for("I begin.", "1 agent")
            window.type("\x1a")
            await window.wait_for("^Z")
            rest.set()
            assert await window.end() == 0

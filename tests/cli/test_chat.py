"""``creche chat`` as a user sees it: a real process on a real pseudo-terminal, and a mock provider."""

import json
import os
import re
import signal
import stat
from contextlib import asynccontextmanager

import pytest
import trio

from creche.models import call, say
from creche.testing import open_mock_provider, raw, silent, status, until

from .screens import open_screen
from .test_run import sessions_of

QUESTION = "yes, always for this agent (a)"
SHELL = call("bash", command="echo made >made.txt", description="make a file")
BROKEN = raw({"error": {"message": "no credit", "type": "insufficient_quota"}})


@asynccontextmanager
async def talking(chat, script, *arguments, columns=80, rows=24, **variables):
    """A chat that has begun."""
    async with open_mock_provider(script) as mock:
        started = chat("--model", "mock", "--base-url", mock.openai_url, *arguments)
        async with open_screen(started, columns=columns, rows=rows, **variables) as screen:
            await screen.shows("/help says", "idle")
            yield screen, mock


async def leave(screen):
    """Leave with Ctrl-D, and check how it ends."""
    screen.type("\x04")
    assert await screen.ends() == 0, screen.text
    return lead_of(screen)


def lead_of(screen):
    told = screen.raw.decode().replace("\r", "")
    assert "Traceback" not in told
    assert re.search(r"creche: .*requests?, .*; log: ", told)
    return sessions_of(told)["lead"]


def asked(request):
    """What people said in a request, in order."""
    return [message["content"] for message in request.json["messages"] if message["role"] == "user"]


def ends(lead):
    return [record.data.reason for record in lead.records("turn/end")]


# ---------------------------------------------------------------- a conversation


@pytest.mark.parametrize("columns", [80, 40])
async def test_several_turns_with_one_lead_whose_answer_streams(chat, columns):
    rest = trio.Event()
    script = [
        [say("I look."), call("read", path="notes.md")],
        [say("Milk"), until(rest), say(" and 麵包.\n\nThat is all.")],
        say("Two things."),
    ]
    async with talking(chat, script, columns=columns) as (screen, mock):
        before = screen.modes
        screen.type("What to buy, 你好?\r")
        await screen.shows("> What to buy, 你好?", "I look.", "\nMilk\n>", "lead asks endpoint:mock")
        rest.set()
        await screen.shows("Milk and 麵包.\n\nThat is all.\n", "idle")
        screen.type("How many?\r")
        await screen.shows("> How many?\nTwo things.\n>", "idle")
        lead = await leave(screen)
        assert before != screen.modes
    assert [asked(request) for request in mock.requests][2] == ["What to buy, 你好?", "How many?"]
    assert ends(lead) == ["completed", "completed"]


async def test_the_terminal_is_left_as_it_was(chat):
    async with (
        open_mock_provider([]) as mock,
        open_screen(chat("--model", "m", "--base-url", mock.openai_url)) as screen,
    ):
        before = screen.modes
        await screen.shows("idle")
        assert screen.modes != before
        screen.type("half a line")
        await screen.shows("half a line")
        screen.type("\x15\x04")
        assert await screen.ends() == 0
        assert screen.modes == before
    assert screen.raw.rindex(b"\x1b[?2004l") > screen.raw.rindex(b"\x1b[?2004h"), "bracketed paste is off"
    assert "idle" not in "\n".join(screen.rows), "the line and the status are taken away"


@pytest.mark.parametrize(("variables", "is_coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
async def test_there_are_colours_unless_they_are_not_wanted(chat, variables, is_coloured):
    async with talking(chat, [], **variables) as (screen, _):
        screen.type("\x04")
        assert await screen.ends() == 0
    assert (b"\x1b[0;90m" in screen.raw) is is_coloured


async def test_a_paste_of_several_lines_is_one_message(chat):
    async with talking(chat, [say("Seen.")]) as (screen, mock):
        screen.type("\x1b[200~one\r\ntwo\n\x1b[201~three\r")
        await screen.shows("> one\n  two\n  three\n", "Seen.", "idle")
        await leave(screen)
    assert asked(mock.requests[0]) == ["one\ntwo\nthree"]


async def test_a_line_is_edited_and_alt_enter_breaks_it(chat):
    async with talking(chat, [say("Seen.")]) as (screen, mock):
        screen.type("tvo\x1b[D\x1b[D\x1b[3~w\x05\x1b\rmore\r")
        await screen.shows("> two\n  more\n", "Seen.", "idle")
        await leave(screen)
    assert asked(mock.requests[0]) == ["two\nmore"]


async def test_what_was_typed_is_there_in_the_next_session_and_nobody_else_reads_it(chat, tmp_path):
    async with talking(chat, [say("One."), say("Two.")]) as (screen, _):
        screen.type("first\r")
        await screen.shows("One.", "idle")
        screen.type("\x1b[200~sec\nond\x1b[201~\r")
        await screen.shows("Two.", "idle")
        await leave(screen)
    file = tmp_path / "state" / "chat-history"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    async with talking(chat, [say("Three."), say("Four.")]) as (screen, mock):
        screen.type("\x1b[A")
        await screen.shows("> sec\n  ond\n")
        screen.type("\r")
        await screen.shows("Three.", "idle")
        screen.type("\x12fir")
        await screen.shows("backward")
        screen.type("\r\r")
        await screen.shows("Four.", "idle")
        await leave(screen)
    assert asked(mock.requests[1]) == ["sec\nond", "first"]


async def test_a_history_that_cannot_be_kept_is_one_sentence(chat, tmp_path):
    (tmp_path / "state" / "chat-history").mkdir(parents=True)
    async with talking(chat, [say("One.")], columns=200) as (screen, _):
        screen.type("first\r")
        await screen.shows("what is typed is not kept in ", "/chat-history': Is a directory", "One.", "idle")
        screen.type("\x1b[A")
        await screen.shows("> first\nidle")
        screen.type("\x15")
        await leave(screen)


async def test_what_a_model_says_does_not_steer_the_terminal(chat):
    evil = "A\x1b[2J\x1b]0;owned\x07B\x9b31mC\x08\x08D\r\nE\tF\n"
    async with talking(chat, [say(evil), say("\x1b[31mred")]) as (screen, _):
        screen.type("Go.\r")
        await screen.shows("A [2J ]0;owned B 31mC  D\nE       F\n", "idle")
        screen.type("Again.\r")
        await screen.shows("\n [31mred\n", "idle")
        await leave(screen)
    assert b"\x1b]0" not in screen.raw
    assert b"[2J" not in screen.raw.replace(b" [2J", b"")


async def test_it_is_drawn_anew_when_the_terminal_changes_its_size(chat):
    words = "abcdefghi " * 12
    rest = trio.Event()
    async with talking(chat, [[say(words), until(rest), say("end")]], columns=80) as (screen, _):
        screen.type("Go.\r")
        await screen.shows(words[:80].rstrip() + "\n" + words[80:].rstrip() + "\n>")
        screen.resize(40, 24)
        await screen.shows(words[:40].rstrip() + "\n" + words[40:80].rstrip() + "\n" + words[80:].rstrip() + "\n>")
        rest.set()
        await screen.shows("end\n>", "idle")
        await leave(screen)


# ---------------------------------------------------------------- steering


async def test_a_line_that_is_typed_while_a_turn_runs_reaches_the_lead_in_that_turn(chat):
    rest = trio.Event()
    script = [[say("I read."), until(rest), call("read", path="notes.md")], say("Milk, and hurry.")]
    async with talking(chat, script) as (screen, mock):
        screen.type("What to buy?\r")
        await screen.shows("I read.")
        screen.type("And be quick.\r")
        await screen.shows("> And be quick.\n  joins the turn at its next step\n", "1 line not read yet")
        rest.set()
        await screen.shows("Milk, and hurry.", "idle")
        lead = await leave(screen)
    assert asked(mock.requests[1]) == ["What to buy?", "And be quick."]
    assert ends(lead) == ["completed"]


async def test_a_line_that_comes_too_late_for_a_turn_begins_the_next(chat):
    rest = trio.Event()
    async with talking(chat, [[say("Half"), until(rest), BROKEN], say("Whole.")]) as (screen, mock):
        screen.type("Go.\r")
        await screen.shows("Half")
        screen.type("And more.\r")
        await screen.shows("joins the turn")
        rest.set()
        await screen.shows(
            "no answer: endpoint: ", "too late for that turn, begins the next one: And more.", "Whole.", "idle"
        )
        lead = await leave(screen)
    assert asked(mock.requests[1]) == ["Go.", "And more."]
    assert ends(lead) == ["error", "completed"]


# ---------------------------------------------------------------- commands


async def test_the_help_says_what_there_is_and_so_does_an_unknown_command(chat):
    async with talking(chat, [say("A path.")]) as (screen, mock):
        screen.type("/help\r")
        await screen.shows("> /help\n/help    what can be typed\n/agents  ", "/quit    leave; so does Ctrl-D")
        screen.type("/etc/passwd what is it?\r")
        await screen.shows("'/etc/passwd what is it?' is no command; there are /help, /agents, ")
        screen.type("//etc/passwd what is it?\r")
        await screen.shows("A path.", "idle")
        screen.type("  \r/quit\r")
        assert await screen.ends() == 0
    assert [asked(request) for request in mock.requests] == [["/etc/passwd what is it?"]]


async def test_the_agents_are_shown_while_they_work(chat):
    both = trio.Event()

    def answer(request):
        if "Both." in str(asked(request)):
            done = request.json["messages"][-1]["role"] == "tool"
            return say("Done.") if done else [call("subagent", description=w, prompt=w) for w in ("tea", "scone")]
        return [until(both), say("A cake.")]

    async with talking(chat, answer) as (screen, mock):
        screen.type("/agents\r")
        await screen.shows("no agent has done anything yet")
        screen.type("Both.\r")
        await screen.shows("3 at work | lead waits for 2 subagents")
        await mock.wait_requests(3)
        screen.type("/agents\r")
        await screen.shows(
            "lead           waits for 2 subagents ", "├─ subagent-1  asks endpoint:mock ", "3 agents, 1 request"
        )
        both.set()
        await screen.shows("Done.", "idle")
        screen.type("/agents\r")
        await screen.shows("└─ subagent-2  done: A cake. ", "3 agents, 4 requests")
        await leave(screen)


async def test_the_prompt_is_shown_as_it_would_be_sent(chat):
    async with talking(chat, [say("Seen.")], "--write", rows=200) as (screen, mock):
        screen.type("/prompt\r")
        await screen.shows("You work in the folder", "idle")
        screen.type("Go.\r")
        await screen.shows("Seen.", "idle")
        await leave(screen)
    sent = mock.requests[0].json
    shown = "".join(screen.text.split()).replace("|", "")
    for paragraph in sent["messages"][0]["content"].split("\n\n"):
        assert "".join(paragraph.split()) in shown
    assert all(f"-{tool['function']['name']}(about" in shown for tool in sent["tools"])


async def test_cancel_ends_the_turn_and_what_was_not_read_with_it(chat):
    async with talking(chat, [[say("So far"), silent()], say("Anew.")]) as (screen, mock):
        screen.type("/cancel\r")
        await screen.shows("nothing runs that could be cancelled")
        screen.type("Go.\r")
        await screen.shows("So far")
        screen.type("More.\r/cancel\r")
        await screen.shows("the turn is being cancelled", "not read: More.", "the turn was cancelled", "idle")
        screen.type("Again.\r")
        await screen.shows("Anew.", "idle")
        lead = await leave(screen)
    assert mock.hung_up == 1
    assert ends(lead) == ["cancelled", "completed"]


# ---------------------------------------------------------------- failures


async def test_a_model_failure_is_one_sentence_and_the_chat_goes_on(chat):
    script = [status(401, "wrong key"), status(429, "slow down", retry_after=0), say("Here.")]
    async with talking(chat, script, columns=200) as (screen, _):
        screen.type("Go.\r")
        await screen.shows("no answer: endpoint: wrong key [HTTP 401, request req_1]", "idle")
        assert screen.text.count("wrong key") == 1
        screen.type("Again.\r")
        await screen.shows("lead got no answer and asks again: endpoint: slow down", "Here.", "idle")
        lead = await leave(screen)
    assert ends(lead) == ["error", "completed"]


async def test_a_refusal_and_a_cut_and_another_model_are_said(chat):
    script = [
        say("No", finish="refusal"),
        say("Half a", finish="max-tokens"),
        [say("Half an"), BROKEN],
        say("A whole answer."),
    ]
    async with talking(chat, script, "--fallback", "small", columns=120) as (screen, _):
        screen.type("One.\r")
        await screen.shows("No\nthe model refused to answer", "idle")
        screen.type("Two.\r")
        await screen.shows("an answer was cut off at the limit of tokens", "idle")
        screen.type("Three.\r")
        await screen.shows("Half an\n", "the answer begins anew", "lead asks endpoint:small", "A whole answer.", "idle")
        await leave(screen)


# ---------------------------------------------------------------- Ctrl-C, Ctrl-D, and other ends


async def test_ctrl_c_at_an_empty_line_says_how_to_leave_and_a_second_one_leaves(chat):
    async with talking(chat, []) as (screen, _):
        screen.type("\x03")
        await screen.shows("Ctrl-C again leaves, and so does Ctrl-D")
        screen.type("x\x7f\x03")
        await screen.until(lambda: screen.text.count("Ctrl-C again leaves") == 2)
        screen.type("\x03")
        assert await screen.ends() == 130
    assert "creche: 0 requests, 0 input tokens (0 cached), 0 output tokens; nothing was logged" in screen.unwrapped


async def test_ctrl_c_clears_the_line_which_the_history_has(chat):
    async with talking(chat, [say("Seen.")]) as (screen, _):
        screen.type("half a line")
        await screen.shows("> half a line")
        screen.type("\x03")
        await screen.shows("\n>\nidle")
        assert "again leaves" not in screen.text
        screen.type("\x1b[A\r")
        await screen.shows("Seen.", "idle")
        await leave(screen)


async def test_ctrl_c_cancels_a_turn_that_streams_and_keeps_the_line(chat):
    async with talking(chat, [[say("So far"), silent()], say("Anew.")]) as (screen, mock):
        screen.type("Go.\r")
        await screen.shows("So far")
        screen.type("a draft\x03")
        await screen.shows(
            "Ctrl-C: the turn is being cancelled; another one leaves", "the turn was cancelled", "> a draft\nidle"
        )
        screen.type("\r")
        await screen.shows("Anew.", "idle")
        lead = await leave(screen)
    assert ends(lead) == ["cancelled", "completed"]
    assert mock.hung_up == 1


async def test_ctrl_c_twice_leaves_while_a_command_runs_and_ends_it(chat, folder):
    os.mkfifo(folder / "pid")
    script = [[call("bash", command="echo $$ >pid; exec sleep 1000", description="wait")]]
    async with talking(chat, script, "--shell", "--yes") as (screen, _):
        screen.type("Go.\r")
        await screen.shows("lead calls bash")
        with trio.fail_after(30):
            pid = int(await trio.to_thread.run_sync((folder / "pid").read_text))
        screen.type("\x03\x03")
        assert await screen.ends() == 130
        lead = lead_of(screen)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert ends(lead) == ["cancelled"]


async def test_ctrl_c_while_a_command_runs_cancels_the_turn_and_the_chat_goes_on(chat):
    script = [[call("bash", command="exec sleep 1000", description="wait")], say("Anew.")]
    async with talking(chat, script, "--shell", "--yes") as (screen, _):
        screen.type("Go.\r")
        await screen.shows("lead calls bash")
        screen.type("\x03")
        await screen.shows("the turn was cancelled", "idle")
        screen.type("Again.\r")
        await screen.shows("Anew.", "idle")
        await leave(screen)


async def test_ctrl_c_at_a_question_cancels_the_turn(chat, folder):
    async with talking(chat, [SHELL, say("Anew.")], "--shell") as (screen, _):
        screen.type("Go.\r")
        await screen.shows(QUESTION, "\n?")
        screen.type("y\x03")
        await screen.shows("the turn was cancelled", "\n>\nidle")
        screen.type("Again.\r")
        await screen.shows("Anew.", "idle")
        lead = await leave(screen)
    assert not (folder / "made.txt").exists()
    assert ends(lead) == ["cancelled", "completed"]


async def test_ctrl_d_leaves_in_the_middle_of_a_turn(chat):
    async with talking(chat, [[say("So far"), silent()]]) as (screen, mock):
        screen.type("Go.\r")
        await screen.shows("So far")
        lead = await leave(screen)
        await mock.wait_quiet()
    assert ends(lead) == ["cancelled"]
    assert "So far\n" in screen.text
    assert mock.hung_up == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_everything_and_restores_the_terminal(chat, number):
    async with talking(chat, [[say("So far"), silent()]]) as (screen, _):
        screen.type("Go.\r")
        await screen.shows("So far")
        screen.process.send_signal(number)
        assert await screen.ends() == 128 + number
        assert ends(lead_of(screen)) == ["cancelled"]
        assert screen.modes[3] & 0o10, "it echoes"


async def test_a_sigint_from_elsewhere_is_a_ctrl_c(chat):
    async with talking(chat, []) as (screen, _):
        screen.process.send_signal(signal.SIGINT)
        await screen.shows("Ctrl-C again leaves")
        screen.process.send_signal(signal.SIGINT)
        assert await screen.ends() == 130


async def test_when_the_terminal_hangs_up_everything_ends(chat, tmp_path):
    async with talking(chat, [[say("So far"), silent()]]) as (screen, mock):
        screen.type("Go.\r")
        await screen.shows("So far")
        screen.hang_up()
        with trio.fail_after(30):
            assert await screen.process.wait() == 129
        await mock.wait_quiet()
    (file,) = (tmp_path / "state" / "sessions").iterdir()
    assert ends(sessions_of(f"log: {file}")["lead"]) == ["cancelled"]


async def test_it_ends_also_when_nobody_reads_what_is_shown(chat):
    full = trio.Event()
    flood = [say("x" * 60_000 + "\n") for _ in range(20)]
    async with talking(chat, [[*flood, until(full)]]) as (screen, _):
        screen.type("Go.\r")
        await screen.shows("xxx")
        screen.process.send_signal(signal.SIGTERM)
        with trio.fail_after(30):
            assert await screen.process.wait() == 143


async def test_ctrl_z_stops_it_as_a_shell_expects(chat):
    async with open_mock_provider([say("Seen.")]) as mock:
        started = chat("--model", "mock", "--base-url", mock.openai_url)
        shell = 'set -m; "$@"; echo "stopped $?"; fg >/dev/null; echo "ended $?"'
        async with open_screen({**started, "command": ["bash", "-c", shell, "bash", *started["command"]]}) as screen:
            await screen.shows("idle")
            screen.type("half\x1a")
            await screen.shows("stopped 148", "> half\nidle")
            screen.type(" a line\r")
            await screen.shows("Seen.", "idle")
            screen.type("\x04")
            assert await screen.ends() == 0
            assert "ended 0" in screen.text
    assert asked(mock.requests[0]) == ["half a line"]


async def test_without_the_package_for_it_the_extra_is_named(chat, tmp_path):
    (tmp_path / "prompt_toolkit.py").write_text(
        "raise ModuleNotFoundError('no', name='prompt_toolkit')", encoding="utf-8"
    )
    path = os.pathsep.join([os.fspath(tmp_path), os.environ.get("PYTHONPATH", "")])
    async with open_screen(chat("--model", "m", "--base-url", "http://127.0.0.1:9", PYTHONPATH=path)) as screen:
        assert await screen.ends() == 2
    assert screen.rows == ["creche: the command line needs 'prompt_toolkit'; run: pip install 'creche[cli]'"]


# ---------------------------------------------------------------- approvals


@pytest.mark.parametrize(
    ("answers", "made"), [(["y"], True), (["no, not on a Friday"], False), (["ok", "", "Yes"], True)]
)
async def test_an_answer_is_asked_for_in_the_same_terminal_and_is_in_no_history(chat, folder, tmp_path, answers, made):
    async with talking(chat, [SHELL, say("Done.")], "--shell") as (screen, _):
        screen.type("Go.\r")
        for number, answer in enumerate(answers, 1):
            await screen.until(lambda number=number: screen.text.count(QUESTION) == number and screen.rows[-2] == "?")
            screen.type(f"{answer}\r")
        await screen.shows("Done.", "idle")
        assert "echo made >made.txt" in screen.unwrapped
        await leave(screen)
    assert (folder / "made.txt").exists() is made
    history = (tmp_path / "state" / "chat-history").read_text(encoding="utf-8")
    assert [line for line in history.splitlines() if line.startswith("+")] == ["+Go."]


async def test_a_line_that_is_being_typed_is_neither_lost_nor_taken_for_an_answer(chat, folder):
    asks = trio.Event()
    async with talking(chat, [[say("Now"), until(asks), SHELL], say("Done.")], "--shell") as (screen, mock):
        screen.type("Go.\r")
        await screen.shows("Now")
        screen.type("y")
        await screen.shows("> y")
        asks.set()
        await screen.shows(QUESTION, "a question waits: send this line or clear it (Ctrl-U), then answer")
        screen.type("\r")
        await screen.shows("joins the turn", "\n?")
        assert not (folder / "made.txt").exists()
        screen.type("n\r")
        await screen.shows("Done.", "idle")
        await leave(screen)
    assert not (folder / "made.txt").exists()
    assert asked(mock.requests[1]) == ["Go.", "y"]


async def test_what_is_always_allowed_in_the_project_is_not_asked_again(chat, folder, tmp_path):
    async with talking(chat, [SHELL, say("One."), SHELL, say("Two.")], "--shell") as (screen, _):
        screen.type("Go.\r")
        await screen.shows(QUESTION, "\n?")
        screen.type("p\r")
        await screen.shows("One.", "idle")
        screen.type("Again.\r")
        await screen.shows("Two.", "idle")
        assert screen.text.count(QUESTION) == 1
        await leave(screen)
    (file,) = (tmp_path / "state" / "approvals").iterdir()
    assert len(json.loads(file.read_text(encoding="utf-8"))["allowed"]) == 1

"""``creche run`` with more powers than reading: files written, commands asked for on a real pseudo-terminal."""

import fcntl
import json
import os
import pty
import re
import termios

import pytest
import trio

from creche.models import call, say
from creche.testing import open_mock_provider

from .conftest import starter
from .test_run import finish, sessions_of
from .window import open_window

QUESTION = b"no, or no and why?"
NO_TERMINAL = "creche: --shell asks before each command, and there is no terminal to ask on; --yes allows them all\n"
COMMAND = [call("bash", command="echo made >made.txt", description="make a file")]


def last_result(request):
    return request.json["messages"][-1]["content"]


async def test_without_it_there_is_no_tool_that_writes(command):
    async with open_mock_provider(lambda request: say("ok")) as mock:
        await finish(command("Look.", "--model", "mock", "--base-url", mock.openai_url))
    names = {tool["function"]["name"] for tool in mock.requests[0].json["tools"]}
    assert names == {"read", "list", "glob", "grep", "subagent", "subagent_fork"}


async def test_it_writes_in_the_folder_and_nowhere_else(command, folder):
    script = [
        [call("write", path="new.txt", content="hello\n"), call("write", path="../out.txt", content="no\n")],
        say("Done."),
    ]
    async with open_mock_provider(script) as mock:
        code, said, told = await finish(command("Write.", "--write", "--model", "mock", "--base-url", mock.openai_url))
    assert (code, said) == (0, "Done.\n"), told
    assert (folder / "new.txt").read_text(encoding="utf-8") == "hello\n"
    assert not (folder.parent / "out.txt").exists()
    assert "is told that write failed (failed): Error: " in told


async def test_commands_without_a_terminal_are_wrong_usage_unless_all_are_allowed(command, folder):
    code, _, told = await finish(command("Run.", "--shell", "--model", "mock", "--base-url", "http://127.0.0.1:9"))
    assert (code, told) == (
        2,
        NO_TERMINAL,
    )
    async with open_mock_provider([COMMAND, say("Done.")]) as mock:
        code, said, told = await finish(
            command("Run.", "--shell", "--yes", "--model", "mock", "--base-url", mock.openai_url)
        )
    assert (code, said) == (0, "Done.\n"), told
    assert (folder / "made.txt").read_text(encoding="utf-8") == "made\n"


@pytest.mark.parametrize(("name", "is_asked_on"), [("run", "stderr"), ("chat", "stderr"), ("chat", "stdout")])
async def test_a_question_that_nobody_would_see_is_wrong_usage(name, is_asked_on, folder, tmp_path):
    task = ["Run."] if name == "run" else []
    started = starter(name, folder, tmp_path / "state")(
        *task, "--shell", "--model", "mock", "--base-url", "http://[::1]:9"
    )
    with (tmp_path / "told").open("wb") as file:
        # A chat asks on stdout where it is on a terminal, and on stderr where it takes lines.
        elsewhere = {"stderr": file} if is_asked_on == "stderr" else {"stderr": file, "stdout": file}
        async with open_window({**started, **elsewhere}, TERM="dumb") as window:
            assert await window.end() == 2
    assert (tmp_path / "told").read_text(encoding="utf-8") == NO_TERMINAL


async def test_yes_alone_is_wrong_usage(command):
    code, _, told = await finish(command("Run.", "--yes", "--model", "mock", "--base-url", "http://127.0.0.1:9"))
    assert (code, told) == (2, "creche: --yes allows commands, and without --shell there are none\n")


# ---------------------------------------------------------------- on a terminal


async def on_terminal(started, answers, *, typed_ahead=b""):
    """Run a process on a pseudo-terminal and type an answer at each question; return code and all that was shown."""
    ours, theirs = pty.openpty()
    shown = b""
    waiting = list(answers)
    os.write(ours, typed_ahead)
    try:
        process = await trio.lowlevel.open_process(
            **started,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C is a signal
        )
        os.close(theirs)
        with trio.fail_after(30):
            while True:
                await trio.lowlevel.wait_readable(ours)
                try:
                    piece = os.read(ours, 4096)
                except OSError:  # Linux says so when the last process on it has ended
                    break
                if not piece:
                    break
                shown += piece
                if waiting and shown.count(QUESTION) > len(answers) - len(waiting):
                    os.write(ours, waiting.pop(0))
            code = await process.wait()
    finally:
        os.close(ours)
    return code, shown.decode().replace("\r\n", "\n")


@pytest.mark.parametrize(
    ("answers", "decision", "lasting"),
    [
        ([b"y\n"], "allowed", "once"),
        ([b"a\n"], "allowed", "agent"),
        ([b"p\n"], "allowed", "project"),
        ([b"no\n"], "refused", "once"),
        ([b"no, not on a Friday\n"], "refused", "once"),
        ([b"ok\n", b"Yes\n"], "allowed", "once"),
        ([b"\x04"], "unanswered", "once"),
    ],
)
async def test_a_line_of_the_user_decides(command, folder, answers, decision, lasting):
    async with open_mock_provider([COMMAND, say("Done.")]) as mock:
        started = command("Run.", "--shell", "--model", "mock", "--base-url", mock.openai_url)
        code, shown = await on_terminal(started, answers)
        result = last_result(mock.requests[1])
    assert code == 0, shown
    assert "lead asks to call bash: it runs with the rights of this program" in shown
    assert f'    in "{folder}": echo made >made.txt\n    (make a file)\n' in shown
    assert (folder / "made.txt").exists() is (decision == "allowed")
    [lead] = sessions_of(re.sub(r"\s*\Z", "", shown)).values()
    [decided] = lead.records("approval/decided")
    assert (decided.data.decision, decided.data.lasting) == (decision, lasting)
    if b"Friday" in answers[0]:
        assert "not on a Friday" in result


async def test_what_the_project_allows_is_not_asked_again(command, folder, tmp_path):
    for answers in ([b"p\n"], []):
        async with open_mock_provider([COMMAND, say("Done.")]) as mock:
            started = command("Run.", "--shell", "--model", "mock", "--base-url", mock.openai_url)
            code, shown = await on_terminal(started, answers)
        assert code == 0, shown
        assert shown.count(QUESTION.decode()) == len(answers)
    [file] = (tmp_path / "state" / "approvals").iterdir()
    assert json.loads(file.read_text(encoding="utf-8")) == {
        "allowed": [{"tool": "bash", "subject": f'in "{folder}": echo made >made.txt'}]
    }


async def test_what_cannot_be_kept_is_not_said_to_be(command, tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "approvals").symlink_to("/proc/none")  # where nobody can make a folder
    async with open_mock_provider([COMMAND, say("Done.")]) as mock:
        started = command("Run.", "--shell", "--model", "mock", "--base-url", mock.openai_url)
        code, shown = await on_terminal(started, [b"p\n"])
    assert code == 0, shown
    assert "remember_approvals" in shown
    assert "No such file or directory" in shown
    assert "kept in" not in shown


async def test_what_the_project_allows_meanwhile_is_not_asked_of_another_agent(command):
    """Rule: of two that wait for the terminal at once, the answer to the first may be that to the second."""
    both = [call("subagent", description="make", prompt="Make it.") for _ in range(2)]

    def answer(request):
        last = request.json["messages"][-1]
        if last["role"] == "tool":
            return say("Done.")
        return both if "Run." in str(last["content"]) else COMMAND

    async with open_mock_provider(answer) as mock:
        started = command("Run.", "--shell", "--model", "mock", "--base-url", mock.openai_url)
        code, shown = await on_terminal(started, [b"p\n"])
    assert code == 0, shown
    assert shown.count(QUESTION.decode()) == 1
    decided = [
        record.data for log in sessions_of(shown.rstrip()).values() for record in log.records("approval/decided")
    ]
    assert sorted((each.decision, each.lasting) for each in decided) == [("allowed", "once"), ("allowed", "project")]


async def test_ctrl_c_at_a_question_ends_the_run(command, folder):
    async with open_mock_provider([COMMAND, say("never")]) as mock:
        started = command("Run.", "--shell", "--model", "mock", "--base-url", mock.openai_url)
        code, shown = await on_terminal(started, [b"\x03"])
    assert code == 130, shown
    assert "interrupted; stopped: lead" in shown
    assert not (folder / "made.txt").exists()


async def test_what_is_typed_before_a_question_is_no_answer_to_it(command, folder):
    async with open_mock_provider([COMMAND, say("Done.")]) as mock:
        started = command("Run.", "--shell", "--model", "mock", "--base-url", mock.openai_url)
        code, shown = await on_terminal(started, [b"no\n"], typed_ahead=b"y\ny\n")
    assert code == 0, shown
    assert not (folder / "made.txt").exists()


async def test_agents_cannot_be_let_write_what_is_always_allowed(command, tmp_path):
    state = str(tmp_path / "work" / "state")
    code, _, told = await finish(
        command(
            "Run.",
            "--shell",
            "--write",
            "--yes",
            "--model",
            "mock",
            "--base-url",
            "http://127.0.0.1:9",
            CRECHE_STATE=state,
        )
    )
    assert code == 1, told  # nobody is asked, so nothing is remembered
    started = command(
        "Run.", "--shell", "--write", "--model", "mock", "--base-url", "http://127.0.0.1:9", CRECHE_STATE=state
    )
    code, shown = await on_terminal(started, [])
    assert code == 2, shown
    assert "with --write, agents could change what is always allowed" in shown

"""``creche chat`` where stdin is no terminal: a line is a turn."""

import json
import signal
import subprocess
from contextlib import asynccontextmanager

import pytest
import trio

from creche.models import call, say
from creche.testing import open_mock_provider, silent, status

from .screens import open_screen
from .test_chat import asked, ends
from .test_run import finish, heed, read_all, read_until, sessions_of


def redirected(started, how):
    return {**started, "command": ["sh", "-c", f'exec "$@" {how}', "sh", *started["command"]]}


async def converse(chat, script, lines, *arguments, **variables):
    """Give lines to a chat; return exit code, stdout, stderr and the mock."""
    async with open_mock_provider(script) as mock:
        started = chat("--model", "mock", "--base-url", mock.openai_url, *arguments, **variables)
        data = lines if isinstance(lines, bytes) else lines.encode()
        return (*await finish(started, stdin=data), mock)


@asynccontextmanager
async def talking(chat, script, *arguments):
    """A chat between pipes, which SIGINT reaches; its process and the mock."""
    async with open_mock_provider(script) as mock:
        started = chat("--model", "mock", "--base-url", mock.openai_url, *arguments)
        process = await trio.lowlevel.open_process(
            **started, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=heed
        )
        async with process.stdin, process.stdout, process.stderr:
            yield process, mock


async def test_each_line_is_a_turn_and_answers_go_to_stdout(chat):
    script = [[say("I look."), call("read", path="notes.md")], say("Milk 麵包."), say("Two.")]
    code, said, told, mock = await converse(chat, script, "What to buy?\r\n\n  \nHow many, 你好?")
    assert (code, said) == (0, "I look.\nMilk 麵包.\nTwo.\n"), told
    assert [asked(request) for request in mock.requests][2] == ["What to buy?", "How many, 你好?"]
    assert "lead                   calls read path='notes.md'" in told
    assert told.splitlines()[-1].startswith("creche: 3 requests, ")
    assert ends(sessions_of(told)["lead"]) == ["completed", "completed"]


async def test_a_program_can_read_an_answer_before_it_sends_the_next_line(chat):
    async with talking(chat, lambda request: say(f"{len(asked(request))}!")) as (process, _):
        for number in (1, 2):
            await process.stdin.send_all(b"Go.\n")
            assert await read_until(process.stdout, "!\n") == f"{number}!\n"
        await process.stdin.aclose()
        assert await read_all(process.stdout) == ""
        assert await process.wait() == 0


async def test_json_is_one_object_a_turn(chat):
    script = [[call("list"), say("x")], say("A\x1b[31m list."), status(401, "wrong key"), say("No", finish="refusal")]
    code, said, told, _ = await converse(chat, script, "One.\nTwo.\nThree.\n", "--json")
    assert (code, told) == (1, "")
    turns = [json.loads(line) for line in said.splitlines()]
    assert [turn["outcome"] for turn in turns] == ["done", "failed", "refused"]
    assert [turn["usage"]["requests"] for turn in turns] == [2, 1, 1]
    assert [turn["answer"] for turn in turns] == ["A\x1b[31m list.", "", "No"]
    assert "\x1b" not in said
    assert turns[1]["error"].startswith("endpoint: wrong key [HTTP 401")
    assert turns[2]["error"] == "the model refused to answer"
    assert "error" not in turns[0]
    assert sessions_of(f"log: {turns[0]['log']}")


async def test_a_failure_is_one_sentence_and_the_next_line_is_a_turn_all_the_same(chat):
    script = [status(401, "wrong key"), say("Half", finish="max-tokens")]
    code, said, told, _ = await converse(chat, script, "One.\nTwo.\n")
    assert (code, said) == (1, "Half\n")
    lines = told.splitlines()
    assert lines[1].startswith("creche: endpoint: wrong key [HTTP 401")
    assert lines[2] == "creche: an answer was cut off at the limit of tokens; a higher --max-tokens may help"


async def test_what_a_model_says_does_not_steer_a_terminal_behind_the_pipe(chat):
    _, said, _, _ = await converse(chat, [say("A\x1b]0;owned\x07B\tC\r\n")], "Go.\n")
    assert said == "A ]0;owned B\tC\n"


async def test_commands_are_answered_on_stderr(chat):
    lines = "/help\n/agents\n/prompt\n/cancel\n//home\n/agents\n/nothing\n/quit\nnever\n"
    code, said, told, mock = await converse(chat, [say("Seen.")], lines)
    assert (code, said) == (1, "Seen.\n")
    assert [asked(request) for request in mock.requests] == [["/home"]]
    for text in (
        "/help    what can be typed\n",
        "no agent has done anything yet\n",
        "You work in the folder",
        "nothing runs that could be cancelled\n",
        "lead   done",
        "1 agent, 1 request",
        "creche: '/nothing' is no command; there are ",
    ):
        assert text in told


async def test_a_line_that_is_no_text_is_not_sent(chat):
    code, said, told, mock = await converse(chat, [say("Seen.")], b"caf\xe9\nGo.\n")
    assert (code, said) == (1, "Seen.\n")
    assert "creche: a line is not sent, because it is no UTF-8: " in told
    assert len(mock.requests) == 1


async def test_lines_come_from_a_file_too(chat, tmp_path):
    (tmp_path / "lines").write_text("Go.\n", encoding="utf-8")
    async with open_mock_provider([say("Seen.")]) as mock:
        started = chat("--model", "mock", "--base-url", mock.openai_url)
        code, said, told = await finish(redirected(started, f"<'{tmp_path}/lines'"))
        assert (code, said) == (0, "Seen.\n"), told


async def test_stdin_that_cannot_be_read_is_one_sentence(chat):
    started = chat("--model", "m", "--base-url", "http://127.0.0.1:9")
    code, _, told = await finish(redirected(started, "0>/dev/null"))
    assert (code, told.count("\n")) == (2, 1)
    assert told.startswith("creche: stdin cannot be read: Bad file descriptor. 0 requests, ")
    assert told.endswith("nothing was logged\n")


async def test_without_a_stdin_there_are_no_lines(chat):
    started = chat("--model", "m", "--base-url", "http://127.0.0.1:9")
    code, said, told = await finish(redirected(started, "<&-"))
    assert (code, said) == (0, ""), told


@pytest.mark.parametrize("as_json", [False, True])
async def test_ctrl_c_ends_it_and_the_open_turn_is_told(chat, as_json):
    script = [say("One."), [say("So far"), silent()]]
    async with talking(chat, script, *(["--json"] if as_json else [])) as (process, mock):
        await process.stdin.send_all(b"Go.\nGo on.\n")
        said = await read_until(process.stdout, "One." if as_json else "So far")
        await mock.wait_requests(2)
        process.send_signal(signal.SIGINT)
        said += await read_all(process.stdout)
        told = await read_all(process.stderr)
        assert await process.wait() == 130
        await mock.wait_quiet()
        assert mock.hung_up == 1
    assert told.splitlines()[-1].startswith("creche: interrupted. 2 requests, ")
    if as_json:
        last = json.loads(said.splitlines()[1])
        assert (last["outcome"], last["error"], last["usage"]["requests"]) == ("cancelled", "interrupted", 1)
        assert last["answer"] in ("So far", "")


async def test_ctrl_c_between_turns_ends_it(chat):
    async with talking(chat, [say("One.")], "--json") as (process, _):
        await process.stdin.send_all(b"Go.\n")
        await read_until(process.stdout, "}\n")
        process.send_signal(signal.SIGINT)
        assert await read_all(process.stdout) == ""
        assert await process.wait() == 130


async def test_when_nobody_reads_the_answers_it_ends(chat):
    async with talking(chat, lambda _: say("x")) as (process, _):
        await process.stdout.aclose()
        await process.stdin.send_all(b"Go.\n")
        told = await read_all(process.stderr)
        assert await process.wait() == 1
    assert "creche: nobody reads the answer. 1 request, " in told


async def test_a_terminal_that_cannot_be_drawn_on_gets_lines(chat, folder):
    command = call("bash", command="echo made >made.txt", description="make a file")
    async with open_mock_provider([command, say("Done.")]) as mock:
        started = chat("--model", "mock", "--base-url", mock.openai_url, "--shell")
        async with open_screen(started, TERM="dumb") as screen:
            await screen.shows("each line is a turn")
            screen.type("Go.\n")
            await screen.shows("no, or no and wh")
            screen.type("y\n")
            await screen.shows("Done.")
            screen.type("\x04")
            assert await screen.ends() == 0
    assert (folder / "made.txt").exists()
    assert b"\x1b" not in screen.raw


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--shell"], "--shell asks before each command, and there is no terminal to ask on; --yes allows them all"),
        (["--yes"], "--yes allows commands, and without --shell there are none"),
        (["--max-tokens", "0"], "--max-tokens is at least 1 and at most 1,000,000,000, not 0"),
    ],
)
async def test_what_cannot_be_done_is_one_sentence_and_exit_code_2(chat, arguments, sentence):
    started = chat("--model", "m", "--base-url", "http://127.0.0.1:9", *arguments)
    code, said, told = await finish(started, stdin=b"Go.\n")
    assert (code, said, told) == (2, "", f"creche: {sentence}\n")


async def test_without_a_key_the_chat_says_so_and_goes_on(chat):
    code, _, told = await finish(chat("--model", "openai:gpt-5"), stdin=b"Go.\n/help\n")
    assert code == 1
    assert "creche: openai: there is no API key: set OPENAI_API_KEY" in told
    assert "/quit" in told

"""The live view as a user sees it: a real process on a real pseudo-terminal, drawn by a terminal emulator."""

import os
import re
import signal
import subprocess
import sys

import pytest
import trio
from inline_snapshot import snapshot
from rich.cells import cell_len

from creche.cli._live._cells import wrap
from creche.models import Usage, call, say
from creche.session import load_sessions
from creche.testing import check_log, cut, open_mock_provider, silent, status, until

from .window import open_window, timeless

COST = Usage(1, input_tokens=12_345, cached_tokens=8_000, output_tokens=321)


def calls(*what):
    """Return an answer that is some calls; it costs what an answer of these tests costs."""
    return [say(usage=COST), *what]


TEAM = calls(*[call("subagent", description=word, prompt=f"Look up {word}.") for word in ("tea", "scone")])


def asked(request):
    """Return what a request of an agent is about, and the result that it comes back with."""
    messages = request.json["messages"]
    first = next(message["content"] for message in messages if message["role"] == "user")
    return first if isinstance(first, str) else str(first), messages[-1]["role"] == "tool"


@pytest.fixture
def live(command):
    """Return what starts ``creche run`` with a mock provider."""

    def start(mock, task="Go.", *arguments, **variables):
        return command(task, "--model", "mock", "--base-url", mock.openai_url, *arguments, **variables)

    return start


@pytest.fixture
def demo(folder, tmp_path):
    """Return what starts ``creche demo``."""
    return {
        "command": [sys.executable, "-W", "error", "-m", "creche", "demo", os.fspath(folder)],
        "env": {**os.environ, "CRECHE_STATE": os.fspath(tmp_path / "state")},
    }


class Gates:
    """A team whose answers come when they are let."""

    def __init__(self):
        self.look, self.tea, self.scone, self.end = (trio.Event() for _ in range(4))

    def answer(self, request):
        about, has_result = asked(request)
        if "tea" in about:
            return [until(self.tea), say("A leaf.", usage=COST)]
        if "scone" in about:
            if has_result:
                return [until(self.scone), say("A cake.", usage=COST)]
            return calls(call("grep", pattern="scone", path="."))
        if has_result:
            return [say("Tea is a leaf.\nA scone"), until(self.end), say(" is a cake.", usage=COST)]
        return [say("I ask two others."), until(self.look), *TEAM]


async def record(live, columns):
    """Return what a window shows of one run, at five moments, and at its end."""
    gates = Gates()
    async with open_mock_provider(gates.answer) as mock, open_window(live(mock), columns=columns) as window:
        await window.wait_for("I ask two others.", "1 agent")
        seen = [window.shown]
        gates.look.set()
        await window.wait_for("3 agents, 2", lambda: sum(" asks " in line for line in window.shown) == 2)
        seen.append(window.shown)
        gates.tea.set()
        await window.wait_for("3 agents, 3", "done")
        seen.append(window.shown)
        gates.scone.set()
        await window.wait_for("A scone", "3 agents, 4")
        seen.append(window.shown)
        gates.end.set()
        assert await window.end() == 0
        assert (window.cursor[1:], window.wraps) == ((0, True), True)
        seen.append(before_account(window.everything))
    return "\n\n-----\n\n".join("\n".join(timeless(lines)) for lines in seen)


def before_account(lines):
    """Return the lines before the one that says what a run has cost."""
    return lines[: next(number for number, line in enumerate(lines) if line.startswith("creche: "))]


async def test_a_run_from_its_beginning_to_its_end(live):
    assert await record(live, 80) == snapshot("""\
I ask two others.

agent  does                                                                time
lead   asks endpoint:mock (time)
1 agent, 0 requests (time)

-----

I ask two others.

agent          does                                  in  cached     out    time
lead           waits for 2 subagents              12.3k    8.0k     321 (time)
├─ subagent-1  asks endpoint:mock                     0       0       0 (time)
└─ subagent-2  asks endpoint:mock                 12.3k    8.0k     321 (time)
3 agents, 2 requests                              24.7k   16.0k     642 (time)

-----

I ask two others.

agent          does                                  in  cached     out    time
lead           waits for 1 subagent               12.3k    8.0k     321 (time)
├─ subagent-1  done: A leaf.                      12.3k    8.0k     321 (time)
└─ subagent-2  asks endpoint:mock                 12.3k    8.0k     321 (time)
3 agents, 3 requests                              37.0k   24.0k     963 (time)

-----

I ask two others.
Tea is a leaf.
A scone

agent          does                                  in  cached     out    time
lead           asks endpoint:mock                 12.3k    8.0k     321 (time)
├─ subagent-1  done: A leaf.                      12.3k    8.0k     321 (time)
└─ subagent-2  done: A cake.                      24.7k   16.0k     642 (time)
3 agents, 4 requests                              49.4k   32.0k    1.3k (time)

-----

I ask two others.
Tea is a leaf.
A scone is a cake.

agent          does                                  in  cached     out    time
lead           done                               24.7k   16.0k     642 (time)
├─ subagent-1  done: A leaf.                      12.3k    8.0k     321 (time)
└─ subagent-2  done: A cake.                      24.7k   16.0k     642 (time)
3 agents, 5 requests                              61.7k   40.0k    1.6k (time)\
""")


async def test_a_run_in_a_narrow_terminal(live):
    assert await record(live, 40) == snapshot("""\
I ask two others.

agent  does                        time
lead   asks endpoint:mock (time)
1 agent, 0 requests (time)

-----

I ask two others.

lead           waits for 2 sub… (time)
├─ subagent-1  asks endpoint:m… (time)
└─ subagent-2  asks endpoint:m… (time)
3 agents, 2 requests (time)
24.7k in, 16.0k cached, 642 out

-----

I ask two others.

lead           waits for 1 sub… (time)
├─ subagent-1  done: A leaf. (time)
└─ subagent-2  asks endpoint:m… (time)
3 agents, 3 requests (time)
37.0k in, 24.0k cached, 963 out

-----

I ask two others.
Tea is a leaf.
A scone

lead           asks endpoint:m… (time)
├─ subagent-1  done: A leaf. (time)
└─ subagent-2  done: A cake. (time)
3 agents, 4 requests (time)
49.4k in, 32.0k cached, 1.3k out

-----

I ask two others.
Tea is a leaf.
A scone is a cake.

lead           done (time)
├─ subagent-1  done: A leaf. (time)
└─ subagent-2  done: A cake. (time)
3 agents, 5 requests (time)
61.7k in, 40.0k cached, 1.6k out\
""")


async def test_a_run_in_the_narrowest_terminal(live):
    assert await record(live, 20) == snapshot("""\
I ask two others.

agent  does
lead   asks endpoi…
1 agent, 0 requests

-----

I ask two others.

lead       waits f…
├─ sub…-1  asks en…
└─ sub…-2  asks en…
3 agents, 2 reques…
24.7k in, 16.0k ca…

-----

I ask two others.

lead       waits f…
├─ sub…-1  done: A…
└─ sub…-2  asks en…
3 agents, 3 reques…
37.0k in, 24.0k ca…

-----

I ask two others.
Tea is a leaf.
A scone

lead       asks en…
├─ sub…-1  done: A…
└─ sub…-2  done: A…
3 agents, 4 reques…
49.4k in, 32.0k ca…

-----

I ask two others.
Tea is a leaf.
A scone is a cake.

lead       done
├─ sub…-1  done: A…
└─ sub…-2  done: A…
3 agents, 5 reques…
61.7k in, 40.0k ca…\
""")


# ---------------------------------------------------------------- what is said


PIECES = (
    "".join([f"{number} of many lines\n" for number in range(30)]),
    "A paragraph " + "that goes on and on, " * 60,
    "and on: お茶と🍵を飲みましょう。" * 20 + "\n\n",
    "x" * 80 + "\n" + "x" * 160 + "\n",
    "\tone\ttwo\n- a list\n",
)


async def test_what_is_streamed_is_on_the_screen_once_and_complete_whatever_was_drawn_meanwhile(live):
    gates = [trio.Event() for _ in PIECES]
    pieces = [item for piece, gate in zip(PIECES, gates, strict=True) for item in (say(piece), until(gate))]
    async with open_mock_provider([pieces]) as mock, open_window(live(mock), lines=10) as window:
        for gate, end in zip(gates, ("29 of", "on,", "飲みましょう。", "xxx", "- a list"), strict=True):
            await window.wait_for(end, "1 agent")
            assert len(window.shown) <= 10
            gate.set()
        assert await window.end() == 0
    rows = [row.rstrip() for line in "".join(PIECES).split("\n")[:-1] for row in wrap(line, 80)]
    assert before_account(window.everything)[:-4] == rows


async def test_what_is_typed_meanwhile_takes_nothing_away(live):
    rest = trio.Event()
    async with (
        open_mock_provider([[say("One.\nTwo.\n"), until(rest), say("Three.")]]) as mock,
        open_window(live(mock)) as window,
    ):
        await window.wait_for("Two.", "1 agent")
        row = window.cursor[0]
        window.type("abc\n")
        await window.wait_for(lambda: window.cursor[0] > row)
        rest.set()
        assert await window.end() == 0
    lines = [line for line in before_account(window.everything)[:-3] if line not in ("", "abc")]
    assert lines == ["One.", "Two.", "Three."]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_what_was_streamed_until_it_is_interrupted_is_there_once_and_complete(number, code, live):
    said = PIECES[0] + "The last line is " + "not finished " * 20
    async with open_mock_provider([[say(said), silent()]]) as mock, open_window(live(mock), lines=10) as window:
        await window.wait_for("not finished", "1 agent")
        window.process.send_signal(number)
        assert await window.end() == code
    rows = [row.rstrip() for line in said.split("\n") for row in wrap(line, 80)]
    shown = before_account(window.everything)
    assert shown[: len(rows)] == rows
    assert timeless(shown[len(rows) :]) == snapshot(
        [
            "",
            "agent  does                                                                time",
            "lead   cancelled (time)",
            "1 agent, 1 request (time)",
        ]
    )


async def test_nothing_that_models_and_tools_say_is_obeyed(live):
    evil = "\x1b]0;title\x07\x1b[2J\x9b31m\u202eright to left\r\nand \x00 on"
    script = [[say(evil, "\n"), call("grep", pattern="\x1b[2J" + "p" * 9, path="\r\n")], say("Done.")]
    async with open_mock_provider(script) as mock, open_window(live(mock)) as window:
        assert await window.end() == 0
        assert b" ]0;title  [2J 31mright to left\r\nand   on\r\n" in window.raw
    ours = re.sub(rb"\x1b\[(J|K|\?7[lh]|\d+A|[0-9;]*m)|[\r\n]", b"", window.raw)
    assert not re.search(rb"[\x00-\x1f\x7f]", ours)


async def test_wide_characters_and_emoji_take_the_room_that_they_take(live):
    async with (
        open_mock_provider([status(400, "日本語" * 9 + "🍵" * 9)]) as mock,
        open_window(live(mock), columns=60) as window,
    ):
        assert await window.end() == 1
    [row] = [line for line in window.everything if line.startswith("lead ")]
    assert cell_len(row) == 59
    assert timeless([row]) == snapshot(["lead   failed: endpoint: 日本語日本語日本語日本語… (time)"])


# ---------------------------------------------------------------- what there is room for


async def test_there_are_never_more_rows_than_the_terminal_has(live):
    tasks = [call("subagent", description=f"{number}", prompt=f"Look up {number}.") for number in range(60)]
    arrived = trio.Event()

    def answer(request):
        about, has_result = asked(request)
        if "Look up" not in about:
            return say("Done.", usage=COST) if has_result else tasks
        number = int(about.split("Look up ")[1].split(".")[0])
        return say("Found.", usage=COST) if number < 50 else [until(arrived), say("Found.", usage=COST)]

    async with open_mock_provider(answer) as mock, open_window(live(mock), lines=12) as window:
        await window.wait_for("61 agents, 51 requests", "waits for 10 subagents")
        assert timeless(window.shown) == snapshot(
            [
                "",
                "agent           does                                 in  cached     out    time",
                "lead            waits for 10 subagents                0       0       0 (time)",
                "├─ subagent-51  asks endpoint:mock                    0       0       0 (time)",
                "├─ subagent-52  asks endpoint:mock                    0       0       0 (time)",
                "├─ subagent-53  asks endpoint:mock                    0       0       0 (time)",
                "├─ subagent-54  asks endpoint:mock                    0       0       0 (time)",
                "├─ subagent-55  asks endpoint:mock                    0       0       0 (time)",
                "└─ subagent-56  asks endpoint:mock                    0       0       0 (time)",
                "and 54 more, 4 at work",
                "61 agents, 51 requests                             617k    400k   16.1k (time)",
            ]
        )
        assert not window.has_scrolled
        arrived.set()
        assert await window.end() == 0
    assert timeless(before_account(window.everything)) == snapshot(
        [
            "Done.",
            "",
            "agent          does                                  in  cached     out    time",
            "lead           done                               12.3k    8.0k     321 (time)",
            "├─ subagent-1  done: Found.                       12.3k    8.0k     321 (time)",
            "├─ subagent-2  done: Found.                       12.3k    8.0k     321 (time)",
            "├─ subagent-3  done: Found.                       12.3k    8.0k     321 (time)",
            "├─ subagent-4  done: Found.                       12.3k    8.0k     321 (time)",
            "├─ subagent-5  done: Found.                       12.3k    8.0k     321 (time)",
            "└─ subagent-6  done: Found.                       12.3k    8.0k     321 (time)",
            "and 54 more",
            "61 agents, 62 requests                             753k    488k   19.6k (time)",
        ]
    )


async def test_a_window_can_be_made_another_size_at_any_time(live):
    rest = trio.Event()
    script = [[say("It goes on and on. " * 10), until(rest), say("The end.")]]
    async with open_mock_provider(script) as mock, open_window(live(mock), columns=100, lines=30) as window:
        await window.wait_for("It goes", "time")
        for columns, lines in ((40, 10), (20, 3), (7, 2), (1, 1), (120, 40)):
            window.resize(columns, lines)
            window.raw = b""
            await window.wait_for(lambda: b"\x1b[?7h" in window.raw)
        rest.set()
        assert await window.end() == 0
    assert timeless(before_account(window.everything)[-6:]) == snapshot(
        [
            "It goes on and on. It goes on and on. It goes on and on. It goes on and on. It goes on and on. It goes on and on. It goe",
            "s on and on. It goes on and on. It goes on and on. It goes on and on. The end.",
            "",
            "agent  does                                                                                                        time",
            "lead   done (time)",
            "1 agent, 1 request (time)",
        ]
    )


# ---------------------------------------------------------------- where there is none


PLAIN = r" +[\d.]+s  lead +calls read path='notes.md'"


async def test_where_nothing_can_be_drawn_there_are_plain_lines(demo):
    async with open_window(demo, columns=120, TERM="dumb") as window:
        assert await window.end() == 0
    assert b"\x1b" not in window.raw
    assert any(re.fullmatch(r" +[\d.]+s  lead +starts subagent-1 \(spawn\)", line) for line in window.everything)
    assert "  notes.md: 2 lines" in window.everything


async def test_the_demo_draws_its_tree_and_the_summary_below_it(demo):
    async with open_window(demo) as window:
        assert await window.end() == 0
    shown = timeless(window.everything)
    assert shown[: shown.index("No TODO lines.") + 1] == snapshot(
        [
            "",
            "agent               does                                                   time",
            "lead                done (time)",
            "├─ subagent-1       done: 1 file, 11 B: (time)",
            "├─ subagent-2       done: The only text file: (time)",
            "└─ subagent_fork-1  done: No TODO lines. (time)",
            "4 agents, 10 requests (time)",
            "",
            "1 file, 11 B:",
            "  .md: 1 file, 11 B",
            "",
            "The only text file:",
            "  notes.md: 2 lines",
            "",
            "No TODO lines.",
        ]
    )


async def test_without_colour_it_is_drawn_without_colour(demo):
    async with open_window(demo, NO_COLOR="1") as window:
        assert await window.end() == 0
    assert "lead                done" in window.everything[2]
    assert not re.search(rb"\x1b\[[0-9;]*m", window.raw)


async def test_it_is_drawn_with_what_the_encoding_has(demo):
    async with open_window(demo, PYTHONIOENCODING="latin-1") as window:
        assert await window.end() == 0
    assert window.everything[3].startswith("|- subagent-1 ")


@pytest.mark.parametrize("stdout", ["pipe", "file"])
async def test_an_answer_that_goes_elsewhere_is_the_answer_alone(stdout, live, tmp_path):
    """Rule: what reads a pipe may write to the terminal, so nothing is drawn there."""
    script = [[say("I look.\x1b[2J"), call("read", path="notes.md")], say("Milk.")]
    said = tmp_path / "said"
    async with open_mock_provider(script) as mock:
        started = live(mock)
        with said.open("wb") as file:
            started["stdout"] = subprocess.PIPE if stdout == "pipe" else file
            async with open_window(started) as window:
                if stdout == "pipe":
                    said.write_bytes(b"".join([piece async for piece in window.process.stdout]))
                assert await window.end() == 0
    assert said.read_bytes() == b"I look.\x1b[2J\nMilk.\n"
    shown = before_account(window.everything)
    if stdout == "pipe":
        assert re.fullmatch(PLAIN, "".join(shown))
    else:
        assert timeless(shown) == snapshot(
            [
                "",
                "agent  does                                                                time",
                "lead   done (time)",
                "1 agent, 2 requests (time)",
            ]
        )


async def test_lines_go_where_stderr_goes(live, tmp_path):
    async with open_mock_provider([call("read", path="notes.md"), say("Milk.")]) as mock:
        with (tmp_path / "told").open("wb") as file:
            async with open_window({**live(mock), "stderr": file}) as window:
                assert await window.end() == 0
    assert window.raw == b"Milk.\r\n"
    told = (tmp_path / "told").read_text(encoding="utf-8").splitlines()
    assert re.fullmatch(PLAIN, told[0])


async def test_ctrl_z_takes_the_tree_away_until_it_goes_on(live):
    rest = trio.Event()
    async with open_mock_provider([[say("I look.\nIt"), until(rest), say(" is milk.")]]) as mock:
        started = live(mock)
        shell = 'set -m; "$@"; echo "stopped $?"; read line; fg >/dev/null; echo "ended $?"'
        async with open_window({**started, "command": ["bash", "-c", shell, "bash", *started["command"]]}) as window:
            await window.wait_for("It", "1 agent")
            window.type("\x1a")
            await window.wait_for("stopped 148")
            assert window.wraps
            assert [line for line in window.shown if not line.startswith("[1]")] == ["I look.", "", "stopped 148"]
            window.type("\n")
            await window.wait_for("It", "1 agent")
            rest.set()
            await window.wait_for("ended 0")
            assert await window.end() == 0
    shown = before_account(window.everything)
    assert timeless(shown[shown.index("stopped 148") :]) == snapshot(
        [
            "stopped 148",
            "",
            "It is milk.",
            "",
            "agent  does                                                                time",
            "lead   done (time)",
            "1 agent, 1 request (time)",
        ]
    )


@pytest.mark.parametrize("redirection", [">/dev/tty", "2>/dev/tty"])
async def test_a_terminal_under_two_names_is_one(redirection, live):
    """Rule: what is said stands above the tree, also if stdout and stderr are the same terminal under two names."""
    script = [[say("I look.\nIt is"), call("read", path="notes.md")], say("Milk.")]
    async with open_mock_provider(script) as mock:
        started = live(mock)
        shell = ["sh", "-c", f'exec "$@" {redirection}', "sh", *started["command"]]
        async with open_window({**started, "command": shell}) as window:
            assert await window.end() == 0
    assert timeless(before_account(window.everything)) == snapshot(
        [
            "I look.",
            "It is",
            "Milk.",
            "",
            "agent  does                                                                time",
            "lead   done (time)",
            "1 agent, 2 requests (time)",
        ]
    )


async def test_in_the_background_it_draws_nothing_until_the_end(live):
    """Rule: what is typed and shown meanwhile is another job's."""
    async with open_mock_provider([[say("I look."), call("read", path="notes.md")], say("Milk.")]) as mock:
        started = live(mock)
        shell = ["bash", "-mc", '"$@" & wait; echo the end', "bash", *started["command"]]
        async with open_window({**started, "command": shell}) as window:
            assert await window.end() == 0
    assert window.raw.count(b"1 agent, ") == 1
    assert timeless(before_account(window.everything)) == snapshot(
        [
            "I look.",
            "Milk.",
            "",
            "agent  does                                                                time",
            "lead   done (time)",
            "1 agent, 2 requests (time)",
        ]
    )
    assert window.shown[-1] == "the end"


# ---------------------------------------------------------------- what goes wrong meanwhile


async def test_failures_are_told_above_the_tree(live):
    script = [status(429, "slow down", retry_after=0), [say("Here it is"), cut()], [say("Here it is."), silent()]]
    async with open_mock_provider(script) as mock, open_window(live(mock), columns=100) as window:
        await window.wait_for("Here it is.", "begins the answer anew", "2 requests")
        assert [re.sub(r"^ +[\d.]+s", "(time)", line) for line in timeless(window.shown)] == snapshot(
            [
                "(time)  lead                   got no answer: endpoint: slow down [HTTP 429, request req_1]; it ask",
                "s to wait 0 s (wait, or lower the limit of concurrent requests)",
                "(time)  lead                   got no answer: endpoint: the answer broke off: RemoteProtocolError('",
                "peer closed connection without sending complete message body (incomplete chunked read)') (the connec",
                "tion broke in the middle of an answer)",
                "Here it is",
                "(time)  lead                   begins the answer anew",
                "Here it is.",
                "",
                "agent  does                                                                                    time",
                "lead   asks endpoint:mock (time)",
                "1 agent, 2 requests (time)",
            ]
        )


# ---------------------------------------------------------------- questions


QUESTION = "no, or no and why?"
COMMAND = calls(call("bash", command="echo made", description="make nothing"))


async def test_the_tree_makes_room_for_a_question_and_comes_back(live):
    rest = trio.Event()
    script = [[say("I run it."), *COMMAND], [until(rest), say("Done.", usage=COST)]]
    async with open_mock_provider(script) as mock, open_window(live(mock, "Go.", "--shell"), columns=200) as window:
        await window.wait_for(QUESTION)
        window.type("perhaps")
        await window.wait_for("perhaps")
        asked_at = window.shown
        window.resize(180, 24)
        window.type("\n")
        await window.wait_for(lambda: "".join(window.shown).count(QUESTION) == 2)
        window.type("yes\n")
        await window.wait_for("asks endpoint:mock", "1 agent")
        back = timeless(window.shown)
        rest.set()
        assert await window.end() == 0
    assert mask_folder(asked_at) == snapshot(
        [
            "I run it.",
            "lead asks to call bash: it runs with the rights of this program",
            "    in (folder): echo made",
            "    (make nothing)",
            "    yes, always for this agent (a), always in this project (p), no, or no and why?",
            "perhaps",
        ]
    )
    assert mask_folder(back) == snapshot(
        [
            "I run it.",
            "lead asks to call bash: it runs with the rights of this program",
            "    in (folder): echo made",
            "    (make nothing)",
            "    yes, always for this agent (a), always in this project (p), no, or no and why?",
            "perhaps",
            "    yes, always for this agent (a), always in this project (p), no, or no and why?",
            "yes",
            "",
            "agent  does                                                                                                                                              in  cached     out    time",
            "lead   asks endpoint:mock                                                                                                                             12.3k    8.0k     321 (time)",
            "1 agent, 1 request                                                                                                                                    12.3k    8.0k     321 (time)",
        ]
    )
    assert mask_folder(timeless(before_account(window.everything))) == snapshot(
        [
            "I run it.",
            "lead asks to call bash: it runs with the rights of this program",
            "    in (folder): echo made",
            "    (make nothing)",
            "    yes, always for this agent (a), always in this project (p), no, or no and why?",
            "perhaps",
            "    yes, always for this agent (a), always in this project (p), no, or no and why?",
            "yes",
            "Done.",
            "",
            "agent  does                                                                                                                                              in  cached     out    time",
            "lead   done                                                                                                                                           24.7k   16.0k     642 (time)",
            "1 agent, 2 requests                                                                                                                                   24.7k   16.0k     642 (time)",
        ]
    )


def mask_folder(lines):
    """Return lines with the place of the folder masked."""
    return [re.sub(r'in "[^"]*work":', "in (folder):", line) for line in lines]


async def test_what_others_say_during_a_question_comes_after_it(live):
    answered = trio.Event()

    def answer(request):
        about, has_result = asked(request)
        if "scone" in about:
            return say("A cake.") if has_result else COMMAND
        if "tea" in about:
            return [until(answered), status(500, "no tea")]
        return say("Done.") if has_result else TEAM

    async with open_mock_provider(answer) as mock, open_window(live(mock, "Go.", "--shell"), columns=200) as window:
        await window.wait_for(QUESTION)
        answered.set()
        await mock.wait_requests(4)
        window.type("yes\n")
        await window.wait_for("no tea")
        window.interrupt()
        assert await window.end() == 130
    shown = "\n".join(window.everything)
    assert shown.index(QUESTION) < shown.index("\nyes\n") < shown.index("no tea")


# ---------------------------------------------------------------- the end of everything


ENDINGS = {
    "while the model is asked": ([[say("So far"), silent()]], "So far"),
    "while a tool runs": (
        [calls(call("bash", command="echo $$ >pid; exec sleep 1000", description="sleep"))],
        "calls bash",
    ),
    "while a subagent works": ([TEAM, [say("So far"), silent()], [say("So far"), silent()]], "waits for 2 subagents"),
    "while an approval is asked": ([COMMAND], QUESTION),
    "while a retry is waited for": ([status(500, "no", retry_after=50)], "asks again in"),
}


@pytest.mark.parametrize(("script", "state"), ENDINGS.values(), ids=ENDINGS)
async def test_ctrl_c_ends_everything_and_leaves_the_terminal_as_it_was(script, state, live, folder):
    powers = ["--shell"] if state == QUESTION else ["--shell", "--yes"]
    async with (
        open_mock_provider(script) as mock,
        open_window(live(mock, "Go.", *powers), columns=120) as window,
    ):
        before = window.modes()
        await window.wait_for(state, lambda: state != "calls bash" or (folder / "pid").exists())
        window.interrupt()
        assert await window.end() == 130
        await mock.wait_quiet()
        assert (window.cursor[1:], window.wraps) == ((0, True), True)
        assert window.modes() == before
    shown = "\n".join(window.everything)
    assert "lead" in shown[shown.index("agent ") :]
    assert "cancelled" in shown
    assert "creche: interrupted; stopped: lead" in shown
    assert "Traceback" not in shown
    if (folder / "pid").exists():
        with pytest.raises(ProcessLookupError):
            os.kill(int((folder / "pid").read_text(encoding="utf-8")), 0)


async def test_ctrl_c_once_more_while_it_ends_does_no_harm(live):
    def answer(_request):
        stubborn = f"trap 'echo it ends >{window.path}' TERM; echo it runs >{window.path}; while :; do sleep 1000; done"
        return calls(call("bash", command=stubborn, description="do not end"))

    async with open_mock_provider(answer) as mock, open_window(live(mock, "Go.", "--shell", "--yes")) as window:
        await window.wait_for("it runs")
        window.interrupt()
        await window.wait_for("it ends")
        window.interrupt()
        assert await window.end() == 130
        assert (window.cursor[1:], window.wraps) == ((0, True), True)
    assert "Traceback" not in "\n".join(window.everything)


# ---------------------------------------------------------------- terminals that fail


@pytest.mark.parametrize("state", ["waits for 2 subagents", QUESTION])
@pytest.mark.parametrize(("ignored", "code"), [((), 129), ((signal.SIGHUP,), 1)], ids=["told", "not told"])
async def test_when_the_terminal_is_gone_everything_ends(state, ignored, code, live, tmp_path):
    script = next(script for script, shown in ENDINGS.values() if shown == state)
    async with open_mock_provider(script) as mock:
        started = live(mock, "Go.", "--shell")
        async with open_window(started, columns=120, ignored=ignored) as window:
            await window.wait_for(state)
            window.close()
            with trio.fail_after(30):
                assert await window.process.wait() == code
        await mock.wait_quiet()
    [log] = (tmp_path / "state" / "sessions").glob("*.jsonl")
    for session in load_sessions(log).values():
        check_log(session)
        assert session.records("turn/end")[-1].data.reason == "cancelled"


async def test_the_demo_ends_when_its_terminal_is_gone(demo, folder, tmp_path):
    for number in range(20_000):
        (folder / f"{number}.txt").touch()
    async with open_window(demo, ignored=[signal.SIGHUP]) as window:
        await window.wait_for("waits for")
        window.close()
        with trio.fail_after(30):
            assert await window.process.wait() == 1
    [log] = (tmp_path / "state" / "sessions").glob("*.jsonl")
    assert {session.records("turn/end")[-1].data.reason for session in load_sessions(log).values()} >= {"cancelled"}


async def test_an_answer_that_goes_elsewhere_outlives_the_terminal(live, tmp_path):
    rest = trio.Event()
    said = tmp_path / "said"
    with said.open("wb") as file:
        async with (
            open_mock_provider([[say("So far"), until(rest), say(" and on.")]]) as mock,
            open_window({**live(mock), "stdout": file}, ignored=[signal.SIGHUP]) as window,
        ):
            await window.wait_for("asks endpoint:mock")
            window.close()
            rest.set()
            with trio.fail_after(30):
                assert await window.process.wait() == 0
    assert said.read_text(encoding="utf-8") == "So far and on.\n"


@pytest.mark.parametrize("stop", ["\x13", ""], ids=["Ctrl-S", "nobody reads"])
async def test_a_terminal_that_takes_nothing_holds_up_no_agent(stop, live):
    stopped = trio.Event()
    flood = "".join([f"{number} of many lines\n" for number in range(9000)])
    script = [[say("I begin.\n"), until(stopped), say(flood), call("read", path="notes.md")], say("Done.")]
    async with open_mock_provider(script) as mock, open_window(live(mock)) as window:
        await window.wait_for("I begin.")
        window.type(stop)
        stopped.set()
        await mock.wait_requests(2)
        window.type("\x11" if stop else "")
        assert await window.end() == 0
    shown = before_account(window.everything)
    assert shown[:-4] == ["I begin.", *flood.splitlines(), "Done."]

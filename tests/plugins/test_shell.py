import contextlib
import ctypes
import gc
import os
import select
import shutil
import signal
import sys
import time
import tracemalloc

import pytest
import trio
from hypothesis import given, strategies as st

from creche import AgentSpec, FunctionModel, Plugin, call, open_host, say
from creche.errors import PluginError, ToolFailed, TurnCancelled
from creche.plugins.shell import _output, _process, _tools, shell
from creche.plugins.shell._environment import PLAIN, environment_from, is_secret
from creche.plugins.shell._output import HEAD, TAIL, Output
from creche.testing._check_code_sandbox import children
from creche.tools import Allow, Approver, ToolContext


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    return root


@pytest.fixture(autouse=True)
def nothing_left(folder):
    """Fail a test that leaves a child of ours, were it a zombie, or any process that works in its folder."""
    before = children()
    yield
    assert all(map(is_dead, living_in(folder)))
    assert children() <= before


def living_in(folder):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/cwd").startswith(str(folder)):
                found.append(int(pid))
    return found


def is_dead(pid):
    """Say whether a process that was sent a signal has ended, at the latest some seconds later."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(5000))
    finally:
        os.close(descriptor)


async def bash(root, command, *, context=None, env=None, **arguments):
    (tool,) = shell(root, ask=False, env=env).setup
    values = tool.binder.bind({"command": command, "description": "a test", **arguments})
    return await tool(**values, context=context)


async def refusal(root, command="true", **arguments):
    with pytest.raises(ToolFailed) as caught:
        await bash(root, command, **arguments)
    return str(caught.value)


def new_context():
    return ToolContext(None, registry=None, call_id="c", name="", number=1)


async def wait_for_file(path):
    """Wait until a process has written a file; the real clock, for there is nothing else that tells."""
    with trio.fail_after(10):
        while not (path.exists() and path.read_text().endswith("\n")):  # noqa: ASYNC110 - another process makes it
            await trio.sleep(0.005)
    return path.read_text().split()


# ---------------------------------------------------------------- what is given


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("echo one; echo two >&2; echo three", "one\ntwo\nthree"),
        ("printf 'no end'", "no end"),
        ("echo; echo x; echo", "\nx\n"),
        ("true", "[no output]"),
        ("", "[no output]"),
        ("exit 3", "[no output]\n[exit code 3]"),
        ("echo x; false", "x\n[exit code 1]"),
        ("kill -SEGV $$", "[no output]\n[ended by SIGSEGV]"),
        ("kill -40 $$", "[no output]\n[ended by signal 40]"),
        ("no-such-program-here 2>/dev/null", "[no output]\n[exit code 127]"),
        ("cat; echo done", "done"),
        (r"printf '\xff\xc3\xa9\0x\n'", "\ufffdé\ufffdx"),
        (r"printf '\033[1;31mred\033[0m \033]0;title\007text\033]8;;http://x\033\\link'", "red textlink"),
        (r"printf '10%%\r20%%\r\nnext\r\n'", "10%\n20%\nnext"),
        ("test -t 0 || test -t 1 || echo none; exec 2>/dev/null; : </dev/tty || echo none", "none\nnone"),
        ("[[ a == a ]] && echo bash", "bash"),
    ],
)
async def test_a_command_gives_what_it_prints_and_how_it_ended(folder, command, answer):
    assert await bash(folder, command) == answer


async def test_every_command_starts_anew_in_the_folder(folder):
    (folder / "sub").mkdir()
    (folder / "link").symlink_to("sub")
    assert await bash(folder, "pwd; cd sub; x=1; export y=2") == str(folder)
    assert await bash(folder, "pwd; echo $x$y") == f"{folder}\n"
    for cwd in ("sub", "link", str(folder / "sub"), '"sub"'):
        assert await bash(folder, "pwd", cwd=cwd) == f"{folder}/sub"


async def test_a_command_starts_in_no_folder_outside(folder):
    (folder / "up").symlink_to("..")
    (folder / "file").write_text("")
    for cwd in ("..", "up", "/", "up/other"):
        assert await refusal(folder, cwd=cwd) == f'"{cwd}" is outside of the folder "{folder}"; give a path inside it'
    for cwd in ("file", "gone"):
        assert await refusal(folder, cwd=cwd) == f'"{cwd}" is not a folder'
    assert "NUL" in await refusal(folder, cwd="a\0b")


@pytest.mark.parametrize("seconds", [0, -1, 601])
async def test_a_time_that_makes_no_sense_is_refused(folder, seconds):
    assert await refusal(folder, timeout=seconds) == f"timeout is {seconds}, and it can be from 1 to 600 seconds"


async def test_what_cannot_be_started_is_one_sentence(folder):
    assert await refusal(folder, "a\0b") == "the command has a NUL character in it, which no shell takes"
    assert await refusal(folder, "\ud800") == "the command has half of a surrogate pair in it, which is no character"
    assert await refusal(folder, ":" * (4 << 20)) == "the command cannot be started: Argument list too long"


async def test_a_folder_that_is_gone_is_one_sentence(folder):
    (tool,) = shell(folder, ask=False).setup
    folder.rmdir()
    with pytest.raises(ToolFailed) as caught:
        await tool("true", "a test")
    assert str(caught.value) == '"." is not a folder'


# ---------------------------------------------------------------- a flood


async def test_of_a_flood_the_beginning_and_the_end_are_given(folder):
    text = await bash(folder, "seq 1 100000; exit 4")
    lines = text.split("\n")
    assert lines[:3] == ["1", "2", "3"]
    assert lines[-2:] == ["100000", "[exit code 4]"]
    (missing,) = [line for line in lines[:-1] if line.startswith("[")]
    at = lines.index(missing)
    left = sum(len(str(number)) + 1 for number in range(int(lines[at - 1]) + 1, int(lines[at + 1])))
    assert missing == f"[{left} of 588895 bytes left out here]"
    assert HEAD + TAIL - 2000 < len(text) < HEAD + TAIL + 100


async def test_a_flood_is_never_in_memory_whole(folder):
    size = 64 << 20
    tracemalloc.start()
    try:
        text = await bash(folder, f"head -c {size} /dev/zero | tr '\\0' x")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert text == f"{'x' * HEAD}\n[{size - HEAD - TAIL} of {size} bytes left out here]\n{'x' * TAIL}"
    assert peak < 4 << 20


async def test_a_flood_without_an_end_is_ended(folder):
    text = await bash(folder, "yes", timeout=1)
    assert text.startswith("y\ny\n")
    assert text.endswith("\ny\n[its 1 seconds were up, and it was ended with all that it had started]")


@given(st.lists(st.binary(max_size=20), max_size=40))
def test_output_is_kept_whole_until_it_is_too_much(chunks):
    """Rule: nothing is lost up to the sum of both parts; beyond it the numbers and the ends are right."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_output, "HEAD", 50)
        patch.setattr(_output, "TAIL", 70)
        output = Output()
        for chunk in chunks:
            output.add(chunk)
        whole = b"".join(chunks)
        kept = len(output._head) + min(len(output._tail), 70)
        assert kept == min(len(whole), 120)
        assert whole.startswith(bytes(output._head))
        assert whole.endswith(bytes(output._tail))
        assert len(output._tail) <= 140 + 20
        text = output.text()
        assert text == _output._plain(whole) if len(whole) <= 120 else f"of {len(whole)} bytes left out here]" in text


def test_a_cut_is_at_a_line_end_and_never_within_a_character(monkeypatch):
    monkeypatch.setattr(_output, "HEAD", 10)
    monkeypatch.setattr(_output, "TAIL", 10)
    output = Output()
    output.add("é1\né2\né3\né4\né5\né6\né7\né8\né9\n".encode())
    assert output.text() == "é1\né2\n[20 of 36 bytes left out here]\né8\né9"


@pytest.mark.parametrize("begin", ["\x1b]", "\x1bP", "\x1bX", "\x1b^", "\x1b_"])
@pytest.mark.parametrize(
    ("rest", "shown"),
    [
        ("0;title", "0;title"),
        ("0;title 10%\rall of it\nnext", "0;title 10%\nall of it\nnext"),
        ("0;title\x1b[31mred\x1b[0m", "0;titlered"),
        ("0;title\x1b]0;title\x1b\\text", "0;titletext"),
        ("0;title\x1b\\text", "text"),
    ],
)
def test_a_sequence_that_never_ends_takes_nothing_with_it(begin, rest, shown):
    """Rule: a string is left out if its end is in its line; of one without an end only the beginning is."""
    assert _output._plain(f"{begin}{rest}".encode()) == shown


@pytest.mark.parametrize("piece", ["\x1b]", "\x1bP", "\x1b[", "\x1b[0;", "\x1b ", "\x1b]x\n"])
def test_many_sequences_that_never_end_take_no_longer_than_others(piece):
    raw = (piece * HEAD + "0 " * HEAD).encode()
    before = time.process_time()
    _output._plain(raw)
    assert time.process_time() - before < 1


@given(st.text("\x1b[]0;m\x07\\PX\n\ra é\x9b", max_size=30))
def test_what_is_shown_has_no_control_characters(text):
    shown = _output._plain(text.encode())
    assert not any(char in shown for char in "\x1b\x07\r")


# ---------------------------------------------------------------- how it ends


async def test_a_process_in_the_background_does_not_hold_the_call(folder):
    before = time.monotonic()
    assert await bash(folder, "echo before; sleep 100 & echo $! >pid; echo after") == "before\nafter"
    assert time.monotonic() - before < 5
    assert is_dead(int((folder / "pid").read_text()))


STUBBORN = (
    "trap '' TERM; (trap '' TERM; while :; do sleep 0.1; done) & echo $! >&3; echo started; while :; do sleep 0.1; done"
)


async def test_when_its_time_is_up_all_that_was_started_is_ended(folder):
    before = time.monotonic()
    text = await bash(folder, f"exec 3>pids; echo $$ >&3; {STUBBORN}", timeout=1)
    assert text == "started\n[its 1 seconds were up, and it was ended with all that it had started]"
    assert 1 <= time.monotonic() - before < 5
    assert all(is_dead(int(pid)) for pid in (folder / "pids").read_text().split())


async def test_a_command_that_cleans_up_is_given_a_moment(folder):
    command = "trap 'echo cleaned; exit' TERM; echo started; while :; do sleep 0.01; done"
    text = await bash(folder, command, timeout=1)
    assert text.startswith("started\n")
    assert "\ncleaned\n[its 1 seconds were up" in text


@pytest.mark.parametrize("command", ["sleep 100", STUBBORN, "sleep 100 & sleep 100 & wait", "exec >&-; sleep 100"])
async def test_a_cancelled_call_ends_all_that_was_started(folder, command):
    """Rule: cancellation passes through, is quick, and leaves no process, not even one that ignores SIGTERM."""
    context, script = new_context(), f"exec 3>pids; echo printed; echo $$ >&3; {command}"

    began: list[float] = []

    async def cancel():
        await wait_for_file(folder / "pids")
        began.append(trio.current_time())
        scope.cancel()

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel)
            await bash(folder, script, context=context)
    assert scope.cancelled_caught
    assert trio.current_time() - began[0] < 1
    assert context.said.startswith("printed")
    assert all(is_dead(int(pid)) for pid in (folder / "pids").read_text().split())


async def test_a_call_cancelled_before_it_begins_starts_nothing(folder):
    with trio.CancelScope() as scope:
        scope.cancel()
        await bash(folder, "touch begun")
    assert scope.cancelled_caught
    assert os.listdir(folder) == []


async def test_a_call_cancelled_at_any_moment_leaves_nothing(folder):
    for delay in range(0, 40, 4):
        with trio.move_on_after(delay / 1000):
            await bash(folder, "sleep 0.01 & for i in 1 2 3; do echo $i; sleep 0.005; done; sleep 100")
        assert all(map(is_dead, living_in(folder)))


async def test_calls_at_once_do_not_disturb_each_other(folder):
    answers = {}

    async def run(number):
        answers[number] = await bash(folder, f"sleep 100 & echo {number}; exit {number}")

    async with trio.open_nursery() as nursery:
        for number in range(1, 9):
            nursery.start_soon(run, number)
    assert answers == {number: f"{number}\n[exit code {number}]" for number in range(1, 9)}


async def test_orphans_that_are_left_to_this_program_are_reaped(folder):
    """Rule: the first program of a container gets them, as a subreaper does, and nobody else can reap them."""
    prctl, subreaper = ctypes.CDLL(None).prctl, 36
    prctl(subreaper, 1, 0, 0, 0)
    try:
        assert await bash(folder, "sleep 100 & sleep 100 & (sleep 100 & echo x)") == "x"
    finally:
        prctl(subreaper, 0, 0, 0, 0)


DAEMON = """
import os
os.setsid()
open("pid", "w").write(f"{os.getpid()}\\n")
while True:
    print("x" * 4096)
"""


async def test_what_has_left_the_group_is_not_waited_for(folder):
    """A daemon is out of reach; the call ends all the same, however much the daemon prints."""
    (folder / "daemon.py").write_text(DAEMON)
    command = f"{sys.executable} daemon.py 2>error & until test -s pid; do sleep 0.01; done; echo done"
    await bash(folder, command)
    (pid,) = await wait_for_file(folder / "pid")
    with contextlib.suppress(ProcessLookupError):  # what it prints to has nobody who reads
        os.kill(int(pid), signal.SIGKILL)
    assert is_dead(int(pid))


def test_a_drain_of_what_never_ends_ends(monkeypatch):
    class Pipe:
        def fileno(self):
            return 7

    monkeypatch.setattr(os, "read", lambda _, count: b"x" * min(count, 4096))
    output = Output()
    _process._drain(Pipe(), output)
    assert output._size == 1 << 20


async def test_nothing_is_left_open(folder):
    before = sorted(os.listdir("/proc/self/fd"))
    for command in ("true", "exit 1", "sleep 100 &"):
        await bash(folder, command)
    with trio.move_on_after(0.02):
        await bash(folder, "sleep 100")
    await refusal(folder, ":" * (4 << 20))
    gc.collect()
    assert sorted(os.listdir("/proc/self/fd")) == before


# ---------------------------------------------------------------- the environment


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY",
        "GH_TOKEN",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "PGPASSWORD",
        "MY_SECRET_THING",
        "DB_PASSWORD",
        "MYSQL_PWD",
        "openai_api_key",
        "TOKEN",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GITHUB_PAT",
        "SSHPASS",
        "SMTP_PASS",
        "APIKEY",
    ],
)
def test_a_name_that_looks_like_a_secret_is_one(name):
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "HOME",
        "PWD",
        "OLDPWD",
        "TOKENIZERS_PARALLELISM",
        "KEYBOARD",
        "SSH_AUTH_SOCK",
        "COMPASS",
        "PATTERN",
        "LANG",
        "MONKEY",
    ],
)
def test_another_name_is_none(name):
    assert not is_secret(name)


async def test_a_command_has_the_environment_without_secrets_and_pagers(folder, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "s3cret")
    monkeypatch.setenv("SOMETHING", "else")
    monkeypatch.setenv("PAGER", "less")
    assert await bash(folder, "echo $SOME_API_KEY$SOMETHING $PAGER $GIT_PAGER $TERM $NO_COLOR") == "else cat cat dumb 1"
    assert environment_from({"A": "1", "A_KEY": "2", "TERM": "xterm"}) == {**PLAIN, "A": "1"}


async def test_an_environment_can_be_given_exactly(folder, monkeypatch):
    monkeypatch.setenv("SOMETHING", "else")
    env = {"PATH": os.environ["PATH"], "MY_KEY": "yes", "TERM": "xterm"}
    assert await bash(folder, "echo $SOMETHING$MY_KEY $TERM $PAGER", env=env) == "yes xterm cat"


# ---------------------------------------------------------------- the plugin


def test_the_plugin_brings_one_tool(folder):
    (tool,) = shell(folder, ask=False).setup
    assert tool.name == "bash"
    assert not tool.parallel
    assert tool.guidance
    assert "context" not in tool.parameters
    assert f"{_tools.MOST_SECONDS} at most" in tool.parameters
    assert "30 kB" in tool.description
    assert HEAD + TAIL == 30_000


def test_a_plugin_of_no_folder_is_an_error(folder):
    (folder / "a").write_text("")
    for root in (folder / "a", folder / "gone"):
        with pytest.raises(PluginError) as caught:
            shell(root)
        assert str(caught.value) == f'shell: "{root}" is not a folder'


def test_a_system_without_process_groups_is_an_error(folder, monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(PluginError, match=r"^shell: Windows has no process groups"):
        shell(folder)


async def test_without_bash_it_is_sh(folder, monkeypatch):
    real = shutil.which("sh")
    monkeypatch.setattr(shutil, "which", lambda name: real if name == "sh" else None)
    assert await bash(folder, "echo $0") == real
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(PluginError) as caught:
        shell(folder)
    assert str(caught.value) == "shell: there is neither bash nor sh on the PATH"


async def test_what_a_cancelled_command_has_printed_is_in_the_log(folder):
    def answer(_):
        return call("bash", command="echo printed; : >begun; sleep 100", description="wait")

    async with (
        open_host(model=FunctionModel(answer), plugins=[shell(folder, ask=False)]) as host,
        host.open_agent(AgentSpec("lead")) as lead,
    ):
        delivery = lead.send("Go.")
        with trio.fail_after(10):
            while not (folder / "begun").exists():  # noqa: ASYNC110 - another process makes it
                await trio.sleep(0.005)
        lead.cancel("enough")
        with pytest.raises(TurnCancelled):
            await delivery.reply()
        (result,) = lead.session.records("tool/result")
        assert result.data.code == "cancelled"
        assert "printed" in result.data.message.text


# ---------------------------------------------------------------- approvals


@pytest.mark.parametrize(
    ("arguments", "subject"),
    [
        ({"command": "echo hi"}, 'in "{root}": echo hi'),
        ({"command": "echo hi", "cwd": "."}, 'in "{root}": echo hi'),
        ({"command": "echo hi", "cwd": "./sub"}, 'in "{root}/sub": echo hi'),
        ({"command": "echo hi", "cwd": "link"}, 'in "{root}/sub": echo hi'),
    ],
)
async def test_a_command_is_asked_for_and_allowed_by_what_it_says(folder, arguments, subject):
    """Rule: what is allowed for longer is that very command in that very folder, whatever it is said to be for, and
    however the folder is written."""
    asked: list[str] = []

    async def allow(request):
        asked.append(request.subject)
        return Allow("agent")

    (folder / "sub").mkdir(exist_ok=True)
    (folder / "link").symlink_to("sub")
    calls = iter([call("bash", description=why, **arguments) for why in ("greet", "greet once more")])
    model = FunctionModel(lambda request: next(calls, None) or say(request.last_tool_text))
    plugins = [shell(folder), Plugin("boss", setup=[Approver(allow)])]
    async with open_host(model=model, plugins=plugins) as host, host.open_agent(AgentSpec("lead")) as lead:
        assert (await lead.ask("Go.")).text == "hi"
    assert asked == [subject.format(root=folder)]


async def test_where_nobody_can_be_asked_nothing_runs(folder):
    calls = iter([call("bash", command="touch made", description="make")])
    model = FunctionModel(lambda request: next(calls, None) or say(request.last_tool_text))
    async with open_host(model=model, plugins=[shell(folder)]) as host, host.open_agent(AgentSpec("lead")) as lead:
        assert "nobody is there who could give it" in (await lead.ask("Go.")).text
    assert not (folder / "made").exists()

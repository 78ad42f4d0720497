"""Programs in Monty: the contract of the seam, and what is Monty's own."""

import argparse
import ast
import builtins
import dis
import inspect
import io
import json
import os
import signal
import subprocess
import sys
import time
import tokenize
import typing
from pathlib import Path

import pytest
import trio

from creche.codemode import CodeLimits, MontyRuntime, Program
from creche.codemode._monty._keeping import keep
from creche.codemode._monty._lines import find_starts
from creche.codemode._monty._source import wrap
from creche.errors import InternalError, PluginError, ToolError
from creche.testing import check_code_runtime
from creche.testing._check_code_sandbox import children

monty = pytest.importorskip("pydantic_monty")


def program(source, *, call=None, emit=None, **limits):
    async def echo(name, arguments):
        await trio.lowlevel.checkpoint()
        return arguments

    return Program(
        source=source,
        tools=frozenset({"echo"}),
        call=call or echo,
        emit=emit or (lambda text: None),
        limits=CodeLimits(**limits),
    )


def workers():
    """Return our children that are workers of Monty."""
    found = set()
    for process in children():
        try:
            command = Path(f"/proc/{process}/cmdline").read_bytes()
        except OSError:
            continue
        if b"subprocess" in command and b"monty" in command:
            found.add(process)
    return found


def is_alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def until_dead(*processes):
    with trio.fail_after(5):
        for process in processes:
            while is_alive(process):  # noqa: ASYNC110 - it need not be a child of ours, so nobody tells us
                await trio.sleep(0.01)


async def test_monty_keeps_the_contract_of_a_code_runtime():
    await check_code_runtime(MontyRuntime())


async def test_a_program_has_a_process_of_its_own_which_ends_with_it():
    seen = []

    async def look(name, arguments):
        await trio.lowlevel.checkpoint()
        seen.append(workers())
        return "null"

    async with MontyRuntime().serve() as run:
        for _ in range(2):
            await run(program("await tools.echo()", call=look))
            assert not any(is_alive(process) for process in workers() & seen[-1])
    assert not seen[0] & seen[1]
    assert not workers()


async def test_sleeping_programs_sleep_together():
    """Rule: sleep is trio's, so it takes no thread and can be cancelled."""
    source = "import asyncio\nreturn await asyncio.gather(asyncio.sleep(0.02, 'a'), asyncio.sleep(0.01, 'b'))"
    async with MontyRuntime().serve() as run:
        before = trio.current_time()
        assert json.loads((await run(program(source))).value) == ["a", "b"]
        assert (await run(program("import time\ntime.sleep(0.01)\ntime.sleep(-0.0)\nreturn 1"))).value == "1"
        assert trio.current_time() - before >= 0.03
        assert (await run(program("import asyncio\nreturn await asyncio.sleep(delay=0.001, result=2)"))).value == "2"
        with trio.CancelScope() as scope:
            source = "import time\nprint('now')\ntime.sleep(3600)"
            await run(program(source, emit=lambda _: scope.cancel()))
        assert scope.cancelled_caught


async def test_a_call_is_made_before_another_one_has_returned_that_was_made_with_it():
    """Rule: what one branch of a gather has is worked on while another one waits."""
    first = trio.Event()

    async def call(name, arguments):
        if arguments == '{"n": 1}':
            await first.wait()
        elif arguments == '{"n": 3}':
            first.set()
        await trio.lowlevel.checkpoint()
        return arguments

    source = """\
import asyncio
async def two():
    await tools.echo(n=2)
    return await tools.echo(n=3)
return await asyncio.gather(tools.echo(n=1), two())
"""
    async with MontyRuntime().serve() as run:
        end = await run(program(source, call=call))
    assert json.loads(end.value) == [{"n": 1}, {"n": 3}]


async def test_a_worker_that_ends_by_itself_is_killed_and_one_that_does_not_keep_its_time_is_a_timeout():
    def strike(number):
        def emit(text):
            for process in workers():
                os.kill(process, number)

        return emit

    async with MontyRuntime().serve() as run:
        end = await run(program("print('now')\nwhile True:\n    pass", emit=strike(signal.SIGKILL)))
        assert (end.failure, end.value) == ("killed", None)
        assert end.message.startswith("its process ended: ")
        end = await run(program("print('now')\nwhile True:\n    pass", emit=strike(signal.SIGSTOP), seconds=0.2))
        assert (end.failure, end.message) == ("timeout", "it computed for more than 0.2 s and was killed")
        assert (await run(program("return 1"))).value == "1"


async def test_a_worker_that_ends_while_its_program_waits_ends_the_program_at_once():
    """Rule: nobody waits for a call, or sleeps, for the sake of a process that is gone."""

    async def call(name, arguments):
        began.set()
        await trio.sleep_forever()

    async with MontyRuntime().serve() as run:
        for source in ("await tools.echo()", "import time\nprint('now')\ntime.sleep(1000)"):
            began, ends = trio.Event(), []

            async def keep(source=source, began=began, ends=ends):
                ends.append(await run(program(source, call=call, emit=lambda _: began.set())))

            with trio.fail_after(10):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(keep)
                    await began.wait()
                    for process in workers():
                        os.kill(process, signal.SIGKILL)
            [end] = ends
            assert end.failure == "killed"
            assert end.message.startswith("its process ended: ")
        assert (await run(program("return 1"))).value == "1"


@pytest.mark.parametrize("has_handles", [True, False])
async def test_what_still_runs_when_serving_ends_is_killed(monkeypatch, has_handles):
    """Rule: it ends at once, also where the kernel does not tell of processes that end.

    A call that takes longer is waited for by who runs the program, and not by who leaves the runtime.
    """
    if not has_handles:
        monkeypatch.delattr(os, "pidfd_open")
    began, ends, left = [trio.Event() for _ in range(3)], [], trio.Event()

    async def call(name, arguments):
        began[0].set()
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await left.wait()

    async def keep(number, source):
        ends.append(await run(program(source, call=call, emit=lambda _: began[number].set())))

    others = children()
    sources = (
        "await tools.echo()",
        "print('now')\nwhile True:\n    pass",
        "import time\nprint('now')\ntime.sleep(1000)",
    )
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            async with MontyRuntime().serve() as run:
                for number, source in enumerate(sources):
                    nursery.start_soon(keep, number, source)
                for event in began:
                    await event.wait()
                nursery.start_soon(keep, 0, "return 1")
                await trio.lowlevel.checkpoint()  # until it is about to begin
            assert children() <= others
            left.set()
    ends.append(await run(program("return 1")))
    assert [(end.failure, end.message) for end in ends] == [
        ("killed", "the runtime 'monty' is not served any more")
    ] * 5


async def test_arguments_that_are_too_long_raise_and_those_of_answered_calls_do_not_count():
    """Rule: 4 MiB a call, 16 MiB in all calls without an answer."""
    sentence = "the arguments of this call, or of all calls that are on their way, are too long"
    edge = 4 * 1024 * 1024 - len('{"a": ""}')
    source = """\
import asyncio
async def ask(size):
    try:
        await tools.echo(a="x" * size)
    except ToolCallError as error:
        return str(error)
first = await asyncio.gather(*[ask(EDGE) for _ in range(5)])
return [await ask(EDGE), await ask(EDGE + 1), await asyncio.gather(*[ask(EDGE) for _ in range(4)]), first]
"""
    asked = []

    async def call(name, arguments):
        asked.append(len(arguments))
        await trio.lowlevel.checkpoint()
        return "null"

    async with MontyRuntime().serve() as run:
        end = await run(program(source.replace("EDGE", str(edge)), call=call))
    assert json.loads(end.value) == [None, sentence, [None] * 4, [None] * 4 + [sentence]]
    assert asked == [4 * 1024 * 1024] * 9


async def test_arguments_of_calls_over_the_limit_do_not_count():
    source = """\
for _ in range(6):
    try:
        await tools.echo(a="x" * 4_000_000)
    except ToolCallError as error:
        text = str(error)
return text
"""
    async with MontyRuntime().serve() as run:
        end = await run(program(source, calls=1))
    assert end.value == '"a program may call tools 1 times, and this one has"'


async def test_a_problem_that_a_program_makes_up_is_not_told_at_any_length():
    source = """\
global __json__
class Own:
    def dumps(self, value, **options):
        raise ValueError("x" * 1_000_000)
__json__ = Own()
return 1
"""
    async with MontyRuntime().serve() as run:
        end = await run(program(source))
    assert end.failure == "invalid_output"
    assert end.message == f"what it returned is no JSON: {'x' * 10_000}..."


async def test_errors_name_the_line_of_the_program_and_of_no_other():
    source = "def inner():\n    '''\nof no\n    use\n'''\n    return {}['x']\n\nreturn inner()"
    async with MontyRuntime().serve() as run:
        assert (await run(program(source))).message == "KeyError: x (line 6)"
        assert (await run(program("x = 1\r\nreturn x +\r\n"))).message.endswith("(line 2)")
        end = await run(program("\nclass A(B):\n    pass"))
        assert end.message.startswith("NotImplementedError: The monty syntax parser does not yet support class")
        assert end.message.endswith("(line 2)")
        missing = "AttributeError: 'Tools' object has no attribute 'ecko'; there are: echo (line 1)"
        assert (await run(program("tools.ecko(a=1)"))).message == missing


async def test_a_program_may_break_what_stands_around_it_and_harms_itself_alone():
    async with MontyRuntime().serve() as run:
        for source, failure in {
            "global tools\ntools = 1\nawait tools.echo()": "exception",
            "await __call_tool__()": "exception",
            "await __call_tool__('other', '{}')": "exception",
            "await __call_tool__('echo', '[]')": "exception",
            "await __call_tool__('echo', '{')": "exception",
            "await missing('echo')": "exception",
            "return 10 ** 4500": "invalid_output",
            "while True:\n    try:\n        missing\n    except NameError:\n        pass": "exception",
            "import os\nreturn os.urandom(1)": "exception",
        }.items():
            end = await run(program(source))
            assert end.failure == failure, source
        assert (await run(program("return 1"))).value == "1"


async def test_a_call_that_raises_what_it_may_not_is_a_bug_and_says_so():
    async def broken(name, arguments):
        await trio.lowlevel.checkpoint()
        raise ValueError("mine")

    async with MontyRuntime().serve() as run:
        with pytest.raises(InternalError, match="a task of a program in Monty crashed: ValueError"):
            await run(program("await tools.echo()", call=broken))
        assert (await run(program("return 1"))).value == "1"


async def test_an_emit_that_raises_what_it_may_not_ends_the_program():
    def broken(text):
        raise ValueError("mine")

    async with MontyRuntime().serve() as run:
        with pytest.raises(ValueError, match="mine"):
            await run(program("print('now')\nwhile True:\n    pass", emit=broken))
        assert (await run(program("return 1"))).value == "1"


async def test_a_tool_error_is_caught_as_what_it_is_and_as_nothing_else():
    async def fails(name, arguments):
        await trio.lowlevel.checkpoint()
        raise ToolError("is not there")

    source = """\
try:
    await tools.echo()
except (ValueError, RuntimeError, TypeError, OSError, LookupError):
    return "not this"
except ToolCallError as error:
    return str(error)
"""
    async with MontyRuntime().serve() as run:
        assert (await run(program(source, call=fails))).value == '"is not there"'


@pytest.mark.parametrize(
    ("source", "starts"),
    [
        ("", []),
        ("\n# a\n   # b\n  ", []),
        ("x = 1\n\ny = 2", [1, 3]),
        ("if x:\n\ty = 1\nelse: pass", [1, 2, 3]),
        ("f(1,\n2)\ng({\n'a': [\n]})\nh()", [1, 3, 6]),
        ("x = 1 + \\\n2\ny = 1", [1, 3]),
        ("x = 1\n\\\ny = 2", [1, 2]),
        ("x = '''\ny\n'\"\\'''''' + \"a\\\nb\"\nz", [1, 5]),
        ("x = r'\\'' '\\\\'\ny", [1, 2]),
        ("'' \"\"\nRb'''\n''' u'a' bR'''\n'''\nx", [1, 2, 5]),
        ("return 1 if'\"'else\"'\"\nx", [1, 2]),
        ("x)]}\ny", [1, 2]),
        # in the braces of f-strings there is code
        ("f'{x}' f\"{x!r:>{y}}\" F'''{x\n}{{'''\nx", [1, 3]),
        ("f\"{'''\na\n'''}\"\nx", [1, 4]),
        ("f'{'a' + f'{'b'}'}'\nx", [1, 2]),
        ("f'{x:#x}{x:\"^9}{ {1: '}'}[1] }'\nx", [1, 2]),
        ("fr'\\{x}\\'\\N{DASH}' rf'''\\{x}'\\''''\nx", [1, 2]),
        ("f'a\\\nb{x # }\n}'\nx", [1, 4]),
        ("f'''{x:\n}\n}'''\nx", [1, 4]),
        # what is no Python, or not all of it
        ("  x\n y", None),
        ("'''", None),
        ("'a\n'", None),
        ("f'{x", None),
        ("f'{x:", None),
        ("f'a\n'", None),
        ("f'''a", None),
        ("f(", None),
        ("f'{(}'", None),
        ("\\", [1]),
    ],
)
def test_statements_start_where_nothing_is_continued(source, starts):
    assert find_starts(source) == (None if starts is None else frozenset(starts))


@pytest.mark.parametrize("module", [argparse, ast, dis, inspect, tokenize, typing], ids=lambda module: module.__name__)
def test_statements_start_where_the_tokenizer_of_python_says(module):
    source, found, fresh = inspect.getsource(module), set(), True
    between = {tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NEWLINE:
            fresh = True
        elif fresh and token.type not in between:
            found.add(token.start[0])
            fresh = False
    assert find_starts(source) == found


@pytest.mark.parametrize("before", ["", "return [", "f'{", 'f"'])
@pytest.mark.parametrize(
    "piece",
    [
        "$",
        "? ",
        "\\",
        "\\\n",
        "é,",
        "x\n",
        "(",
        "()",
        "'",
        '"',
        "'''",
        "f'{",
        "f'{x:",
        "f'{{",
        "f'\\",
        ":",
        "a.",
        "#\n",
    ],
)
def test_looking_for_statements_takes_no_longer_than_the_source_is_long(piece, before):
    """Rule: linear; a line of 160 kB, which takes the tokenizer of Python 3.12 minutes, takes milliseconds."""
    source = before + piece * (100_000 // len(piece))
    began = time.perf_counter()
    find_starts(source)
    assert time.perf_counter() - began < 2


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("return f\"{'''\na\n'''}\"", "\na\n"),
        ("return f'{'''\na'''}'", "\na"),
        ("x = 2\nreturn f'{x:>{\n4\n}}'", "   2"),
        ("x = 1\n\\\nreturn x", 1),
    ],
)
async def test_what_is_continued_is_left_as_it_is(source, value):
    async with MontyRuntime().serve() as run:
        assert json.loads((await run(program(source))).value) == value


@pytest.mark.parametrize(
    "source",
    ["", "x = 1", "# a\n\nx = 1  # b\n", "if x:\n\ty = '''\n1\n'''\nelse: pass", "f(1,\n2)\ng()", "x = 1 + \\\n2\n"],
)
def test_a_wrapped_program_has_its_lines_where_they_were(source):
    wrapped = wrap(source)
    inside = wrapped.source.split("\n")[1:]
    for number, line in enumerate(source.split("\n")):
        assert inside[number].strip() == line.strip()
    compile(wrapped.source.rpartition("\n")[0], "program", "exec")


async def test_without_the_package_there_is_a_sentence(monkeypatch):
    find = builtins.__import__

    def missing(name, *args, **kwargs):
        if name == "pydantic_monty":
            raise ModuleNotFoundError("no", name=name)
        return find(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(PluginError) as caught:
        async with MontyRuntime().serve():
            pass
    assert str(caught.value) == "code mode in Monty needs 'pydantic_monty'; run: pip install 'creche[code]'"


async def test_without_its_program_there_is_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setenv("MONTY_BIN", str(tmp_path / "nothing"))
    with pytest.raises(PluginError, match=r"the workers of Monty do not start: .* pip install 'creche"):
        async with MontyRuntime().serve():
            pass


async def test_a_worker_that_does_not_start_is_told(monkeypatch, tmp_path):
    binary = tmp_path / "monty"
    binary.symlink_to(Path(sys.executable).with_name("monty"))
    monkeypatch.setenv("MONTY_BIN", str(binary))
    async with MontyRuntime().serve() as run:
        assert (await run(program("return 1"))).value == "1"
        binary.unlink()
        end = await run(program("return 1"))
    assert end.failure == "killed"
    assert end.message.startswith("no process could be started: ")


async def test_json_from_a_program_is_nested_no_deeper_than_readers_can_read():
    source = "nested = []\nfor _ in range({}):\n    nested = [nested]\nreturn {}"
    async with MontyRuntime().serve() as run:
        assert (await run(program(source.format(199, "nested")))).value == "[" * 200 + "]" * 200
        end = await run(program(source.format(200, "nested")))
        assert end.failure == "invalid_output"
        assert end.message == "what it returned is no JSON, or nested more than 200 deep"
        end = await run(program(source.format(200, "await tools.echo(a=nested)")))
        assert end.failure == "exception"
        assert end.message == "ValueError: the arguments of a tool are JSON, nested no more than 200 deep (line 4)"
        flat = f"text = {'[{' * 1000!r}\nreturn [text] * 2 + [[] for _ in range(1000)]"
        assert json.loads((await run(program(flat))).value)[0] == "[{" * 1000


async def test_a_keeper_kills_who_is_left_and_nobody_else():
    idle = [sys.executable, "-c", "input()"]
    left, gone = [await trio.lowlevel.open_process(idle, stdin=subprocess.PIPE) for _ in range(2)]
    read, write = os.pipe()
    for order in (f"+{left.pid}\n+{gone.pid}\n-", f"{gone.pid}\n"):
        os.write(write, order.encode())
    os.close(write)
    await trio.to_thread.run_sync(keep, read, os.getpid())
    os.close(read)
    assert await left.wait() == -signal.SIGKILL
    assert gone.poll() is None
    gone.kill()
    await gone.wait()


async def test_a_keeper_does_not_wait_for_a_pipe_that_a_fork_holds_open():
    parent, left = [
        await trio.lowlevel.open_process([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(2)
    ]
    read, write = os.pipe()
    os.write(write, f"+{left.pid}\n".encode())
    parent.kill()
    await trio.to_thread.run_sync(keep, read, parent.pid)
    os.close(read)
    os.close(write)
    assert await left.wait() == -signal.SIGKILL
    await parent.wait()


async def test_without_its_keeper_no_program_begins():
    others = children()
    async with MontyRuntime().serve() as run:
        (keeper,) = (process for process in children() - others if process not in workers())
        os.kill(keeper, signal.SIGKILL)
        await until_dead(keeper)
        end = await run(program("return 1"))
    assert end.failure == "killed"
    assert end.message == "the process that ends the others is gone; serve the runtime again"


HOST = """
import os, sys, trio
from creche.codemode import CodeLimits, Program
from creche.codemode import MontyRuntime
from creche.testing._check_code_sandbox import children

def emit(text):
    os.write(1, " ".join(map(str, children())).encode())
    if sys.argv[1] == "exit":
        os._exit(0)

async def main():
    program = Program(
        source="print('now')\\nwhile True:\\n    try:\\n        pass\\n    except BaseException:\\n        pass",
        tools=frozenset(),
        call=None,
        emit=emit,
        limits=CodeLimits(seconds=60.0),
    )
    async with MontyRuntime().serve() as run:
        await run(program)

trio.run(main)
"""


@pytest.mark.parametrize("way", ["exit", "kill"])
async def test_no_worker_outlives_its_host(way):
    """Rule: no process outlives this one, be it os._exit or kill -9, also while a program computes."""
    host = await trio.lowlevel.open_process([sys.executable, "-c", HOST, way], stdout=subprocess.PIPE)
    assert host.stdout is not None
    with trio.fail_after(30):
        left = [int(process) for process in (await host.stdout.receive_some()).split()]
    if way == "kill":
        host.kill()
    await host.wait()
    await host.stdout.aclose()
    assert len(left) >= 2, "the keeper and the worker"
    await until_dead(*left)

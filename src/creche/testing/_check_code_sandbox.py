"""The checks of a code runtime that are about walls: between programs, around them, and when they are gone."""

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import trio

from creche.codemode import CodeLimits, CodeRuntime

from ._check_code_limits import PROMPT, TRIES
from ._code_bench import Bench, Outcome, Tools

_REACHES = {
    "a file": "with open({path!r}) as file:\n        print(file.read())",
    "a file by pathlib": "from pathlib import Path\n    print(Path({path!r}).read_text())",
    "a file by its process": "with open('/proc/{pid}/root' + {path!r}) as file:\n        print(file.read())",
    "a file by a shell": "import subprocess\n    print(subprocess.run(['cat', {path!r}], capture_output=True).stdout)",
    "a folder": "import os\n    print(os.listdir({folder!r}))",
    "a variable": "import os\n    print(os.environ[{variable!r}])",
    "a variable by getenv": "import os\n    print(os.getenv({variable!r}))",
    "its environment": "with open('/proc/self/environ') as file:\n        print(file.read())",
}
_AT_WORK = (
    "print('now')\nwhile True:\n    pass",
    "await tools.wait()",
    "import time\nprint('now')\nawait tools.echo()\ntime.sleep(1000)",
)


async def check_sandbox(runtime: CodeRuntime) -> None:
    """Check that programs share nothing, reach nothing, and leave no process behind."""
    before = children()
    took = min([await _time_end(runtime) for _ in range(TRIES)])
    assert took < PROMPT, f"what runs when serve() is left ends in {PROMPT} s, not in {took:.3f} s"
    async with runtime.serve() as run:
        bench = Bench(run)
        await _check_apart(bench)
        await _check_reach(bench)
        await _check_network(bench)
        with trio.CancelScope() as scope:
            await bench("print('now')\nwhile True:\n    pass", on_print=lambda _: scope.cancel())
    left = children() - before
    assert not left, f"when serve() is left every process has ended, but these are there: {sorted(left)}"


async def _time_end(runtime: CodeRuntime) -> float:
    """Rule: when the runtime is served no more, what runs ends at once as killed, and nothing begins.

    Returns:
      The seconds that it took to end.
    """
    outcomes, tools, there = list[Outcome](), Tools(), list[trio.Event]()

    async def hang(arguments: dict[str, object]) -> object:
        there[-1].set()
        return await tools.hang(arguments)

    async def keep(bench: Bench, source: str) -> None:
        limits, is_there = CodeLimits(seconds=20.0), there[-1]
        outcome = await bench.once(source, tools=tools, limits=limits, on_print=lambda _: is_there.set())
        outcomes.append(outcome)

    tools.extra = {"wait": hang}
    async with trio.open_nursery() as nursery:
        async with runtime.serve() as run:
            for source in _AT_WORK:
                there.append(trio.Event())
                nursery.start_soon(keep, Bench(run), source)
                with trio.fail_after(20):
                    await there[-1].wait()
        began = trio.current_time()
    took = trio.current_time() - began
    outcomes.append(await Bench(run).once("return 1", tools=Tools(), limits=CodeLimits(), on_print=None))
    for outcome in outcomes:
        outcome.failed("killed")
    assert not tools.hanging, "no call is under way when its program is over"
    return took


async def _check_apart(bench: Bench) -> None:
    """Rule: programs share nothing, at once or one after the other."""
    source = """
        global shared
        shared = 1
        import json
        try:
            json.shared = 1
        except Exception:
            pass
        print("mine" * 2)
        return await tools.meet(count=2, value="first")
    """
    look = """
        import json
        if hasattr(json, "shared"):
            return "shared a module"
        try:
            return shared
        except NameError:
            print("clean")
        await tools.meet(count=2)
        return "second"
    """
    tools, outcomes, started = Tools(), dict[str, Outcome](), trio.Event()

    async def keep(name: str, source: str) -> None:
        outcomes[name] = await bench(source, tools=tools, on_print=lambda _: started.set())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep, "first", source)
        await started.wait()
        nursery.start_soon(keep, "second", look)
    for name, printed in (("first", "minemine\n"), ("second", "clean\n")):
        outcome = outcomes[name]
        assert outcome.value == name, f"programs at once share nothing:\n{outcome}"
        assert outcome.printed == printed, f"what a program prints is its own:\n{outcome}"
    tools.met.append(trio.Event())  # as if the other were there
    outcome = await bench(look, tools=tools)
    assert outcome.value == "second", f"programs one after the other share nothing:\n{outcome}"


async def _check_reach(bench: Bench) -> None:
    """Rule: no file, no variable of the environment and no process of this machine can be reached."""
    with _secret() as (secret, path, variable):
        places = {"path": str(path), "folder": str(path.parent), "variable": variable, "pid": os.getpid()}
        for what, attempt in _REACHES.items():
            tried = attempt.format(**places)
            outcome = await bench(f"try:\n    {tried}\nexcept Exception as error:\n    print(type(error))")
            shown = f"{outcome.printed}{outcome.end}"
            assert secret not in shown, f"a program does not reach {what}:\n{outcome}"
        await bench(
            f"try:\n    with open({str(path)!r}, 'w') as file:\n        file.write('x')\nexcept Exception:\n    pass"
        )
        assert path.read_text() == secret, "a program does not write to a file of this machine"


async def _check_network(bench: Bench) -> None:
    """Rule: there is no network, not even to this machine."""
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    async with listener:
        port = listener.socket.getsockname()[1]
        source = f"""
            try:
                import socket
                socket.create_connection(("127.0.0.1", {port}), 2).sendall(b"here I am")
                return "connected"
            except Exception as error:
                return "refused"
        """
        outcome = await bench(source)
        assert outcome.value == "refused", f"a program has no network:\n{outcome}"


@contextmanager
def _secret() -> Iterator[tuple[str, Path, str]]:
    """Put a text into a file and into a variable of the environment."""
    secret, variable = secrets.token_hex(16), "CRECHE_CHECK_CODE_RUNTIME"
    with tempfile.TemporaryDirectory(suffix=secret) as folder:
        path = Path(folder) / secret
        path.write_text(secret)
        os.environ[variable] = secret
        try:
            yield secret, path, variable
        finally:
            del os.environ[variable]


def children() -> frozenset[int]:
    """Return the processes whose parent is this one, as Linux tells; elsewhere none.

    Not those of ``/proc/self/task``, which leave some out while others end.
    """
    found: set[int] = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            _, parent, *_ = stat.read_text().rpartition(")")[2].split()
            if int(parent) == os.getpid():
                found.add(int(stat.parent.name))
    return frozenset(found)

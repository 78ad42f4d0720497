"""What runs inside a sandbox: one program, and the channel to the process outside.

It is a file of its own, run by an interpreter that has the standard library and nothing else: it imports nothing of
creche. What it keeps of limits is for programs that mean well, so that they get an exception with a sentence. The
process outside keeps them again.

On the channel each line is JSON. Outwards go `ready`, `call`, and one of `done` and `failed`; inwards comes what to run,
then one answer for each call. What is printed goes neither way: it is file 1, which the process outside reads.
"""

import ast
import itertools
import json
import math
import os
import re
import resource
import signal
import socket
import sys
import types
import warnings
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NoReturn, cast

sys.modules["ssl"] = cast("Any", None)  # there is no network, and it takes asyncio ten milliseconds
import asyncio  # noqa: E402, TID251  # runs alone in here

del sys.modules["ssl"]

_FILE = "<program>"
_MESSAGE = 10_000
_DEEPEST = (
    200  # lists and objects inside each other in a frame, which has two of its own; the process outside reads no more
)
_OPENING = bytes.maketrans(b"[{]}", b"\x01\x01\x00\x00")
_OTHERS = bytes(byte for byte in range(256) if byte not in b"[{]}")
_STEP = (-1, 1)
_THREADS = 64
_SIGNALS = 64  # that wait for a thread to take them
# What the interpreter says of a value that it cannot use: 'coroutine' object ..., not coroutine, type coroutine.
_UNAWAITED = re.compile(r"""['"]coroutine['"]|(?:not|type) coroutine""")
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class ToolCallError(Exception):
    """A call of a tool failed; ``tool`` is its name."""

    def __init__(self, text: str, tool: str = "") -> None:
        super().__init__(text)
        self.tool = tool


class _Calls:
    """The calls of tools on their way."""

    def __init__(self, channel: socket.socket, limits: dict[str, int]) -> None:
        self._channel = channel
        self._limits = limits
        self._made = 0
        self._pending = 0
        self._answers: dict[int, tuple[asyncio.Future[Any], int]] = {}
        self._read = bytearray()

    async def call(self, tool: str, arguments: dict[str, object]) -> object:
        if self._made >= self._limits["calls"]:
            raise ToolCallError(f"a program may call tools {self._limits['calls']} times", tool)
        try:
            frame = _frame(call=self._made, tool=tool, arguments=arguments)
        except (TypeError, ValueError, RecursionError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"an argument of tools[{tool!r}] is no JSON: {error}") from None
        if len(frame) > self._limits["frame"] or self._pending + len(frame) > self._limits["pending"]:
            raise ToolCallError("the arguments of this call, or of all calls that are on their way, are too long", tool)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[self._made] = answer, len(frame)
        self._made += 1
        self._pending += len(frame)
        # It may block, and that is fine: the process outside reads at all times.
        self._channel.sendall(frame)
        reply = await answer
        if "error" in reply:
            raise ToolCallError(reply["error"], tool)
        return reply["value"]

    def receive(self) -> None:
        try:
            self._receive()
        except BaseException as error:  # noqa: BLE001  # such as MemoryError: whoever waits for the answer would wait forever
            self._channel.sendall(_failed("exception", error))
            os._exit(1)

    def _receive(self) -> None:
        data = self._channel.recv(1 << 18, socket.MSG_DONTWAIT)
        if not data:  # nobody is there to run for
            os._exit(1)
        self._read += data
        if b"\n" not in data:
            return
        *lines, self._read = self._read.split(b"\n")
        for line in lines:
            reply = json.loads(line)
            answer, size = self._answers.pop(reply["call"])
            self._pending -= size
            if not answer.done():  # its caller may have been cancelled
                answer.set_result(reply)


def _make_tools(names: Iterable[str], call: Callable[[str, dict[str, object]], Awaitable[object]]) -> object:
    """Return the namespace of tools. Its functions are in closures, so that a tool may have any name."""
    known = sorted(names)

    def get(name: str) -> Callable[..., Awaitable[object]]:
        if name not in known:
            raise AttributeError(f"there is no tool {name!r}; there are: {', '.join(known) or 'none'}")

        async def tool(*positional: object, **arguments: object) -> object:
            if positional:
                raise TypeError(f"tools[{name!r}] takes keyword arguments only, such as tools[{name!r}](name=value)")
            return await call(name, arguments)

        tool.__qualname__ = f"tools[{name!r}]"  # for the warning about a call that is never awaited
        return tool

    class Tools:
        __slots__ = ()

        def __getattribute__(self, name: str) -> Any:
            return object.__getattribute__(self, name) if name.startswith("__") and name not in known else get(name)

        def __getitem__(self, name: str) -> Callable[..., Awaitable[object]]:
            try:
                return get(name)
            except AttributeError as error:
                raise KeyError(str(error)) from None

        def __dir__(self) -> list[str]:
            return known

    return Tools()


def _compiled(source: str) -> types.CodeType:
    """Return the code of a module with one function, whose body is the program at its own lines."""
    module = ast.parse("async def program(): return ...", _FILE)
    function = module.body[0]
    assert isinstance(function, ast.AsyncFunctionDef)
    # It ends with the `return ...` of above, which tells a program that returned nothing from one that returned None.
    function.body[:0] = ast.parse(source, _FILE).body
    return compile(module, _FILE, "exec")


async def _run(source: str, tools: object) -> object:
    program = types.ModuleType("__main__")
    program.__dict__.update(tools=tools, ToolCallError=ToolCallError)
    sys.modules["__main__"] = program
    exec(_compiled(source), program.__dict__)
    return await program.__dict__.pop("program")()


def _failed(kind: str, error: BaseException) -> bytes:
    line = None
    try:
        text = str(error)
        if isinstance(error, SyntaxError):
            text, line = str(error.msg or ""), error.lineno
    except BaseException:  # noqa: BLE001  # its class may be the program's, and do anything
        text = ""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == _FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    message = f"{type(error).__name__}: {text[:_MESSAGE]}" if text else type(error).__name__
    if line is not None:
        message += f" (line {line})"
    if isinstance(error, TypeError | AttributeError) and _UNAWAITED.search(text):
        message += "; did you forget `await`?"
    return _frame(failed=kind, message=message)


def _frame(**content: object) -> bytes:
    text = _encode(content)
    if text.count("[") + text.count("{") > _DEEPEST and _depth(text) > _DEEPEST:
        raise ValueError(f"it is nested more than {_DEEPEST - 2} deep")
    return text.encode("utf-8", "replace") + b"\n"


def _depth(text: str) -> int:
    """Return how deeply JSON is nested, in time and memory that are linear in it."""
    # Where no quote is escaped, every second part is outside of strings.
    outside = "".join(text.replace("\\\\", "").replace('\\"', "").split('"')[::2])
    steps = outside.encode().translate(_OPENING, _OTHERS)
    return max(itertools.accumulate(map(_STEP.__getitem__, steps)), default=0)


def _limit(memory: int, seconds: float, files: int, file_bytes: int) -> None:
    """Limit this process, for good: it has no privilege to raise what is hard."""
    with open("/proc/self/statm") as statm:
        used = int(statm.read().split()[0]) * resource.getpagesize()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    computed = math.ceil(seconds + usage.ru_utime + usage.ru_stime)
    limits = {
        resource.RLIMIT_AS: (used + memory, used + memory),
        # The first signal comes at whole seconds, the second one for whoever ignores it.
        resource.RLIMIT_CPU: (computed, computed + 1),
        resource.RLIMIT_FSIZE: (file_bytes, file_bytes),
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_NOFILE: (files, files),
        resource.RLIMIT_SIGPENDING: (_SIGNALS, _SIGNALS),
    }
    # It does not bind for a user who is root outside, where memory limits the threads. In an older kernel, all that the
    # user runs on the machine counts.
    if _kernel() >= (5, 14):
        limits[resource.RLIMIT_NPROC] = _THREADS, _THREADS
    for which, (soft, hard) in limits.items():
        _, given = resource.getrlimit(which)  # may be lower already, and cannot be raised
        most = hard if given == resource.RLIM_INFINITY else min(hard, given)
        resource.setrlimit(which, (min(soft, most), most))
    signal.setitimer(signal.ITIMER_PROF, max(seconds, 1e-6))  # to the millisecond; it ends the process


def _kernel() -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", os.uname().release)[:2])


def _warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Return what is printed of a warning: one line, and no advice on how to debug its cause."""
    text = f"{category.__name__}: {message}"
    return f"{text} (line {lineno})\n" if filename == _FILE else f"{filename}:{lineno}: {text}\n"


async def _main(channel: socket.socket, boot: dict[str, Any]) -> None:
    calls = _Calls(channel, boot["limits"])
    asyncio.get_running_loop().add_reader(channel, calls.receive)
    try:
        value = await _run(boot["source"], _make_tools(boot["tools"], calls.call))
    except Exception as error:  # noqa: BLE001  # the others come out of asyncio, some without coming by here
        _end(channel, _failed("exception", error))
    try:
        end = _frame(done=[] if value is ... else [value])
        if len(end) > boot["limits"]["frame"]:
            end = _frame(failed="output_limit", message="what it returned is too long")
    except (TypeError, ValueError, RecursionError) as error:
        end = _failed("invalid_output", error)
    _end(channel, end)


def _end(channel: socket.socket, frame: bytes) -> NoReturn:
    """Say how it ended, and wait for being killed: what else the program started must not delay its end."""
    channel.sendall(frame)
    while True:
        signal.pause()


def main() -> None:
    """Say that we are ready, run the one program that comes, say how it came out, and end."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    os.environ.clear()
    # With its folder for files, so that the process outside can count them.
    folder = os.open("/tmp", os.O_RDONLY | os.O_DIRECTORY)
    socket.send_fds(channel, [_frame(ready=True)], [folder])
    os.close(folder)
    with channel.makefile("rb") as lines:
        line = lines.readline()
    if not line:
        os._exit(0)
    boot = json.loads(line)
    sys.path += boot["packages"]
    sys.argv = [_FILE]
    cast("Any", sys.stdout).reconfigure(errors="replace")
    warnings.formatwarning = _warning
    _limit(**boot["process"])
    try:
        asyncio.run(_main(channel, boot))
    except BaseException as error:  # noqa: BLE001  # such as SystemExit, which asyncio lets out of any task
        _end(channel, _failed("exception", error))


if __name__ == "__main__":
    main()

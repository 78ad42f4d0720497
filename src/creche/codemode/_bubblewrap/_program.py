"""One program in its sandbox: what it asks for, what it prints, how it ends.

What comes out of a sandbox is written by the program, whatever our own code inside meant to write. So:

Rule 1: a frame is taken apart and made anew; the first one that is not as it should be ends the program.
Rule 2: whatever it sends, and whatever it does not read, it takes a bounded amount of memory here: a frame has a longest
length, so have the arguments of all calls together whose answers are not sent, calls are counted, and output ends at
its limit. Files are few, and together small. Answers that are not sent take as much as the program may have of memory, and one answer more; only the one
that is being sent is encoded.
Rule 3: what it printed before a call or its end is emitted before these are seen, and what it printed before it was
killed is emitted as well.
"""

import codecs
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import attrs
import trio

from creche._util import canonical_json, clean_text, open_hidden_nursery
from creche.errors import ToolError

from .._json import DEEPEST, is_readable
from .._runtime import LONGEST_ARGUMENTS, MOST_ARGUMENTS, Program, ProgramEnd
from ._layout import TMP_BYTES
from ._sandbox import Sandbox

_LONGEST_FRAME = LONGEST_ARGUMENTS  # what stands around them counts as well
_OPEN_FILES = 64
_MOST_FILES = 10_000
_LOOK = 0.1  # seconds between two looks at how many files there are
_LAST_WORDS = 1.0  # seconds that a process has to end after it closed its channel
_LONGEST_MESSAGE = 20_000
_READ = 1 << 16
_LARGEST_PIPE = 1 << 20  # bytes; what an ordinary user may make of one
_BY_SIGNAL = 128  # added to the number of the signal by which a process ended
_COMPUTED_TOO_LONG = (signal.SIGXCPU, signal.SIGPROF)
_TICK = 0.01  # seconds; the kernel counts computing no finer


async def run_in_sandbox(program: Program, sandbox: Sandbox) -> ProgramEnd:
    """Run a program in a sandbox that waits for one, until all processes of that are gone."""
    sandbox.take()
    running = _Running(program, sandbox)
    try:
        async with open_hidden_nursery("a program") as nursery:
            try:
                return await running.run(nursery)
            finally:
                sandbox.kill()  # before its calls are waited for
    finally:
        with trio.CancelScope(shield=True):
            await sandbox.wait()
        running.emit_rest()
        sandbox.close()


@attrs.define(eq=False)
class _Running:
    _program: Program
    _sandbox: Sandbox
    _end: ProgramEnd | None = None
    _calls: int = 0
    _pending: int = 0
    """Bytes of the frames of calls whose answers are not sent."""
    _waiting: int = 0
    """Bytes that the answers take which are not sent."""
    _printed: int = 0
    _began: float = attrs.field(factory=time.monotonic)
    _decoder: codecs.IncrementalDecoder = attrs.field(factory=lambda: codecs.getincrementaldecoder("utf-8")("replace"))
    _sending: trio.Lock = attrs.field(factory=trio.Lock)

    async def run(self, nursery: trio.Nursery) -> ProgramEnd:
        """Start the program and see to what it sends, until it is over."""
        nursery.start_soon(self._send, self._boot())
        nursery.start_soon(self._watch_output)
        nursery.start_soon(self._watch_files)
        received = bytearray()
        while True:
            await trio.lowlevel.wait_readable(self._sandbox.channel)
            try:
                data = self._sandbox.channel.recv(_READ)
            except ConnectionError:
                data = b""  # it ended before it read all
            except BlockingIOError:  # readable, and nothing is there
                return self._end or _killed("it sent out-of-band data on its channel")
            self._emit_printed()
            received += data
            if b"\n" in data:
                *lines, received = received.split(b"\n")
                for line in lines:
                    if self._end is None:
                        self._end = self._see(line.decode(errors="replace"), nursery)
            if self._end is not None:
                return self._end
            if not data:
                return await self._ended_unasked()
            if len(received) > _LONGEST_FRAME:
                return _killed("it sent more than fits into a frame")

    def emit_rest(self) -> None:
        """Emit what it printed before all of its processes were gone."""
        self._emit_printed()
        self._emit(self._decoder.decode(b"", final=True))

    def _boot(self) -> str:
        limits = self._program.limits
        return canonical_json(
            {
                "source": clean_text(self._program.source),
                "tools": sorted(self._program.tools),
                "packages": self._sandbox.packages,
                "limits": {"calls": limits.calls, "frame": _LONGEST_FRAME, "pending": MOST_ARGUMENTS},
                "process": {
                    "memory": limits.memory,
                    "seconds": limits.seconds,
                    "files": _OPEN_FILES,
                    "file_bytes": TMP_BYTES,
                },
            }
        )

    def _see(self, line: str, nursery: trio.Nursery) -> ProgramEnd | None:
        """See to one frame; the end of the program if that is what it says, or must follow from it."""
        if line.count("[") + line.count("{") > DEEPEST and not is_readable(line):
            return _killed("it sent a frame that is no JSON, or nested too deeply")
        try:
            match _decode(line):
                case {"call": int(number), "tool": str(tool), "arguments": arguments}:
                    return self._see_call(number, tool, clean_text(canonical_json(arguments)), len(line), nursery)
                case {"done": []}:
                    end = ProgramEnd()
                case {"done": [value]}:
                    end = self._returned(clean_text(canonical_json(value)))
                case {"failed": "output_limit"}:
                    end = self._too_much()
                case {"failed": "exception" | "invalid_output" as failure, "message": str(message)}:
                    end = ProgramEnd(failure=failure, message=clean_text(message)[:_LONGEST_MESSAGE])
                case _:
                    end = _killed("it sent a frame that is none")
        except ValueError:
            end = _killed("it sent a frame that is no JSON")
        return end

    def _see_call(self, number: int, tool: str, arguments: str, size: int, nursery: trio.Nursery) -> ProgramEnd | None:
        # What means well is told inside; only what does not comes here with these.
        if number != self._calls:
            return _killed("it sent a call with a number that is not the next")
        if not arguments.startswith("{"):
            return _killed("it sent a call whose arguments are no object")
        if tool not in self._program.tools:
            return _killed("it sent a call of a tool that there is not")
        if self._calls >= self._program.limits.calls or self._pending + size > MOST_ARGUMENTS:
            return _killed("it sent more calls than it may")
        pending = self._program.call(tool, arguments)  # here, for the tasks of a batch begin in any order
        nursery.start_soon(self._answer, self._calls, pending, size)
        self._calls += 1
        self._pending += size
        return None

    async def _answer(self, number: int, pending: Awaitable[str], size: int) -> None:
        try:
            kind, answer = "value", await pending
        except ToolError as error:
            kind, answer = "error", canonical_json(str(error))
        if self._waiting > self._program.limits.memory:
            self._end = self._end or _killed(
                "the answers to its calls that it did not read are larger than its memory; await fewer calls at once"
            )
            self._sandbox.kill()
            return
        taken = sys.getsizeof(answer)
        self._waiting += taken
        await self._send(f'{{"call":{number},"{kind}":', answer, "}")
        self._waiting -= taken
        self._pending -= size

    async def _send(self, *parts: str) -> None:
        """Send a line, whose parts are put together when it is its turn."""
        async with self._sending:
            # A line break in JSON text is between its parts, where a space is as good.
            rest = memoryview("".join(parts).replace("\n", " ").encode(errors="replace") + b"\n")
            while rest := self._send_nowait(rest):
                await trio.lowlevel.wait_writable(self._sandbox.channel)

    def _send_nowait(self, data: memoryview) -> memoryview:
        """Send as much as there is room for, and return the rest."""
        try:
            return data[self._sandbox.channel.send(data) :]
        except BlockingIOError:
            return data
        except OSError:
            return data[:0]  # it has ended, which is seen where its frames are read

    async def _watch_output(self) -> None:
        while self._emit_printed():
            await trio.lowlevel.wait_readable(self._sandbox.output)
        if self._end is not None:
            self._sandbox.kill()

    async def _watch_files(self) -> None:
        """End the program when it has made too many files: each takes memory besides that of what is in it."""
        while self._sandbox.count_files() <= _MOST_FILES:  # noqa: ASYNC110  # nothing tells of it
            await trio.sleep(_LOOK)
        self._end = self._end or _killed(f"it made more than {_MOST_FILES:,} files")
        self._sandbox.kill()

    def _emit_printed(self) -> bool:
        """Emit all that it has printed by now; false if there is no more to come."""
        for _ in range(_LARGEST_PIPE // _READ):
            data = None if self._end else self._sandbox.output.read(_READ)
            if not data:
                return data is None and self._end is None
            self._emit(self._decoder.decode(data))
        return self._end is None

    def _emit(self, text: str) -> None:
        encoded = text.encode()
        room = self._program.limits.output - self._printed
        self._printed += len(encoded)
        if len(encoded) > room:
            text = encoded[: max(room, 0)].decode(errors="ignore")
            self._end = self._end or self._too_much()
        if text:
            self._program.emit(text)

    def _returned(self, value: str) -> ProgramEnd:
        if self._printed + len(value.encode()) > self._program.limits.output:
            return self._too_much()
        return ProgramEnd(value=value)

    def _too_much(self) -> ProgramEnd:
        most = self._program.limits.output
        return ProgramEnd(failure="output_limit", message=f"it printed and returned more than {most} bytes")

    async def _ended_unasked(self) -> ProgramEnd:
        """Say how the process ended that closed its channel without having said how the program did."""
        with trio.move_on_after(_LAST_WORDS):
            status = await self._sandbox.wait()
            self._emit_printed()
            return self._end or self._end_by(status)
        return _killed("it closed its channel")

    def _end_by(self, status: int) -> ProgramEnd:
        number = status - _BY_SIGNAL
        if number not in signal.valid_signals():
            return _killed(f"its process ended with status {status}")
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        if number not in _COMPUTED_TOO_LONG:
            return _killed(f"its process was ended by {name}")
        # It may have ended with that status of its own accord, or sent itself the signal, which looks the same.
        most = self._program.limits.seconds
        if (time.monotonic() - self._began + _TICK) * (os.cpu_count() or 1) < most:
            return _killed(f"its process ended with status {status}, as if by {name}")
        return ProgramEnd(failure="timeout", message=f"it computed for more than {most:g} seconds")


def _killed(message: str) -> ProgramEnd:
    return ProgramEnd(failure="killed", message=message)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


_decode: Callable[[str], Any] = json.JSONDecoder(parse_constant=_refuse).decode

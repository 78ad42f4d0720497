"""A runtime without a sandbox, for tests of what stands around one: programs run in the loop, on the virtual clock."""

import ast
import json
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import trio

from creche.codemode import Program, ProgramEnd
from creche.errors import ToolError


class ToolCallError(Exception):
    """A call of a tool failed."""


class Tools:
    """What programs know as ``tools``."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def __getattr__(self, name: str) -> Any:
        if name not in self._program.tools:
            raise AttributeError(f"there is no tool {name!r}")

        async def value_of(pending: Any) -> object:
            try:
                return json.loads(await pending)
            except ToolError as error:
                raise ToolCallError(str(error)) from None

        return lambda **arguments: value_of(self._program.call(name, json.dumps(arguments)))

    __getitem__ = __getattr__


async def gather(*calls: Any) -> list[object]:
    results: dict[int, object] = {}

    async def one(number: int, call: Any) -> None:
        results[number] = await call

    try:
        async with trio.open_nursery() as nursery:
            for number, call in enumerate(calls):
                nursery.start_soon(one, number, call)
    except* ToolCallError as group:
        raise group.exceptions[0] from None
    return [results[number] for number in range(len(calls))]


@attrs.frozen
class LoopRuntime:
    """Runs programs in the loop."""

    name: str = "loop"
    notes: str = "Nothing is confined."
    served: list[str] = attrs.field(factory=list)
    """When it was opened and closed."""

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Any]:
        self.served.append("opened")
        try:
            yield self._run
        finally:
            self.served.append("closed")

    async def _run(self, program: Program) -> ProgramEnd:
        names: dict[str, Any] = {
            "tools": Tools(program),
            "ToolCallError": ToolCallError,
            "asyncio": SimpleNamespace(gather=gather),
            "trio": trio,
            "print": lambda *values, end="\n": program.emit(" ".join(map(str, values)) + end),
        }
        try:
            source = "async def main():\n" + textwrap.indent(program.source or "pass", "    ")
            exec(compile(ast.parse(source), "<program>", "exec"), names)
            value = await names["main"]()
            return ProgramEnd(value=None if value is None else json.dumps(value))
        except Exception as error:  # noqa: BLE001 - what a program raises is how it ended
            return ProgramEnd(failure="exception", message=f"{type(error).__name__}: {error}")


@pytest.fixture
def loop_runtime() -> LoopRuntime:
    return LoopRuntime()

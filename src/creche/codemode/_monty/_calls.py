"""What a program in Monty waits for: calls of tools, and sleep."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import attrs
import trio

from creche._util import clean_text
from creche.errors import ToolError

from .._json import without_surrogates
from ._source import TOOL_ERROR
from ._worker import Asked, Stopped, Worker

if TYPE_CHECKING:
    import pydantic_monty as monty


@attrs.define(eq=False)
class Calls:
    """The calls of one program."""

    worker: Worker
    nursery: trio.Nursery
    number: int = 0
    """Calls that were begun."""
    results: "dict[int, monty.ExternalSettledResult]" = attrs.field(
        init=False, factory=dict[int, "monty.ExternalSettledResult"]
    )
    """What the program does not know yet, by number of the call."""
    came: trio.Event = attrs.field(init=False, factory=trio.Event)
    """Is set when there are results."""
    ended: trio.Event = attrs.field(init=False, factory=trio.Event)
    """Is set when the process has ended."""

    def give_up(self) -> None:
        """Wait for nothing any more, as the process has ended: the next turn says how."""
        self.ended.set()
        self.came.set()

    async def next_turn(self, stopped: Stopped) -> "Callable[[], monty.SyncSnapshot]":
        """Begin what the program asked for, wait, and return how it goes on."""
        import pydantic_monty as monty

        for asked in stopped.asked:
            self._begin(asked)
        snapshot = stopped.snapshot
        assert not isinstance(snapshot, monty.MontyComplete), "a program that ended does not go on"
        if isinstance(snapshot, monty.FunctionSnapshot):
            with trio.move_on_after(stopped.pause):
                await self.ended.wait()
            return partial(snapshot.resume, {"return_value": None})
        await self.came.wait()
        results, self.results, self.came = self.results, {}, trio.Event()
        return partial(snapshot.resume, results)

    def _begin(self, asked: Asked) -> None:
        program = self.worker.program
        if not asked.name:
            self.nursery.start_soon(self._sleep, asked)
        elif self.number == program.limits.calls:
            message = f"a program may call tools {self.number} times, and this one has"
            self._settle(asked, {"exc_type": TOOL_ERROR, "message": message})
        else:
            self.number += 1
            pending = program.call(asked.name, asked.arguments)  # here, for tasks begin in any order
            self.nursery.start_soon(self._call, asked, pending)

    async def _sleep(self, asked: Asked) -> None:
        await trio.sleep(asked.seconds)
        self._settle(asked, {"return_value": None})

    async def _call(self, asked: Asked, pending: Awaitable[str]) -> None:
        try:
            value = await pending
        except ToolError as error:
            self._settle(asked, {"exc_type": TOOL_ERROR, "message": clean_text(str(error))})
        else:
            self._settle(asked, {"return_value": without_surrogates(value)})

    def _settle(self, asked: Asked, result: "monty.ExternalSettledResult") -> None:
        self.worker.answered += asked.size
        self.results[asked.number] = result
        self.came.set()

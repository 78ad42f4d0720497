"""Where the answer goes and what is told about it: as plain lines, or with a live view of the agents."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

import trio

from creche._util import open_hidden_nursery
from creche.errors import CrecheError
from creche.scope import Registrar

from ._asking import Ask
from ._console import Console
from ._live import Screen, find_tty

T = TypeVar("T")


class Output(Protocol):
    """Where a command writes while agents work. Only `run`, `drain` and who asks ever wait."""

    shows_agents: bool
    """Whether it shows what each agent does, so that lines are for the rest."""
    unread: trio.CancelScope
    """Cancelled when the answer is taken no more."""

    @property
    def error(self) -> OSError | None:
        """Why the answer is taken no more."""
        ...

    def follow(self, registrar: Registrar, /) -> None:
        """Follow the agents, if it shows them."""
        ...

    def say(self, text: str, /) -> None:
        """Write more of the answer."""
        ...

    def end_line(self) -> None:
        """Let what comes next in the answer begin on a line of its own."""
        ...

    def line(self, line: str, /) -> None:
        """Write a line about the answer."""
        ...

    def asking(self) -> AbstractContextManager[Ask]:
        """Leave the terminal to a question and its answer for the length of the block; yield what writes its lines."""
        ...

    def close(self) -> None:
        """Let `run` end when everything is written."""
        ...

    async def run(self) -> None:
        """Write what comes, until `close`."""
        ...

    def drain(self) -> None:
        """Write what a cancellation has left, as long as somebody reads it. Outside of trio."""
        ...


def open_output() -> Output:
    """Return the live view where there is a terminal for it, plain lines elsewhere."""
    tty = find_tty()
    return Console() if tty is None else Screen(tty)


async def attend(output: Output | None, work: Callable[[], Awaitable[T]]) -> T | None:
    """Let something work while its output is written, if it has any.

    Returns:
      What the work returns; ``None`` if nobody reads the answer any more, and everything was stopped for that.
    """
    if output is None:
        return await work()
    result: T | None = None
    failure: CrecheError | None = None
    async with open_hidden_nursery("the output", cancel=False) as nursery:
        nursery.start_soon(output.run, name="output")
        with output.unread:
            try:
                result = await work()
            except CrecheError as error:
                failure = error  # and what has been said until then is written all the same
        output.close()
    if failure is not None:
        raise failure
    return result

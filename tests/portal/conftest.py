"""A program on asyncio, and a model that says its pieces one by one."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest
import trio

from creche.models import Finished, PreparedCall, TextDelta

T = TypeVar("T")


@pytest.fixture
def under_asyncio() -> Callable[[Callable[[], Awaitable[T]]], T]:
    """Run a program under asyncio; one that hangs is a failure."""

    def run(program: Callable[[], Awaitable[T]]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(30) as limit:
                result = await program()
            assert not limit.expired(), "it hung, and took the end of its time for something else"
            return result

        return asyncio.run(bounded())

    return run


@pytest.fixture
def cancel() -> Callable[[asyncio.Task[object]], Awaitable[None]]:
    """Cancel a task of asyncio, and wait until it has ended; it ends as cancelled."""

    async def cancelled(task: asyncio.Task[object]) -> None:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), task

    return cancelled


@pytest.fixture
def portal_threads() -> Callable[[], list[threading.Thread]]:
    """Return the threads of the portals that are open."""
    return lambda: [thread for thread in threading.enumerate() if thread.name == "creche portal"]


class PacedModel:
    """A model whose answer is pieces: a text is said, a function is awaited."""

    provider = model = "paced"
    limiter = None

    def __init__(self, *pieces) -> None:
        self.pieces = pieces
        self.open = 0
        """How many answers are being given."""

    async def prepare(self, settings, /):
        return PreparedCall(settings)

    @asynccontextmanager
    async def stream(self, request, /):
        self.open += 1
        try:
            yield _Chunks([*self.pieces, Finished()])
        finally:
            self.open -= 1


class _Chunks:
    def __init__(self, pieces) -> None:
        self._pieces = iter(pieces)

    def __aiter__(self):
        return self

    async def __anext__(self):
        await trio.lowlevel.checkpoint()
        for piece in self._pieces:
            if not callable(piece):
                return TextDelta(piece) if isinstance(piece, str) else piece
            await piece()
        raise StopAsyncIteration


@pytest.fixture
def paced() -> type[PacedModel]:
    return PacedModel

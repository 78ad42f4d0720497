"""llama.cpp's server inside this process, loaded while somebody needs it.

What is known of xllamacpp (2026.10): its constructor loads the model and holds the GIL meanwhile, a second or so for a
small one; a thread does not help against that, and is used so that nothing else waits where a version of it does better.
A request blocks its thread, without the GIL, and calls back with each event; a callback that returns true stops the
answer at the next token, or at the next batch of a prompt that is being read. Dropping the last reference ends the
server and its threads; one thread of its log stays for the life of the process.

The server cannot be had without a listener. Ours is a Unix socket whose name is gone once the server is there, so that
nobody can connect.
"""

import importlib
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any, Protocol

import trio

from creche.errors import ConfigError

from .._failures import model_error
from ._local_weights import find_weights

_SILENT = -1
_BATCH = 128  # tokens of a prompt between two occasions to stop
_CACHE = 256  # megabytes of prompts kept besides those in the slots; the library's own default is 8192
_LONGEST_FOLDER = 80  # of 107 bytes that the path of a Unix socket may have


class _Server(Protocol):
    """`xllamacpp.Server`, which has no types."""

    def handle_chat_completions(self, prompt: str, callback: Callable[[str], bool], /) -> object: ...


class Engine:
    """A model in memory, while somebody has it open. It serves one run of trio at a time.

    Args:
      provider: Name of the provider, for messages.
      weights: What `find_weights` takes.
      slots: How many requests it answers at once.
      context: Tokens of each.
      threads: How many threads compute; the library's choice if absent.
    """

    def __init__(self, provider: str, weights: str, *, slots: int, context: int, threads: int | None = None) -> None:
        self._provider = provider
        self._weights = weights
        self._slots = slots
        self._context = context
        self._compute_threads = threads
        self._users = 0
        self._checked = False
        self._turn = trio.Lock()  # to load or to close
        self._threads = trio.CapacityLimiter(slots)
        self._servers: list[_Server] = []  # one or none

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Keep the model in memory for the length of the block, once loaded; the last block to end frees it."""
        self.hold()
        try:
            yield
        finally:
            await self.release()

    def hold(self) -> None:
        """Begin to keep the model in memory, once loaded."""
        self._users += 1

    async def release(self) -> None:
        """End what `hold` began; the last one to end frees the model. It is shielded from cancellation."""
        self._users -= 1
        if not self._users and self._servers:
            with trio.CancelScope(shield=True):  # takes a tenth of a second at most
                await self._close()

    async def check(self) -> None:
        """See that the model could be loaded.

        Raises:
          ConfigError: The package is not installed.
          ModelError: There are no weights.
        """
        if not self._checked:
            await trio.to_thread.run_sync(self._check)
            self._checked = True

    async def load(self) -> None:
        """Load the model, if it is not there; a second caller waits for the first. The caller has it open.

        Raises:
          ConfigError: The package is not installed.
          ModelError: There are no weights, or they cannot be loaded.
        """
        async with self._turn:
            if not self._servers:
                self._servers.append(await trio.to_thread.run_sync(self._load))

    async def run(self, body: str, take: Callable[[str], bool]) -> None:
        """Answer one request in a thread, and wait for the thread also when cancelled.

        Args:
          body: The request as JSON text.
          take: Takes an event. Contract: called in the thread; must not raise; returns whether to stop.

        Raises:
          ModelError: The request was refused.
        """
        await trio.to_thread.run_sync(self._run, body, take, limiter=self._threads)

    async def _close(self) -> None:
        async with self._turn:
            if not self._users:  # else somebody has come while this waited
                # The only reference goes in the thread, and the model with it.
                await trio.to_thread.run_sync(self._servers.clear)

    def _check(self) -> None:
        self._import()
        find_weights(self._weights, self._provider)

    def _import(self) -> ModuleType:
        try:
            return importlib.import_module("xllamacpp")
        except ModuleNotFoundError as error:
            sentence = f"{self._provider!r} needs the package {error.name!r}; run: pip install 'creche[local]'"
            raise ConfigError([("model", sentence)]) from error

    def _load(self) -> _Server:
        engine: Any = self._import()
        path = str(find_weights(self._weights, self._provider))
        parameters = engine.CommonParams()
        parameters.model.path = path
        parameters.n_parallel = self._slots
        parameters.n_ctx = self._slots * self._context  # the library divides it among the slots
        parameters.n_batch = parameters.n_ubatch = _BATCH
        parameters.cache_ram_mib = _CACHE
        parameters.n_threads_http = 1
        parameters.prefill_assistant = False
        parameters.ui = parameters.warmup = False
        parameters.verbosity = _SILENT
        if self._compute_threads is not None:
            parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = self._compute_threads
        folder = None if len(tempfile.gettempdir()) <= _LONGEST_FOLDER else "/tmp"
        with tempfile.TemporaryDirectory(prefix="creche-", dir=folder) as hidden:
            parameters.hostnames = [f"{hidden}/unused.sock"]
            try:
                server: _Server = engine.Server(parameters)
            except RuntimeError as error:
                text = f"{self._provider}: llama.cpp cannot load {path!r}: the file is broken, or of an unknown kind"
                raise model_error("unknown-model", text, provider=self._provider) from error
        return server

    def _run(self, body: str, take: Callable[[str], bool]) -> None:
        try:
            self._servers[0].handle_chat_completions(body, take)
        except (ValueError, RuntimeError) as error:  # so Cython passes on the library's exceptions
            text = f"{self._provider}: llama.cpp refuses the request: {error}"
            raise model_error("invalid-request", text, provider=self._provider) from None

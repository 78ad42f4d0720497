"""llama.cpp's server inside this process, loaded while somebody needs it.

What is known of xllamacpp (2026.10): its constructor loads the model and holds the GIL meanwhile, a second or so for a
small one; a thread does not help against that, and is used so that nothing else waits where a version of it does better.
A request blocks its thread, without the GIL, and calls back with each event; a callback that returns true stops the
answer at the next token, or at the next batch of a prompt that is being read. Dropping the last reference ends the
server and its threads; one thread of its log stays for the life of the process.

The server cannot be had without a listener. Ours is a Unix socket whose name is gone once the server is there, so that
nobody can connect.
"""

import tempfile
from collections.abc import Callable
from typing import Any, Protocol

import trio

from .._failures import provider_error
from ._extras import import_extra
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
        self._checked = False
        self._turn = trio.Lock()  # to load or to close
        self._threads = trio.CapacityLimiter(slots)
        self._servers: list[_Server] = []  # one or none

    async def close(self, is_unused: Callable[[], bool]) -> None:
        """Free the model, if it is loaded and nobody uses it. Shielded from cancellation.

        Args:
          is_unused: Tells whether nobody does; asked again when it is the turn of this call.
        """
        if not self._servers or not is_unused():
            return
        with trio.CancelScope(shield=True):  # takes a tenth of a second at most
            async with self._turn:
                if is_unused():
                    # The only reference goes in the thread, and the model with it.
                    await trio.to_thread.run_sync(self._servers.clear)

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

    def _check(self) -> None:
        import_extra(self._provider, "xllamacpp", "local")
        find_weights(self._weights, self._provider)

    def _load(self) -> _Server:
        engine: Any = import_extra(self._provider, "xllamacpp", "local")
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
                text = f"llama.cpp cannot load {path!r}: the file is broken, or of an unknown kind"
                raise provider_error(self._provider, "unknown-model", text, has_cure=True) from error
        return server

    def _run(self, body: str, take: Callable[[str], bool]) -> None:
        try:
            self._servers[0].handle_chat_completions(body, take)
        except (ValueError, RuntimeError) as error:  # so Cython passes on the library's exceptions
            raise provider_error(
                self._provider, "invalid-request", f"llama.cpp refuses the request: {error}", has_cure=True
            ) from None

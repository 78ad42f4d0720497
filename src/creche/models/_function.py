"""A model that is a function."""

from collections.abc import Awaitable, Callable

import trio

from creche._util import final

from ._items import Answer, Item, ask
from ._model import Capabilities, PreparedCall, RetryPolicy
from ._request import ModelRequest, Settings

Answerer = Callable[[ModelRequest], object | Awaitable[object]]


@final
class FunctionModel:
    """A model whose answers a function computes, for tests and programs that need no model.

    Args:
      function: Contract: given the request, returns (or, if async, resolves to) a list of `say` and `call`, or
        one of them, or `fail`; called once an attempt. A `ModelError` that it raises is the attempt's failure.
      provider: Name of the provider in settings.
      model: Name of the model in settings.
      limit: How many requests may be under way at once; any number if absent.
      context_window: Tokens that fit, for tests of limits.
      capabilities: What the model claims to be able to do; images and structured answers if absent.
      retry: How failed attempts are tried again.
    """

    def __init__(
        self,
        function: Answerer,
        *,
        provider: str = "function",
        model: str = "function",
        limit: int | None = None,
        context_window: int | None = None,
        capabilities: Capabilities | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        if not callable(function):
            raise TypeError(f"FunctionModel takes a function of the request, not {function!r}")
        self.provider = provider
        """Name of the provider in settings."""
        self.model = model
        """Name of the model in settings."""
        self.limiter: trio.CapacityLimiter | None = trio.CapacityLimiter(limit) if limit is not None else None
        """How many requests may be under way at once."""
        self._function = function
        self._who = f"the model function {getattr(function, '__qualname__', function)!r}"
        self._context_window = context_window
        self._capabilities = capabilities or Capabilities(images=True, structured_output=True)
        self._retry = retry or RetryPolicy()
        self._prepared: PreparedCall | None = None

    async def prepare(self, settings: Settings, /) -> PreparedCall:
        """Return what the model claims; it never waits and never fails."""
        prepared = self._prepared
        if prepared is None or prepared.settings is not settings:
            prepared = self._prepared = PreparedCall(
                settings,
                context_window=self._context_window,
                capabilities=self._capabilities,
                retry=self._retry,
            )
        return prepared

    def stream(self, request: ModelRequest, /) -> Answer:
        """Open the answer; the function is called on entering, after one checkpoint."""
        return Answer(request, self._items, self.provider)

    def _items(self, request: ModelRequest) -> Awaitable[tuple[Item, ...]]:
        return ask(self._function, request, self._who)

"""Anthropic's messages, with the official SDK."""

import os
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import attrs
import trio

from creche._util import final

from .._model import PreparedCall, RetryPolicy
from .._request import ModelRequest, Settings
from ._anthropic_stream import MessagesReader
from ._anthropic_wire import Dialect, encode_body
from ._cards import ANTHROPIC_CARDS, ModelCard, find_card
from ._http import CONNECTING, Connection, HttpAnswer
from ._wire import Histories

ANTHROPIC_HOST = "api.anthropic.com"
ANTHROPIC_URL = f"https://{ANTHROPIC_HOST}"
DEFAULT_MAX_TOKENS = 8_192
"""Longest answer where neither the request nor the model's card says."""


@final
class AnthropicModel:
    """Asks an endpoint that speaks Anthropic's messages: Anthropic's own and others.

    It needs the extra ``anthropic``. Nothing is imported or opened before the first request. One adapter serves any
    number of agents, in one run of trio at a time.

    The wire has no place for a seed, so it is left out. A model that is given a budget to think cannot be made to call
    a tool: with an effort and a ``tool_choice`` it chooses by itself.

    Args:
      model: What is asked when a route names no model.
      provider: Name of the provider in routes, settings and messages.
      base_url: The endpoint, up to and without ``/v1/messages``; ``$ANTHROPIC_BASE_URL`` or Anthropic's own if absent.
      api_key: The key; from the environment if absent. It is never logged, and no other credential that the
        environment has for the SDK is sent.
      key_env: Name of the variable of the environment that holds the key. Only Anthropic's own endpoint insists on one.
      limit: How many requests may be under way at once.
      silence: Seconds without a byte after which an attempt fails.
      cards: What is known of models, before the table that comes with creche; see `ModelCard`.
      retry: How failed attempts are tried again.
    """

    def __init__(
        self,
        model: str = "claude-sonnet-5-5",
        *,
        provider: str = "anthropic",
        base_url: str | None = None,
        api_key: str | None = None,
        key_env: str = "ANTHROPIC_API_KEY",
        limit: int = 20,
        silence: float = 300.0,
        cards: Mapping[str, ModelCard] | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        self.provider: str = provider
        """Name of the provider in routes and settings."""
        self.model: str = model
        """What is asked when a route names no model."""
        self.limiter: trio.CapacityLimiter | None = trio.CapacityLimiter(limit)
        """How many requests may be under way at once."""
        self._base_url = base_url
        self._api_key = api_key
        self._key_env = key_env
        self._silence = silence
        self._cards = (cards or {}, ANTHROPIC_CARDS)
        self._retry = retry or RetryPolicy()
        self._histories = Histories()
        self._connection = Connection(provider, sdk="anthropic", make=self._make_client, find_key=self._find_key)

    def opened(self) -> AbstractAsyncContextManager[object]:
        """Keep connections open for the length of the block; see `creche.models.KeepsOpen`."""
        return self._connection.opened()

    async def prepare(self, settings: Settings, /) -> PreparedCall:
        """Return what is known of a call before it is made. The longest answer is filled in, for the wire insists on it.

        Raises:
          ConfigError: The SDK is not installed.
          ModelError: There is no key.
        """
        await self._connection.check()
        card = find_card(settings.model, *self._cards)
        defaults: tuple[str, ...] = ()
        if settings.options.max_tokens is None:
            options = attrs.evolve(settings.options, max_tokens=card.max_tokens or DEFAULT_MAX_TOKENS)
            settings, defaults = attrs.evolve(settings, options=options), ("max_tokens",)
        return PreparedCall(
            settings,
            defaults=defaults,
            context_window=card.context_window,
            capabilities=card.capabilities,
            retry=self._retry,
        )

    def stream(self, request: ModelRequest, /) -> HttpAnswer:
        """Open the answer to a request."""
        card = find_card(request.settings.model, *self._cards)
        dialect = Dialect(
            provider=self.provider,
            images=card.capabilities.images,
            thinking=card.thinking,
            max_tokens=card.max_tokens or DEFAULT_MAX_TOKENS,
            reduce_schema=_reduce_schema,
        )
        return HttpAnswer(
            self._connection,
            path="/v1/messages",
            body=encode_body(request, dialect, self._histories),
            reader=MessagesReader(self._connection.error, provider=self.provider),
        )

    @property
    def _url(self) -> str:
        return self._base_url or os.environ.get("ANTHROPIC_BASE_URL") or ANTHROPIC_URL

    def _find_key(self) -> str:
        key = self._api_key or os.environ.get(self._key_env)
        if key:
            return key
        if ANTHROPIC_HOST in self._url or self._key_env != "ANTHROPIC_API_KEY":
            raise self._connection.error("credential", f"there is no API key: set {self._key_env}")
        return "none"  # a server on one's own machine wants none, and the SDK wants some

    def _make_client(self, sdk: Any, key: str) -> Any:
        import httpx2

        return sdk.AsyncAnthropic(
            api_key=key,
            base_url=self._url,
            max_retries=0,
            timeout=httpx2.Timeout(self._silence, connect=min(CONNECTING, self._silence), pool=None),
            # Said again, for what $ANTHROPIC_CUSTOM_HEADERS has comes before the key and after these.
            default_headers={"Authorization": f"Bearer {key}", "X-Api-Key": sdk.omit},
        )


def _reduce_schema(schema: dict[str, Any]) -> dict[str, Any]:
    from anthropic import transform_schema

    try:
        return transform_schema(schema)
    except ValueError:
        return schema  # it says less than the server wants to know, and the server says what

"""Anthropic's messages, with the official SDK."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import attrs
import trio

from creche._util import final

from .._chunks import Chunk
from .._model import PreparedCall, RetryPolicy
from .._request import ModelRequest, Settings
from ._anthropic_schema import NoPlaceError
from ._anthropic_stream import MessagesReader
from ._anthropic_wire import Dialect, encode_body
from ._cards import ANTHROPIC_CARDS, ModelCard, check_cards, find_card
from ._endpoint import Endpoint, limiter_of
from ._histories import Histories
from ._http import Connection, HttpAnswer

if TYPE_CHECKING:
    import httpx2

ANTHROPIC_URL = "https://api.anthropic.com"
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
      key_env: Name of the variable of the environment that holds the key. A name that is given is insisted on; the
        usual one only at Anthropic's own endpoint, though its key is sent to any other, too.
      limit: How many requests may be under way at once.
      silence: Seconds without a byte after which an attempt fails.
      cards: What is known of models, before the table that comes with creche; see `ModelCard`.
      retry: How failed attempts are tried again.

    Raises:
      ConfigError: Something given here could not work.
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
        self._endpoint = Endpoint(
            provider=provider,
            sdk="anthropic",
            own_url=ANTHROPIC_URL,
            url_env="ANTHROPIC_BASE_URL",
            own_key_env="ANTHROPIC_API_KEY",
            base_url=base_url,
            api_key=api_key,
            key_env=key_env,
            silence=silence,
        )
        self.provider: str = provider
        """Name of the provider in routes and settings."""
        self.model: str = model
        """What is asked when a route names no model."""
        self.limiter: trio.CapacityLimiter | None = limiter_of(limit)
        """How many requests may be under way at once."""
        self._cards = (check_cards(cards), ANTHROPIC_CARDS)
        self._retry = retry or RetryPolicy()
        self._histories = Histories()
        self._connection = Connection(self._endpoint, self._make_client)

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

    def stream(self, request: ModelRequest, /) -> AbstractAsyncContextManager[AsyncIterator[Chunk]]:
        """Open the answer to a request.

        Raises:
          ModelError: The schema of the answer has no place on the wire.
        """
        card = find_card(request.settings.model, *self._cards)
        dialect = Dialect(
            provider=self.provider,
            images=card.capabilities.images,
            thinking=card.thinking,
            max_tokens=card.max_tokens or DEFAULT_MAX_TOKENS,
        )
        try:
            body = encode_body(request, dialect, self._histories)
        except NoPlaceError as error:
            raise self._connection.error("invalid-request", f"output=: {error}") from None
        reader = MessagesReader(self._connection.error, provider=self.provider)
        return HttpAnswer(self._connection, path="/v1/messages", body=body, reader=reader)

    def _make_client(self, sdk: Any, key: str, http: "httpx2.AsyncClient") -> Any:
        return sdk.AsyncAnthropic(
            api_key=key,
            base_url=self._endpoint.url,
            max_retries=0,
            http_client=http,
            # Said again, for what $ANTHROPIC_CUSTOM_HEADERS has comes before the key and after these.
            default_headers={"Authorization": f"Bearer {key}", "X-Api-Key": sdk.omit},
        )

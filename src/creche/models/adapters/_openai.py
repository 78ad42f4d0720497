"""Chat completions, as OpenAI and many others speak them, with the official SDK."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import trio

from creche._util import final

from .._chunks import Chunk
from .._model import PreparedCall, RetryPolicy
from .._request import ModelRequest, Settings
from ._cards import DEEPSEEK_CARDS, OPENAI_CARDS, ModelCard, check_cards, find_card
from ._endpoint import Endpoint, limiter_of
from ._histories import Histories
from ._http import Connection, HttpAnswer
from ._openai_stream import ChatReader
from ._openai_wire import Dialect, encode_body
from ._wire import sign

if TYPE_CHECKING:
    import httpx2

OPENAI_URL = "https://api.openai.com/v1"


@final
class OpenAIModel:
    """Asks an endpoint that speaks OpenAI's chat completions: OpenAI, DeepSeek, vLLM, Ollama, llama.cpp and others.

    It needs the extra ``openai``. Nothing is imported or opened before the first request. One adapter serves any
    number of agents, in one run of trio at a time.

    Args:
      model: What is asked when a route names no model.
      provider: Name of the provider in routes, settings and messages.
      base_url: The endpoint, up to and without ``/chat/completions``; ``$OPENAI_BASE_URL`` or OpenAI's own if absent.
      api_key: The key; from the environment if absent. It is never logged.
      key_env: Name of the variable of the environment that holds the key. A name that is given is insisted on; the
        usual one only at OpenAI's own endpoint, though its key is sent to any other, too.
      limit: How many requests may be under way at once.
      silence: Seconds without a byte after which an attempt fails.
      cards: What is known of models, before the table that comes with creche; see `ModelCard`.
      replays_reasoning: Whether the endpoint wants reasoning of earlier answers back, as DeepSeek does.
      retry: How failed attempts are tried again.

    Raises:
      ConfigError: Something given here could not work.
    """

    def __init__(
        self,
        model: str = "gpt-5",
        *,
        provider: str = "openai",
        base_url: str | None = None,
        api_key: str | None = None,
        key_env: str = "OPENAI_API_KEY",
        limit: int = 20,
        silence: float = 300.0,
        cards: Mapping[str, ModelCard] | None = None,
        replays_reasoning: bool = False,
        retry: RetryPolicy | None = None,
    ) -> None:
        self._endpoint = Endpoint(
            provider=provider,
            sdk="openai",
            own_url=OPENAI_URL,
            url_env="OPENAI_BASE_URL",
            own_key_env="OPENAI_API_KEY",
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
        self._cards = (check_cards(cards), OPENAI_CARDS)
        self._replays_reasoning = replays_reasoning
        self._retry = retry or RetryPolicy()
        self._histories = Histories()
        self._connection = Connection(self._endpoint, self._make_client)

    def opened(self) -> AbstractAsyncContextManager[object]:
        """Keep connections open for the length of the block; see `creche.models.KeepsOpen`."""
        return self._connection.opened()

    async def prepare(self, settings: Settings, /) -> PreparedCall:
        """Return what is known of a call before it is made.

        Raises:
          ConfigError: The SDK is not installed.
          ModelError: There is no key.
        """
        await self._connection.check()
        card = find_card(settings.model, *self._cards)
        return PreparedCall(
            settings, context_window=card.context_window, capabilities=card.capabilities, retry=self._retry
        )

    def stream(self, request: ModelRequest, /) -> AbstractAsyncContextManager[AsyncIterator[Chunk]]:
        """Open the answer to a request."""
        dialect = Dialect(
            provider=self.provider,
            is_openai=self._endpoint.is_own,
            replays_reasoning=self._replays_reasoning,
            images=find_card(request.settings.model, *self._cards).capabilities.images,
        )
        signature = sign(self.provider) if self._replays_reasoning else ""
        return HttpAnswer(
            self._connection,
            path="/chat/completions",
            body=encode_body(request, dialect, self._histories),
            reader=ChatReader(self._connection.error, signature=signature),
        )

    def _make_client(self, sdk: Any, key: str, http: "httpx2.AsyncClient") -> Any:
        return sdk.AsyncOpenAI(api_key=key, base_url=self._endpoint.url, max_retries=0, http_client=http)


def deepseek() -> OpenAIModel:
    """Return the adapter of DeepSeek's own endpoint."""
    return OpenAIModel(
        "deepseek-chat",
        provider="deepseek",
        base_url="https://api.deepseek.com",
        key_env="DEEPSEEK_API_KEY",
        cards=DEEPSEEK_CARDS,
        replays_reasoning=True,
    )


def openrouter() -> OpenAIModel:
    """Return the adapter of OpenRouter."""
    return OpenAIModel(
        "openrouter/auto",
        provider="openrouter",
        base_url="https://openrouter.ai/api/v1",
        key_env="OPENROUTER_API_KEY",
    )


def ollama() -> OpenAIModel:
    """Return the adapter of Ollama on this machine."""
    return OpenAIModel("llama3.2", provider="ollama", base_url="http://127.0.0.1:11434/v1")

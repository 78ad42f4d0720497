"""The seam to models: what an adapter is, and how one is found by name."""

import math
import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol, runtime_checkable

import attrs
import trio

from creche._util import (
    clean_all,
    is_a,
    is_bool,
    is_count,
    is_duration,
    is_none_or,
    is_one_of,
    is_tuple_of,
    is_whole,
    shown,
)
from creche.errors import ConfigError, ModelError

from ._chunks import Chunk
from ._request import ModelRequest, Settings

_A_YEAR = 365 * 24 * 3600.0


@attrs.frozen
class RetryPolicy:
    """How often and after how long a failed attempt is tried again, inside the open step."""

    retries: int = attrs.field(default=5, validator=is_count)
    """Attempts after the first."""
    first_delay: float = attrs.field(default=0.5, validator=is_duration, kw_only=True)
    """Seconds before the second attempt; doubled for each further one."""
    longest_delay: float = attrs.field(default=10.0, validator=is_duration, kw_only=True)
    """Seconds; what the provider asks for is waited for even if it is longer, up to `longest_asked`."""
    longest_asked: float = attrs.field(default=120.0, validator=is_duration, kw_only=True)
    """Seconds; a provider that asks for a longer wait is not waited for: the error comes out, and says what it asked."""
    jitter: float = attrs.field(default=0.1, validator=is_duration, kw_only=True)
    """Up to this share of the delay is added at random."""

    def delay(self, error: ModelError, attempt: int) -> float | None:
        """Return the seconds to wait after attempt 1, 2, ..., or ``None`` to give up."""
        if not error.retryable or attempt > self.retries:
            return None
        asked = error.retry_after
        if asked is not None and math.isfinite(asked):
            return max(asked, 0.0) if asked <= self.longest_asked else None
        # No float is longer than 2 ** 1023.
        delay = min(self.first_delay * 2.0 ** min(attempt - 1, 1000), self.longest_delay)
        return min(delay * (1 + self.jitter * random.random()), _A_YEAR)


@attrs.frozen
class Capabilities:
    """What a model can do beyond text and tools."""

    images: bool = attrs.field(default=False, validator=is_bool)
    """Whether it sees images."""
    structured_output: bool = attrs.field(default=False, validator=is_bool, kw_only=True)
    """Whether an answer can be held to a JSON Schema."""
    system_prompt_update: Literal["in-history"] | None = attrs.field(
        default=None, validator=is_none_or(is_one_of("in-history")), kw_only=True
    )
    """Whether a changed system prompt may be appended after the cached history."""
    tool_update: Literal["addition-only", "in-history"] | None = attrs.field(
        default=None, validator=is_none_or(is_one_of("addition-only", "in-history")), kw_only=True
    )
    """Whether the model can be told of tools that come and go."""


@attrs.frozen
class PreparedCall:
    """What an adapter says about one call before it is made."""

    settings: Settings = attrs.field(validator=is_a(Settings))
    """The settings with the adapter's defaults filled in."""
    defaults: tuple[str, ...] = attrs.field(
        default=(), converter=clean_all, validator=is_tuple_of(str, "texts"), kw_only=True
    )
    """Names of the options that were filled in."""
    context_window: int | None = attrs.field(default=None, validator=is_none_or(is_whole), kw_only=True)
    """Tokens that fit, if known."""
    capabilities: Capabilities = attrs.field(factory=Capabilities, validator=is_a(Capabilities), kw_only=True)
    """What the model can do."""
    retry: RetryPolicy = attrs.field(factory=RetryPolicy, validator=is_a(RetryPolicy), kw_only=True)
    """How failed attempts are tried again."""


class Model(Protocol):
    """An adapter: it knows one provider's wire and nothing of agents.

    One adapter serves any number of agents at once. The SDK's own retries are switched off.
    """

    @property
    def provider(self) -> str:
        """Name of the provider, for settings and messages."""
        ...

    @property
    def model(self) -> str:
        """Name of the model to ask when a route names none."""
        ...

    @property
    def limiter(self) -> trio.CapacityLimiter | None:
        """How many requests may be under way at once; ``None`` is any number."""
        ...

    async def prepare(self, settings: Settings, /) -> PreparedCall:
        """Return what is known of a call before it is made.

        Contract: may wait; raises `ModelError` for a model it does not have, and `ConfigError` if it cannot ask at all.
        """
        ...

    def stream(self, request: ModelRequest, /) -> AbstractAsyncContextManager[AsyncIterator[Chunk]]:
        """Open the answer to a request.

        Contract: raises `ModelError` on entering or from the iterator; the last chunk is `Finished`; leaving the
        block, also when cancelled, closes the connection. Ids of calls are as the wire has them.
        """
        ...


@runtime_checkable
class KeepsOpen(Protocol):
    """What a `Model` may be besides: one that keeps something open between requests, such as connections.

    A host keeps every such model open that its agents ask, until it ends. A model around another one has to pass it on.
    """

    def opened(self) -> AbstractAsyncContextManager[object]:
        """Keep it open for the length of the block.

        Contract: blocks overlap, and the last one to end closes what is open; entering neither waits nor fails, for
        what is needed is opened by the request that needs it; a request outside of any block opens and closes for
        itself.
        """
        ...


def check_model_given(given: object, where: str) -> None:
    """Refuse what is neither an adapter nor a text.

    Raises:
      ConfigError: It is neither; the sentence says what to give.
    """
    if given is not None and not isinstance(given, str) and not hasattr(given, "stream"):
        raise ConfigError([(where, f"an adapter or 'provider:model', not {shown(given)}")])

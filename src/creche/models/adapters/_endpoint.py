"""Where an adapter asks over HTTP, with what key, and how long it waits."""

import math
import os
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import attrs
import trio

from creche.errors import ConfigError

from .._failures import provider_error

if TYPE_CHECKING:
    import httpx2

CONNECTING = 10.0
"""Seconds in which a connection is made."""
NO_KEY = "none"
"""Stands for a key where none is needed, for the SDKs want one."""


def limiter_of(limit: int) -> trio.CapacityLimiter:
    """Return the limiter of an adapter.

    Raises:
      ConfigError: The limit is none.
    """
    if type(limit) is not int or limit < 1:
        raise ConfigError([("limit", f"an adapter needs room for at least one request at once, not {limit!r}")])
    return trio.CapacityLimiter(limit)


@attrs.frozen(kw_only=True)
class Endpoint:
    """Where an adapter asks. Address and key may be in the environment, which is read when a connection is opened.

    Raises:
      ConfigError: A value is none that could work; all problems at once.
    """

    provider: str
    """Name of the provider, for messages."""
    sdk: str
    """Name of the SDK's package, and of the extra that installs it."""
    own_url: str
    """The provider's own address."""
    url_env: str
    """Name of the variable that may have another one."""
    own_key_env: str
    """Name of the variable that has the key, if no other is named."""
    base_url: str | None
    """The address; from the environment, or the provider's own, if absent."""
    api_key: str | None = attrs.field(repr=False)
    """The key; from the environment if absent."""
    key_env: str
    """Name of the variable that has the key."""
    silence: float
    """Seconds without a byte after which an attempt fails."""

    def __attrs_post_init__(self) -> None:
        problems: list[tuple[str, str]] = []
        if not self.provider or ":" in self.provider:
            problems.append(("provider", f"{self.provider!r} cannot be the name of a provider: a text without a colon"))
        if self.base_url is not None and not _is_address(self.base_url):
            problems.append(("base_url", f"{self.base_url!r} is no address; write http://HOST:PORT/v1"))
        if not 0 < self.silence < math.inf:
            problems.append(("silence", f"a number of seconds above zero, not {self.silence!r}"))
        if problems:
            raise ConfigError(problems)

    @property
    def url(self) -> str:
        """The address.

        Raises:
          ConfigError: The one in the environment is none.
        """
        url = self.base_url or os.environ.get(self.url_env) or self.own_url
        if not _is_address(url):
            raise ConfigError(
                [("model", f"${self.url_env} is {url!r}, which is no address; write http://HOST:PORT/v1")]
            )
        return url

    @property
    def is_own(self) -> bool:
        """Whether it is the provider's own address."""
        return urlsplit(self.url).hostname == urlsplit(self.own_url).hostname

    def find_key(self) -> str:
        """Return the key.

        Raises:
          ModelError: There is none, or one that cannot be sent.
        """
        key = (self.api_key or os.environ.get(self.key_env, "")).strip()
        if not key:
            if self.is_own or self.key_env != self.own_key_env:
                raise provider_error(
                    self.provider, "credential", f"there is no API key: set {self.key_env}", has_cure=True
                )
            return NO_KEY  # a server on one's own machine wants none
        if not key.isascii() or not key.isprintable():
            where = "api_key=" if self.api_key else f"${self.key_env}"
            raise provider_error(self.provider, "credential", f"{where} has characters that no key has")
        return key

    def timeout(self) -> "httpx2.Timeout":
        """Return how long is waited for what. For a connection out of the pool, as long as it takes."""
        import httpx2

        return httpx2.Timeout(self.silence, connect=min(CONNECTING, self.silence), pool=None)


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False

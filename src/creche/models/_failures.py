"""The one table of how a model request fails: whether it may be tried again, and whose fault it is.

Adapters translate what their SDK raises through `failure_of_status` and `model_error`; the loop reads
`ModelError.retryable` and ``retry_after`` and nothing else.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import attrs

from creche.errors import ContextOverflowError, ModelError


@attrs.frozen
class Failure:
    """One kind of failure."""

    code: str
    """Its stable name."""
    retryable: bool = attrs.field(kw_only=True)
    """Whether the same request may succeed later."""
    fault: Literal["caller", "provider", "network", "model"] = attrs.field(kw_only=True)
    """Whose fault it is."""
    cure: str = attrs.field(kw_only=True)
    """What to do about it, a sentence."""


def _table(*failures: Failure) -> Mapping[str, Failure]:
    return MappingProxyType({failure.code: failure for failure in failures})


FAILURES: Mapping[str, Failure] = _table(
    Failure("credential", retryable=False, fault="caller", cure="check the API key in the environment"),
    Failure("invalid-request", retryable=False, fault="caller", cure="the provider's sentence says what it refused"),
    Failure("unknown-model", retryable=False, fault="caller", cure="check the model's name and the base URL"),
    Failure("context-overflow", retryable=False, fault="caller", cure="shorten or compact the history"),
    Failure("quota", retryable=False, fault="caller", cure="the account has no credit or quota left"),
    Failure("rate-limit", retryable=True, fault="caller", cure="wait, or lower the limit of concurrent requests"),
    Failure("overloaded", retryable=True, fault="provider", cure="wait, or use a fallback model"),
    Failure("server", retryable=True, fault="provider", cure="wait, or use a fallback model"),
    Failure("timeout", retryable=True, fault="network", cure="the provider did not answer in time"),
    Failure("transport", retryable=True, fault="network", cure="check the network and the base URL"),
    Failure("stream-cut", retryable=True, fault="network", cure="the connection broke in the middle of an answer"),
    Failure("malformed", retryable=True, fault="provider", cure="the provider sent what its protocol does not allow"),
    Failure("empty-response", retryable=True, fault="model", cure="the model said nothing"),
    Failure("script-exhausted", retryable=False, fault="caller", cure="add items to the script"),
    Failure("unknown", retryable=False, fault="provider", cure="the message is all that is known"),
)
"""Every kind of failure by its code."""

_OVERFLOW = re.compile(r"context.{0,20}(length|window)|maximum context|too many tokens|prompt is too long", re.IGNORECASE)
_QUOTA = re.compile(r"insufficient.quota|billing|credit balance|quota exceeded", re.IGNORECASE)
_MODEL = re.compile(r"model.{0,60}(not found|does not exist|not exist|unknown)", re.IGNORECASE)


def failure_of_status(status: int, text: str = "") -> str:
    """Return the code of a failure from an HTTP status and the text of the answer."""
    if status in (400, 413) and _OVERFLOW.search(text):
        return "context-overflow"
    if status in (400, 402, 403, 429) and _QUOTA.search(text):
        return "quota"
    if status == 404 or (status == 400 and _MODEL.search(text)):
        return "unknown-model"
    if status in (401, 403):
        return "credential"
    if status == 408:
        return "timeout"
    if status == 429:
        return "rate-limit"
    if status in (503, 529):
        return "overloaded"
    if status >= 500:
        return "server"
    return "invalid-request"


def model_error(code: str, message: str, *, provider: str = "", retry_after: float | None = None) -> ModelError:
    """Return the error of one kind of failure.

    Args:
      code: A code of `FAILURES`.
      message: What happened, without keys or headers.
      provider: Name of the provider.
      retry_after: Seconds to wait, a float, if the provider said so.
    """
    failure = FAILURES[code]
    kind = ContextOverflowError if code == "context-overflow" else ModelError
    return kind(message, provider=provider, retryable=failure.retryable, retry_after=retry_after, code=code)

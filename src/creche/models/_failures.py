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
    Failure("no-endpoint", retryable=False, fault="caller", cure="check the base URL; it usually ends in /v1"),
    Failure("stream-cut", retryable=True, fault="network", cure="the connection broke in the middle of an answer"),
    Failure("malformed", retryable=True, fault="provider", cure="the provider sent what its protocol does not allow"),
    Failure("empty-response", retryable=True, fault="model", cure="the model said nothing"),
    Failure("script-exhausted", retryable=False, fault="caller", cure="add items to the script"),
    Failure("unknown", retryable=False, fault="provider", cure="the message is all that is known"),
)
"""Every kind of failure by its code."""

# By status and wording, the first that fits; else by status alone.
_WORDINGS = (
    (
        (400, 413),
        re.compile(
            r"context.{0,20}(length|window|size)|maximum context|too many tokens|(prompt|input) is too long"
            r"|token count.{0,40}exceeds",
            re.IGNORECASE,
        ),
        "context-overflow",
    ),
    (
        (400, 403, 429),
        re.compile(r"insufficient.(quota|balance|credit|funds)|billing|credit balance|quota exceeded", re.IGNORECASE),
        "quota",
    ),
    ((400,), re.compile(r"model.{0,60}(not found|does not exist|not exist|unknown)", re.IGNORECASE), "unknown-model"),
)
_STATUSES = {
    401: "credential",
    402: "quota",
    403: "credential",
    404: "unknown-model",
    408: "timeout",
    429: "rate-limit",
    503: "overloaded",
    529: "overloaded",
}
_FIRST_SERVER_STATUS = 500
# Words of the providers for a kind of error, where they say more than the status, or come without one.
_KINDS = {
    "authentication_error": "credential",
    "billing_error": "quota",
    "context_length_exceeded": "context-overflow",
    "insufficient_quota": "quota",
    "invalid_api_key": "credential",
    "model_not_found": "unknown-model",
    "overloaded_error": "overloaded",
    "permission_error": "credential",
    "rate_limit_error": "rate-limit",
    "rate_limit_exceeded": "rate-limit",
    "request_too_large": "context-overflow",
    "timeout_error": "timeout",
}


def failure_of_status(status: int, text: str = "", *, kind: str = "") -> str:
    """Return the code of a failure.

    Args:
      status: The HTTP status; 0 for an error that came in the middle of a stream.
      text: What the provider says.
      kind: The provider's words for it, such as ``"overloaded_error"``, divided by blanks.
    """
    words = kind.split()
    for word in words:
        if word in _KINDS:
            return _KINDS[word]
    for statuses, wording, code in _WORDINGS:
        if (not status or status in statuses) and wording.search(text):
            return code
    if not status:
        return "invalid-request" if "invalid_request_error" in words else "server"
    return _STATUSES.get(status, "server" if status >= _FIRST_SERVER_STATUS else "invalid-request")


def model_error(code: str, message: str, *, provider: str = "", retry_after: float | None = None) -> ModelError:
    """Return the error of one kind of failure.

    Args:
      code: A code of `FAILURES`.
      message: What happened, without keys or headers.
      provider: Name of the provider.
      retry_after: Seconds to wait, a float, if the provider said so.

    Raises:
      ValueError: The table has no such code; the message lists those it has.
    """
    failure = FAILURES.get(code)
    if failure is None:
        raise ValueError(f"no kind of failure has the code {code!r}; there are {', '.join(FAILURES)}")
    kind = ContextOverflowError if code == "context-overflow" else ModelError
    return kind(message, provider=provider, retryable=failure.retryable, retry_after=retry_after, code=code)


def provider_error(
    provider: str, code: str, text: str, *, retry_after: float | None = None, has_cure: bool = False
) -> ModelError:
    """Return the error of one kind of failure whose sentence says who, what, and what to do about it.

    Args:
      provider: Name of the provider.
      code: A code of `FAILURES`.
      text: What happened, without keys or headers.
      retry_after: Seconds to wait, a float, if the provider said so.
      has_cure: Whether the text says what to do, better than the table does.
    """
    sentence = f"{provider}: {text}" if has_cure else f"{provider}: {text} ({FAILURES[code].cure})"
    return model_error(code, sentence, provider=provider, retry_after=retry_after)

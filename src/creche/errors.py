"""Every exception of creche, in one tree.

Everything raised on purpose is a `CrecheError`. A bug, ours or a plugin's, is an `InternalError`,
which is not a `CrecheError`, so that ``except CrecheError`` never hides one. Cancellation is trio's
own `trio.Cancelled`; `TurnCancelled` is what a *waiter* gets when somebody else cancelled the turn.

A message says what is wrong, where, what is known, and what to do.
"""

from collections.abc import Iterable

__all__ = [
    "AgentClosedError",
    "AgentError",
    "AuthorityError",
    "CodeError",
    "ConfigError",
    "ContextOverflowError",
    "CorruptLogError",
    "CrecheError",
    "DuplicateNameError",
    "IllegalRecordError",
    "InternalError",
    "InvalidArgumentsError",
    "LimitReachedError",
    "ModelError",
    "NotRegisteredError",
    "PluginError",
    "PortalError",
    "PromptError",
    "RegistryError",
    "ScopeBoundError",
    "ScopeClosedError",
    "ScopeCycleError",
    "ScopeError",
    "ScriptExhaustedError",
    "SessionError",
    "StoreError",
    "ToolError",
    "ToolFailed",
    "ToolRetry",
    "TurnCancelled",
    "TurnRefused",
    "UnsupportedCapabilityError",
]


class InternalError(Exception):
    """A bug, ours or a plugin's. The original exception is its ``__cause__``."""


class CrecheError(Exception):
    """Base of everything creche raises on purpose."""


# ---------------------------------------------------------------- scopes and the registry


class ScopeError(CrecheError):
    """A link between scope keys was refused."""


class ScopeBoundError(ScopeError):
    """The key already has a parent; only the holder of its binding may move it."""


class ScopeCycleError(ScopeError):
    """The link would make a scope its own ancestor."""


class RegistryError(CrecheError):
    """An entry could not be registered or found."""


class DuplicateNameError(RegistryError):
    """The name is taken in this very scope."""


class NotRegisteredError(RegistryError, LookupError):
    """Nothing of that name is visible; the message says what is."""


class ScopeClosedError(RegistryError):
    """The owner or the scope is closing or closed; nothing can be registered for it."""


class PluginError(CrecheError):
    """A plugin lacks a requirement or its setup failed; the message names the plugin."""


class ConfigError(CrecheError):
    """A preset or settings value is wrong.

    Args:
      problems: Pairs of a path and a sentence, all of them at once.
    """

    def __init__(self, problems: Iterable[tuple[str, str]]) -> None:
        self.problems: tuple[tuple[str, str], ...] = tuple(problems)
        super().__init__(_sentences(self.problems))


class PortalError(CrecheError):
    """trio was used from outside of it without a portal, or through a portal that is closed."""


class PromptError(CrecheError):
    """The prompt could not be assembled or rendered; the message names the entry and its owner."""


# ---------------------------------------------------------------- the log


class SessionError(CrecheError):
    """The session log refused something."""


class IllegalRecordError(SessionError):
    """This record cannot follow the last one; the log is unchanged."""


class CorruptLogError(SessionError):
    """A stored log does not read back; the message has the line and what was expected."""


class StoreError(SessionError):
    """What was appended could not be made durable: disk full, folder gone, no permission."""


# ---------------------------------------------------------------- models


class ModelError(CrecheError):
    """A model request failed.

    Args:
      message: What went wrong, without keys or headers.
      provider: Name of the provider the request went to, if known.
      retryable: Whether the same request may succeed later.
      retry_after: Seconds to wait before the next attempt, a float, if the provider said so.
      code: Stable name of the kind of failure (see `creche.models.FAILURES`).
    """

    def __init__(
        self,
        message: str,
        *,
        provider: str = "",
        retryable: bool = False,
        retry_after: float | None = None,
        code: str = "unknown",
    ) -> None:
        super().__init__(message)
        self.provider = provider
        self.retryable = retryable
        self.retry_after = retry_after
        self.code = code


class ContextOverflowError(ModelError):
    """The request is larger than the model's context window."""


class ScriptExhaustedError(ModelError):
    """A scripted model has nothing more to say.

    Args:
      message: What was asked of it.
      path: Path of the agent that asked.
    """

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message, provider="scripted", code="script-exhausted")
        self.path = path


# ---------------------------------------------------------------- tools


class ToolError(CrecheError):
    """A tool call failed; the model is told and the turn goes on."""


class ToolFailed(ToolError):  # noqa: N818 - raised by a tool's author as a statement
    """Raised by a tool: it is over, calling again will not help."""


class ToolRetry(ToolError):  # noqa: N818 - raised by a tool's author as a statement
    """Raised by a tool: call me again, differently; the message says how."""


class InvalidArgumentsError(ToolError):
    """The arguments of a call do not fit the tool.

    Args:
      problems: Pairs of a path (``"items[2].count"``; ``""`` for the whole) and a sentence, all of them at once.
    """

    def __init__(self, problems: Iterable[tuple[str, str]]) -> None:
        self.problems: tuple[tuple[str, str], ...] = tuple(problems)
        super().__init__(_sentences(self.problems))


# ---------------------------------------------------------------- agents


class AgentError(CrecheError):
    """An agent could not do what was asked of it."""


class AgentClosedError(AgentError):
    """The agent does not run any more."""


class TurnCancelled(AgentError):  # noqa: N818 - what a waiter is told, as a statement
    """The turn that held the message was cancelled.

    Args:
      message: Which turn of which agent.
      cause: Who cancelled it: ``"user"``, ``"parent"``, ``"closed"`` or the text given to ``cancel``.
    """

    def __init__(self, message: str, *, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


class TurnRefused(AgentError):  # noqa: N818 - what a waiter is told, as a statement
    """A wrapper around the step said no.

    Args:
      message: Which turn of which agent.
      reason: What the wrapper gave as its reason.
    """

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class LimitReachedError(AgentError):
    """A limit stopped the work; the message names the limit, its value and who set it.

    Args:
      message: The sentence for people.
      code: Stable name of the limit: ``"depth"``, ``"breadth"``, ``"spawns"``, ``"tokens"``...
    """

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class AuthorityError(AgentError):
    """A child could do more than its parent, and no grant of its preset says so."""


class UnsupportedCapabilityError(AgentError):
    """What was asked for is not offered by the provider, or not yet by this version; the message names it."""


class CodeError(CrecheError):
    """A program of a code-mode agent failed.

    Args:
      message: What went wrong, with what the program had printed.
      kind: ``exception | timeout | cancelled | killed | invalid_output | output_limit``.
    """

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


def _sentences(problems: Iterable[tuple[str, str]]) -> str:
    return "; ".join([f"{path}: {sentence}" if path else sentence for path, sentence in problems])

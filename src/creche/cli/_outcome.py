"""How the work on a task came out, for people and for programs."""

import attrs

from creche.agent import Reply
from creche.models import Usage

from ._ending import FAILED
from ._progress import Progress
from ._told import CUT_OFF, REFUSED


@attrs.frozen
class End:
    """How a task ended."""

    outcome: str = "failed"
    """Of the lead's turn; ``"failed"`` if there is no reply."""
    answer: str = attrs.field(default="", kw_only=True)
    """What the lead said, whole or cut off."""
    note: str = attrs.field(default="", kw_only=True)
    """What is to be known of an answer that is one."""
    error: str = attrs.field(default="", kw_only=True)
    """Why there is none, a sentence."""
    code: int = attrs.field(default=FAILED, kw_only=True)
    """The exit code."""

    def told(self, usage: Usage, log: str | None) -> dict[str, object]:
        """Return it for programs.

        Args:
          usage: What it cost.
          log: Where the log is.
        """
        told: dict[str, object] = {
            "answer": self.answer,
            "outcome": self.outcome,
            "usage": attrs.asdict(usage),
            "log": log,
        }
        return told | {"error": self.error} if self.error else told


def end_of(reply: Reply | None) -> End:
    """Return how a task ended that got a reply; ``None`` if nobody read it."""
    if reply is None:
        return End()
    if reply.outcome == "refused":
        return End("refused", answer=reply.text, error=REFUSED, code=FAILED)
    return End(reply.outcome, answer=reply.text, note=CUT_OFF if reply.outcome == "truncated" else "", code=0)


def account(progress: Progress) -> str:
    """Return what all of it cost, and where the log is."""
    usage: Usage = progress.usage
    return (
        f"{usage.requests:,} request{'' if usage.requests == 1 else 's'}, {usage.input_tokens:,} input tokens "
        f"({usage.cached_tokens:,} cached), {usage.output_tokens:,} output tokens; {progress.where}"
    )

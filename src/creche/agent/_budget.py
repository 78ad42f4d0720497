"""Limits of a tree of agents.

A budget belongs to an agent and covers everything below it; a child's can only be tighter. This version
holds depth and requests; the other limits are refused rather than ignored.
"""

from collections.abc import Sequence

import attrs

from creche.errors import LimitReachedError, UnsupportedCapabilityError

DEFAULT_DEPTH = 3


@attrs.frozen
class Budget:
    """What an agent and everything below it may use.

    Raises:
      UnsupportedCapabilityError: A limit other than depth and requests is set.
      ValueError: The depth is no number of levels, or the requests are no number of requests.
    """

    tokens: int | None = attrs.field(default=None, kw_only=True)
    """Tokens read and written. Not held by this version, so it is refused."""
    cost: float | None = attrs.field(default=None, kw_only=True)
    """Money. Not held by this version, so it is refused."""
    requests: int | None = attrs.field(default=None, kw_only=True)
    """Model requests, every attempt counted once, over the life of the agent and of everything below it."""
    tool_calls: int | None = attrs.field(default=None, kw_only=True)
    """Tool calls. Not held by this version, so it is refused."""
    seconds: float | None = attrs.field(default=None, kw_only=True)
    """Time. Not held by this version, so it is refused; use a cancel scope."""
    depth: int | None = attrs.field(default=None, kw_only=True)
    """How many levels of subagents there may be below the agent; 0 forbids them."""
    breadth: int | None = attrs.field(default=None, kw_only=True)
    """Live children of one agent. Not held by this version, so it is refused."""
    spawns: int | None = attrs.field(default=None, kw_only=True)
    """Subagents in all. Not held by this version, so it is refused."""

    def __attrs_post_init__(self) -> None:
        refused = [
            name
            for name in ("tokens", "cost", "tool_calls", "seconds", "breadth", "spawns")
            if getattr(self, name) is not None
        ]
        if refused:
            raise UnsupportedCapabilityError(
                f"Budget({', '.join(f'{name}=...' for name in refused)}) is not held by this version of creche; "
                "depth and requests are"
            )
        if self.depth is not None and (type(self.depth) is not int or self.depth < 0):
            raise ValueError(f"Budget(depth={self.depth!r}): a depth is a whole number, 0 or more")
        if self.requests is not None and (type(self.requests) is not int or self.requests < 1):
            raise ValueError(f"Budget(requests={self.requests!r}): a limit of requests is a whole number, 1 or more")


@attrs.frozen
class DepthLimit:
    """The deepest level at which an agent of one tree may stand, and who says so."""

    deepest: int
    """Counted from the root, which is at 0."""
    owner: str = attrs.field(kw_only=True)
    """Path of the agent whose budget it is."""

    def tightened(self, budget: Budget | None, depth: int, path: str) -> "DepthLimit":
        """Return the limit for an agent with a budget of its own."""
        if budget is None or budget.depth is None or depth + budget.depth >= self.deepest:
            return self
        return DepthLimit(depth + budget.depth, owner=path)

    def check(self, depth: int, path: str) -> None:
        """Refuse an agent that would stand too deep.

        Raises:
          LimitReachedError: It would; ``code`` is ``"depth"``.
        """
        if depth > self.deepest:
            raise LimitReachedError(
                f"agent {path!r} would stand {depth} levels below the root, and {self.owner!r} allows {self.deepest} "
                "(Budget(depth=...)); do the work yourself",
                code="depth",
            )


@attrs.define(eq=False)
class Allowance:
    """How many requests an agent and everything below it may make together, and how many they have made."""

    most: int
    """How many."""
    owner: str = attrs.field(kw_only=True)
    """Path of the agent whose budget it is."""
    used: int = attrs.field(default=0, init=False)
    """How many they have made."""


def allow(budget: Budget | None, owner: str) -> tuple[Allowance, ...]:
    """Return what a budget allows an agent, if it limits requests."""
    return () if budget is None or budget.requests is None else (Allowance(budget.requests, owner=owner),)


def take_request(allowances: Sequence[Allowance], path: str) -> None:
    """Take a request out of every allowance. Synchronous, so nobody takes the last one twice.

    Raises:
      LimitReachedError: One of them is used up, and nothing is taken; ``code`` is ``"requests"``.
    """
    for allowance in allowances:
        if allowance.used >= allowance.most:
            raise LimitReachedError(
                f"agent {path!r} may make no further request: {allowance.owner!r} and everything below it may make "
                f"{allowance.most} (Budget(requests=...)), and have",
                code="requests",
            )
    for allowance in allowances:
        allowance.used += 1

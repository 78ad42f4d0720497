"""What a body can know of the call it serves, and what it can say besides its result.

Rule 1: what a body defers joins the history after all results of the step, calls in the model's order, what is
part of a call in the order in which it was called. A call that failed keeps what it deferred; one that `Block`
took back does not.
Rule 2: a call concludes the turn only if it succeeds.
Rule 3: the time that a call waits for an approval counts towards no time limit: neither its own, nor that of a call
that it is part of, nor that of a call whose body runs the agent that makes it.
"""

import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ClassVar, cast

import attrs
import trio

from creche._util import final
from creche.messages import Part, UserMessage
from creche.prompt import AgentView
from creche.scope import Notification, Registry, ScopeKey

from ._gate import Gate

calling: ContextVar["ToolContext | None"] = ContextVar("calling", default=None)
"""The call whose body runs in this task, or started it: what an agent does that runs in the body is done for it."""

DEFERRED_SOURCE = "tool"
"""Source of the messages that a body defers."""


@attrs.frozen
class ToolProgressed(Notification):
    """A body says how far it is; dispatched at its agent's scope. Not logged."""

    wire_name: ClassVar[str] = "tools/progressed"
    agent_path: str
    """Path of the agent; ``""`` if a program calls the tool without one."""
    call_id: str = attrs.field(kw_only=True)
    """Id of the call."""
    name: str = attrs.field(kw_only=True)
    """Name of the tool."""
    text: str = attrs.field(kw_only=True)
    """What it does at the moment, for people."""
    done: float | None = attrs.field(default=None, kw_only=True)
    """How much is done, if that can be told."""
    total: float | None = attrs.field(default=None, kw_only=True)
    """How much there is to do, in the same unit."""


async def _nothing() -> None:
    """Wait for nothing."""


@attrs.frozen(eq=False, kw_only=True)
class CallStep:
    """What the calls of one step share."""

    offered: frozenset[str] | None = None
    """Names of the tools in the step's request; ``None`` when there was none, so that the view alone decides."""
    inside: Collection[str] | None = None
    """Names of the tools that its prompt described to programs; ``None`` when there was no prompt."""
    counts: dict[str, int] = attrs.field(factory=dict[str, int])
    """How often the agent has called each tool; added to, in the model's order."""
    approvals: dict[tuple[str, str], trio.StrictFIFOLock] = attrs.field(
        factory=dict[tuple[str, str], trio.StrictFIFOLock], repr=False
    )
    """Whose turn it is to ask for an approval, by tool and subject."""
    checkpoint: Callable[[], Awaitable[None]] = _nothing
    """Awaited before a body begins: its record is durable by then."""

    def count(self, name: str) -> int:
        """Count one more call of a tool; return which it is, from 1."""
        number = self.counts[name] = self.counts.get(name, 0) + 1
        return number


class TimeLimit:
    """A cancel scope with a deadline that stands still while somebody thinks about an approval."""

    __slots__ = ("_left", "_pauses", "scope")

    def __init__(self) -> None:
        self.scope: trio.CancelScope = trio.CancelScope()
        """What the deadline ends."""
        self._pauses = 0
        self._left = 0.0

    def start(self, seconds: float) -> None:
        """Let the time begin."""
        self.scope.deadline = trio.current_time() + seconds

    def pause(self) -> None:
        """Stop the clock, once more than it was resumed."""
        if self._pauses == 0:
            self._left = self.scope.deadline - trio.current_time()
            self.scope.deadline = math.inf
        self._pauses += 1

    def resume(self) -> None:
        """Let it run again, when this was called as often as `pause`."""
        self._pauses -= 1
        if self._pauses == 0:
            self.scope.deadline = trio.current_time() + self._left


@final
@attrs.define(eq=False)
class ToolContext:
    """What a body can know of the call it serves; injected into a parameter annotated with this class."""

    agent: AgentView | None
    """The agent that calls; ``None`` when a program calls the tool without one."""
    registry: Registry = attrs.field(kw_only=True, repr=False)
    """The shared registry."""
    call_id: str = attrs.field(kw_only=True)
    """Id of the call."""
    name: str = attrs.field(kw_only=True)
    """Name of the tool that was called."""
    number: int = attrs.field(kw_only=True)
    """Which call of this tool by this agent it is, from 1, in the model's order: the same from run to run."""
    parent: "ToolContext | None" = attrs.field(default=None, kw_only=True, repr=False)
    """The call that this one is part of, such as that of ``run_code``; ``None`` if the model made it itself."""
    outer: "ToolContext | None" = attrs.field(factory=calling.get, kw_only=True, repr=False)
    """The call whose body runs the agent: of the agent above, when this one is a subagent that it waits for."""
    step: CallStep | None = attrs.field(default=None, kw_only=True, repr=False)
    """What the calls of its step share; ``None`` when a program calls the tool without a step."""
    began: bool = attrs.field(default=False, init=False)
    """Whether the body has begun, in its thread if it has one."""
    abandoned: bool = attrs.field(default=False, init=False)
    """Whether the call was cancelled while its thread ran, and the thread was left behind."""
    said: str = attrs.field(default="", init=False, repr=False)
    """What is told to the model if the call is cancelled or takes too long, such as what a process had printed until
    then. Set by the body, as often as it likes."""
    concluded: bool = attrs.field(default=False, init=False)
    """Whether the body wants the turn to end here."""
    _deferred: "list[UserMessage | ToolContext]" = attrs.field(factory=list["UserMessage | ToolContext"], init=False)
    _body_limit: TimeLimit | None = attrs.field(default=None, init=False)
    _is_over: bool = attrs.field(default=False, init=False)
    _open: list[Callable[[], None]] = attrs.field(factory=list[Callable[[], None]], init=False)
    _limits: list[TimeLimit] = attrs.field(factory=list[TimeLimit], init=False)
    _gate: Gate | None = attrs.field(default=None, init=False)
    _holds: tuple[trio.CapacityLimiter, ...] = attrs.field(default=(), init=False)
    _held_up_by: list[trio.CapacityLimiter] = attrs.field(factory=list[trio.CapacityLimiter], init=False)

    @property
    def scope(self) -> ScopeKey | None:
        """The scope of the agent that calls."""
        return None if self.agent is None else self.agent.scope

    def defer(self, message: str | UserMessage | Iterable[Part]) -> None:
        """Leave a message that joins the history after the results of this step. Synchronous.

        Raises:
          ValueError: There is nothing in it, or nobody who says it.
        """
        deferred = message if isinstance(message, UserMessage) else UserMessage(message, source=DEFERRED_SOURCE)
        if not deferred.parts or not deferred.source:
            raise ValueError(f"a message needs a source and at least one part, and there is none in {deferred!r}")
        self._deferred.append(deferred)

    @property
    def is_direct(self) -> bool:
        """Whether the model made the call itself, and no program of the model."""
        return self.parent is None

    @property
    def deferred(self) -> Sequence[UserMessage]:
        """What was deferred, by this call and by those that are part of it, in order."""
        if not self._deferred:  # the usual case
            return ()
        found: list[UserMessage] = []
        for each in self._deferred:
            if isinstance(each, ToolContext):
                found += each.deferred
            else:
                found.append(each)
        return found

    def conclude(self) -> None:
        """Let the turn end with this step, if the call succeeds; what is to join the next step is still answered."""
        self.concluded = True

    def progress(self, text: str, *, done: float | None = None, total: float | None = None) -> None:
        """Say how far it is, for who watches; the model does not see it. Synchronous, in the task of the body.

        Args:
          text: What is done at the moment.
          done: How much is done.
          total: How much there is to do, in the same unit.
        """
        path = "" if self.agent is None else self.agent.path
        told = ToolProgressed(path, call_id=self.call_id, name=self.name, text=text, done=done, total=total)
        self.registry.emit(told, at=self.scope)

    @contextmanager
    def time_limit(self, seconds: float) -> Iterator[trio.CancelScope]:
        """Cancel the block after some seconds, in which waiting for an approval does not count.

        The scope's ``cancelled_caught`` tells afterwards whether that happened.
        """
        with self._limit() as limit:
            limit.start(seconds)
            yield limit.scope

    @contextmanager
    def _limit(self) -> Iterator[TimeLimit]:
        """Give a block a time limit that has not started."""
        limit = TimeLimit()
        self._limits.append(limit)
        try:
            with limit.scope:
                yield limit
        finally:
            self._limits.remove(limit)


# ---------------------------------------------------------------- what the pipeline keeps of a call, and no body needs


def forget_calls() -> None:
    """Note that no call waits for what the current task does, whoever started it; for tasks in the host's own nursery."""
    calling.set(None)


@contextmanager
def body_limit(context: ToolContext) -> Iterator[trio.CancelScope]:
    """Limit the time of the body in a block, from when `begin_body` says that it begins."""
    with context._limit() as limit:
        context._body_limit = limit
        yield limit.scope


def begin_body(context: ToolContext, timeout: float | None) -> None:
    """Note that the body begins, and with it the time that it may take, if that is limited."""
    context.began = True
    if context._body_limit is not None:
        assert timeout is not None, "it is why there is a limit"
        context._body_limit.start(timeout)


@contextmanager
def waiting_for_approval(context: ToolContext) -> Iterator[None]:
    """Let no time limit run during the block that the call is under."""
    limits = list(context._limits)
    for call in calls_above(context):
        limits += call._limits
    for limit in limits:
        limit.pause()
    try:
        yield
    finally:
        for limit in limits:
            limit.resume()


def calls_above(context: ToolContext) -> Iterator[ToolContext]:
    """Yield the calls that wait for this one, nearest first: what it is part of, and whose bodies run its agent."""
    call = context.parent or context.outer
    while call is not None:
        yield call
        call = call.parent or call.outer


def places_above(context: ToolContext, limiter: trio.CapacityLimiter) -> int:
    """Return how many of the calls that wait for this one have a place at a limiter, which they keep meanwhile."""
    return sum(limiter in call._holds for call in calls_above(context))


@contextmanager
def holding(context: ToolContext, limiter: trio.CapacityLimiter) -> Iterator[None]:
    """Note that a call has a place at a limiter during the block."""
    before = context._holds
    context._holds = (*before, limiter)
    try:
        yield
    finally:
        context._holds = before


@contextmanager
def holding_up(context: ToolContext, limiter: trio.CapacityLimiter) -> Iterator[None]:
    """Note that the calls which wait for this one wait for a place at a limiter during the block, as it does."""
    above = list(calls_above(context))
    for call in above:
        call._held_up_by.append(limiter)
    try:
        yield
    finally:
        for call in above:
            call._held_up_by.remove(limiter)


def never_free(limiter: trio.CapacityLimiter, passed: frozenset[trio.CapacityLimiter] = frozenset()) -> bool:
    """Tell whether each call that has a place at a limiter keeps it for ever: it waits for one, and so on in a circle."""
    if limiter in passed:
        return True
    if limiter.available_tokens:
        return False
    passed |= {limiter}
    holders = cast("list[ToolContext]", limiter.statistics().borrowers)
    return all(any(never_free(other, passed) for other in set(holder._held_up_by)) for holder in holders)


def close_with(context: ToolContext, close: Callable[[], None]) -> None:
    """Have something called when the call is over, which closes what the call has open in the log. It does so once."""
    context._open.append(close)


def end_call(context: ToolContext) -> None:
    """Close what the call has open in the log, the newest first: it is over."""
    context._is_over = True
    while context._open:
        context._open.pop()()


def is_over(context: ToolContext) -> bool:
    """Return whether the call is over."""
    return context._is_over


def gate_of(context: ToolContext) -> Gate:
    """Return where the calls that are part of this one wait for their turns."""
    if context._gate is None:
        context._gate = Gate()
    return context._gate


def take_in(context: ToolContext, part: ToolContext) -> None:
    """Let what a call defers that is part of this one stand at this place among what this one defers."""
    context._deferred.append(part)


def count_deferred(context: ToolContext) -> int:
    """Return how much was deferred until now, for `drop_deferred`."""
    return len(context._deferred)


def drop_deferred(context: ToolContext, count: int) -> None:
    """Forget what was deferred until it was counted, and that the turn was to end."""
    del context._deferred[:count]
    context.concluded = False

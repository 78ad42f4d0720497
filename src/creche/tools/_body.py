"""The body of a tool: where it runs, and what is made of its end.

Rule 1: an async body runs in the caller's task. A sync one runs in a thread of the host's limiter, and is
waited for, also under cancellation; unless its tool says that it may be abandoned, or that it is quick enough
for the loop. What is called for a body that has a thread takes one from as many others.
Rule 2: no body begins after the call was cancelled, nor when the caller does not see the tool any more, which is
looked at last of all, after the wait for a thread. `ToolContext.began` says whether it has begun.
Rule 3: what a body raises is its outcome. Cancellation alone passes through, and what ends the program.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import cast
from weakref import WeakKeyDictionary

import attrs
import trio

from creche._util import is_cancelled, leaves_of
from creche.errors import (
    CodeError,
    CrecheError,
    InvalidArgumentsError,
    LimitReachedError,
    NotRegisteredError,
    ToolFailed,
    ToolRetry,
)
from creche.messages import ImagePart, Part, TextPart
from creche.scope import Owner, Registry, ScopeKey

from ._context import ToolContext, begin_body, body_limit, calling, holding, holding_up, never_free, places_above
from ._result import result_text
from ._stages import Execution, ToolOutcome, failure, said_until_then
from ._tool import Tool, ToolThreads
from ._visible import lost_sight

MOST_CAUSES = 10
"""How many errors of one group are told to the model."""

_STRAY = "it raised a trio.Cancelled that it had kept, and nothing cancels it now"

logger = logging.getLogger("creche")


async def run_body(
    registry: Registry, scope: ScopeKey | None, execution: Execution, arguments: Mapping[str, object]
) -> ToolOutcome:
    """Run the body of a call, if the tool is still visible when it could begin.

    Args:
      registry: The shared registry.
      scope: Where the tool has to be visible, where threads are looked for, and where an abandoned one is reported.
      execution: The call.
      arguments: The body's keyword arguments.
    """
    tool, context = execution.tool, execution.context
    if tool.context_parameter is not None:
        arguments = {**arguments, tool.context_parameter: context}
    try:
        await trio.lowlevel.checkpoint_if_cancelled()
        limiter = tool.limiter
        if limiter is None:
            return await _run_limited(registry, scope, execution, arguments)
        async with _place(tool, context, limiter):
            return await _run_limited(registry, scope, execution, arguments)
    except _Refused as refused:
        return failure("unknown-tool", str(refused))
    except Exception as error:  # noqa: BLE001 - what it raises is its outcome
        return _raised(scope, execution, error)
    except trio.Cancelled as stray:
        if is_cancelled():
            raise
        return _raised(scope, execution, RuntimeError(_STRAY).with_traceback(stray.__traceback__))
    except BaseExceptionGroup as group:
        cancelled = cancellation_in(group)
        if cancelled is None:
            raise
        logger.info("tool %r was cancelled and raised", tool.name, exc_info=group)
        raise cancelled from None


@asynccontextmanager
async def _place(tool: Tool, context: ToolContext, limiter: trio.CapacityLimiter) -> AsyncIterator[None]:
    """Wait for a place among the bodies of a tool, and keep it for the length of the block.

    Raises:
      ToolFailed: None would ever be free.
    """
    with holding_up(context, limiter):
        if never_free(limiter):
            raise ToolFailed(
                f"tool {tool.name!r} runs {tool.at_once} at once at most, and the calls that run wait for this one, "
                "which would wait for them; do without it here"
            )
        await limiter.acquire_on_behalf_of(context)
    try:
        yield
    finally:
        limiter.release_on_behalf_of(context)


async def _run_limited(
    registry: Registry, scope: ScopeKey | None, execution: Execution, arguments: Mapping[str, object]
) -> ToolOutcome:
    seconds = execution.tool.timeout
    if seconds is None:
        return await _run(registry, scope, execution, arguments)
    context = execution.context
    with body_limit(context) as limited:
        outcome = await _run(registry, scope, execution, arguments)
    return _timed_out(context, seconds) if limited.cancelled_caught else outcome


def _timed_out(context: ToolContext, seconds: float) -> ToolOutcome:
    ended = "its thread was left behind, and may still run" if context.abandoned else "was ended"
    took = f"the call took longer than {seconds:g} seconds and {ended}; what it had done until then stands"
    return failure("timeout", f"{took}{said_until_then(context)}")


async def _run(
    registry: Registry, scope: ScopeKey | None, execution: Execution, arguments: Mapping[str, object]
) -> ToolOutcome:
    tool = execution.tool
    token = calling.set(execution.context)
    try:
        if tool.waits or tool.inline:
            _begin(registry, scope, execution)
            value = _run_interruptible(tool, arguments)
        else:
            value = await _in_thread(registry, scope, execution, partial(tool.run, **arguments))
        if isinstance(value, Awaitable):
            value = await _wait_interruptible(cast("Awaitable[object]", value))
    except StopIteration as error:  # a coroutine cannot raise it
        return _raised(scope, execution, error)
    finally:
        calling.reset(token)
    return outcome_of(value)


def _raised(scope: ScopeKey | None, execution: Execution, error: Exception) -> ToolOutcome:
    if not isinstance(error, CrecheError):  # the model is told a sentence; who wrote the tool wants the traceback
        who, name = caller_of(execution.context, scope).name, execution.tool.name
        if isinstance(error, RuntimeError) and str(error) == "no running event loop":  # what asyncio raises under trio
            error.add_note(
                "creche runs on trio: use trio.sleep() and the like, or let asyncio run it with portal.run_asyncio()"
            )
        logger.warning("tool %r of %r raised in call %r", name, who, execution.call.id, exc_info=error)
    return failure_of(error)


# The loop's own code is not interrupted by Ctrl-C where it stands; what a user wrote is.
@trio.lowlevel.disable_ki_protection
def _run_interruptible(tool: Tool, arguments: Mapping[str, object]) -> object:
    return tool.run(**arguments)


@trio.lowlevel.disable_ki_protection
async def _wait_interruptible(value: Awaitable[object]) -> object:
    return await value


class _Refused(Exception):  # noqa: N818 - a signal within this module
    """The body does not begin; the text tells the model why."""


def _begin(registry: Registry, scope: ScopeKey | None, execution: Execution) -> None:
    """Look once more whether the tool is visible, and note that its body begins."""
    # It may have waited for a wrapper, for the call's turn, or for a thread, and the view changed.
    context = execution.context
    gone = lost_sight(registry, scope, execution.tool, direct=context.is_direct)
    if gone is not None:
        raise _Refused(gone)
    begin_body(context, execution.tool.timeout)


async def _in_thread(
    registry: Registry, scope: ScopeKey | None, execution: Execution, body: Callable[[], object]
) -> object:
    tool, context = execution.tool, execution.context
    try:
        limiter = registry.find(ToolThreads, scope).limiter
    except NotRegisteredError:
        limiter = trio.to_thread.current_default_thread_limiter()
    places = _deeper(limiter, places_above(context, limiter))
    entrance = _Entrance(places, partial(_begin, registry, scope, execution))
    try:
        with holding(context, limiter):
            [value] = await trio.to_thread.run_sync(
                _boxed,
                body,
                thread_name=f"tool {tool.name}",
                abandon_on_cancel=tool.abandon,
                limiter=cast("trio.CapacityLimiter", entrance),  # trio takes anything like one, and says so
            )
    except trio.Cancelled:
        if tool.abandon and entrance.passed:
            context.abandoned = True
            what = f"waiting for the thread of tool {tool.name!r} (call {context.call_id!r}), which was left behind"
            registry.report(caller_of(context, scope), what, None)
        raise
    return value


_BELOW: WeakKeyDictionary[trio.CapacityLimiter, trio.CapacityLimiter] = WeakKeyDictionary()


def _deeper(limiter: trio.CapacityLimiter, levels: int) -> trio.CapacityLimiter:
    """Return where a call takes its thread that is made for so many others which keep theirs until it is done.

    Each level has as many threads as the first. With one limiter for all, those who wait could have every thread
    that what they wait for needs.
    """
    for _ in range(levels):
        below = _BELOW.setdefault(limiter, trio.CapacityLimiter(limiter.total_tokens))
        if below.total_tokens != limiter.total_tokens:
            below.total_tokens = limiter.total_tokens
        limiter = below
    return limiter


def _boxed(body: Callable[[], object]) -> tuple[object]:
    # Trio refuses what can be awaited as the result of a thread, so it is not shown to it.
    return (body(),)


@attrs.define(eq=False)
class _Entrance:
    """The limiter that trio asks just before it starts a thread. The body begins here: nothing waits in between."""

    limiter: trio.CapacityLimiter
    begin: Callable[[], None]
    passed: bool = False

    async def acquire_on_behalf_of(self, borrower: object) -> None:
        await self.limiter.acquire_on_behalf_of(borrower)
        try:
            self.begin()
        except BaseException:
            self.limiter.release_on_behalf_of(borrower)  # trio does it only for what was acquired
            raise
        self.passed = True

    def release_on_behalf_of(self, borrower: object) -> None:
        self.limiter.release_on_behalf_of(borrower)


def caller_of(context: ToolContext, scope: ScopeKey | None) -> Owner:
    """Return whose fault it is when a call goes wrong in a way that nobody waits for."""
    return Owner("a program" if context.agent is None else context.agent.path, scope)


def outcome_of(value: object) -> ToolOutcome:
    """Return the outcome of a body that returned. A list with a part in it is a list of parts."""
    if isinstance(value, ToolOutcome):
        return value
    try:
        parts = _parts_in(value)
        if parts:
            return ToolOutcome(parts)
        text = result_text(value)
        return ToolOutcome((TextPart(text),), json_text=_json_of(value, text))
    except TypeError as error:
        return failure("invalid-result", f"the call was made, but {error}")


def _json_of(value: object, text: str) -> str | None:
    if isinstance(value, str):
        return None
    return "null" if value is None else text


def _parts_in(value: object) -> Sequence[Part]:
    if isinstance(value, str):  # first, for it is the usual case
        return ()
    if isinstance(value, TextPart | ImagePart):
        return (value,)
    items = cast("Sequence[object]", value) if isinstance(value, tuple | list) else ()
    if not any(isinstance(item, TextPart | ImagePart) for item in items):
        return ()
    return [item if isinstance(item, TextPart | ImagePart) else TextPart(result_text(item)) for item in items]


def failure_of(error: Exception) -> ToolOutcome:
    """Return the outcome of a body that raised. A group counts as what is in it."""
    codes = {_code_of(leaf) for leaf in leaves_of(error)}
    return failure(codes.pop() if len(codes) == 1 else "exception", told(error))


def told(error: Exception) -> str:
    """Return what a model is told of an error; of a group, what is in it."""
    leaves = leaves_of(error)
    more = [f"and {len(leaves) - MOST_CAUSES} more"] if len(leaves) > MOST_CAUSES else []
    return "; ".join([_sentence(leaf) for leaf in leaves[:MOST_CAUSES]] + more)


def _code_of(error: Exception) -> str:
    match error:
        case LimitReachedError():
            return error.code
        case ToolRetry():
            return "retry"
        case InvalidArgumentsError():
            return "invalid-arguments"
        case CodeError():
            return f"code-{error.kind.replace('_', '-')}"
        case CrecheError():
            return "failed"
        case _:
            return "exception"


def _sentence(error: Exception) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - whatever a stranger's class does when it is asked for its text
        text = "its text cannot be read"
    if isinstance(error, CrecheError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def cancellation_in(group: BaseExceptionGroup[BaseException]) -> BaseException | None:
    """Return the cancellation to go on with in place of a group, or ``None`` if the group must go on as it is.

    A nursery that was cancelled while a task of it raised gives a group of both. Then the cancellation counts:
    whoever cancelled does not ask how the call came out.
    """
    cancelled, others = group.split(trio.Cancelled)
    return cancelled if isinstance(others, ExceptionGroup) else None

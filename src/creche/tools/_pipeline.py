"""One call through the guarded pipeline, from a model or from a program.

In order: look-up in the view of the agent's scope, arguments, `PreExecute`, guards, `Execute` around the
body, `PostExecute`. Whatever goes wrong becomes the outcome of this call and of no other; cancellation alone
passes through.
"""

import difflib
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import ClassVar, Literal, cast

import attrs
import trio

from creche.errors import (
    CrecheError,
    InvalidArgumentsError,
    LimitReachedError,
    NotRegisteredError,
    ToolFailed,
    ToolRetry,
)
from creche.messages import ImagePart, Part, TextPart, ToolCall
from creche.prompt import AgentView
from creche.scope import Derivation, Level, Operation, Owner, Registration, Registry, ScopeKey, place_name

from ._arguments import parse_arguments
from ._result import result_text
from ._tool import Tool, ToolContext, ToolThreads
from ._visible import VISIBLE

logger = logging.getLogger("creche")


@attrs.frozen(eq=False)
class ToolOutcome:
    """How a call came out."""

    parts: tuple[Part, ...]
    """What the model is told."""
    code: str = attrs.field(default="", kw_only=True)
    """``""`` for a success, else the kind of error: ``"unknown-tool"``, ``"invalid-arguments"``, ``"denied"``,
    ``"failed"``, ``"retry"``, ``"exception"``, ``"cancelled"``, ``"not-started"``, ``"abandoned"``, ``"internal"``,
    or the code of a limit."""

    @property
    def is_error(self) -> bool:
        """Whether the call failed."""
        return bool(self.code)

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return "".join([part.text for part in self.parts if isinstance(part, TextPart)])


@attrs.define(eq=False)
class Execution:
    """One call on its way through the pipeline."""

    call: ToolCall
    """What the model wrote."""
    tool: Tool = attrs.field(kw_only=True)
    """The tool it found in the agent's view."""
    arguments: Mapping[str, object] = attrs.field(kw_only=True)
    """The arguments, checked."""
    context: ToolContext = attrs.field(kw_only=True)
    """Who calls."""

    @property
    def agent(self) -> AgentView | None:
        """The agent that calls."""
        return self.context.agent


@attrs.frozen
class Proceed:
    """Let the call through."""

    arguments: Mapping[str, object] | None = None
    """Other arguments in place of the model's; they are checked like the model's."""


@attrs.frozen
class Deny:
    """Refuse the call; the model is told why."""

    reason: str
    """A sentence for the model."""


@attrs.frozen(eq=False)
class PreExecute(Operation[Proceed | Deny]):
    """A call is about to run: proceed, change its arguments, or deny it."""

    wire_name: ClassVar[str] = "tools/pre-execute"
    execution: Execution
    """The call."""


@attrs.frozen(eq=False)
class Execute(Operation[ToolOutcome]):
    """The body runs inside of this; wrappers see an outcome, never the body's exception."""

    wire_name: ClassVar[str] = "tools/execute"
    execution: Execution
    """The call."""


@attrs.frozen(eq=False)
class PostExecute(Operation[ToolOutcome]):
    """A call has an outcome, which wrappers may replace before it is recorded."""

    wire_name: ClassVar[str] = "tools/post-execute"
    execution: Execution
    """The call."""
    outcome: ToolOutcome = attrs.field(kw_only=True)
    """What came out."""


@attrs.frozen(eq=False)
class Guard:
    """An entry: may refuse a call that is visible, at a scope and all below it. A guard cannot allow anything."""

    check: Callable[[Execution], str | None]
    """Contract: synchronous; returns the reason to refuse, or ``None``; one that raises refuses."""
    entry_shape: ClassVar[Literal["anonymous"]] = "anonymous"


def _derive_guards(levels: tuple[Level, ...]) -> tuple[Registration, ...]:
    return tuple([each for level in levels for each in level.tables[0]])


GUARDS: Derivation[tuple[Registration, ...]] = Derivation((Guard,), derive=_derive_guards)


def failure(code: str, text: str) -> ToolOutcome:
    """Return the outcome of a call that failed."""
    return ToolOutcome((TextPart(f"Error: {text}"),), code=code)


async def execute_call(registry: Registry, scope: ScopeKey | None, call: ToolCall, context: ToolContext) -> ToolOutcome:
    """Run one call through the pipeline.

    Args:
      registry: The shared registry.
      scope: Whose view the tool is looked up in, and where the stages are dispatched.
      call: What the model wrote.
      context: Who calls.

    Returns:
      The outcome; every failure is one. Nothing but cancellation is raised.
    """
    try:
        prepared = _prepare(registry, scope, call, context)
        if isinstance(prepared, ToolOutcome):
            return prepared
        return await _run(registry, scope, prepared)
    except Exception as error:  # noqa: BLE001 - a wrapper's bug is this call's error and is reported at the agent
        who = Owner(context.agent.path if context.agent is not None else "a program", scope)
        registry.report(who, f"running the pipeline of tool {call.name!r}", error)
        return failure("internal", f"the call could not be carried out: {error}")


def _prepare(
    registry: Registry, scope: ScopeKey | None, call: ToolCall, context: ToolContext
) -> Execution | ToolOutcome:
    view = registry.read(VISIBLE, scope)
    tool = view.tools.get(call.name)
    if tool is None:
        return failure("unknown-tool", _unknown(call.name, view.tools))
    try:
        arguments = tool.binder.bind(parse_arguments(call.arguments))
    except InvalidArgumentsError as error:
        return failure("invalid-arguments", f"invalid arguments for {call.name!r}: {error}")
    return Execution(call, tool=tool, arguments=arguments, context=context)


def _unknown(name: str, tools: Mapping[str, Tool]) -> str:
    near = difflib.get_close_matches(name[:100], tools, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    return f"there is no tool {name[:100]!r}{meant} Visible: {', '.join(sorted(tools)) or '(none)'}"


async def _run(registry: Registry, scope: ScopeKey | None, execution: Execution) -> ToolOutcome:
    decision = await registry.around(PreExecute(execution), at=scope, innermost=_proceed)
    if isinstance(decision, Proceed) and decision.arguments is not None:
        try:
            execution.arguments = execution.tool.binder.bind(decision.arguments)
        except InvalidArgumentsError as error:
            decision = Deny(f"the changed arguments do not fit {execution.tool.name!r}: {error}")
    reason = decision.reason if isinstance(decision, Deny) else _refusal(registry, scope, execution)
    if reason is None:
        outcome = await registry.around(Execute(execution), at=scope, innermost=_execute)
    else:
        outcome = failure("denied", reason)
    return await registry.around(PostExecute(execution, outcome=outcome), at=scope, innermost=_accept)


async def _proceed(event: PreExecute) -> Proceed | Deny:
    return _PROCEED


_PROCEED = Proceed()


async def _accept(event: PostExecute) -> ToolOutcome:
    return event.outcome


def _refusal(registry: Registry, scope: ScopeKey | None, execution: Execution) -> str | None:
    for registration in registry.read(GUARDS, scope):
        guard = registration.entry
        assert isinstance(guard, Guard), "the table holds one kind"
        try:
            reason = guard.check(execution)
        except Exception as error:  # noqa: BLE001 - a guard that fails refuses; its owner hears of it
            registry.report(registration.owner, f"guarding tool {execution.tool.name!r}", error)
            return f"a guard of {registration.owner.name!r} at {place_name(registration.scope)} failed"
        if reason is not None:
            return reason
    return None


async def _execute(event: Execute) -> ToolOutcome:
    execution = event.execution
    try:
        return _outcome_of(await _call_body(execution))
    except CrecheError as error:
        return failure(_code_of(error), str(error))
    except Exception as error:
        logger.info("tool %r raised", execution.tool.name, exc_info=error)
        return failure("exception", f"{type(error).__name__}: {error}")
    except BaseExceptionGroup as group:
        # The body's own nursery was cancelled while something else went wrong in it: the cancellation counts.
        cancelled, others = group.split(trio.Cancelled)
        if cancelled is None or (others is not None and others.subgroup(_is_fatal) is not None):
            raise
        logger.info("tool %r raised while it was cancelled", execution.tool.name, exc_info=others)
        raise cancelled from None


def _is_fatal(error: BaseException) -> bool:
    return not isinstance(error, Exception | BaseExceptionGroup)


def _code_of(error: CrecheError) -> str:
    if isinstance(error, LimitReachedError):
        return error.code
    return {ToolFailed: "failed", ToolRetry: "retry", InvalidArgumentsError: "invalid-arguments"}.get(
        type(error), "failed"
    )


async def _call_body(execution: Execution) -> object:
    tool = execution.tool
    arguments = execution.arguments
    if tool.shape is not None and tool.shape.context_parameter is not None:
        arguments = {**arguments, tool.shape.context_parameter: execution.context}
    if tool.waits:
        return await cast("Awaitable[object]", tool.run(**arguments))
    if tool.inline:
        return tool.run(**arguments)
    return await _in_thread(execution, partial(tool.run, **arguments))


async def _in_thread(execution: Execution, body: Callable[[], object]) -> object:
    tool, registry = execution.tool, execution.context.registry
    scope = execution.agent.scope if execution.agent is not None else None
    try:
        limiter = registry.find(ToolThreads, scope).limiter
    except NotRegisteredError:
        limiter = trio.to_thread.current_default_thread_limiter()
    try:
        return await trio.to_thread.run_sync(body, limiter=limiter, abandon_on_cancel=tool.abandon)
    except trio.Cancelled:
        if tool.abandon:
            # Whether the thread had begun cannot be known from here, so the record says that it may still run.
            execution.context.abandoned = True
            who = Owner(execution.agent.path if execution.agent is not None else "a program", scope)
            registry.report(who, f"leaving the thread of tool {tool.name!r} behind, call {execution.call.id!r}", None)
        raise


def _outcome_of(value: object) -> ToolOutcome:
    if isinstance(value, ToolOutcome):
        return value
    if isinstance(value, TextPart | ImagePart):
        return ToolOutcome((value,))
    if isinstance(value, tuple | list) and value and all(isinstance(part, TextPart | ImagePart) for part in value):
        return ToolOutcome(tuple(cast("tuple[Part, ...]", value)))
    return ToolOutcome((TextPart(result_text(value)),))

"""One call through the guarded pipeline, from a model or from a program.

In order: look-up in the view of a scope, arguments, `PreExecute`, guards, an approval if one was requested (and guards
again), `Execute` around the body, `PostExecute`.

Rule 1: whatever goes wrong becomes the outcome of this call and of no other. Cancellation alone passes
through, and what ends the program.
Rule 2: the tool that runs is one that the scope sees at the moment when its body begins, whatever a wrapper
passes inwards and however long it waits, or the call waits for a thread; `_body.py` looks.
Rule 3: the arguments that a body gets were checked, by its own types, and seen by every guard.
"""

import difflib
import inspect
import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

import attrs

from creche.errors import InternalError, InvalidArgumentsError, LimitReachedError, ToolError
from creche.messages import ToolCall
from creche.scope import Derivation, Level, Registration, Registry, ScopeKey, place_name

from ._approval import seek_approval
from ._arguments import parse_arguments
from ._body import caller_of, cancellation_in, failure_of, run_body, told
from ._context import ToolContext, count_deferred, drop_deferred
from ._stages import (
    Block,
    Deny,
    Execute,
    Execution,
    Guard,
    PostExecute,
    PreExecute,
    Proceed,
    RequestApproval,
    ToolOutcome,
    failure,
)
from ._tool import RUN_CODE, Tool
from ._visible import VISIBLE, VisibleTools

LONGEST_NAME = 100
"""How many characters of an unknown name are told to the model."""

logger = logging.getLogger("creche")


async def execute_call(registry: Registry, scope: ScopeKey | None, call: ToolCall, context: ToolContext) -> ToolOutcome:
    """Run one call through the pipeline.

    Args:
      registry: The shared registry.
      scope: Whose view the tool is looked up in, and where the stages are dispatched.
      call: What the model wrote.
      context: Who calls. When cancellation comes out, it says whether the body had begun.

    Returns:
      The outcome; every failure is one. Nothing but cancellation is raised, and what ends the program.
    """
    try:
        passage = _enter(registry, scope, call, context)
        return passage if isinstance(passage, ToolOutcome) else await passage.run()
    except (ToolError, LimitReachedError) as error:
        return failure_of(error)  # from a wrapper, which tells the model as a body does
    except Exception as error:  # noqa: BLE001 - a wrapper's bug is this call's outcome, and a fault at its caller
        registry.report(caller_of(context, scope), f"running the pipeline of tool {call.name!r}", error)
        what = "the call was made, but its result is lost" if context.began else "the call could not be made"
        return failure("internal", f"{what}: {told(error)}")
    except BaseExceptionGroup as group:
        cancelled = cancellation_in(group)
        if cancelled is None:
            raise
        logger.info("a wrapper around tool %r was cancelled and raised", call.name, exc_info=group)
        raise cancelled from None


def _enter(
    registry: Registry, scope: ScopeKey | None, call: ToolCall, context: ToolContext
) -> "_Passage | ToolOutcome":
    seen, name = registry.read(VISIBLE, scope), call.name
    tool = (seen.direct if context.is_direct else seen.tools).get(name)
    if tool is None:
        return failure("unknown-tool", _not_callable(name, seen, direct=context.is_direct))
    if not _was_shown(name, context):
        return failure("unknown-tool", f"tool {name!r} came after this request was made; call it in the next step")
    try:
        arguments = parse_arguments(call.arguments)
        bound = tool.binder.bind(arguments)
    except InvalidArgumentsError as error:
        return failure("invalid-arguments", f"invalid arguments for {tool.name!r}: {error}")
    execution = Execution(call, tool=tool, arguments=MappingProxyType(arguments), context=context)
    return _Passage(registry, scope, execution, bound)


def _was_shown(name: str, context: ToolContext) -> bool:
    """Tell whether the step's request named a tool to the model, or its prompt to the model's programs."""
    step = context.step
    if step is None:
        return True
    shown = step.offered if context.is_direct else step.inside
    return shown is None or name in shown


def _not_callable(name: str, seen: VisibleTools, *, direct: bool) -> str:
    if direct and name in seen.tools:
        written = f"tools.{name}(...)" if name.isidentifier() else f"tools[{name!r}](...)"
        return f"{name!r} cannot be called directly here; call {RUN_CODE!r} with a program that awaits {written}"
    if not direct and name == RUN_CODE:
        return f"a program cannot call {RUN_CODE!r}; it calls the tools themselves"
    return _unknown(name, seen.direct if direct else seen.tools)


def _unknown(name: str, tools: Mapping[str, Tool]) -> str:
    name = name[:LONGEST_NAME]
    near = difflib.get_close_matches(name, tools, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else "."
    return f"there is no tool {name!r}{meant} Visible: {', '.join(sorted(tools)) or '(none)'}"


def _derive_guards(levels: tuple[Level, ...]) -> tuple[Registration, ...]:
    return tuple([each for level in levels for each in level.tables[0]])


GUARDS: Derivation[tuple[Registration, ...]] = Derivation((Guard,), derive=_derive_guards)
"""The guards of a scope, root first, each with who registered it."""


@attrs.define(eq=False)
class _Passage:
    """A call that found its tool, on its way through the stages."""

    registry: Registry
    scope: ScopeKey | None
    execution: Execution
    bound: dict[str, object]

    async def run(self) -> ToolOutcome:
        around, wraps, scope = self.registry.around, self.registry.wraps, self.scope
        decision: Proceed | Deny | RequestApproval = _PROCEED
        if wraps(PreExecute):
            decision = await around(PreExecute(self.execution), at=scope, innermost=self._decide)
        outcome = await self._judge(decision)
        if outcome is None and wraps(Execute):
            outcome = await around(Execute(self.execution), at=scope, innermost=self._execute)
        elif outcome is None:
            outcome = await run_body(self.registry, scope, self.execution, self.bound)
        context = self.execution.context
        if not wraps(PostExecute):
            return outcome
        count = count_deferred(context)
        accepted = await around(PostExecute(self.execution, outcome=outcome), at=scope, innermost=_accept)
        if isinstance(accepted, Block):
            drop_deferred(context, count)
            return failure("blocked", accepted.feedback)
        return accepted

    async def _judge(self, decision: Proceed | Deny | RequestApproval) -> ToolOutcome | None:
        """Return the outcome of a call that must not run, ``None`` for one that may."""
        if isinstance(decision, Deny):
            return failure(decision.code, decision.reason)
        reason = self._change(decision) or self._refusal()
        if reason is None and isinstance(decision, RequestApproval):
            refused = await seek_approval(self.registry, self.scope, self.execution, decision)
            if refused is not None:
                return refused
            reason = self._refusal()  # it may have been a long wait
        return None if reason is None else failure("denied", reason)

    async def _decide(self, event: PreExecute) -> Proceed | Deny | RequestApproval:
        passed, own = event.execution, self.execution
        if passed is own:
            return _PROCEED
        if (passed.tool, passed.call, passed.context) != (own.tool, own.call, own.context):
            raise InternalError(
                f"a wrapper around {PreExecute.wire_name} passed another call inwards than it was given"
            )
        return Proceed(passed.arguments)

    def _change(self, decision: Proceed | RequestApproval) -> str | None:
        """Take over other arguments; return why the call is refused if they do not fit."""
        if decision.arguments is None:
            return None
        arguments, name = dict(decision.arguments), self.execution.tool.name
        try:
            self.bound = self.execution.tool.binder.bind(arguments)
        except InvalidArgumentsError as error:
            doing = f"changing the arguments of tool {name!r}"
            self.registry.report(caller_of(self.execution.context, self.scope), doing, error)
            return f"a plugin changed the arguments of {name!r}, and they do not fit any more: {error}"
        self.execution = attrs.evolve(self.execution, arguments=MappingProxyType(arguments))
        return None

    def _refusal(self) -> str | None:
        """Ask the guards; return the first reason."""
        for registration in self.registry.read(GUARDS, self.scope):
            guard = registration.entry
            assert isinstance(guard, Guard), "the table holds one kind"
            try:
                reason = cast("object", guard.check(self.execution))
                if reason is None:
                    continue
                if isinstance(reason, str):
                    return reason
                if inspect.iscoroutine(reason):
                    reason.close()  # else Python warns of it, which says less than what is raised here
                raise TypeError(f"a guard returns a reason or None, not a {type(reason).__name__}")  # noqa: TRY301
            except Exception as error:  # noqa: BLE001 - a guard that fails refuses; its owner hears of it
                self.registry.report(registration.owner, f"guarding tool {self.execution.tool.name!r}", error)
                return f"a guard of {registration.owner.name!r} at {place_name(registration.scope)} failed"
        return None

    async def _execute(self, event: Execute) -> ToolOutcome:
        execution = self.execution
        if event.execution is not execution:
            raise InternalError(
                f"a wrapper around {Execute.wire_name} passed another execution inwards; "
                f"arguments are changed around {PreExecute.wire_name}"
            )
        return await run_body(self.registry, self.scope, execution, self.bound)


_PROCEED = Proceed()


async def _accept(event: PostExecute) -> ToolOutcome | Block:
    return event.outcome

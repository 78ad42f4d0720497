"""Approvals: a call that waits until somebody allows it.

Rule 1: a request goes to the approvers on the scope chain of the agent that calls, one after the other, until one
decides: first those that remember, wherever they are, then those that decide, each group nearest first. When nobody
does, nobody is there, and the call is refused.
Rule 2: a request is made once a call and decided once; both are in the agent's log, also when the call is cancelled
in between. An approval is for the one call, which it does not survive.
Rule 3: what was allowed for longer is known by tool and subject and stands in the log of the agent it was allowed to, so
it survives what the log survives, and holds for no other agent.
Rule 4: of the calls of one agent for one tool and subject, one at a time is asked for. Those behind it may be allowed by
its answer, and then nothing is requested; if not, or if it is cancelled, they are asked for in their turn.
Rule 5: guards come first, and again after the wait: nobody can allow what a guard refuses.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Literal, cast, get_args

import attrs
import trio

from creche._util import is_one_of, is_text
from creche.prompt import AgentView
from creche.scope import Derivation, Level, Registration, Registry, ScopeKey
from creche.session import ApprovalDecided, ApprovalRequested, Decision, Lasting, SessionLog

from ._context import CallStep, close_with, waiting_for_approval
from ._stages import Execution, RequestApproval, ToolOutcome, failure
from ._tool import is_async


@attrs.frozen(eq=False)
class ApprovalRequest:
    """A call that waits until somebody allows it."""

    execution: Execution
    """The call."""
    reason: str = attrs.field(kw_only=True)
    """Why it has to be asked for, a sentence."""
    subject: str = attrs.field(kw_only=True)
    """What would be allowed if it was allowed for longer than once."""

    @property
    def agent(self) -> AgentView | None:
        """The agent that calls; ``None`` for a call without one."""
        return self.execution.agent

    @property
    def agent_path(self) -> str:
        """Path of the agent, which says which one of a tree it is; ``""`` for a call without one."""
        return "" if self.agent is None else self.agent.path

    @property
    def tool(self) -> str:
        """Name of the tool."""
        return self.execution.tool.name

    @property
    def arguments(self) -> Mapping[str, object]:
        """The arguments that it will run with, read-only."""
        return self.execution.arguments


@attrs.frozen
class Allow:
    """Let the call run."""

    lasting: Lasting = attrs.field(default="once", validator=is_one_of(*get_args(Lasting)))
    """``"once"``; ``"agent"``: this agent is not asked again for that tool and subject; ``"project"``: nor is anybody in the
    project, if the plugin is mounted that remembers it, else as ``"agent"``."""


@attrs.frozen
class Refuse:
    """Do not let the call run."""

    reason: str = attrs.field(default="", validator=is_text)
    """A sentence for the model, if there is more to say than no."""


def _check_answer(_approver: object, _attribute: object, answer: Any) -> None:
    if not is_async(answer):
        raise TypeError(f"an approver is an async function of the request, and {answer!r} is none")


@attrs.frozen(eq=False)
class Approver:
    """An entry: answers the requests for approval of the agents at a scope and all below it."""

    answer: Callable[[ApprovalRequest], Awaitable[Allow | Refuse | None]] = attrs.field(validator=_check_answer)
    """Contract: async, and may take as long as it likes; ``None`` passes the request on to the next one up the chain. One
    that raises or returns anything else refuses, and is a `Fault` at its owner. It is cancelled with the call. Several
    requests can wait at the same time, but of one agent only one for the same tool and subject."""
    remembers: bool = attrs.field(default=False, kw_only=True)
    """Whether it knows what was decided before: those that do are asked before those that decide, wherever they are."""
    entry_shape: ClassVar[Literal["anonymous"]] = "anonymous"


def _derive_approvers(levels: tuple[Level, ...]) -> tuple[Registration, ...]:
    nearest_first = [each for level in reversed(levels) for each in level.tables[0]]
    return tuple(sorted(nearest_first, key=_decides))


def _decides(registration: Registration) -> bool:
    approver = registration.entry
    assert isinstance(approver, Approver), "the table holds one kind"
    return not approver.remembers


APPROVERS: Derivation[tuple[Registration, ...]] = Derivation((Approver,), derive=_derive_approvers)
"""The approvers of a scope, each with who registered it: those that remember, then the others, each group nearest first."""


async def seek_approval(
    registry: Registry, scope: ScopeKey | None, execution: Execution, wanted: RequestApproval
) -> ToolOutcome | None:
    """Ask whether a call may run; return the outcome of a call that may not.

    Args:
      registry: The shared registry.
      scope: Where the request starts.
      execution: The call.
      wanted: Why it is asked for.
    """
    request = ApprovalRequest(execution, reason=wanted.reason, subject=wanted.subject or execution.tool.name)
    about = (request.tool, request.subject)
    log = None if execution.agent is None else execution.agent.session
    if log is not None and about in log.allowed:
        return None
    with waiting_for_approval(execution.context):
        if log is None:
            return (await _ask(registry, scope, request)).refusal
        async with _turn(execution.context.step, *about):
            await trio.lowlevel.checkpoint_if_cancelled()  # a call that was cancelled meanwhile may be over in the log
            if about in log.allowed:
                return None
            return await _ask_on_record(registry, scope, request, log)


def _turn(step: CallStep | None, tool: str, subject: str) -> trio.StrictFIFOLock:
    """Return the lock that says whose turn it is to ask: calls of one agent that overlap are of one step."""
    lock = trio.StrictFIFOLock()
    return lock if step is None else step.approvals.setdefault((tool, subject), lock)


@attrs.frozen(kw_only=True)
class _Decided:
    """What became of a request."""

    decision: Decision
    lasting: Lasting = "once"
    by: str = ""
    reason: str = ""
    refusal: ToolOutcome | None = None
    """The outcome of a call that may not run."""


_CANCELLED = _Decided(decision="cancelled")


async def _ask_on_record(
    registry: Registry, scope: ScopeKey | None, request: ApprovalRequest, log: SessionLog
) -> ToolOutcome | None:
    """Ask, with a record before and one after it; return the outcome of a call that may not run."""
    call_id, tool, subject = request.execution.context.call_id, request.tool, request.subject
    decided = _CANCELLED
    is_closed = False

    def close() -> None:
        """Record what was decided; from outside if the call ends first, and then it is cancelled."""
        nonlocal is_closed
        if not is_closed:
            is_closed = True
            log.append(
                ApprovalDecided(
                    call_id,
                    tool=tool,
                    subject=subject,
                    decision=decided.decision,
                    lasting=decided.lasting,
                    by=decided.by,
                    reason=decided.reason,
                )
            )

    log.append(ApprovalRequested(call_id, tool=tool, subject=subject, reason=request.reason))
    close_with(request.execution.context, close)
    try:
        decided = await _ask(registry, scope, request)
    finally:
        close()
    return decided.refusal


async def _ask(registry: Registry, scope: ScopeKey | None, request: ApprovalRequest) -> _Decided:
    """Ask one approver after the other; return what was decided."""
    name = repr(request.tool)
    for registration in registry.read(APPROVERS, scope):
        approver, by = registration.entry, registration.owner
        assert isinstance(approver, Approver), "the table holds one kind"
        try:
            answer = cast("object", await approver.answer(request))
            if answer is not None and not isinstance(answer, Allow | Refuse):
                raise TypeError(f"an approver returns Allow(), Refuse() or None, not {answer!r}")  # noqa: TRY301
        except Exception as error:  # noqa: BLE001 - one that fails refuses; its owner hears of it
            registry.report(by, f"answering a request to run tool {name}", error)
            refusal = failure("approval-refused", f"nobody could say whether {name} may be called: {by.name!r} failed")
            return _Decided(decision="refused", by=by.name, reason="the approver failed", refusal=refusal)
        if isinstance(answer, Allow):
            return _Decided(decision="allowed", by=by.name, lasting=answer.lasting)
        if isinstance(answer, Refuse):
            why = f": {answer.reason}" if answer.reason else ""
            text = f"{by.name!r} refused the call of {name}{why}; do not make it again as it was"
            refusal = failure("approval-refused", text)
            return _Decided(decision="refused", by=by.name, reason=answer.reason, refusal=refusal)
    text = f"{name} needs an approval, and nobody is there who could give it; do not call it again, find another way"
    return _Decided(decision="unanswered", refusal=failure("approval-unanswered", text))

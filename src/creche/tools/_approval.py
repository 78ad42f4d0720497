"""Approvals: a call that waits until somebody allows it.

Rule 1: a request goes up the scope chain of the agent that calls, nearest first, to the approvers one after the
other, until one decides. When nobody does, nobody is there, and the call is refused.
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

from ._context import CallStep
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
"""The approvers of a scope, nearest first, each with who registered it."""


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
    subject = wanted.subject or execution.tool.name
    request = ApprovalRequest(execution, reason=wanted.reason, subject=subject)
    decided = _Decided(call_id=execution.context.call_id, tool=request.tool, subject=subject)
    log = None if execution.agent is None else execution.agent.session
    if log is not None and (request.tool, subject) in log.allowed:
        return None
    with execution.context._waiting_for_approval():
        if log is None:
            return await _ask(registry, scope, request, decided)
        async with _turn(execution.context.step, request.tool, subject):
            await trio.lowlevel.checkpoint_if_cancelled()  # a call that was cancelled meanwhile may be over in the log
            if (request.tool, subject) in log.allowed:
                return None
            log.append(ApprovalRequested(decided.call_id, tool=request.tool, subject=subject, reason=wanted.reason))
            execution.context._open.append(lambda: decided.close(log))
            try:
                return await _ask(registry, scope, request, decided)
            finally:
                decided.close(log)


def _turn(step: CallStep | None, tool: str, subject: str) -> trio.StrictFIFOLock:
    """Return the lock that says whose turn it is to ask: calls of one agent that overlap are of one step."""
    lock = trio.StrictFIFOLock()
    return lock if step is None else step.approvals.setdefault((tool, subject), lock)


@attrs.define(eq=False, kw_only=True)
class _Decided:
    """What the log will say of a request, once."""

    call_id: str
    tool: str
    subject: str
    decision: Decision = "cancelled"
    lasting: Lasting = "once"
    by: str = ""
    reason: str = ""
    is_logged: bool = False

    def close(self, log: SessionLog) -> None:
        if not self.is_logged:
            self.is_logged = True
            log.append(
                ApprovalDecided(
                    self.call_id,
                    tool=self.tool,
                    subject=self.subject,
                    decision=self.decision,
                    lasting=self.lasting,
                    by=self.by,
                    reason=self.reason,
                )
            )


async def _ask(
    registry: Registry, scope: ScopeKey | None, request: ApprovalRequest, decided: _Decided
) -> ToolOutcome | None:
    """Ask one approver after the other; note what was decided, and return the outcome of a call that may not run."""
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
            decided.decision, decided.by, decided.reason = "refused", by.name, "the approver failed"
            return failure("approval-refused", f"nobody could say whether {name} may be called: {by.name!r} failed")
        if isinstance(answer, Allow):
            decided.decision, decided.by, decided.lasting = "allowed", by.name, answer.lasting
            return None
        if isinstance(answer, Refuse):
            decided.decision, decided.by, decided.reason = "refused", by.name, answer.reason
            why = f": {answer.reason}" if answer.reason else ""
            text = f"{by.name!r} refused the call of {name}{why}; do not make it again as it was"
            return failure("approval-refused", text)
    decided.decision = "unanswered"
    text = f"{name} needs an approval, and nobody is there who could give it; do not call it again, find another way"
    return failure("approval-unanswered", text)

"""Approvals: a call that waits until somebody allows it.

Rule 1: a request goes up the scope chain of the agent that calls, nearest first, to the approvers one after the
other, until one decides. When nobody does, nobody is there, and the call is refused.
Rule 2: a request is made once a call and decided once; both are in the agent's log, also when the call is cancelled
in between. An approval is for the one call, which it does not survive.
Rule 3: what was allowed for longer is known by its subject and stands in the log of the agent it was allowed to, so
it survives what the log survives, and holds for no other agent.
Rule 4: guards come first, and again after the wait: nobody can allow what a guard refuses.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar, Literal, cast

import attrs

from creche.prompt import AgentView
from creche.scope import Derivation, Level, Registration, Registry, ScopeKey, place_name
from creche.session import ApprovalDecided, ApprovalRequested, Decision, Lasting

from ._stages import Execution, RequestApproval, ToolOutcome, failure


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
        """The agent that calls, whose ``path`` says which one of a tree it is."""
        return self.execution.agent

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

    lasting: Lasting = "once"
    """``"once"``; ``"agent"``: this agent is not asked again for the subject; ``"project"``: nor is anybody in the project,
    if the plugin is mounted that remembers it, else as ``"agent"``."""


@attrs.frozen
class Refuse:
    """Do not let the call run."""

    reason: str = ""
    """A sentence for the model, if there is more to say than no."""


@attrs.frozen(eq=False)
class Approver:
    """An entry: answers the requests for approval of the agents at a scope and all below it."""

    answer: Callable[[ApprovalRequest], Awaitable[Allow | Refuse | None]]
    """Contract: async, and may take as long as it likes; ``None`` passes the request on to the next one up the chain. One
    that raises or returns anything else refuses, and is a `Fault` at its owner. It is cancelled with the call. Several
    requests can wait at the same time."""
    entry_shape: ClassVar[Literal["anonymous"]] = "anonymous"


def _derive_approvers(levels: tuple[Level, ...]) -> tuple[Registration, ...]:
    return tuple([each for level in reversed(levels) for each in level.tables[0]])


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
    log = None if execution.agent is None else execution.agent.session
    if log is not None and subject in log.allowed:
        return None
    request = ApprovalRequest(execution, reason=wanted.reason, subject=subject)
    call_id = execution.context.call_id
    if log is not None:
        log.append(ApprovalRequested(call_id, tool=execution.tool.name, subject=subject, reason=wanted.reason))
    answer: Allow | Refuse | None = None
    by = ""
    decision: Decision = "cancelled"
    try:
        with execution.context.waiting_for_approval():
            answer, by = await _ask(registry, scope, request)
        decision = "unanswered" if answer is None else "allowed" if isinstance(answer, Allow) else "refused"
    finally:
        if log is not None:
            lasting = answer.lasting if isinstance(answer, Allow) else "once"
            reason = answer.reason if isinstance(answer, Refuse) else ""
            log.append(
                ApprovalDecided(call_id, subject=subject, decision=decision, lasting=lasting, by=by, reason=reason)
            )
    return _refusal(execution, answer, by)


def _refusal(execution: Execution, answer: Allow | Refuse | None, by: str) -> ToolOutcome | None:
    name = execution.tool.name
    if answer is None:
        text = (
            f"{name!r} needs an approval, and nobody is there who could give it; do not call it again, find another way"
        )
        return failure("approval-unanswered", text)
    if isinstance(answer, Refuse):
        why = f": {answer.reason}" if answer.reason else ""
        return failure("approval-refused", f"{by!r} refused the call of {name!r}{why}; do not make it again as it was")
    return None


async def _ask(
    registry: Registry, scope: ScopeKey | None, request: ApprovalRequest
) -> tuple[Allow | Refuse | None, str]:
    for registration in registry.read(APPROVERS, scope):
        approver = registration.entry
        assert isinstance(approver, Approver), "the table holds one kind"
        by = registration.owner
        try:
            answer = cast("object", await approver.answer(request))
            if isinstance(answer, Allow | Refuse):
                return answer, by.name
            if answer is not None:
                raise TypeError(f"an approver returns Allow(), Refuse() or None, not {answer!r}")  # noqa: TRY301
        except Exception as error:  # noqa: BLE001 - one that fails refuses; its owner hears of it
            registry.report(by, f"answering a request to run tool {request.tool!r}", error)
            return Refuse(f"the approver at {place_name(registration.scope)} failed"), by.name
    return None, ""

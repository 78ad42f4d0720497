"""Subagents in this process: spawn starts fresh, fork starts from the parent's completed turns.

A child's key is bound under its parent's, so it sees what the parent sees and is heard by it. Its turns run
in the caller's task. It leaves its cancel scope with the parent, so it ends when either ends. The parent's
log has one start and one settlement for it, however it ends.
"""

import time
import uuid
from collections.abc import Callable, Iterable

import outcome
import trio

from creche.agent import Agent, AgentSpec, Budget, Delivery, Reply
from creche.errors import AgentClosedError, LimitReachedError, TurnCancelled, TurnRefused
from creche.messages import AssistantMessage, UserMessage
from creche.models import Model
from creche.prompt import AssembleContext, RuntimeContext, Text, context_order
from creche.scope import SetupItem
from creche.session import AssistantSaid, Outcome, SessionHeader, SessionLog, SubagentEnded, SubagentStarted
from creche.tools import Execution, Guard, restrict

from ._provider import SubagentCapabilities, SubagentProvider, SubagentRequest, SubagentResult, run_subagent

DIAGNOSTIC_BYTES = 4096
"""Longest diagnostic of a result, in bytes of UTF-8."""


async def spawn(
    parent: Agent,
    prompt: str,
    *,
    name: str | None = None,
    persona: Text | None = None,
    allow: Iterable[str] | None = None,
    deny: Iterable[str] = (),
    preset: str | None = None,
    output: type[object] | None = None,
    model: Model | str | None = None,
    budget: Budget | None = None,
) -> SubagentResult:
    """Run a fresh subagent on a prompt and wait until it has settled.

    The result is a value whatever happens to the child; only what goes wrong before it starts is raised.
    Cancelling this cancels the child, and by then it has ended and the parent's log says so.

    Args:
      parent: The agent that starts it; may be idle or in a turn.
      prompt: The task. A fresh child sees nothing else of the parent's conversation.
      name: Last segment of its path; ``spawn-1``, ``spawn-2``... if absent.
      persona: Who it is.
      allow: The only tools of its parent that it sees.
      deny: Tools of its parent that it does not see.
      preset: A preset to compose it under instead of its parent's scope. A tool that is visible there and not
        to the parent must be in the preset's ``grants``.
      output: A class for a structured answer; the provider ``spawn`` does not offer it in this version.
      model: Another model than the one the parent asks at the moment.
      budget: Tighter limits for the child and everything below it.

    Raises:
      LimitReachedError: It would stand too deep.
      AuthorityError: Under the preset it would see more than its parent, without a grant.
      UnsupportedCapabilityError: The provider does not offer what was asked for.
      DuplicateNameError: A live sibling has the name.
      AgentClosedError: The parent does not run any more.
    """
    request = SubagentRequest(
        parent,
        prompt=prompt,
        name=_name(parent, "spawn", name),
        persona=persona,
        allow=None if allow is None else tuple(allow),
        deny=tuple(deny),
        preset=preset,
        output=output,
        model=model,
        budget=budget,
    )
    return await run_subagent("spawn", request)


async def fork(
    parent: Agent,
    prompt: str,
    *,
    name: str | None = None,
    allow: Iterable[str] | None = None,
    deny: Iterable[str] = (),
    budget: Budget | None = None,
) -> SubagentResult:
    """Run a subagent that begins with the parent's completed turns, and wait until it has settled.

    It sees neither the turn in flight nor the parent's inbox. Its first request shares with its parent every
    canonical byte of settings, tools and the messages of completed turns, so it has no persona and no model of
    its own, and a tool filter refuses calls instead of hiding tools.

    Args:
      parent: The agent that starts it.
      prompt: The task.
      name: Last segment of its path; ``fork-1``, ``fork-2``... if absent.
      allow: The only tools that it may call.
      deny: Tools that it may not call.
      budget: Tighter limits for the child and everything below it.

    Raises:
      LimitReachedError: It would stand too deep.
      DuplicateNameError: A live sibling has the name.
      AgentClosedError: The parent does not run any more.
    """
    request = SubagentRequest(
        parent,
        prompt=prompt,
        name=_name(parent, "fork", name),
        allow=None if allow is None else tuple(allow),
        deny=tuple(deny),
        budget=budget,
    )
    return await run_subagent("fork", request)


def _name(parent: Agent, provider: str, name: str | None) -> str:
    if name is not None:
        return name
    number = parent.child_counts[provider] = parent.child_counts.get(provider, 0) + 1
    return f"{provider}-{number}"


def spawn_provider() -> SubagentProvider:
    """Return the provider ``spawn``; the host registers it."""
    return SubagentProvider(
        "spawn",
        run=_run_spawn,
        capabilities=SubagentCapabilities(depth=True, tool_filter=True, persona=True),
    )


def fork_provider() -> SubagentProvider:
    """Return the provider ``fork``; the host registers it."""
    return SubagentProvider(
        "fork",
        run=_run_fork,
        capabilities=SubagentCapabilities(depth=True, tool_filter=True),
        inherits_parent_context=True,
    )


def delegation_context() -> RuntimeContext:
    """Return the runtime context that tells a subagent whom it works for; the host registers it."""
    return RuntimeContext("subagent:delegation", order=context_order("subagent:delegation"), text=_whom_it_works_for)


def _whom_it_works_for(context: AssembleContext) -> str:
    parent = context.agent.parent if context.agent is not None else None
    if parent is None:
        return ""
    return (
        f"You are a subagent of {parent.path!r}. Your last message is your report to it: nobody reads what you say "
        "before, and nobody answers questions."
    )


async def _run_spawn(request: SubagentRequest) -> SubagentResult:
    setup: list[SetupItem] = []
    if request.allow is not None or request.deny:
        setup.append(restrict(allow=request.allow, deny=request.deny))
    spec = AgentSpec(
        request.name, model=request.model, persona=request.persona, setup=setup, budget=request.budget
    )
    return await _run_child(request, spec, "spawn", None)


async def _run_fork(request: SubagentRequest) -> SubagentResult:
    parent = request.parent
    setup: list[SetupItem] = []
    if request.allow is not None or request.deny:
        setup.append(Guard(_refuse_others(request.allow, request.deny)))
    header = SessionHeader(
        uuid.uuid4().hex,
        path=f"{parent.path}/{request.name}",
        created=time.time(),
        parent=parent.id,
        preset=parent.preset,
        cwd=parent.cwd,
        depth=parent.depth + 1,
    )
    spec = AgentSpec(request.name, setup=setup, budget=request.budget)
    return await _run_child(request, spec, "fork", parent.session.fork(header))


def _refuse_others(allow: tuple[str, ...] | None, deny: tuple[str, ...]) -> Callable[[Execution], str | None]:
    def check(execution: Execution) -> str | None:
        name = execution.tool.name
        if name in deny or (allow is not None and name not in allow):
            return f"this subagent may not call {name!r}"
        return None

    return check


async def _run_child(
    request: SubagentRequest, spec: AgentSpec, provider: str, session: SessionLog | None
) -> SubagentResult:
    parent = request.parent
    if parent.is_closed:
        raise AgentClosedError(f"agent {parent.path!r} does not run any more, so it cannot start {spec.name!r}")
    result: SubagentResult | None = None
    with trio.CancelScope() as scope:
        async with parent.composer.compose(spec, parent=parent, preset=request.preset, session=session) as child:
            child.stop_with(scope)
            started = SubagentStarted(
                child.name, session_id=child.id, provider=provider, preset=request.preset, grants=child.grants
            )
            parent.session.append(started)
            delivery = None
            try:
                delivery = child.send(UserMessage(request.prompt, source="agent"))
                await child.run_until_read()
            finally:
                result = _settle(child, delivery)
                parent.session.append(
                    SubagentEnded(
                        child.id,
                        outcome=result.outcome,
                        text=result.text,
                        diagnostic=result.diagnostic,
                        usage=result.usage,
                    )
                )
    if result is None:  # the parent ended while the child was being composed
        raise AgentClosedError(f"agent {parent.path!r} ended before {spec.name!r} could start")
    return result


def _settle(child: Agent, delivery: Delivery | None) -> SubagentResult:
    how, diagnostic = _outcome(delivery)
    message = _last_answer(child.session)
    return SubagentResult(
        how,
        text=message.text,
        parts=message.parts,
        diagnostic=diagnostic,
        usage=child.usage,
        path=child.path,
        session_id=child.id,
    )


def _outcome(delivery: Delivery | None) -> tuple[Outcome, str]:
    settled: outcome.Outcome[Reply] | None = delivery.result if delivery is not None else None
    if settled is None:
        return "cancelled", "it ended before its first turn"
    if isinstance(settled, outcome.Value):
        outcomes: dict[str, Outcome] = {"truncated": "truncated", "refused": "refused"}
        return outcomes.get(settled.value.outcome, "done"), ""
    error = settled.error
    kinds: tuple[tuple[type[BaseException], Outcome], ...] = (
        (TurnCancelled, "cancelled"),
        (TurnRefused, "refused"),
        (LimitReachedError, "limit"),
    )
    how = next((kind for cls, kind in kinds if isinstance(error, cls)), "failed")
    code = getattr(error, "code", "")
    text = f"{type(error).__name__}{f' ({code})' if code else ''}: {error}"
    return how, text.encode()[:DIAGNOSTIC_BYTES].decode(errors="ignore")


def _last_answer(session: SessionLog) -> AssistantMessage:
    for position in range(len(session) - 1, session.boundary - 1, -1):
        data = session.records()[position].data
        if isinstance(data, AssistantSaid) and data.message.text:
            return data.message
    return AssistantMessage(())

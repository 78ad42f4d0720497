"""Subagents in this process: spawn starts fresh, fork starts from the parent's completed turns.

A child's key is bound under its parent's, so it sees what the parent sees and is heard by it. Its turns run
in the caller's task, or where agents stand very deep in one that this waits for, inside a cancel scope that its
parent holds, so it ends when either ends. The parent's log has one start and one settlement for it, however it
ends (`_settlement.py`).
"""

from collections.abc import Iterable

import trio

from creche._util import check_in_trio, open_hidden_nursery
from creche.agent import Agent, AgentSpec, Budget, Delivery
from creche.errors import AgentError, UnsupportedCapabilityError
from creche.messages import UserMessage
from creche.models import Model
from creche.presets import new_header
from creche.prompt import AgentView, AssembleContext, RuntimeContext, Text, context_order
from creche.scope import Registrar, SetupItem
from creche.session import SessionLog, SubagentStarted
from creche.tools import Execution, Guard, Restriction, output_shape, restrict

from ._provider import SubagentCapabilities, SubagentProvider, SubagentRequest, SubagentResult, run_subagent
from ._settlement import settle

LEVELS_IN_A_TASK = 8
"""How many levels of subagents run one inside the other in one task. Each takes some twenty frames of Python's stack, and a
stack that is full where a log is being closed leaves it open; so every so often another task begins, with another one."""


async def spawn(
    parent: AgentView | None,
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
    Cancelling this cancels the child, and by then it has ended and the parent's log says so. The same goes
    for the end of the parent, in whatever task this runs; then the result says ``"cancelled"``.

    Args:
      parent: The agent that starts it; may be idle or in a turn. In the body of a tool it is ``context.agent``.
      prompt: The task. A fresh child sees nothing else of the parent's conversation.
      name: Last segment of its path; ``spawn-1``, ``spawn-2``... in the order of the calls if absent, so give
        names where several tasks spawn at once and paths are to repeat from run to run.
      persona: Who it is.
      allow: The only tools that it inherits and sees, as in `creche.tools.restrict`.
      deny: Tools that it inherits and does not see.
      preset: A preset to compose it under instead of its parent's scope. A tool that is visible there and not
        to the parent must be in the preset's ``grants``.
      output: A class for a structured answer, as for `creche.agent.Agent.ask`.
      model: Another model than the one the parent asks at the moment.
      budget: Tighter limits for the child and everything below it.

    Raises:
      LimitReachedError: It would stand too deep.
      AuthorityError: Under the preset it would see more than its parent, without a grant.
      UnsupportedCapabilityError: The provider does not offer what was asked for.
      RegistryError: The filter is empty or names a tool that the child does not inherit.
      DuplicateNameError: A live sibling has the name.
      ConfigError: The name cannot be one.
      NotRegisteredError: There is no such preset or model provider, or no subagent provider ``spawn``.
      AgentClosedError: The parent does not run any more.
      AgentError: The parent is no agent of a host.
      TypeError: The class for the answer has no JSON form, or the filter is no list of names.

    Example:
      Two tasks at once; whatever becomes of one, both have a result::

          async def report(name, task):
              results[name] = await spawn(lead, task, name=name)


          async with trio.open_nursery() as nursery:
              nursery.start_soon(report, "tests", "Read the tests.")
              nursery.start_soon(report, "docs", "Read the docs.")
    """
    agent = _agent(parent, "spawn")
    request = SubagentRequest(
        agent,
        prompt=prompt,
        name=_name(agent, "spawn", name),
        persona=persona,
        allow=allow,
        deny=deny,
        preset=preset,
        output=output,
        model=model,
        budget=budget,
    )
    return await run_subagent("spawn", request)


async def fork(
    parent: AgentView | None,
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
    its own, and a tool filter refuses calls instead of hiding tools. How it ends is as for `spawn`.

    Args:
      parent: The agent that starts it, as for `spawn`.
      prompt: The task.
      name: Last segment of its path; ``fork-1``, ``fork-2``... if absent, as for `spawn`.
      allow: The only tools that it may call.
      deny: Tools that it may not call.
      budget: Tighter limits for the child and everything below it.

    Raises:
      LimitReachedError: It would stand too deep.
      RegistryError: The filter is empty or names a tool that the child does not inherit.
      TypeError: The filter is no list of names.
      DuplicateNameError: A live sibling has the name.
      ConfigError: The name cannot be one.
      NotRegisteredError: There is no subagent provider ``fork``.
      AgentClosedError: The parent does not run any more.
      AgentError: The parent is no agent of a host.
    """
    agent = _agent(parent, "fork")
    request = SubagentRequest(
        agent, prompt=prompt, name=_name(agent, "fork", name), allow=allow, deny=deny, budget=budget
    )
    return await run_subagent("fork", request)


def _agent(parent: AgentView | None, start: str) -> Agent:
    check_in_trio(f"{start}()", f"write await portal.run({start}, agent, ...)")
    if not isinstance(parent, Agent):
        raise AgentError(
            f"{start}() needs the agent that starts the subagent, and {parent!r} is none; a tool that is called without an "
            "agent has nobody to start one for"
        )
    return parent


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
        capabilities=SubagentCapabilities(output=True, depth=True, tool_filter=True, persona=True),
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
    if request.output is not None:
        output_shape(request.output)  # a class without a JSON form is refused before anything starts
    filters = [restrict(allow=request.allow, deny=request.deny)] if request.has_filter else []
    spec = AgentSpec(request.name, model=request.model, persona=request.persona, setup=filters, budget=request.budget)
    return await _run_child(request, spec, "spawn", None)


async def _run_fork(request: SubagentRequest) -> SubagentResult:
    for option, asked in (("preset", request.preset), ("model", request.model)):
        if asked is not None:
            raise UnsupportedCapabilityError(
                f"subagent provider 'fork' does not offer {option}=: a fork shares its parent's requests byte for byte"
            )
    setup: list[SetupItem] = []
    if request.has_filter:
        setup.append(_guarded_by(restrict(allow=request.allow, deny=request.deny)))
    spec = AgentSpec(request.name, setup=setup, budget=request.budget)
    header = new_header(spec, parent=request.parent, standing=None)
    return await _run_child(request, spec, "fork", request.parent.session.fork(header))


def _guarded_by(restriction: Restriction) -> SetupItem:
    """Return a setup that refuses what a restriction would hide, so that the tools of the request stay the same."""

    def check(execution: Execution) -> str | None:
        name = execution.tool.name
        return None if restriction.lets_through(name) else f"this subagent may not call {name!r}"

    def guard(registrar: Registrar) -> None:
        restriction.check_registration(registrar.registry, registrar.scope)
        registrar.add(Guard(check, lets_through=restriction.lets_through))

    return guard


@trio.lowlevel.enable_ki_protection  # the start, the settlement and what is between them stay whole
async def _run_child(
    request: SubagentRequest, spec: AgentSpec, provider: str, session: SessionLog | None
) -> SubagentResult:
    parent, result = request.parent, None
    async with parent.composer.compose(spec, parent=parent, preset=request.preset, session=session) as child:
        started = SubagentStarted(
            child.name, session_id=child.id, provider=provider, preset=request.preset, grants=child.grants
        )
        parent.session.append(started)
        delivery: Delivery | None = None
        try:
            delivery = child.send(UserMessage(request.prompt, source="agent"), output=request.output)
            await _run_turns(child)
        finally:
            if child.children:
                # They were started from other tasks. The settlement counts what they cost.
                with trio.CancelScope(shield=True):
                    await child.wait_childless()
            result = settle(parent, child, delivery)
    assert result is not None, "the block of a child that has started ends with its settlement"
    return result


async def _run_turns(child: Agent) -> None:
    if child.depth % LEVELS_IN_A_TASK:
        await child.run_until_read()
        return
    async with open_hidden_nursery(f"agent {child.path!r}", cancel=False) as nursery:
        nursery.start_soon(child.run_until_read, name=f"agent {child.path}")

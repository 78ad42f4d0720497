"""The tools through which a model delegates, one a provider.

Each comes and goes with its provider, and its wording follows what the provider says of itself: the one that
is visible from where the plugin is mounted. A call is run by the one that is visible to the agent that makes
it. So whoever has a provider of its own below that mounts the plugin there too.
"""

from collections.abc import Mapping
from types import MappingProxyType

from creche.agent import Agent
from creche.errors import ScopeClosedError, ToolFailed
from creche.messages import TextPart
from creche.scope import Plugin, Registrar, Registration
from creche.tools import Tool, ToolContext, ToolOutcome, tool

from ._provider import ProviderAdded, ProviderRemoved, SubagentProvider, SubagentRequest, SubagentResult, run_subagent

_TOOL_NAMES: Mapping[str, str] = MappingProxyType({"spawn": "subagent", "fork": "subagent_fork"})


def delegation(*providers: str) -> Plugin:
    """Return the plugin that adds the tools ``subagent`` and ``subagent_fork``, both parallel.

    A tool is there for as long as its provider is visible from where the plugin is mounted.

    Args:
      providers: Names of the providers to offer; ``spawn`` and ``fork`` if absent. The tool of another one is
        ``subagent_<name>``.
    """

    def offer(registrar: Registrar) -> None:
        offered = _Offer(registrar, providers or tuple(_TOOL_NAMES))
        offered.refresh()
        # Heard globally, for a provider may be registered above the scope that this is mounted on.
        registrar.at(None).on(ProviderAdded, offered.refresh)
        registrar.at(None).on(ProviderRemoved, offered.refresh)

    return Plugin("delegation", setup=[offer])


class _Offer:
    """The tools that stand for the providers visible from one place."""

    def __init__(self, registrar: Registrar, providers: tuple[str, ...]) -> None:
        self._registrar = registrar
        self._standing: dict[str, tuple[SubagentProvider, Registration] | None] = dict.fromkeys(providers)

    def refresh(self, _event: ProviderAdded | ProviderRemoved | None = None) -> None:
        """Take back the tools of providers that are gone or replaced, and add those of the new ones."""
        visible = self._registrar.registry.merge(SubagentProvider, self._registrar.scope)
        for name, standing in self._standing.items():
            provider = visible.get(name)
            if standing is not None and standing[0] is provider:
                continue
            self._standing[name] = None
            if standing is not None:
                standing[1].undo()
            if provider is not None:
                try:
                    self._standing[name] = provider, self._registrar.add(delegation_tool(provider))
                except ScopeClosedError:
                    return  # the plugin is being taken down, and a provider that it had itself went first


def delegation_tool(provider: SubagentProvider) -> Tool:
    """Return the tool that delegates to a provider: ``subagent``, ``subagent_fork``, or ``subagent_<name>``."""
    tool_name = _TOOL_NAMES.get(provider.name, f"subagent_{provider.name}")

    async def delegate(description: str, prompt: str, context: ToolContext) -> ToolOutcome:
        if not isinstance(context.agent, Agent):
            raise ToolFailed("only an agent can delegate; a program calls spawn() or fork()")
        name = f"{tool_name}-{context.number}"
        request = SubagentRequest(context.agent, prompt=prompt, name=name)
        return _report(name, await run_subagent(provider.name, request))

    delegate.__doc__ = _describe(provider)
    return tool(name=tool_name, parallel=True)(delegate)


def _describe(provider: SubagentProvider) -> str:
    if provider.inherits_parent_context:
        sees = "It already sees this conversation's completed turns, not the one in flight"
        needs = "The task. Say what happened in the turn in flight if it matters"
    else:
        sees = "It starts fresh and sees nothing of this conversation"
        needs = "The task, with everything it needs to know"
    return (
        f"Give a task to a subagent and wait for its report. {sees}. "
        "Several calls in one answer run at the same time.\n\n"
        "Args:\n"
        "  description: The task in three to five words, for people who watch.\n"
        f"  prompt: {needs}, and what its report must contain.\n"
    )


def _report(name: str, result: SubagentResult) -> ToolOutcome:
    if result.outcome == "done":
        return ToolOutcome((TextPart(result.text or "The subagent ended without a report."),))
    told = f"Error: subagent {name!r} ended as {result.outcome!r}. {result.diagnostic}".rstrip()
    if result.text:
        told += f"\nWhat it had said until then:\n{result.text}"
    return ToolOutcome((TextPart(told),), code=f"subagent-{result.outcome}")

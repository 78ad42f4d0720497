"""The tools through which a model delegates.

Each comes and goes with its provider, and its wording follows what the provider says of itself.
"""

from creche.agent import Agent
from creche.errors import ToolFailed
from creche.messages import TextPart
from creche.scope import Plugin, Registrar, Registration
from creche.tools import Tool, ToolContext, ToolOutcome, tool

from ._provider import ProviderAdded, ProviderRemoved, SubagentProvider, SubagentRequest, run_subagent

TOOL_NAMES = {"spawn": "subagent", "fork": "subagent_fork"}
"""The tool of each provider."""


def delegation() -> Plugin:
    """Return the plugin that adds the tools ``subagent`` and ``subagent_fork``, both parallel.

    A tool is there for as long as its provider is visible from where the plugin is mounted.
    """
    return Plugin("delegation", setup=[_offer_tools])


def _offer_tools(registrar: Registrar) -> None:
    offered: dict[str, tuple[SubagentProvider, Registration]] = {}

    def offer(_event: ProviderAdded | ProviderRemoved | None = None) -> None:
        visible = registrar.registry.merge(SubagentProvider, registrar.scope)
        for name in TOOL_NAMES:
            provider = visible.get(name)
            standing = offered.get(name)
            if standing is not None and standing[0] is not provider:
                offered.pop(name)[1].undo()
                standing = None
            if provider is not None and standing is None:
                offered[name] = (provider, registrar.add(delegation_tool(provider)))

    offer()
    # Heard globally, for a provider may be registered above the scope that this is mounted on.
    registrar.at(None).on(ProviderAdded, offer)
    registrar.at(None).on(ProviderRemoved, offer)


def delegation_tool(provider: SubagentProvider) -> Tool:
    """Return the tool that delegates to a provider."""
    sees = (
        "It already sees this conversation's completed turns, not the one in flight"
        if provider.inherits_parent_context
        else "It starts fresh and sees nothing of this conversation"
    )
    needs = (
        "The task. Say what happened in the turn in flight if it matters"
        if provider.inherits_parent_context
        else "The task, with everything it needs to know"
    )

    async def delegate(description: str, prompt: str, context: ToolContext) -> ToolOutcome:
        if not isinstance(context.agent, Agent):
            raise ToolFailed("only an agent can delegate")
        name = f"{TOOL_NAMES[provider.name]}-{context.number}"
        request = SubagentRequest(context.agent, prompt=prompt, name=name)
        result = await run_subagent(provider.name, request)
        if result.outcome == "done":
            return ToolOutcome((TextPart(result.text),))
        told = f"Error: subagent {name!r} ended as {result.outcome!r}. {result.diagnostic}".rstrip()
        if result.text:
            told += f"\nWhat it had said until then:\n{result.text}"
        return ToolOutcome((TextPart(told),), code=f"subagent-{result.outcome}")

    delegate.__doc__ = (
        f"Give a task to a subagent and wait for its report. {sees}. It has your tools. "
        "Several calls in one answer run at the same time.\n\n"
        "Args:\n"
        "  description: The task in three to five words, for people who watch.\n"
        f"  prompt: {needs}, and what its report must contain.\n"
    )
    return tool(name=TOOL_NAMES[provider.name], parallel=True)(delegate)

"""From a scope to the report about what it is told."""

from creche.prompt import AssembleContext, PromptAssembly, join_context_sections, render_context_sections, render_prompt
from creche.scope import Registry, scope_chain_of
from creche.tools import VISIBLE

from ._declared import PRESENTATIONS
from ._findings import find_misplaced
from ._pieces import explain_contexts, explain_sections, explain_variables
from ._report import PromptReport, place_of, places_of
from ._tools import explain_tools
from ._trial import try_assembling


async def explain_prompt(registry: Registry, context: AssembleContext) -> PromptReport:
    """Report what a scope is told now: each piece of its prompt, from whom, what it hides, and what is wrong.

    It takes what `creche.prompt.assemble` takes, and says the same where that succeeds: every effective source function is
    called once, and the wrappers of `creche.prompt.AssemblePrompt` are run. Nothing is registered and nothing logged. What
    fails does not end the report, it is a part of it; if a source function failed, wrappers are not run. It waits for
    wrappers alone.

    Args:
      registry: The shared registry, such as ``host.registry``.
      context: For whom: ``AssembleContext.of(agent)``, or ``AssembleContext(scope)`` for a scope without an agent,
        such as that of a preset, ``host.presets.get("reviewer").scope``.

    Example:
      What hides a tool from a preset::

          report = await explain_prompt(host.registry, AssembleContext(host.presets.get("reviewer").scope))
          print(*report.tool("write").hidden_by)
    """
    scope = context.scope
    trial = await try_assembling(registry, context)
    sections, contexts = explain_sections(trial), explain_contexts(trial)
    problems = list(trial.problems)
    problems += [each.problem for each in (*sections, *contexts) if each.problem and each.problem not in problems]
    presentations = registry.read(PRESENTATIONS, scope)
    return PromptReport(
        chain=scope_chain_of(scope),
        agent=None if context.agent is None else context.agent.path,
        text=None if problems else render_prompt(trial.assembly),
        snapshot=None if problems else _snapshot(trial.assembly),
        sections=sections,
        contexts=contexts,
        variables=explain_variables(trial),
        tools=explain_tools(registry, scope, trial),
        mode=registry.read(VISIBLE, scope).mode,
        presented_by=place_of(presentations[-1]) if presentations else None,
        suppressed_by=places_of(trial.suppressed_by),
        wrappers=places_of(trial.wrappers),
        wrapped=trial.wrapped,
        problems=tuple(problems),
        findings=find_misplaced(registry, context, trial),
    )


def _snapshot(assembly: PromptAssembly) -> str:
    return join_context_sections(render_context_sections(assembly))

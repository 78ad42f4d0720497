"""What every host registers for its agents: sections, variables, services, and the subagent providers."""

import trio

from creche.models import Settings, StandardProviders
from creche.models.adapters import PROVIDER_FACTORIES
from creche.prompt import (
    IDENTITY_SECTION,
    PERSONA_ORDER,
    PERSONA_SECTION,
    PERSONA_SUFFIX_SECTION,
    AgentView,
    AssembleContext,
    Section,
    Text,
    Variable,
    section_order,
)
from creche.scope import Registrar
from creche.subagents import delegation_context, fork_provider, spawn_provider
from creche.tools import ToolThreads, tool_provider

IDENTITY = "You are an agent run by creche, a nursery in which several agents work in one program."
"""Text of the section `harness:identity`."""

TOOL_THREADS = 64
"""How many sync tool bodies may run at once in one host."""


def furnish(registrar: Registrar, persona: Text | None, suffix: Text | None, *, identity: bool) -> None:
    """Register what every host has."""
    if identity:
        registrar.add(Section(IDENTITY_SECTION, order=section_order(IDENTITY_SECTION), text=IDENTITY))
    registrar.add(Section(PERSONA_SECTION, order=PERSONA_ORDER, text="" if persona is None else persona))
    if suffix is not None:
        order = section_order(PERSONA_SUFFIX_SECTION)
        registrar.add(Section(PERSONA_SUFFIX_SECTION, order=order, text=suffix))
    registrar.add(Variable("provider", _provider))
    registrar.add(Variable("model", _model))
    registrar.add(Variable("cwd", _cwd))
    registrar.provide(StandardProviders(PROVIDER_FACTORIES))
    registrar.provide(ToolThreads(trio.CapacityLimiter(TOOL_THREADS)))
    registrar.add(tool_provider(registrar.registry))
    registrar.add(spawn_provider())
    registrar.add(fork_provider())
    registrar.add(delegation_context())


def _provider(context: AssembleContext) -> str | None:
    return None if context.agent is None else _shown_settings(context.agent).provider


def _model(context: AssembleContext) -> str | None:
    return None if context.agent is None else _shown_settings(context.agent).model


def _cwd(context: AssembleContext) -> str | None:
    return None if context.agent is None else context.agent.cwd


def _shown_settings(agent: AgentView) -> Settings:
    """Return what an agent was made to ask; of a fork, what its parent was, whose prompt it shares byte for byte."""
    while agent.parent is not None and agent.session.boundary:
        agent = agent.parent
    return agent.settings

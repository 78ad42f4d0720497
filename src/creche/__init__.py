"""creche: many AI agents in one program, built on trio.

The everyday names; each room has the rest: `creche.scope`, `creche.prompt`, `creche.session`,
`creche.models`, `creche.tools`, `creche.explain`, `creche.agent`, `creche.subagents`, `creche.presets`, `creche.codemode`,
`creche.host`, `creche.portal`, `creche.messages`, `creche.errors`, `creche.plugins`, `creche.testing`.
"""

from creche.agent import Agent as Agent, AgentSpec as AgentSpec, Budget as Budget, Reply as Reply
from creche.errors import (
    CrecheError as CrecheError,
    InternalError as InternalError,
    ModelError as ModelError,
    ToolFailed as ToolFailed,
    ToolRetry as ToolRetry,
    TurnCancelled as TurnCancelled,
)
from creche.host import Host as Host, open_host as open_host
from creche.messages import ToolSchema as ToolSchema, UserMessage as UserMessage
from creche.models import (
    FunctionModel as FunctionModel,
    ModelOptions as ModelOptions,
    ScriptedModel as ScriptedModel,
    Usage as Usage,
    call as call,
    say as say,
)
from creche.portal import open_portal as open_portal, run_sync as run_sync
from creche.presets import Preset as Preset
from creche.prompt import RuntimeContext as RuntimeContext, Section as Section, Variable as Variable
from creche.scope import Plugin as Plugin, Registrar as Registrar, ScopeKey as ScopeKey
from creche.session import SessionLog as SessionLog
from creche.subagents import (
    SubagentResult as SubagentResult,
    delegation as delegation,
    fork as fork,
    spawn as spawn,
)
from creche.tools import Tool as Tool, ToolContext as ToolContext, restrict as restrict, tool as tool

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AgentSpec",
    "Budget",
    "CrecheError",
    "FunctionModel",
    "Host",
    "InternalError",
    "ModelError",
    "ModelOptions",
    "Plugin",
    "Preset",
    "Registrar",
    "Reply",
    "RuntimeContext",
    "ScopeKey",
    "ScriptedModel",
    "Section",
    "SessionLog",
    "SubagentResult",
    "Tool",
    "ToolContext",
    "ToolFailed",
    "ToolRetry",
    "ToolSchema",
    "TurnCancelled",
    "Usage",
    "UserMessage",
    "Variable",
    "call",
    "delegation",
    "fork",
    "open_host",
    "open_portal",
    "restrict",
    "run_sync",
    "say",
    "spawn",
    "tool",
]

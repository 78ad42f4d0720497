"""Subagents: the provider seam, spawn and fork in this process, and the tools through which a model delegates."""

from creche._util import publish

from ._children import (
    delegation_context as delegation_context,
    fork as fork,
    fork_provider as fork_provider,
    spawn as spawn,
    spawn_provider as spawn_provider,
)
from ._delegation import delegation as delegation, delegation_tool as delegation_tool
from ._provider import (
    ProviderAdded as ProviderAdded,
    ProviderRemoved as ProviderRemoved,
    SubagentCapabilities as SubagentCapabilities,
    SubagentProvider as SubagentProvider,
    SubagentRequest as SubagentRequest,
    SubagentResult as SubagentResult,
    run_subagent as run_subagent,
)

__all__ = [
    "ProviderAdded",
    "ProviderRemoved",
    "SubagentCapabilities",
    "SubagentProvider",
    "SubagentRequest",
    "SubagentResult",
    "delegation",
    "delegation_context",
    "delegation_tool",
    "fork",
    "fork_provider",
    "run_subagent",
    "spawn",
    "spawn_provider",
]

publish(globals(), __name__)

"""The prompt: sections, runtime contexts, variables and tool schemas, assembled once a step and rendered strictly.

Sections make up the system prompt, which stays byte-stable; runtime contexts go to the tail of the history
as a snapshot when they change.
"""

from creche._util import publish

from ._assemble import assemble as assemble
from ._assembly import (
    AssemblePrompt as AssemblePrompt,
    Origin as Origin,
    Piece as Piece,
    PromptAssembly as PromptAssembly,
)
from ._entries import (
    UNLISTED_TOOLS as UNLISTED_TOOLS,
    AgentView as AgentView,
    AssembleContext as AssembleContext,
    RuntimeContext as RuntimeContext,
    Section as Section,
    SuppressRuntimeContext as SuppressRuntimeContext,
    Text as Text,
    ToolOrder as ToolOrder,
    ToolProvider as ToolProvider,
    ToolSchemas as ToolSchemas,
    Variable as Variable,
    tool_order as tool_order,
)
from ._orders import (
    CONTEXT_ORDERS as CONTEXT_ORDERS,
    IDENTITY_SECTION as IDENTITY_SECTION,
    PERSONA_ORDER as PERSONA_ORDER,
    PERSONA_SECTION as PERSONA_SECTION,
    PERSONA_SUFFIX_SECTION as PERSONA_SUFFIX_SECTION,
    SECTION_ORDERS as SECTION_ORDERS,
    context_order as context_order,
    section_order as section_order,
)
from ._render import (
    CONTEXT_LEAD as CONTEXT_LEAD,
    join_context_sections as join_context_sections,
    render_context_sections as render_context_sections,
    render_prompt as render_prompt,
)

__all__ = [
    "CONTEXT_LEAD",
    "CONTEXT_ORDERS",
    "IDENTITY_SECTION",
    "PERSONA_ORDER",
    "PERSONA_SECTION",
    "PERSONA_SUFFIX_SECTION",
    "SECTION_ORDERS",
    "UNLISTED_TOOLS",
    "AgentView",
    "AssembleContext",
    "AssemblePrompt",
    "Origin",
    "Piece",
    "PromptAssembly",
    "RuntimeContext",
    "Section",
    "SuppressRuntimeContext",
    "Text",
    "ToolOrder",
    "ToolProvider",
    "ToolSchemas",
    "Variable",
    "assemble",
    "context_order",
    "join_context_sections",
    "render_context_sections",
    "render_prompt",
    "section_order",
    "tool_order",
]

publish(globals(), __name__)

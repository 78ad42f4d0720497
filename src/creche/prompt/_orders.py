"""The two order tables: where the named sections and runtime contexts stand.

Any finite order is legal for anybody; the tables are where first-party text stands, so that a contributor
can place its own around it. What varies by machine goes to the end, so that the head of the prompt stays
byte-identical across workspaces.
"""

from collections.abc import Mapping
from types import MappingProxyType

from creche.errors import PromptError

IDENTITY_SECTION = "harness:identity"
"""Name of the section that says what the agent runs in; the host registers it."""
PERSONA_SECTION = "deployment:persona"
"""Name of the section that says who the agent is; a scope's own persona takes the place of the host's."""
PERSONA_SUFFIX_SECTION = "deployment:persona-suffix"
"""Name of the section for what varies by machine."""
PERSONA_ORDER = 0
"""Where the persona stands."""

SECTION_ORDERS: Mapping[str, int] = MappingProxyType(
    {
        IDENTITY_SECTION: -100,
        PERSONA_SECTION: PERSONA_ORDER,
        "plan:policy": 50,
        "team:policy": 60,
        "context:file-reference": 98,
        "tools:code-only": 99,
        "tool:read": 100,
        "tool:write": 101,
        "tool:edit": 102,
        "tool:list": 103,
        "tool:glob": 104,
        "tool:grep": 105,
        "tool:bash": 110,
        "tool:jobs": 112,
        "tool:web_search": 120,
        "tool:web_fetch": 121,
        "tool:todo": 130,
        "tool:skill": 135,
        "tool:self_edit": 140,
        "tool:subagent": 150,
        "tool:subagent_fork": 151,
        "tool:mcp": 160,
        "tools:sdk": 190,
        "tool:structured_output": 195,
        PERSONA_SUFFIX_SECTION: 1000,
    }
)
"""Where the named sections stand: policies at 10-98, tool guidance at 100-189; 200-999 is left to deployments."""

CONTEXT_ORDERS: Mapping[str, int] = MappingProxyType(
    {"sandbox:policy": 110, "approval:policy": 115, "subagent:delegation": 120}
)
"""Where the named runtime contexts stand."""


def section_order(name: str) -> int:
    """Return the order of a named section.

    Raises:
      PromptError: The table has no such section; the message lists those it has.
    """
    return _look_up(SECTION_ORDERS, name, "section")


def context_order(name: str) -> int:
    """Return the order of a named runtime context.

    Raises:
      PromptError: The table has no such context; the message lists those it has.
    """
    return _look_up(CONTEXT_ORDERS, name, "runtime context")


def _look_up(table: Mapping[str, int], name: str, what: str) -> int:
    order = table.get(name)
    if order is None:
        raise PromptError(
            f"no place is set for a {what} named {name!r}; there is one for {', '.join(sorted(table))}, "
            "and any finite number will do"
        )
    return order

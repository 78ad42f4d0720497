"""The two order tables: where the named sections and runtime contexts stand.

Any finite order is legal for anybody; the tables are where first-party text stands, so that a contributor
can place its own around it. What varies by machine goes to the end, so that the head of the prompt stays
byte-identical across workspaces.
"""

from collections.abc import Mapping
from types import MappingProxyType

IDENTITY_SECTION = "harness:identity"
PERSONA_SECTION = "deployment:persona"
PERSONA_SUFFIX_SECTION = "deployment:persona-suffix"
PERSONA_ORDER = 0

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
"""Policies 10-98, tool guidance 100-189, deployments 200-999 are free."""

CONTEXT_ORDERS: Mapping[str, int] = MappingProxyType(
    {"sandbox:policy": 110, "approval:policy": 115, "subagent:delegation": 120}
)
"""Where the named runtime contexts stand."""


def section_order(name: str) -> int:
    """Return the order of a named section.

    Raises:
      KeyError: The table has no such section; the message lists those it has.
    """
    return _look_up(SECTION_ORDERS, name, "section")


def context_order(name: str) -> int:
    """Return the order of a named runtime context.

    Raises:
      KeyError: The table has no such context; the message lists those it has.
    """
    return _look_up(CONTEXT_ORDERS, name, "runtime context")


def _look_up(table: Mapping[str, int], name: str, what: str) -> int:
    if name not in table:
        raise KeyError(f"the order table has no {what} {name!r}; it has: {', '.join(sorted(table))}")
    return table[name]

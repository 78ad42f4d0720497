"""Where first-party text stands in a prompt."""

import pytest

from creche.errors import PromptError
from creche.prompt import (
    CONTEXT_ORDERS,
    IDENTITY_SECTION,
    PERSONA_ORDER,
    PERSONA_SECTION,
    PERSONA_SUFFIX_SECTION,
    SECTION_ORDERS,
    context_order,
    section_order,
)


def test_the_frame_of_a_prompt_is_identity_persona_and_suffix():
    frame = {name: section_order(name) for name in (IDENTITY_SECTION, PERSONA_SECTION, PERSONA_SUFFIX_SECTION)}
    assert frame == {"harness:identity": -100, "deployment:persona": 0, "deployment:persona-suffix": 1000}
    assert section_order(PERSONA_SECTION) == PERSONA_ORDER


@pytest.mark.parametrize(
    ("prefix", "first", "last"),
    [("plan:", 10, 98), ("team:", 10, 98), ("context:", 10, 98), ("tool:", 100, 195), ("tools:", 99, 190)],
)
def test_each_family_has_its_band(prefix, first, last):
    """Rule: policies at 10-98, the code-only notice at 99, tool guidance at 100-189, the SDK text at 190."""
    orders = {name: order for name, order in SECTION_ORDERS.items() if name.startswith(prefix)}
    assert orders
    assert {name: order for name, order in orders.items() if not first <= order <= last} == {}


def test_what_closes_the_tools_part_stands_where_the_design_says():
    assert [section_order(name) for name in ("tools:code-only", "tools:sdk", "tool:structured_output")] == [
        99,
        190,
        195,
    ]


def test_nothing_of_ours_stands_where_deployments_are_free():
    """Rule: 200-999 is left to deployments."""
    assert [name for name, order in SECTION_ORDERS.items() if 200 <= order <= 999] == []


@pytest.mark.parametrize("table", [SECTION_ORDERS, CONTEXT_ORDERS])
def test_no_two_share_a_place(table):
    assert len(set(table.values())) == len(table)


def test_the_runtime_contexts_have_a_table_of_their_own():
    assert dict(CONTEXT_ORDERS) == {"sandbox:policy": 110, "approval:policy": 115, "subagent:delegation": 120}
    assert context_order("approval:policy") == 115


@pytest.mark.parametrize("table", [SECTION_ORDERS, CONTEXT_ORDERS])
def test_the_tables_cannot_be_changed(table):
    with pytest.raises(TypeError):
        table["mine"] = 1


def test_a_name_without_a_place_is_refused_with_those_that_have_one():
    with pytest.raises(PromptError) as caught:
        context_order("tool:read")
    assert str(caught.value) == (
        "no place is set for a runtime context named 'tool:read'; there is one for "
        "approval:policy, sandbox:policy, subagent:delegation, and any finite number will do"
    )


def test_the_tables_do_not_mix():
    with pytest.raises(PromptError, match=r"^no place is set for a section named 'sandbox:policy'; there is one for "):
        section_order("sandbox:policy")

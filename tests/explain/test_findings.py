"""What at the global layer looks like one agent's, and what does not."""

import pytest

from creche import AgentSpec, Plugin, Preset, open_host
from creche.explain import explain_prompt
from creche.models import ScriptedModel
from creche.plugins.files import files
from creche.prompt import (
    PERSONA_SECTION,
    AssembleContext,
    RuntimeContext,
    Section,
    SuppressRuntimeContext,
    Variable,
    section_order,
)
from creche.scope import Owner, make_registrar
from creche.subagents import delegation
from creche.tools import Tool

CURE = "what is for one agent is registered at its scope: in setup=, or with registrar.at(agent.scope)"


def section(name, text="text", order=200):
    return Section(name, order=order, text=text)


def rules(report):
    return [(each.check, each.kind, each.name) for each in report.findings]


async def test_what_an_agent_or_preset_registers_for_everybody(registry, scopes, explain):
    """Rule: its owner stands at a scope; where it is shadowed it is told all the same, for others see it."""
    pen = make_registrar(registry, Owner("team", scopes.team), scopes.team)
    everywhere = pen.at(None)
    for entry in (
        section("a"),
        RuntimeContext("b", order=1, text="text"),
        Variable("c", lambda _: "x"),
        Tool("d", description="", parameters={}, run=print),
        SuppressRuntimeContext(),
    ):
        everywhere.add(entry)
    pen.add(section("a"))
    report = await explain(scopes.team)
    assert rules(report) == [
        ("owned-below", "Section", "a"),
        ("owned-below", "RuntimeContext", "b"),
        ("owned-below", "Variable", "c"),
        ("owned-below", "Tool", "d"),
        ("owned-below", "SuppressRuntimeContext", ""),
    ]
    first, *_, last = [each.sentence for each in report.findings]
    assert first == (
        "Section 'a' of 'team' at the global layer is registered for all agents by one that stands at scope 'team'; "
        + CURE
    )
    assert last.startswith("SuppressRuntimeContext of 'team' at the global layer is registered for all agents")


async def test_a_setup_that_goes_to_the_global_layer_is_found():
    team = Preset("team", setup=[lambda registrar: registrar.at(None).add(section("a")) and None])
    async with open_host(model=ScriptedModel({}), presets=[team]) as host:
        report = await explain_prompt(host.registry, AssembleContext())
    assert rules(report) == [("owned-below", "Section", "a")]


async def test_a_section_at_the_place_of_the_persona(pens, explain):
    pens.host.add(Section(PERSONA_SECTION, order=0, text="You are kind."))
    pens.host.add(section("ada", order=0))
    pens.host.add(section("rules", order=1))
    pens.host.add(RuntimeContext("clock", order=0, text="noon"))
    report = await explain()
    assert rules(report) == [("persona-order", "Section", "ada")]
    assert report.findings[0].sentence == (
        f"Section 'ada' of 'host' at the global layer has the order of the persona, 0, and is told to all agents; {CURE}"
    )


def needs_an_agent(context):
    return context.agent.path


async def test_a_source_function_that_fails_without_an_agent(pens, scopes, explain, registry):
    pens.host.add(section("a", needs_an_agent))
    pens.host.add(RuntimeContext("b", order=1, text=needs_an_agent))
    pens.host.add(Variable("c", needs_an_agent))
    pens.team.add(section("own", needs_an_agent))
    report = await explain(scopes.team)
    assert rules(report) == [
        ("needs-an-agent", "Section", "a"),
        ("needs-an-agent", "RuntimeContext", "b"),
        ("needs-an-agent", "Variable", "c"),
    ]
    assert report.findings[0].sentence == (
        f"Section 'a' of 'host' at the global layer fails where there is no agent; {CURE}"
    )
    pens.team.add(section("a"))
    assert rules(await explain(scopes.team))[0] == ("needs-an-agent", "RuntimeContext", "b")


async def test_what_fails_with_an_agent_too_is_a_problem_and_no_finding():
    def fails(context):
        raise ValueError

    async with (
        open_host(model=ScriptedModel({}), plugins=[Plugin("p", setup=[section("a", fails)])]) as host,
        host.open_agent(AgentSpec("ada")) as ada,
    ):
        report = await explain_prompt(host.registry, AssembleContext.of(ada))
    assert (len(report.problems), report.findings) == (1, ())


@pytest.mark.parametrize(
    ("agent", "name", "is_found"),
    [
        ("ada", "ada", True),
        ("ada", "ada:rules", True),
        ("ada", "adage", False),
        ("ada", "rules:ada", False),
        ("tool", "tool", False),
        ("team", "team:policy", False),
    ],
)
async def test_what_has_the_name_of_the_agent(agent, name, is_found):
    """Rule: the first part of its name counts, unless that is one of our own."""
    async with (
        open_host(model=ScriptedModel({}), plugins=[Plugin("p", setup=[section(name)])]) as host,
        host.open_agent(AgentSpec(agent)) as opened,
    ):
        report = await explain_prompt(host.registry, AssembleContext.of(opened))
    assert rules(report) == ([("named-after-agent", "Section", name)] if is_found else [])


async def test_a_tool_or_variable_may_have_the_name_of_an_agent():
    entries = [Variable("ada", lambda _: "x"), Tool("ada", description="", parameters={}, run=print)]
    async with (
        open_host(model=ScriptedModel({}), plugins=[Plugin("p", setup=entries)]) as host,
        host.open_agent(AgentSpec("ada")) as ada,
    ):
        report = await explain_prompt(host.registry, AssembleContext.of(ada))
    assert report.findings == ()


async def test_what_comes_with_creche_is_no_finding(tmp_path):
    """Rule: a rule that finds fault with our own plugins is not certain enough."""
    team = Preset("team", persona="You are kind.", setup=[section("plan:policy", order=section_order("plan:policy"))])
    plugins = [files(tmp_path, write=True), delegation()]
    async with open_host(model=ScriptedModel({}), plugins=plugins, presets=[team], persona="You help.") as host:
        for name in ("lead", "tool", "team", "deployment"):
            async with host.open_agent(AgentSpec(name), preset="team") as agent:
                for context in (AssembleContext.of(agent), AssembleContext(agent.scope), AssembleContext()):
                    assert (await explain_prompt(host.registry, context)).findings == ()

"""Sections, runtime contexts and variables: who is told, who is hidden, and what did not come into the prompt."""

import attrs
import pytest

from creche import AgentSpec, Preset, open_host
from creche.errors import NotRegisteredError
from creche.explain import Place, explain_prompt
from creche.models import ScriptedModel
from creche.prompt import (
    AssembleContext,
    AssemblePrompt,
    Origin,
    Piece,
    PromptAssembly,
    RuntimeContext,
    Section,
    SuppressRuntimeContext,
    Variable,
    assemble,
    join_context_sections,
    render_context_sections,
    render_prompt,
)


def section(name, text="text", order=200, **options):
    return Section(name, order=order, text=text, **options)


def fails(context):
    raise ValueError("no data")


def needs_an_agent(context):
    return f"You are {context.agent.path}."


async def test_nothing_is_registered(explain):
    report = await explain()
    assert (report.scope, report.chain, report.agent, report.text, report.snapshot) == (None, (), None, "", "")
    assert (report.sections, report.contexts, report.variables, report.tools) == ((), (), (), ())
    assert (report.problems, report.findings, report.tokens, report.mode) == ((), (), 0, "native")


# ---------------------------------------------------------------- shadowing


@pytest.mark.parametrize("kind", [Section, RuntimeContext])
async def test_the_nearest_is_told_and_what_it_hides_is_named_nearest_first(pens, scopes, explain, kind):
    for pen in (pens.host, pens.org, pens.team, pens.ada):
        pen.add(kind("rules", order=200, text=f"of {pen.owner}"))
    seen = {}
    for scope in (None, scopes.org, scopes.team, scopes.ada, scopes.ben):
        report = await explain(scope)
        (piece,) = report.sections or report.contexts
        seen["host" if scope is None else scope.label] = (piece.text, piece.place, piece.shadows)
    host, org, team, ada = (
        Place("host", scope=None),
        *[Place(key.label, scope=key) for key in (scopes.org, scopes.team, scopes.ada)],
    )
    assert seen == {
        "host": ("of host", host, ()),
        "org": ("of org", org, (host,)),
        "team": ("of team", team, (org, host)),
        "ada": ("of ada", ada, (team, org, host)),
        "ben": ("of team", team, (org, host)),
    }


async def test_siblings_are_told_nothing_of_each_other(pens, scopes, explain):
    for entry in (
        section("own"),
        RuntimeContext("own", order=1, text="text"),
        Variable("own", lambda _: "x"),
        SuppressRuntimeContext(),
    ):
        pens.ada.add(entry)
    report = await explain(scopes.ben)
    assert (report.sections, report.contexts, report.variables, report.suppressed_by) == ((), (), (), ())


async def test_a_shadowed_source_function_is_not_called(pens, scopes, explain):
    pens.host.add(section("a", fails))
    pens.host.add(Variable("x", fails))
    pens.team.add(section("a", "{{x}}"))
    pens.team.add(Variable("x", lambda _: "fine"))
    report = await explain(scopes.team)
    assert (report.text, report.problems) == ("fine", ())


async def test_an_undo_uncovers_what_was_hidden(pens, scopes, explain):
    pens.host.add(section("a", "global"))
    own = pens.ada.add(section("a", "own"))
    assert (await explain(scopes.ada)).section("a").text == "own"
    own.undo()
    piece = (await explain(scopes.ada)).section("a")
    assert (piece.text, piece.shadows) == ("global", ())


# ---------------------------------------------------------------- what is in the prompt, and what is not


async def test_pieces_stand_in_their_order_and_say_what_they_are(pens, scopes, explain):
    pens.team.add(section("b", "It is {{what}}.", order=2))
    pens.host.add(section("a", "{{what}}", order=1, interpolate=False))
    pens.host.add(section("c", "", order=1.5))
    pens.host.add(Variable("what", lambda _: "noon"))
    report = await explain(scopes.team)
    assert [(piece.name, piece.order, piece.state, piece.text, piece.interpolate) for piece in report.sections] == [
        ("a", 1, "shown", "{{what}}", False),
        ("c", 1.5, "empty", "", True),
        ("b", 2, "shown", "It is noon.", True),
    ]
    assert report.text == "{{what}}\n\nIt is noon."
    assert [piece.tokens for piece in report.sections] == [2, 0, 3]


async def test_what_a_complete_section_leaves_out_is_said(pens, scopes, explain):
    pens.host.add(section("before", order=1))
    pens.team.add(section("all", "This alone.", order=2, complete=True))
    pens.host.add(section("behind", order=3))
    report = await explain(scopes.team)
    assert report.text == "This alone."
    assert [(piece.name, piece.state, piece.note) for piece in report.sections] == [
        ("before", "left-out", "section 'all' is the whole prompt"),
        ("all", "shown", ""),
        ("behind", "left-out", "section 'all' is the whole prompt"),
    ]
    assert (report.section("before").text, report.section("before").tokens) == ("text", 0)


async def test_two_complete_sections_are_a_problem_and_both_are_there(pens, explain):
    pens.host.add(section("a", complete=True))
    pens.host.add(section("b", complete=True))
    report = await explain()
    assert report.problems == (
        (
            "only one section can be the complete prompt, not section 'a' of 'host' at the global layer and "
            "section 'b' of 'host' at the global layer"
        ),
    )
    assert [(piece.name, piece.state, piece.complete) for piece in report.sections] == [
        ("a", "shown", True),
        ("b", "shown", True),
    ]
    assert report.text is None


async def test_suppressed_contexts_are_named_with_everybody_who_suppresses_them(pens, scopes, explain):
    pens.host.add(RuntimeContext("clock", order=1, text=fails))
    pens.org.add(SuppressRuntimeContext())
    pens.team.add(SuppressRuntimeContext())
    report = await explain(scopes.ada)
    assert report.suppressed_by == (Place("org", scope=scopes.org), Place("team", scope=scopes.team))
    (clock,) = report.contexts
    assert (clock.state, clock.note, clock.text, clock.tokens) == (
        "suppressed",
        "suppressed by 'org' at scope 'org', 'team' at scope 'team'",
        "",
        0,
    )
    assert (report.problems, report.snapshot) == ((), "")
    assert (await explain()).context("clock").state == "failed"


async def test_contexts_are_rendered_too(pens, explain):
    pens.host.add(RuntimeContext("clock", order=1, text="It is {{now}}."))
    pens.host.add(RuntimeContext("weather", order=2, text=""))
    pens.host.add(Variable("now", lambda _: "noon"))
    report = await explain()
    assert [(each.kind, each.state, each.text) for each in report.contexts] == [
        ("runtime context", "shown", "It is noon."),
        ("runtime context", "empty", ""),
    ]
    assert report.snapshot is not None
    assert report.snapshot.endswith("It is noon.")


# ---------------------------------------------------------------- what is wrong does not end the report


async def test_everything_that_is_wrong_is_told_and_the_rest_is_shown(pens, explain):
    pens.host.add(section("a", fails, order=1))
    pens.host.add(section("b", lambda _: 5, order=2))
    pens.host.add(section("c", "fine", order=3))
    pens.host.add(section("d", "{{nothing}}", order=4))
    pens.host.add(RuntimeContext("e", order=1, text=fails))
    pens.host.add(Variable("x", fails))
    report = await explain()
    assert report.problems == (
        "variable 'x' of 'host' at the global layer raised ValueError('no data')",
        "section 'a' of 'host' at the global layer raised ValueError('no data')",
        "section 'b' of 'host' at the global layer gave 5; its text is a string or a plain function that returns one",
        "runtime context 'e' of 'host' at the global layer raised ValueError('no data')",
        (
            "unknown variable {{nothing}} in section 'd' of 'host' at the global layer; registered: x; "
            "register a Variable of that name, or write {{open}} for two opening braces"
        ),
    )
    assert [(piece.name, piece.state) for piece in report.sections] == [
        ("a", "failed"),
        ("b", "failed"),
        ("c", "shown"),
        ("d", "failed"),
    ]
    assert report.section("d").text == "{{nothing}}"
    assert report.section("a").problem == report.problems[1]
    assert report.variable("x").problem == report.problems[0]
    assert (report.text, report.snapshot) == (None, None)


async def test_a_source_function_that_needs_an_agent_is_shown_as_failed_without_one_and_rendered_with_one():
    team = Preset("team", setup=[section("who", needs_an_agent)])
    async with open_host(model=ScriptedModel({}), presets=[team], identity=False) as host:
        alone = await explain_prompt(host.registry, AssembleContext(host.presets.get("team").scope))
        async with host.open_agent(AgentSpec("ada"), preset="team") as ada:
            own = await explain_prompt(host.registry, AssembleContext.of(ada))
    assert alone.section("who").problem == (
        "section 'who' of 'preset team' at scope 'preset team' raised "
        "AttributeError(\"'NoneType' object has no attribute 'path'\")"
    )
    assert (alone.agent, own.agent) == (None, "ada")
    assert (own.section("who").text, own.problems) == ("You are ada.", ())


async def test_it_changes_nothing(registry, pens, scopes, explain):
    pens.host.add(section("a"))
    before = (repr(registry), registry.scopes())
    await explain(scopes.ada)
    assert (repr(registry), registry.scopes()) == before


# ---------------------------------------------------------------- wrappers


def wrap(pen, change):
    async def wrapper(event, go_on):
        return change(await go_on())

    return pen.wrap(AssemblePrompt, wrapper)


async def test_wrappers_are_run_and_what_they_did_is_said(pens, scopes, explain, registry):
    for name, order in (("a", 1), ("b", 2), ("c", 3)):
        pens.host.add(section(name, order=order))
    pens.host.add(RuntimeContext("gone", order=1, text="text"))
    pens.host.add(Variable("x", lambda _: "1"))
    pens.host.add(Variable("y", lambda _: "1"))

    def change(assembly):
        first, second, _ = assembly.sections
        new = Piece(Origin("new", order=9), "{{x}} {{z}}")
        return attrs.evolve(
            assembly,
            sections=[new, attrs.evolve(second, text="changed"), first],
            contexts=[],
            variables={"x": "2", "y": "1", "z": "3"},
        )

    wrap(pens.team, change)
    report = await explain(scopes.team)
    assert [(piece.name, piece.text, piece.state, piece.note) for piece in report.sections] == [
        ("c", "text", "left-out", "a wrapper took it out"),
        ("new", "2 3", "shown", "a wrapper added it"),
        ("b", "changed", "shown", "a wrapper changed it"),
        ("a", "text", "shown", ""),
    ]
    assert report.section("new").place is None
    assert [(piece.name, piece.state, piece.note) for piece in report.contexts] == [
        ("gone", "left-out", "a wrapper took it out")
    ]
    assert [(each.name, each.value, each.note) for each in report.variables] == [
        ("x", "2", "a wrapper changed it"),
        ("y", "1", ""),
        ("z", "3", "a wrapper added it"),
    ]
    assert report.wrappers == (Place("team", scope=scopes.team),)
    assembly = await assemble(registry, AssembleContext(scopes.team))
    assert report.text == render_prompt(assembly)
    assert report.snapshot == join_context_sections(render_context_sections(assembly))


async def test_a_wrapper_that_stands_for_its_own_scope_alone_is_named_there_alone(pens, scopes, explain):
    async def wrapper(event, go_on):
        return PromptAssembly()

    pens.host.add(section("a"))
    pens.team.wrap(AssemblePrompt, wrapper, here_only=True)
    assert [len((await explain(scope)).wrappers) for scope in (scopes.org, scopes.team, scopes.ada)] == [0, 1, 0]
    assert [(await explain(scope)).text for scope in (scopes.team, scopes.ada)] == ["", "text"]


async def test_a_wrapper_that_raises_is_a_problem_and_what_it_was_given_is_shown(pens, explain):
    async def wrapper(event, go_on):
        raise RuntimeError("broken")

    pens.host.add(section("a"))
    pens.host.wrap(AssemblePrompt, wrapper)
    report = await explain()
    assert report.problems == (
        "RuntimeError('broken'); raised by the wrapper of 'host' at the global layer around prompt/assemble",
    )
    assert (report.section("a").state, report.text) == ("shown", None)


async def test_a_wrapper_that_returns_something_else_is_blamed(pens, explain):
    async def wrapper(event, go_on):
        return None

    pens.host.wrap(AssemblePrompt, wrapper)
    (problem,) = (await explain()).problems
    assert problem.startswith("the wrapper of 'host' at the global layer around prompt/assemble returned None where")


async def test_wrappers_are_not_run_where_a_step_would_not_reach_them(pens, explain):
    async def wrapper(event, go_on):
        raise AssertionError("it ran")

    pens.host.add(section("a", fails))
    pens.host.wrap(AssemblePrompt, wrapper)
    report = await explain()
    assert report.problems == ("section 'a' of 'host' at the global layer raised ValueError('no data')",)
    assert report.wrappers == (Place("host", scope=None),)


# ---------------------------------------------------------------- looking something up


async def test_a_name_that_the_report_does_not_have_is_refused_with_those_that_it_has(pens, explain):
    pens.host.add(section("a"))
    pens.host.add(section("b"))
    report = await explain()
    with pytest.raises(NotRegisteredError) as caught:
        report.section("c")
    assert str(caught.value) == "the report has no section 'c'; it has: a, b"
    for look_up, what in ((report.context, "runtime context"), (report.variable, "variable"), (report.tool, "tool")):
        with pytest.raises(NotRegisteredError) as caught:
            look_up("c")
        assert str(caught.value) == f"the report has no {what} 'c'; it has: (none)"

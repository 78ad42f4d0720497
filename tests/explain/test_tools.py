"""Tools: which the model is shown, whose they are, and who takes the others away."""

import attrs
import pytest

from creche import AgentSpec, Preset, fork, open_host, say
from creche.codemode import code_mode
from creche.explain import Place, Rule, explain_prompt
from creche.messages import ToolSchema
from creche.models import FunctionModel, ScriptedModel
from creche.prompt import UNLISTED_TOOLS, AssembleContext, AssemblePrompt, ToolProvider, ToolSchemas, tool_order
from creche.scope import Owner, make_registrar
from creche.tools import RUN_CODE, CodeTool, Guard, Tool, present_as, restrict


def named(name, **options):
    return Tool(name, description=f"Does {name}.", parameters={}, run=print, **options)


def states(report):
    return [(each.name, each.state) for each in report.tools]


# ---------------------------------------------------------------- restrictions


async def test_a_chain_of_restrictions_names_each_that_hides_a_tool_and_where_it_holds(pens, scopes, explain):
    for name in ("read", "write", "bash"):
        pens.host.add(named(name))
    pens.org.add(restrict(deny=["bash"]))
    pens.team.add(restrict(allow=["read", "bash"]))
    pens.team.add(restrict(deny=["write", "bash"]))
    reports = {scope: await explain(scope) for scope in (None, scopes.org, scopes.ada)}
    assert states(reports[None]) == [("bash", "direct"), ("read", "direct"), ("write", "direct")]
    assert states(reports[scopes.org]) == [("read", "direct"), ("write", "direct"), ("bash", "hidden")]
    assert states(reports[scopes.ada]) == [("read", "direct"), ("bash", "hidden"), ("write", "hidden")]
    org, team = Place("org", scope=scopes.org), Place("team", scope=scopes.team)
    assert reports[scopes.ada].tool("bash").hidden_by == (
        Rule("deny", names=("bash",), place=org),
        Rule("deny", names=("bash", "write"), place=team),
    )
    assert reports[scopes.ada].tool("write").hidden_by == (
        Rule("allow", names=("bash", "read"), place=team),
        Rule("deny", names=("bash", "write"), place=team),
    )
    assert reports[scopes.ada].tool("read").hidden_by == ()
    assert [str(rule) for rule in reports[scopes.ada].tool("write").hidden_by] == [
        "allow=bash,read of 'team' at scope 'team'",
        "deny=bash,write of 'team' at scope 'team'",
    ]
    hidden = reports[scopes.ada].tool("bash")
    assert (hidden.schema, hidden.tokens, hidden.place) == (None, 0, Place("host", scope=None))


async def test_a_sibling_s_restriction_is_none_of_ones_own(pens, scopes, explain):
    pens.host.add(named("read"))
    pens.ada.add(restrict(deny=["read"]))
    assert states(await explain(scopes.ben)) == [("read", "direct")]
    assert states(await explain(scopes.ada)) == [("read", "hidden")]


async def test_ones_own_tool_shadows_what_is_hidden_above_it(pens, scopes, explain):
    pens.host.add(named("read"))
    pens.org.add(named("read"))
    pens.team.add(restrict(deny=["read"]))
    assert (await explain(scopes.team)).tool("read").shadows == (Place("host", scope=None),)
    own = named("read")
    pens.ada.add(own)
    report = (await explain(scopes.ada)).tool("read")
    assert (report.state, report.hidden_by, report.schema) == ("direct", (), own.schema)
    assert (report.place, report.shadows) == (
        Place("ada", scope=scopes.ada),
        (Place("org", scope=scopes.org), Place("host", scope=None)),
    )


async def test_a_guard_that_goes_by_names_is_told_and_the_tool_stays_visible(pens, scopes, explain):
    pens.host.add(named("read"))
    pens.host.add(named("write"))
    pens.org.add(Guard(lambda execution: None))
    pens.team.add(Guard(lambda execution: "no", lets_through=lambda name: name == "read"))
    report = await explain(scopes.ada)
    assert states(report) == [("read", "direct"), ("write", "direct")]
    assert report.tool("read").refused_by == ()
    (rule,) = report.tool("write").refused_by
    assert (rule.kind, rule.place, str(rule)) == (
        "guard",
        Place("team", scope=scopes.team),
        "a guard of 'team' at scope 'team'",
    )


async def test_the_tool_filter_of_a_fork_is_a_guard():
    seen = []

    async def answer(request):
        if request.agent_path == "lead/fork-1":
            fork_agent = next(agent for agent in host.agents.values() if agent.path == "lead/fork-1")
            seen.append(await explain_prompt(host.registry, AssembleContext.of(fork_agent)))
        return [say("Done.")]

    async with (
        open_host(model=FunctionModel(answer)) as host,
        host.open_agent(AgentSpec("lead", tools=[named("read"), named("write")])) as lead,
    ):
        await fork(lead, "Go.", deny=["write"])
    (report,) = seen
    assert (report.tool("write").state, len(report.tool("write").refused_by)) == ("direct", 1)
    assert report.tool("read").refused_by == ()


# ---------------------------------------------------------------- presentations


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("native", [("read", "direct"), ("bash", "hidden")]),
        ("code", [(RUN_CODE, "direct"), ("bash", "hidden"), ("read", "in-programs")]),
        ("hybrid", [("read", "direct"), (RUN_CODE, "direct"), ("bash", "hidden")]),
    ],
)
async def test_each_presentation(mode, expected):
    base = Preset("base", tools=[named("read"), named("bash")])
    team = Preset("team", extends="base", setup=[restrict(deny=["bash"])], present_as=mode)
    async with open_host(model=ScriptedModel({}), plugins=[code_mode()], presets=[base, team]) as host:
        scope = host.presets.get("team").scope
        report = await explain_prompt(host.registry, AssembleContext(scope))
    assert (states(report), report.mode) == (expected, mode)
    assert report.presented_by == Place("preset team", scope=scope)
    assert report.problems == ()
    if mode != "native":
        assert report.tool(RUN_CODE).place == Place("code_mode", scope=None)
        assert report.section("tools:sdk").state == "shown"


async def test_code_mode_without_the_plugin_is_a_problem(pens, scopes, explain):
    pens.host.add(named("read"))
    code = pens.host.add(CodeTool(named(RUN_CODE)))
    pens.team.add(present_as("code"))
    code.undo()
    report = await explain(scopes.team)
    assert report.problems == (
        (
            "a tool provider of 'host' at the global layer raised PromptError(\"tools are presented as 'code' at scope "
            "'team', and the plugin code_mode() is not mounted there or above any more\")"
        ),
    )
    assert states(report) == [("read", "in-programs")]


async def test_the_nearest_run_code_counts(pens, scopes, explain):
    pens.host.add(CodeTool(named(RUN_CODE)))
    pens.org.add(CodeTool(named(RUN_CODE)))
    pens.team.add(present_as("code"))
    report = (await explain(scopes.team)).tool(RUN_CODE)
    assert (report.place, report.shadows) == (Place("org", scope=scopes.org), (Place("host", scope=None),))


# ---------------------------------------------------------------- providers, orders, wrappers


def offering(*names, known=()):
    schemas = [ToolSchema(name, description="", parameters={}) for name in names]
    return ToolProvider(lambda _: ToolSchemas(schemas, known_names=[*names, *known]))


async def test_what_another_provider_offers_and_what_it_only_knows(pens, scopes, explain):
    pens.team.add(offering("search", known=["fetch"]))
    report = await explain(scopes.ada)
    assert states(report) == [("search", "direct"), ("fetch", "known")]
    assert report.tool("fetch").note == "its tool provider knows the name and does not offer it"
    assert {each.place for each in report.tools} == {Place("team", scope=scopes.team)}


async def test_a_hidden_tool_and_one_of_its_name_from_a_provider_are_two(pens, scopes, explain):
    pens.host.add(named("read"))
    pens.team.add(restrict(deny=["read"]))
    pens.team.add(offering("read"))
    report = await explain(scopes.team)
    assert [(each.name, each.state, each.place.owner) for each in report.tools] == [
        ("read", "direct", "team"),
        ("read", "hidden", "host"),
    ]


async def test_two_providers_of_one_name_are_a_problem_and_one_of_them_is_shown(pens, explain):
    pens.host.add(offering("read"))
    pens.host.add(offering("read", "edit"))
    report = await explain()
    assert report.problems == ("tool 'read' is offered by 'host' and by 'host'; rename one of them",)
    assert states(report) == [("edit", "direct"), ("read", "direct")]


async def test_a_provider_that_fails_is_a_problem_and_no_tool_order_is_blamed_for_it(pens, explain):
    def broken(context):
        raise ValueError("no server")

    pens.host.add(named("read"))
    pens.host.add(ToolProvider(broken))
    pens.host.add(tool_order(["search", UNLISTED_TOOLS]))
    report = await explain()
    assert report.problems == ("a tool provider of 'host' at the global layer raised ValueError('no server')",)
    assert states(report) == [("read", "direct")]


async def test_tools_stand_in_their_order(pens, scopes, explain):
    for name in ("a", "b", "c"):
        pens.host.add(named(name))
    pens.team.add(tool_order(["c", UNLISTED_TOOLS, "a"]))
    assert [each.name for each in (await explain(scopes.team)).tools] == ["c", "b", "a"]
    pens.ada.add(tool_order(["x", UNLISTED_TOOLS]))
    report = await explain(scopes.ada)
    assert report.problems == ("tool order lists unknown tools 'x'; known: a, b, c",)
    assert states(report) == [("a", "direct"), ("b", "direct"), ("c", "direct")]


async def test_what_wrappers_do_to_tools_is_said(pens, explain):
    async def wrapper(event, go_on):
        found = await go_on()
        by_name = {schema.name: schema for schema in found.tools}
        changed = attrs.evolve(by_name["a"], description="Something else.")
        return attrs.evolve(found, tools=[changed, ToolSchema("new", description="", parameters={})])

    pens.host.add(named("a"))
    pens.host.add(named("b"))
    pens.host.add(offering("c"))
    pens.host.wrap(AssemblePrompt, wrapper)
    report = await explain()
    assert [(each.name, each.state, each.note) for each in report.tools] == [
        ("a", "direct", "a wrapper changed it"),
        ("new", "direct", "a wrapper added it"),
        ("b", "left-out", "a wrapper took it out"),
        ("c", "left-out", "a wrapper took it out"),
    ]
    assert report.tool("new").place is None


async def test_run_code_can_be_taken_out_by_a_wrapper_too(pens, scopes, explain):
    async def wrapper(event, go_on):
        return attrs.evolve(await go_on(), tools=[])

    pens.host.add(CodeTool(named(RUN_CODE)))
    pens.team.add(present_as("code"))
    pens.host.wrap(AssemblePrompt, wrapper)
    report = (await explain(scopes.team)).tool(RUN_CODE)
    assert (report.state, report.note, report.place) == (
        "left-out",
        "a wrapper took it out",
        Place("host", scope=None),
    )


async def test_a_tool_that_nothing_offers_is_said_to_be_left_out(registry):
    """Rule: the host registers the provider of registered tools; a registry of one's own may be without."""
    pen = make_registrar(registry, Owner("me"), None)
    pen.add(named("read"))
    report = (await explain_prompt(registry, AssembleContext())).tool("read")
    assert (report.state, report.note) == ("left-out", "no tool provider offers it")
    pen.add(offering("read"))
    assert states(await explain_prompt(registry, AssembleContext())) == [("read", "direct"), ("read", "left-out")]


async def test_a_schema_costs_a_quarter_of_its_bytes(pens, explain):
    read = named("read")
    pens.host.add(read)
    report = await explain()
    assert report.tool("read").tokens == -(-len(read.schema.encoded) // 4) == report.tokens

"""How tools are shown to the model: native, code, hybrid; and that nothing runs which was not shown."""

import pytest

from creche.errors import PromptError
from creche.messages import ToolCall
from creche.prompt import UNLISTED_TOOLS, AssembleContext, Section, assemble, render_prompt, tool_order
from creche.tools import (
    RUN_CODE,
    VISIBLE,
    CallStep,
    CodeTool,
    PreExecute,
    Tool,
    ToolContext,
    call_tool,
    execute_call,
    present_as,
    restrict,
    tool,
    tool_provider,
)


def named(name: str, **options: object) -> Tool:
    return Tool(name, description="", parameters={}, run=lambda: f"{name} ran", inline=True, **options)


@pytest.fixture
def code_tool() -> Tool:
    @tool(name=RUN_CODE)
    async def run_code(code: str, context: ToolContext) -> str:
        """Call one tool."""
        outcome = await call_tool(context, code, "{}")
        return f"in the program: {outcome.text}"

    return run_code


@pytest.fixture
def bench(bench, code_tool):
    bench.pen.add(tool_provider(bench.registry))
    bench.pen.add(CodeTool(code_tool))
    for name in ("a", "b"):
        bench.pen.add(named(name))
    return bench


async def shown(bench) -> list[str]:
    assembly = await assemble(bench.registry, AssembleContext(bench.agent.scope))
    return [schema.name for schema in assembly.tools]


@pytest.mark.parametrize(
    ("mode", "on_the_wire", "known"),
    [
        ("native", ["b"], {"a", "b"}),
        ("code", [RUN_CODE], {RUN_CODE}),
        ("hybrid", ["b", RUN_CODE], {"a", "b", RUN_CODE}),
    ],
)
async def test_what_is_on_the_wire_and_what_is_known(bench, mode, on_the_wire, known):
    """Rule: native shows the visible tools, code run_code alone, hybrid both; restrictions do not concern run_code."""
    bench.preset.add(present_as(mode))
    bench.own.add(restrict(deny=["a"]))
    assert await shown(bench) == on_the_wire
    view = bench.registry.read(VISIBLE, bench.agent.scope)
    assert view.schemas.known_names == known
    assert view.tools.keys() == {"b"}
    assert (view.mode, view.presented_at) == (mode, bench.preset.scope)


async def test_an_allow_list_does_not_take_run_code_away(bench):
    bench.preset.add(present_as("code"))
    bench.own.add(restrict(allow=["b"]))
    assert await shown(bench) == [RUN_CODE]
    assert (await bench.call(RUN_CODE, code="b")).code == "failed"  # it runs, and there is no step to call a tool from
    assert restrict(allow=["b"]).lets_through(RUN_CODE)


async def test_the_nearest_presentation_wins(bench):
    bench.preset.add(present_as("code"))
    bench.own.add(present_as("native"))
    assert await shown(bench) == ["a", "b"]


@pytest.mark.parametrize("written", ["tools.a(...)", "tools['x-y'](...)"])
async def test_a_direct_call_in_code_mode_is_refused_before_any_policy(bench, written):
    """Rule: the model is told how to reach the tool, and no wrapper hears of the call."""
    heard: list[str] = []

    async def watch(event, go_on):
        heard.append(event.execution.call.name)
        return await go_on()

    bench.pen.add(named("x-y"))
    bench.pen.wrap(PreExecute, watch)
    bench.preset.add(present_as("code"))
    name = "a" if "a" in written else "x-y"
    outcome = await bench.call(name)
    assert (outcome.code, heard) == ("unknown-tool", [])
    assert outcome.text == (
        f"Error: {name!r} cannot be called directly here; call 'run_code' with a program that awaits {written}"
    )


async def test_a_call_from_a_program_is_not_direct(bench):
    bench.preset.add(present_as("code"))
    assert await bench.run((RUN_CODE, {"code": "a"})) == [("c1", "", "in the program: a ran")]


async def test_a_program_cannot_call_run_code(bench):
    bench.preset.add(present_as("hybrid"))
    [(_, code, text)] = await bench.run((RUN_CODE, {"code": RUN_CODE}))
    assert (code, text) == (
        "",
        "in the program: Error: a program cannot call 'run_code'; it calls the tools themselves",
    )


async def test_hybrid_takes_both_kinds_of_call(bench):
    bench.preset.add(present_as("hybrid"))
    assert await bench.run("a", (RUN_CODE, {"code": "b"})) == [
        ("c1", "", "a ran"),
        ("c2", "", "in the program: b ran"),
    ]


async def test_run_code_is_unknown_where_tools_are_native(bench):
    [(_, code, _)] = await bench.run((RUN_CODE, {"code": "a"}))
    assert code == "unknown-tool"


async def test_a_scope_whose_code_mode_has_gone_cannot_be_assembled(bench, code_tool, make_bench):
    bare = make_bench()
    bare.pen.add(tool_provider(bare.registry))
    code = bare.pen.add(CodeTool(code_tool))
    bare.preset.add(present_as("code"))
    assert await shown(bare) == [RUN_CODE]
    code.undo()
    with pytest.raises(PromptError) as caught:
        await shown(bare)
    assert "tools are presented as 'code' at scope 'preset', and the plugin code_mode() is not mounted" in str(
        caught.value
    )


# ---------------------------------------------------------------- the order


async def test_a_code_mode_scope_ignores_an_order_from_above_it(bench):
    """Rule: that order was meant for tools that are functions here; one at the scope itself is meant for run_code."""
    bench.pen.add(tool_order(["b", UNLISTED_TOOLS]))
    assert await shown(bench) == ["b", "a"]
    bench.preset.add(present_as("code"))
    assert await shown(bench) == [RUN_CODE]
    bench.own.add(tool_order(["b", UNLISTED_TOOLS]))
    with pytest.raises(PromptError) as caught:
        await shown(bench)
    assert str(caught.value) == "tool order lists unknown tools 'b'; known: run_code"


async def test_an_order_holds_for_hybrid_tools(bench):
    bench.pen.add(tool_order([UNLISTED_TOOLS, "a"]))
    bench.preset.add(present_as("hybrid"))
    assert await shown(bench) == ["b", RUN_CODE, "a"]


# ---------------------------------------------------------------- what the step was shown


async def in_step(bench, step: CallStep, name: str, *, parent: ToolContext | None = None) -> tuple[str, str]:
    context = ToolContext(
        bench.agent, registry=bench.registry, call_id="c1", name=name, number=1, step=step, parent=parent
    )
    call = ToolCall("c1", name=name, arguments="{}")
    outcome = await execute_call(bench.registry, bench.agent.scope, call, context)
    return outcome.code, outcome.text


async def test_a_tool_that_the_request_did_not_name_does_not_run(bench):
    """Rule: what came after the request was made is for the next one."""
    step = CallStep(offered=frozenset({"a"}))
    assert await in_step(bench, step, "a") == ("", "a ran")
    assert await in_step(bench, step, "b") == (
        "unknown-tool",
        "Error: tool 'b' came after this request was made; call it in the next step",
    )


async def test_a_tool_that_the_prompt_did_not_describe_does_not_run_in_a_program(bench):
    step = CallStep(offered=frozenset({RUN_CODE}), inside={"a": named("a")})
    parent = ToolContext(bench.agent, registry=bench.registry, call_id="c0", name="", number=1, step=step)
    assert await in_step(bench, step, "a", parent=parent) == ("", "a ran")
    assert (await in_step(bench, step, "b", parent=parent))[0] == "unknown-tool"


# ---------------------------------------------------------------- guidance


async def prompt(bench) -> str:
    return render_prompt(await assemble(bench.registry, AssembleContext(bench.agent.scope)))


async def test_guidance_stands_in_the_prompt_where_the_tool_is_visible(bench):
    """Rule: it comes and goes with the tool, and is hidden with it; braces in it stay."""
    registration = bench.pen.add(named("look", guidance="Look {{first}}."))
    assert await prompt(bench) == "Look {{first}}."
    hidden = bench.own.add(restrict(deny=["look"]))
    assert await prompt(bench) == ""
    hidden.undo()
    own = bench.own.add(named("look", guidance="Look twice."))
    assert await prompt(bench) == "Look twice."
    own.undo()
    registration.undo()
    assert await prompt(bench) == ""
    bench.pen.add(Section("tool:look", order=1, text="The place is free."))


async def test_guidance_stands_in_its_named_place(bench):
    for name in ("zeal", "grep", "read"):
        bench.pen.add(named(name, guidance=name))
    assert await prompt(bench) == "read\n\ngrep\n\nzeal"


async def test_a_tool_whose_place_is_taken_is_not_registered(bench):
    bench.pen.add(Section("tool:look", order=1, text="taken"))
    with pytest.raises(Exception, match="tool:look"):
        bench.pen.add(named("look", guidance="Look."))
    assert "look" not in bench.registry.read(VISIBLE, None).tools

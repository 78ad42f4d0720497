"""The tool run_code, from a request to its result, on a runtime in the loop."""

import pytest
import trio

from creche import AgentSpec, Plugin, Preset, open_host, tool
from creche.codemode import CodeLimits, MontyRuntime, ProgramEnd, code_mode
from creche.errors import PluginError, ToolFailed
from creche.messages import ImagePart
from creche.models import FunctionModel, ScriptedModel, call, say
from creche.scope import Fault
from creche.subagents import delegation, spawn
from creche.testing import check_log
from creche.tools import Allow, Approver, PreExecute, RequestApproval, ToolContext, ToolOutcome, restrict


@tool(parallel=True)
async def price(item: str) -> float:
    """Price of an item in euros."""
    await trio.sleep(1)
    return {"tea": 2.5, "cake": 4.0}[item]


@tool
async def fail() -> str:
    """Fail."""
    raise ToolFailed("it is closed")


def runs(*programs, **options):
    """Return a model that runs programs one after the other and then says the last result."""
    turns = [[call("run_code", code=program, description="a program", **options)] for program in programs]
    return ScriptedModel({"clerk": [*turns, lambda request: [say(request.last_tool_text)]]})


async def ask(loop_runtime, program, *, tools=(price, fail), setup=(), mode="code", **options):
    """Let an agent run one program; return what the model was told, and the agent's log."""
    async with (
        open_host(model=runs(program, **options), plugins=[code_mode(loop_runtime)]) as host,
        host.open_agent(AgentSpec("clerk", tools=tools, present_as=mode, setup=setup)) as clerk,
    ):
        text = (await clerk.ask("Go.")).text
    check_log(clerk.session)
    return text, clerk.session


@pytest.mark.parametrize(
    ("program", "text"),
    [
        ("return 1 + 1", "2"),
        ("return 'a text'", "a text"),
        ("return {'b': 1, 'a': [None, True]}", '{"b":1,"a":[null,true]}'),
        ("print('one'); print('two', 2)", "one\ntwo 2\n"),
        ("print('one')\nreturn 2", "one\n2"),
        ("print('one', end='')\nreturn 2", "one\n2"),
        ("pass", "The program ended; it printed nothing and returned nothing."),
        ("return None", "The program ended; it printed nothing and returned nothing."),
        ("return 'lone \\ud800 surrogate'", "lone \ufffd surrogate"),
        ("1 / 0", "Error: the program failed (exception): ZeroDivisionError: division by zero"),
        (
            "print('so far')\nraise ValueError('no')",
            "Error: the program failed (exception): ValueError: no\nIt had printed:\nso far\n",
        ),
        ("return await tools.price(item='tea')", "2.5"),
        ("return await tools['price'](item='tea')", "2.5"),
        ("return await asyncio.gather(tools.price(item='tea'), tools.price(item='cake'))", "[2.5,4.0]"),
        ("await tools.fail()", "Error: the program failed (exception): ToolCallError: it is closed"),
        (
            "try:\n    await tools.fail()\nexcept ToolCallError as error:\n    return f'caught: {error}'",
            "caught: it is closed",
        ),
        (
            "await tools.price(item=3)",
            "Error: the program failed (exception): ToolCallError: invalid arguments for 'price': item: must be a string, not 3",
        ),
        ("await tools.nope()", "Error: the program failed (exception): AttributeError: there is no tool 'nope'"),
    ],
)
async def test_the_model_is_told_what_was_printed_and_returned(loop_runtime, autojump_clock, program, text):
    told, _ = await ask(loop_runtime, program)
    assert told == text


async def test_calls_of_a_program_are_in_the_log_and_not_in_the_history(loop_runtime, autojump_clock):
    program = "return sum(await asyncio.gather(tools.price(item='tea'), tools.price(item='cake')))"
    began = trio.current_time()
    text, log = await ask(loop_runtime, program)
    assert text == "6.5"
    assert trio.current_time() - began == pytest.approx(1), "both at the same time"
    assert [record.data.name for record in log.records("tool/code-call")] == ["price", "price"]
    assert {record.data.message.text for record in log.records("tool/code-result")} == {"2.5", "4.0"}
    assert [message.name for message in log.tool_results()] == ["run_code"]


async def test_the_prompt_says_what_programs_can_call(loop_runtime, autojump_clock):
    prompts: list[str] = []

    def answer(request):
        prompts.append(request.system)
        return [say("ok")]

    spec = AgentSpec("clerk", tools=[price], present_as="code")
    async with open_host(model=FunctionModel(answer), plugins=[code_mode(loop_runtime)], identity=False) as host:
        async with host.open_agent(spec) as clerk:
            await clerk.ask("?")
        async with host.open_agent(AgentSpec("hybrid", tools=[price], present_as="hybrid")) as hybrid:
            await hybrid.ask("?")
        async with host.open_agent(AgentSpec("native", tools=[price])) as native:
            await native.ask("?")
    code, both, plain = prompts
    assert code.startswith("You call one tool directly: run_code.")
    assert "async def price(" in code
    assert both.startswith(code[code.index("\n\n") + 2 :][:20])
    assert "You call one tool directly" not in both
    assert plain == ""


async def test_what_the_runtime_says_of_its_language_is_in_the_description(loop_runtime, autojump_clock):
    schemas = []

    def answer(request):
        schemas.extend(request.tools)
        return [say("ok")]

    async with (
        open_host(
            model=FunctionModel(answer), plugins=[code_mode(loop_runtime, timeout=9, longest_timeout=30)]
        ) as host,
        host.open_agent(AgentSpec("clerk", present_as="code")) as clerk,
    ):
        await clerk.ask("?")
    [schema] = schemas
    assert schema.name == "run_code"
    assert "Nothing is confined." in schema.description
    assert '"required":["code","description"]' in schema.parameters
    assert "Seconds that it may take, 9 if absent, at most 30." in schema.parameters


# ---------------------------------------------------------------- its end


async def test_a_program_that_takes_too_long_is_ended_with_what_it_printed(loop_runtime, autojump_clock):
    text, log = await ask(loop_runtime, "print('so far')\nawait trio.sleep_forever()", timeout=3)
    assert text == (
        "Error: the program failed (timeout): it took longer than 3 seconds and was ended\nIt had printed:\nso far\n"
    )
    assert [record.data.code for record in log.records("tool/result")] == ["code-timeout"]


@pytest.mark.parametrize("seconds", [0, -1, 601])
async def test_a_timeout_out_of_range_is_refused(loop_runtime, autojump_clock, seconds):
    text, _ = await ask(loop_runtime, "return 1", timeout=seconds)
    assert text == f"Error: timeout is {seconds}, and it can be above 0 and at most 600 seconds"


async def test_an_approval_stops_the_clock_of_the_program(loop_runtime, autojump_clock):
    async def ask_first(event, go_on):
        return RequestApproval("Why?") if event.execution.tool.name == "price" else await go_on()

    async def allow(request):
        await trio.sleep(1000)
        return Allow()

    setup = [lambda registrar: registrar.wrap(PreExecute, ask_first) and None, Approver(allow)]
    text, log = await ask(loop_runtime, "return await tools.price(item='tea')", timeout=3, setup=setup)
    assert text == "2.5"
    [decided] = log.records("approval/decided")
    assert decided.data.call_id.endswith(":code:1")


async def test_an_approval_below_a_subagent_stops_the_clock_of_the_program_too(loop_runtime, autojump_clock):
    async def ask_first(event, go_on):
        return RequestApproval("Why?") if event.execution.tool.name == "price" else await go_on()

    async def allow(request):
        assert request.agent_path == "clerk/subagent-1"
        await trio.sleep(1000)
        return Allow()

    model = ScriptedModel(
        {
            "clerk": [
                [
                    call(
                        "run_code",
                        code="return await tools.subagent(description='x', prompt='Ask.')",
                        description="x",
                        timeout=3,
                    )
                ],
                lambda request: [say(request.last_tool_text)],
            ],
            "clerk/subagent-1": [[call("price", item="tea")], say("2.5")],
        }
    )
    gate = Plugin(
        "gate", setup=[lambda registrar: registrar.wrap(PreExecute, ask_first) and None, Approver(allow), price]
    )
    native = Preset("native", present_as="native")
    plugins = [code_mode(loop_runtime), delegation(), gate]
    async with (
        open_host(model=model, plugins=plugins, presets=[native]) as host,
        host.open_agent(AgentSpec("clerk", present_as="hybrid")) as clerk,
    ):
        assert (await clerk.ask("Go.")).text == "2.5"


async def test_a_cancelled_program_says_what_it_printed(loop_runtime, autojump_clock):
    model = runs("print('so far')\nawait trio.sleep_forever()")
    async with (
        open_host(model=model, plugins=[code_mode(loop_runtime)]) as host,
        host.open_agent(AgentSpec("clerk", present_as="code")) as clerk,
    ):
        with trio.move_on_after(5):
            await clerk.ask("Go.")
    [returned] = clerk.session.records("tool/result")
    assert returned.data.code == "cancelled"
    assert returned.data.message.text.endswith("Until then:\nso far\n")


async def test_what_a_program_may_compute_is_bounded_by_its_timeout(loop_runtime, autojump_clock):
    """Rule: while its calls wait for approvals the deadline stands still, and what computes meanwhile ends all the same."""
    given: list[float] = []

    class Noting(type(loop_runtime)):
        async def _run(self, program):
            given.append(program.limits.seconds)
            return await super()._run(program)

    for seconds in (3, 500):
        await ask(Noting(), "return 1", timeout=seconds)
    async with (
        open_host(model=runs("return 1"), plugins=[code_mode(Noting(), limits=CodeLimits(seconds=60))]) as host,
        host.open_agent(AgentSpec("clerk", present_as="code")) as clerk,
    ):
        await clerk.ask("Go.")
    assert given == [3, 500, 60]


async def test_a_blank_description_is_sent_back(loop_runtime, autojump_clock):
    model = ScriptedModel(
        {
            "clerk": [
                [call("run_code", code="return 1", description="  ")],
                lambda request: [say(request.last_tool_text)],
            ]
        }
    )
    async with (
        open_host(model=model, plugins=[code_mode(loop_runtime)]) as host,
        host.open_agent(AgentSpec("clerk", present_as="code")) as clerk,
    ):
        assert (await clerk.ask("Go.")).text == (
            "Error: the description is empty; say in a few words what the program does"
        )


# ---------------------------------------------------------------- what is refused, and what is asked


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (1_000_000, "1"),
        (1_000_001, "Error: the program has 1000001 characters, and it can have at most 1000000"),
    ],
)
async def test_a_program_that_is_too_long_is_sent_back(loop_runtime, autojump_clock, length, text):
    told, _ = await ask(loop_runtime, "return 1".ljust(length))
    assert told == text


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("depth", [200, 201, 5000])
async def test_a_result_that_is_nested_too_deeply_is_refused_and_the_program_goes_on(
    loop_runtime, autojump_clock, opening, depth
):
    @tool
    async def dig() -> ToolOutcome:
        """Dig."""
        text = opening * (depth - 1) + "[]" + ("]" if opening == "[" else "}") * (depth - 1)
        return ToolOutcome("a hole", json_text=text)

    program = "try:\n    return type(await tools.dig()).__name__\nexcept ToolCallError as error:\n    return str(error)"
    told, _ = await ask(loop_runtime, program, tools=[dig])
    deep = "the result of 'dig' is nested too deeply for a program"
    assert told == (deep if depth > 200 else "list" if opening == "[" else "dict")


async def test_a_result_may_be_as_wide_as_the_tool_likes(loop_runtime, autojump_clock):
    @tool
    async def rows() -> list[dict[str, int]]:
        """List rows."""
        return [{"n": n} for n in range(200_000)]

    assert (await ask(loop_runtime, "return len(await tools.rows())", tools=[rows]))[0] == "200000"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("exception", "TypeError: 'coroutine' object is not subscriptable (line 2)"),
        ("exception", "AttributeError: 'coroutine' object has no attribute 'get' (line 2)"),
        ("exception", 'TypeError: can only concatenate str (not "coroutine") to str (line 2)'),
        ("exception", "TypeError: sequence item 0: expected str instance, coroutine found (line 1)"),
        (
            "exception",
            "TypeError: an argument of tools['a'] is no JSON: Object of type coroutine is not JSON serializable",
        ),
        ("invalid_output", "what it returned is no JSON: Object of type coroutine is not JSON serializable"),
        ("invalid_output", "TypeError: keys must be str, int, float, bool or None, not coroutine"),
    ],
)
async def test_who_uses_a_call_and_not_its_result_is_asked_for_await(loop_runtime, autojump_clock, kind, message):
    ends = ProgramEnd(failure=kind, message=message)
    told, _ = await ask(ending(loop_runtime, ends), "")
    asked = f"Error: the program failed ({kind}): {message}; did you forget `await`?"
    assert told == asked
    hinting = ProgramEnd(failure=kind, message=f"{message}; did you forget `await`?")
    told, _ = await ask(ending(loop_runtime, hinting), "")
    assert told == asked, "a runtime that asks, too, is heard once"


@pytest.mark.parametrize(
    "message",
    [
        "RuntimeError: cannot reuse already awaited coroutine (line 3)",
        "TypeError: An asyncio.Future, a coroutine or an awaitable is required (line 2)",
        "ValueError: coroutine (line 1)",
    ],
)
async def test_who_makes_another_mistake_is_not_asked_for_await(loop_runtime, autojump_clock, message):
    told, _ = await ask(ending(loop_runtime, ProgramEnd(failure="exception", message=message)), "")
    assert told == f"Error: the program failed (exception): {message}"


@pytest.mark.parametrize("program", ["return tools.price(item='tea')", "x = tools.price(item='tea')\nreturn x['a']"])
async def test_a_program_in_monty_is_asked_for_await(program):
    pytest.importorskip("pydantic_monty")
    told, _ = await ask(MontyRuntime(), program)
    assert told.endswith("; did you forget `await`?")


def ending(loop_runtime, end):
    """Return a runtime in which every program ends like this."""

    class Ending(type(loop_runtime)):
        async def _run(self, program):
            return end

    return Ending()


# ---------------------------------------------------------------- the most that a program may use


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ({"memory": 2**40 + 1}, "CodeLimits.memory is at most 1099511627776, not 1099511627777"),
        ({"output": 2**62}, "CodeLimits.output is at most 1073741824, not 4611686018427387904"),
        ({"calls": 1_000_001}, "CodeLimits.calls is at most 1000000, not 1000001"),
        ({"calls": 10**30}, f"CodeLimits.calls is a whole number of at most 64 bits, not {10**30}"),
        ({"seconds": 1e300}, "CodeLimits.seconds is at most 1000000, not 1e+300"),
        ({"seconds": float("inf")}, "CodeLimits.seconds is a finite number, not inf"),
    ],
)
def test_limits_that_no_machine_knows_are_refused(limits, sentence):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole sentence is below
        CodeLimits(**limits)
    assert str(caught.value) == sentence


# ---------------------------------------------------------------- what comes besides


async def test_images_and_deferred_messages_reach_the_model_after_the_result(loop_runtime, autojump_clock):
    seen = []

    @tool
    async def draw(context: ToolContext) -> list[object]:
        """Draw."""
        context.defer("Mind the cat.")
        return ["a cat", ImagePart(b"i", media_type="image/png")]

    def answer(request):
        if not request.last_tool_text:
            return [call("run_code", code="return await tools.draw()", description="draw")]
        seen.extend(request.messages)
        return [say(request.last_tool_text)]

    async with (
        open_host(model=FunctionModel(answer), plugins=[code_mode(loop_runtime)]) as host,
        host.open_agent(AgentSpec("clerk", tools=[draw], present_as="code")) as clerk,
    ):
        text = (await clerk.ask("Go.")).text
    assert text == "a cat[1 image, shown to you when the program has ended]"
    after = [message for message in seen if message.role == "user"][1:]
    assert [message.source for message in after] == ["tool", "tool"]
    assert after[0].text == "Mind the cat."
    assert any(isinstance(part, ImagePart) for part in after[1].parts)


async def test_a_program_starts_subagents_at_once(loop_runtime, autojump_clock):
    program = """
reports = await asyncio.gather(
    tools.subagent(description="one", prompt="Say one."),
    tools.subagent(description="two", prompt="Say two."),
)
return reports
"""
    model = ScriptedModel(
        {
            "clerk": [
                [call("run_code", code=program, description="fan out")],
                lambda request: [say(request.last_tool_text)],
            ],
            "clerk/subagent-1": [say("one")],
            "clerk/subagent-2": [say("two")],
        }
    )
    async with (
        open_host(model=model, plugins=[code_mode(loop_runtime), delegation()]) as host,
        host.open_agent(AgentSpec("clerk", present_as="code")) as clerk,
    ):
        assert (await clerk.ask("Go.")).text == '["one","two"]'
    assert len(list(clerk.session.records("subagent/start"))) == 2


# ---------------------------------------------------------------- mounting


async def test_a_runtime_is_served_for_as_long_as_the_plugin_is_mounted(loop_runtime):
    async with open_host(model=ScriptedModel({}), plugins=[code_mode(loop_runtime)]):
        assert loop_runtime.served == ["opened"]
    assert loop_runtime.served == ["opened", "closed"]


@pytest.mark.parametrize("mode", ["code", "hybrid"])
async def test_without_the_plugin_the_agent_is_not_opened(mode):
    async with open_host(model=ScriptedModel({})) as host:
        with pytest.raises(PluginError, match="needs the plugin code_mode"):
            async with host.open_agent(AgentSpec("clerk", present_as=mode)):
                raise AssertionError


@pytest.mark.parametrize("where", ["agent", "preset"])
async def test_the_plugin_can_be_mounted_where_the_tools_are_presented(loop_runtime, autojump_clock, where):
    """Rule: `present_as=` is applied after the setup, which may bring what it needs."""
    brings = {"setup": [code_mode(loop_runtime)], "present_as": "code"}
    spec = AgentSpec("clerk", **(brings if where == "agent" else {}))
    presets = [Preset("coder", **brings)] if where == "preset" else []
    async with (
        open_host(model=runs("return 1 + 1"), presets=presets) as host,
        host.open_agent(spec, preset="coder" if presets else None) as clerk,
    ):
        assert (await clerk.ask("Go.")).text == "2"


async def test_a_child_under_a_code_preset_is_called_from_a_native_parent(loop_runtime, autojump_clock):
    model = ScriptedModel(
        {
            "lead/coder": [
                [call("run_code", code="return await tools.price(item='tea')", description="ask")],
                lambda request: [say(request.last_tool_text)],
            ]
        }
    )
    coder = Preset("coder", present_as="code", tools=[price])
    async with (
        open_host(model=model, plugins=[code_mode(loop_runtime)], presets=[coder]) as host,
        host.open_agent(AgentSpec("lead", tools=[price])) as lead,
    ):
        assert (await spawn(lead, "Go.", name="coder", preset="coder")).text == "2.5"


async def test_a_tool_that_comes_during_a_step_is_for_the_programs_of_the_next(loop_runtime, autojump_clock):
    """Rule: what the prompt did not describe is no tool of the program."""

    @tool
    async def grow(context: ToolContext) -> str:
        """Register one more tool."""
        assert context.agent is not None
        host.registrar.add(late)
        return ""

    @tool
    async def late() -> str:
        """Come late."""
        return "came"

    program = "await tools.grow()\ntry:\n    return await tools.late()\nexcept AttributeError as error:\n    return str(error)"
    model = runs(program, "return await tools.late()")
    async with (
        open_host(model=model, plugins=[code_mode(loop_runtime)]) as host,
        host.open_agent(AgentSpec("clerk", tools=[grow], present_as="code")) as clerk,
    ):
        reply = await clerk.ask("Go.")
    first, second = [message.text for message in clerk.session.tool_results()]
    assert first == "there is no tool 'late'"
    assert (second, reply.text) == ("came", "came")


async def test_hidden_tools_are_not_in_a_program(loop_runtime, autojump_clock):
    hide = Plugin("hide", setup=[price])
    model = runs("return await tools.price(item='tea')")
    async with (
        open_host(model=model, plugins=[code_mode(loop_runtime), hide]) as host,
        host.open_agent(AgentSpec("clerk", present_as="code", setup=[restrict(deny=["price"])])) as clerk,
    ):
        faults: list[Fault] = []
        host.registrar.on(Fault, faults.append)
        assert "there is no tool 'price'" in (await clerk.ask("Go.")).text
        assert faults == []


@pytest.mark.parametrize(("usual", "longest"), [(0, 1), (-1, 1), (2, 1)])
def test_timeouts_are_checked(usual, longest):
    with pytest.raises(PluginError, match="0 < timeout <= longest_timeout"):
        code_mode(timeout=usual, longest_timeout=longest)

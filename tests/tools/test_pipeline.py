import json

import attrs
import pytest
import trio
import trio.testing

from creche.errors import InternalError, LimitReachedError, ToolFailed, ToolRetry
from creche.messages import TextPart, ToolCall
from creche.scope import Owner, ScopeKey, make_registrar
from creche.tools import (
    Deny,
    Execute,
    Execution,
    Guard,
    PostExecute,
    PreExecute,
    Proceed,
    Tool,
    ToolContext,
    ToolOutcome,
    execute_call,
    restrict,
    tool,
)

STAGES = (PreExecute, Execute, PostExecute)


@pytest.fixture
def ran() -> list[object]:
    """What the body was given, one item a run."""
    return []


@pytest.fixture
def bench(bench, ran):
    @tool(inline=True)
    def write(text: str, tags: list[str] | None = None) -> str:
        """Write."""
        ran.append(text)
        return f"wrote {text}"

    bench.pen.add(write)
    bench.pen.add(Tool("read", description="", parameters={}, run=lambda **_: "", inline=True))
    return bench


def told(outcome: ToolOutcome) -> tuple[str, str]:
    return outcome.code, outcome.text


# ---------------------------------------------------------------- look-up and arguments


async def test_a_call_runs_the_tool_that_its_scope_sees(bench, ran):
    outcome = await bench.call("write", text="a")
    assert told(outcome) == ("", "wrote a")
    assert not outcome.is_error
    assert ran == ["a"]


async def test_the_nearest_tool_of_a_name_is_called(bench, ran):
    bench.own.add(Tool("write", description="", parameters={}, run=lambda **_: "mine", inline=True))
    assert told(await bench.call("write", text="a")) == ("", "mine")
    assert ran == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wirte", "there is no tool 'wirte'; did you mean 'write'? Visible: read, write"),
        ("zzz", "there is no tool 'zzz'. Visible: read, write"),
        ("", "there is no tool ''. Visible: read, write"),
        ("z" * 5_000_000, f"there is no tool '{'z' * 100}'. Visible: read, write"),
    ],
)
async def test_an_unknown_name_is_told_what_is_visible(bench, name, message):
    assert told(await bench.call(name)) == ("unknown-tool", f"Error: {message}")


async def test_with_no_tool_at_all_the_message_says_so(make_bench):
    assert told(await make_bench().call("x")) == ("unknown-tool", "Error: there is no tool 'x'. Visible: (none)")


async def test_a_restricted_tool_does_not_run_and_is_not_named(bench, ran):
    bench.own.add(restrict(deny=["write"]))
    message = "Error: there is no tool 'write'. Visible: read"
    assert told(await bench.call("write", text="a")) == ("unknown-tool", message)
    assert ran == []


async def test_arguments_that_do_not_fit_are_all_told(bench, ran):
    outcome = await bench.call("write", text=3, txet="a")
    assert outcome.code == "invalid-arguments"
    assert outcome.text.startswith("Error: invalid arguments for 'write': ")
    assert all(name in outcome.text for name in ("text: ", "txet: "))
    assert ran == []


@pytest.mark.parametrize("text", ["[1]", '{"text": "a"', "null", '{"text": NaN}', '"\\ud800"'])
async def test_a_text_that_is_no_json_object_is_told(bench, ran, text):
    outcome = await bench.call_text("write", text)
    assert outcome.code == "invalid-arguments"
    assert outcome.text.startswith("Error: invalid arguments for 'write': ")
    assert ran == []


async def test_five_megabytes_of_arguments_reach_the_body(bench, ran):
    text = "x" * 5_000_000
    assert not (await bench.call("write", text=text)).is_error
    assert ran == [text]


async def test_five_megabytes_of_wrong_arguments_give_a_short_message(bench):
    for arguments in (json.dumps({"text": ["x" * 5_000_000]}), "x" * 5_000_000, json.dumps({"x" * 5_000_000: 1})):
        outcome = await bench.call_text("write", arguments)
        assert outcome.code == "invalid-arguments"
        assert len(outcome.text) < 1000


async def test_neither_an_unknown_tool_nor_wrong_arguments_pass_a_stage(bench):
    async def wrapper(event, go_on):
        raise AssertionError

    for stage in STAGES:
        bench.own.wrap(stage, wrapper)
    assert (await bench.call("zzz")).code == "unknown-tool"
    assert (await bench.call("write")).code == "invalid-arguments"
    assert bench.faults == []


async def test_a_program_may_call_without_an_agent(bench):
    """Rule: without a scope the global tools are seen, and the global stages and guards stand around the call."""
    seen: list[object] = []

    def note(execution: Execution) -> None:
        seen.append(execution.agent)

    bench.pen.add(Guard(note))
    bench.own.add(Guard(lambda execution: "not for agents"))
    context = ToolContext(None, registry=bench.registry, call_id="c1", name="", number=1)
    call = ToolCall("c1", name="write", arguments='{"text": "a"}')
    assert (await execute_call(bench.registry, None, call, context)).text == "wrote a"
    assert seen == [None]


# ---------------------------------------------------------------- the stages in order


async def test_the_stages_stand_around_the_call_in_order(bench):
    """Rule: PreExecute, guards, Execute around the body, PostExecute; of each the root is outermost."""
    order: list[str] = []

    def wrap(pen, stage, name):
        async def wrapper(event, go_on):
            order.append(f"{stage.wire_name} {name}")
            result = await go_on()
            order.append(f"{stage.wire_name} {name} done")
            return result

        pen.wrap(stage, wrapper)

    for pen, name in ((bench.own, "own"), (bench.pen, "root")):
        for stage in STAGES:
            wrap(pen, stage, name)
        pen.add(Guard(lambda execution, name=name: order.append(f"guard {name}")))
    await bench.call("write", text="a")
    stages = [[f"{stage.wire_name} {each}" for each in ("root", "own", "own done", "root done")] for stage in STAGES]
    assert order == [*stages[0], "guard root", "guard own", *stages[1], *stages[2]]


async def test_a_stage_of_a_sibling_is_not_passed(bench):
    async def wrapper(event, go_on):
        raise AssertionError

    sibling = bench.pen.at(ScopeKey("sibling"))
    for stage in STAGES:
        sibling.wrap(stage, wrapper)
    sibling.add(Guard(lambda execution: "no"))
    assert not (await bench.call("write", text="a")).is_error


async def test_a_stage_knows_the_call_its_tool_and_its_arguments(bench):
    seen: list[Execution] = []

    async def wrapper(event, go_on):
        seen.append(event.execution)
        return await go_on()

    for stage in STAGES:
        bench.own.wrap(stage, wrapper)
    context = bench.context()
    await bench.call("write", text="a", tags=["b"], context=context)
    first, *others = seen
    assert all(other is first for other in others)
    assert (first.call.id, first.tool.name, first.context, first.agent) == ("c1", "write", context, bench.agent)
    assert first.arguments == {"text": "a", "tags": ["b"]}
    with pytest.raises(TypeError):
        first.arguments["text"] = "b"
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        first.arguments = {}


async def test_a_guard_that_a_wrapper_registers_is_asked_about_the_very_call(bench, ran):
    async def wrapper(event, go_on):
        bench.own.add(Guard(lambda execution: "not this one"))
        return await go_on()

    bench.own.wrap(PreExecute, wrapper)
    assert told(await bench.call("write", text="a")) == ("denied", "Error: not this one")
    assert ran == []


async def test_a_guard_that_a_guard_registers_is_asked_from_the_next_call_on(bench, ran):
    def check(execution: Execution) -> None:
        bench.own.add(Guard(lambda execution: "no more"))

    bench.own.add(Guard(check))
    assert (await bench.call("write", text="a")).code == ""
    assert (await bench.call("write", text="b")).code == "denied"
    assert ran == ["a"]


# ---------------------------------------------------------------- PreExecute


async def test_a_wrapper_may_deny(bench, ran):
    async def wrapper(event, go_on):
        return Deny("not on Sundays")

    bench.own.wrap(PreExecute, wrapper)
    assert told(await bench.call("write", text="a")) == ("denied", "Error: not on Sundays")
    assert ran == []


async def test_a_wrapper_that_does_not_call_next_decides_alone(bench, ran):
    async def refuse(event, go_on):
        return Deny("no")

    async def allow(event, go_on):
        return Proceed()

    bench.own.wrap(PreExecute, refuse)
    bench.pen.wrap(PreExecute, allow)
    assert (await bench.call("write", text="a")).code == ""


async def test_a_denied_call_passes_the_last_stage(bench):
    """Rule: a denial is an outcome like any other, and may be replaced before it is recorded."""

    async def deny(event, go_on):
        return Deny("no")

    async def soften(event, go_on):
        assert (event.outcome.code, (await go_on()).code) == ("denied", "denied")
        return ToolOutcome("ask again tomorrow", code="later")

    bench.own.wrap(PreExecute, deny)
    bench.own.wrap(PostExecute, soften)
    assert told(await bench.call("write", text="a")) == ("later", "ask again tomorrow")


async def test_a_decision_may_change_the_arguments(bench, ran):
    seen: list[object] = []

    async def wrapper(event, go_on):
        await go_on()
        return Proceed({**event.execution.arguments, "text": "b"})

    def check(execution: Execution) -> None:
        seen.append(dict(execution.arguments))

    bench.own.wrap(PreExecute, wrapper)
    bench.own.add(Guard(check))
    assert (await bench.call("write", text="a", tags=[])).text == "wrote b"
    assert (ran, seen) == (["b"], [{"text": "b", "tags": []}])


async def test_an_event_passed_inwards_may_change_the_arguments(bench, ran):
    """Rule: what a wrapper passes inwards is what those further in see, and what the body gets."""
    seen: list[object] = []

    async def outer(event, go_on):
        changed = attrs.evolve(event.execution, arguments={"text": "b"})
        return await go_on(attrs.evolve(event, execution=changed))

    async def inner(event, go_on):
        seen.append(event.execution.arguments["text"])
        return await go_on()

    bench.pen.wrap(PreExecute, outer)
    bench.own.wrap(PreExecute, inner)
    assert (await bench.call("write", text="a")).text == "wrote b"
    assert (ran, seen) == (["b"], ["b"])


async def test_changed_arguments_are_checked_again(bench, ran):
    """Rule: arguments that a plugin spoilt refuse the call, and the plugin's author hears of it."""

    async def wrapper(event, go_on):
        return Proceed({"text": 3})

    bench.own.wrap(PreExecute, wrapper)
    code, text = told(await bench.call("write", text="a"))
    assert code == "denied"
    assert text.startswith("Error: a plugin changed the arguments of 'write', and they do not fit any more: text: ")
    assert ran == []
    [fault] = bench.faults
    assert (fault.owner, fault.what) == ("lead", "changing the arguments of tool 'write'")


async def test_changed_arguments_are_given_as_json_and_structured_by_the_body(bench):
    """Rule: stages see JSON values, whatever the types of the body make of them."""

    @attrs.frozen
    class Point:
        x: int

    got: list[Point] = []

    async def move(to: Point) -> None:
        got.append(to)

    move.__annotations__["to"] = Point
    bench.pen.add(tool(move))

    async def wrapper(event, go_on):
        assert event.execution.arguments == {"to": {"x": 1}}
        return Proceed({"to": {"x": event.execution.arguments["to"]["x"] + 1}})

    bench.own.wrap(PreExecute, wrapper)
    assert told(await bench.call("move", to={"x": 1})) == ("", "done")
    assert got == [Point(2)]


async def test_no_wrapper_can_have_another_tool_run(bench, ran):
    """Rule: nothing runs that is not visible, so a call keeps the tool that it found."""
    hidden = Tool("hidden", description="", parameters={}, run=lambda **_: ran.append("hidden"), inline=True)

    async def wrapper(event, go_on):
        other = attrs.evolve(event.execution, tool=hidden)
        return await go_on(attrs.evolve(event, execution=other))

    messages = {
        PreExecute: "a wrapper around tools/pre-execute passed another call inwards than it was given",
        Execute: "a wrapper around tools/execute passed another execution inwards; "
        "arguments are changed around tools/pre-execute",
    }
    for stage, message in messages.items():
        with bench.own.wrap(stage, wrapper):
            outcome = await bench.call("write", text="a")
        assert told(outcome) == ("internal", f"Error: the call could not be made: InternalError: {message}")
    assert ran == []
    assert [fault.what for fault in bench.faults] == ["running the pipeline of tool 'write'"] * 2


async def test_a_tool_that_went_away_while_a_wrapper_waited_does_not_run(bench, ran):
    """Rule: what runs is visible at the moment when it begins."""
    registration = bench.own.add(Tool("late", description="", parameters={}, run=lambda **_: ran.append("late")))

    async def wrapper(event, go_on):
        registration.undo()
        return await go_on()

    for stage in (PreExecute, Execute):
        with bench.own.wrap(stage, wrapper):
            outcome = await bench.call("late")
        message = "Error: tool 'late' was taken away or replaced before the call began. Visible: read, write"
        assert told(outcome) == ("unknown-tool", message)
        registration = bench.own.add(registration.entry)
    assert ran == []


async def test_a_tool_that_was_replaced_meanwhile_does_not_run_with_the_arguments_of_the_other(bench, ran):
    async def wrapper(event, go_on):
        bench.own.add(Tool("write", description="", parameters={}, run=lambda **_: ran.append("other"), inline=True))
        return await go_on()

    with bench.own.wrap(PreExecute, wrapper):
        assert (await bench.call("write", text="a")).code == "unknown-tool"
    assert ran == []
    await bench.call("write", text="a")
    assert ran == ["other"]


async def test_a_tool_that_is_restricted_meanwhile_does_not_run(bench, ran):
    async def wrapper(event, go_on):
        bench.preset.add(restrict(deny=["write"]))
        return await go_on()

    bench.own.wrap(PreExecute, wrapper)
    assert (await bench.call("write", text="a")).code == "unknown-tool"
    assert ran == []


# ---------------------------------------------------------------- guards


@pytest.mark.parametrize("place", ["pen", "preset", "own"])
async def test_a_guard_refuses_at_its_scope_and_below(bench, ran, place):
    getattr(bench, place).add(Guard(lambda execution: "no" if execution.arguments["text"] == "a" else None))
    assert told(await bench.call("write", text="a")) == ("denied", "Error: no")
    assert told(await bench.call("write", text="b")) == ("", "wrote b")
    assert ran == ["b"]


async def test_the_first_reason_counts_from_the_root_on(bench):
    for pen, reason in ((bench.own, "own"), (bench.pen, "root"), (bench.preset, "preset")):
        pen.add(Guard(lambda execution, reason=reason: reason))
    assert (await bench.call("write", text="a")).text == "Error: root"


async def test_a_guard_cannot_allow_what_was_denied(bench):
    """Rule: a guard is asked about calls that nobody denied, and can only refuse."""
    asked: list[object] = []

    async def deny(event, go_on):
        return Deny("denied")

    bench.own.wrap(PreExecute, deny)
    bench.own.add(Guard(asked.append))
    assert (await bench.call("write", text="a")).text == "Error: denied"
    assert asked == []


async def test_a_guard_that_raises_refuses_and_is_a_fault_of_its_owner(bench, ran):
    def check(execution: Execution) -> str | None:
        raise ZeroDivisionError

    make_registrar(bench.registry, Owner("policy", bench.agent.scope), bench.agent.scope).add(Guard(check))
    assert told(await bench.call("write", text="a")) == ("denied", "Error: a guard of 'policy' at scope 'lead' failed")
    assert ran == []
    [fault] = bench.faults
    assert (fault.owner, fault.what, type(fault.error)) == ("policy", "guarding tool 'write'", ZeroDivisionError)


@pytest.mark.parametrize("answer", [False, True, 0, Deny("no")])
async def test_a_guard_that_returns_no_reason_refuses_and_is_a_fault(bench, ran, answer):
    bench.own.add(Guard(lambda execution: answer))
    message = "Error: a guard of 'test' at scope 'lead' failed"
    assert told(await bench.call("write", text="a")) == ("denied", message)
    assert ran == []
    [fault] = bench.faults
    assert str(fault.error) == f"a guard returns a reason or None, not a {type(answer).__name__}"


async def test_an_async_guard_refuses_and_is_a_fault(bench):
    async def check(execution: Execution) -> None: ...

    bench.own.add(Guard(check))
    assert (await bench.call("write", text="a")).code == "denied"
    assert [str(fault.error) for fault in bench.faults] == ["a guard returns a reason or None, not a coroutine"]


# ---------------------------------------------------------------- Execute and PostExecute


async def test_a_wrapper_sees_the_outcome_and_never_the_bodys_exception(bench):
    seen: list[tuple[str, str]] = []

    async def wrapper(event, go_on):
        seen.append(told(await go_on()))
        return await go_on()

    @tool(inline=True)
    def fails() -> None:
        raise ToolFailed("it is over")

    bench.own.add(fails)
    bench.own.wrap(Execute, wrapper)
    assert told(await bench.call("fails")) == ("failed", "Error: it is over")
    assert seen == [("failed", "Error: it is over")]


async def test_a_wrapper_may_run_the_body_again(bench, ran):
    async def wrapper(event, go_on):
        await go_on()
        return await go_on()

    bench.own.wrap(Execute, wrapper)
    assert (await bench.call("write", text="a")).text == "wrote a"
    assert ran == ["a", "a"]


async def test_a_wrapper_may_answer_in_place_of_the_body(bench, ran):
    async def wrapper(event, go_on):
        return ToolOutcome("kept from yesterday")

    bench.own.wrap(Execute, wrapper)
    assert told(await bench.call("write", text="a")) == ("", "kept from yesterday")
    assert ran == []


async def test_the_last_stage_may_replace_the_outcome(bench, ran):
    async def outer(event, go_on):
        result = await go_on()
        return ToolOutcome([*result.parts, TextPart("!")])

    async def inner(event, go_on):
        return await go_on(attrs.evolve(event, outcome=ToolOutcome("b")))

    bench.pen.wrap(PostExecute, outer)
    bench.own.wrap(PostExecute, inner)
    assert told(await bench.call("write", text="a")) == ("", "b!")
    assert ran == ["a"]


# ---------------------------------------------------------------- wrappers that fail


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(
    ("error", "told_as"),
    [
        (ToolFailed("it is over"), ("failed", "Error: it is over")),
        (ToolRetry("with a path"), ("retry", "Error: with a path")),
        (LimitReachedError("no tokens are left", code="tokens"), ("tokens", "Error: no tokens are left")),
    ],
)
async def test_a_wrapper_may_tell_the_model_as_a_body_does(bench, stage, error, told_as):
    async def wrapper(event, go_on):
        raise error

    bench.own.wrap(stage, wrapper)
    assert told(await bench.call("write", text="a")) == told_as
    assert bench.faults == []


@pytest.mark.parametrize("stage", STAGES)
async def test_a_wrapper_that_raises_is_this_calls_failure_and_a_fault(bench, ran, stage):
    """Rule: the model learns whether the body was run, so that nothing is silently repeated."""

    async def wrapper(event, go_on):
        raise ValueError("a bug")

    bench.own.wrap(stage, wrapper)
    made = stage is PostExecute
    what = "the call was made, but its result is lost" if made else "the call could not be made"
    assert told(await bench.call("write", text="a")) == ("internal", f"Error: {what}: ValueError: a bug")
    assert ran == (["a"] if made else [])
    [fault] = bench.faults
    assert (fault.owner, fault.what) == ("lead", "running the pipeline of tool 'write'")
    assert fault.error.__notes__ == [f"raised by the wrapper of 'test' at scope 'lead' around {stage.wire_name}"]


@pytest.mark.parametrize("stage", STAGES)
async def test_a_wrapper_that_returns_nothing_is_named(bench, stage):
    async def wrapper(event, go_on):
        await go_on()

    bench.own.wrap(stage, wrapper)
    outcome = await bench.call("write", text="a")
    assert outcome.code == "internal"
    assert f"the wrapper of 'test' at scope 'lead' around {stage.wire_name} returned None" in outcome.text
    assert [type(fault.error) for fault in bench.faults] == [InternalError]


async def test_what_a_hostile_wrapper_raises_cannot_do_more(bench):
    class HostileError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    async def wrapper(event, go_on):
        raise HostileError

    bench.own.wrap(Execute, wrapper)
    message = "Error: the call could not be made: HostileError: its text cannot be read"
    assert told(await bench.call("write", text="a")) == ("internal", message)


def test_an_outcome_is_made_of_parts_or_of_one_text():
    """Rule: what is no part is refused where it is made; in a log it would spoil every request after it."""
    assert ToolOutcome("a").parts == (TextPart("a"),)
    assert ToolOutcome([TextPart("a"), TextPart("b")]).text == "ab"
    assert ToolOutcome("a") == ToolOutcome([TextPart("a")])
    for wrong, name in ((["a"], "str"), ([{"type": "text"}], "dict"), ([None], "NoneType")):
        with pytest.raises(TypeError) as caught:
            ToolOutcome(wrong)
        assert str(caught.value) == f"an outcome consists of texts and images, and a {name} is neither"


# ---------------------------------------------------------------- cancellation


@pytest.mark.parametrize("stage", STAGES)
async def test_a_cancelled_stage_lets_the_cancellation_out(bench, ran, stage):
    async def wrapper(event, go_on):
        await trio.sleep_forever()

    bench.own.wrap(stage, wrapper)
    caught, context = await bench.cancel("write", text="a")
    assert caught
    assert context.began == (stage is PostExecute)
    assert ran == (["a"] if context.began else [])
    assert bench.faults == []


async def test_no_body_begins_after_the_cancellation(bench, ran):
    """Rule: also when nothing waits between the two."""
    context = bench.context()
    with trio.CancelScope() as scope:
        scope.cancel()
        await bench.call("write", text="a", context=context)
    assert scope.cancelled_caught
    assert (ran, context.began) == ([], False)


async def test_a_denial_needs_no_wait_and_stands_under_cancellation(bench):
    bench.own.add(Guard(lambda execution: "no"))
    with trio.CancelScope() as scope:
        scope.cancel()
        assert (await bench.call("write", text="a")).code == "denied"
    assert not scope.cancelled_caught


async def test_a_wrapper_may_make_an_outcome_of_a_cancellation(bench):
    async def wrapper(event, go_on):
        try:
            return await go_on()
        except trio.Cancelled:
            return ToolOutcome("cut short", code="cut")

    outcomes: list[ToolOutcome] = []

    async def call() -> None:
        outcomes.append(await bench.call("waits"))

    bench.own.add(Tool("waits", description="", parameters={}, run=trio.sleep_forever))
    bench.own.wrap(Execute, wrapper)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    assert [told(each) for each in outcomes] == [("cut", "cut short")]


async def test_a_wrapper_that_fails_while_it_is_cancelled_is_cancelled(bench, caplog):
    """Rule: a nursery that was cancelled and raised gives a group of both; the cancellation counts, the rest is logged."""

    async def fails() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("a bug")

    async def wrapper(event, go_on):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails)
            await trio.sleep_forever()

    bench.own.wrap(PreExecute, wrapper)
    caplog.set_level("INFO", "creche")
    caught, context = await bench.cancel("write", text="a")
    assert (caught, context.began) == (True, False)
    assert [record.getMessage() for record in caplog.records] == [
        "a wrapper around tool 'write' was cancelled and raised"
    ]


async def test_what_ends_the_program_goes_through_a_wrapper_that_was_cancelled(bench):
    async def interrupted() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise KeyboardInterrupt

    async def wrapper(event, go_on):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(interrupted)
            await trio.sleep_forever()

    bench.own.wrap(PreExecute, wrapper)
    with pytest.raises(BaseExceptionGroup) as caught:
        await bench.cancel("write", text="a")
    assert caught.group_contains(KeyboardInterrupt)

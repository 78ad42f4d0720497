"""Calls that are part of another call."""

import json

import pytest
import trio
import trio.testing
from hypothesis import given, settings, strategies as st

from creche.errors import AgentError, StoreError, ToolFailed
from creche.messages import ImagePart, TextPart
from creche.scope import Fault, Owner, Registry, make_registrar
from creche.tools import (
    Allow,
    Approver,
    Guard,
    PreExecute,
    Refuse,
    RequestApproval,
    Tool,
    ToolContext,
    begin_call,
    call_tool,
    restrict,
    tool,
)
from creche.tools._gate import MOST_AT_ONCE, Gate


def outer(act, name="outer"):
    """Return a tool whose body makes calls of its own."""

    @tool(name=name)
    async def run(context: ToolContext) -> str:
        return await act(context)

    return run


async def wait(pending):
    return await pending


def inner_log(bench):
    """Return the records of calls and of calls within them, such as ``tool/code-call c1:code:1``."""
    return [
        f"{record.kind} {getattr(record.data, 'call_id', None) or record.data.message.call_id}"
        for record in bench.agent.session.records()
        if record.kind.startswith("tool/")
    ]


@pytest.fixture
def bench(bench):
    @tool(parallel=True, inline=True)
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    bench.pen.add(add)
    return bench


async def test_a_call_goes_through_the_same_pipeline_and_has_its_two_records(bench):
    seen: list[str] = []

    async def watch(event, go_on):
        seen.append(f"{event.execution.tool.name} {event.execution.context.call_id}")
        return await go_on()

    async def act(context):
        outcome = await call_tool(context, "add", '{"a": 1, "b": 2}')
        return f"{outcome.json_text} {outcome.code!r}"

    bench.pen.wrap(PreExecute, watch)
    bench.pen.add(outer(act))
    assert await bench.run("outer") == [("c1", "", "3 ''")]
    assert seen == ["outer c1", "add c1:code:1"]
    assert inner_log(bench) == [
        "tool/call c1",
        "tool/code-call c1:code:1",
        "tool/code-result c1:code:1",
        "tool/result c1",
    ]
    [called] = bench.agent.session.records("tool/code-call")
    assert (called.data.parent, called.data.name, called.data.arguments) == ("c1", "add", '{"a": 1, "b": 2}')


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("nope", "{}", "unknown-tool"),
        ("add", '{"a": "1", "b": 2}', "invalid-arguments"),
        ("add", "not json", "invalid-arguments"),
        ("run_code", "{}", "unknown-tool"),
    ],
)
async def test_every_failure_is_an_outcome(bench, name, arguments, code):
    async def act(context):
        return (await call_tool(context, name, arguments)).code

    bench.pen.add(outer(act))
    assert await bench.run("outer") == [("c1", "", code)]
    [returned] = bench.agent.session.records("tool/code-result")
    assert (returned.data.code, returned.data.message.is_error) == (code, True)


async def test_guards_and_approvals_hold_for_it(bench):
    async def act(context):
        outcomes = [await call_tool(context, name, '{"a": 1, "b": 2}') for name in ("add", "sub")]
        return " ".join([outcome.code or "ok" for outcome in outcomes])

    async def ask(event, go_on):
        return RequestApproval("Why?") if event.execution.tool.name == "add" else await go_on()

    async def refuse(request):
        assert not request.execution.context.is_direct
        return Refuse()

    bench.pen.add(Tool("sub", description="", parameters={}, run=lambda **_: "", inline=True))
    bench.pen.add(Guard(lambda execution: "no" if execution.tool.name == "sub" else None))
    bench.pen.wrap(PreExecute, ask)
    bench.pen.add(Approver(refuse))
    bench.pen.add(outer(act))
    assert await bench.run("outer") == [("c1", "", "approval-refused denied")]


async def test_the_time_of_an_approval_is_nobodys(bench, autojump_clock):
    """Rule: neither the call's own limit nor that of the call it is part of runs while somebody thinks about it."""

    async def act(context):
        with context.time_limit(10) as limit:
            async with trio.open_nursery() as nursery:
                for _ in range(2):
                    nursery.start_soon(wait, begin_call(context, "add", '{"a": 1, "b": 2}'))
            await trio.sleep(9)
        return f"in time: {not limit.cancelled_caught}"

    async def ask(event, go_on):
        execution = event.execution
        if execution.tool.name != "add":
            return await go_on()
        return RequestApproval("Why?", subject=execution.context.call_id)  # so that both are asked for at once

    seconds = iter([100, 300])

    async def allow(request):
        await trio.sleep(next(seconds))
        return Allow()

    bench.pen.wrap(PreExecute, ask)
    bench.pen.add(Approver(allow))
    bench.pen.add(outer(act))
    began = trio.current_time()
    assert await bench.run("outer") == [("c1", "", "in time: True")]
    assert trio.current_time() - began == pytest.approx(309)


async def test_calls_overlap_as_their_tools_allow_and_begin_in_order(bench, autojump_clock):
    spans: list[tuple[str, float, float]] = []
    began = 0.0

    def timed(name, *, parallel):
        @tool(name=name, parallel=parallel)
        async def run(label: str) -> str:
            start = trio.current_time() - began
            await trio.sleep(1)
            spans.append((label, start, trio.current_time() - began))
            return label

        return run

    async def act(context):
        async with trio.open_nursery() as nursery:
            for number, name in enumerate(["par", "par", "alone", "par", "par"]):
                nursery.start_soon(wait, begin_call(context, name, json.dumps({"label": f"{name}{number}"})))
        return ""

    bench.pen.add(timed("par", parallel=True))
    bench.pen.add(timed("alone", parallel=False))
    bench.pen.add(outer(act))
    began = trio.current_time()
    await bench.run("outer")
    assert sorted(spans, key=lambda span: span[1:] + span[:1]) == [
        ("par0", pytest.approx(0), pytest.approx(1)),
        ("par1", pytest.approx(0), pytest.approx(1)),
        ("alone2", pytest.approx(1), pytest.approx(2)),
        ("par3", pytest.approx(2), pytest.approx(3)),
        ("par4", pytest.approx(2), pytest.approx(3)),
    ]


async def test_what_calls_defer_comes_in_the_order_in_which_they_were_made(bench, autojump_clock):
    @tool(parallel=True)
    async def note(text: str, seconds: float, context: ToolContext) -> str:
        """Note."""
        await trio.sleep(seconds)
        context.defer(text)
        return ""

    async def act(context):
        context.defer("before")
        async with trio.open_nursery() as nursery:
            for text, seconds in (("slow", 2), ("quick", 1)):
                nursery.start_soon(wait, begin_call(context, "note", json.dumps({"text": text, "seconds": seconds})))
        context.defer("after")
        return ""

    bench.pen.add(note)
    bench.pen.add(outer(act))
    await bench.run("outer")
    assert [message.text for message in bench.delivered] == ["before", "slow", "quick", "after"]


async def test_images_come_as_a_message_of_their_own(bench):
    image = ImagePart(b"i", media_type="image/png")
    bench.pen.add(Tool("draw", description="", parameters={}, run=lambda: [TextPart("a cat"), image], inline=True))

    async def act(context):
        return (await call_tool(context, "draw", "{}")).text

    bench.pen.add(outer(act))
    assert await bench.run("outer") == [("c1", "", "a cat")]
    [message] = bench.delivered
    assert message.parts == (TextPart("What 'draw' returned in call 'c1:code:1':"), image)


@pytest.mark.parametrize("fails", [True, False])
async def test_a_call_that_succeeds_concludes_the_one_it_is_part_of(bench, fails):
    @tool
    async def stop(context: ToolContext) -> str:
        """Stop."""
        context.conclude()
        if fails:
            raise ToolFailed("no")
        return ""

    async def act(context):
        await call_tool(context, "stop", "{}")
        return ""

    bench.pen.add(stop)
    bench.pen.add(outer(act))
    await bench.run("outer")
    assert bench.concluded is not fails


async def test_a_cancelled_call_gives_every_call_in_it_its_result(bench):
    """Rule: what had begun is cancelled, what waited for its turn has no record."""

    @tool
    async def hang() -> str:
        """Hang."""
        await trio.sleep_forever()
        return ""

    async def act(context):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(wait, begin_call(context, "hang", "{}"))
        return ""

    bench.pen.add(hang)
    bench.pen.add(outer(act))
    calls = bench.answer("outer")
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.run_calls, calls)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    bench.close()
    assert len(inner_log(bench)) == 4
    [returned] = bench.agent.session.records("tool/code-result")
    assert returned.data.code == "cancelled"


async def test_a_body_does_not_begin_before_its_record_is_durable(bench):
    ran: list[str] = []
    checkpoints = 0

    async def checkpoint():
        nonlocal checkpoints
        checkpoints += 1
        if checkpoints == 2:
            raise StoreError("the disk is full")

    async def act(context):
        await call_tool(context, "write", "{}")
        return ""

    bench.pen.add(Tool("write", description="", parameters={}, run=lambda: ran.append("ran"), inline=True))
    bench.pen.add(outer(act))
    assert [(code, text) for _, code, text in await bench.run("outer", checkpoint=checkpoint)] == [
        ("failed", "Error: the disk is full")
    ]
    [returned] = bench.agent.session.records("tool/code-result")
    assert (ran, returned.data.code) == ([], "not-started")


async def test_a_tool_that_is_hidden_meanwhile_is_not_found(bench):
    async def act(context):
        bench.own.add(restrict(deny=["add"]))
        return (await call_tool(context, "add", '{"a": 1, "b": 2}')).code

    bench.pen.add(outer(act))
    assert await bench.run("outer") == [("c1", "", "unknown-tool")]


async def test_without_a_step_there_is_nothing_to_be_part_of():
    registry = Registry()
    pen = make_registrar(registry, Owner("test"), None)
    pen.on(Fault, lambda fault: None)
    context = ToolContext(None, registry=registry, call_id="c1", name="", number=1)
    with pytest.raises(AgentError) as caught:
        await call_tool(context, "add", "{}")
    assert str(caught.value) == "call 'c1' is not part of a step of an agent, so no other call can be part of it"


async def test_a_call_that_outlives_what_it_is_part_of_is_cancelled_and_has_its_result(bench):
    """Rule: when a call has its result, nothing that is part of it is open, wherever its tasks live."""
    ended: list[str] = []

    @tool(parallel=True)
    async def hang() -> str:
        """Hang."""
        try:
            await trio.sleep_forever()
        finally:
            ended.append("hang")
        return ""

    async def ask(event, go_on):
        return RequestApproval("Why?") if event.execution.tool.name == "add" else await go_on()

    async def never(request):
        await trio.sleep_forever()

    async with trio.open_nursery() as elsewhere:

        async def act(context):
            for name, arguments in (("hang", "{}"), ("add", '{"a": 1, "b": 2}')):
                elsewhere.start_soon(wait, begin_call(context, name, arguments))
            await trio.testing.wait_all_tasks_blocked()
            return "gone"

        bench.pen.add(hang)
        bench.pen.wrap(PreExecute, ask)
        bench.pen.add(Approver(never))
        bench.pen.add(outer(act))
        assert await bench.run("outer") == [("c1", "", "gone")]
    assert ended == ["hang"]
    assert sorted([record.data.code for record in bench.agent.session.records("tool/code-result")]) == [
        "cancelled",
        "not-started",
    ]


async def test_a_context_that_was_kept_takes_no_more_calls(bench):
    kept: list[ToolContext] = []

    async def act(context):
        kept.append(context)
        return ""

    bench.pen.add(outer(act))
    await bench.run("outer")
    with pytest.raises(AgentError) as caught:
        await call_tool(kept[0], "add", {"a": 1, "b": 2})
    assert str(caught.value) == "call 'c1' is over, so no other call can be part of it any more"


# ---------------------------------------------------------------- the order, against a naive model


@settings(deadline=None)
@given(plan=st.lists(st.tuples(st.booleans(), st.integers(1, 3)), max_size=25))
def test_a_gate_lets_calls_begin_as_the_rule_says(plan):
    """Law: in order; parallel ones side by side up to the limit, any other alone."""

    async def main() -> dict[int, tuple[float, float]]:
        gate, spans = Gate(), dict[int, tuple[float, float]]()

        async def one(number, place, seconds):
            async with gate.turn(place):
                begin = trio.current_time()
                await trio.sleep(seconds)
                spans[number] = (begin, trio.current_time())

        async with trio.open_nursery() as nursery:
            for number, (parallel, seconds) in enumerate(plan):
                nursery.start_soon(one, number, gate.join(lambda parallel=parallel: parallel), seconds)
        return spans

    spans = trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert len(spans) == len(plan)
    begins = [spans[number][0] for number in range(len(plan))]
    assert begins == sorted(begins)
    for number, (parallel, _) in enumerate(plan):
        begin, end = spans[number]
        others = [each for each in spans if each != number and spans[each][0] < end and begin < spans[each][1]]
        assert parallel or not others
        at_begin = [each for each in spans if spans[each][0] <= begin < spans[each][1]]
        assert len(at_begin) <= MOST_AT_ONCE


async def test_who_gives_up_waiting_holds_up_nobody(autojump_clock):
    gate, order = Gate(), []

    async def one(name, *, parallel=False):
        async with gate.turn(gate.join(lambda: parallel)):
            order.append(name)
            await trio.sleep(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(one, "first")
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(0.5):
            await one("gives up")
        nursery.start_soon(one, "last")
    assert order == ["first", "last"]

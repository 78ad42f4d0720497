"""What a body can say besides its result: messages for later, the end of the turn, progress; and its time."""

import math
import threading

import pytest
import trio
import trio.testing

from creche.errors import ToolFailed
from creche.messages import ImagePart, TextPart, UserMessage
from creche.tools import (
    Allow,
    Approver,
    Block,
    PostExecute,
    PreExecute,
    RequestApproval,
    Tool,
    ToolContext,
    ToolOutcome,
    ToolProgressed,
    ToolThreads,
    tool,
)


def body(act, *, name="act", **options):
    """Return a tool whose body does something with its context."""

    @tool(name=name, **options)
    async def run(context: ToolContext) -> str:
        return await act(context)

    return run


# ---------------------------------------------------------------- deferred messages


async def test_what_bodies_defer_comes_after_all_results_in_the_models_order(bench, autojump_clock):
    """Rule: results first, then what was deferred, by call and not by when it was said."""

    async def slow(context):
        context.defer("first of slow")
        await trio.sleep(2)
        context.defer([TextPart("second of slow"), ImagePart(b"i", media_type="image/png")])
        return "slow"

    async def quick(context):
        context.defer(UserMessage("of quick", source="clock"))
        return "quick"

    bench.pen.add(body(slow, name="slow", parallel=True))
    bench.pen.add(body(quick, name="quick", parallel=True))
    assert [text for _, _, text in await bench.run("slow", "quick")] == ["slow", "quick"]
    assert [(message.text, message.source) for message in bench.delivered] == [
        ("first of slow", "tool"),
        ("second of slow", "tool"),
        ("of quick", "clock"),
    ]


async def test_a_call_that_fails_or_is_cancelled_keeps_what_it_deferred(bench):
    async def fail(context):
        context.defer("of the failure")
        raise ToolFailed("no")

    async def hang(context):
        context.defer("of the cancelled")
        await trio.sleep_forever()

    bench.pen.add(body(fail, name="fail"))
    bench.pen.add(body(hang, name="hang"))
    calls = bench.answer("fail", "hang")
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.run_calls, calls)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    bench.close()
    assert [message.text for message in bench.delivered] == ["of the failure", "of the cancelled"]


async def test_a_blocked_call_says_the_feedback_alone(bench):
    """Rule: what the body deferred and concluded is dropped; what a wrapper defers afterwards stays."""

    async def act(context):
        context.defer("of the body")
        context.conclude()
        return "done it"

    async def block(event, go_on):
        inner = await go_on()
        assert isinstance(inner, ToolOutcome)
        event.execution.context.defer("of the wrapper")
        return Block("That is not what was asked for.")

    bench.pen.add(body(act))
    bench.pen.wrap(PostExecute, block)
    assert await bench.run("act") == [("c1", "blocked", "Error: That is not what was asked for.")]
    assert [message.text for message in bench.delivered] == ["of the wrapper"]
    assert not bench.concluded


# ---------------------------------------------------------------- conclusion


@pytest.mark.parametrize("fails", [True, False])
async def test_a_call_concludes_the_turn_if_it_succeeds(bench, fails):
    async def act(context):
        context.conclude()
        if fails:
            raise ToolFailed("no")
        return "that is all"

    async def other(context):
        return "more"

    bench.pen.add(body(act))
    bench.pen.add(body(other, name="other"))
    await bench.run("act", "other")
    assert bench.concluded is not fails


# ---------------------------------------------------------------- progress


async def test_progress_is_heard_at_the_agent_and_above_and_is_not_logged(bench):
    heard: list[ToolProgressed] = []
    bench.preset.on(ToolProgressed, heard.append)

    async def act(context):
        context.progress("reading", done=1, total=3)
        return ""

    bench.pen.add(body(act))
    await bench.run("act")
    assert heard == [ToolProgressed("lead", call_id="c1", name="act", text="reading", done=1, total=3)]
    kinds = [record.kind for record in bench.agent.session.records()]
    assert kinds[-4:] == ["tool/call", "tool/result", "step/end", "turn/end"]


# ---------------------------------------------------------------- time


async def test_a_body_that_takes_too_long_is_ended_and_says_what_it_had(bench, autojump_clock):
    async def act(context):
        context.said = "line 1\nline 2"
        await trio.sleep_forever()

    bench.pen.add(body(act, timeout=1.5))
    began = trio.current_time()
    [(_, code, text)] = await bench.run("act")
    assert code == "timeout"
    assert text == (
        "Error: the call took longer than 1.5 seconds and was ended; what it had done until then stands. "
        "Until then:\nline 1\nline 2"
    )
    assert trio.current_time() - began == pytest.approx(1.5)


async def test_a_cancelled_body_says_what_it_had(bench):
    async def act(context):
        context.said = "half"
        await trio.sleep_forever()

    bench.pen.add(body(act))
    calls = bench.answer("act")
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.run_calls, calls)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    bench.close()
    [(_, code, text)] = bench.results()
    assert code == "cancelled"
    assert text.endswith("stands. Until then:\nhalf")


async def test_a_body_that_is_done_in_time_is_not_touched(bench, autojump_clock):
    async def act(context):
        await trio.sleep(1)
        return "done"

    bench.pen.add(body(act, timeout=1.5))
    assert await bench.run("act") == [("c1", "", "done")]


async def test_a_turn_that_is_cancelled_within_the_limit_is_cancelled(bench, autojump_clock):
    async def act(context):
        await trio.sleep_forever()

    bench.pen.add(body(act, timeout=10))
    calls = bench.answer("act")
    with trio.move_on_after(1):
        await bench.run_calls(calls)
    bench.close()
    assert [code for _, code, _ in bench.results()] == ["cancelled"]


async def test_the_wait_to_begin_does_not_count(bench, autojump_clock):
    """Rule: the limit is for the body; one that waits its turn or for an approval has not begun."""

    async def act(context):
        await trio.sleep(1)
        return "done"

    async def ask(event, go_on):
        return RequestApproval("Why not?")

    async def allow(request):
        await trio.sleep(100)
        return Allow()

    bench.pen.add(body(act, timeout=1.5, at_once=1, parallel=True))
    bench.pen.wrap(PreExecute, ask)
    bench.pen.add(Approver(allow))
    assert [code for _, code, _ in await bench.run("act", "act", "act")] == ["", "", ""]
    assert trio.current_time() >= 103


async def test_a_sync_body_that_looks_is_ended_in_its_thread(bench):
    began = trio.Event()

    @tool(timeout=0.05)
    def act() -> str:
        """Act."""
        trio.from_thread.run_sync(began.set)
        while True:
            trio.from_thread.check_cancelled()

    bench.pen.add(act)
    assert [code for _, code, _ in await bench.run("act")] == ["timeout"]
    assert began.is_set()


@pytest.mark.parametrize("seconds", [0, -1, math.inf, math.nan])
def test_a_timeout_is_a_number_of_seconds(seconds):
    with pytest.raises(ValueError, match="timeout is a number of seconds above 0"):
        Tool("act", description="", parameters={}, run=lambda: "", timeout=seconds)


@pytest.mark.parametrize("option", ["at_once", "longest_result"])
def test_a_count_is_at_least_one(option):
    with pytest.raises(ValueError, match=f"^tool 'act': {option} is 1 or more, not 0$"):
        Tool("act", description="", parameters={}, run=lambda: "", **{option: 0})


# ---------------------------------------------------------------- how many at once


async def test_no_more_bodies_of_a_tool_run_at_once_than_it_says(bench, autojump_clock):
    running, most = 0, 0

    async def act(context):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await trio.sleep(1)
        running -= 1
        return ""

    bench.pen.add(body(act, parallel=True, at_once=2))
    began = trio.current_time()
    await bench.run(*["act"] * 6)
    assert most == 2
    assert trio.current_time() - began == pytest.approx(3)


async def test_the_wait_for_a_thread_does_not_count(bench):
    """Rule: the time of a body begins with the body, in its thread."""
    bench.pen.provide(ToolThreads(trio.CapacityLimiter(1)))
    gate = threading.Event()

    @tool(parallel=True, timeout=0.2)
    def act(number: int) -> str:
        """Act."""
        if number == 0:
            gate.wait(0.15)
        return "done"

    bench.pen.add(act)
    assert [code for _, code, _ in await bench.run(*[("act", {"number": number}) for number in range(4)])] == [""] * 4


@pytest.mark.parametrize("message", ["", []])
async def test_a_message_with_nothing_in_it_fails_the_call_that_defers_it(bench, message):
    async def act(context):
        context.defer(message)
        return ""

    bench.pen.add(body(act))
    [(_, code, _)] = await bench.run("act")
    assert (code, bench.delivered) == ("exception", []) if message == [] else ("", bench.delivered)


async def test_an_outcome_has_a_code_that_is_a_text(bench):
    async def act(context):
        return ToolOutcome("x", code=5)

    bench.pen.add(body(act))
    [(_, code, _)] = await bench.run("act")
    assert code == "exception"

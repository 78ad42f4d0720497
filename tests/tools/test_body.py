import asyncio  # noqa: TID251 - what a tool must not use, and who comes from there does
import functools
import threading
from collections import UserDict
from collections.abc import Callable
from pathlib import Path
from unittest.mock import ANY

import attrs
import pytest
import trio
import trio.testing

from creche import AgentSpec, open_host
from creche.errors import (
    AgentError,
    InvalidArgumentsError,
    LimitReachedError,
    ToolFailed,
    ToolRetry,
)
from creche.messages import ImagePart, TextPart
from creche.models import ScriptedModel, call, say
from creche.scope import Fault
from creche.testing import check_log, record_events
from creche.tools import Execute, Tool, ToolContext, ToolOutcome, ToolThreads, restrict, tool


def raw(run: Callable[..., object], **options: bool) -> Tool:
    return Tool("t", description="", parameters={}, run=run, **options)


def told(outcome: ToolOutcome) -> tuple[str, str]:
    return outcome.code, outcome.text


async def outcome_of(bench, run: Callable[..., object], **options: bool) -> ToolOutcome:
    with bench.own.add(raw(run, **options)):
        return await bench.call("t")


def body_raising(error: BaseException) -> Callable[[], object]:
    def run() -> object:
        raise error

    return run


# ---------------------------------------------------------------- what a body returns


@attrs.frozen
class Found:
    path: Path
    lines: tuple[int, ...]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        (None, "done"),
        (3, "3"),
        ([], "[]"),
        (["a", 1], '["a",1]'),
        ({"a": None}, '{"a":null}'),
        (Found(Path("a.txt"), (1, 2)), '{"path":"a.txt","lines":[1,2]}'),
        ("half \ud800", "half \ufffd"),
    ],
)
async def test_a_body_returns_text_or_nothing_or_a_value(bench, value, text):
    outcome = await outcome_of(bench, lambda: value, inline=True)
    assert (outcome.parts, outcome.code) == ((TextPart(text),), "")


IMAGE = ImagePart("aGk=", media_type="image/png")


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        (TextPart("a"), (TextPart("a"),)),
        (IMAGE, (IMAGE,)),
        ([TextPart("a"), IMAGE], (TextPart("a"), IMAGE)),
        ((IMAGE,), (IMAGE,)),
        (["a picture:", IMAGE, None], (TextPart("a picture:"), IMAGE, TextPart("done"))),
    ],
)
async def test_a_body_returns_parts(bench, value, parts):
    """Rule: a list with a part in it is a list of parts, and what else is in it becomes one."""
    outcome = await outcome_of(bench, lambda: value, inline=True)
    assert (outcome.parts, outcome.code) == (parts, "")


async def test_a_body_may_return_its_outcome_with_a_code_of_its_own(bench):
    outcome = ToolOutcome("half of it", code="partial")
    assert await outcome_of(bench, lambda: outcome, inline=True) is outcome


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "the result has no JSON form: it holds a float that is nan or infinite; "),
        (b"bytes", "the result holds a value of type bytes, which has no JSON form; "),
        ({1: object()}, "the result holds a value of type object, which has no JSON form; "),
        ((each for each in "ab"), "the result holds a value of type generator, which has no JSON form; "),
        ([IMAGE, b"bytes"], "the result holds a value of type bytes, which has no JSON form; "),
    ],
)
async def test_a_value_without_a_json_form_is_a_failure_of_a_call_that_was_made(bench, value, reason):
    code, text = told(await outcome_of(bench, lambda: value, inline=True))
    assert code == "invalid-result"
    assert text.startswith(f"Error: the call was made, but {reason}")


# ---------------------------------------------------------------- what a body raises


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ToolFailed("there is no such file"), "failed", "there is no such file"),
        (ToolRetry("give a path"), "retry", "give a path"),
        (InvalidArgumentsError([("a", "is bad"), ("", "b")]), "invalid-arguments", "a: is bad; b"),
        (LimitReachedError("no tokens are left", code="tokens"), "tokens", "no tokens are left"),
        (AgentError("not now"), "failed", "not now"),
        (ToolFailed(), "failed", "ToolFailed"),
        (ValueError("a bug"), "exception", "ValueError: a bug"),
        (ValueError(), "exception", "ValueError"),
        (KeyError("a"), "exception", "KeyError: 'a'"),
        (ExceptionGroup("g", [ToolRetry("give a path")]), "retry", "give a path"),
        (
            ExceptionGroup("g", [ValueError("a"), ExceptionGroup("h", [ToolFailed("b")])]),
            "exception",
            "ValueError: a; b",
        ),
        (ExceptionGroup("g", [ToolFailed("a"), ToolFailed("b")]), "failed", "a; b"),
        (
            ExceptionGroup("g", [ValueError(str(number)) for number in range(12)]),
            "exception",
            "; ".join([f"ValueError: {number}" for number in range(10)] + ["and 2 more"]),
        ),
    ],
)
@pytest.mark.parametrize("inline", [True, False])
async def test_what_a_body_raises_is_told_to_the_model(bench, error, code, text, inline):
    outcome = await outcome_of(bench, body_raising(error), inline=inline)
    assert told(outcome) == (code, f"Error: {text}")
    assert bench.faults == []


@pytest.mark.parametrize(
    ("inline", "text"), [(True, "StopIteration: a"), (False, "RuntimeError: coroutine raised StopIteration")]
)
async def test_a_body_that_raises_what_ends_an_iteration_fails_like_any_other(bench, inline, text):
    outcome = await outcome_of(bench, body_raising(StopIteration("a")), inline=inline)
    assert told(outcome) == ("exception", f"Error: {text}")


async def test_a_value_that_fails_when_it_is_read_is_the_bodys_failure(bench):
    class Hostile(UserDict):
        def __iter__(self):
            raise OSError("gone")

    outcome = await outcome_of(bench, lambda: Hostile(a=1), inline=True)
    assert told(outcome) == ("exception", "Error: OSError: gone")


async def test_a_subclass_tells_like_its_base(bench):
    class MyRetry(ToolRetry):
        pass

    assert (await outcome_of(bench, body_raising(MyRetry("again")), inline=True)).code == "retry"


async def test_what_needs_asyncio_is_told_where_it_can_run(bench, caplog):
    """Rule: who comes from asyncio is told what is the matter, in the traceback."""

    async def wait():
        await asyncio.sleep(0.01)

    outcome = await outcome_of(bench, wait)
    assert told(outcome) == ("exception", "Error: RuntimeError: no running event loop")
    [record] = caplog.records
    assert record.exc_info[1].__notes__ == [
        "creche runs on trio: use trio.sleep() and the like, or let asyncio run it with portal.run_asyncio()"
    ]


async def test_a_traceback_is_logged_for_people(bench, caplog):
    caplog.set_level("INFO", "creche")
    await outcome_of(bench, body_raising(ValueError("a bug")), inline=True)
    [record] = caplog.records
    assert (record.getMessage(), record.exc_info[0]) == ("tool 't' of 'lead' raised in call 'c1'", ValueError)


async def test_a_text_that_cannot_be_had_is_told_as_that(bench):
    class HostileError(Exception):
        def __str__(self) -> str:
            raise KeyError

    outcome = await outcome_of(bench, body_raising(HostileError()), inline=True)
    assert told(outcome) == ("exception", "Error: HostileError: its text cannot be read")


async def test_a_nursery_in_a_body_tells_what_its_tasks_raised(bench):
    async def fails() -> None:
        raise ToolFailed("there is no such file")

    async def body() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails)
            nursery.start_soon(trio.sleep_forever)

    assert told(await outcome_of(bench, body)) == ("failed", "Error: there is no such file")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
@pytest.mark.parametrize("inline", [True, False])
async def test_what_ends_the_program_is_no_outcome(bench, error, inline):
    with pytest.raises(type(error)):
        await outcome_of(bench, body_raising(error), inline=inline)


async def test_a_body_that_fails_while_it_is_cancelled_is_cancelled(bench, caplog):
    """Rule: a cancelled nursery in which a task raises gives a group of both; the cancellation counts."""

    async def fails() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("a bug")

    async def body() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails)
            await trio.sleep_forever()

    caplog.set_level("INFO", "creche")
    bench.own.add(raw(body))
    assert await bench.cancel("t") == (True, ANY)
    assert [record.getMessage() for record in caplog.records] == ["tool 't' was cancelled and raised"]


async def test_an_interrupt_in_a_cancelled_body_gets_out(bench):
    async def interrupted() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise KeyboardInterrupt

    async def body() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(interrupted)
            await trio.sleep_forever()

    bench.own.add(raw(body))
    with pytest.raises(BaseExceptionGroup) as caught:
        await bench.cancel("t")
    assert caught.group_contains(KeyboardInterrupt)


async def test_a_deadline_of_the_bodys_own_is_the_bodys_affair(bench, autojump_clock):
    async def body() -> str:
        with trio.move_on_after(1):
            await trio.sleep_forever()
        with trio.fail_after(1):
            await trio.sleep_forever()
        return "never"

    code, text = told(await outcome_of(bench, body))
    assert (code, text) == ("exception", "Error: TooSlowError")


# ---------------------------------------------------------------- where a body runs


async def test_an_async_and_an_inline_body_run_in_the_loops_thread_and_a_sync_one_elsewhere(bench):
    async def waits() -> str:
        return threading.current_thread().name

    def runs() -> str:
        return threading.current_thread().name

    here = threading.current_thread().name
    assert (await outcome_of(bench, waits)).text == here
    assert (await outcome_of(bench, runs, inline=True)).text == here
    assert (await outcome_of(bench, runs)).text == "tool t", "named, so that a person sees what holds a program"


class Client:
    async def get(self) -> str:
        await trio.lowlevel.checkpoint()
        return "got"

    async def __call__(self) -> str:
        return await self.get()


@pytest.mark.parametrize(
    "body",
    [
        Client().get,
        Client(),
        functools.partial(Client.get, Client()),
        lambda: Client().get(),
        functools.partial(lambda client: client.get(), Client()),
    ],
    ids=["method", "object", "partial", "function that returns what can be awaited", "partial of such a one"],
)
async def test_what_can_be_awaited_is_awaited(bench, body):
    """Rule: however a body is async, what it resolves to is its result."""
    assert told(await outcome_of(bench, body)) == ("", "got")


async def test_an_inline_body_may_return_what_can_be_awaited(bench):
    assert told(await outcome_of(bench, lambda: Client().get(), inline=True)) == ("", "got")


async def test_the_context_is_injected(bench):
    seen: list[ToolContext] = []

    @tool(inline=True)
    def look(at: str, *, context: ToolContext) -> str:
        seen.append(context)
        return at

    @tool
    async def look_too(context: ToolContext, at: str) -> str:
        seen.append(context)
        return at

    for each in (look, look_too):
        bench.own.add(each)
        context = bench.context()
        assert (await bench.call(each.name, at="x", context=context)).text == "x"
        assert seen.pop() is context
        assert context.began


async def test_a_model_cannot_give_the_context(bench):
    @tool(inline=True)
    def look(context: ToolContext) -> str:
        raise AssertionError

    bench.own.add(look)
    assert (await bench.call("look", context_=1)).code == "invalid-arguments"
    assert (await bench.call_text("look", '{"context": 1}')).code == "invalid-arguments"


async def test_sync_bodies_share_the_hosts_limiter(bench):
    bench.pen.provide(ToolThreads(trio.CapacityLimiter(2)))
    inside, most = [0], [0]
    lock = threading.Semaphore(0)

    def body() -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        lock.acquire(timeout=0.02)
        inside[0] -= 1

    bench.own.add(raw(body))
    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(bench.call, "t")
    assert most == [2]


async def test_a_host_gives_its_tools_threads(ran_in_host):
    limiter, tokens = await ran_in_host()
    assert limiter is not None
    assert tokens == 1


@pytest.fixture
def ran_in_host():
    async def run():
        async with open_host(model=ScriptedModel({"lead": [[call("busy")], say("Done.")]})) as host:
            limiter = host.registry.find(ToolThreads, None).limiter
            borrowed: list[int] = []

            @tool
            def busy() -> None:
                borrowed.append(trio.from_thread.run_sync(lambda: limiter.borrowed_tokens))

            host.registrar.add(busy)
            async with host.open_agent(AgentSpec("lead")) as lead:
                await lead.ask("Go.")
            return limiter, borrowed[0]

    return run


# ---------------------------------------------------------------- threads and cancellation


class Blocked:
    """A sync body that holds its thread until it is released."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.release = threading.Event()
        self.ended = threading.Event()

    def __call__(self) -> str:
        self.began.set()
        assert self.release.wait(10)
        self.ended.set()
        return "finished"

    async def wait_begun(self) -> None:
        assert await trio.to_thread.run_sync(self.began.wait, 10)


@pytest.fixture
def blocked():
    body = Blocked()
    yield body
    body.release.set()


async def test_a_sync_body_is_waited_for_under_cancellation(bench, blocked):
    """Rule: a thread cannot be killed, so its block does not end before it, and its result counts."""
    bench.own.add(raw(blocked))
    outcomes: list[ToolOutcome] = []

    async def run() -> None:
        outcomes.append(await bench.call("t"))

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await blocked.wait_begun()
            scope.cancel()
            blocked.release.set()
    assert blocked.ended.is_set()
    assert [told(each) for each in outcomes] == [("", "finished")]
    assert bench.faults == []


async def test_a_sync_body_can_ask_whether_it_was_cancelled(bench):
    """Rule: one that gives up by itself was cancelled while it ran."""
    begun = threading.Event()

    def body() -> None:
        begun.set()
        while True:
            trio.from_thread.check_cancelled()

    bench.own.add(raw(body))
    context = bench.context()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: bench.call("t", context=context))
            await trio.to_thread.run_sync(begun.wait)
            scope.cancel()
    assert scope.cancelled_caught
    assert (context.began, context.abandoned) == (True, False)


async def test_a_block_may_leave_a_thread_behind_and_a_fault_names_it(bench, blocked):
    bench.own.add(raw(blocked, abandon=True))
    context = bench.context("call-7")
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: bench.call("t", context=context))
            await blocked.wait_begun()
            scope.cancel()
    assert scope.cancelled_caught
    assert not blocked.ended.is_set()
    assert (context.began, context.abandoned) == (True, True)
    [fault] = bench.faults
    assert (fault.owner, fault.what, fault.error) == (
        "lead",
        "waiting for the thread of tool 't' (call 'call-7'), which was left behind",
        None,
    )


@pytest.mark.parametrize("abandon", [True, False])
async def test_a_body_that_waits_for_its_thread_never_begins_when_it_is_cancelled(bench, blocked, abandon):
    """Rule: nothing is left behind that never began."""
    bench.pen.provide(ToolThreads(trio.CapacityLimiter(1)))
    bench.own.add(Tool("first", description="", parameters={}, run=blocked))
    ran: list[int] = []
    bench.own.add(raw(lambda: ran.append(1), abandon=abandon))
    context = bench.context()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.call, "first")
        await blocked.wait_begun()
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as inner:
                inner.start_soon(lambda: bench.call("t", context=context))
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        assert scope.cancelled_caught
        blocked.release.set()
    await bench.call("first")
    assert (ran, context.began, context.abandoned, bench.faults) == ([], False, False, [])


@pytest.mark.parametrize("abandon", [True, False])
async def test_a_body_whose_tool_is_taken_away_while_it_waits_for_its_thread_never_begins(bench, blocked, abandon):
    """Rule: what runs is visible at the moment when it begins, also when that is long after its call."""
    limiter = trio.CapacityLimiter(1)
    bench.pen.provide(ToolThreads(limiter))
    bench.pen.add(Tool("first", description="", parameters={}, run=blocked))
    ran: list[int] = []
    bench.pen.add(raw(lambda: ran.append(1), abandon=abandon))
    context, outcomes = bench.context(), []

    async def second() -> None:
        outcomes.append(await bench.call("t", context=context))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.call, "first")
        await blocked.wait_begun()
        nursery.start_soon(second)
        await trio.testing.wait_all_tasks_blocked()
        bench.own.add(restrict(deny=["t"]))
        blocked.release.set()
    message = "Error: tool 't' was taken away or replaced before the call began. Visible: first"
    assert [told(each) for each in outcomes] == [("unknown-tool", message)]
    assert (ran, context.began, context.abandoned, bench.faults) == ([], False, False, [])
    assert limiter.borrowed_tokens == 0


async def test_an_abandoned_thread_keeps_its_place_in_the_limiter_until_it_ends(bench, blocked):
    limiter = trio.CapacityLimiter(1)
    bench.pen.provide(ToolThreads(limiter))
    bench.own.add(raw(blocked, abandon=True))
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.call, "t")
            await blocked.wait_begun()
            scope.cancel()
    assert limiter.borrowed_tokens == 1
    blocked.release.set()
    with trio.fail_after(10):
        await limiter.acquire()
    limiter.release()


async def test_a_second_attempt_that_never_got_a_thread_leaves_none_behind(bench, blocked):
    """Rule: a wrapper may run a body again, and each run is looked at by itself."""
    limiter = trio.CapacityLimiter(1)
    bench.pen.provide(ToolThreads(limiter))
    bench.own.add(raw(lambda: None, abandon=True))

    async def again(event, go_on):
        await go_on()
        limiter.acquire_on_behalf_of_nowait(bench)
        return await go_on()

    bench.own.wrap(Execute, again)
    context = bench.context()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: bench.call("t", context=context))
            with trio.move_on_after(5):
                while limiter.statistics().tasks_waiting == 0:
                    await trio.lowlevel.checkpoint()
            scope.cancel()
    assert scope.cancelled_caught
    assert (context.began, context.abandoned, bench.faults) == (True, False, [])


async def test_the_closing_record_of_an_abandoned_call_says_so(blocked):
    """Rule: the block ends, the fault and the record name what may still run."""
    slow = Tool("slow", description="", parameters={}, run=blocked, abandon=True)
    async with open_host(model=ScriptedModel({"lead": [[call("slow")]]})) as host:
        host.registrar.add(slow)
        with record_events(host.registrar, Fault) as faults:
            async with host.open_agent(AgentSpec("lead")) as lead:
                lead.send("Go.")
                await blocked.wait_begun()
    [result] = [record.data for record in lead.session.records("tool/result")]
    text = "Error: the call was cancelled and its thread left behind; it may still run"
    assert (result.code, result.message.text) == ("abandoned", text)
    assert [fault.what for fault in faults] == [
        f"waiting for the thread of tool 'slow' (call {result.message.call_id!r}), which was left behind"
    ]
    check_log(lead.session)

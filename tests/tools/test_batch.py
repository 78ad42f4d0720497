import attrs
import pytest
import trio
import trio.testing

from creche import AgentSpec, open_host
from creche.errors import StoreError, ToolFailed
from creche.models import ScriptedModel, call, say
from creche.scope import Registration
from creche.session import RecordAppended
from creche.testing import cancel_at_every_step, check_log
from creche.tools import Execute, Execution, Guard, PostExecute, PreExecute, Tool, ToolContext, ToolOutcome, tool

STAGES = (PreExecute, Execute, PostExecute)
NOT_STARTED = "Error: the call was not started; the turn ended before it"
CANCELLED = "Error: the call was cancelled while it ran; what it had done until then stands"


class Timeline:
    """Tools that sleep, and when each of them began and ended on the virtual clock."""

    def __init__(self, bench) -> None:
        self.spans: list[tuple[str, float, float]] = []
        for name, parallel in (("together", True), ("alone", False)):
            bench.pen.add(self._tool(name, parallel=parallel))

    def _tool(self, name: str, *, parallel: bool) -> Tool:
        @tool(name=name, parallel=parallel)
        async def sleep(seconds: float, context: ToolContext, fail: bool = False) -> str:
            began = trio.current_time()
            await trio.sleep(seconds)
            self.spans.append((context.call_id, began, trio.current_time()))
            if fail:
                raise ToolFailed("as asked")
            return f"slept {seconds}"

        return sleep


def together(seconds: float, *, fail: bool = False) -> tuple[str, dict[str, object]]:
    return "together", {"seconds": seconds, "fail": fail}


def alone(seconds: float, *, fail: bool = False) -> tuple[str, dict[str, object]]:
    return "alone", {"seconds": seconds, "fail": fail}


@pytest.fixture
def timeline(bench) -> Timeline:
    return Timeline(bench)


# ---------------------------------------------------------------- order and overlap


async def test_one_of_three_parallel_calls_fails_and_the_others_results_are_kept(bench, timeline, autojump_clock):
    """Rule: a failure is the result of its own call and never touches the siblings."""
    assert await bench.run(together(3), together(1, fail=True), together(2)) == [
        ("c1", "", "slept 3"),
        ("c2", "failed", "Error: as asked"),
        ("c3", "", "slept 2"),
    ]
    assert trio.current_time() == 3


async def test_an_unexpected_error_touches_no_sibling_either(bench, timeline, autojump_clock):
    @tool(parallel=True)
    async def broken() -> None:
        raise ZeroDivisionError("division by zero")

    bench.pen.add(broken)
    assert await bench.run(together(1), "broken", together(1)) == [
        ("c1", "", "slept 1"),
        ("c2", "exception", "Error: ZeroDivisionError: division by zero"),
        ("c3", "", "slept 1"),
    ]


async def test_a_wrapper_that_fails_for_one_call_touches_no_sibling(bench, timeline, autojump_clock):
    async def wrapper(event, go_on):
        if event.execution.call.id == "c2":
            raise ValueError("a bug")
        return await go_on()

    bench.own.wrap(Execute, wrapper)
    assert [code for _, code, _ in await bench.run(together(1), together(1), together(1))] == ["", "internal", ""]


async def test_results_come_in_the_models_order_each_as_soon_as_those_before_it_are_there(
    bench, timeline, autojump_clock
):
    when: dict[str, float] = {}

    def note(record) -> None:
        if record.kind == "tool/result":
            when[record.data.message.call_id] = trio.current_time()

    bench.agent.session.attach(publish=note, write=None)
    await bench.run(together(2), together(1), together(5), together(3), together(4))
    assert list(when.items()) == [("c1", 2), ("c2", 2), ("c3", 5), ("c4", 5), ("c5", 5)]


async def test_an_exclusive_call_is_a_barrier_between_parallel_groups(bench, timeline, autojump_clock):
    """Rule: parallel calls in a row overlap; any other runs alone, after those before it, before those after it."""
    await bench.run(together(2), together(1), alone(1), together(1), together(3), alone(1), alone(1), together(1))
    assert sorted(timeline.spans) == [
        ("c1", 0, 2),
        ("c2", 0, 1),
        ("c3", 2, 3),
        ("c4", 3, 4),
        ("c5", 3, 6),
        ("c6", 6, 7),
        ("c7", 7, 8),
        ("c8", 8, 9),
    ]


async def test_calls_of_different_parallel_tools_overlap(bench, timeline, autojump_clock):
    other = bench.registry.merge(Tool, None)["together"]
    bench.own.add(attrs.evolve(other, name="also"))
    await bench.run(together(1), ("also", {"seconds": 1}))
    assert trio.current_time() == 1


async def test_an_unknown_tool_is_no_parallel_one(bench, timeline, autojump_clock):
    results = await bench.run(together(1), "nope", together(1))
    assert [code for _, code, _ in results] == ["", "unknown-tool", ""]
    assert sorted(timeline.spans) == [("c1", 0, 1), ("c3", 1, 2)]


async def test_a_lone_call_runs_in_the_steps_own_task_and_parallel_ones_do_not(bench):
    tasks: list[trio.lowlevel.Task] = []

    @tool(parallel=True)
    async def note() -> None:
        tasks.append(trio.lowlevel.current_task())

    bench.pen.add(note)
    await bench.run("note")
    assert tasks == [trio.lowlevel.current_task()]
    await bench.run("note", "note")
    assert trio.lowlevel.current_task() not in tasks[1:]
    assert {task.name for task in tasks[1:]} == {"lead note"}


async def test_an_answer_without_calls_logs_nothing(bench):
    assert await bench.run() == []
    assert bench.log() == []


# ---------------------------------------------------------------- records


async def test_the_calls_of_a_group_are_recorded_before_its_first_body_begins(bench, timeline, autojump_clock):
    """Rule: what has no call record has not started."""
    await bench.run(together(1), together(2), alone(1))
    assert bench.log() == [
        "tool/call c1",
        "tool/call c2",
        "tool/result c1",
        "tool/result c2",
        "tool/call c3",
        "tool/result c3",
    ]


async def test_a_body_begins_when_its_call_record_is_durable(bench):
    durable = [0]

    async def checkpoint() -> None:
        length = len(bench.agent.session)
        await trio.lowlevel.checkpoint()
        durable[0] = length

    @tool(parallel=True)
    async def look(context: ToolContext) -> None:
        [record] = [each for each in bench.agent.session.records("tool/call") if each.data.call_id == context.call_id]
        assert record.seq < durable[0]

    bench.pen.add(look)
    bench.pen.add(Tool("alone", description="", parameters={}, run=lambda: None, inline=True))
    results = await bench.run("look", "look", "alone", "look", checkpoint=checkpoint)
    assert [code for _, code, _ in results] == [""] * 4


async def test_there_is_one_checkpoint_a_group(bench, timeline, autojump_clock):
    lengths: list[int] = []

    async def checkpoint() -> None:
        lengths.append(len(bench.log()))

    await bench.run(together(1), together(1), alone(1), together(1), checkpoint=checkpoint)
    assert lengths == [2, 5, 7]


async def test_a_failed_checkpoint_starts_nothing_and_leaves_no_call_without_a_result(bench, timeline):
    async def checkpoint() -> None:
        raise StoreError("the disk is full")

    calls = bench.answer(together(1), together(1), alone(1))
    with pytest.raises(StoreError, match=r"^the disk is full$"):
        await bench.run_calls(calls, checkpoint=checkpoint)
    bench.close()
    assert bench.results() == [(f"c{number}", "not-started", NOT_STARTED) for number in (1, 2, 3)]
    assert bench.log()[:2] == ["tool/call c1", "tool/call c2"]
    assert timeline.spans == []


async def test_the_number_of_a_call_follows_the_models_order(bench, autojump_clock):
    """Rule: it counts the calls of one tool by one agent, whichever of them gets there first."""
    numbers: dict[str, int] = {}

    def numbered(name: str) -> Tool:
        @tool(name=name, parallel=True)
        async def note(seconds: float, context: ToolContext) -> None:
            await trio.sleep(seconds)
            numbers[context.call_id] = context.number

        return note

    bench.pen.add(numbered("a"))
    bench.pen.add(numbered("b"))
    await bench.run(*[(name, {"seconds": 9 - place}) for place, name in enumerate("abaab")])
    assert numbers == {"c1": 1, "c2": 1, "c3": 2, "c4": 3, "c5": 2}
    await bench.run(("b", {"seconds": 0}), ("a", {"seconds": 0}))
    assert (numbers["c1"], numbers["c2"]) == (3, 4)


async def test_a_listener_of_records_that_fails_stops_no_call(timeline, autojump_clock):
    def broken(event: RecordAppended) -> None:
        raise ValueError

    model = ScriptedModel({"lead": [[call("add", a=1), call("add", a=2)], say("Done.")]})
    async with open_host(model=model) as host, host.open_agent(AgentSpec("lead")) as lead:

        @tool(parallel=True)
        async def add(a: int) -> int:
            return a + 1

        host.registrar.add(add)
        host.registrar.on(RecordAppended, broken)
        assert (await lead.ask("Go.")).text == "Done."
        assert [each.text for each in lead.session.tool_results()] == ["2", "3"]
        check_log(lead.session)


async def test_a_real_turn_sends_the_results_in_the_models_order(autojump_clock):
    seen: list[list[str]] = []

    def last(request):
        seen.append([message.text for message in request.messages if message.role == "tool"])
        return say("Done.")

    @tool(parallel=True)
    async def nap(seconds: float) -> str:
        await trio.sleep(seconds)
        if seconds == 2:
            raise ToolFailed("too long")
        return str(seconds)

    naps = [call("nap", seconds=seconds) for seconds in (3, 2, 1)]
    async with open_host(model=ScriptedModel({"lead": [naps, last]})) as host:
        host.registrar.add(nap)
        async with host.open_agent(AgentSpec("lead")) as lead:
            await lead.ask("Go.")
            check_log(lead.session)
    assert seen == [["3", "Error: too long", "1"]]


# ---------------------------------------------------------------- what changes during a batch


@pytest.fixture
def act(bench):
    """Add an exclusive tool ``act`` that does what it is told to."""

    def add(do) -> None:
        bench.pen.add(Tool("act", description="", parameters={}, run=do, inline=True))

    return add


async def test_a_tool_that_went_away_after_the_assembly_is_unknown_and_the_others_run(bench, timeline, autojump_clock):
    late: Registration = bench.pen.add(Tool("late", description="", parameters={}, run=lambda: "ran", inline=True))
    calls = bench.answer(together(1), "late", together(1))
    late.undo()
    await bench.run_calls(calls)
    bench.close()
    assert [code for _, code, _ in bench.results()] == ["", "unknown-tool", ""]


async def test_a_call_sees_what_the_calls_before_it_did_to_the_registry(bench, act):
    late: Registration = bench.pen.add(Tool("late", description="", parameters={}, run=lambda: "ran", inline=True))

    def do() -> None:
        late.undo()
        bench.pen.add(Tool("new", description="", parameters={}, run=lambda: "ran", inline=True))

    act(do)
    results = await bench.run("late", "act", "late", "new")
    assert [code for _, code, _ in results] == ["", "", "unknown-tool", ""]


async def test_a_guard_that_a_call_brings_is_asked_about_the_next_one(bench, act):
    act(lambda: bench.own.add(Guard(lambda execution: "once is enough")) and None)
    assert [code for _, code, _ in await bench.run("act", "act")] == ["", "denied"]


async def test_a_wrapper_that_a_call_brings_stands_around_the_next_one(bench, act):
    async def wrapper(event, go_on):
        return ToolOutcome("from the wrapper")

    act(lambda: bench.own.wrap(Execute, wrapper) and None)
    assert [text for _, _, text in await bench.run("act", "act")] == ["done", "from the wrapper"]


async def test_whether_a_tool_is_parallel_is_asked_when_its_turn_comes(bench, timeline, act, autojump_clock):
    """Rule: the groups after a barrier follow the registry as it is then."""
    exclusive = attrs.evolve(bench.registry.merge(Tool, None)["together"], parallel=False)
    act(lambda: bench.own.add(exclusive) and None)
    await bench.run(together(1), together(1), "act", together(1), together(1))
    assert sorted(timeline.spans) == [("c1", 0, 1), ("c2", 0, 1), ("c4", 1, 2), ("c5", 2, 3)]


async def test_parallel_calls_may_change_the_registry_under_each_other(bench):
    """Rule: each call of a group is looked up when it begins; whatever it finds, it gets its result."""

    @tool(parallel=True)
    async def leave() -> None:
        registration.undo()

    registration = bench.pen.add(leave)
    results = await bench.run("leave", "leave", "leave")
    assert sorted(code for _, code, _ in results) == ["", "unknown-tool", "unknown-tool"]


# ---------------------------------------------------------------- cancellation


async def test_of_a_cancelled_group_what_has_ended_is_kept_and_what_ran_says_so(bench, timeline, autojump_clock):
    calls = bench.answer(together(9), together(1), alone(1), together(1))
    with trio.move_on_after(5):
        await bench.run_calls(calls)
    bench.close()
    assert bench.results() == [
        ("c1", "cancelled", CANCELLED),
        ("c2", "", "slept 1"),
        ("c3", "not-started", NOT_STARTED),
        ("c4", "not-started", NOT_STARTED),
    ]
    assert bench.log()[:2] == ["tool/call c1", "tool/call c2"]
    assert [line for line in bench.log() if line.startswith("tool/call")] == bench.log()[:2]


async def test_a_call_that_a_policy_held_up_was_not_started(bench, timeline, autojump_clock):
    """Rule: the record says whether the body began, not how far the pipeline came."""

    async def wrapper(event, go_on):
        if event.execution.call.id == "c2":
            await trio.sleep_forever()
        return await go_on()

    bench.own.wrap(PreExecute, wrapper)
    calls = bench.answer(together(9), together(9))
    with trio.move_on_after(5):
        await bench.run_calls(calls)
    bench.close()
    assert [code for _, code, _ in bench.results()] == ["cancelled", "not-started"]


async def test_an_answer_whose_turn_is_cancelled_already_starts_nothing(bench, timeline):
    calls = bench.answer(together(1), alone(1))
    with trio.CancelScope() as scope:
        scope.cancel()
        await bench.run_calls(calls)
    bench.close()
    assert scope.cancelled_caught
    assert bench.log() == ["tool/result c1", "tool/result c2"]
    assert [code for _, code, _ in bench.results()] == ["not-started"] * 2


async def test_a_call_that_cancels_the_turn_has_its_result_and_no_other_begins(bench):
    ran: list[str] = []
    scope = trio.CancelScope()

    @tool(parallel=True)
    async def stop(context: ToolContext) -> str:
        ran.append(context.call_id)
        scope.cancel()
        return "stopped"

    bench.pen.add(stop)
    bench.pen.add(Tool("after", description="", parameters={}, run=lambda: ran.append("after"), inline=True))
    calls = bench.answer("stop", "stop", "after")
    with scope:
        await bench.run_calls(calls)
    bench.close()
    assert len(ran) == 1
    assert {call_id: code for call_id, code, _ in bench.results()} == {
        **dict.fromkeys(("c1", "c2", "c3"), "not-started"),
        ran[0]: "",
    }


async def test_a_wrapper_that_swallows_the_cancellation_does_not_make_the_next_call_start(bench, timeline, act):
    async def wrapper(event, go_on):
        try:
            return await go_on()
        except trio.Cancelled:
            return ToolOutcome("cut short", code="cut")

    ran: list[int] = []
    act(lambda: ran.append(1))
    bench.own.wrap(Execute, wrapper)
    calls = bench.answer(alone(9), "act", "act")
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.run_calls, calls)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    bench.close()
    assert [code for _, code, _ in bench.results()] == ["cut", "not-started", "not-started"]
    assert ran == []


async def test_an_interrupt_gets_out_and_leaves_no_call_without_a_result(bench, timeline, act, autojump_clock):
    @tool(parallel=True)
    async def interrupted() -> None:
        raise KeyboardInterrupt

    bench.pen.add(interrupted)
    calls = bench.answer(together(1), "interrupted", "act")
    with pytest.raises(BaseExceptionGroup) as caught:
        await bench.run_calls(calls)
    assert caught.group_contains(KeyboardInterrupt)
    bench.close()
    assert {code for _, code, _ in bench.results()} <= {"cancelled", "not-started"}


class Program:
    """Calls in three groups, under stages that wait, with a checkpoint that really waits; and what each of them did."""

    def __init__(self, bench, canceller) -> None:
        self.bench = bench
        self.canceller = canceller
        self.durable = 0
        self.began: set[str] = set()
        self.ended: set[str] = set()
        for stage in STAGES:
            bench.own.wrap(stage, self.pause)
        bench.own.add(Guard(self.guard))
        for name, parallel in (("together", True), ("alone", False)):
            bench.pen.add(self._async(name, parallel=parallel))
            bench.pen.add(self._inline(f"{name}_inline", parallel=parallel))

    async def pause(self, event, go_on):
        await trio.lowlevel.checkpoint()
        result = await go_on()
        await trio.sleep(0.1)
        return result

    def guard(self, execution: Execution) -> str | None:
        return "not this one" if execution.call.id == "c3" else None

    async def checkpoint(self) -> None:
        length = len(self.bench.agent.session)
        await trio.sleep(0.1)
        self.durable = length

    def begin(self, context: ToolContext) -> None:
        """Check what holds at the beginning of a body."""
        assert not self.canceller.cancel_scope.cancel_called, f"{context.call_id} began after the cancellation"
        [seq] = [
            record.seq
            for record in self.bench.agent.session.records("tool/call")
            if record.data.call_id == context.call_id
        ]
        assert seq < self.durable, f"{context.call_id} began before its record was durable"
        self.began.add(context.call_id)

    def _async(self, name: str, *, parallel: bool) -> Tool:
        @tool(name=name, parallel=parallel)
        async def run(context: ToolContext) -> None:
            self.begin(context)
            await trio.sleep(0.1)
            await trio.lowlevel.checkpoint()
            self.ended.add(context.call_id)
            if context.call_id == "c2":
                raise ToolFailed("as asked")

        return run

    def _inline(self, name: str, *, parallel: bool) -> Tool:
        @tool(name=name, parallel=parallel, inline=True)
        def run(context: ToolContext) -> None:
            self.begin(context)
            self.ended.add(context.call_id)

        return run

    def check(self) -> None:
        """Check that records and side effects say the same."""
        self.bench.close()
        recorded = {record.data.call_id for record in self.bench.agent.session.records("tool/call")}
        assert self.began <= recorded
        for call_id, code, _ in self.bench.results():
            if code == "not-started":
                assert call_id not in self.began
            elif code == "cancelled":
                assert call_id in self.began
            elif code == "denied":
                assert call_id == "c3"
            else:
                assert code == ("failed" if call_id == "c2" else "")
                assert call_id in self.ended


@pytest.mark.parametrize("attempt", range(3))
def test_wherever_a_batch_is_cancelled_every_call_has_one_result_that_says_what_happened(make_bench, attempt):
    """Rule: no call without a result, no body after the cancellation, no side effect that the record denies."""
    codes: set[str] = set()

    async def program(canceller) -> None:
        bench = make_bench()
        work = Program(bench, canceller)
        names = ["together", "together", "together_inline", "together_inline", "alone", "alone_inline", "together"]
        calls = bench.answer(*names)
        with canceller:
            await bench.run_calls(calls, checkpoint=work.checkpoint)
        work.check()
        codes.update(code for _, code, _ in bench.results())

    assert cancel_at_every_step(program) > 40
    assert codes == {"", "failed", "denied", "cancelled", "not-started"}


def test_wherever_a_batch_of_threads_is_cancelled_the_records_say_what_happened(make_bench):
    """Rule: the same with sync bodies, which are waited for."""
    codes: set[str] = set()

    async def program(canceller) -> None:
        bench = make_bench()
        ran: set[str] = set()

        @tool(parallel=True)
        def note(context: ToolContext) -> None:
            ran.add(context.call_id)

        bench.pen.add(note)
        bench.pen.add(attrs.evolve(note, name="alone", parallel=False))
        calls = bench.answer("note", "note", "alone", "note", "note")
        with canceller:
            await bench.run_calls(calls, checkpoint=trio.lowlevel.checkpoint)
        bench.close()
        for call_id, code, _ in bench.results():
            assert code == ("" if call_id in ran else "not-started")
            codes.add(code)

    assert cancel_at_every_step(program) > 5
    assert codes == {"", "not-started"}

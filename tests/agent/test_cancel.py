"""Cancelling: at every place where an agent can be, the log is whole, who waits is told, and nothing happens afterwards."""

import threading

import pytest
import trio
import trio.abc
import trio.testing

from creche import AgentSpec, FunctionModel, call, open_host, say, tool
from creche.agent import BuildRequest, PreStep, TurnStopping
from creche.errors import AgentClosedError, IllegalRecordError, TurnCancelled
from creche.models import Finished, ReasoningDelta, RetryPolicy, TextDelta, ToolCallDelta, Usage, fail
from creche.prompt import AssemblePrompt
from creche.session import MessagesDropped, RecordAppended
from creche.testing import RecordingModel, cancel_at_every_step, check_log, check_requests


@tool
async def look() -> str:
    """Look around."""
    return "a tree"


def hello(request):
    return [say("hi")]


def results(log):
    return [(record.data.code, record.data.message.text) for record in log.records("tool/result")]


CUT_OFF = ("cancelled", "Error: the call was cancelled while it ran; what it had done until then stands")
NOT_STARTED = ("not-started", "Error: the call was not started; the turn ended before it")


async def check_told(delivery, cause, sentence):
    for _ in range(2):
        with pytest.raises(TurnCancelled) as caught:
            await delivery.reply()
        assert (caught.value.cause, str(caught.value)) == (cause, sentence)


# ---------------------------------------------------------------- before the claim


@pytest.mark.parametrize("how", ["send", "steer"])
async def test_what_is_cancelled_in_the_tick_in_which_it_was_sent_never_starts_a_turn(lead, kinds, how):
    async with lead(hello) as opened:
        delivery = getattr(opened.agent, how)("never mind")
        opened.agent.cancel("changed my mind")
        await check_told(delivery, "changed my mind", "a message to agent 'lead' was dropped unread (changed my mind)")
        await opened.agent.wait_idle()
        assert kinds(opened.agent.session) == ["inbox/accepted", "inbox/dropped"]
        assert (await opened.agent.ask("hello")).turn == 1


async def test_cancel_drops_all_that_waits_in_both_lanes_at_once(lead):
    async with lead(hello) as opened:
        agent = opened.agent
        waiting = [agent.send("one"), agent.inject("two"), agent.steer("three"), agent.send("four")]
        agent.cancel()
        ids = [waiting[place].id for place in (1, 2, 0, 3)]
        assert [record.data for record in agent.session.records("inbox/dropped")] == [
            MessagesDropped(tuple(ids), cause="user")
        ]
        for delivery in waiting:
            await check_told(delivery, "user", "a message to agent 'lead' was dropped unread (user)")


async def test_cancelling_an_idle_agent_does_nothing_and_arms_nothing(lead):
    async with lead(hello) as opened:
        opened.agent.cancel("for nothing")
        assert len(opened.agent.session) == 0
        assert (await opened.agent.ask("hello")).text == "hi"


async def test_what_is_sent_after_a_cancel_is_not_covered_by_it(lead, gate):
    async with lead(gate) as opened:
        first = opened.agent.send("first")
        await gate.reached.wait()
        opened.agent.cancel()
        second, third = opened.agent.send("second"), opened.agent.steer("third")
        gate.opened.set()
        await check_told(first, "user", "turn 1 of agent 'lead' was cancelled (user)")
        assert (await second.reply()) is (await third.reply())
        assert (await second.reply()).turn == 2


# ---------------------------------------------------------------- an open turn


async def test_the_first_cause_of_a_turns_cancellation_counts(lead, gate, ends):
    async with lead(gate) as opened:
        first = opened.agent.send("first")
        await gate.reached.wait()
        opened.agent.cancel("one")
        second = opened.agent.send("second")
        opened.agent.cancel("two")
        await check_told(first, "one", "turn 1 of agent 'lead' was cancelled (one)")
        await check_told(second, "two", "a message to agent 'lead' was dropped unread (two)")
        assert ends(opened.agent.session) == [("cancelled", "one")]


async def test_keep_inbox_leaves_what_waits_which_is_worked_on_next(lead, gate, ends):
    async with lead(gate) as opened:
        agent = opened.agent
        first = agent.send("first")
        await gate.reached.wait()
        second, note, third = agent.send("second"), agent.inject("note"), agent.send("third")
        agent.cancel("wrong", keep_inbox=True)
        gate.opened.set()
        await check_told(first, "wrong", "turn 1 of agent 'lead' was cancelled (wrong)")
        assert [(await each.reply()).turn for each in (second, note, third)] == [2, 2, 3]
        assert ends(agent.session) == [("cancelled", "wrong"), ("completed", ""), ("completed", "")]
        assert agent.session.records("inbox/dropped") == ()


async def test_keep_inbox_on_an_idle_agent_changes_nothing(lead):
    async with lead(hello) as opened:
        delivery = opened.agent.send("hello")
        opened.agent.cancel(keep_inbox=True)
        assert (await delivery.reply()).text == "hi"


@pytest.mark.parametrize(
    ("chunks", "kind", "parts"),
    [
        ([TextDelta("half an "), TextDelta("ans")], "assistant/message", ["half an ans"]),
        ([ReasoningDelta("hm"), TextDelta("well")], "assistant/message", ["hm", "well"]),
        (
            [TextDelta("I look."), ToolCallDelta(0, id="c1", name="look", arguments="{")],
            "assistant/message",
            ["I look."],
        ),
        ([ToolCallDelta(0, id="c1", name="look", arguments="{}")], "assistant/attempt", None),
        ([TextDelta("  ")], "assistant/attempt", None),
        ([], "assistant/attempt", None),
    ],
)
async def test_what_was_said_before_a_cancellation_stays_without_the_calls(
    *, lead, ends, chunk_model, chunks, kind, parts
):
    """Rule: the visible part of a cut answer is history; where nothing can be seen, the attempt is logged as cancelled."""
    reached = trio.Event()
    model = chunk_model([*chunks, reached.set, trio.sleep_forever], [TextDelta("hi"), Finished()])
    async with lead(model, tools=[look]) as opened:
        delivery = opened.agent.send("go")
        await reached.wait()
        opened.agent.cancel()
        await check_told(delivery, "user", "turn 1 of agent 'lead' was cancelled (user)")
        records = opened.agent.session.records()
        record = records[-3]
        assert (record.kind, record.data.usage) == (kind, Usage(1))
        if parts is None:
            assert (record.data.code, record.data.error) == ("cancelled", "cancelled")
        else:
            assert [part.text for part in record.data.message.parts] == parts
            assert record.data.finish is None
        assert opened.agent.session.records("tool/call") == ()
        assert ends(opened.agent.session) == [("cancelled", "user")]
        assert (await opened.agent.ask("again")).text == "hi"


async def test_a_cancellation_that_comes_when_the_answer_is_complete_keeps_it_and_makes_no_call(
    lead, chunk_model, kinds
):
    """Rule: the connection is still being closed, so the answer is not in the log yet; its calls would dangle."""
    closing = trio.Event()
    answer = [TextDelta("I look."), ToolCallDelta(0, id="c1", name="look", arguments="{}"), Finished("tool-calls")]
    async with lead(chunk_model([*answer, closing.set, trio.sleep_forever]), tools=[look]) as opened:
        delivery = opened.agent.send("go")
        await closing.wait()
        opened.agent.cancel()
        await check_told(delivery, "user", "turn 1 of agent 'lead' was cancelled (user)")
        assert kinds(opened.agent.session)[-3:] == ["assistant/message", "step/end", "turn/end"]


async def test_cancelling_while_a_retry_is_waited_for(lead, kinds, autojump_clock):
    model = FunctionModel(lambda request: fail(), retry=RetryPolicy(5, first_delay=10, jitter=0))
    async with lead(model) as opened:
        delivery = opened.agent.send("hello")
        await trio.sleep(5)
        opened.agent.cancel()
        await check_told(delivery, "user", "turn 1 of agent 'lead' was cancelled (user)")
        assert kinds(opened.agent.session)[-4:] == ["assistant/attempt", "model/retry", "step/end", "turn/end"]


@pytest.mark.parametrize("waits", [True, False], ids=["noticed", "unnoticed"])
@pytest.mark.parametrize(
    ("operation", "after"),
    [
        (AssemblePrompt, ["turn/end"]),
        (PreStep, ["turn/end"]),
        (BuildRequest, ["step/start", "step/end", "turn/end"]),
        (TurnStopping, ["assistant/message", "step/end", "turn/end"]),
    ],
)
async def test_cancelling_in_a_wrapper_ends_the_turn_as_cancelled(*, lead, kinds, ends, operation, after, waits):
    """Rule: whether or not a checkpoint notices it, a turn that was cancelled is never told as completed."""

    async def cancel(event, following):
        opened.agent.cancel("enough")
        if waits:
            await trio.lowlevel.checkpoint()
        return await following()

    async with lead(hello) as opened:
        with opened.pen.wrap(operation, cancel):
            delivery = opened.agent.send("hello")
            await check_told(delivery, "enough", "turn 1 of agent 'lead' was cancelled (enough)")
        log = opened.agent.session
        assert ends(log) == [("cancelled", "enough")]
        if operation in (AssemblePrompt, PreStep) and not waits:
            after = ["step/start", "step/end", "turn/end"]
        assert kinds(log)[-len(after) :] == after
        assert (await opened.agent.ask("again")).turn == 2


async def test_a_tool_that_cancels_its_own_turn_ends_with_it(lead, ends):
    @tool
    async def give_up() -> str:
        """Cancel the turn that called this."""
        opened.agent.cancel("gave up")
        await trio.sleep_forever()

    async with lead(lambda request: [call("give_up"), call("look")], tools=[give_up, look]) as opened:
        delivery = opened.agent.send("go")
        await check_told(delivery, "gave up", "turn 1 of agent 'lead' was cancelled (gave up)")
        assert results(opened.agent.session) == [CUT_OFF, NOT_STARTED]
        assert ends(opened.agent.session) == [("cancelled", "gave up")]


async def test_a_turn_that_is_cancelled_while_it_asks_another_agent_cancels_what_it_asked_for(
    lead, ends, autojump_clock
):
    """Rule: by the time the asker's turn has settled, so has the one it caused."""
    reached = trio.Event()

    @tool
    async def ask_ann() -> str:
        """Ask ann."""
        return (await ann.ask("hello")).text

    @tool
    async def dawdle() -> None:
        """Take long to end."""
        reached.set()
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(5)

    def answer(request):
        return [call("ask_ann" if request.agent_path == "lead" else "dawdle")]

    async with (
        lead(answer, tools=[ask_ann]) as opened,
        opened.host.open_agent(AgentSpec("ann", tools=[dawdle])) as ann,
    ):
        delivery = opened.agent.send("go")
        await reached.wait()
        opened.agent.cancel("enough")
        await check_told(delivery, "enough", "turn 1 of agent 'lead' was cancelled (enough)")
        assert not ann.is_busy
        assert ends(ann.session) == [("cancelled", "user")]


async def test_a_cancelled_turn_claims_nothing_more_though_nothing_has_noticed_it_yet(lead, ends):
    """Rule: a quick tool may cancel and return without a checkpoint; what is kept in the inbox is for the next turn."""

    @tool(inline=True)
    def give_up() -> str:
        """Cancel, and leave something to be done."""
        opened.agent.cancel("gave up", keep_inbox=True)
        kept.append(opened.agent.steer("go on"))
        return "ok"

    def answer(request):
        return [say("hi")] if request.last_user_text == "go on" else [call("give_up")]

    kept = []
    async with lead(answer, tools=[give_up]) as opened:
        delivery = opened.agent.send("go")
        await check_told(delivery, "gave up", "turn 1 of agent 'lead' was cancelled (gave up)")
        assert (await kept[0].reply()).turn == 2
        assert results(opened.agent.session) == [("", "ok")]


@pytest.mark.parametrize("parallel", [False, True])
async def test_no_tool_begins_after_a_cancellation_that_nothing_has_noticed_yet(lead, parallel):
    """Rule: in memory a checkpoint of the log does not wait, and a body must not begin all the same."""
    effects = []

    @tool(parallel=parallel)
    async def touch() -> None:
        """Have an effect before the first checkpoint."""
        effects.append("touched")

    def cancel(event):
        if event.record.kind == "assistant/message":
            opened.agent.cancel("enough")

    async with lead(lambda request: [call("touch"), call("touch")], tools=[touch]) as opened:
        with opened.pen.on(RecordAppended, cancel):
            delivery = opened.agent.send("go")
            await check_told(delivery, "enough", "turn 1 of agent 'lead' was cancelled (enough)")
        assert effects == []
        assert results(opened.agent.session) == [NOT_STARTED, NOT_STARTED]


async def test_a_listener_of_records_can_cancel_the_turn_but_not_drop_what_waits(lead, gate, ends):
    """Rule: dropping needs a record, and the log takes none from a listener; then nothing at all has happened."""
    refused = []

    def cancel(event):
        if event.record.kind == "step/start":
            try:
                opened.agent.cancel("all")
            except IllegalRecordError as error:
                refused.append(str(error))
            assert opened.agent.session.phase == "step"
            if event.record.turn == 2:
                opened.agent.cancel("turn", keep_inbox=True)

    async with lead(hello) as opened:
        opened.pen.on(RecordAppended, cancel)
        first, second, third = (opened.agent.send(text) for text in ("one", "two", "three"))
        assert (await first.reply()).text == "hi"
        await check_told(second, "turn", "turn 2 of agent 'lead' was cancelled (turn)")
        await check_told(third, "all", "turn 3 of agent 'lead' was cancelled (all)")
        sentence = "inbox/dropped cannot be appended by a listener of the record before it; note it and append later"
        assert refused == [sentence] * 2


async def test_a_thread_is_waited_for_and_its_call_has_a_result(lead, ends):
    begun, may_end, ended = trio.Event(), threading.Event(), []

    @tool
    def grind() -> str:
        """Work in a thread until told to stop."""
        trio.from_thread.run_sync(begun.set)
        may_end.wait()
        ended.append("ended")
        return "done"

    async with lead(lambda request: [call("grind")], tools=[grind]) as opened:
        delivery = opened.agent.send("go")
        await begun.wait()
        opened.agent.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert opened.agent.is_busy
        may_end.set()
        await check_told(delivery, "user", "turn 1 of agent 'lead' was cancelled (user)")
        assert ended == ["ended"]
        assert results(opened.agent.session) == [("", "done")]


async def test_cancelling_while_the_log_is_made_durable_sends_nothing(lead, slow_store, kinds, autojump_clock):
    store = slow_store(delay=100)
    async with lead(hello, store=store) as opened:
        delivery = opened.agent.send("hello")
        await trio.sleep(50)
        store.delay = 0.001
        opened.agent.cancel()
        await check_told(delivery, "user", "turn 1 of agent 'lead' was cancelled (user)")
        assert opened.sent() == []
        assert kinds(opened.agent.session)[-3:] == ["request/context", "step/end", "turn/end"]


async def test_a_cancel_during_the_closing_flush_does_not_touch_the_turn_that_is_over(
    lead, slow_store, ends, autojump_clock
):
    async with lead(hello, store=slow_store(delay=0.5)) as opened:
        reply = await opened.agent.ask("hello")
        assert not opened.agent.is_busy
        opened.agent.cancel("too late")
        assert reply.text == "hi"
        assert ends(opened.agent.session) == [("completed", "")]
        assert (await opened.agent.ask("again")).turn == 2


# ---------------------------------------------------------------- at every step


class CancelsAgent(trio.abc.Instrument):
    """Cancels an agent before the task step of a number, as somebody in another task would."""

    def __init__(self, agent, step):
        self.agent, self.step, self.steps = agent, step, 0

    def before_task_step(self, task):
        self.steps += 1
        if self.steps == self.step:
            self.agent.cancel("now")


class Work:
    """An agent with tools that overlap, tools that do not and a quick one, whose effects are noted."""

    def __init__(self, store) -> None:
        self.effects: list[str] = []
        self.store = store
        self.model = RecordingModel(FunctionModel(self._answer, retry=RetryPolicy(3, first_delay=0.01, jitter=0)))
        self._failed = False

        @tool(parallel=True)
        async def fetch(page: int) -> str:
            """Fetch a page, with an effect before and after."""
            self.effects.append(f"fetch {page} begins")
            await trio.sleep(0.002)
            self.effects.append(f"fetch {page} ends")
            return f"page {page}"

        @tool
        async def write() -> str:
            """Write, with an effect before and after."""
            self.effects.append("write begins")
            await trio.sleep(0.002)
            self.effects.append("write ends")
            return "written"

        @tool(inline=True)
        def count() -> int:
            """Count, at once."""
            self.effects.append("count")
            return len(self.effects)

        self.spec = AgentSpec("lead", tools=[fetch, write, count])

    def _answer(self, request):
        if request.last_user_text == "again":
            return [say("still here")]
        asked = sum(message.role == "assistant" for message in request.messages)
        if asked == 0:
            return [say("I fetch. "), call("fetch", page=1), call("fetch", page=2), call("write"), call("count")]
        if not self._failed:
            self._failed = True
            return fail("not yet", code="overloaded")
        return [call("count"), call("write")] if asked == 1 else [say("done")]

    async def check(self, agent, *, settled: int) -> None:
        """Check that nothing happened after the settlement, and that what happened is in the log."""
        await trio.sleep(10)
        assert len(self.effects) == settled, "a body went on after its turn was settled"
        called = [record.data.name for record in agent.session.records("tool/call")]
        begun = [effect.split()[0] for effect in self.effects if not effect.endswith("ends")]
        for name in ("fetch", "write", "count"):
            assert begun.count(name) <= called.count(name), "a body began without a record of its call"
        check_log(agent.session)
        check_requests(agent.session, self.model.sent_by(agent.id))

    async def go_on(self, agent) -> None:
        """Check that the agent still works."""
        assert (await agent.ask("again")).text == "still here"


ROUNDS = 3


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_an_ask_can_be_cancelled_at_every_step(slow_store, round_):
    """Rule: whenever who asks is cancelled, by then the turn has settled; trio's order is random, hence the rounds."""

    async def program(canceller):
        work = Work(slow_store())
        async with open_host(model=work.model, store=work.store) as host, host.open_agent(work.spec) as agent:
            reply = None
            with canceller:
                reply = await agent.ask("go")
            assert canceller.cancel_scope.cancelled_caught or reply.text == "done"
            assert not agent.is_busy
            await work.check(agent, settled=len(work.effects))
            await work.go_on(agent)
        await work.check(agent, settled=len(work.effects))

    assert cancel_at_every_step(program) > 20


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_the_block_of_an_agent_can_be_cancelled_at_every_step(slow_store, round_):
    outcomes = set()

    async def program(canceller):
        work = Work(slow_store())
        async with open_host(model=work.model, store=work.store) as host:
            agent = delivery = None
            with canceller:
                async with host.open_agent(work.spec) as agent:
                    delivery = agent.send("go")
                    await delivery.reply()
            settled = len(work.effects)
            assert host.agents == {}
            if delivery is not None:
                await work.check(agent, settled=settled)
                assert work.store.durable == work.store.noted
                ended = [record.data.reason for record in agent.session.records("turn/end")]
                try:
                    told = delivery.reply_nowait().text
                except TurnCancelled as error:
                    told = error.cause
                except AgentClosedError:
                    told = "never read"
                outcomes.add(told)
                assert (told, ended) in [("done", ["completed"]), ("closed", ["cancelled"]), ("never read", [])]

    assert cancel_at_every_step(program) > 20
    assert outcomes == {"done", "closed", "never read"}


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_an_agent_can_be_cancelled_at_every_step(slow_store, round_):
    async def program(step, told):
        work = Work(slow_store())
        async with open_host(model=work.model, store=work.store) as host, host.open_agent(work.spec) as agent:
            canceller = CancelsAgent(agent, step)
            trio.lowlevel.add_instrument(canceller)
            deliveries = [agent.send("go"), agent.inject("a note")]
            for delivery in deliveries:
                try:
                    told.append((await delivery.reply()).text)
                except TurnCancelled as error:
                    told.append(error.cause)
            settled = len(work.effects)
            trio.lowlevel.remove_instrument(canceller)
            assert not agent.is_busy
            await work.check(agent, settled=settled)
            await work.go_on(agent)
        await work.check(agent, settled=len(work.effects))
        return canceller.steps < step

    for step in range(1, 1000):
        told = []
        clock = trio.testing.MockClock(autojump_threshold=0)
        through = trio.run(program, step, told, clock=clock)
        assert told in (["now", "now"], ["done", "done"]), f"cancelled before task step {step}: {told}"
        if through:
            break
    assert step > 20


async def test_a_cause_that_is_no_text_is_refused_and_nothing_is_cancelled(lead):
    async with lead(lambda request: [say("done")]) as opened:
        delivery = opened.agent.inject("a note")
        with pytest.raises(TypeError, match=r"^cancel takes str, and 5 is none; the cause is a text for the log$"):
            opened.agent.cancel(5)
        assert delivery.result is None

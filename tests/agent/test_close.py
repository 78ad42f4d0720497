"""How an agent ends: who waits is told, what is below it ends first, and nothing is left of it."""

import gc
import weakref

import pytest
import trio
import trio.testing

from creche import AgentSpec, FunctionModel, call, open_host, say, tool
from creche.errors import AgentClosedError, AgentError, StoreError, TurnCancelled
from creche.scope import Fault
from creche.subagents import spawn
from creche.testing import RecordingModel, assert_no_leaks, check_log, record_events
from creche.tools import ToolContext


def hello(request):
    return [say("hi")]


async def test_who_waits_in_the_inbox_of_an_agent_that_closes_is_told_so(lead, gate):
    """Rule: an open turn is cancelled, cause "closed"; what it had not claimed is told that the agent does not run."""
    async with trio.open_nursery() as nursery:
        told = {}

        async def ask(agent, text):
            try:
                await agent.ask(text)
            except (TurnCancelled, AgentClosedError) as error:
                told[text] = str(error)

        async with open_host(model=FunctionModel(gate)) as host:
            async with host.open_agent(AgentSpec("lead")) as agent:
                nursery.start_soon(ask, agent, "first")
                await gate.reached.wait()
                nursery.start_soon(ask, agent, "second")
                await trio.testing.wait_all_tasks_blocked()
            await trio.testing.wait_all_tasks_blocked()
    assert told == {
        "first": "turn 1 of agent 'lead' was cancelled (closed)",
        "second": "agent 'lead' does not run any more; open another one",
    }
    check_log(agent.session)


async def test_a_turn_is_not_begun_when_the_block_ends_in_the_same_tick(lead, kinds):
    async with lead(hello) as opened:
        delivery = opened.agent.send("hello")
    with pytest.raises(AgentClosedError):
        delivery.reply_nowait()
    assert kinds(opened.agent.session) == ["inbox/accepted", "inbox/dropped"]


async def test_subagents_end_before_their_agent_and_say_why(lead, ends):
    waiting = trio.Event()

    async def answer(request):
        if request.agent_path.endswith("/child"):
            waiting.set()
            await trio.sleep_forever()
        return hello(request)

    async with lead(answer) as opened, trio.open_nursery() as nursery:
        nursery.start_soon(lambda: spawn(opened.agent, "go", name="child"))
        await waiting.wait()
        agent = await opened.host.start_agent(AgentSpec("other"))
        nursery.start_soon(lambda: spawn(agent, "go", name="child"))
        await trio.testing.wait_all_tasks_blocked()
        (child,) = agent.children
        delivery = child.send("read this too")
        await agent.aclose()
        assert child.is_closed
        assert ends(child.session) == [("cancelled", "parent")]
        with pytest.raises(AgentClosedError):
            delivery.reply_nowait()
        nursery.cancel_scope.cancel()
    (child,) = [each for each in opened.agents if each.path == "lead/child"]
    assert ends(child.session) == [("cancelled", "parent")]


async def test_an_agent_that_is_ending_starts_no_subagents(lead):
    """Rule: else a program that tries again would keep it alive for ever."""
    refused = []

    async def insist(agent):
        while True:
            try:
                await spawn(agent, "go")
            except AgentClosedError as error:
                refused.append(str(error))
                return

    async def answer(request):
        await trio.sleep_forever()

    async with lead(answer) as opened, trio.open_nursery() as nursery:
        agent = await opened.host.start_agent(AgentSpec("other"))
        nursery.start_soon(insist, agent)
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(5):
            await agent.aclose()
    assert len(refused) == 1


async def test_a_subagent_that_is_cancelled_starts_nothing_more_below_it(lead):
    refused = []

    async def answer(request):
        await trio.sleep_forever()

    async with lead(answer) as opened, trio.open_nursery() as nursery:
        with trio.fail_after(5):
            async with trio.open_nursery() as below:
                below.start_soon(spawn, opened.agent, "go")
                await trio.testing.wait_all_tasks_blocked()
                (child,) = opened.agent.children

                async def insist():
                    while True:
                        try:
                            await spawn(child, "go")
                        except AgentClosedError as error:
                            refused.append(str(error))
                            return

                nursery.start_soon(insist)
                await trio.testing.wait_all_tasks_blocked()
                below.cancel_scope.cancel()
    assert len(refused) == 1


# ---------------------------------------------------------------- aclose


async def test_a_started_agent_ends_when_it_is_told_to_and_can_be_told_twice(lead):
    async with lead(hello) as opened:
        agent = await opened.host.start_agent(AgentSpec("other"))
        assert (await agent.ask("hello")).text == "hi"
        assert repr(agent) == "<Agent 'other' idle>"
        for _ in range(2):
            with trio.testing.assert_checkpoints():
                await agent.aclose()
            assert agent.is_closed
        with pytest.raises(AgentClosedError):
            agent.send("hello")


async def test_several_tasks_can_wait_for_the_end_of_an_agent(lead, gate):
    async with lead(gate) as opened:
        agent = await opened.host.start_agent(AgentSpec("other"))
        delivery = agent.send("hello")
        await gate.reached.wait()
        assert repr(agent) == "<Agent 'other' busy>"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.aclose)
            nursery.start_soon(agent.aclose)
        with pytest.raises(TurnCancelled, match=r"^turn 1 of agent 'other' was cancelled \(closed\)$"):
            delivery.reply_nowait()


async def test_an_agent_with_a_block_ends_with_that(lead):
    async with lead(hello) as opened:
        with pytest.raises(AgentError) as caught:
            await opened.agent.aclose()
        assert str(caught.value) == "agent 'lead' was opened with a block and ends with it; leave the block"
        assert (await opened.agent.ask("hello")).text == "hi"
    with trio.testing.assert_checkpoints():
        await opened.agent.aclose()


async def test_an_agent_can_end_itself_from_a_tool(lead, ends):
    @tool
    async def leave(context: ToolContext) -> None:
        """End the agent that calls this."""
        await context.agent.aclose()

    async with lead(lambda request: [call("leave")]) as opened:
        agent = await opened.host.start_agent(AgentSpec("other", tools=[leave]))
        with pytest.raises(TurnCancelled):
            await agent.ask("go")
        await agent.aclose()
        assert ends(agent.session) == [("cancelled", "closed")]


async def test_when_an_agent_has_ended_its_log_is_durable_and_its_task_is_gone(gate, slow_store):
    """Rule: what nobody has read is part of how it ended, and who waits for the end waits for that, too."""
    store = slow_store()
    async with open_host(model=FunctionModel(gate), store=store) as host:
        with assert_no_leaks(host):
            agent = await host.start_agent(AgentSpec("other"))
            agent.send("hello")
            await gate.reached.wait()
            unread = agent.send("and this")
            await agent.aclose()
            assert [each for each in store.noted if each not in store.durable] == []
            assert store.durable[-1].kind == "inbox/dropped"
            with pytest.raises(AgentClosedError):
                unread.reply_nowait()


# ---------------------------------------------------------------- wait_idle


async def test_wait_idle_waits_for_the_turns_of_all_that_was_sent(lead, gate):
    async with lead(gate) as opened:
        agent = opened.agent
        with trio.testing.assert_checkpoints():
            await agent.wait_idle()
        deliveries = [agent.send("one"), agent.send("two")]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.wait_idle)
            nursery.start_soon(agent.wait_idle)
            await gate.reached.wait()
            await trio.testing.wait_all_tasks_blocked()
            gate.opened.set()
        assert [delivery.reply_nowait().turn for delivery in deliveries] == [1, 2]


async def test_wait_idle_ends_when_the_work_is_cancelled_dropped_or_the_agent_closed(lead, gate):
    async with lead(gate) as opened:
        agent = opened.agent
        idle = []

        async def wait(who):
            await who.wait_idle()
            idle.append(who.path)

        async with trio.open_nursery() as nursery:
            agent.send("one")
            nursery.start_soon(wait, agent)
            agent.cancel()
        agent.send("two")
        await gate.reached.wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, agent)
            await trio.testing.wait_all_tasks_blocked()
            agent.cancel()
        other = await opened.host.start_agent(AgentSpec("other"))
        other.send("three")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, other)
            await trio.testing.wait_all_tasks_blocked()
            other.send("never read")
            await other.aclose()
        assert idle == ["lead", "lead", "other"]


# ---------------------------------------------------------------- closing records


async def test_closing_records_are_durable_when_the_block_has_ended(lead, slow_store, gate, autojump_clock):
    store = slow_store(delay=0.1)
    async with lead(gate, store=store) as opened:
        opened.agent.send("first")
        await gate.reached.wait()
        opened.agent.send("second")
    assert store.durable == store.noted
    assert [record.kind for record in store.durable[-3:]] == ["step/end", "turn/end", "inbox/dropped"]


async def test_a_closing_flush_that_hangs_holds_nobody_up_longer_than_a_second(lead, slow_store, autojump_clock):
    store = slow_store()

    def answer(request):
        store.delay = 1000
        return [say("hi")]

    async with open_host(model=FunctionModel(answer), store=store) as host:
        with record_events(host.registrar, Fault) as faults:
            async with host.open_agent(AgentSpec("lead")) as agent:
                await agent.ask("hello")
                begun = trio.current_time()
                await agent.wait_idle()
                assert trio.current_time() - begun < 1
                with pytest.raises(trio.TooSlowError):
                    with trio.fail_after(1.5):
                        await agent.ask("again")
            # One second for the turn, and one for what came after it.
            assert 1 <= trio.current_time() - begun <= 4
        assert {(fault.owner, fault.what, fault.error) for fault in faults} == {
            ("lead", "making its closing records durable", None)
        }
    check_log(agent.session)


async def test_a_subagents_turn_that_cannot_be_flushed_is_reported_at_its_scope(lead, slow_store, autojump_clock):
    store = slow_store()

    def answer(request):
        store.error = StoreError("disk full")
        return [say("hi")]

    async with open_host(model=FunctionModel(answer), store=store) as host, host.open_agent(AgentSpec("lead")) as agent:
        with record_events(host.registrar.at(agent.scope), Fault) as faults:
            assert (await spawn(agent, "go", name="child")).text == "hi"
        assert [(fault.owner, str(fault.error)) for fault in faults] == [("lead/child", "disk full")]
        store.error = None


# ---------------------------------------------------------------- one-shot children


async def test_a_message_to_a_subagent_is_read_or_refused_and_never_lost(lead, autojump_clock):
    """Rule: its last look at the inbox and the end of acceptance are one synchronous stretch."""
    read, told = [], []

    async def answer(request):
        if request.agent_path == "lead":
            return hello(request)
        await trio.sleep(1)
        read.append(request.last_user_text)
        return [say("reported")]

    async def nag(child):
        for number in range(100):
            try:
                delivery = child.send(f"message {number}")
            except AgentClosedError:
                return
            told.append(delivery)
            await trio.sleep(0.3 if number < 3 else 1.1)

    async with lead(answer) as opened, trio.open_nursery() as nursery:
        nursery.start_soon(spawn, opened.agent, "go")
        await trio.testing.wait_all_tasks_blocked()
        (child,) = opened.agent.children
        await nag(child)
    assert read == ["go", *[f"message {number}" for number in range(len(told))]]
    assert [delivery.reply_nowait().text for delivery in told] == ["reported"] * len(told)
    assert len(told) > 3


@pytest.mark.parametrize("waits", [False, True], ids=["in memory", "on disk"])
async def test_a_follow_up_sent_the_moment_a_subagent_has_answered_is_read_or_refused(
    lead, slow_store, autojump_clock, waits
):
    told = []

    async def follow_up():
        delivery = child.send("one more")
        while True:
            told.append((await delivery.reply()).text)
            try:
                delivery = child.send("and another")
            except AgentClosedError as error:
                told.append(str(error))
                return
            if len(told) == 3:
                return

    async def answer(request):
        await trio.sleep(1)
        return hello(request)

    async with lead(answer, store=slow_store() if waits else None) as opened, trio.open_nursery() as nursery:
        nursery.start_soon(spawn, opened.agent, "go")
        await trio.sleep(0.5)
        (child,) = opened.agent.children
        await follow_up()
    assert told == (["hi"] * 3 if waits else ["hi", "agent 'lead/spawn-1' does not run any more; open another one"])


async def test_a_subagent_that_has_read_all_ends_what_was_started_below_it_from_elsewhere(lead):
    go_on = trio.Event()

    async def answer(request):
        if request.agent_path.count("/") == 2:
            await trio.sleep_forever()
        await go_on.wait()
        return hello(request)

    async with lead(answer) as opened, trio.open_nursery() as nursery:
        nursery.start_soon(spawn, opened.agent, "go")
        await trio.testing.wait_all_tasks_blocked()
        (child,) = opened.agent.children
        outcomes = []

        async def start(name):
            outcomes.append((await spawn(child, "go", name=name)).outcome)

        nursery.start_soon(start, "one")
        nursery.start_soon(start, "two")
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(each.name for each in child.children) == ["one", "two"]
        go_on.set()
    assert outcomes == ["cancelled", "cancelled"]
    assert opened.agent.usage.requests == 3


# ---------------------------------------------------------------- nothing is left


async def test_a_thousand_agents_leave_no_objects_behind():
    """Rule: a session that somebody keeps does not keep its agent, and the host keeps neither."""
    agents, sessions = [], []
    model = RecordingModel(FunctionModel(hello))
    async with open_host(model=model) as host:
        for number in range(1000):
            async with host.open_agent(AgentSpec(f"a{number}", persona="You are one of many.")) as agent:
                if number % 100 == 0:
                    await agent.ask("hello")
                    sessions.append(agent.session)
            agents.append(weakref.ref(agent))
        del agent
        gc.collect()
        assert [each for each in agents if each() is not None] == []
        assert len(sessions) == 10
        assert host.agents == {}


async def test_a_closed_agent_is_freed_without_the_collector():
    """Rule: an agent is in no reference cycle once it is closed; at ten thousand of them that is what counts."""
    model = FunctionModel(hello)
    async with open_host(model=model) as host:
        async with host.open_agent(AgentSpec("warm-up")) as agent:
            await agent.ask("hello")
        del agent
        gc.collect()
        gc.disable()
        try:
            async with host.open_agent(AgentSpec("lead")) as agent:
                await agent.ask("hello")
            dead = weakref.ref(agent)
            del agent
            await trio.lowlevel.checkpoint()
            assert dead() is None
        finally:
            gc.enable()

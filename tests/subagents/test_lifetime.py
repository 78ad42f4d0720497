"""Nothing outlives its owner: cancellation at every step of a deep tree, blocks that end, children in other tasks."""

from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
import trio.testing

from creche import AgentSpec, Budget, Plugin, ToolContext, fork, open_host, say, spawn, tool
from creche.agent import PreStep
from creche.errors import AgentClosedError, TurnCancelled
from creche.host import AgentClosed, AgentOpened
from creche.models import FunctionModel, call
from creche.session import Record, RecordAppended
from creche.subagents import delegation
from creche.testing import cancel_at_every_step, check_log, record_events


def settlements(agent):
    return [record.data for record in agent.session.records("subagent/end")]


# ---------------------------------------------------------------- cancelled anywhere


class Tree:
    """A lead, two children, one of which delegates twice further down, each with a tool that has an effect."""

    def __init__(self, store):
        self.store = store
        self.effects = []
        self.agents = []
        self.replied = False

    def model(self, request):
        depth = request.agent_path.count("/")
        if request.last_tool_text:
            return [say("done")]
        if depth == 3 or request.agent_path.endswith("subagent-2"):
            return [say("I work."), call("work"), call("work")]
        deeper = [call("subagent", description="d", prompt="Go on.")]
        return deeper * 2 if depth == 0 else deeper

    async def work(self) -> str:
        """Work for a while, and then have an effect."""
        await trio.sleep(0.01)
        self.effects.append(trio.current_time())
        return "worked"

    def begin(self):
        return open_host(
            model=FunctionModel(self.model),
            plugins=[delegation(), Plugin("work", setup=[tool(parallel=True)(self.work)])],
            store=self.store,
        )

    def check(self, ended):
        """Check everything that must hold however far it got."""
        assert [effect for effect in self.effects if effect > ended] == [], "no effect after the end"
        for agent in self.agents:
            check_log(agent.session)
            assert agent.is_closed
            assert agent.children == ()
        ended_outcomes = [each.outcome for agent in self.agents for each in settlements(agent)]
        assert len(ended_outcomes) == max(len(self.agents) - 1, 0)
        if self.replied:
            assert ended_outcomes == ["done"] * 4
            assert len(self.effects) == 4


async def the_lead_is_asked(tree, canceller):
    async with tree.begin() as host:
        host.registrar.on(AgentOpened, lambda event: tree.agents.append(event.agent))
        with canceller:
            async with host.open_agent(AgentSpec("lead")) as lead:
                await lead.ask("Go.")
                tree.replied = True
        ended = trio.current_time()
        assert host.agents == {}
        await trio.sleep(1)
        tree.check(ended)
    # What was said last is on the disk: every turn, call and settlement that was closed while it was cancelled.
    durable = {(record.kind, record.data) for record in tree.store.durable if isinstance(record, Record)}
    for agent in tree.agents:
        assert all((record.kind, record.data) in durable for record in agent.session.records())


def test_a_tree_that_is_cancelled_at_any_step_ends_whole(slow_store):
    """Rule: no live task, balanced logs, one settlement a start, no effect afterwards, and all of it on the disk."""

    async def program(canceller):
        await the_lead_is_asked(Tree(slow_store()), canceller)

    assert cancel_at_every_step(program) > 40


def test_a_tree_that_a_program_starts_is_cancelled_at_any_step_all_the_same(slow_store):
    """Rule: spawn and fork in the tasks of a program leave the lead alive and its log whole."""

    async def program(canceller):
        tree = Tree(slow_store())
        async with tree.begin() as host:
            host.registrar.on(AgentOpened, lambda event: tree.agents.append(event.agent))
            async with host.open_agent(AgentSpec("lead")) as lead:
                with canceller:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(partial(spawn, lead, "Go.", name="spawned"))
                        nursery.start_soon(partial(fork, lead, "Go.", name="forked"))
                ended = trio.current_time()
                assert set(host.agents.values()) == {lead}
                await trio.sleep(1)
                assert [effect for effect in tree.effects if effect > ended] == []
                assert not lead.is_closed
                assert (await spawn(lead, "Go.", name="spawned")).outcome == "done"
        for agent in tree.agents:
            check_log(agent.session)
        assert sum(len(settlements(agent)) for agent in tree.agents) == len(tree.agents) - 1

    assert cancel_at_every_step(program) > 40


def test_a_host_that_is_cancelled_at_any_step_ends_whole(slow_store):
    """Rule: the same while the host, its plugins and an agent with a setup come and go."""

    async def program(canceller):
        tree = Tree(slow_store())
        open_now = []

        @asynccontextmanager
        async def service(registrar):
            open_now.append(registrar.scope)
            try:
                await trio.sleep(0.001)
                yield
            finally:
                open_now.remove(registrar.scope)

        with canceller:
            async with tree.begin() as host:
                host.registrar.on(AgentOpened, lambda event: tree.agents.append(event.agent))
                await host.mount(Plugin("service", setup=[service]))
                lead = await host.start_agent(AgentSpec("lead", persona="You lead.", setup=[service]))
                await lead.ask("Go.")
                await lead.aclose()
                tree.replied = True
                assert len(host.agents) == 0
        assert open_now == []
        tree.check(trio.current_time())

    assert cancel_at_every_step(program) > 50


async def test_cancelling_a_turn_reaches_the_bottom_and_every_log_says_why(checked_host, autojump_clock):
    """Rule: who was cancelled has the cause, who was below it has its parent as the cause."""
    deepest = trio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        deepest.set()
        await trio.sleep_forever()

    def model(request):
        if request.agent_path.count("/") == 3:
            return [call("wait")]
        return [call("subagent", description="d", prompt="Go on.")]

    async with checked_host(FunctionModel(model), plugins=[delegation()]) as checked:
        checked.host.registrar.add(wait)
        async with checked.host.open_agent(AgentSpec("lead")) as lead:
            delivery = lead.send("Go.")
            await deepest.wait()
            lead.cancel("the user pressed stop")
            with pytest.raises(TurnCancelled):
                await delivery.reply()
            assert set(checked.host.agents.values()) == {lead}
        assert [agent.session.records("turn/end")[0].data.detail for agent in checked.agents] == [
            "the user pressed stop",
            "parent",
            "parent",
            "parent",
        ]
        assert [(each.outcome, each.diagnostic) for agent in checked.agents for each in settlements(agent)] == [
            ("cancelled", f"TurnCancelled: turn 1 of agent '{agent.path}' was cancelled (parent)")
            for agent in checked.agents[1:]
        ]
        assert [agent.session.records("tool/result")[0].data.code for agent in checked.agents] == ["cancelled"] * 4


# ---------------------------------------------------------------- blocks that end


async def test_a_child_in_another_task_ends_when_its_parents_block_ends_and_the_parent_waits(
    checked_host, autojump_clock
):
    """Rule: a child leaves its cancel scope with its parent, so it ends when either ends."""
    results, order = [], []

    @tool
    async def wait() -> str:
        """Wait, and take time to leave."""
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(5)
            order.append("the tool has left")

    async def start(lead):
        results.append(await spawn(lead, "Go.", name="child"))

    async with checked_host(FunctionModel(lambda request: [say("I wait."), call("wait")])) as checked:
        checked.host.registrar.add(wait)
        checked.host.registrar.on(AgentClosed, lambda event: order.append(f"{event.agent.path} has closed"))
        async with trio.open_nursery() as nursery:
            async with checked.host.open_agent(AgentSpec("lead")) as lead:
                nursery.start_soon(start, lead)
                await trio.testing.wait_all_tasks_blocked()
            order.append("the block has ended")
            assert checked.host.agents == {}
    assert order == ["the tool has left", "lead/child has closed", "lead has closed", "the block has ended"]
    (result,) = results
    assert (result.outcome, result.text) == ("cancelled", "I wait.")
    assert [each.outcome for each in settlements(lead)] == ["cancelled"]


async def test_a_child_settles_after_what_others_started_below_it_and_counts_it(checked_host, autojump_clock):
    """Rule: a child's own children end with it, also those that another task started."""
    results = []

    async def model(request):
        if request.agent_path == "lead/child/grandchild":
            await trio.sleep_forever()
        if request.agent_path == "lead/child":
            nursery.start_soon(partial(spawn, checked.agents[1], "Wait.", name="grandchild"))
            await trio.testing.wait_all_tasks_blocked()
        return [say("hi")]

    async with (
        checked_host(FunctionModel(model)) as checked,
        trio.open_nursery() as nursery,
        checked.host.open_agent(AgentSpec("lead")) as lead,
    ):
        results.append(await spawn(lead, "Go.", name="child"))
        assert set(checked.host.agents.values()) == {lead}
    lead, child, grandchild = checked.agents
    assert (results[0].outcome, results[0].usage.requests) == ("done", 2)
    assert settlements(lead)[0].usage == child.usage == child.session.usage + grandchild.session.usage
    assert settlements(child)[0].outcome == "cancelled"


async def test_a_caller_that_is_cancelled_takes_its_child_along_and_the_parent_lives(checked_host, autojump_clock):
    async def model(request):
        if "/" in request.agent_path:
            await trio.sleep_forever()
        return [say("I live.")]

    async with checked_host(FunctionModel(model)) as checked, checked.host.open_agent(AgentSpec("lead")) as lead:
        for start in (spawn, fork):
            with trio.move_on_after(3) as scope:
                await start(lead, "Wait.", name="child")
            assert scope.cancelled_caught
            assert set(checked.host.agents.values()) == {lead}
        assert [each.outcome for each in settlements(lead)] == ["cancelled", "cancelled"]
        assert (await lead.ask("Still there?")).text == "I live."
        assert (await spawn_quickly(lead)) == "cancelled"


async def spawn_quickly(lead):
    """Spawn in a scope that is cancelled already, and return how the child came out."""
    with trio.CancelScope() as scope:
        scope.cancel()
        await spawn(lead, "Never begun.", name="child")
    return settlements(lead)[-1].outcome


async def test_a_child_ends_with_aclose_like_an_agent_that_was_started(checked_host, autojump_clock):
    results = []

    async def model(request):
        await trio.sleep_forever()

    async def start(lead):
        results.append(await spawn(lead, "Wait.", name="child"))

    async with (
        checked_host(FunctionModel(model)) as checked,
        trio.open_nursery() as nursery,
        checked.host.open_agent(AgentSpec("lead")) as lead,
    ):
        nursery.start_soon(start, lead)
        await trio.testing.wait_all_tasks_blocked()
        await checked.agent("lead/child").aclose()
        assert set(checked.host.agents.values()) == {lead}
        await trio.testing.wait_all_tasks_blocked()
        assert [result.outcome for result in results] == ["cancelled"]


# ---------------------------------------------------------------- an end while something begins


async def test_a_closing_parent_starts_nothing_more(checked_host, autojump_clock):
    """Rule: who ends takes nothing more below it, also while it waits for what is below."""
    refused = []

    @tool
    async def linger() -> str:
        """Start another child while the parent ends."""
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                for start in (spawn, fork):
                    try:
                        await start(lead, "Too late.", name="late")
                    except AgentClosedError as error:
                        refused.append(str(error))

    async with checked_host(FunctionModel(lambda request: [call("linger")])) as checked:
        checked.host.registrar.add(linger)
        async with trio.open_nursery() as nursery, checked.host.open_agent(AgentSpec("lead")) as lead:
            nursery.start_soon(partial(spawn, lead, "Go.", name="child"))
            await trio.testing.wait_all_tasks_blocked()
        assert refused == ["agent 'lead' does not run any more, so it cannot start agent 'lead/late'"] * 2
        assert [agent.path for agent in checked.agents] == ["lead", "lead/child"]


async def test_a_child_that_is_still_being_composed_ends_with_its_parent(checked_host, autojump_clock):
    """Rule: nothing outlives what it was started under, not even while it is still being composed."""
    order = []

    @asynccontextmanager
    async def slow_service(registrar):
        order.append("setup begins")
        try:
            await trio.sleep(10)
            order.append("setup has ended")
            yield
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
            order.append("service has left")

    async def compose(lead):
        with pytest.raises(AgentClosedError) as caught:
            async with lead.composer.compose(AgentSpec("child", setup=[slow_service]), parent=lead):
                order.append("child lives")
        order.append(str(caught.value))

    async with checked_host(FunctionModel(lambda request: [say("hi")])) as checked:
        async with trio.open_nursery() as nursery:
            async with checked.host.open_agent(AgentSpec("lead")) as lead:
                nursery.start_soon(compose, lead)
                await trio.testing.wait_all_tasks_blocked()
            order.append("the block has ended")
        assert order == [
            "setup begins",
            "service has left",
            "agent 'lead' does not run any more, so it cannot start agent 'lead/child'",
            "the block has ended",
        ]
        assert [agent.path for agent in checked.agents] == ["lead"]


async def test_a_child_whose_setup_is_ready_in_the_moment_its_parent_ends_does_not_come_to_life(checked_host):
    """Rule: the last look at the parent and the beginning of the child are one synchronous stretch."""
    begun = trio.Event()

    async def setup(registrar):
        begun.set()
        with trio.CancelScope(shield=True):
            await ready.wait()

    async def compose(lead):
        with pytest.raises(AgentClosedError):
            async with lead.composer.compose(AgentSpec("child", setup=[setup]), parent=lead):
                raise AssertionError

    async with checked_host(FunctionModel(lambda request: [say("hi")])) as checked, trio.open_nursery() as nursery:
        ready = trio.Event()
        async with checked.host.open_agent(AgentSpec("lead")) as lead:
            nursery.start_soon(compose, lead)
            await begun.wait()
            checked.host.registrar.at(lead.scope).on(AgentClosed, lambda event: None)
            nursery.start_soon(set_later, ready)
        assert [agent.path for agent in checked.agents] == ["lead"]


async def set_later(event):
    await trio.testing.wait_all_tasks_blocked()
    event.set()


async def test_an_error_and_an_interrupt_in_a_childs_tool_end_what_they_should(checked_host):
    """Rule: an error is that call's result; an interrupt comes out as itself, and the logs are whole."""
    raised = []

    @tool(inline=True)
    def explode() -> str:
        """Raise."""
        raise raised[0]

    def model(request):
        if request.messages[-1].role == "tool":
            return [say(request.last_tool_text)]
        return [call("explode" if "/" in request.agent_path else "subagent", **arguments(request))]

    def arguments(request):
        return {} if "/" in request.agent_path else {"description": "d", "prompt": "Go."}

    agents = []

    async def program():
        async with open_host(model=FunctionModel(model), plugins=[delegation()]) as host:
            host.registrar.on(AgentOpened, lambda event: agents.append(event.agent))
            host.registrar.add(explode)
            async with host.open_agent(AgentSpec("lead")) as lead:
                assert (await lead.ask("Go.")).text == "Error: ValueError: mine"
                raised[0] = KeyboardInterrupt("stop")
                await lead.ask("Go.")

    raised.append(ValueError("mine"))
    with pytest.raises(KeyboardInterrupt) as caught:
        await program()
    assert caught.value is raised[0]
    for agent in agents:
        check_log(agent.session)
    assert [each.outcome for each in settlements(agents[0])] == ["done", "cancelled"]


# ---------------------------------------------------------------- many


async def test_a_thousand_children_at_once_have_a_thousand_settlements(checked_host, autojump_clock):
    async def model(request):
        if "/" in request.agent_path:
            await trio.sleep(1)
            return [say(request.agent_path)]
        if request.last_tool_text:
            return [say("done")]
        return [call("subagent", description="d", prompt="Go.") for _ in range(1000)]

    async with checked_host(FunctionModel(model), plugins=[delegation()]) as checked:
        async with checked.host.open_agent(AgentSpec("lead")) as lead:
            with trio.fail_after(1.5):
                reply = await lead.ask("Go.")
            assert reply.usage_tree.requests == 1002
            assert set(checked.host.agents.values()) == {lead}
        assert [result.text for result in lead.session.tool_results()] == [
            f"lead/subagent-{number}" for number in range(1, 1001)
        ]
        assert len(settlements(lead)) == 1000


async def test_a_thousand_running_children_end_with_their_parents_block(checked_host, autojump_clock):
    async def model(request):
        await trio.sleep_forever()

    async with checked_host(FunctionModel(model)) as checked, trio.open_nursery() as nursery:
        async with checked.host.open_agent(AgentSpec("lead")) as lead:
            for number in range(1000):
                nursery.start_soon(partial(spawn, lead, "Wait.", name=f"n{number}"))
            await trio.testing.wait_all_tasks_blocked()
            assert len(lead.children) == 1000
        assert checked.host.agents == {}
        assert [each.outcome for each in settlements(lead)] == ["cancelled"] * 1000


async def test_messages_that_reach_a_child_too_late_are_refused_and_none_is_lost(checked_host):
    """upstream #4631: stale queued follow-ups reached a finished child."""
    late = []

    def on_record(event):
        if event.agent_path == "lead/child" and event.record.kind == "turn/end":
            late.append(checked.agents[-1])

    async with (
        checked_host(FunctionModel(lambda request: [say("hi")])) as checked,
        checked.host.open_agent(AgentSpec("lead")) as lead,
    ):
        checked.host.registrar.on(RecordAppended, on_record)
        await spawn(lead, "Go.", name="child")
        (child,) = late
        with pytest.raises(AgentClosedError):
            child.send("Too late.")
        again = await spawn(lead, "Go again.", name="child")
        assert checked.agents[-1] is not child
        assert again.usage.requests == 1, "it has an inbox of its own"


async def test_a_wrapper_that_waits_for_ever_is_cancelled_with_the_child(checked_host, autojump_clock):
    async def wait(event, next_):
        if "/" in event.agent.path:
            await trio.sleep_forever()
        return await next_()

    async with checked_host(FunctionModel(lambda request: [say("hi")])) as checked:
        checked.host.registrar.wrap(PreStep, wait)
        async with checked.host.open_agent(AgentSpec("lead")) as lead:
            with trio.move_on_after(1):
                await spawn(lead, "Go.")
            assert settlements(lead)[0].outcome == "cancelled"
            assert (await lead.ask("Still there?")).text == "hi"


async def test_listeners_hear_a_child_end_before_its_parent_says_that_it_has(checked_host):
    """Rule: the parent's settlement of a child comes after the last record of the child."""
    async with checked_host(FunctionModel(lambda request: [say("hi")])) as checked:
        async with checked.host.open_agent(AgentSpec("lead")) as lead:
            with record_events(checked.host.registrar, RecordAppended) as heard:
                await spawn(lead, "Go.", name="child")
        kinds = [(event.agent_path, event.record.kind) for event in heard]
        assert kinds[0] == ("lead", "subagent/start")
        assert kinds[-2:] == [("lead/child", "turn/end"), ("lead", "subagent/end")]


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_tree_may_be_deeper_than_the_stack(checked_host, is_cancelled):
    """Rule: the only limit of depth is the budget, and however deep a tree is, its logs are whole in the end."""
    levels = 150
    reached = trio.Event()

    @tool
    async def delegate(context: ToolContext) -> str:
        """Have a subagent do it."""
        return (await spawn(context.agent, "go", name="child")).outcome

    async def answer(request):
        if request.last_tool_text:
            return [say(request.last_tool_text)]
        if request.agent_path.count("/") < levels:
            return [call("delegate")]
        reached.set()
        if is_cancelled:
            await trio.sleep_forever()
        return [say("the bottom")]

    async with (
        checked_host(FunctionModel(answer), budget=Budget(depth=levels)) as checked,
        checked.host.open_agent(AgentSpec("lead", tools=[delegate])) as lead,
    ):
        delivery = lead.send("go")
        with trio.fail_after(30):
            await reached.wait()
        if is_cancelled:
            assert lead.usage.requests == levels
            lead.cancel()
        await lead.wait_idle()
        if is_cancelled:
            with pytest.raises(TurnCancelled):
                delivery.reply_nowait()
        else:
            assert delivery.reply_nowait().text == "done"
    assert len(checked.agents) == 1 + levels
    ends = [each.session.records("turn/end")[-1].data.reason for each in checked.agents]
    assert ends == ["cancelled" if is_cancelled else "completed"] * (1 + levels)

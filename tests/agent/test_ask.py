"""Asking an agent: the reply, and what becomes of the message when nobody waits any more."""

import gc
import weakref

import pytest
import trio
import trio.testing

from creche import AgentSpec, FunctionModel, call, open_host, say, tool
from creche.agent._asking import _way_back
from creche.errors import AgentClosedError, AgentError
from creche.messages import ImagePart, TextPart, UserMessage
from creche.models import Usage
from creche.session import MessageAccepted, MessagesDropped
from creche.subagents import spawn
from creche.tools import ToolContext

OWN_TURN = (
    "agent 'lead' was asked from within its own turn, which would wait for itself; "
    "use steer() or send(), or ask a subagent"
)


def echo(request):
    return [say(request.last_user_text.upper(), usage=Usage(1, input_tokens=3, output_tokens=2))]


def call_once(name):
    """Return a model function that calls a tool, and then says what the tool said."""
    return lambda request: [say(request.last_tool_text)] if request.last_tool_text else [call(name)]


async def test_a_reply_says_what_was_answered_and_what_it_cost(lead):
    async with lead(echo) as opened:
        reply = await opened.agent.ask("hello")
    assert (reply.text, reply.parts, reply.outcome, reply.turn) == ("HELLO", (TextPart("HELLO"),), "done", 1)
    assert reply.usage == reply.usage_tree == Usage(1, input_tokens=3, output_tokens=2)


async def test_each_message_sent_gets_a_turn_of_its_own_in_order(lead):
    async with lead(echo) as opened:
        agent = opened.agent
        deliveries = [agent.send(text) for text in ("one", "two", "three")]
        replies = [await delivery.reply() for delivery in deliveries]
        assert [(reply.text, reply.turn) for reply in replies] == [("ONE", 1), ("TWO", 2), ("THREE", 3)]
        assert (await agent.ask("four")).turn == 4


async def test_a_message_is_in_the_log_when_send_returns(lead):
    async with lead(echo) as opened:
        delivery = opened.agent.send("hello", source="agent")
        (record,) = opened.agent.session.records()
        said = UserMessage("hello", source="agent")
        assert record.data == MessageAccepted(delivery.id, lane="next-turn", message=said)
        assert (delivery.message, delivery.claimed, delivery.wakes, delivery.lane) == (said, False, True, "next-turn")


async def test_a_whole_message_keeps_its_own_source(lead):
    async with lead(echo) as opened:
        delivery = opened.agent.send(UserMessage("hello", source="plugin:clock"), source="user")
        assert delivery.message.source == "plugin:clock"


async def test_a_reply_can_be_awaited_by_several_tasks_and_again(lead):
    async with lead(echo) as opened:
        delivery = opened.agent.send("hello")
        texts = []

        async def wait():
            texts.append((await delivery.reply()).text)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            nursery.start_soon(wait)
        with trio.testing.assert_checkpoints():
            texts.append((await delivery.reply()).text)
        texts.append(delivery.reply_nowait().text)
        assert texts == ["HELLO"] * 4


async def test_what_is_not_answered_yet_cannot_be_peeked_at(lead):
    async with lead(echo) as opened:
        delivery = opened.agent.send("hello")
        with pytest.raises(AgentError) as caught:
            delivery.reply_nowait()
        assert str(caught.value) == "the message is not answered yet; await its reply()"


@pytest.mark.parametrize("message", [UserMessage("nobody says it", source=""), UserMessage(()), []], ids=str)
@pytest.mark.parametrize("how", ["send", "steer", "inject", "ask"])
async def test_what_no_model_could_be_given_is_refused_at_the_call(lead, message, how):
    """Rule: a message that would break every later request never gets into the log."""
    async with lead(echo) as opened:
        said = message if isinstance(message, UserMessage) else UserMessage(message)

        async def say_it():
            delivery = getattr(opened.agent, how)(message)
            if how == "ask":
                await delivery

        with pytest.raises(AgentError) as caught:
            await say_it()
        assert str(caught.value) == f"a message needs a source and at least one part: {said!r}"
        with pytest.raises(TypeError):
            opened.agent.send(["a text among parts"])
        assert len(opened.agent.session) == 0
        assert (await opened.agent.ask([ImagePart("aGk=", media_type="image/png"), TextPart("look")])).text == "LOOK"


# ---------------------------------------------------------------- nobody waits any more


async def test_cancelling_an_ask_before_the_claim_withdraws_the_message(lead, gate):
    async with lead(gate) as opened:
        agent = opened.agent
        first = agent.send("first")
        await gate.reached.wait()
        with trio.move_on_after(0) as scope:
            await agent.ask("never mind")
        assert scope.cancelled_caught
        ids = [record.data.id for record in agent.session.records("inbox/accepted")]
        assert [record.data for record in agent.session.records("inbox/dropped")] == [
            MessagesDropped((ids[1],), cause="withdrawn")
        ]
        gate.opened.set()
        assert (await first.reply()).text == "FIRST"
        await agent.wait_idle()
        assert agent.session.turn == 1


async def test_cancelling_an_ask_after_the_claim_cancels_the_turn_and_waits_until_it_has_settled(
    lead, ends, autojump_clock
):
    cleaned = []

    @tool
    async def dawdle() -> None:
        """Take long to end."""
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(5)
                cleaned.append(trio.current_time())

    async with lead(call_once("dawdle"), tools=[dawdle]) as opened:
        begun = trio.current_time()
        with trio.move_on_after(1):
            await opened.agent.ask("go")
        assert trio.current_time() - begun == 6
        assert len(cleaned) == 1
        assert ends(opened.agent.session) == [("cancelled", "user")]
        assert not opened.agent.is_busy


async def test_cancelling_who_waits_for_a_reply_leaves_the_message_on_its_way(lead, gate):
    async with lead(gate) as opened:
        delivery = opened.agent.send("still wanted")
        for _ in range(2):
            with trio.move_on_after(0) as scope:
                await delivery.reply()
            assert scope.cancelled_caught
            await gate.reached.wait()
        gate.opened.set()
        assert (await delivery.reply()).text == "STILL WANTED"


async def test_an_ask_that_is_given_up_takes_nobody_elses_message_along(lead, gate, ends):
    async with lead(gate) as opened:
        agent = opened.agent
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.ask, "given up while it is answered")
            await gate.reached.wait()
            other, note = agent.send("other"), agent.inject("a note")
            nursery.cancel_scope.cancel()
        gate.opened.set()
        assert (await other.reply()).text == "OTHER"
        assert (await note.reply()).turn == 2
        assert ends(agent.session) == [("cancelled", "user"), ("completed", "")]


# ---------------------------------------------------------------- asking in a circle


async def test_a_tool_cannot_ask_the_agent_that_called_it(lead):
    @tool
    async def ask_back() -> str:
        """Ask the agent itself."""
        return (await opened.agent.ask("what?")).text

    async with lead(call_once("ask_back"), tools=[ask_back]) as opened:
        with trio.fail_after(5):
            assert (await opened.agent.ask("go")).text == f"Error: {OWN_TURN}"
        assert len(opened.agent.session.records("inbox/accepted")) == 1


@pytest.mark.parametrize("way", ["a task", "a thread", "a reply", "a stream"])
async def test_nor_can_what_the_tool_started(lead, way):
    refused = []

    async def ask():
        try:
            if way == "a reply":
                await opened.agent.steer("what?").reply()
            elif way == "a stream":
                async with opened.agent.stream("what?") as deltas:
                    async for _ in deltas:
                        pass
            else:
                await opened.agent.ask("what?")
        except AgentError as error:
            refused.append(str(error))

    @tool
    async def ask_in_a_task() -> str:
        """Ask from a nursery."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
        return "tried"

    @tool(name="ask_in_a_task")
    def ask_in_a_thread() -> str:
        """Ask from a thread."""
        trio.from_thread.run(ask)
        return "tried"

    tools = [ask_in_a_thread if way == "a thread" else ask_in_a_task]
    async with lead(call_once("ask_in_a_task"), tools=tools) as opened:
        with trio.fail_after(5):
            assert (await opened.agent.ask("go")).text == "tried"
    assert refused == [OWN_TURN]


async def test_nor_can_a_subagent_of_its_turn(lead):
    refused = []

    @tool
    async def delegate(context: ToolContext) -> str:
        """Start a subagent that asks back."""
        return (await spawn(context.agent, "ask your parent", name="child")).text

    @tool
    async def ask_parent() -> str:
        """Ask the lead."""
        try:
            await opened.agent.ask("what?")
        except AgentError as error:
            refused.append(str(error))
        return "tried"

    def answer(request):
        name = "delegate" if request.agent_path == "lead" else "ask_parent"
        return call_once(name)(request)

    async with lead(answer, tools=[delegate, ask_parent]) as opened:
        with trio.fail_after(5):
            assert (await opened.agent.ask("go")).text == "tried"
    assert refused == [OWN_TURN]


async def test_agents_that_ask_each_other_in_a_circle_are_told_so(lead):
    """Rule: whoever would close the circle is refused; the others get their answers."""
    refused = []

    def ask_next(name):
        @tool(name="ask_next")
        async def ask_it() -> str:
            """Ask the next agent."""
            try:
                return (await agents[name].ask("what?")).text
            except AgentError as error:
                refused.append(str(error))
                return "refused"

        return ask_it

    async with (
        lead(call_once("ask_next"), tools=[ask_next("ann")]) as opened,
        opened.host.open_agent(AgentSpec("ann", tools=[ask_next("bob")])) as ann,
        opened.host.open_agent(AgentSpec("bob", tools=[ask_next("lead")])) as bob,
    ):
        agents = {"lead": opened.agent, "ann": ann, "bob": bob}
        with trio.fail_after(5):
            assert (await opened.agent.ask("go")).text == "refused"
        (sentence,) = refused
        assert sentence == (
            "agent 'lead' was asked by one that it waits for: 'lead', which waits for 'ann', which waits for 'bob'; "
            "each would wait for the others; use steer() or send(), or ask a subagent"
        )


async def test_what_a_turn_has_been_told_it_does_not_wait_for_any_more(lead):
    """Rule: only who waits now can close a circle; here the other agent's question comes after its own answer."""
    asked_back = trio.Event()

    @tool
    async def ask_ann() -> str:
        """Ask ann something, and go on while she asks something back."""
        await ann.ask("hello")
        second = ann.send("ask back")
        await asked_back.wait()
        await trio.testing.wait_all_tasks_blocked()
        return f"ann is {'busy' if second.claimed and second.result is None else 'done'}"

    @tool
    async def ask_lead() -> str:
        """Ask the lead, who is in a turn that waits for nobody."""
        asked_back.set()
        return (await opened.agent.ask("what?")).text

    def answer(request):
        if request.last_user_text in ("go", "ask back") and request.messages[-1].role != "tool":
            return [call("ask_ann" if request.agent_path == "lead" else "ask_lead")]
        return [say(request.last_tool_text or "hi")]

    async with (
        lead(answer, tools=[ask_ann]) as opened,
        opened.host.open_agent(AgentSpec("ann", tools=[ask_lead])) as ann,
    ):
        with trio.fail_after(5):
            assert (await opened.agent.ask("go")).text == "ann is busy"
            await ann.wait_idle()
        assert [reply.data.reason for reply in ann.session.records("turn/end")] == ["completed"] * 2


async def test_a_question_that_goes_round_among_others_is_no_circle_for_who_is_not_in_it(lead):
    """Rule: the search ends, also where others could be reached twice."""
    gates = {name: trio.Event() for name in ("bob", "cem")}

    def ask_others(*names):
        @tool(name="ask_others")
        async def ask_them() -> str:
            """Ask several at once."""
            async with trio.open_nursery() as nursery:
                for name in names:
                    nursery.start_soon(agents[name].ask, "hello")
            return "told"

        return ask_them

    async def answer(request):
        if request.agent_path in gates and request.last_user_text == "hello":
            await gates[request.agent_path].wait()
            return [say("hi")]
        return call_once("ask_others")(request)

    async with (
        lead(answer, tools=[ask_others("ann", "cem")]) as opened,
        opened.host.open_agent(AgentSpec("ann", tools=[ask_others("bob", "cem")])) as ann,
        opened.host.open_agent(AgentSpec("bob")) as bob,
        opened.host.open_agent(AgentSpec("cem")) as cem,
    ):
        agents = {"ann": ann, "bob": bob, "cem": cem}
        with trio.fail_after(5):
            first = ann.send("go")
            await trio.testing.wait_all_tasks_blocked()
            second = opened.agent.send("go")
            await trio.testing.wait_all_tasks_blocked()
            for gate in gates.values():
                gate.set()
            assert [(await delivery.reply()).text for delivery in (first, second)] == ["told", "told"]


async def test_an_agent_can_ask_another_and_again(lead):
    @tool
    async def ask_ann() -> str:
        """Ask ann, and then twice at once."""
        texts = []

        async def ask(text):
            texts.append((await ann.ask(text)).text)

        await ask("one")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "two")
            nursery.start_soon(ask, "three")
        return " ".join(sorted(texts))

    def answer(request):
        return (call_once("ask_ann") if request.agent_path == "lead" else echo)(request)

    async with lead(answer, tools=[ask_ann]) as opened, opened.host.open_agent(AgentSpec("ann")) as ann:
        assert (await opened.agent.ask("go")).text == "ONE THREE TWO"


async def test_a_task_that_outlives_the_turn_may_ask_when_the_turn_is_over(lead):
    """Rule: what counts is the open turn, not where the task comes from."""
    texts = []
    over = trio.Event()

    async def ask_later():
        await over.wait()
        texts.append((await opened.agent.ask("later")).text)

    async with trio.open_nursery() as nursery:

        @tool
        async def start_task() -> str:
            """Leave a task behind in the program's nursery."""
            nursery.start_soon(ask_later)
            return "started"

        async with lead(call_once("start_task"), tools=[start_task]) as opened:
            await opened.agent.ask("go")
            over.set()
            await trio.testing.wait_all_tasks_blocked()
    assert texts == ["started"]


async def test_saying_something_to_itself_is_no_asking(lead):
    @tool
    async def remind() -> str:
        """Say something to the agent itself."""
        opened.agent.send("next turn")
        opened.agent.steer("next step")
        return "noted"

    seen = []

    def answer(request):
        seen.append(request.last_user_text)
        return [call("remind")] if request.last_user_text == "go" else [say("done")]

    async with lead(answer, tools=[remind]) as opened:
        await opened.agent.ask("go")
        await opened.agent.wait_idle()
    assert seen == ["go", "next step", "next turn"]


async def test_a_closed_agent_is_not_asked(lead):
    async with lead(echo) as opened:
        pass
    agent = opened.agent
    sentence = "agent 'lead' does not run any more; open another one"
    for how in (agent.send, agent.steer, agent.inject):
        with pytest.raises(AgentClosedError) as caught:
            how("hello")
        assert str(caught.value) == sentence
    with pytest.raises(AgentClosedError):
        await agent.ask("hello")
    with pytest.raises(AgentClosedError):
        async with agent.stream("hello"):
            pass
    assert repr(agent) == "<Agent 'lead' closed>"


async def test_agents_that_start_each_other_do_not_keep_each_other_alive():
    """Rule: a task of the host's own nursery works for no turn, whoever started it."""
    agents = weakref.WeakSet()

    @tool
    async def hand_on(context: ToolContext) -> None:
        """Start a successor."""
        if len(names) < 20:
            names.append(f"relay-{len(names)}")
            agents.add(await host.start_agent(AgentSpec(names[-1], tools=[hand_on])))

    names = ["relay-0"]
    model = FunctionModel(lambda request: [say("done")] if request.last_tool_text else [call("hand_on")])
    async with open_host(model=model) as host:
        agent = await host.start_agent(AgentSpec("relay-0", tools=[hand_on]))
        while agent is not None:
            await agent.ask("go")
            await agent.aclose()
            agent = next(iter(host.agents.values()), None)
        gc.collect()
        assert len(names) == 20
        assert len(agents) == 0


async def test_an_agent_that_a_tool_started_may_ask_back_what_does_not_wait_for_it():
    @tool
    async def start(context: ToolContext) -> None:
        """Start another agent, and do not wait for it."""
        other = await host.start_agent(AgentSpec("other", tools=[ask_back]))
        deliveries.append(other.send("go"))

    @tool
    async def ask_back() -> str:
        """Ask the agent that started this one."""
        return (await lead.ask("And you?")).text

    def answer(request):
        if request.last_user_text == "And you?":
            return [say("fine")]
        if request.last_tool_text:
            return [say(request.last_tool_text)]
        return [call("start" if request.agent_path == "lead" else "ask_back")]

    deliveries = []
    async with (
        open_host(model=FunctionModel(answer)) as host,
        host.open_agent(AgentSpec("lead", tools=[start])) as lead,
    ):
        await lead.ask("go")
        assert (await deliveries[0].reply()).text == "fine"


async def test_an_agent_is_not_waited_for_to_be_idle_in_its_own_turn():
    """Rule: as for asking it; it would wait for itself."""

    @tool
    async def wait(context: ToolContext) -> None:
        """Wait until the agent is idle."""
        await context.agent.wait_idle()

    model = FunctionModel(lambda request: [say(request.last_tool_text)] if request.last_tool_text else [call("wait")])
    async with open_host(model=model) as host, host.open_agent(AgentSpec("lead", tools=[wait])) as lead:
        reply = await lead.ask("go")
        assert reply.text == (
            "Error: agent 'lead' is never idle within its own turn, so waiting for that has no end; wait from outside of the turn"
        )


@pytest.mark.parametrize("first", ["wait", "ask"])
async def test_nor_by_an_agent_that_waits_for_its_answer(lead, first):
    """Rule: whoever would close the circle is refused, by whichever of the two ways of waiting."""
    begun = {"wait": trio.Event(), "ask": trio.Event()}
    refused = []

    async def take_turns(mine):
        begun[mine].set()
        if mine != first:
            await begun[first].wait()
            await trio.testing.wait_all_tasks_blocked()

    @tool
    async def wait() -> str:
        """Wait until ann is idle."""
        ann.send("go")
        await begun["ask"].wait()
        await take_turns("wait")
        return await tell(ann.wait_idle)

    @tool
    async def ask() -> str:
        """Ask the lead."""
        await take_turns("ask")
        return await tell(lambda: opened.agent.ask("what?"))

    async def tell(act):
        try:
            await act()
        except AgentError as error:
            refused.append(str(error))
        return "done"

    def answer(request):
        if request.last_user_text != "go" or request.messages[-1].role == "tool":
            return [say("hi")]
        return [call("wait" if request.agent_path == "lead" else "ask")]

    async with (
        lead(answer, tools=[wait]) as opened,
        opened.host.open_agent(AgentSpec("ann", tools=[ask])) as ann,
    ):
        with trio.fail_after(5):
            await opened.agent.ask("go")
            await ann.wait_idle()
    if first == "wait":
        expected = (
            "agent 'lead' was asked by one that it waits for: 'lead', which waits for 'ann'; "
            "each would wait for the others; use steer() or send(), or ask a subagent"
        )
    else:
        expected = (
            "agent 'ann' is not idle before one that waits for that: 'ann', which waits for 'lead'; "
            "each would wait for the others; wait from outside of the turn"
        )
    assert refused == [expected]


class Fake:
    """An agent or a turn with just these attributes."""

    def __init__(self, **attributes) -> None:
        self.__dict__.update(attributes)


def test_a_circle_is_looked_for_once_an_agent_however_many_ways_lead_there():
    """Rule: neither many ways nor a long one make the look expensive."""
    turns = [Fake(waits_for=None) for _ in range(2_000)]
    agents = [Fake(_turn=turn) for turn in turns]
    for number, turn in enumerate(turns[:-10]):
        turn.waits_for = [agents[number + 1], *agents[number + 1 : number + 10]]
    assert _way_back(agents[0], (Fake(),)) == []
    way = _way_back(agents[0], (turns[1_500],))
    assert (way[0], way[-1]) == (agents[0], agents[1_500])

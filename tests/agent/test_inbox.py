"""What waits for an agent: which turn and which step a message joins, and how it leaves the inbox."""

import pytest
import trio
import trio.testing

from creche import call, say, tool
from creche.agent import PreStep, TurnStopping
from creche.errors import AgentClosedError
from creche.messages import UserMessage
from creche.scope import Fault
from creche.session import MessagesClaimed, MessagesDropped, RecordAppended, UserSaid
from creche.testing import record_events


class Listening:
    """A model function that notes what people said in each request, and answers with a script."""

    def __init__(self, *script) -> None:
        self.heard: list[list[str]] = []
        self._script = list(script)

    def __call__(self, request):
        self.heard.append(request.user_texts)
        return self._script.pop(0) if self._script else [say("done")]


def said(log):
    """Return what joined the history from the inbox, with its turn and step."""
    return [
        (record.data.message.text, record.turn, record.step)
        for record in log.records("user/message")
        if record.data.delivery is not None
    ]


async def test_steering_an_idle_agent_starts_a_turn_at_once(lead):
    async with lead(Listening()) as opened:
        reply = await opened.agent.steer("go").reply()
        assert reply.turn == 1
        assert said(opened.agent.session) == [("go", 1, 1)]


async def test_what_is_steered_while_the_model_answers_joins_the_next_step_of_the_turn(lead, gate):
    async with lead(gate) as opened:
        first = opened.agent.send("first")
        await gate.reached.wait()
        second, third = opened.agent.steer("second"), opened.agent.steer("third")
        gate.opened.set()
        replies = [await delivery.reply() for delivery in (first, second, third)]
        assert replies[0] is replies[1] is replies[2]
        assert (replies[0].text, replies[0].usage.requests) == ("THIRD", 2)
        assert said(opened.agent.session) == [("first", 1, 1), ("second", 1, 2), ("third", 1, 2)]


async def test_what_is_steered_while_a_tool_runs_lands_after_its_result(lead, kinds):
    @tool
    async def work() -> str:
        """Be steered meanwhile."""
        opened.agent.steer("hurry")
        opened.agent.inject("a note")
        return "worked"

    model = Listening([call("work")])
    async with lead(model, tools=[work]) as opened:
        await opened.agent.ask("go")
        assert [message.role for message in opened.agent.session.derive_messages()] == [
            *("system", "user", "assistant", "tool", "user", "user", "assistant")
        ]
        assert said(opened.agent.session) == [("go", 1, 1), ("hurry", 1, 2), ("a note", 1, 2)]


async def test_steering_while_a_turn_is_about_to_stop_gives_it_another_step(lead):
    stopped = []

    async def insist(event, following):
        stopped.append(event.turn)
        if len(stopped) == 1:
            opened.agent.steer("are you sure?")
        return await following()

    model = Listening()
    async with lead(model) as opened:
        opened.pen.wrap(TurnStopping, insist)
        reply = await opened.agent.ask("go")
        assert (reply.turn, reply.usage.requests, stopped) == (1, 2, [1, 1])
        assert model.heard == [["go"], ["go", "are you sure?"]]


async def test_a_turn_that_is_steered_in_its_last_step_is_not_about_to_stop(lead, gate):
    stopped = []

    async def note(event, following):
        stopped.append(len(opened.sent()))
        return await following()

    async with lead(gate) as opened:
        opened.pen.wrap(TurnStopping, note)
        opened.agent.send("first")
        await gate.reached.wait()
        opened.agent.steer("second")
        gate.opened.set()
        await opened.agent.wait_idle()
        assert stopped == [2]


async def test_what_is_steered_after_the_turn_gets_one_of_its_own(lead):
    async with lead(Listening()) as opened:
        await opened.agent.ask("go")
        assert (await opened.agent.steer("and then?").reply()).turn == 2


async def test_a_note_to_an_idle_agent_starts_nothing_and_joins_the_next_request(lead, ends):
    model = Listening()
    async with lead(model) as opened:
        agent = opened.agent
        note = agent.inject("a note")
        await trio.testing.wait_all_tasks_blocked()
        await agent.wait_idle()
        assert (agent.is_busy, note.claimed, len(model.heard)) == (False, False, 0)
        reply = await agent.ask("go")
        assert model.heard == [["a note", "go"]]
        assert await note.reply() is reply
        assert ends(agent.session) == [("completed", "")]


async def test_a_note_during_the_last_step_gives_the_turn_one_more(lead, gate):
    """Rule: what waits for the next step of an open turn is read in that turn, whoever left it and however."""
    async with lead(gate) as opened:
        first = opened.agent.send("first")
        await gate.reached.wait()
        opened.agent.inject("a note")
        gate.opened.set()
        assert (await first.reply()).text == "A NOTE"


async def test_a_claim_takes_all_of_the_next_step_and_one_of_the_next_turn(lead):
    model = Listening()
    async with lead(model) as opened:
        agent = opened.agent
        ids = [
            agent.send("turn 1").id,
            agent.send("turn 2").id,
            agent.inject("note 1").id,
            agent.steer("steered").id,
            agent.inject("note 2").id,
        ]
        await agent.wait_idle()
        claims = [record.data for record in agent.session.records("inbox/claimed")]
        assert claims == [MessagesClaimed((ids[2], ids[3], ids[4], ids[0])), MessagesClaimed((ids[1],))]
        assert model.heard[0] == ["note 1", "steered", "note 2", "turn 1"]
        assert said(agent.session) == [
            ("note 1", 1, 1),
            ("steered", 1, 1),
            ("note 2", 1, 1),
            ("turn 1", 1, 1),
            ("turn 2", 2, 1),
        ]


async def test_each_claimed_message_becomes_one_user_message_with_its_delivery(lead):
    async with lead(Listening()) as opened:
        agent = opened.agent
        # Equal messages are told apart.
        ids = [agent.inject("the same").id, agent.inject("the same").id, agent.send("the same").id]
        await agent.wait_idle()
        facts = [record.data for record in agent.session.records("user/message")]
        assert facts == [UserSaid(fact.message, delivery=each) for fact, each in zip(facts, ids, strict=True)]


async def test_what_is_sent_by_a_tool_gets_the_next_turn(lead):
    @tool
    async def remember() -> None:
        """Send the agent something."""
        opened.agent.send("later")

    model = Listening([call("remember")])
    async with lead(model, tools=[remember]) as opened:
        await opened.agent.ask("go")
        await opened.agent.wait_idle()
        assert model.heard == [["go"], ["go"], ["go", "later"]]
        assert said(opened.agent.session) == [("go", 1, 1), ("later", 2, 1)]


async def test_what_comes_while_a_step_is_prepared_belongs_to_a_later_one(lead):
    async def stage(event, following):
        if event.step == 1:
            opened.agent.steer("staged")
        return await following()

    model = Listening()
    async with lead(model) as opened:
        opened.pen.wrap(PreStep, stage)
        await opened.agent.ask("go")
        assert model.heard == [["go"], ["go", "staged"]]


@pytest.mark.parametrize("how", ["send", "steer", "inject"])
async def test_a_listener_of_records_cannot_say_anything_and_is_told_so(lead, how):
    """Rule: the log refuses what a listener of records appends; then nothing is in the inbox either."""
    refused = []

    def answer_back(event):
        if event.record.kind == "turn/start":
            try:
                getattr(opened.agent, how)("me too")
            except Exception as error:
                refused.append(str(error))
                raise

    async with lead(Listening()) as opened:
        with record_events(opened.host.registrar, Fault) as faults, opened.pen.on(RecordAppended, answer_back):
            assert (await opened.agent.ask("go")).text == "done"
        await opened.agent.wait_idle()
        sentence = "inbox/accepted cannot be appended by a listener of the record before it; note it and append later"
        assert refused == [sentence]
        assert [(fault.what, str(fault.error)) for fault in faults] == [("hearing session/record-appended", sentence)]
        assert len(opened.agent.session.records("inbox/accepted")) == 1


async def test_what_was_never_read_is_dropped_when_the_agent_closes(lead, gate):
    async with lead(gate) as opened:
        agent = opened.agent
        first = agent.send("first")
        await gate.reached.wait()
        waiting = [agent.inject("a note"), agent.send("second"), agent.steer("steered")]
    (dropped,) = agent.session.records("inbox/dropped")
    assert dropped.data == MessagesDropped(tuple(waiting[index].id for index in (0, 2, 1)), cause="closed")
    for delivery in waiting:
        with pytest.raises(AgentClosedError) as caught:
            await delivery.reply()
        assert str(caught.value) == "agent 'lead' does not run any more; open another one"
    assert first.claimed


async def test_one_message_that_is_sent_twice_is_said_once_for_each_time(lead):
    async with lead(Listening()) as opened:
        message = UserMessage("twice")
        noted, steered = opened.agent.inject(message), opened.agent.steer(message)
        await steered.reply()
        deliveries = [record.data.delivery for record in opened.agent.session.records("user/message")]
        assert deliveries == [noted.id, steered.id]

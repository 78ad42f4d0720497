"""One turn: the order of its records, what stands around it, and how it ends."""

import attrs
import pytest
import trio
import trio.testing

from creche import call, say, tool
from creche.agent import Enter, PreStep, Reject, TurnStopping, run_turn
from creche.errors import AgentError, IllegalRecordError, TurnRefused
from creche.messages import AssistantMessage, UserMessage
from creche.models import Finished, TextDelta, ToolCallDelta
from creche.prompt import RuntimeContext
from creche.session import RecordAppended, TurnEnded, TurnStarted
from creche.subagents import spawn
from creche.testing import record_events
from creche.tools import ToolContext


@tool
async def look() -> str:
    """Look around."""
    return "a tree"


def look_then_say(request):
    return [say("I saw it.")] if request.last_tool_text else [call("look")]


async def test_a_simple_turn_logs_its_records_in_this_order(lead, kinds):
    async with lead(lambda request: [say("hi")]) as opened:
        opened.pen.add(RuntimeContext("weather", order=300, text="It rains."))
        await opened.agent.ask("hello")
        assert kinds(opened.agent.session) == [
            "inbox/accepted",
            "turn/start",
            "inbox/claimed",
            "step/start",
            "system/message",
            "user/message",  # the prompt
            "user/message",  # the snapshot of the contexts
            "request/header",
            "request/context",
            "assistant/message",
            "step/end",
            "turn/end",
        ]


async def test_a_turn_with_a_call_takes_another_step_that_says_only_what_is_new(lead, kinds):
    async with lead(look_then_say, tools=[look]) as opened:
        await opened.agent.ask("hello")
        assert kinds(opened.agent.session, start=8) == [
            "assistant/message",
            "tool/call",
            "tool/result",
            "step/end",
            "step/start",
            "assistant/message",
            "step/end",
            "turn/end",
        ]
        assert [(record.turn, record.step) for record in opened.agent.session.records()][8:] == [
            *[(1, 1)] * 4,
            *[(1, 2)] * 3,
            (1, 0),
        ]


async def test_listeners_hear_every_record_in_order_with_the_agents_path(lead):
    async with lead(look_then_say, tools=[look]) as opened:
        with record_events(opened.host.registrar, RecordAppended) as heard:
            await opened.agent.ask("hello")
        assert [event.record for event in heard] == list(opened.agent.session.records())
        assert {event.agent_path for event in heard} == {"lead"}


# ---------------------------------------------------------------- PreStep


async def test_the_wrappers_of_a_step_see_what_it_is_about_to_say(lead):
    seen = []

    async def watch(event, following):
        assert event.agent is opened.agent
        seen.append((event.turn, event.step, [(message.source, message.text) for message in event.messages]))
        return await following()

    async with lead(look_then_say, tools=[look]) as opened:
        opened.pen.wrap(PreStep, watch)
        opened.pen.add(RuntimeContext("weather", order=300, text="It rains."))
        opened.agent.inject("a note", source="plugin:notes")
        await opened.agent.ask("hello")
        (_, _, first), second = seen
        assert [source for source, _ in first] == ["plugin:notes", "user", "runtime-context"]
        assert [text for _, text in first[:2]] == ["a note", "hello"]
        assert "It rains." in first[2][1]
        assert second == (1, 2, [])


async def test_what_a_wrapper_makes_of_the_messages_is_what_joins_the_history(lead):
    extra = UserMessage("by the way", source="plugin:hints")

    async def rewrite(event, following):
        decision = await following()
        return Enter([UserMessage("goodbye"), extra, *decision.messages[1:]])

    async with lead(lambda request: [say(request.user_texts[-1])]) as opened:
        opened.pen.wrap(PreStep, rewrite)
        assert (await opened.agent.ask("hello")).text == "goodbye"
        facts = [record.data for record in opened.agent.session.records("user/message")]
        assert [(fact.message, fact.delivery) for fact in facts] == [(UserMessage("goodbye"), None), (extra, None)]


async def test_a_wrapper_may_pass_other_messages_inwards(lead):
    async def outer(event, following):
        return await following(attrs.evolve(event, messages=[UserMessage("from outside")]))

    async def inner(event, following):
        seen.append([message.text for message in event.messages])
        return await following()

    seen = []
    async with lead(lambda request: [say("done")]) as opened:
        opened.host.registrar.wrap(PreStep, outer)
        opened.pen.wrap(PreStep, inner)
        await opened.agent.ask("hello")
        assert seen == [["from outside"]]
        assert opened.agent.session.derive_messages()[1] == UserMessage("from outside")


async def test_a_rejected_step_ends_the_turn_before_it_and_loses_only_what_was_claimed(lead, kinds, ends):
    async def refuse(event, following):
        if event.turn == 1:
            opened.agent.steer("staged meanwhile")
            return Reject("not today")
        return await following()

    async with lead(lambda request: [say(" ".join(request.user_texts))]) as opened:
        opened.pen.wrap(PreStep, refuse)
        refused, queued = opened.agent.send("hello"), opened.agent.send("queued")
        with pytest.raises(TurnRefused) as caught:
            await refused.reply()
        assert str(caught.value) == "turn 1 of agent 'lead' was refused: not today"
        assert caught.value.reason == "not today"
        assert (await queued.reply()).text == "staged meanwhile queued"
        assert kinds(opened.agent.session)[2:6] == ["turn/start", "inbox/claimed", "inbox/accepted", "turn/end"]
        assert ends(opened.agent.session) == [("blocked", str(caught.value)), ("completed", "")]


async def test_a_rejected_second_step_blocks_the_turn_too(lead, ends):
    async def refuse(event, following):
        return Reject("enough") if event.step == 2 else await following()

    async with lead(look_then_say, tools=[look]) as opened:
        opened.pen.wrap(PreStep, refuse)
        with pytest.raises(TurnRefused, match=r"^turn 1 of agent 'lead' was refused: enough$"):
            await opened.agent.ask("hello")
        assert ends(opened.agent.session) == [("blocked", "turn 1 of agent 'lead' was refused: enough")]


async def test_a_first_step_without_messages_ends_the_turn_without_a_request(lead, kinds, ends):
    async def silence(event, following):
        return Enter(())

    async with lead(lambda request: [say("never asked")]) as opened:
        opened.pen.wrap(PreStep, silence)
        reply = await opened.agent.ask("hello")
        assert (reply.text, reply.parts, reply.usage.requests) == ("", (), 0)
        assert kinds(opened.agent.session) == ["inbox/accepted", "turn/start", "inbox/claimed", "turn/end"]
        assert ends(opened.agent.session) == [("completed", "")]


async def test_a_step_after_calls_needs_no_messages(lead):
    async with lead(look_then_say, tools=[look]) as opened:
        assert (await opened.agent.ask("hello")).text == "I saw it."


# ---------------------------------------------------------------- how it ends


async def test_turn_stopping_is_dispatched_once_when_nothing_more_is_to_be_done(lead):
    stopping = []

    async def watch(event, following):
        stopping.append((event.agent, event.turn, opened.agent.session.phase))
        return await following()

    async with lead(look_then_say, tools=[look]) as opened:
        opened.pen.wrap(TurnStopping, watch)
        await opened.agent.ask("hello")
        assert stopping == [(opened.agent, 1, "turn")]


async def test_an_answer_cut_by_the_limit_of_tokens_is_told_as_truncated(lead, ends, chunk_model):
    async with lead(chunk_model([TextDelta("so far"), Finished("max-tokens")])) as opened:
        reply = await opened.agent.ask("hello")
        assert (reply.text, reply.outcome) == ("so far", "truncated")
        assert ends(opened.agent.session) == [("max-tokens", "")]


async def test_a_truncated_turn_stays_so_whatever_its_later_steps_say_and_the_next_turn_does_not(
    lead, ends, chunk_model
):
    async def insist(event, following):
        if event.turn == 1 and len(opened.sent()) == 1:
            opened.agent.steer("go on")
        return await following()

    model = chunk_model([TextDelta("some"), Finished("max-tokens")], [TextDelta("words"), Finished()])
    async with lead(model) as opened:
        opened.pen.wrap(TurnStopping, insist)
        first = await opened.agent.ask("hello")
        second = await opened.agent.ask("again")
        assert (first.outcome, first.usage.requests, second.outcome) == ("truncated", 2, "done")
        assert ends(opened.agent.session) == [("max-tokens", ""), ("completed", "")]


async def test_a_truncated_answer_without_a_word_is_an_answer_that_no_request_repeats(lead, chunk_model):
    async with lead(chunk_model([Finished("max-tokens")], [TextDelta("words"), Finished()])) as opened:
        reply = await opened.agent.ask("hello")
        assert (reply.text, reply.outcome) == ("", "truncated")
        assert opened.agent.session.records("assistant/message")[0].data.message == AssistantMessage(())
        await opened.agent.ask("again")
        assert [message.role for message in opened.agent.session.derive_messages()] == [
            "system",
            "user",
            "user",
            "assistant",
        ]


async def test_a_call_that_the_limit_of_tokens_cut_is_not_made(lead, ends, chunk_model):
    cut = [ToolCallDelta(0, id="c1", name="look", arguments='{"at'), Finished("max-tokens")]
    async with lead(chunk_model(cut), tools=[look]) as opened:
        assert (await opened.agent.ask("hello")).parts == ()
        assert opened.agent.session.records("tool/call") == ()
        assert ends(opened.agent.session) == [("max-tokens", "")]


async def test_a_model_that_would_not_is_told_as_refused(lead, ends, chunk_model):
    async with lead(chunk_model([TextDelta("I would rather not."), Finished("refusal")])) as opened:
        reply = await opened.agent.ask("hello")
        assert (reply.text, reply.outcome) == ("I would rather not.", "refused")
        assert ends(opened.agent.session) == [("completed", "")]


async def test_turns_run_one_at_a_time(lead, gate):
    async with lead(gate) as opened:
        delivery = opened.agent.send("hello")
        await gate.reached.wait()
        with pytest.raises(AgentError) as caught:
            await run_turn(opened.agent)
        assert (
            str(caught.value)
            == "turn 1 of agent 'lead' is open, and turns run one at a time; send() puts a message behind it"
        )
        gate.opened.set()
        assert (await delivery.reply()).text == "HELLO"


async def test_a_turn_that_cannot_start_tells_everybody_who_waits_and_is_not_tried_for_ever(lead):
    async with lead(lambda request: [say("hi")]) as opened:
        log = opened.agent.session
        log.append(TurnStarted())  # nobody should, and it stands in the way
        first, second = opened.agent.send("one"), opened.agent.inject("two")
        with pytest.raises(IllegalRecordError) as caught:
            await first.reply()
        with pytest.raises(IllegalRecordError):
            await second.reply()
        assert log.records("inbox/dropped")[0].data.cause == str(caught.value)
        await opened.agent.wait_idle()
        log.append(TurnEnded("error"))
        assert (await opened.agent.ask("three")).turn == 2


# ---------------------------------------------------------------- what it costs


async def test_a_turn_counts_the_subagents_it_started_and_no_others(lead):
    """Rule: ``usage`` is the turn's own requests; ``usage_tree`` adds what the turn itself started."""
    started = trio.Event()

    @tool
    async def delegate(context: ToolContext) -> str:
        """Start a subagent, and wait until the program has started one, too."""
        text = (await spawn(context.agent, "own")).text
        started.set()
        await trio.testing.wait_all_tasks_blocked()
        return text

    def answer(request):
        if request.agent_path == "lead":
            return [say("done")] if request.last_tool_text else [call("delegate")]
        return [say("reported")]

    async with lead(answer, tools=[delegate]) as opened, trio.open_nursery() as nursery:

        async def start_another():
            await started.wait()
            await spawn(opened.agent, "foreign")

        nursery.start_soon(start_another)
        reply = await opened.agent.ask("go")
        assert opened.agent.children == ()
        assert (reply.usage.requests, reply.usage_tree.requests, opened.agent.usage.requests) == (2, 3, 4)


async def test_usage_so_far_has_what_live_subagents_cost(lead):
    first, go_on = trio.Event(), trio.Event()

    async def answer(request):
        if request.last_tool_text:
            first.set()
            await go_on.wait()
            return [say("done")]
        return [call("look")]

    async with lead(answer, tools=[look]) as opened:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(spawn, opened.agent, "look")
            await first.wait()
            (child,) = opened.agent.children
            assert child.usage.requests == 1
            assert opened.agent.usage.requests == 1
            go_on.set()
        assert opened.agent.children == ()
        assert opened.agent.usage.requests == 2

"""Reading an answer as it comes."""

import pytest
import trio
import trio.testing

from creche import AgentSpec, FunctionModel, call, say, tool
from creche.agent import DeltaStreamed, StreamRestarted
from creche.errors import AgentError, ModelError, TurnCancelled
from creche.models import Finished, RetryPolicy, TextDelta, ToolCallDelta, expand_stream, fail
from creche.testing import record_events


@tool
async def look() -> str:
    """Look around."""
    return "a tree"


async def test_a_stream_yields_every_delta_of_every_step_and_then_has_the_reply(lead):
    def answer(request):
        return [say("I ", "saw ", "it.")] if request.last_tool_text else [say("Let me ", "look."), call("look")]

    async with lead(answer, tools=[look]) as opened:
        async with opened.agent.stream("go") as deltas:
            heard = [delta async for delta in deltas]
            assert deltas.reply.text == "I saw it."
        assert [delta.text for delta in heard if isinstance(delta, TextDelta)] == [
            "Let me ",
            "look.",
            "I ",
            "saw ",
            "it.",
        ]
        assert [delta.name for delta in heard if isinstance(delta, ToolCallDelta)] == ["look"]
        logged = [record.data.stream for record in opened.agent.session.records("assistant/message")]
        assert heard == [delta for stream in logged for delta in expand_stream(stream)]


async def test_deltas_come_while_the_model_still_speaks(lead, chunk_model):
    go_on = trio.Event()
    model = chunk_model([TextDelta("one "), go_on.wait, TextDelta("two"), Finished()])
    async with lead(model) as opened, opened.agent.stream("go") as deltas:
        assert await anext(deltas) == TextDelta("one ")
        assert opened.agent.is_busy
        go_on.set()
        assert await anext(deltas) == TextDelta("two")
        with pytest.raises(StopAsyncIteration):
            await anext(deltas)
        with pytest.raises(StopAsyncIteration):
            await anext(deltas)


async def test_a_slow_reader_holds_nobody_up_and_misses_nothing(lead):
    pieces = [f"{number} " for number in range(5000)]
    async with lead(lambda request: [say(*pieces)]) as opened, opened.agent.stream("go") as deltas:
        await opened.agent.wait_idle()
        assert [delta.text async for delta in deltas] == pieces


async def test_there_is_no_reply_before_the_end(lead, gate):
    async with lead(gate) as opened, opened.agent.stream("go") as deltas:
        with pytest.raises(AgentError) as caught:
            _ = deltas.reply
        assert str(caught.value) == "the reply is there when the stream has ended: iterate over it first"
        gate.opened.set()


async def test_a_new_attempt_is_announced_in_the_stream(lead, chunk_model, autojump_clock):
    model = chunk_model([TextDelta("half an ans")], [TextDelta("whole"), Finished()], retries=1)
    async with lead(model) as opened:
        with record_events(opened.pen, DeltaStreamed) as heard:
            async with opened.agent.stream("go") as deltas:
                assert [delta async for delta in deltas] == [
                    TextDelta("half an ans"),
                    StreamRestarted(1),
                    TextDelta("whole"),
                ]
                assert deltas.reply.text == "whole"
        assert [(event.agent_path, event.delta.text, event.attempt) for event in heard] == [
            ("lead", "half an ans", 1),
            ("lead", "whole", 2),
        ]


async def test_what_ends_the_turn_is_raised_by_the_iterator_as_itself(lead):
    model = FunctionModel(lambda request: [say("half "), fail("it broke", code="credential")], retry=RetryPolicy(0))
    async with lead(model) as opened, opened.agent.stream("go") as deltas:
        assert await anext(deltas) == TextDelta("half ")
        for _ in range(2):
            with pytest.raises(ModelError, match=r"^it broke$") as caught:
                await anext(deltas)
            assert caught.value.__context__ is None
        with pytest.raises(ModelError, match=r"^it broke$"):
            _ = deltas.reply


async def test_leaving_a_stream_early_cancels_its_turn_and_waits_for_it(lead, chunk_model, ends):
    model = chunk_model([TextDelta("one "), trio.sleep_forever])
    async with lead(model) as opened:
        async with opened.agent.stream("go") as deltas:
            await anext(deltas)
        assert (opened.agent.is_busy, model.closed) == (False, 1)
        assert ends(opened.agent.session) == [("cancelled", "user")]
        (record,) = opened.agent.session.records("assistant/message")
        assert (record.data.message.text, record.data.finish) == ("one ", None)
        with pytest.raises(TurnCancelled):
            await anext(deltas)


async def test_leaving_a_stream_before_its_turn_withdraws_the_message(lead, gate):
    async with lead(gate) as opened:
        first = opened.agent.send("first")
        await gate.reached.wait()
        async with opened.agent.stream("never mind"):
            pass
        assert opened.agent.session.records("inbox/dropped")[0].data.cause == "withdrawn"
        gate.opened.set()
        assert (await first.reply()).text == "FIRST"


async def test_an_error_in_the_block_of_a_stream_comes_out_as_itself(lead, chunk_model):
    model = chunk_model([TextDelta("one "), trio.sleep_forever])
    async with lead(model) as opened:

        async def read_and_fail():
            async with opened.agent.stream("go") as deltas:
                await anext(deltas)
                raise ValueError("mine")

        with pytest.raises(ValueError, match=r"^mine$"):
            await read_and_fail()
        assert not opened.agent.is_busy


async def test_two_streams_each_have_their_own_turn(lead):
    async with lead(lambda request: [say(request.last_user_text)]) as opened:
        async with opened.agent.stream("one") as first, opened.agent.stream("two") as second:
            assert [delta.text async for delta in second] == ["two"]
            assert [delta.text async for delta in first] == ["one"]
        assert (first.reply.turn, second.reply.turn) == (1, 2)


async def test_deltas_are_events_for_those_above_the_agent_only(lead):
    async with (
        lead(lambda request: [say("hi")]) as opened,
        opened.host.open_agent(AgentSpec("other")) as other,
    ):
        with (
            record_events(opened.host.registrar, DeltaStreamed) as everywhere,
            record_events(opened.host.registrar.at(other.scope), DeltaStreamed) as at_other,
        ):
            await opened.agent.ask("hello")
        assert [event.agent_path for event in everywhere] == ["lead"]
        assert at_other == []

"""What trio iterates over, read from asyncio: deltas above all."""

import asyncio
from contextlib import aclosing, asynccontextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from creche import AgentSpec, FunctionModel, ModelError, open_host, open_portal, say, spawn
from creche.errors import AgentClosedError, PortalError
from creche.models import TextDelta, fail
from creche.testing import check_log


@asynccontextmanager
async def open_lead(portal, model):
    """Open a host and an agent; in the end its log is whole."""
    async with portal.open(open_host(model=model)) as host:
        async with portal.open(host.open_agent(AgentSpec("lead"))) as lead:
            yield lead
        check_log(lead.session)


def ends(agent):
    return [record.data.reason for record in agent.session.records("turn/end")]


@asynccontextmanager
async def numbers(count, read=None):
    """Count, and note how far."""

    async def count_up():
        for number in range(count):
            await trio.lowlevel.checkpoint()
            if read is not None:
                read.append(number)
            yield number

    async with aclosing(count_up()) as counting:
        yield counting


def test_every_delta_comes_in_order_and_then_there_is_the_reply(under_asyncio):
    pieces = [f"{number} " for number in range(10_000)]

    async def main():
        async with (
            open_portal() as portal,
            open_lead(portal, FunctionModel(lambda request: [say(*pieces)])) as lead,
            portal.stream(lead.stream("go")) as deltas,
        ):
            assert [delta.text async for delta in deltas] == pieces
            assert deltas.opened.reply.text == "".join(pieces)
            assert [delta async for delta in deltas] == []

    under_asyncio(main)


def test_what_a_tree_of_agents_does_is_watched(under_asyncio):
    """Rule: what is opened with a plain `with` in trio goes through the portal as well; it is left in trio."""

    async def main():
        async with open_portal() as portal, open_lead(portal, FunctionModel(lambda request: [say("hi")])) as lead:
            async with portal.stream(lead.watch(subtree=True)) as records:
                await portal.run(spawn, lead, "go")
                paths = [(await anext(records)).agent_path for _ in range(3)]
            assert paths[0] == "lead"
            assert "lead/spawn-1" in paths

    under_asyncio(main)


def test_deltas_come_while_the_model_still_speaks(under_asyncio, paced):
    async def main():
        go_on = trio.Event()
        async with (
            open_portal() as portal,
            open_lead(portal, paced("one ", go_on.wait, "two")) as lead,
            portal.stream(lead.stream("go")) as deltas,
        ):
            assert await anext(deltas) == TextDelta("one ")
            assert lead.is_busy
            await portal.call(go_on.set)
            assert await anext(deltas) == TextDelta("two")
            with pytest.raises(StopAsyncIteration):
                await anext(deltas)
            with pytest.raises(StopAsyncIteration):
                await anext(deltas)

    under_asyncio(main)


def test_leaving_the_block_early_cancels_the_turn_and_waits_for_its_end(under_asyncio, paced):
    async def main():
        model = paced("one ", trio.sleep_forever)
        async with open_portal() as portal, open_lead(portal, model) as lead:
            async with portal.stream(lead.stream("go")) as deltas:
                async for _ in deltas:
                    break
            assert (ends(lead), model.open, lead.is_busy) == (["cancelled"], 0, False)
            model.pieces = ("more",)
            assert (await portal.run(lead.ask, "again")).text == "more"

    under_asyncio(main)


def test_a_cancelled_reader_cancels_the_turn_and_waits_for_its_end(under_asyncio, paced):
    async def main():
        model = paced("one ", trio.sleep_forever)
        async with open_portal() as portal, open_lead(portal, model) as lead:

            async def read():
                async with portal.stream(lead.stream("go")) as deltas:
                    async for _ in deltas:
                        reading.set()

            reading = asyncio.Event()
            task = asyncio.ensure_future(read())
            await reading.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (ends(lead), model.open) == (["cancelled"], 0)

    under_asyncio(main)


def test_giving_up_the_wait_for_an_item_loses_none(under_asyncio, paced):
    async def main():
        go_on = trio.Event()
        async with (
            open_portal() as portal,
            open_lead(portal, paced("one ", go_on.wait, "two ", "three")) as lead,
            portal.stream(lead.stream("go")) as deltas,
        ):
            assert await anext(deltas) == TextDelta("one ")
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.001):
                        await anext(deltas)
            await portal.call(go_on.set)
            assert [delta.text async for delta in deltas] == ["two ", "three"]

    under_asyncio(main)


def test_a_reader_that_stands_still_holds_up_what_is_read(under_asyncio):
    read = []

    async def main():
        async with open_portal() as portal, portal.stream(numbers(1000, read)) as items:
            assert await anext(items) == 0
            await portal.run(wait_all_tasks_blocked)
            assert len(read) <= 1 + 2 * 64
            far = len(read)
            assert [item async for item in items] == list(range(1, 1000))
            assert far < len(read) == 1000

    under_asyncio(main)


def test_an_error_of_a_turn_comes_after_its_deltas_and_leaves_the_agent(under_asyncio):
    def answer(request):
        return [say("half "), fail("broken", code="credential")] if request.last_user_text == "go" else [say("well")]

    async def main():
        async with open_portal() as portal, open_lead(portal, FunctionModel(answer)) as lead:

            async def read(stream):
                async with stream as deltas:
                    async for delta in deltas:
                        heard.append(delta)  # noqa: PERF401 - what was heard before an error counts

            heard = []
            with pytest.raises(ModelError, match="broken"):
                await read(portal.stream(lead.stream("go")))
            assert heard == [TextDelta("half ")]
            assert (await portal.run(lead.ask, "again")).text == "well"

    under_asyncio(main)


def test_an_error_that_nobody_reads_is_nobodys(under_asyncio):
    """As in trio: who leaves the block does not want to know."""

    async def main():
        async with (
            open_portal() as portal,
            open_lead(portal, FunctionModel(lambda request: [fail("broken", code="credential")])) as lead,
            portal.stream(lead.stream("go")),
        ):
            await portal.run(lead.wait_idle)

    under_asyncio(main)


def test_what_cannot_be_streamed_raises_at_the_door(under_asyncio, paced):
    async def main():
        async with open_portal() as portal:
            async with open_lead(portal, paced("hi")) as lead:
                pass
            with pytest.raises(AgentClosedError, match="does not run any more"):
                async with portal.stream(lead.stream("go")):
                    pytest.fail("it is open")

    under_asyncio(main)


def test_the_end_of_the_portal_ends_the_stream_with_an_error(under_asyncio, paced):
    async def main():
        async with open_portal() as portal:
            opened = portal.open(open_host(model=paced("one ", trio.sleep_forever)))
            host = await opened.__aenter__()
            lead = await portal.run(host.start_agent, AgentSpec("lead"))

            async def read():
                async with portal.stream(lead.stream("go")) as deltas:
                    async for _ in deltas:
                        reading.set()

            reading = asyncio.Event()
            task = asyncio.ensure_future(read())
            await reading.wait()
        with pytest.raises(PortalError) as caught:
            await task
        assert str(caught.value) == "Agent.stream did not come to its end, because the portal was closed"
        assert lead.is_closed
        check_log(lead.session)

    under_asyncio(main)


def test_a_reader_in_another_task_sees_the_end_of_the_block(under_asyncio):
    async def main():
        async with open_portal() as portal:
            async with portal.stream(forever()) as items:
                read = asyncio.ensure_future(anext(items))
                await asyncio.sleep(0)
            with pytest.raises(StopAsyncIteration):
                await read

    @asynccontextmanager
    async def forever():
        send, receive = trio.open_memory_channel(0)
        async with send, receive:
            yield receive

    under_asyncio(main)


def test_a_function_with_yields_can_be_streamed(under_asyncio, paced):
    @trio.as_safe_channel
    async def shout(host, question):
        async with host.open_agent(AgentSpec("lead")) as lead, lead.stream(question) as deltas:
            async for delta in deltas:
                yield delta.text.upper()

    async def main():
        async with (
            open_portal() as portal,
            portal.open(open_host(model=paced("one ", "two"))) as host,
            portal.stream(shout(host, "go")) as texts,
        ):
            assert [text async for text in texts] == ["ONE ", "TWO"]

    under_asyncio(main)


def test_many_streams_at_once_do_not_mix(under_asyncio):
    def answer(request):
        return [say(*[f"{request.last_user_text}:{number} " for number in range(50)])]

    async def main():
        async with open_portal() as portal, portal.open(open_host(model=FunctionModel(answer))) as host:

            async def read(name):
                async with (
                    portal.open(host.open_agent(AgentSpec(name))) as agent,
                    portal.stream(agent.stream(name)) as deltas,
                ):
                    return [delta.text async for delta in deltas]

            for name, texts in enumerate(await asyncio.gather(*[read(f"a{number}") for number in range(40)])):
                assert texts == [f"a{name}:{number} " for number in range(50)]

    under_asyncio(main)

"""Watching an agent's records as they are appended."""

import gc

import pytest
import trio
import trio.testing

from creche import AgentSpec, Preset, call, say, tool
from creche.agent import Watch
from creche.errors import AgentError
from creche.subagents import spawn
from creche.tools import ToolContext


def hello(request):
    return [say("hi")]


async def read(watch):
    return [event async for event in watch]


async def test_a_watch_has_every_record_from_its_beginning_to_the_agents_end(lead):
    async with lead(hello) as opened:
        agent = await opened.host.start_agent(AgentSpec("other"))
        await agent.ask("before")
        before = len(agent.session)
        with agent.watch() as records:
            await agent.ask("hello")
            agent.inject("never read")
            await agent.aclose()
            seen = await read(records)
    assert [event.record for event in seen] == list(agent.session.records())[before:]
    assert seen[-1].record.kind == "inbox/dropped"
    assert {event.agent_path for event in seen} == {"other"}


async def test_a_watch_can_begin_with_what_is_in_the_log_already(lead):
    async with lead(hello) as opened:
        await opened.agent.ask("hello")
        with opened.agent.watch(after=3) as records:
            assert (await anext(records)).record.seq == 4
            assert records.after == 4
        with opened.agent.watch(after=-1) as records:
            assert (await anext(records)).record.seq == 0
        with opened.agent.watch() as records:
            assert records.after == len(opened.agent.session) - 1
            opened.agent.inject("a note")
            assert (await anext(records)).record.seq == len(opened.agent.session) - 1


async def test_what_is_done_after_the_block_is_not_watched(lead):
    async with lead(hello) as opened:
        with opened.agent.watch() as records:
            opened.agent.inject("one")
        opened.agent.inject("two")
        assert [event.record.data.message.text for event in await read(records)] == ["one"]


async def test_an_agent_keeps_nothing_of_a_watch_that_has_ended(lead):
    async with lead(hello) as opened:
        with opened.agent.watch():
            await opened.agent.ask("hello")
        gc.collect()
        assert not any(isinstance(each, Watch) for each in gc.get_objects())


async def test_a_reader_that_is_too_slow_is_cut_and_goes_on_by_number(lead):
    """Rule: bounded; the reader gets all that was kept for it, is told, and misses nothing if it goes on."""
    async with lead(hello) as opened:
        agent = opened.agent
        with agent.watch() as records:
            for number in range(1500):
                agent.inject(f"note {number}")
            seen = [(await anext(records)).record.seq for _ in range(1000)]
            with pytest.raises(AgentError) as caught:
                await anext(records)
            assert str(caught.value) == (
                "the watch on agent 'lead' was cut after its record 999, because the reader was 1000 records behind; "
                "go on with watch(after=999)"
            )
            with pytest.raises(AgentError):
                await anext(records)
        assert records.after == 999
        with agent.watch(after=records.after) as records:
            while len(seen) < 1500:
                seen.append((await anext(records)).record.seq)
        assert seen == list(range(1500))


async def test_a_watch_that_begins_far_back_is_not_cut_for_that(lead):
    async with lead(hello) as opened:
        for number in range(1500):
            opened.agent.inject(f"note {number}")
        with opened.agent.watch(after=-1) as records:
            opened.agent.inject("one more")
            for seq in range(1501):
                assert (await anext(records)).record.seq == seq


async def test_a_closed_agent_can_be_watched_from_behind_and_the_watch_ends(lead):
    async with lead(hello) as opened:
        await opened.agent.ask("hello")
    with trio.fail_after(5):
        with opened.agent.watch() as records:
            assert await read(records) == []
        with opened.agent.watch(after=-1) as records:
            assert [event.record for event in await read(records)] == list(opened.agent.session.records())


@tool
async def delegate(context: ToolContext) -> str:
    """Start a subagent here, and one under another preset."""
    texts = [(await spawn(context.agent, "report", name="near")).text]
    return texts[0] + (await spawn(context.agent, "report", name="far", preset="elsewhere")).text


async def test_a_watch_on_the_subtree_follows_the_tree_of_agents_over_presets(lead):
    def answer(request):
        if request.agent_path != "lead":
            return [say("reported")]
        return [say("done")] if request.last_tool_text else [call("delegate")]

    async with lead(answer, tools=[delegate], presets=[Preset("elsewhere")]) as opened:
        async with opened.host.open_agent(AgentSpec("stranger")) as stranger:
            with opened.agent.watch(subtree=True) as deep, opened.agent.watch() as flat:
                await opened.agent.ask("go")
                await stranger.ask("hello")
        events = await read(deep)
        paths = [event.agent_path for event in events]
        assert set(paths) == {"lead", "lead/near", "lead/far"}
        for agent in opened.agents:
            if agent.path in paths:
                got = [event.record for event in events if event.agent_path == agent.path]
                assert got == list(agent.session.records())
        assert {event.agent_path for event in await read(flat)} == {"lead"}


async def test_a_watch_on_the_subtree_that_is_cut_by_a_child_goes_on_by_the_agents_own_number(lead):
    """Rule: sequence numbers are of one log each, so what is told is the number in the watched agent's own."""
    block = trio.Event()

    async def answer(request):
        await block.wait()
        return [say("reported")]

    async with lead(answer) as opened:
        with opened.agent.watch(subtree=True) as records:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(spawn, opened.agent, "report")
                await trio.testing.wait_all_tasks_blocked()
                (child,) = opened.agent.children
                for number in range(1200):
                    child.inject(f"note {number}")
                nursery.cancel_scope.cancel()
            with pytest.raises(AgentError, match=r"^the watch on agent 'lead' was cut after its record 0, "):
                await read(records)
        assert records.after == 0

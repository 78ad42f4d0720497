"""A task of asyncio is cancelled wherever it may be, and what it had in trio has ended by then, with whole logs."""

import asyncio
import itertools
import random
from contextlib import asynccontextmanager

import pytest
import trio.lowlevel

from creche import AgentSpec, FunctionModel, call, delegation, open_host, open_portal, say, tool
from creche.host import AgentOpened
from creche.session import RecordAppended
from creche.testing import assert_no_leaks, check_log

SEEDS = range(20)


@tool
async def look() -> str:
    """Look around, for a moment."""
    await trio.lowlevel.checkpoint()
    return "a tree"


@tool
def think() -> str:
    """Think, in a thread."""
    return "so"


def answer(request):
    if request.last_tool_text:
        return [say("It ", "is ", "done.")]
    if request.agent_path == "lead":
        return [call("look"), call("think"), call("subagent", description="d", prompt="Look.")]
    return [call("look")]


def work_by_run(portal, host):
    async def ask():
        async with host.open_agent(AgentSpec("lead", tools=[look, think])) as lead:
            return (await lead.ask("Go.")).text

    return portal.run(ask)


async def work_by_open(portal, host):
    async with portal.open(host.open_agent(AgentSpec("lead", tools=[look, think]))) as lead:
        return (await portal.run(lead.ask, "Go.")).text


async def work_by_stream(portal, host):
    async with (
        portal.open(host.open_agent(AgentSpec("lead", tools=[look, think]))) as lead,
        portal.stream(lead.stream("Go.")) as deltas,
    ):
        async for _ in deltas:
            await asyncio.sleep(0)
        return deltas.opened.reply.text


@asynccontextmanager
async def open_watched_host(store, agents, hear):
    """Open a host of which nothing is left in the end but its agents' logs."""
    async with open_host(model=FunctionModel(answer), plugins=[delegation()], store=store) as host:
        host.registrar.on(AgentOpened, lambda event: agents.append(event.agent))
        host.registrar.on(RecordAppended, lambda event: hear())
        with assert_no_leaks(host):
            yield host


def count_down(number):
    """Return an event of asyncio, and what sets it when it has been called so often in another thread."""
    loop, reached, counter = asyncio.get_running_loop(), asyncio.Event(), itertools.count(1)

    def count():
        if next(counter) == number:
            loop.call_soon_threadsafe(reached.set)

    return reached, count


async def cancel(task, ticks, *, level):
    """Cancel a task some turns of the loop from now; once, or in every turn until it has ended, as anyio does."""
    for _ in range(ticks):
        await asyncio.sleep(0)
    task.cancel()
    while level and not task.done():
        await asyncio.sleep(0)
        task.cancel()
    return (await asyncio.gather(task, return_exceptions=True))[0]


@pytest.mark.parametrize("work", [work_by_run, work_by_open, work_by_stream])
@pytest.mark.parametrize("level", [False, True], ids=["once", "again and again"])
def test_wherever_it_is_cancelled_nothing_is_left_and_every_log_is_whole(under_asyncio, tmp_path, work, level):
    """Rule: a cancelled task comes back when all that it had in trio has ended. The points are records and turns of the loop."""

    async def once(chance, store):
        agents = []
        reached, count = count_down(chance.randrange(1, 45))
        async with open_portal() as portal, portal.open(open_watched_host(store, agents, count)) as host:
            task = asyncio.ensure_future(work(portal, host))
            point = asyncio.ensure_future(reached.wait())
            await asyncio.wait([task, point], return_when=asyncio.FIRST_COMPLETED)
            point.cancel()
            result = await cancel(task, chance.choice([0, 0, 1, 2, 5]), level=level)
            assert not host.agents
        for agent in agents:
            check_log(agent.session)
        return result

    async def main():
        return [await once(random.Random(seed), tmp_path / str(seed)) for seed in SEEDS]

    results = under_asyncio(main)
    assert [
        result for result in results if not isinstance(result, asyncio.CancelledError) and result != "It is done."
    ] == []
    assert any(isinstance(result, asyncio.CancelledError) for result in results)


@pytest.mark.parametrize("work", [work_by_run, work_by_open, work_by_stream])
def test_a_task_that_is_cancelled_before_it_begins_starts_nothing(under_asyncio, tmp_path, work):
    async def main():
        agents = []
        async with open_portal() as portal, portal.open(open_watched_host(tmp_path, agents, lambda: None)) as host:
            assert isinstance(
                await cancel(asyncio.ensure_future(work(portal, host)), 0, level=False), asyncio.CancelledError
            )
        assert agents == []

    under_asyncio(main)

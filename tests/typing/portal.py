"""Checked by mypy and pyright, never run: what a portal looks like to them."""

from typing import assert_type

from creche import Agent, AgentSpec, Host, Reply, open_host, open_portal, run_sync
from creche.agent import Delivery, ReplyStream, StreamRestarted
from creche.models import Delta
from creche.portal import Portal, PortalStream


async def ask(agent: Agent, question: str) -> Reply:
    return await agent.ask(question)


async def query(item: str) -> float:
    return 2.5


def plain(agent: Agent) -> None:
    assert_type(run_sync(ask, agent, "hello"), Reply)
    run_sync(ask, agent)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    run_sync(ask(agent, "hello"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    run_sync(len, "abc")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def under_asyncio() -> None:
    async with open_portal() as portal, portal.open(open_host()) as host:
        assert_type(portal, Portal)
        assert_type(host, Host)
        async with portal.open(host.open_agent(AgentSpec("lead"))) as lead:
            assert_type(lead, Agent)
            assert_type(await portal.run(ask, lead, "hello"), Reply)
            assert_type(await portal.call(lead.send, "hello"), Delivery)
            assert_type(await portal.run(portal.run_asyncio, query, "tea"), float)
            await portal.run(ask, lead, 1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            await portal.run(lead.cancel)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            async with portal.stream(lead.stream("hello")) as deltas:
                assert_type(deltas, PortalStream[ReplyStream])
                async for delta in deltas:
                    assert_type(delta, Delta | StreamRestarted)
                assert_type(deltas.opened.reply, Reply)
        portal.open(lead)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

"""What is said where a portal is of no use, and where one is needed."""

import subprocess
import sys

import pytest
import trio

from creche import AgentSpec, FunctionModel, fork, open_host, open_portal, say, spawn
from creche.errors import PortalError


def hello(request):
    return [say("hello")]


def test_asyncio_is_not_imported_before_it_is_needed():
    """Rule: who does not use it does not wait for it. A check for the wrong world must not import it either."""
    program = """
import sys, trio, creche, creche.portal
assert "asyncio" not in sys.modules
assert creche.run_sync(trio.sleep, 0) is None
try:
    creche.open_host().__aenter__().send(None)
except creche.CrecheError as error:
    print(error)
assert "asyncio" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stderr, done.stdout) == (
        "",
        (
            "open_host() belongs to trio, which does not run in this thread: plain code has creche.run_sync, and a tool that runs in "
            "a thread has trio.from_thread\n"
        ),
    )


async def test_under_trio_there_is_no_portal():
    with pytest.raises(PortalError) as caught:
        async with open_portal():
            pytest.fail("it is open")
    assert str(caught.value) == (
        "a portal is for programs on asyncio, and no asyncio runs here; under trio it is not needed, and plain code has "
        "creche.run_sync()"
    )


def test_what_belongs_to_trio_says_so_under_asyncio(under_asyncio):
    async def main():
        sentence = "belongs to trio, and this is asyncio: open a portal (creche.open_portal), and write"
        with pytest.raises(PortalError) as caught:
            async with open_host(model=FunctionModel(hello)):
                pytest.fail("it is open")
        assert str(caught.value) == f"open_host() {sentence} async with portal.open(open_host(...))"
        async with (
            open_portal() as portal,
            portal.open(open_host(model=FunctionModel(hello))) as host,
            portal.open(host.open_agent(AgentSpec("lead"))) as lead,
        ):
            with pytest.raises(PortalError) as caught:
                async with host.open_agent(AgentSpec("other")):
                    pytest.fail("it is open")
            assert str(caught.value) == f"host.open_agent() {sentence} async with portal.open(host.open_agent(...))"
            with pytest.raises(PortalError) as caught:
                await host.start_agent(AgentSpec("other"))
            assert str(caught.value) == f"host.start_agent() {sentence} await portal.run(host.start_agent, ...)"
            for use, instead in [
                (lambda: lead.send("hi"), "agent.send, ..."),
                (lambda: lead.inject("hi"), "agent.send, ..."),
                (lead.cancel, "agent.cancel"),
            ]:
                with pytest.raises(PortalError) as caught:
                    use()
                assert str(caught.value) == f"agent 'lead' {sentence} await portal.call({instead})"
            with pytest.raises(PortalError) as caught:
                await lead.ask("hi")
            assert str(caught.value) == f"agent 'lead' {sentence} await portal.run(agent.ask, ...)"
            with pytest.raises(PortalError) as caught:
                async with lead.stream("hi"):
                    pytest.fail("it is open")
            assert str(caught.value) == f"agent 'lead' {sentence} async with portal.stream(agent.stream(...))"
            for start in (spawn, fork):
                with pytest.raises(PortalError) as caught:
                    await start(lead, "hi")
                assert str(caught.value) == (
                    f"{start.__name__}() {sentence} await portal.run({start.__name__}, agent, ...)"
                )
            assert len(lead.session) == 0
            assert (await portal.run(lead.ask, "hi")).text == "hello"

    under_asyncio(main)


async def test_what_belongs_to_trio_says_so_in_a_thread():
    async with open_host(model=FunctionModel(hello)) as host, host.open_agent(AgentSpec("lead")) as lead:
        with pytest.raises(PortalError) as caught:
            await trio.to_thread.run_sync(lead.send, "hi")
        assert str(caught.value) == (
            "agent 'lead' belongs to trio, which does not run in this thread: plain code has creche.run_sync, and a tool that "
            "runs in a thread has trio.from_thread"
        )
        assert (await trio.to_thread.run_sync(trio.from_thread.run, lead.ask, "hi")).text == "hello"

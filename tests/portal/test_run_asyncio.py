"""From trio back to asyncio: what a tool needs whose database speaks asyncio."""

import asyncio
import contextvars
import threading

import pytest
import trio

from creche import AgentSpec, FunctionModel, call, open_host, open_portal, say, tool
from creche.errors import PortalError
from creche.testing import check_log

NAME = contextvars.ContextVar("NAME", default="nobody")


def answer(request):
    return [say(request.last_tool_text)] if request.last_tool_text else [call("query", question="tea")]


def test_a_tool_can_use_what_speaks_asyncio(under_asyncio):
    async def ask_database(question):
        await asyncio.sleep(0)
        return f"{question} in {threading.current_thread().name}"

    async def main():
        async with open_portal() as portal, portal.open(open_host(model=FunctionModel(answer))) as host:

            @tool
            async def query(question: str) -> str:
                """Ask the database."""
                return await portal.run_asyncio(ask_database, question)

            async with portal.open(host.open_agent(AgentSpec("lead", tools=[query]))) as lead:
                return (await portal.run(lead.ask, "go")).text

    assert under_asyncio(main) == f"tea in {threading.current_thread().name}"


def test_an_error_comes_out_as_itself_and_the_task_context_goes_along(under_asyncio):
    error = ValueError("mine")

    async def fail():
        raise error

    async def look():
        return NAME.get()

    async def main():
        NAME.set("ada")
        async with open_portal() as portal:
            with pytest.raises(ValueError, match="mine") as caught:
                await portal.run(portal.run_asyncio, fail)
            assert caught.value is error
            assert await portal.run(portal.run_asyncio, look) == "ada"

    under_asyncio(main)


def test_a_cancelled_tool_cancels_what_it_has_in_asyncio_and_waits_for_its_end(under_asyncio, cancel):
    said = []

    async def main():
        begun = asyncio.Event()

        async def ask_database(question):
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.01)
                said.append("asyncio")

        async with open_portal() as portal, portal.open(open_host(model=FunctionModel(answer))) as host:

            @tool
            async def query(question: str) -> str:
                """Ask the database."""
                try:
                    return await portal.run_asyncio(ask_database, question)
                finally:
                    said.append("trio")

            async with portal.open(host.open_agent(AgentSpec("lead", tools=[query]))) as lead:
                task = asyncio.ensure_future(portal.run(lead.ask, "go"))
                await begun.wait()
                await cancel(task)
                assert said == ["asyncio", "trio"]
            check_log(lead.session)

    under_asyncio(main)


def test_what_asyncio_makes_of_a_cancellation(under_asyncio):
    """Rule: an error comes out, a result is dropped, as the other way round."""

    async def main():
        begun = asyncio.Event()

        async def stubborn(end):
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return end()

        def fail():
            raise OSError("could not clean up")

        async def cancelled(end):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(portal.run_asyncio, stubborn, end)
                    await portal.run_asyncio(begun.wait)
                    scope.cancel()
            return scope.cancelled_caught

        async with open_portal() as portal:
            assert await portal.run(cancelled, int) is True
            begun.clear()
            with pytest.raises(ExceptionGroup) as caught:
                await portal.run(cancelled, fail)
            assert [repr(leaf) for leaf in caught.value.exceptions] == ["OSError('could not clean up')"]

    under_asyncio(main)


def test_what_is_cancelled_before_it_has_begun_does_not_begin(under_asyncio):
    async def never():
        pytest.fail("it began")

    async def main():
        async with open_portal() as portal:

            async def cancelled():
                with trio.CancelScope() as scope:
                    scope.cancel()
                    await portal.run_asyncio(never)

            await portal.run(cancelled)

    under_asyncio(main)


def test_what_somebody_cancels_in_asyncio_is_an_error_in_trio(under_asyncio):
    async def give_up():
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    async def main():
        async with open_portal() as portal:
            with pytest.raises(PortalError) as caught:
                await portal.run(portal.run_asyncio, give_up)
            assert str(caught.value) == "give_up was cancelled in asyncio, or its loop has ended"

    under_asyncio(main)


def test_what_is_no_async_function_is_refused_with_what_to_write(under_asyncio):
    async def main():
        async with open_portal() as portal:
            with pytest.raises(TypeError) as caught:
                await portal.run(portal.run_asyncio, len, "abc")
            assert str(caught.value) == (
                "portal.run_asyncio takes an async function, and len is none; from asyncio, portal.call takes others"
            )

    under_asyncio(main)


def test_it_is_for_trio_only(under_asyncio):
    async def main():
        async with open_portal() as portal:
            with pytest.raises(PortalError) as caught:
                await portal.run_asyncio(asyncio.sleep, 0)
            assert str(caught.value) == "run_asyncio() is for functions of trio; here, await sleep() itself"

    under_asyncio(main)


@pytest.mark.parametrize("close", [True, False], ids=["closed", "stopped"])
def test_a_loop_that_has_ended_is_an_error_and_holds_up_nobody(close):
    """The portal is in use from a second loop, or ends with the program, after its own loop has gone."""
    loop = asyncio.new_event_loop()
    opened = open_portal()
    portal = loop.run_until_complete(opened.__aenter__())
    if close:
        loop.close()

    async def main():
        for _ in range(2):
            with pytest.raises(PortalError) as caught:
                await portal.run(portal.run_asyncio, asyncio.sleep, 0)
            assert str(caught.value) == "sleep was cancelled in asyncio, or its loop has ended"

    asyncio.run(main())
    portal._thread._end_and_join()
    loop.close()

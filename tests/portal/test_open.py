"""What is opened in trio for the length of a block of asyncio: hosts and agents above all."""

import asyncio
import threading
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress

import pytest
import trio

from creche import AgentSpec, FunctionModel, InternalError, open_host, open_portal, say
from creche.errors import PortalError, ScopeClosedError
from creche.testing import check_log


def hello(request):
    return [say(f"hello, {request.last_user_text}")]


@asynccontextmanager
async def noted(events, value="value"):
    """Note when it is entered and left, in which task of trio, and with which error."""
    task = trio.lowlevel.current_task()
    events.append("in")
    try:
        yield value
    except BaseException as error:
        events.append(f"out with {error!r}")
        raise
    else:
        events.append("out")
    finally:
        assert trio.lowlevel.current_task() is task


def test_a_host_and_an_agent_live_as_long_as_their_blocks(under_asyncio):
    async def main():
        async with open_portal() as portal, portal.open(open_host(model=FunctionModel(hello))) as host:
            async with portal.open(host.open_agent(AgentSpec("lead"))) as lead:
                assert (await portal.run(lead.ask, "Ada")).text == "hello, Ada"
                assert list(host.agents.values()) == [lead]
            assert lead.is_closed
            assert not host.agents
            check_log(lead.session)

    under_asyncio(main)


def test_it_is_entered_and_left_in_one_task_of_trio(under_asyncio):
    events = []

    async def main():
        async with open_portal() as portal, portal.open(noted(events)) as value:
            assert (value, events) == ("value", ["in"])
        assert events == ["in", "out"]

    under_asyncio(main)


def test_a_plain_context_manager_is_entered_and_left_in_trio(under_asyncio):
    events = []

    @contextmanager
    def plainly():
        task = trio.lowlevel.current_task()
        events.append("in")
        try:
            yield "value"
        except ValueError as error:
            events.append(f"out with {error!r}")
            raise
        else:
            events.append("out")
        finally:
            assert trio.lowlevel.current_task() is task

    async def main():
        async with open_portal() as portal:
            async with portal.open(plainly()) as value:
                assert (value, events) == ("value", ["in"])
            with pytest.raises(ValueError, match=r"^mine$"):
                async with portal.open(plainly()):
                    raise ValueError("mine")
        assert events == ["in", "out", "in", "out with ValueError('mine')"]

    under_asyncio(main)


def test_what_does_not_open_for_a_block_is_refused_with_what_to_write(under_asyncio):
    async def main():
        async with open_portal() as portal:
            with pytest.raises(TypeError) as caught:
                async with portal.open(open_host):
                    pytest.fail("it is open")
            assert str(caught.value) == (
                "portal.open takes what opens for a block, as open_host(...) does, and 'open_host' is none; call it"
            )
            with pytest.raises(TypeError) as caught:
                async with portal.stream(4):
                    pytest.fail("it is open")
            assert str(caught.value) == (
                "portal.stream takes what opens for a block, as agent.stream(...) does, and 4 is none"
            )

    under_asyncio(main)


def test_a_block_may_be_left_in_another_task_than_it_was_entered(under_asyncio):
    """As in a notebook, where each cell is a task."""
    events = []

    async def main():
        stack = AsyncExitStack()

        async def enter():
            portal = await stack.enter_async_context(open_portal())
            await stack.enter_async_context(portal.open(noted(events)))
            return portal

        portal = await asyncio.create_task(enter())
        assert await asyncio.create_task(portal.call(len, "abc")) == 3
        await asyncio.create_task(stack.aclose())
        assert events == ["in", "out"]

    under_asyncio(main)


def test_an_error_of_the_block_goes_through_the_manager_and_comes_out_as_itself(under_asyncio):
    events = []
    error = ValueError("mine")

    async def main():
        async with open_portal() as portal:
            with pytest.raises(ValueError, match="mine") as caught:
                async with portal.open(noted(events)):
                    raise error
            assert caught.value is error
            assert events == ["in", "out with ValueError('mine')"]
            with pytest.raises(ValueError, match="mine") as caught:
                async with portal.open(open_host(model=FunctionModel(hello))):
                    raise error
            assert caught.value is error

    under_asyncio(main)


def test_a_manager_may_take_the_error_of_the_block_or_raise_another(under_asyncio):
    @asynccontextmanager
    async def take():
        with suppress(ValueError):
            yield

    @asynccontextmanager
    async def translate():
        try:
            yield
        except ValueError as error:
            raise OSError("theirs") from error

    async def main():
        async with open_portal() as portal:
            async with portal.open(take()):
                raise ValueError("mine")
            with pytest.raises(OSError, match="theirs"):
                async with portal.open(translate()):
                    raise ValueError("mine")

    under_asyncio(main)


@pytest.mark.parametrize("is_stream", [False, True])
def test_an_error_of_the_block_is_not_lost_when_what_was_opened_has_ended_before(under_asyncio, is_stream):
    """Rule: a manager takes only what it was given."""
    ended = threading.Event()

    @asynccontextmanager
    async def soon():
        with trio.CancelScope() as scope:
            scope.cancel()
            yield nothing()
        ended.set()

    async def main():
        async with open_portal() as portal:
            opening = portal.stream if is_stream else portal.open

            async def block(error):
                async with opening(soon()):
                    await asyncio.to_thread(ended.wait)
                    if error is not None:
                        raise error
                    await asyncio.Event().wait()

            with pytest.raises(ValueError, match="mine"):
                await block(ValueError("mine"))
            task = asyncio.ensure_future(block(None))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    async def nothing():
        return
        yield

    under_asyncio(main)


@asynccontextmanager
async def nursery():
    async with trio.open_nursery() as opened:
        yield opened


def test_a_block_around_a_nursery_is_cancelled_as_any_other(under_asyncio):
    async def main():
        async with open_portal() as portal:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0), portal.open(nursery()):
                    await asyncio.Event().wait()

            async def block():
                async with portal.open(nursery()):
                    inside.set()
                    await asyncio.Event().wait()

            inside = asyncio.Event()
            task = asyncio.ensure_future(block())
            await inside.wait()
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()

    under_asyncio(main)


def test_a_generator_that_stands_in_a_nursery_can_be_closed(under_asyncio):
    async def main():
        async with open_portal() as portal:

            async def numbers():
                async with portal.open(nursery()):
                    yield 1

            generator = numbers()
            assert await anext(generator) == 1
            await generator.aclose()

    under_asyncio(main)


def test_errors_of_a_nursery_come_out_in_a_group_with_that_of_the_block(under_asyncio):
    async def fail_at_the_end():
        try:
            await trio.sleep_forever()
        finally:
            raise OSError("theirs")

    async def main():
        async with open_portal() as portal:
            with pytest.raises(ExceptionGroup) as caught:
                async with portal.open(nursery()):
                    raise ValueError("mine")
            assert [str(each) for each in caught.value.exceptions] == ["mine"]

            async def block():
                async with portal.open(nursery()) as opened:
                    await portal.call(opened.start_soon, fail_at_the_end)
                    inside.set()
                    await asyncio.Event().wait()

            inside = asyncio.Event()
            task = asyncio.ensure_future(block())
            await inside.wait()
            task.cancel()
            with pytest.raises(BaseExceptionGroup) as caught:
                await task
            kinds = {type(each) for each in caught.value.exceptions}
            assert kinds == {asyncio.CancelledError, OSError}

    under_asyncio(main)


def test_an_error_or_a_cancellation_of_the_block_comes_out_when_the_portal_was_closed_before(under_asyncio):
    async def main():
        async def block(portal, inside):
            async with portal.open(noted([])):
                inside.set()
                await asyncio.Event().wait()

        async with AsyncExitStack() as stack:
            portal = await stack.enter_async_context(open_portal())
            inside = asyncio.Event()
            task = asyncio.ensure_future(block(portal, inside))
            await inside.wait()

            async def fail():
                async with portal.open(noted([])):
                    await stack.aclose()
                    raise ValueError("mine")

            with pytest.raises(ValueError, match="mine"):
                await fail()
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()

    under_asyncio(main)


def test_what_cannot_be_opened_raises_at_the_door(under_asyncio):
    @asynccontextmanager
    async def closed():
        raise OSError("no")
        yield

    async def main():
        async with open_portal() as portal:
            with pytest.raises(OSError, match="no"):
                async with portal.open(closed()):
                    pytest.fail("it is open")

    under_asyncio(main)


def test_a_block_that_is_cancelled_at_the_door_leaves_nothing_behind(under_asyncio):
    events = []

    @asynccontextmanager
    async def slow():
        events.append("in")
        try:
            begun.set()
            await trio.sleep_forever()
            yield
        finally:
            events.append("out")

    begun = threading.Event()

    async def main():
        async with open_portal() as portal:

            async def block():
                async with portal.open(slow()):
                    pytest.fail("it is open")

            task = asyncio.ensure_future(block())
            await asyncio.to_thread(begun.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert events == ["in", "out"]

    under_asyncio(main)


def test_a_cancelled_block_is_left_in_trio_first(under_asyncio):
    events = []

    async def main():
        async with open_portal() as portal:

            async def block():
                async with portal.open(noted(events)):
                    inside.set()
                    await asyncio.Event().wait()

            inside = asyncio.Event()
            task = asyncio.ensure_future(block())
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert events == ["in", "out with CancelledError()"]

    under_asyncio(main)


def test_a_slow_exit_is_cancelled_with_its_task(under_asyncio):
    @asynccontextmanager
    async def slow():
        try:
            yield
        finally:
            leaving.set()
            await trio.sleep_forever()

    leaving = threading.Event()

    async def main():
        async with open_portal() as portal:

            async def block():
                async with portal.open(slow()):
                    pass

            task = asyncio.ensure_future(block())
            await asyncio.to_thread(leaving.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    under_asyncio(main)


def test_a_host_that_crashes_fails_what_uses_it_and_is_raised_at_the_end(under_asyncio):
    bug = RuntimeError("a bug")

    async def crash():
        raise bug

    async def main():
        async with open_portal() as portal:
            opened = portal.open(open_host(model=FunctionModel(hello)))
            host = await opened.__aenter__()
            lead = await portal.run(host.start_agent, AgentSpec("lead"))
            await portal.call(host._nursery.start_soon, crash)
            await portal.run(closed, lead)
            with pytest.raises(ScopeClosedError) as late:
                async with portal.open(host.open_agent(AgentSpec("other"))):
                    pytest.fail("it is open")
            assert str(late.value) == "the host closes, so agent 'other' cannot be opened"
            with pytest.raises(InternalError) as caught:
                await opened.__aexit__(None, None, None)
            assert str(caught.value) == "a task of the host crashed: RuntimeError('a bug')"
            assert caught.value.__cause__ is bug
            check_log(lead.session)

    async def closed(agent):
        await agent.aclose()

    under_asyncio(main)


def test_the_end_of_the_portal_ends_a_host_that_is_open_elsewhere(under_asyncio):
    async def main():
        async with open_portal() as portal:
            stack = AsyncExitStack()
            host = await stack.enter_async_context(portal.open(open_host(model=FunctionModel(hello))))
            lead = await stack.enter_async_context(portal.open(host.open_agent(AgentSpec("lead"))))
            assert (await portal.run(lead.ask, "Ada")).text == "hello, Ada"
        assert lead.is_closed
        check_log(lead.session)
        with pytest.raises(PortalError) as caught:
            await stack.aclose()
        assert str(caught.value) == "Host.open_agent did not come to its end, because the portal was closed"

    under_asyncio(main)


def test_a_block_that_nobody_leaves_is_left_with_its_loop():
    """Rule: nothing outlives the loop, when that ends as `asyncio.run` ends one."""
    events = []
    kept = []

    async def main():
        stack = AsyncExitStack()
        kept.append(stack)
        portal = await stack.enter_async_context(open_portal())
        host = await stack.enter_async_context(portal.open(open_host(model=FunctionModel(hello))))
        lead = await stack.enter_async_context(portal.open(host.open_agent(AgentSpec("lead"))))
        await stack.enter_async_context(portal.open(noted(events)))
        kept.append(asyncio.ensure_future(portal.run(trio.sleep_forever)))
        return lead

    lead = asyncio.run(main())
    assert lead.is_closed
    check_log(lead.session)
    assert events[0] == "in"
    assert len(events) == 2
    assert "creche portal" not in [thread.name for thread in threading.enumerate()]

"""Calls from asyncio to trio: what comes back, where it runs, and how it ends."""

import asyncio
import contextlib
import contextvars
import threading
from functools import partial

import outcome
import pytest
import trio

from creche import InternalError, open_portal
from creche.errors import PortalError
from creche.portal._trio_thread import TrioThread

NAME = contextvars.ContextVar("NAME", default="nobody")


async def double(number, *, plus=0):
    await trio.lowlevel.checkpoint()
    return number * 2 + plus


# ---------------------------------------------------------------- calls


def test_a_call_returns_what_the_function_returns(under_asyncio):
    async def main():
        async with open_portal() as portal:
            assert await portal.run(double, 4) == 8
            assert await portal.run(partial(double, plus=1), 4) == 9

    under_asyncio(main)


def test_trio_runs_in_a_thread_of_its_own_and_asyncio_goes_on(under_asyncio, portal_threads):
    async def main():
        async with open_portal() as portal:
            waits = asyncio.ensure_future(portal.run(trio.sleep_forever))
            assert await portal.call(threading.get_ident) != threading.get_ident()
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits
        assert not portal_threads()

    under_asyncio(main)


def test_a_cancellation_that_was_kept_is_an_error_of_the_call(under_asyncio):
    """Rule: it says so, and not that the portal was closed; other calls go on."""

    async def keep():
        with trio.CancelScope() as cancel_scope:
            cancel_scope.cancel()
            kept = await outcome.acapture(trio.lowlevel.checkpoint)
        kept.unwrap()

    async def main():
        async with open_portal() as portal:
            with pytest.raises(
                RuntimeError, match=r"keep raised a trio.Cancelled that it had kept, and nothing cancels it now$"
            ):
                await portal.run(keep)
            assert await portal.run(double, 4) == 8

    under_asyncio(main)


def test_an_error_comes_out_as_itself(under_asyncio):
    error = ValueError("mine")

    async def fail():
        await trio.lowlevel.checkpoint()
        raise error

    async def main():
        async with open_portal() as portal:
            with pytest.raises(ValueError, match="mine") as caught:
                await portal.run(fail)
            assert caught.value is error
            assert await portal.run(double, 1) == 2

    under_asyncio(main)


@pytest.mark.parametrize("end", [SystemExit("out"), KeyboardInterrupt(), GeneratorExit()])
def test_what_is_not_for_others_comes_out_too(under_asyncio, end):
    """Rule: whatever a function raises is its caller's, and the portal goes on."""

    async def fail():
        await trio.lowlevel.checkpoint()
        raise end

    async def main():
        async with open_portal() as portal:
            try:
                await portal.run(fail)
            except type(end) as caught:
                assert caught is end  # noqa: PT017 - pytest.raises would let some of these through
            else:
                pytest.fail("it was swallowed")
            assert await portal.run(double, 1) == 2

    under_asyncio(main)


def test_a_function_runs_in_the_task_context_of_its_caller(under_asyncio):
    async def look_and_change():
        seen = NAME.get()
        NAME.set("somebody else")
        return seen

    async def main():
        async with open_portal() as portal:

            async def one(who):
                NAME.set(who)
                return await portal.run(look_and_change), await portal.call(NAME.get), NAME.get()

            assert await asyncio.gather(one("ada"), one("bob")) == [("ada",) * 3, ("bob",) * 3]
            assert await portal.run(look_and_change) == "nobody"

    under_asyncio(main)


def test_a_thousand_calls_run_at_once(under_asyncio):
    async def main():
        async with open_portal() as portal:
            all_here, count = trio.Event(), 0

            async def meet(number):
                nonlocal count
                count += 1
                if count == 1000:
                    all_here.set()
                await all_here.wait()
                return number

            assert await asyncio.gather(*[portal.run(meet, number) for number in range(1000)]) == list(range(1000))

    under_asyncio(main)


def test_a_portal_can_be_used_from_another_loop(under_asyncio):
    async def main():
        async with open_portal() as portal:
            assert await asyncio.to_thread(lambda: asyncio.run(portal.run(double, 4))) == 8

    under_asyncio(main)


def test_what_is_no_function_is_refused_with_what_to_write(under_asyncio):
    async def main():
        async with open_portal() as portal:
            with pytest.raises(TypeError) as caught:
                await portal.run(double(4))
            assert str(caught.value) == "portal.run takes a function and its arguments: double, ... and not double(...)"
            with pytest.raises(TypeError) as caught:
                await portal.call(4)
            assert str(caught.value) == "portal.call takes a function, and 4 is none"
            with pytest.raises(TypeError) as caught:
                await portal.run(len, "abc")
            assert str(caught.value) == (
                "portal.run takes an async function, and len is none; from asyncio, portal.call takes others"
            )
            with pytest.raises(TypeError) as caught:
                await portal.call(double, 4)
            assert str(caught.value) == "portal.call takes a plain function, and double is async; use portal.run"
            with pytest.raises(TypeError) as caught:
                await portal.call(partial(double, 4))
            assert str(caught.value) == "portal.call takes a plain function, and double is async; use portal.run"
            with pytest.raises(TypeError, match=r"is async; use portal\.run"):
                await portal.call(lambda: double(4))
            assert await portal.call(len, "abc") == 3

    under_asyncio(main)


# ---------------------------------------------------------------- cancellation


def test_a_cancelled_task_cancels_what_it_has_in_trio_and_waits_for_its_end(under_asyncio):
    said = []

    async def work(begun):
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.01)
            said.append("trio")

    async def main():
        async with open_portal() as portal:
            begun = threading.Event()
            task = asyncio.ensure_future(portal.run(work, begun))
            await asyncio.to_thread(begun.wait)
            task.cancel("enough")
            task.cancel("really")
            with pytest.raises(asyncio.CancelledError, match=r"^enough$"):
                await task
            said.append("asyncio")

    under_asyncio(main)
    assert said == ["trio", "asyncio"]


def test_a_task_that_is_cancelled_again_and_again_still_waits(under_asyncio):
    """What anyio does, and starlette with it when a client has gone."""
    over = False

    async def work(begun):
        nonlocal over
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.01)
            over = True

    async def main():
        async with open_portal() as portal:
            begun = threading.Event()
            task = asyncio.ensure_future(portal.run(work, begun))
            await asyncio.to_thread(begun.wait)
            while not task.done():
                task.cancel()
                await asyncio.sleep(0)
            assert over
            assert task.cancelled()

    under_asyncio(main)


def test_what_trio_raises_while_it_is_cancelled_comes_out(under_asyncio):
    async def work(begun):
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            raise OSError("could not clean up")

    async def in_a_nursery(begun):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work, begun)

    async def main():
        async with open_portal() as portal:
            for function, error in ((work, OSError), (in_a_nursery, ExceptionGroup)):
                begun = threading.Event()
                task = asyncio.ensure_future(portal.run(function, begun))
                await asyncio.to_thread(begun.wait)
                task.cancel()
                with pytest.raises(error) as caught:
                    await task
                leaves = getattr(caught.value, "exceptions", [caught.value])
                assert [repr(leaf) for leaf in leaves] == ["OSError('could not clean up')"]

    under_asyncio(main)


def test_a_result_that_comes_too_late_is_dropped(under_asyncio, cancel):
    async def work(begun):
        begun.set()
        with trio.CancelScope(shield=True):
            await trio.sleep(0.01)
        return "a result"

    async def main():
        async with open_portal() as portal:
            begun = threading.Event()
            task = asyncio.ensure_future(portal.run(work, begun))
            await asyncio.to_thread(begun.wait)
            await cancel(task)

    under_asyncio(main)


def test_a_deadline_of_asyncio_holds_in_trio(under_asyncio):
    async def main():
        async with open_portal() as portal:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await portal.run(trio.sleep_forever)
            async with asyncio.TaskGroup() as group:
                first = group.create_task(portal.run(double, 1))
                group.create_task(portal.run(double, 2))
            assert first.result() == 2

    under_asyncio(main)


# ---------------------------------------------------------------- the end


def test_the_end_of_the_portal_cancels_what_runs_and_says_so(under_asyncio):
    async def main():
        async with open_portal() as portal:
            begun = threading.Event()
            task = asyncio.ensure_future(portal.run(wait_with, begun))
            nested = asyncio.ensure_future(portal.run(wait_in_a_nursery))
            await asyncio.to_thread(begun.wait)
        for call, name in ((task, "wait_with"), (nested, "wait_in_a_nursery")):
            with pytest.raises(PortalError) as caught:
                await call
            assert str(caught.value) == f"{name} did not come to its end, because the portal was closed"
        with pytest.raises(PortalError) as caught:
            await portal.run(double, 1)
        assert str(caught.value) == "double cannot be run, because the portal is closed"

    async def wait_with(begun):
        begun.set()
        await trio.sleep_forever()

    async def wait_in_a_nursery():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(trio.sleep_forever)

    under_asyncio(main)


def test_an_error_of_the_block_comes_out_as_itself_and_ends_the_portal(under_asyncio, portal_threads):
    error = ValueError("mine")

    async def main():
        with pytest.raises(ValueError, match="mine") as caught:
            async with open_portal():
                raise error
        assert caught.value is error
        assert not portal_threads()

    under_asyncio(main)


def test_a_cancelled_block_ends_the_portal_before_it_is_left(under_asyncio, cancel, portal_threads):
    async def main():
        async def block():
            async with open_portal() as portal:
                inside.set()
                await portal.run(trio.sleep_forever)

        inside = asyncio.Event()
        task = asyncio.ensure_future(block())
        await inside.wait()
        await cancel(task)
        assert not portal_threads()

    under_asyncio(main)


def test_a_cancellation_while_the_portal_opens_or_closes_waits_for_its_end(under_asyncio, portal_threads):
    async def main():
        for ticks in range(6):

            async def block():
                async with open_portal():
                    pass

            task = asyncio.ensure_future(block())
            for _ in range(ticks):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            assert not portal_threads()

    under_asyncio(main)


def test_a_call_that_comes_while_the_portal_ends_is_told(under_asyncio):
    async def main():
        async with open_portal() as portal:
            blocked, go_on = threading.Event(), threading.Event()

            def block():
                blocked.set()
                go_on.wait()

            blocking = asyncio.ensure_future(portal.call(block))
            await asyncio.to_thread(blocked.wait)
            calls = [asyncio.ensure_future(portal.run(double, number)) for number in range(3)]
            await asyncio.sleep(0)  # they are on their way, and trio has not seen them
            portal._thread._begin_end()
            go_on.set()
        assert await blocking is None
        for call in calls:
            with pytest.raises(PortalError, match="double did not come to its end, because the portal was closed"):
                await call

    under_asyncio(main)


def test_trio_that_breaks_down_tells_who_waits_and_its_owner(under_asyncio, portal_threads):
    """Rule: nobody waits for what is lost. (It takes a bug to get there.)"""

    def fail():
        raise RuntimeError("a bug")

    async def break_down():
        trio.lowlevel.current_trio_token().run_sync_soon(fail)
        await trio.sleep_forever()

    async def main():
        async with open_portal() as portal:
            waiting = asyncio.ensure_future(portal.run(trio.sleep_forever))
            await portal.run(double, 1)
            for call in (portal.run(break_down), waiting):
                with pytest.raises(PortalError) as lost:
                    await call
                assert "did not come to its end" in str(lost.value)
            (thread,) = portal_threads()
            await asyncio.to_thread(thread.join)
            with pytest.raises(PortalError) as late:
                await portal.run(double, 1)
            assert isinstance(late.value.__cause__, trio.TrioInternalError)

    with pytest.raises(InternalError) as caught:
        under_asyncio(main)
    assert str(caught.value) == "trio broke down in a portal"
    assert isinstance(caught.value.__cause__, trio.TrioInternalError)


def test_a_call_that_trio_has_lost_is_told_when_it_ends(under_asyncio, monkeypatch):
    """As when trio breaks down so badly that no task gets to say how it came out."""

    async def lose(_thread, _call):
        lost.set()

    lost = threading.Event()
    monkeypatch.setattr(TrioThread, "_serve", lose)

    async def main():
        async with open_portal() as portal:
            call = asyncio.ensure_future(portal.run(double, 1))
            await asyncio.to_thread(lost.wait)
        with pytest.raises(PortalError) as caught:
            await call
        assert str(caught.value) == "double did not come to its end, because the portal was closed"

    under_asyncio(main)


def test_a_call_that_comes_just_as_trio_ends_is_told(under_asyncio, monkeypatch):
    """It was begun too late for those who end, and too early to be refused."""

    async def main():
        async with open_portal() as portal:
            thread = portal._thread

            class Calls(set):
                def add(self, call):
                    thread._end_and_join()
                    super().add(call)

            await portal.run(double, 1)
            monkeypatch.setattr(thread, "_calls", Calls())
            with pytest.raises(PortalError, match="double did not come to its end, because the portal was closed"):
                await portal.run(double, 1)

    under_asyncio(main)


def test_trio_that_cannot_start_is_an_error(under_asyncio, monkeypatch, portal_threads):
    def fail(*_args, **_options):
        raise OSError("too many open files")

    monkeypatch.setattr(trio, "run", fail)

    async def main():
        with pytest.raises(InternalError) as caught:
            async with open_portal():
                pytest.fail("it is not open")
        assert repr(caught.value.__cause__) == "OSError('too many open files')"
        assert not portal_threads()

    under_asyncio(main)

"""Signals while a task of asyncio waits for trio."""

import asyncio
import os
import signal
import threading

import pytest
import trio

from creche import open_portal


@pytest.fixture
def usr1():
    """Let a test set a handler for SIGUSR1."""
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda handler: signal.signal(signal.SIGUSR1, handler)
    signal.signal(signal.SIGUSR1, before)


def wakeup_fd():
    fd = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(fd)
    return fd


async def signal_soon():
    """Send the signal when the loop of asyncio waits for nothing but this."""
    os.kill(os.getpid(), signal.SIGUSR1)
    await trio.sleep_forever()


def test_a_handler_that_asks_the_loop_for_something_is_heard_at_once(under_asyncio, usr1):
    """As that of Jupyter's kernel: it runs in the loop's thread, and does not wake it."""

    async def main():
        async with open_portal() as portal:
            task = asyncio.ensure_future(portal.run(signal_soon))
            usr1(lambda *_: asyncio.get_running_loop().call_soon(task.cancel))
            with pytest.raises(asyncio.CancelledError):
                await task
        assert wakeup_fd() == -1

    under_asyncio(main)


def test_who_is_woken_by_signals_already_stays_so(under_asyncio):
    async def main():
        loop = asyncio.get_running_loop()
        heard = asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR1, heard.set)
        before = wakeup_fd()
        async with open_portal() as portal:
            assert wakeup_fd() == before != -1
            waiting = asyncio.ensure_future(portal.run(signal_soon))
            await heard.wait()
            waiting.cancel()
        assert wakeup_fd() == before
        loop.remove_signal_handler(signal.SIGUSR1)

    under_asyncio(main)


def test_who_comes_later_is_left_alone(under_asyncio):
    async def main():
        loop = asyncio.get_running_loop()
        async with open_portal():
            loop.add_signal_handler(signal.SIGUSR1, int)
            later = wakeup_fd()
        assert wakeup_fd() == later
        loop.remove_signal_handler(signal.SIGUSR1)

    under_asyncio(main)


def test_a_loop_in_another_thread_has_no_signals(under_asyncio):
    def elsewhere():
        async def main():
            async with open_portal() as portal:
                return await portal.call(len, "abc")

        results.append(asyncio.run(main()))

    results = []
    before = wakeup_fd()
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert results == [3]
    assert wakeup_fd() == before

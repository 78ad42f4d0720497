"""A busy trio leaves asyncio its turn."""

import asyncio
import time

import pytest
import trio

from creche import open_portal
from creche.portal import _turns
from creche.portal._turns import TURN, Turns


class Clock:
    """What the module sees of time: seconds that pass only here, and the rests that were taken."""

    def __init__(self):
        self.now = 0.0
        self.rests = []

    def perf_counter(self):
        return self.now

    def sleep(self, seconds):
        self.rests.append(round(self.now, 6))


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(_turns, "time", clock := Clock())
    return clock


def test_trio_stands_back_after_a_turn_of_work(clock):
    turns = Turns()
    for _ in range(15):
        clock.now += 0.002
        turns.before_io_wait(0)
        turns.after_io_wait(0)
    assert clock.rests == [0.006, 0.012, 0.018, 0.024, 0.03]


def test_trio_that_waits_has_stood_back_already(clock):
    turns = Turns()
    for _ in range(30):
        clock.now += TURN * 0.9
        turns.before_io_wait(0)
        turns.before_io_wait(1)
        clock.now += 1
        turns.after_io_wait(1)
    assert clock.rests == []


def test_asyncio_goes_on_while_trio_has_work_without_end(under_asyncio):
    """Rule: a call comes back, and asyncio goes on, though trio never waits."""

    rounds = 0

    async def work(until):
        nonlocal rounds
        while not until.is_set():
            rounds += 1
            end = time.perf_counter() + 0.003
            while time.perf_counter() < end:
                pass
            await trio.lowlevel.checkpoint()

    async def main():
        until = trio.Event()
        longest = 0
        async with open_portal() as portal:
            working = asyncio.ensure_future(portal.run(work, until))
            for _ in range(100):
                before = rounds
                await portal.call(int)
                await asyncio.sleep(0)
                longest = max(longest, rounds - before)
            await portal.call(until.set)
            await working
        assert longest < 100, "it was seen to be some hundreds without a rest, and some few with it"

    under_asyncio(main)

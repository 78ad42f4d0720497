"""What the way from asyncio to trio costs: one JSON line a row.

    python tests/bench/portal.py

Medians, in microseconds where nothing else is said. The agent's model answers at once, so what is measured is ours. The
last rows say how late one of the two is while the other does not let go of its thread for 200 ms.
"""

import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count

import trio

from creche import AgentSpec, FunctionModel, Host, open_host, open_portal, say
from creche.portal import Portal

NAMES = count()


def tell(what: str, value: float, unit: str = "us") -> None:
    """Print a row."""
    print(json.dumps({"what": what, "value": round(value, 1), "unit": unit}))  # noqa: T201 - it is what it is for


async def nothing() -> None:
    """Do nothing, in trio."""


async def ask(host: Host) -> None:
    """Open an agent, ask it once, and close it."""
    async with host.open_agent(AgentSpec(f"agent-{next(NAMES)}")) as agent:
        await agent.ask("hi")


@asynccontextmanager
async def numbers(last: int) -> AsyncIterator[AsyncIterator[int]]:
    """Count, with a checkpoint before each number."""

    async def counting() -> AsyncIterator[int]:
        for number in range(last):
            await trio.lowlevel.checkpoint()
            yield number

    yield counting()


async def median(times: int, call: Callable[[], Awaitable[object]]) -> float:
    """Return how long a call takes, in microseconds."""
    took: list[float] = []
    for _ in range(times):
        begun = time.perf_counter()
        await call()
        took.append(time.perf_counter() - begun)
    return statistics.median(took) * 1e6


async def lateness(sleep: Callable[[float], Awaitable[object]]) -> float:
    """Return by how many milliseconds the latest of many short sleeps was late."""
    latest = 0.0
    for _ in range(60):
        begun = time.perf_counter()
        await sleep(0.005)
        latest = max(latest, time.perf_counter() - begun - 0.005)
    return latest * 1e3


def compute(seconds: float = 0.2) -> None:
    """Keep the thread busy."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


async def measure(portal: Portal, host: Host) -> None:
    """Print all rows."""
    tell("a call", await median(5000, lambda: portal.run(nothing)))
    tell("open an agent, ask and close it", await median(1000, lambda: portal.run(ask, host)))
    for what, call in {"calls": lambda: portal.run(nothing), "agents": lambda: portal.run(ask, host)}.items():
        begun = time.perf_counter()
        await asyncio.gather(*[call() for _ in range(1000)])
        tell(f"1,000 {what} at once", (time.perf_counter() - begun) * 1e3, "ms")
    begun = time.perf_counter()
    async with portal.stream(numbers(10_000)) as items:
        async for _ in items:
            pass
    tell("a stream of 10,000", (time.perf_counter() - begun) * 1e3, "ms")
    late = asyncio.ensure_future(portal.run(lateness, trio.sleep))
    await asyncio.sleep(0.1)
    compute()
    tell("trio is late while asyncio computes", await late, "ms")
    late = asyncio.ensure_future(lateness(asyncio.sleep))
    await asyncio.sleep(0.1)
    await portal.call(compute)
    tell("asyncio is late while trio computes", await late, "ms")


async def main() -> None:
    """Open what is measured."""
    model = FunctionModel(lambda _: [say("hi")])
    async with open_portal() as portal, portal.open(open_host(model=model)) as host:
        await measure(portal, host)


if __name__ == "__main__":
    asyncio.run(main())

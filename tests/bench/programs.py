"""What a call costs from a program, beside what it costs in native mode: in one process and one run.

    python tests/bench/programs.py [CALLS]

The tool returns its argument at once, in the loop. The model answers at once: a function, so that what is measured is
all ours and a request costs almost nothing, and a mock provider behind a real socket, where it costs what a client of
HTTP does. One JSON line a way to make the calls, in milliseconds for all of them, the best of three.
"""

import json
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import trio

from creche import AgentSpec, FunctionModel, call, open_host, say, tool
from creche.agent import Agent
from creche.codemode import BubblewrapRuntime, CodeRuntime, MontyRuntime, code_mode
from creche.models import Model
from creche.models.adapters import OpenAIModel
from creche.testing import open_mock_provider

ROUNDS = 3
ONE_BY_ONE = "for number in range({calls}):\n    await tools.give(number=number)"
TOGETHER = "import asyncio\nawait asyncio.gather(*[tools.give(number=number) for number in range({calls})])"


@tool(inline=True, parallel=True)
def give(number: int) -> int:
    """Give a number back."""
    return number


@asynccontextmanager
async def agent_that(answers: Sequence[Any], runtime: CodeRuntime | None, *, over_http: bool) -> AsyncIterator[Agent]:
    """Open an agent that gives these answers, one a step, in each turn."""
    given: Iterator[Any] = iter(())

    def answer(request: Any) -> Any:
        nonlocal given
        last = request.json["messages"][-1]["role"] if over_http else request.messages[-1].role
        if last == "user":
            given = iter([*answers, [say("done")]])
        return next(given)

    plugins = [] if runtime is None else [code_mode(runtime)]
    spec = AgentSpec("lead", tools=[give], present_as="native" if runtime is None else "code")
    async with AsyncExitStack() as stack:
        model: Model = FunctionModel(answer)
        if over_http:
            mock = await stack.enter_async_context(open_mock_provider(answer))
            model = OpenAIModel("mock", base_url=mock.openai_url, api_key="none")
        host = await stack.enter_async_context(open_host(model=model, plugins=plugins))
        yield await stack.enter_async_context(host.open_agent(spec))


async def measure(
    name: str, answers: Sequence[Any], runtime: CodeRuntime | None = None, *, over_http: bool = False
) -> None:
    """Print what a turn with these answers takes."""
    took: list[float] = []
    async with agent_that(answers, runtime, over_http=over_http) as lead:
        await lead.ask("Warm up.")
        for _ in range(ROUNDS):
            began = time.perf_counter()
            await lead.ask("Go.")
            took.append(time.perf_counter() - began)
    what = f"{name}, over HTTP" if over_http else name
    print(json.dumps({"what": what, "ms": round(min(took) * 1000, 1)}), flush=True)  # noqa: T201 - its output


async def main(calls: int) -> None:
    """Measure every way."""
    steps = [[call("give", number=number)] for number in range(calls)]
    for over_http in (False, True):
        await measure(f"native: {calls} steps of a call", steps, over_http=over_http)
        together = [[each for step in steps for each in step]]
        await measure(f"native: a step of {calls} calls", together, over_http=over_http)
        for runtime in (MontyRuntime(), BubblewrapRuntime()):
            for how, program in (("one by one", ONE_BY_ONE), ("together", TOGETHER)):
                answer = [call("run_code", code=program.format(calls=calls), description=how)]
                name = f"{runtime.name}: a program of {calls} calls, {how}"
                await measure(name, [answer], runtime, over_http=over_http)
    for runtime in (MontyRuntime(), BubblewrapRuntime()):
        answer = [call("run_code", code="pass", description="nothing")]
        await measure(f"{runtime.name}: a program that does nothing", [answer], runtime)


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else 100)

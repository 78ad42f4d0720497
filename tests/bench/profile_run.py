"""Where a run spends its time: cProfile of the row `run`, the top lines by own time.

    python tests/bench/profile_run.py [--opened] [--lines 25] [--runs 2000]

The profiler makes everything several times slower, and small functions most, so read it for its order and its counts,
not for its microseconds.
"""

import argparse
import cProfile
import io
import pstats
from pathlib import Path

import trio
from workloads import call_once, furnish

import creche
from creche import AgentSpec, FunctionModel, open_host


async def profile(runs: int, *, opened: bool) -> cProfile.Profile:
    """Profile runs on a live agent, or with an agent opened and closed for each."""
    profiler = cProfile.Profile()
    async with open_host(model=FunctionModel(call_once)) as host, host.open_agent(AgentSpec("live")) as agent:
        furnish(host)

        async def many(number: int) -> None:
            for _ in range(number):
                if opened:
                    async with host.open_agent(AgentSpec("a")) as other:
                        await other.ask("hi")
                else:
                    await agent.ask("hi")

        await many(200)
        profiler.enable()
        await many(runs)
        profiler.disable()
    return profiler


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--opened", action="store_true", help="open and close an agent for each run")
    parser.add_argument("--lines", type=int, default=25)
    parser.add_argument("--runs", type=int, default=2000)
    options = parser.parse_args()
    text = io.StringIO()
    stats = pstats.Stats(trio.run(_profile, options), stream=text)
    stats.sort_stats("tottime").print_stats(options.lines)
    source = Path(creche.__file__).parent
    calls = stats.total_calls / options.runs  # type: ignore[attr-defined]  # typeshed does not know it
    print(f"{calls:.0f} function calls a run, over {options.runs} runs")  # noqa: T201 - a program's output
    print(text.getvalue().replace(f"{source}/", "creche/"))  # noqa: T201 - a program's output


async def _profile(options: argparse.Namespace) -> cProfile.Profile:
    return await profile(options.runs, opened=options.opened)


if __name__ == "__main__":
    main()

"""The workloads of docs/explanation/speed.md: one a call, one JSON line.

    python tests/bench/workloads.py WORKLOAD [N]

Public API only. The garbage collector stays at its defaults; it is called by hand only where memory is read, never
inside what is timed. Models are functions, so all of what is measured is the framework (and trio).

``value`` is on the wall clock, ``cpu`` is the best processor time of the same work: where others use the machine, the
first grows with them and the second hardly does.
"""

import gc
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Self

import attrs
import trio

from creche import (
    Agent,
    AgentSpec,
    FunctionModel,
    Host,
    Tool,
    TurnCancelled,
    call,
    delegation,
    open_host,
    say,
    spawn,
    tool,
)
from creche.models import ModelRequest
from creche.prompt import (
    AssembleContext,
    RuntimeContext,
    Section,
    Variable,
    assemble,
    render_context_sections,
    render_prompt,
)
from creche.scope import Notification, Registry, ScopeKey, bind_scope_parent
from creche.session import JsonlStore, SessionHeader

LATENCY = 0.05
"""Seconds that a model call takes in the fan-outs."""

BLOCKS = 9
"""How many stretches a row of short runs is timed in."""

Result = dict[str, object]


class Clock:
    """What a block took, in seconds: on the wall and of the processor."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        """Begin, or begin anew."""
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def __exit__(self, *_error: object) -> None:
        self.cpu = time.process_time() - self._cpu
        self.wall = time.perf_counter() - self._wall


# ---------------------------------------------------------------- what the agents are given


def adders(*, inline: bool = True) -> list[Tool]:
    """Return ten tools; the bodies of sync functions run in a thread unless they are inline."""
    made = []
    for number in range(10):

        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        made.append(tool(name=f"tool_{number}", inline=inline)(add))
    return made


def furnish(host: Host, *, inline: bool = True) -> None:
    """Register twenty sections and ten tools globally."""
    for number in range(20):
        host.registrar.add(Section(f"s{number}", order=200 + number, text=f"Section {number}."))
    for each in adders(inline=inline):
        host.registrar.add(each)


def call_once(request: ModelRequest) -> list[object]:
    """Answer a turn with one tool call, then with the end."""
    last = request.messages[-1]
    return [say("done")] if last.role == "tool" else [call("tool_0", a=1, b=1)]


async def median_of_blocks(once: Callable[[], Awaitable[object]], n: int) -> Result:
    """Time n runs in stretches; what the garbage collector takes is inside them."""
    for _ in range(20):
        await once()
    each = max(1, n // BLOCKS)
    clocks = []
    for _ in range(BLOCKS):
        with Clock() as clock:
            for _ in range(each):
                await once()
        clocks.append(clock)
    micros = [clock.wall / each * 1e6 for clock in clocks]
    return {
        "value": statistics.median(micros),
        "unit": "µs",
        "how": f"median of {BLOCKS} stretches of {each}",
        "best": min(micros),
        "worst": max(micros),
        "cpu": min(clock.cpu for clock in clocks) / each * 1e6,
    }


# ---------------------------------------------------------------- single runs


async def run(n: int, *, inline: bool = True, store: JsonlStore | None = None) -> Result:
    """Ask a live agent; its history grows by four messages a run."""
    async with (
        open_host(model=FunctionModel(call_once), store=store) as host,
        host.open_agent(AgentSpec("a")) as agent,
    ):
        furnish(host, inline=inline)
        return await median_of_blocks(partial(agent.ask, "hi"), n)


async def run_disk(n: int, *, fsync: bool = True) -> Result:
    """Ask a live agent whose log is on disk, durable before each request."""
    with tempfile.TemporaryDirectory(dir=disk_folder()) as folder:
        result = await run(n, store=JsonlStore(folder, fsync=fsync))
        return {**result, "fsync_µs": fsync_micros(folder)}


async def run_opened(n: int, *, inline: bool = True) -> Result:
    """Open an agent, ask it, close it."""
    async with open_host(model=FunctionModel(call_once)) as host:
        furnish(host, inline=inline)

        async def once() -> None:
            async with host.open_agent(AgentSpec("a")) as agent:
                await agent.ask("hi")

        return await median_of_blocks(once, n)


async def run_spawn(n: int) -> Result:
    """Spawn a child from a program, one after another."""
    async with (
        open_host(model=FunctionModel(call_once)) as host,
        host.open_agent(AgentSpec("lead")) as lead,
    ):
        furnish(host)

        async def once() -> None:
            result = await spawn(lead, "hi")
            assert result.outcome == "done", result

        return await median_of_blocks(once, n)


def disk_folder() -> str:
    """Return where files are written: $BENCH_DISK, or the folder for temporary files."""
    return os.environ.get("BENCH_DISK", tempfile.gettempdir())


def fsync_micros(folder: str) -> float:
    """Return what writing and syncing 4 KB costs there."""
    with (Path(folder) / "probe").open("wb", buffering=0) as probe:
        micros = []
        for _ in range(200):
            begun = time.perf_counter()
            probe.write(b"x" * 4096)
            os.fsync(probe.fileno())
            micros.append((time.perf_counter() - begun) * 1e6)
    return statistics.median(micros)


# ---------------------------------------------------------------- many at once


def delegate_all(n: int) -> FunctionModel:
    """Answer the lead with n calls of `subagent`; each child makes one tool call between two waits."""

    async def answer(request: ModelRequest) -> list[object]:
        if request.agent_path == "lead":
            if request.last_tool_text:
                return [say("done")]
            return [call("subagent", description=f"t{i}", prompt=f"t{i}") for i in range(n)]
        await trio.sleep(LATENCY)
        return call_once(request)

    return FunctionModel(answer)


def best_of(clocks: list[Clock]) -> Result:
    """Return the best of several fan-outs."""
    seconds = [clock.wall for clock in clocks]
    return {
        "value": min(seconds),
        "unit": "s",
        "how": f"best of {len(seconds)}",
        "all": seconds,
        "cpu": min(clock.cpu for clock in clocks),
    }


async def fanout(n: int, *, inline: bool = True, store: JsonlStore | None = None) -> Result:
    """Have a lead delegate to n children at once, all with the same view."""
    clocks = []
    async with open_host(model=delegate_all(n), plugins=[delegation()], store=store) as host:
        furnish(host, inline=inline)
        for _ in range(3):
            async with host.open_agent(AgentSpec("lead")) as lead:
                with Clock() as clock:
                    reply = await lead.ask("go")
            clocks.append(clock)
            assert reply.usage_tree.requests == 2 * n + 2, reply.usage_tree
    return best_of(clocks)


async def fanout_disk(n: int, *, fsync: bool = True) -> Result:
    """Do the same with the log on disk: one file for the lead and all its children."""
    with tempfile.TemporaryDirectory(dir=disk_folder()) as folder:
        result = await fanout(n, store=JsonlStore(folder, fsync=fsync))
        return {**result, "fsync_µs": fsync_micros(folder)}


async def fanout_persona(n: int) -> Result:
    """Spawn n children from a program, each with a persona of its own."""

    async def answer(request: ModelRequest) -> list[object]:
        await trio.sleep(LATENCY)
        return call_once(request)

    async def one(lead: Agent, number: int) -> None:
        result = await spawn(lead, f"t{number}", persona=f"You are number {number}.")
        assert result.outcome == "done", result

    clocks = []
    async with open_host(model=FunctionModel(answer)) as host:
        furnish(host)
        for _ in range(3):
            async with host.open_agent(AgentSpec("lead")) as lead:
                with Clock() as clock:
                    async with trio.open_nursery() as nursery:
                        for number in range(n):
                            nursery.start_soon(one, lead, number)
            clocks.append(clock)
    return best_of(clocks)


async def fanout_bare(n: int) -> Result:
    """Sleep twice in n trio tasks, which is what no framework can go below."""

    async def one() -> None:
        await trio.sleep(LATENCY)
        await trio.sleep(LATENCY)

    clocks = []
    for _ in range(3):
        with Clock() as clock:
            async with trio.open_nursery() as nursery:
                for _ in range(n):
                    nursery.start_soon(one)
        clocks.append(clock)
    return best_of(clocks)


async def cancel(n: int) -> Result:
    """Cancel a lead with n children that wait for their models, and wait until nothing of them is left."""
    waiting = 0
    all_wait = trio.Event()

    async def answer(request: ModelRequest) -> list[object]:
        nonlocal waiting
        if request.agent_path == "lead":
            return [call("subagent", description=f"t{i}", prompt=f"t{i}") for i in range(n)]
        waiting += 1
        if waiting == n:
            all_wait.set()
        await trio.sleep_forever()
        return []

    async def ask(lead: Agent) -> None:
        try:
            await lead.ask("go")
        except TurnCancelled:
            return
        raise AssertionError("it was not cancelled")

    clocks = []
    async with open_host(model=FunctionModel(answer), plugins=[delegation()]) as host:
        furnish(host)
        for _ in range(3):
            waiting, all_wait = 0, trio.Event()
            async with host.open_agent(AgentSpec("lead")) as lead:
                with Clock() as clock:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(ask, lead)
                        await all_wait.wait()
                        clock.start()
                        lead.cancel()
                clocks.append(clock)
                assert len(host.agents) == 1
                assert len(lead.session.tool_results()) == n
    return best_of(clocks)


async def agents(n: int) -> Result:
    """Start n agents with a persona each, ask each of them once, and keep them."""
    async with open_host(model=FunctionModel(call_once)) as host:
        furnish(host)
        async with host.open_agent(AgentSpec("warm-up")) as first:
            await first.ask("hi")
        gc.collect()
        before, tracked = resident_bytes(), len(gc.get_objects())
        with Clock() as starting:
            live = [await host.start_agent(AgentSpec(f"a{i}", persona=f"You are number {i}.")) for i in range(n)]
        with Clock() as asking:
            for agent in live:
                await agent.ask("hi")
        gc.collect()
        kilobytes = (resident_bytes() - before) / n / 1024
        tracked = len(gc.get_objects()) - tracked
    return {
        "value": kilobytes,
        "unit": "KB an agent",
        "how": "growth of the resident set, once, after one run each",
        "seconds": starting.wall + asking.wall,
        "cpu": starting.cpu + asking.cpu,
        "tracked_objects": tracked / n,
    }


def resident_bytes() -> int:
    """Return the size of the resident set."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


# ---------------------------------------------------------------- one long turn


async def long(n: int, *, encode: bool = False) -> Result:
    """Run a turn of n steps and one of twice as many, five times; µs a step of the longer, and the ratio.

    Args:
      n: Steps of the shorter turn.
      encode: Whether the model asks for the canonical line of every message each step, as a real adapter does.
    """
    steps = taken = 0

    def answer(request: ModelRequest) -> list[object]:
        nonlocal taken
        taken += 1
        if encode:
            request.canonical_bytes()
        return [call("tool_0", a=1, b=1)] if taken <= steps else [say("done")]

    totals: dict[int, list[Clock]] = {n: [], 2 * n: []}
    async with open_host(model=FunctionModel(answer)) as host:
        furnish(host)
        async with host.open_agent(AgentSpec("warm-up")) as agent:
            await agent.ask("hi")
        for _ in range(5):
            for length, clocks in totals.items():
                steps, taken = length, 0
                async with host.open_agent(AgentSpec("a")) as agent:
                    with Clock() as clock:
                        await agent.ask("hi")
                clocks.append(clock)
                assert taken == length + 1
    shorter, longer = (statistics.median([each.wall for each in totals[k]]) / k * 1e6 for k in totals)
    cpu_shorter, cpu_longer = (min(each.cpu for each in totals[k]) / k * 1e6 for k in totals)
    return {
        "value": longer,
        "unit": "µs a step",
        "how": "median of 5 turns of each length, alternating",
        "shorter": shorter,
        "ratio": longer / shorter,
        "cpu": cpu_longer,
        "cpu_ratio": cpu_longer / cpu_shorter,
    }


async def one_turn(n: int) -> Result:
    """Run one turn of n steps in a fresh process, as the peers' programs do."""
    taken = 0

    def answer(request: ModelRequest) -> list[object]:
        nonlocal taken
        taken += 1
        return [call("tool_0", a=1, b=1)] if taken <= n else [say("done")]

    async with open_host(model=FunctionModel(answer)) as host, host.open_agent(AgentSpec("a")) as agent:
        furnish(host, inline=False)
        with Clock() as clock:
            await agent.ask("hi")
        return {"value": clock.wall / n * 1e6, "cpu": clock.cpu / n * 1e6, "unit": "µs a step", "how": "once"}


# ---------------------------------------------------------------- the kernel and the prompt

PARAMETERS = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "path"},
        "limit": {"type": "integer", "minimum": 0},
        "opts": {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "array", "items": {"type": "string"}}},
        },
    },
    "required": ["path"],
}


def chain(depth: int = 3) -> list[ScopeKey]:
    """Return keys, each bound under the one before."""
    keys = [ScopeKey(str(each)) for each in range(depth)]
    for parent, child in pairwise(keys):
        bind_scope_parent(child, parent)
    return keys


async def body(**_arguments: object) -> str:
    """Do nothing; what these tools do is not called."""
    return "done"


def dress(host: Host, tools: int) -> ScopeKey:
    """Register what the reference system's program does: 30 sections, 10 contexts, 5 variables, tools, depth 3."""
    pen = host.registrar
    for i in range(30):
        fixed = f"Section {i} uses {{{{v{i % 5}}}}} and more guidance text here."
        dynamic = f"Section {i} dynamic with {{{{v{i % 5}}}}} text."
        pen.add(Section(f"s{i}", order=100 + i, text=fixed if i % 2 else partial(_say, dynamic)))
    for i in range(10):
        pen.add(RuntimeContext(f"c{i}", order=100 + i, text=partial(_say, f"ctx {i}")))
    for i in range(5):
        pen.add(Variable(f"v{i}", partial(_say, f"value{i}")))
    for i in range(tools):
        pen.add(Tool(name=f"tool_{i}", description=f"does thing {i}", parameters=PARAMETERS, run=body))
    keys = chain()
    for depth, key in enumerate(keys):
        pen.at(key).add(Section(f"s{depth}", order=100 + depth, text=f"override at depth {depth}"))
    return keys[-1]


def _say(text: str, _context: AssembleContext) -> str:
    return text


async def assemble_and_render(registry: Registry, scope: ScopeKey) -> int:
    """Do what a step does with the prompt."""
    assembly = await assemble(registry, AssembleContext(scope=scope))
    return len(render_prompt(assembly)) + len(render_context_sections(assembly)) + len(assembly.tools)


async def assembling(n: int, *, tools: int = 20) -> Result:
    """Assemble and render while nothing changes."""
    async with open_host(persona="You are {{v0}}.") as host:
        leaf = dress(host, tools)
        for _ in range(1000):
            await assemble_and_render(host.registry, leaf)
        return await median_of_blocks(partial(assemble_and_render, host.registry, leaf), n)


async def assembling_after(n: int, *, tools: int = 20) -> Result:
    """Assemble and render after a registration in the own scope each time; the registration is not timed."""
    async with open_host(persona="You are {{v0}}.") as host:
        leaf = dress(host, tools)
        pen = host.registrar.at(leaf)
        clocks = []
        for number in range(n):
            registration = pen.add(Section("own", order=150, text=f"Change {number}."))
            with Clock() as clock:
                await assemble_and_render(host.registry, leaf)
            clocks.append(clock)
            registration.undo()
        return {
            "value": statistics.median([each.wall for each in clocks]) * 1e6,
            "unit": "µs",
            "how": f"median of {n}",
            "cpu": min(each.cpu for each in clocks) * 1e6,
        }


@attrs.frozen(eq=False)
class Ping(Notification):
    """Something happened."""

    wire_name = "bench/ping"
    number: int
    """Which."""


async def emitting(n: int, *, listeners: int = 100) -> Result:
    """Dispatch at depth 3 to global listeners; making the event is timed too."""
    heard = 0

    def hear(event: Ping) -> None:
        nonlocal heard
        heard += 1

    async with open_host() as host:
        leaf = chain()[-1]
        for _ in range(listeners):
            host.registrar.on(Ping, hear)

        async def once() -> None:
            for _ in range(100):
                host.registry.emit(Ping(1), at=leaf)

        result = await median_of_blocks(once, max(BLOCKS, n // 100))
    assert heard % 100 == 0
    return {**result, **{key: result[key] / 100 for key in ("value", "best", "worst", "cpu")}}  # type: ignore[operator]


async def forking(n: int, *, records: int = 100) -> Result:
    """Fork a session that has at least so many records."""
    async with open_host(model=FunctionModel(call_once)) as host, host.open_agent(AgentSpec("a")) as agent:
        while len(agent.session) < records:
            await agent.ask("hi")
        header = SessionHeader("child", path="a/child", created=time.time())

        async def once() -> None:
            for _ in range(100):
                agent.session.fork(header)

        result = await median_of_blocks(once, max(BLOCKS, n // 100))
        result |= {key: result[key] / 100 for key in ("value", "best", "worst", "cpu")}  # type: ignore[operator]
        return {**result, "records": len(agent.session)}


async def importing(n: int) -> Result:
    """Import trio, then creche, in processes of their own; the seconds that creche adds."""
    code = (
        "import time; a = time.perf_counter(); import trio; b = time.perf_counter(); c = time.process_time(); "
        "import creche; print(b - a, time.perf_counter() - b, time.process_time() - c)"
    )
    triples = []
    with tempfile.TemporaryDirectory() as cache:
        # As for a user: with bytecode, whatever this process was told about writing it.
        env = {**os.environ, "PYTHONPYCACHEPREFIX": cache, "PYTHONDONTWRITEBYTECODE": ""}
        for _ in range(n + 1):
            done = await trio.run_process([sys.executable, "-c", code], capture_stdout=True, env=env)
            triples.append([float(each) for each in done.stdout.split()])
    ours = [each[1] for each in triples[1:]]  # the first one compiled
    return {
        "value": statistics.median(ours),
        "unit": "s on top of trio",
        "how": f"median of {n} processes",
        "best": min(ours),
        "cpu": min(each[2] for each in triples[1:]),
        "trio": statistics.median([each[0] for each in triples[1:]]),
    }


WORKLOADS: dict[str, tuple[Callable[[int], Awaitable[Result]], int]] = {
    "run": (run, 4500),
    "run-opened": (run_opened, 4500),
    "run-threaded": (partial(run, inline=False), 2700),
    "run-opened-threaded": (partial(run_opened, inline=False), 2700),
    "run-disk": (run_disk, 900),
    "run-disk-unsynced": (partial(run_disk, fsync=False), 900),
    "spawn": (run_spawn, 4500),
    "fanout": (fanout, 1000),
    "fanout-persona": (fanout_persona, 1000),
    "fanout-threaded": (partial(fanout, inline=False), 1000),
    "fanout-disk": (fanout_disk, 1000),
    "fanout-disk-unsynced": (partial(fanout_disk, fsync=False), 1000),
    "fanout-bare": (fanout_bare, 1000),
    "cancel": (cancel, 1000),
    "agents": (agents, 10_000),
    "long": (long, 200),
    "long-encoded": (partial(long, encode=True), 200),
    "one-turn": (one_turn, 200),
    "assemble-20": (assembling, 4500),
    "assemble-100": (partial(assembling, tools=100), 4500),
    "assemble-20-changed": (assembling_after, 2000),
    "assemble-100-changed": (partial(assembling_after, tools=100), 2000),
    "emit-100": (emitting, 45_000),
    "emit-0": (partial(emitting, listeners=0), 450_000),
    "fork-100": (forking, 45_000),
    "fork-100000": (partial(forking, records=100_000), 45_000),
    "import": (importing, 10),
}
"""Name: what it runs, and its usual N."""


def main() -> None:
    """Run one workload and print its line."""
    if len(sys.argv) not in (2, 3) or sys.argv[1] not in WORKLOADS:
        sys.exit(f"usage: workloads.py WORKLOAD [N]\nworkloads: {' '.join(WORKLOADS)}")
    name = sys.argv[1]
    function, usual = WORKLOADS[name]
    n = int(sys.argv[2]) if len(sys.argv) == 3 else usual
    result = trio.run(function, n)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    line = {"workload": name, "n": n, **result, "peak_rss_mb": peak, "load": os.getloadavg()[0]}
    print(json.dumps(line, ensure_ascii=False, default=str))  # noqa: T201 - the line is what it is for


if __name__ == "__main__":
    main()

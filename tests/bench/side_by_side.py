"""creche and its peers on the same work, alternating, in one go; a table of best values and of ratios to creche.

    python tests/bench/side_by_side.py --peers-python /tmp/peers/bin/python --dsh /tmp/dsh [--rounds 2]

Each cell is a process of its own; a round runs every program once, and the best round counts. The peers' programs are
in `peers/`, with what they need in `peers/requirements.txt`. All four run the body of a sync tool in a thread, and begin
each run with an empty history, so the creche rows to compare with them are those that do the same; the rows marked "in
the loop" show what `inline=True` saves. `--dsh` is a folder in which the packages named in `peers/dsh_prompt_bench.mjs`
are installed.

With `--processor` every program counts processor time instead of the wall clock, so what others do on the machine, and
the waits of the fan-outs, are not in it.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PEERS = {"agno": "agno", "langgraph": "langgraph", "openai-agents": "agents", "pydantic-ai": "pydantic_ai"}
"""Name: the module that shows whether it is installed."""

ROWS = {
    "run, opened and closed (µs)": ("overhead", 300, "run-opened-threaded", 1800),
    "the same, body in the loop (µs)": ("overhead", 300, "run-opened", 1800),
    "fan-out to 1,000 (s)": ("fanout", 1000, "fanout-threaded", 1000),
    "the same, body in the loop (s)": ("fanout", 1000, "fanout", 1000),
    "a step of 200 (µs)": ("long", 200, "one-turn", 200),
    "a step of 400 (µs)": ("long", 400, "one-turn", 400),
}
"""Row: the peers' workload and N, ours and N."""

PROCESSOR = """
import os, runpy, sys, time
try:
    import trio  # its clock stays the real one
except ImportError:
    pass
time.perf_counter = time.process_time
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a program with its stopwatch exchanged."""

NODE_PROCESSOR = (
    "data:text/javascript,process.hrtime.bigint=()=>{const u=process.cpuUsage();return BigInt(u.user+u.system)*1000n}"
)

Cells = dict[tuple[str, str], list[float]]


def is_installed(python: str, module: str) -> bool:
    """Tell whether an interpreter has a module."""
    code = f"import importlib.util as i, sys; sys.exit(i.find_spec({module!r}) is None)"
    return subprocess.run([python, "-c", code], check=False).returncode == 0


def value_of(command: list[str | Path], *, processor: bool) -> float | None:
    """Run a program and return the value of its last line; what fails says so and is left out."""
    if processor:
        command = [command[0], "-c", PROCESSOR, *command[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        result = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        say(f"  failed: {' '.join(map(str, command[-3:]))}\n{done.stderr[-1000:]}")
        return None
    # A fan-out of the peers is the first of its process, so of ours only the first counts here.
    return float(result["all"][0] if "all" in result else result["value"])


def measure(peers: list[str], python: str, rounds: int, *, processor: bool) -> Cells:
    """Run everything, alternating; a peer's cell of a row that only we vary is taken over from the row above."""
    cells: Cells = {}
    for turn in range(rounds):
        for row, (theirs, n, ours, own_n) in ROWS.items():
            programs: list[tuple[str, list[str | Path]]] = [
                ("creche", [sys.executable, HERE / "workloads.py", ours, str(own_n)])
            ]
            if not row.startswith("the same"):
                programs += [
                    (peer, [python, HERE / "peers" / f"{peer.replace('-', '_')}_bench.py", theirs, str(n)])
                    for peer in peers
                ]
            for peer, command in programs if turn % 2 == 0 else reversed(programs):
                value = value_of(command, processor=processor)
                if value is not None:
                    cells.setdefault((row, peer), []).append(value)
            say(f"round {turn + 1}: {row}, load {os.getloadavg()[0]:.1f}")
    return cells


def table(cells: Cells, peers: list[str]) -> str:
    """Return the table as Markdown."""
    lines = [f"| work | creche | {' | '.join(peers)} |", f"|---|---|{'---|' * len(peers)}"]
    above: dict[str, float] = {}
    for row in ROWS:
        own = cells.get((row, "creche"))
        if not own:
            continue
        ours = min(own)
        shown = [f"{ours:,.3g}" if ours < 10 else f"{ours:,.0f}"]
        for peer in peers:
            values = cells.get((row, peer))
            if values:
                above[peer] = min(values)
            theirs = above.get(peer)
            if theirs is None:
                shown.append("-")
            elif values:
                amount = f"{theirs:,.3g}" if theirs < 10 else f"{theirs:,.0f}"
                shown.append(f"{amount} ({theirs / ours:.1f}x)")
            else:
                shown.append(f"({theirs / ours:.1f}x)")
        lines.append(f"| {row} | {' | '.join(shown)} |")
    ratios = []
    for peer in ["creche", *peers]:
        short, long = (cells.get((f"a step of {n} (µs)", peer)) for n in (200, 400))
        ratios.append(f"{min(long) / min(short):.2f}" if short and long else "-")
    lines.append(f"| step of 400 to step of 200 | {' | '.join(ratios)} |")
    return "\n".join(lines)


def reference(folder: Path, rounds: int, *, processor: bool) -> str:
    """Run the reference system's prompt and dispatch beside ours."""
    program = Path(shutil.copy(HERE / "peers" / "dsh_prompt_bench.mjs", folder))
    ours: Cells = {}
    theirs: Cells = {}
    for _ in range(rounds):
        for tools in (20, 100):
            done = subprocess.run(
                ["node", *(["--import", NODE_PROCESSOR] if processor else []), program.name],
                cwd=folder,
                env={**os.environ, "NTOOL": str(tools)},
                capture_output=True,
                text=True,
                check=False,
            )
            found = [float(each) for each in re.findall(r": ([\d.]+) us", done.stdout)]
            if len(found) != 2:
                return f"reference system: skipped, it does not run in {folder}\n{done.stderr[-500:]}"
            theirs.setdefault((f"assemble and render, {tools} tools", ""), []).append(found[0])
            theirs.setdefault(("100 listeners at depth 3", ""), []).append(found[1])
        for row, workload in (
            ("assemble and render, 20 tools", "assemble-20"),
            ("assemble and render, 100 tools", "assemble-100"),
            ("100 listeners at depth 3", "emit-100"),
        ):
            value = value_of([sys.executable, HERE / "workloads.py", workload], processor=processor)
            if value is not None:
                ours.setdefault((row, ""), []).append(value)
    lines = ["| work (µs) | creche | reference system on Node |", "|---|---|---|"]
    for key, values in ours.items():
        mine, other = min(values), min(theirs[key])
        lines.append(f"| {key[0]} | {mine:.1f} | {other:.0f} ({other / mine:.1f}x) |")
    return "\n".join(lines)


def say(text: str) -> None:
    """Tell how far it is."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - a program's output


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="creche and its peers on the same work")
    parser.add_argument("--peers-python", default=sys.executable, help="an interpreter that has the peers")
    parser.add_argument("--dsh", type=Path, help="a folder with the reference system's packages")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--processor", action="store_true", help="processor time instead of the wall clock")
    options = parser.parse_args()
    peers = []
    for peer, module in PEERS.items():
        if is_installed(options.peers_python, module):
            peers.append(peer)
        else:
            say(f"{peer}: skipped, {options.peers_python} does not have it")
    print(table(measure(peers, options.peers_python, options.rounds, processor=options.processor), peers))  # noqa: T201 - a program's output
    if options.dsh is None:
        say("reference system: skipped, no --dsh")
    else:
        print(f"\n{reference(options.dsh, options.rounds, processor=options.processor)}")  # noqa: T201 - a program's output


if __name__ == "__main__":
    main()

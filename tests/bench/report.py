"""The table of docs/explanation/speed.md: every row of the design's numbers with its goal and what is measured now.

    python tests/bench/report.py [--rounds 3]

Each workload runs in processes of its own, the rows in turn, and the best round counts: what others do on the machine
only ever adds. Of ratios it is the median, and they are of processor time.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

WORKLOADS = Path(__file__).with_name("workloads.py")

Line = dict[str, float]

ROWS: list[tuple[str, str, str, float, str]] = [
    ("run on a live agent", "run", "best", 150, "µs"),
    ("the same, opened, asked and closed", "run-opened", "best", 230, "µs"),
    ("the same, live, body in a thread", "run-threaded", "best", 260, "µs"),
    ("spawn from a program, one after another", "spawn", "best", 0, "µs"),
    ("1,000 children at once, shared view", "fanout", "value", 0.4, "s"),
    ("the same, a persona each", "fanout-persona", "value", 0.6, "s"),
    ("the same, shared view, on disk", "fanout-disk", "value", 0.8, "s"),
    ("a step of a turn of 400", "long", "value", 80, "µs"),
    ("400 steps to 200, a step", "long", "cpu_ratio", 1.05, "ratio"),
    ("the same, each request encoded", "long-encoded", "cpu_ratio", 1.1, "ratio"),
    ("run on disk, fsync before each request", "run-disk", "best", 1200, "µs"),
    ("assemble and render, 20 tools", "assemble-20", "best", 40, "µs"),
    ("assemble and render, 100 tools", "assemble-100", "best", 40, "µs"),
    ("the same, 20 tools, after a change in the own scope", "assemble-20-changed", "value", 60, "µs"),
    ("dispatch to 100 listeners at depth 3", "emit-100", "best", 6, "µs"),
    ("dispatch that nobody hears", "emit-0", "best", 0.5, "µs"),
    ("an agent after one run, persona of its own", "agents", "value", 25, "KB"),
    ("10,000 of them opened and asked", "agents", "seconds", 6, "s"),
    ("fork of 100 records", "fork-100", "best", 5, "µs"),
    ("fork of 100,000 records", "fork-100000", "best", 5, "µs"),
    ("import, on top of trio's own", "import", "best", 0.1, "s"),
    ("cancel of 1,000 running children, until silence", "cancel", "value", 0.2, "s"),
]
"""What it is called, its workload, the field of the workload's line, the goal (0: none) and the unit."""


def measure(rounds: int) -> dict[str, list[Line]]:
    """Run every workload so many times, in turn."""
    lines: dict[str, list[Line]] = {}
    for turn in range(rounds):
        for workload in dict.fromkeys(row[1] for row in ROWS):
            done = subprocess.run([sys.executable, WORKLOADS, workload], capture_output=True, text=True, check=True)
            line = json.loads(done.stdout)
            lines.setdefault(workload, []).append(line)
            note = f"round {turn + 1}: {workload} {line['value']:.4g} {line['unit']}, load {line['load']:.1f}"
            print(note, file=sys.stderr, flush=True)  # noqa: T201 - a program's output
    return lines


def table(lines: dict[str, list[Line]]) -> str:
    """Return the table as Markdown."""
    shown = ["| work | goal | measured | of it processor | | `workloads.py` |", "|---|---|---|---|---|---|"]
    for what, workload, field, goal, unit in ROWS:
        values = [line[field] for line in lines[workload]]
        best = statistics.median(values) if unit == "ratio" else min(values)
        busy = min(line["cpu"] for line in lines[workload]) if unit in ("µs", "s") else None
        verdict = "" if not goal else "met" if best <= goal else f"missed by {best / goal - 1:.0%}"
        suffix = "" if unit == "ratio" else f" {unit}"
        cells = [f"{goal:g}{suffix}" if goal else "-", f"{_short(best)}{suffix}"]
        cells.append("" if busy is None else f"{_short(busy)}{suffix}")
        shown.append(f"| {what} | {' | '.join(cells)} | {verdict} | {workload} |")
    return "\n".join(shown)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="every row of the design's numbers")
    parser.add_argument("--rounds", type=int, default=3)
    rounds: int = parser.parse_args().rounds
    lines = measure(rounds)
    loads = [line["load"] for each in lines.values() for line in each]
    print(table(lines))  # noqa: T201 - a program's output
    print(  # noqa: T201 - a program's output
        f"\nBest of {rounds} rounds; load of the machine (1.0 is this program alone, {os.cpu_count()} processors): "
        f"{min(loads):.1f} to {max(loads):.1f}."
    )


if __name__ == "__main__":
    main()

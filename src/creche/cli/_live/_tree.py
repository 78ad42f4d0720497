"""The tree of agents as lines of styled text: pure, from rows, a time and a size.

Rule 1: no line is wider than its room, whatever names and words there are.
Rule 2: there are never more lines than room for them; those at work come before those that are over.
"""

from collections.abc import Sequence

from rich.cells import cell_len

from .._rows import AgentRow, Totals
from .._text import one_line
from ._style import Glyphs, Line
from ._table import Table, amount

FEW = 8
"""Lines below which there are agents in place of what could be left out."""


def draw(
    rows: Sequence[AgentRow], totals: Totals, now: float, *, width: int, height: int, glyphs: Glyphs
) -> list[Line]:
    """Return the agents as lines, one each, with their sum below.

    Args:
      rows: The agents, in the order of the tree.
      totals: All of them together.
      now: The time.
      width: Cells that a line may take.
      height: How many lines there may be.
      glyphs: What is drawn with.
    """
    # Around the agents: what the columns are, all tokens where not each number has its column, and how many there are.
    extra = 0 if height < FEW else 1
    shown = _choose(rows, height - extra - 1)
    prefixes = _prefixes(shown, glyphs)
    names = [cell_len(prefix + one_line(row.name)) for prefix, row in zip(prefixes, shown, strict=True)]
    table = Table(width, names=max([*names, len("agent")]), glyphs=glyphs, has_tokens=totals.usage.total_tokens > 0)
    lines = [table.agent(prefix, row, now) for prefix, row in zip(prefixes, shown, strict=True)]
    if len(shown) < len(rows):
        lines.append(table.note(_rest(rows, shown)))
    lines.append(table.sum(_counts(totals), totals, now))
    if extra and table.says_all:
        lines.insert(0, table.head())
    elif extra:
        lines.append(table.note(_tokens(totals)))
    return lines[-height:] if height > 0 else []


def _choose(rows: Sequence[AgentRow], room: int) -> Sequence[AgentRow]:
    """Return the rows for which there is room: those at work first, then those that went wrong."""
    if len(rows) <= room:
        return rows
    order = sorted(range(len(rows)), key=lambda number: _rank(rows[number]))
    return [rows[number] for number in sorted(order[: max(room - 1, 0)])]


def _rank(row: AgentRow) -> int:
    if row.depth == 0:
        return 0
    return ("failed", "cancelled", "done").index(row.doing.kind) + 2 if row.doing.is_over else 1


def _prefixes(rows: Sequence[AgentRow], glyphs: Glyphs) -> list[str]:
    """Return what is drawn before each name: a branch of the tree."""
    prefixes: list[str] = []
    later: set[int] = set()  # depths at which another one of the same branch comes after the row
    for row in reversed(rows):
        bars = [glyphs.bar if depth in later else " " * len(glyphs.bar) for depth in range(1, row.depth)]
        branch = glyphs.branch if row.depth in later else glyphs.last
        prefixes.append("".join(bars) + branch if row.depth else "")
        later = {depth for depth in later if depth < row.depth} | {row.depth}
    return prefixes[::-1]


def _rest(rows: Sequence[AgentRow], shown: Sequence[AgentRow]) -> str:
    at_work = _at_work(rows) - _at_work(shown)
    return f"and {len(rows) - len(shown)} more" + (f", {at_work} at work" if at_work else "")


def _at_work(rows: Sequence[AgentRow]) -> int:
    return len([row for row in rows if not row.doing.is_over])


def _counts(totals: Totals) -> str:
    agents, requests = totals.agents, totals.usage.requests
    return f"{agents} agent{'' if agents == 1 else 's'}, {requests} request{'' if requests == 1 else 's'}"


def _tokens(totals: Totals) -> str:
    usage = totals.usage
    return f"{amount(usage.input_tokens)} in, {amount(usage.cached_tokens)} cached, {amount(usage.output_tokens)} out"

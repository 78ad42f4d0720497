"""A table of agents: where names, what agents do and numbers stand in lines of some width."""

from collections.abc import Callable

from attrs import field, frozen
from rich.cells import cell_len

from creche.models import Usage

from .._rows import AgentRow, Totals
from .._text import one_line
from ._cells import cut, fill
from ._style import Glyphs, Line, Span

GAP = "  "
"""Between a name and what its agent does."""
DEEPEST = 4
"""Which part of what is left of the columns branches of the tree may take."""
LONG = 10.0
"""Seconds after which it is told how long an agent has been at the same thing."""
UNITS = ("", "k", "M", "G")
TEN, HUNDRED, KILO, MINUTE = 10, 100, 1000, 60
ROOMY = 24
"""Cells for what an agent does from which that is told."""


@frozen
class Column:
    """Numbers at the right."""

    head: str
    """What they are."""
    number: Callable[[Usage, float], str] = field(kw_only=True)
    """Returns one, of what an agent cost and how many seconds it took."""
    width: int = field(default=8, kw_only=True)
    """Cells, with those that keep it apart."""


_TIME = Column("time", number=lambda _, seconds: duration(seconds))
_ALL = (
    Column("in", number=lambda usage, _: amount(usage.input_tokens)),
    Column("cached", number=lambda usage, _: amount(usage.cached_tokens)),
    Column("out", number=lambda usage, _: amount(usage.output_tokens)),
    _TIME,
)
_SOME = (Column("tokens", number=lambda usage, _: amount(usage.total_tokens)), _TIME)
_COLUMNS: tuple[tuple[int, tuple[Column, ...]], ...] = ((70, _ALL), (48, _SOME), (28, (_TIME,)), (0, ()))
"""From which width on there is room for which columns."""


@frozen
class Table:
    """The places of a table."""

    width: int
    """Cells of a line."""
    names: int = field(kw_only=True)
    """Cells for names and what is drawn before them, if that leaves half of the line."""
    glyphs: Glyphs = field(kw_only=True)
    """What is drawn with."""

    has_tokens: bool = field(kw_only=True)
    """Whether there are any tokens to tell of; a scripted model has none."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns there is room for."""
        columns = next(columns for least, columns in _COLUMNS if self.width >= least)
        return columns if self.has_tokens else columns[-1:]

    @property
    def says_all(self) -> bool:
        """Whether each number has a column of its own."""
        return self.columns is _ALL or not self.has_tokens

    @property
    def left(self) -> int:
        """Cells before the columns."""
        return self.width - sum([column.width for column in self.columns])

    def head(self) -> Line:
        """Return the line that says what the columns are."""
        heads = "".join([f"{column.head:>{column.width}}" for column in self.columns])
        return self._clip(Span(self._fill("agent", self._names) + GAP + self._fill("does", self._doing) + heads, "dim"))

    def agent(self, prefix: str, row: AgentRow, now: float) -> Line:
        """Return the line of an agent."""
        prefix = prefix[max(len(prefix) - self.left // DEEPEST, 0) :]
        name = self._fill_name(one_line(row.name), self._names - len(prefix))
        return self._clip(
            Span(prefix, "dim"),
            Span(name + GAP, "" if row.depth else "strong"),
            Span(self._fill(self._says(row, now), self._doing), row.doing.kind),
            Span(self._numbers(row.usage, row.seconds(now))),
        )

    def sum(self, text: str, totals: Totals, now: float) -> Line:
        """Return the line of all agents together."""
        return self._clip(
            Span(self._fill(text, self.left), "strong"),
            Span(self._numbers(totals.usage, totals.seconds(now)), "strong"),
        )

    def note(self, text: str) -> Line:
        """Return a line that is a text alone."""
        return self._clip(Span(text, "dim"))

    @property
    def _names(self) -> int:
        return min(self.names, self.left // 2)

    @property
    def _doing(self) -> int:
        return max(self.left - self._names - len(GAP), 0)

    def _says(self, row: AgentRow, now: float) -> str:
        text, since = one_line(row.doing.says(now)), row.doing.since
        if row.doing.kind == "done" and row.report:
            return f"{text}: {one_line(row.report)}"
        if row.doing.is_over or now - since < LONG or self._doing < ROOMY:
            return text
        how_long = f" for {duration(now - since)}"
        return cut(text, self._doing - len(how_long), self.glyphs.dots) + how_long

    def _numbers(self, usage: Usage, seconds: float) -> str:
        return "".join([f"{column.number(usage, seconds):>{column.width}}" for column in self.columns])

    def _fill_name(self, name: str, width: int) -> str:
        """Return a name in just some cells; the number at its end, which tells siblings apart, is left out last."""
        stem, dash, number = name.rpartition("-")
        if not stem or not number.isdecimal() or cell_len(name) <= width or len(number) + 3 > width:
            return self._fill(name, width)
        return self._fill(stem, width - len(dash + number)) + dash + number

    def _fill(self, text: str, width: int) -> str:
        return fill(text, width, self.glyphs.dots)

    def _clip(self, *spans: Span) -> Line:
        """Return a line that fits, also where there is no room for its gaps."""
        left = self.width
        line: list[Span] = []
        shown = [span for span in spans if span.text]
        for span in shown:
            text = cut(span.text.rstrip() if span is shown[-1] else span.text, left, self.glyphs.dots)
            left -= cell_len(text)
            line.append(Span(text, span.style))
        return tuple(line)


def amount(number: int) -> str:
    """Say a number of tokens in five characters or less: ``999``, ``1.5k``, ``12.3k``, ``123k``, ``1.2M``."""
    value, unit = float(number), 0
    while round(value) >= KILO and unit < len(UNITS) - 1:
        value, unit = value / KILO, unit + 1
    digits = 1 if unit and round(value, 1) < HUNDRED else 0
    return f"{value:.{digits}f}{UNITS[unit]}"


def duration(seconds: float) -> str:
    """Say a number of seconds: ``4.2s``, ``42s``, ``1m05s``, ``2h00m``."""
    if round(seconds, 1) < TEN:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), MINUTE)
    if not minutes:
        return f"{rest}s"
    return f"{minutes}m{rest:02d}s" if minutes < MINUTE else f"{minutes // MINUTE}h{minutes % MINUTE:02d}m"

"""A report for people: plain lines of a width, without colours.

What the model is told has a bar at the beginning of each of its lines; where a line is too long it goes on below,
without a bar.
"""

from collections.abc import Iterable, Iterator

import attrs

from creche.scope import place_name

from ._report import Explained, PieceReport, PromptReport, ToolReport, VariableReport
from ._wrap import wrap

NARROWEST = 20
"""Columns that are used even where there are fewer."""
LONGEST_ORDER = 10**15
"""Orders are written out up to here."""


@attrs.frozen
class _Line:
    """A line before it is wrapped."""

    text: str
    first: str = ""
    """What it begins with."""
    more: str = ""
    """What its other rows begin with."""

    def rows(self, width: int) -> list[str]:
        """Return it in rows."""
        text = self.text.expandtabs(4)
        if not text.isprintable():
            text = "".join([char if char.isprintable() else _escaped(char) for char in text])
        return wrap(text, width, self.first, self.more)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode()


def render_report(report: PromptReport, *, width: int = 80) -> str:
    """Return a report as text.

    Args:
      report: What `explain_prompt` gave.
      width: Columns that a line may take; 20 are taken in any case.
    """
    rows = [row for line in _lines(report) for row in line.rows(max(width, NARROWEST))]
    return "".join([f"{row}\n" for row in rows])


def _lines(report: PromptReport) -> Iterator[_Line]:
    yield _Line(_subject(report))
    yield _Line(_costs(report))
    yield from _listed("What is wrong", report.problems)
    yield from _listed(
        "At the global layer, and perhaps meant for one agent", [each.sentence for each in report.findings]
    )
    yield from _pieces("Sections", report.sections)
    yield from _pieces("Runtime contexts", report.contexts)
    yield from _variables(report.variables)
    yield from _tools(report)
    heading = "Wrappers" if report.wrapped else "Wrappers, whose changes are not shown, for something failed"
    yield from _listed(heading, [str(place) for place in report.wrappers])


# ---------------------------------------------------------------- the head


def _subject(report: PromptReport) -> str:
    chain = [*[place_name(key) for key in report.chain], place_name(None)]
    whom = "without an agent" if report.agent is None else f"agent {report.agent!r}"
    below = f"; above it: {', '.join(chain[1:])}" if chain[1:] else ""
    return f"The prompt at {chain[0]}, {whom}{below}."


def _costs(report: PromptReport) -> str:
    parts = [
        f"{_tokens(report.sections):,} in {_count(_shown(report.sections), 'section')}",
        f"{_tokens(report.contexts):,} in {_count(_shown(report.contexts), 'runtime context')}",
        f"{_tokens(report.tools):,} in {_count(sum(each.schema is not None for each in report.tools), 'tool')}",
    ]
    return f"About {report.tokens:,} tokens, estimated as a quarter of the bytes: {', '.join(parts)}."


def _tokens(pieces: Iterable[PieceReport | ToolReport]) -> int:
    return sum([each.tokens for each in pieces])


def _shown(pieces: Iterable[PieceReport]) -> int:
    return sum([each.state == "shown" for each in pieces])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _heading(text: str) -> Iterator[_Line]:
    yield _Line("")
    yield _Line(f"{text}:")


def _listed(heading: str, sentences: Iterable[str]) -> Iterator[_Line]:
    given = tuple(sentences)
    if given:
        yield from _heading(heading)
    for sentence in given:
        yield _item(sentence)


def _item(text: str) -> _Line:
    return _Line(text, "- ", "  ")


def _detail(text: str) -> _Line:
    return _Line(text, "  ", "    ")


# ---------------------------------------------------------------- the pieces


def _pieces(heading: str, pieces: tuple[PieceReport, ...]) -> Iterator[_Line]:
    if pieces:
        yield from _heading(heading)
    for piece in pieces:
        what = f"about {_count(piece.tokens, 'token')}" if piece.state == "shown" else piece.state
        yield _item(f"{piece.name} (order {_order(piece.order)}, {what})")
        yield from _origin(piece)
        yield from _problem(piece)
        if piece.complete:
            yield _detail("complete: no other section is shown")
        if piece.text and not piece.interpolate:
            yield _detail("literal: no variables are put in")
        for line in piece.text.split("\n") if piece.text else ():
            yield _Line(line, "  | ", "    ")


def _order(order: float) -> str:
    # A whole number may be longer than a float, and than Python writes out.
    return str(order) if -LONGEST_ORDER < order < LONGEST_ORDER else "very high" if order > 0 else "very low"


def _origin(each: Explained) -> Iterator[_Line]:
    if each.place is not None:
        yield _detail(f"of {each.place}")
    for place in each.shadows:
        yield _detail(f"hides that of {place}")
    if each.note:
        yield _detail(each.note)


def _problem(each: PieceReport | VariableReport) -> Iterator[_Line]:
    if each.problem:
        yield _detail(each.problem)


def _variables(variables: tuple[VariableReport, ...]) -> Iterator[_Line]:
    if variables:
        yield from _heading("Variables")
    for variable in variables:
        yield _item(
            f"{variable.name} = {variable.value!r}" if variable.value is not None else f"{variable.name}: no value"
        )
        yield from _origin(variable)
        yield from _problem(variable)


def _tools(report: PromptReport) -> Iterator[_Line]:
    by = "" if report.presented_by is None else f" by {report.presented_by}"
    if report.tools or by:
        yield from _heading(f"Tools, presented as {report.mode}{by}")
    for tool in report.tools:
        what = f"about {_count(tool.tokens, 'token')}" if tool.schema is not None else tool.state
        yield _item(f"{tool.name} ({what})")
        yield from _origin(tool)
        for rule in tool.hidden_by:
            yield _detail(f"hidden by {rule}")
        for rule in tool.refused_by:
            yield _detail(f"its calls are refused by {rule}")

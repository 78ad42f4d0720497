"""Text in cells of a terminal: wide characters take two, combining ones none, and emoji of several characters count once."""

from rich.cells import cell_len, split_graphemes

TAB = 8
"""Cells between two tab stops."""


def cut(text: str, width: int, dots: str = "…") -> str:
    """Return as much of a line as fits into some cells; what is left out is said with dots."""
    room = width - len(dots)
    if text.isascii():
        return text if len(text) <= width else _with_dots(text[: max(room, 0)], dots, width)
    taken, fitting = 0, ""
    for start, end, cells in split_graphemes(text)[0]:
        taken += cells
        if taken > width:
            return _with_dots(fitting, dots, width)
        if taken <= room:
            fitting += text[start:end]
    return text


def _with_dots(text: str, dots: str, width: int) -> str:
    return (text + dots)[: max(width, 0)] if len(dots) > width else text + dots


def fill(text: str, width: int, dots: str = "…") -> str:
    """Return a line that takes just some cells."""
    shown = cut(text, width, dots)
    return shown + " " * (width - cell_len(shown))


def wrap(text: str, width: int) -> list[str]:
    """Return the rows that a line takes, wrapped as a terminal wraps it; tabs become spaces."""
    if text.isascii() and "\t" not in text:
        return [text[start : start + width] for start in range(0, len(text), width)] or [""]
    rows, taken = [""], 0
    for number, stretch in enumerate(text.split("\t")):
        if number:
            gap = min(TAB - taken % TAB, width - taken)
            rows[-1] += " " * gap
            taken += gap
        for start, end, cells in split_graphemes(stretch)[0]:
            if taken + cells > width and taken:
                rows.append("")
                taken = 0
            rows[-1] += stretch[start:end]
            taken += cells
    return rows

"""Where a text stands in another, and if nowhere, where something like it does."""

from collections.abc import Sequence

from ._lines import FileText

MOST_PLACES = 100_000
"""Places that are looked for."""

MOST_NAMED = 10
"""Lines that are named in one sentence."""

_WIDTH = 200


def places_of(text: str, part: str, *, overlapping: bool = False) -> list[int]:
    """Find a part, from left to right; give up after `MOST_PLACES` and one more."""
    step = 1 if overlapping else len(part)
    places: list[int] = []
    place = text.find(part)
    while place >= 0 and len(places) <= MOST_PLACES:
        places.append(place)
        place = text.find(part, place + step)
    return places


def lines_named(lines: Sequence[int]) -> str:
    """Name lines in a sentence: ``line 3``, ``lines 3, 5 and 9``, ``lines 3, 5 and 7 more``."""
    shown = [str(line) for line in lines[:MOST_NAMED]]
    if len(lines) > MOST_NAMED:
        shown.append(f"{len(lines) - MOST_NAMED} more")
    if len(shown) == 1:
        return f"line {shown[0]}"
    return f"lines {', '.join(shown[:-1])} and {shown[-1]}"


def lines_of(file: FileText, places: Sequence[int]) -> list[int]:
    """Give the numbers of the lines in which places are that come in order."""
    lines: list[int] = []
    at, line = 0, 1
    for place in places:
        line += file.text.count("\n", at, place)
        at = place
        lines.append(line)
    return lines


def near_miss(file: FileText, old: str, new: str) -> str:
    """Say where a text almost stands that does not occur: half a sentence."""
    lines = _bare(file.text)
    wanted = [line for _, line in _bare(old)]
    there = file.text.find(new) if new.strip() else -1
    if there >= 0 and wanted == [line for _, line in _bare(new)]:
        return _made(file, there)  # only white space was to change, so the old text would fit where the new one is
    bare = "\n".join(line for _, line in lines)
    place = bare.find("\n".join(wanted))
    if wanted and place >= 0:
        first = bare.count("\n", 0, place)
        begin, end = lines[first][0], lines[first + len(wanted) - 1][0]
        where = lines_named([begin]) if begin == end else f"lines {begin} to {end}"
        return f"{where} would fit but for white space; copy it exactly"
    if there >= 0:
        return _made(file, there)
    if "\ufffd" in old:
        return "a replacement character stands for bytes that are not UTF-8, so choose a text without one"
    alike = [number for number, line in lines if wanted[1:] and line == wanted[0]]
    if alike:
        return f"its first line is there, at {lines_named(alike)}, and what follows differs"
    return "read the file and copy the text exactly"


def _made(file: FileText, place: int) -> str:
    return f"the new text is there already, at line {file.line_at(place)}"


def _bare(text: str) -> list[tuple[int, str]]:
    """Give the lines without any white space, with their numbers, and leave out the empty ones."""
    bare = ((number, "".join(line.split())) for number, line in enumerate(text.split("\n"), 1))
    return [(number, line) for number, line in bare if line]


def snippet(file: FileText, place: int, new: str, *, around: int = 2, most: int = 8) -> str:
    """Show the lines of a change with their numbers, and some around it."""
    first = file.line_at(place)
    last = first + new.count("\n")
    lines = file.text.split("\n")
    if not lines[-1]:
        lines.pop()
    begin, end = max(first - around, 1), min(last + around, len(lines))
    shown = [f"{number}: {_cut(lines[number - 1])}" for number in range(begin, end + 1)]
    if len(shown) > most:
        left = len(shown) - most
        shown[most // 2 : most // 2 + left] = [f"[{left} more lines]"]
    return "\n".join(shown)


def _cut(line: str) -> str:
    shown = line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return shown if len(shown) <= _WIDTH else shown[: _WIDTH - 1] + "…"

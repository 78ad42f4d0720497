"""What the demo computes: from pages of the ``list`` and ``grep`` tools to a summary of a folder.

Pure: texts and values in, texts and values out. A path is decoded on the way in and printed so that it stays on its
line on the way out, whatever its characters are.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import PurePosixPath

from attrs import field, frozen

from ._text import counted, shortened

MOST_KINDS = 12
MOST_LONGEST = 5
MOST_TODOS = 20
LONGEST_TODO = 100
"""Characters of a line that are shown."""
UNITS = ("B", "kB", "MB", "GB", "TB")
KILO = 1000
WHOLE_FROM = 10
"""From here on a size is said without a decimal."""

TODO = r"[#/*-] TODO\b"
"""What a TODO line has in it, for ``grep``: a comment, or an item of a list, that begins with the word."""


@frozen
class Entry:
    """One line of a listing."""

    path: str
    """Relative to the folder that is surveyed."""

    kind: str = field(kw_only=True)
    """``file``, ``dir``, ``symlink``, ``other`` or ``unreadable``."""

    size: int = field(default=0, kw_only=True)
    """Bytes of a file."""

    lines: int | None = field(default=None, kw_only=True)
    """Number of lines of a text file."""


@frozen
class Page:
    """One page of a listing."""

    entries: tuple[Entry, ...]
    """In the order of the listing."""

    after: str = field(kw_only=True)
    """Argument for the next page; ``""`` if this is the last."""


@frozen
class Match:
    """One line that matches."""

    path: str
    """Relative to the folder that is surveyed."""

    line: int = field(kw_only=True)
    """Its number, from 1."""

    text: str = field(kw_only=True)
    """The line, perhaps cut."""


@frozen
class MatchPage:
    """One page of matches."""

    matches: tuple[Match, ...]
    """In the order of the search."""

    after: str = field(kw_only=True)
    """Argument for the next page; ``""`` if this is the last."""

    more: int = field(kw_only=True)
    """How many matches are on the pages behind this one."""


def parse_listing(text: str) -> Page:
    """Read one page of the ``list`` tool.

    Raises:
      ValueError: it is something else, such as the sentence of a failure.
    """
    lines, _, after = _lines(text)
    entries: list[Entry] = []
    for path, rest in lines:
        match rest.split(" "):
            case ["", "file", size, "bytes", count, "lines"]:
                entries.append(Entry(path, kind="file", size=int(size), lines=int(count)))
            case ["", "file", size, "bytes", _]:
                entries.append(Entry(path, kind="file", size=int(size)))
            case ["", "dir" | "symlink" | "other" | "unreadable" as kind, *_]:
                entries.append(Entry(path, kind=kind))
            case _:
                raise ValueError(f"not a line of a listing: {json.dumps(path)}{rest}")
    return Page(tuple(entries), after=after)


def parse_matches(text: str) -> MatchPage:
    """Read one page of the ``grep`` tool; what could not be searched is left out.

    Raises:
      ValueError: it is something else, such as the sentence of a failure.
    """
    lines, more, after = _lines(text)
    matches: list[Match] = []
    for path, rest in lines:
        if rest.startswith(" unreadable "):
            continue
        _, number, shown = rest.split(":", 2)
        matches.append(Match(path, line=int(number), text=shown.removeprefix(" ")))
    return MatchPage(tuple(matches), after=after, more=int(more))


def _lines(text: str) -> tuple[list[tuple[str, str]], str, str]:
    """Take a page apart: each line's path and the rest of it, how many more there are, and where to go on."""
    lines: list[tuple[str, str]] = []
    more, after = "0", ""
    for line in text.split("\n"):
        if line.startswith('"'):
            path, end = json.JSONDecoder().raw_decode(line)
            lines.append((path, line[end:]))
        elif line.startswith("["):
            head, continued, value = line[1:-1].partition(" more; continue with after=")
            if continued:
                more, after = head, json.loads(value)
        else:
            raise ValueError(f"not a line of a page: {line!r}")
    return lines, more, after


def human_size(size: int) -> str:
    """Say a number of bytes to people: ``999 B``, ``1.5 kB``, ``20 MB``; a kB is 1000 bytes."""
    value = float(size)
    power = 0
    while round(value) >= KILO and power < len(UNITS) - 1:
        value /= KILO
        power += 1
    digits = 1 if power and round(value, 1) < WHOLE_FROM else 0
    return f"{value:.{digits}f} {UNITS[power]}"


def summarise_kinds(entries: Iterable[Entry]) -> str:
    """Say how many files there are of which kind, by suffix, and how large they are; the largest kinds first."""
    entries = tuple(entries)
    if not entries:
        return "The folder is empty."
    kinds: dict[str, list[int]] = {}
    for entry in entries:
        if entry.kind == "file":
            kinds.setdefault(PurePosixPath(entry.path).suffix.lower() or "no suffix", []).append(entry.size)
    total = ", ".join((_sizes([entry.size for entry in entries if entry.kind == "file"]), *_others(entries)))
    rows = sorted(kinds.items(), key=lambda kind: (-sum(kind[1]), kind[0]))
    lines = [f"{total}:" if rows else f"{total}."]
    lines += [f"  {_printed(kind)}: {_sizes(sizes)}" for kind, sizes in rows[:MOST_KINDS]]
    if rest := rows[MOST_KINDS:]:
        lines.append(f"  {counted(len(rest), 'other kind')}: {_sizes([size for _, sizes in rest for size in sizes])}")
    return "\n".join(lines)


def _others(entries: Sequence[Entry]) -> Iterator[str]:
    """Count what is no file."""
    nouns = {"dir": "folder", "symlink": "symlink", "other": "special file", "unreadable": "unreadable path"}
    for kind, noun in nouns.items():
        if count := sum(entry.kind == kind for entry in entries):
            yield counted(count, noun)


def summarise_longest(entries: Iterable[Entry]) -> str:
    """Name the five longest text files with their numbers of lines, the longest first."""
    texts = [(entry.lines, entry.path) for entry in entries if entry.lines is not None]
    if not texts:
        return "No text files."
    texts.sort(key=lambda text: (-text[0], text[1]))
    heading = "The longest text files:" if len(texts) > 1 else "The only text file:"
    rows = [f"  {_printed(path)}: {counted(lines, 'line')}" for lines, path in texts[:MOST_LONGEST]]
    return "\n".join([heading, *rows])


def summarise_todos(matches: Iterable[Match], more: int = 0) -> str:
    """Name the first twenty TODO lines with file and line, and say how many more there are.

    Args:
      matches: In any order.
      more: Matches that exist and are not in ``matches``; they come after all of those.
    """
    ordered = sorted(matches, key=attrgetter("path", "line"))
    total = len(ordered) + more
    if not total:
        return "No TODO lines."
    lines = [f"{counted(total, 'TODO line')}:"]
    lines += [f"  {_printed(match.path)}:{match.line}: {_tidy(match.text)}" for match in ordered[:MOST_TODOS]]
    if (left := total - len(ordered[:MOST_TODOS])) > 0:
        lines.append(f"  and {left} more")
    return "\n".join(lines)


def _sizes(sizes: Sequence[int]) -> str:
    return f"{counted(len(sizes), 'file')}, {human_size(sum(sizes))}"


def _printed(path: str) -> str:
    """Give a path as it is if it prints, and as a JSON string if it would break the line or the encoding."""
    return path if path.isprintable() else json.dumps(path)


def _tidy(text: str) -> str:
    """Give a line without its indentation, and without what a terminal would obey; of a long one the beginning."""
    return shortened("".join(char if char.isprintable() else " " for char in text), LONGEST_TODO)

"""The ``read`` tool without the tool: some lines of one text file."""

from typing import BinaryIO

from creche.errors import ToolFailed

from ._folder import Workspace, cannot_read
from ._text import count_lines, decoded, is_binary, open_regular, skip_lines

MAX_BYTES = 100_000
"""Bytes of UTF-8 in one answer, without the line in brackets."""


def read_lines(workspace: Workspace, path: str, *, offset: int = 1, limit: int = 2000) -> str:
    """Give lines of a text file, and a last line in brackets if there are more.

    Lines come without their line ends, joined by newlines. A line is never split over two answers; one that alone is
    longer than an answer may be is cut.

    Args:
      workspace: The folder everything is relative to.
      path: The file.
      offset: Number of the first line, from 1.
      limit: Number of lines.

    Raises:
      ToolFailed: no such file, not a text file, or an argument that makes no sense.
    """
    for argument, value in (("offset", offset), ("limit", limit)):
        if value < 1:
            raise ToolFailed(f"{argument} is {value}, and 1 is the least")
    place = workspace.resolve(path)
    if place.is_folder:
        raise ToolFailed(f"{place.name} is a folder; list shows what is in it")
    try:
        file = open_regular(place.real)
        if file is None:
            raise ToolFailed(f"{place.name} is not a regular file, and only those are opened")
        with file:
            if is_binary(file):
                size = file.seek(0, 2)
                raise ToolFailed(f"{place.name} is a binary file of {size} bytes, and only text is shown")
            return _text(workspace, file, offset, limit)
    except OSError as error:
        raise cannot_read(place.name, error) from error


def _text(workspace: Workspace, file: BinaryIO, offset: int, limit: int) -> str:
    check = workspace.check_cancelled
    skip_lines(file, offset - 1, check)
    lines, cut = _take(file, limit)
    if not lines:
        file.seek(0)
        total = count_lines(file, check)
        return f"[the file has {total} lines; there is no line {offset}]" if total else "[the file is empty]"
    if cut:
        skip_lines(file, 1, check)
    last = offset + len(lines) - 1
    left = count_lines(file, check)
    how = f"; continue with offset={last + 1}" if left else ""
    if cut:
        lines.append(f"[line {last} of {last + left} is longer than {MAX_BYTES} bytes and cut{how}]")
    elif left:
        lines.append(f"[lines {offset} to {last} of {last + left}{how}]")
    return "\n".join(lines)


def _take(file: BinaryIO, limit: int) -> tuple[list[str], bool]:
    """Take the lines that fit an answer; say whether it is a single one, cut, with the file at its rest."""
    lines: list[str] = []
    room = MAX_BYTES
    while len(lines) < limit:
        most = room + 2  # what fits may have a line end of two bytes
        raw = file.readline(most)
        if not raw:
            break
        text = decoded(raw)
        size = len(text.encode()) + bool(lines)  # the newline that joins it to the line before
        if size <= room and (raw.endswith(b"\n") or len(raw) < most):
            lines.append(text)
            room -= size
            continue
        file.seek(-len(raw), 1)
        if lines:
            break
        return [text.encode()[:MAX_BYTES].decode("utf-8", "ignore")], True
    return lines, False

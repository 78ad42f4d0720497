"""The ``write`` tool without the tool: a text becomes the content of a file."""

import os

from creche.errors import ToolFailed, ToolRetry
from creche.prompt import AgentView

from .._paths import shortened
from ._folder import Workspace
from ._readings import Readings, digest_of
from ._store import ATTEMPTS, LARGEST, open_original, put


def write_text(
    workspace: Workspace, path: str, content: str, *, readings: Readings, agent: AgentView | None = None
) -> str:
    """Make a text the whole content of a file, as it is: no line end is added or changed.

    Args:
      workspace: The folder everything is relative to.
      path: The file; it and the folders above it are made if they are not there.
      content: The text.
      readings: What agents know; ``agent`` writes only over a file that it knows.
      agent: Who writes; None if it is a program.

    Raises:
      ToolFailed: the text is none that can be written, or the path is none that can be written to.
      ToolRetry: the agent has to read the file first.
    """
    data = encoded("content", content)
    plain = workspace.decoded(path)
    means_folder = os.path.basename(plain) in ("", os.curdir, os.pardir)
    for _ in range(ATTEMPTS):
        place = workspace.resolve_new(path)
        if means_folder:  # also if there is none: what it resolves to would be made as a file
            raise ToolFailed(f"{shortened(plain)} means a folder; give the path of a file")
        if place.is_folder:
            raise ToolFailed(f"{place.name} is a folder")
        if not place.is_there:
            done = put(workspace, place, data, None)
            word = "created"
        else:
            with open_original(place) as original:
                if original.content == data:
                    readings.note(agent, place.real, digest_of(data))
                    return f"{place.name} has just this content already"
                readings.check(agent, place, digest_of(original.content))
                done = put(workspace, place, data, original)
            word = "wrote"
        if done:
            readings.note(agent, place.real, digest_of(data))
            return f"{word} {place.name}: {_lines(data)} lines, {len(data)} bytes"
    raise busy(path)


def busy(path: str) -> ToolRetry:
    """Say that others write faster."""
    return ToolRetry(
        f"{shortened(path)} was changed by others {ATTEMPTS} times meanwhile; nothing was written, try again"
    )


def encoded(argument: str, text: str) -> bytes:
    """Give the bytes of a text that a model wrote.

    Raises:
      ToolFailed: they would be no text, or too many.
    """
    nul = text.find("\0")
    if nul >= 0:
        raise ToolFailed(f"{argument} has a NUL character in line {_line_at(text, nul)}, and only text is written")
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        where = _line_at(text, error.start)
        raise ToolFailed(f"{argument} has half of a surrogate pair in line {where}, which is no character") from None
    if len(data) > LARGEST:
        raise ToolFailed(f"{argument} has {len(data)} bytes, and {LARGEST} are the most")
    return data


def _line_at(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _lines(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n") and bool(data))

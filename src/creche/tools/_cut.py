"""How much of a result the model is shown at most, and where the rest of it is.

Rule 1: a result is cut after the last stage of the pipeline, when it is given to the model; a program that made the
call is given all of it.
Rule 2: all of a text that is cut is in a file, if the agent has tools that read one and their plugin says where.
"""

import itertools
import os
from collections.abc import Iterator, Sequence

import attrs
import trio

from creche.errors import NotRegisteredError
from creche.messages import Part, TextPart
from creche.scope import Registry, ScopeKey

LONGEST_RESULT = 100_000
"""Characters of text in one result, unless its tool says otherwise."""
HEAD = 0.8
"""Which part of what is shown is from the beginning; the rest is from the end."""


@attrs.frozen(eq=False)
class ResultFolder:
    """The service that says where results that are too long go; offered by a plugin whose tools can read there."""

    path: str
    """A folder that exists, an absolute path."""
    _numbers: Iterator[int] = attrs.field(factory=lambda: itertools.count(1), init=False, repr=False)

    def new_file(self) -> str:
        """Return a path in it that no other result has."""
        return os.path.join(self.path, f"result-{next(self._numbers)}.txt")


def cut_parts(parts: tuple[Part, ...], limit: int = LONGEST_RESULT, where: str = "") -> tuple[Part, ...]:
    """Return parts whose texts are cut to a limit of characters, in the middle of all of them together.

    Args:
      parts: What came out.
      limit: Characters of text to keep.
      where: What the model is told of the place where the rest is.
    """
    total = text_length(parts)
    if total <= limit:
        return parts
    head = int(limit * HEAD)
    tail = limit - head
    rest = where or "it is not kept"
    note = f"\n[{total - limit} of {total} characters are left out here; {rest}]\n"
    shown: list[Part] = []
    at, noted = 0, False
    for part in parts:
        if not isinstance(part, TextPart):
            shown.append(part)
            continue
        begin, at = at, at + len(part.text)
        first = part.text[: max(0, head - begin)]
        last = part.text[max(0, total - tail - begin) :] if at > total - tail else ""
        middle = "" if noted or at <= head else note
        noted = noted or bool(middle)
        if first or middle or last:
            shown.append(TextPart(first + middle + last))
    return tuple(shown)


def text_length(parts: Sequence[Part]) -> int:
    """Return how many characters of text there are in parts."""
    return sum([len(part.text) for part in parts if isinstance(part, TextPart)])


async def fit_result(
    registry: Registry, scope: ScopeKey | None, parts: tuple[Part, ...], *, limit: int
) -> tuple[Part, ...]:
    """Return what the model is shown of a result that is too long, and keep all of it in a file.

    A file that is being written is waited for, also under cancellation.

    Args:
      registry: Where the `ResultFolder` is looked for.
      scope: From where.
      parts: What came out.
      limit: Characters of text that are shown.
    """
    try:
        path = registry.find(ResultFolder, scope).new_file()
    except NotRegisteredError:
        return cut_parts(parts, limit)
    text = "\n".join([part.text for part in parts if isinstance(part, TextPart)])
    try:
        with trio.CancelScope(shield=True):  # a file of a few megabytes; a result that exists is not lost over it
            await trio.to_thread.run_sync(_write, path, text)
    except OSError as error:
        return cut_parts(parts, limit, f"it could not be kept: {error.strerror or error}")
    return cut_parts(parts, limit, f'all of it is in the file "{path}"')


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)

"""The ``edit`` tool without the tool: one text in a file becomes another.

Rule: a text is replaced where it stands exactly once, or everywhere on request, and the answer to anything else says
where it stands. As the text has to be there, an edit needs no reading first; and as the file is compared again when
it is replaced (see `_store`), two edits at once in different places are both in the file.
"""

from creche.errors import ToolFailed, ToolRetry
from creche.prompt import AgentView

from ._folder import Place, Workspace
from ._lines import FileText
from ._places import MOST_PLACES, lines_named, lines_of, near_miss, places_of, snippet
from ._readings import Readings, digest_of
from ._store import ATTEMPTS, LARGEST, open_original, put
from ._text import HEAD
from ._write import busy, encoded


def edit_text(
    workspace: Workspace,
    path: str,
    old: str,
    new: str,
    *,
    replace_all: bool = False,
    readings: Readings,
    agent: AgentView | None = None,
) -> str:
    """Replace a text in a file.

    Args:
      workspace: The folder everything is relative to.
      path: The file.
      old: What is there, with newlines as line ends.
      new: What will be there.
      replace_all: Replace it wherever it is; from left to right, if it overlaps itself.
      readings: What agents know; if ``agent`` knows the file, it knows it after the edit.
      agent: Who edits; None if it is a program.

    Raises:
      ToolFailed: no such file, not a text file, or an argument that makes no sense.
      ToolRetry: ``old`` is not there, or not once.
    """
    for argument, text in (("old", old), ("new", new)):
        encoded(argument, text)
    if not old:
        raise ToolFailed("old is empty; give the text that is replaced, or use write for a new file")
    for _ in range(ATTEMPTS):
        place = workspace.resolve(path)
        if place.is_folder:
            raise ToolFailed(f"{place.name} is a folder")
        with open_original(place) as original:
            if b"\0" in original.content[:HEAD]:
                raise ToolFailed(f"{place.name} is a binary file, and only text is edited")
            before = FileText.of(original.content)
            after, answer = _edited(place, before, before.seen(old), before.seen(new), replace_all=replace_all)
            content = after.content()
            if len(content) > LARGEST:
                raise ToolFailed(f"{place.name} would have {len(content)} bytes, and {LARGEST} are the most")
            if put(workspace, place, content, original):
                if readings.knows(agent, place.real, digest_of(original.content)):
                    readings.note(agent, place.real, digest_of(content))
                return answer
    raise busy(path)


def _edited(place: Place, file: FileText, old: str, new: str, *, replace_all: bool) -> tuple[FileText, str]:
    """Give the new text and what is said about it."""
    if old == new:
        raise ToolFailed("old and new are the same text; line ends are kept as they are in the file")
    if not old:
        raise ToolFailed("old is nothing but a byte order mark, which is kept as it is")
    places = places_of(file.text, old, overlapping=not replace_all)
    if not places:
        raise ToolRetry(f"old does not occur in {place.name}; {near_miss(file, old, new)}")
    if len(places) > MOST_PLACES:
        raise ToolRetry(f"old occurs more than {MOST_PLACES} times in {place.name}; give more of the text around it")
    lines = lines_of(file, places)
    if len(places) > 1 and not replace_all:
        raise ToolRetry(
            f"old occurs {len(places)} times in {place.name}, at {lines_named(lines)}; "
            "give more of the text around the one that is meant, or set replace_all"
        )
    after = file.replaced(old, new, places)
    count = f"{len(places)} times, " if len(places) > 1 else ""
    shown = snippet(after, places[0], new)
    return after, f"edited {place.name} {count}at {lines_named(lines)}" + (f"\n{shown}" if shown else "")

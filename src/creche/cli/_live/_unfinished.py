"""The line that is not finished yet: as it was said, and as rows of a terminal."""

from ._cells import wrap


class Unfinished:
    """A line that grows; what it costs to add to it does not grow with it."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._rows: list[str] = [""]
        self._width = 0
        self._wrapped = 0

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, text: str) -> None:
        """Say more of it; ``text`` has no end of a line."""
        if text:
            self._pieces.append(text)

    def take(self) -> str:
        """Return it as it was said, and begin another one."""
        text = "".join(self._pieces)
        self._pieces, self._width = [], 0
        return text

    def rows(self, width: int) -> list[str]:
        """Return it as rows of at most some cells; none if nothing was said."""
        if width != self._width:
            self._width, self._rows, self._wrapped = width, [""], 0
        more = "".join(self._pieces[self._wrapped :])
        self._wrapped = len(self._pieces)
        if more:
            self._rows[-1:] = wrap(self._rows[-1] + more, width)
        return self._rows if self._pieces else []

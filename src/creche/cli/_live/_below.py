"""What is drawn anew: the rows from the cursor on.

Rule 1: between two writes the cursor stands at the beginning of the first of them, however the terminal has wrapped
them since. So clearing from the cursor on takes all of them away and nothing else.
Rule 2: no row takes more rows of the terminal than one, also if it is wider there than we think: while a row is drawn, the
terminal does not wrap. Each row changes that for itself, so wherever rows are cut apart the terminal is as it was.
"""

import os
from collections.abc import Sequence

CLEAR_BELOW, CLEAR_LINE = "\x1b[J", "\x1b[K"
WITHOUT_WRAP, WITH_WRAP = "\x1b[?7l", "\x1b[?7h"


class Below:
    """The rows that stand on the terminal from the cursor on."""

    def __init__(self) -> None:
        self._rows: list[str] = []
        self._size: os.terminal_size | None = None

    def replace(self, lines: Sequence[str], rows: list[str], size: os.terminal_size, *, stay: bool = False) -> str:
        """Return what brings the terminal from what it shows to something else.

        Args:
          lines: What is written above the rows for good.
          rows: What stands there from then on, each no wider than the terminal.
          size: How large the terminal is.
          stay: Whether they stand there for good, so that the cursor goes below them.
        """
        if not lines and not stay and rows == self._rows and (size == self._size or not rows):
            return ""
        has_same_shape = not lines and len(rows) == len(self._rows) and size == self._size
        self._rows, self._size = ([] if stay else rows), size
        written = ["\r", "" if has_same_shape else CLEAR_BELOW, *[f"{line}\n" for line in lines]]
        if rows:
            # Cleared before it is written: behind a row that is full, clearing would take its last character.
            drawn = "\n".join([f"{WITHOUT_WRAP}{CLEAR_LINE}{row}{WITH_WRAP}" for row in rows])
            up = f"\x1b[{len(rows) - 1}A" if len(rows) > 1 and not stay else ""
            written += [drawn, "\n" if stay else f"\r{up}"]
        return "".join(written)

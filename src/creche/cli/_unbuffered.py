"""Stdout for the line that is typed: past every buffer, and without questions to the terminal."""

import os
import sys
from typing import TextIO, cast

from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output


class _Terminal:
    """Stdout as a file without a buffer: what a thread that hangs has written is in no buffer that others flush."""

    def __init__(self) -> None:
        self.encoding = sys.stdout.encoding

    def write(self, text: str) -> None:
        """Write all of a text."""
        left = text.encode(self.encoding, "replace")
        while left:
            left = left[os.write(sys.stdout.fileno(), left) :]

    def flush(self) -> None:
        """Do nothing."""

    def fileno(self) -> int:
        return sys.stdout.fileno()

    def isatty(self) -> bool:
        return True


def unbuffered_output() -> Vt100_Output:
    """Return stdout, which is a terminal, for an application."""
    output = Vt100_Output.from_pty(
        cast("TextIO", _Terminal()), term=os.environ["TERM"], default_color_depth=ColorDepth.from_env()
    )
    output.enable_cpr = False  # nothing here needs to know the row, and an answer that comes late looks typed
    return output

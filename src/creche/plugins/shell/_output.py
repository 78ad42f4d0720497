"""What a command printed, as far as a model should see it.

Rule 1: of a flood the beginning and the end are kept, so memory is bounded while it is read, and a sentence between them
says how much is missing.

Rule 2: what is shown is plain text: control sequences are left out, what is not UTF-8 and other control characters are
replaced, and a carriage return is a line end, too. A terminal takes what follows the beginning of a title or a link for
part of it until it ends; here, if it does not end in its line, only the beginning is left out.
"""

import re

HEAD = 10_000
"""Bytes from the beginning that are kept."""

TAIL = 20_000
"""Bytes from the end that are kept: more, for the end is where it is said what went wrong."""

_NEAR = 1000
"""Bytes that are given up at a cut so that it is at a line end."""

# Nothing is looked at more often than twice: no part takes an ESC but as its end, and what a part has taken it keeps.
_SEQUENCE = re.compile(
    r"\x1b(?:"
    r"\[[0-?]*+[ -/]*+[@-~]"  # CSI: colours, the cursor
    r"|\][^\x07\x1b\n]*+(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|[PX^_][^\x1b\n]*+\x1b\\"  # other strings
    r"|[ -/]*+[0-~]"  # the rest, and the beginning of a string without an end
    r")"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class Output:
    """Takes chunks of any size, and keeps the beginning and the end."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._size = 0

    def add(self, chunk: bytes) -> None:
        """Take what came next."""
        self._size += len(chunk)
        room = HEAD - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) > 2 * TAIL:
            del self._tail[:-TAIL]

    def text(self) -> str:
        """Give what is kept, without the line end at its end."""
        tail = bytes(self._tail[-TAIL:])
        head = bytes(self._head)
        if len(head) + len(tail) == self._size:
            return _plain(head + tail)
        cut = head.rfind(b"\n", len(head) - _NEAR) + 1
        head = head[:cut] if cut else head
        tail = tail[tail.find(b"\n", 0, _NEAR) + 1 :]
        missing = self._size - len(head) - len(tail)
        return f"{_plain(head)}\n[{missing} of {self._size} bytes left out here]\n{_plain(tail)}"


def _plain(raw: bytes) -> str:
    text = _SEQUENCE.sub("", raw.decode("utf-8", "replace"))
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub("\ufffd", text).removesuffix("\n")

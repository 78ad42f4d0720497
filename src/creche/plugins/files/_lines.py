r"""The text of a file as a model sees it, and the way back to the very bytes.

Rule 1: a model sees lines without their ends, so it writes ``\n`` for any. In the text every end is a newline; whether
it was ``\r\n`` in the file is kept beside it. A byte order mark is kept beside it, too.

Rule 2: what is not replaced comes back as the bytes that it was, also if it is not UTF-8. A line end in what is put in
is that of the line whose place it takes, or else the one that most lines of the file have.
"""

from collections.abc import Sequence

from attrs import field, frozen

BOM = "\ufeff"
_CRLF = "\r\n"


@frozen
class FileText:
    """The text of a file, and what the model does not see of it."""

    text: str
    """With newlines as line ends; a byte that is not UTF-8 is a lone surrogate."""

    ends: Sequence[str] | None = field(default=None, kw_only=True)
    r"""The end of each line that has one; None if all are ``"\n"``."""

    bom: str = field(default="", kw_only=True)
    """What stands before the text."""

    @classmethod
    def of(cls, content: bytes) -> "FileText":
        """Read the content of a file."""
        text = content.decode("utf-8", "surrogateescape")
        bom = BOM if text.startswith(BOM) else ""
        text = text.removeprefix(bom)
        if _CRLF not in text:
            return cls(text, bom=bom)
        *lines, last = text.split("\n")
        ends = [_CRLF if line.endswith("\r") else "\n" for line in lines]
        return cls("\n".join([*(line.removesuffix("\r") for line in lines), last]), ends=ends, bom=bom)

    def content(self) -> bytes:
        """Give the content of the file."""
        text = self.text
        if self.ends is not None:
            *lines, last = text.split("\n")
            text = "".join([*map("".join, zip(lines, self.ends, strict=True)), last])
        return (self.bom + text).encode("utf-8", "surrogateescape")

    def seen(self, argument: str) -> str:
        """Give a text that a model wrote as it would stand in this one."""
        return argument.removeprefix(self.bom).replace(_CRLF, "\n")

    def replaced(self, old: str, new: str, places: Sequence[int]) -> "FileText":
        """Give the text with ``new`` in place of each ``old``; they stand at ``places``, in order, and do not overlap."""
        pieces: list[str] = []
        ends: list[str] = []
        usual = max((_CRLF, "\n"), key=list(self.ends or ()).count)
        at = line = 0  # the place and the line in this text that is reached
        for place in places:
            begin = line + self.text.count("\n", at, place)
            after = begin + old.count("\n")
            pieces += [self.text[at:place], new]
            if self.ends is not None:
                count = new.count("\n")
                ends += [*self.ends[line:begin], *self.ends[begin:after][:count]]
                ends += [usual] * (count - (after - begin))
            at, line = place + len(old), after
        pieces.append(self.text[at:])
        if self.ends is None:
            return FileText("".join(pieces), bom=self.bom)
        return FileText("".join(pieces), ends=[*ends, *self.ends[line:]], bom=self.bom)

    def line_at(self, place: int) -> int:
        """Give the number of the line in which a place is, from 1."""
        return self.text.count("\n", 0, place) + 1

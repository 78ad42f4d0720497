"""In which lines of a program statements start: what a string, a bracket or a backslash continues must not be indented.

Python's own tokenizer is not asked. On 3.12 its time grows with the square of the length of a line, so that one of
160 kB takes minutes, and each version reads f-strings in its own way. Here a character is passed once, and f-strings
are read as Monty does, as since 3.12: what is in their braces is code, with any quotes and line breaks.

Only what is Python has to be read right. Of anything else Monty says what is wrong with it, wherever lines are taken to
start.
"""

import re
from typing import Final

import attrs

# Groups are not repeated possessively: Python had that wrong before 3.11.5 (gh-106052). Nothing is tried twice all the same,
# for what is in them differs in its first character.
_BRACKET, _FIELD, _FORMAT = "(", "{", ":"
_CODE: Final = re.compile(
    r"""
    (?P<blank> [ \t\f]++ | \#[^\n]*+ )
    | (?P<newline> \n )
    | (?P<prefix> (?i: [rbuft] | b r | r [bft] | [ft] r ) )? (?P<quote> \"{3} | '{3} | ["'] )
    | (?P<opening> [(\[{]++ )
    | (?P<closing> [)\]}] )
    | (?P<colon> : )
    | (?P<other> \\[\s\S]? | (?: \w++ (?!["']) | [^\n\w"'\#\\()\[\]{}:]++ )+ | \w++ )
    """,
    re.VERBOSE,
)
_STRINGS: Final = {
    '"': re.compile(r'(?:[^\\"\n]++|\\[\s\S])*"'),
    "'": re.compile(r"(?:[^\\'\n]++|\\[\s\S])*'"),
    '"""': re.compile(r'(?:[^\\"]++|\\[\s\S]|"(?!""))*"""'),
    "'''": re.compile(r"(?:[^\\']++|\\[\s\S]|'(?!''))*'''"),
}
"""What follows on the quotes that open a string, raw or not."""
_TEXTS: Final = {
    '"': re.compile(r'(?:[^\\{}"\n]++|\\[^{}]?+|\{\{|\})*("|\{)'),
    "'": re.compile(r"(?:[^\\{}'\n]++|\\[^{}]?+|\{\{|\})*('|\{)"),
    '"""': re.compile(r'(?:[^\\{}"]++|\\[^{}]?+|\{\{|\}|"(?!""))*("""|\{)'),
    "'''": re.compile(r"(?:[^\\{}']++|\\[^{}]?+|\{\{|\}|'(?!''))*('''|\{)"),
    _FORMAT: re.compile(r"[^{}]*+([{}])"),
}
"""The text of an f-string, or of a format in its braces, until that ends or code begins."""


def find_starts(source: str) -> frozenset[int] | None:
    """Return the lines in which a statement starts; lines end with a line feed alone.

    It is ``None`` if the first statement is indented, or if a string or a bracket does not end.
    """
    return _Reader(source).read()


@attrs.define(eq=False)
class _Reader:
    _source: str
    _inside: list[str] = attrs.field(factory=list[str])
    """What is open, the innermost last: brackets, the quotes of f-strings, and the braces in these."""
    _starts: list[int] = attrs.field(factory=list[int])
    _is_fresh: bool = True
    """Whether a statement starts with what comes next."""
    _line: int = 1
    _counted: int = 0
    """Up to here, the line breaks are counted."""

    def read(self) -> frozenset[int] | None:
        at: int | None = 0
        while at is not None and at < len(self._source):
            top = self._inside[-1] if self._inside else ""
            at = self._read_text(at, top) if top in _TEXTS else self._read_code(at, top)
        return None if at is None or self._inside else frozenset(self._starts)

    def _read_code(self, at: int, top: str) -> int | None:
        match = _CODE.match(self._source, at)
        assert match is not None, "there is an alternative for each character"
        kind = match.lastgroup
        if kind == "newline":
            self._is_fresh = not top
        elif self._is_fresh and kind != "blank":
            self._is_fresh = False
            if not self._note_start(at):
                return None
        if kind == "quote":
            return self._open_string(match)
        if kind == "opening":
            self._inside += [_BRACKET] * len(match[0])
        elif kind == "closing" and (top == _BRACKET or (top == _FIELD and match[0] == "}")):
            self._inside.pop()
        elif kind == "colon" and top == _FIELD:
            self._inside[-1] = _FORMAT
        return match.end()

    def _note_start(self, at: int) -> bool:
        """Note that a statement starts; false if it is the first one and indented."""
        self._line += self._source.count("\n", self._counted, at)
        self._counted = at
        self._starts.append(self._line)
        return len(self._starts) > 1 or at == 0 or self._source[at - 1] == "\n"

    def _open_string(self, match: re.Match[str]) -> int | None:
        if {*(match["prefix"] or "").lower()} & {"f", "t"}:
            self._inside.append(match["quote"])
            return match.end()
        rest = _STRINGS[match["quote"]].match(self._source, match.end())
        return None if rest is None else rest.end()

    def _read_text(self, at: int, top: str) -> int | None:
        match = _TEXTS[top].match(self._source, at)
        if match is None:
            return None
        if match[1] == "{":
            self._inside.append(_FIELD)
        else:
            self._inside.pop()
        return match.end()

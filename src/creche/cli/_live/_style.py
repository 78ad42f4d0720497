"""Lines of styled text, and what they are drawn with."""

from collections.abc import Mapping
from types import MappingProxyType

from attrs import field, frozen


@frozen
class Glyphs:
    """Characters that not every encoding has."""

    branch: str = "├─ "
    """Before an agent with siblings after it."""
    last: str = field(default="└─ ", kw_only=True)
    """Before the last of its siblings."""
    bar: str = field(default="│  ", kw_only=True)
    """Before what is below an agent with siblings after it."""
    dots: str = field(default="…", kw_only=True)
    """For what is left out."""


UNICODE = Glyphs()
ASCII = Glyphs("|- ", last="`- ", bar="|  ", dots="...")


@frozen
class Span:
    """A stretch of text of one style."""

    text: str
    """The text."""
    style: str = ""
    """A name, see `STYLES`."""


Line = tuple[Span, ...]

STYLES: Mapping[str, str] = MappingProxyType(
    {
        "strong": "1",
        "dim": "2",
        "prepares": "2",
        "asks": "36",
        "calls": "34",
        "waits": "33",
        "done": "32",
        "failed": "31",
        "cancelled": "35",
    }
)
"""What a style is on a terminal, as parameters of SGR."""


def plain(line: Line) -> str:
    """Return a line without its styles."""
    return "".join([span.text for span in line])


def styled(line: Line) -> str:
    """Return a line as a terminal shows it in its styles; at its end no style is left."""
    return "".join([_styled(span) for span in line])


def _styled(span: Span) -> str:
    code = STYLES.get(span.style)
    return span.text if code is None or not span.text.strip() else f"\x1b[{code}m{span.text}\x1b[0m"

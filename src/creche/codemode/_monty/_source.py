"""Programs as Monty takes them, and errors as it gives them.

Monty runs modules and ours are bodies of functions, so a program is indented under a ``def``, line by line and without
a line more, so that a line of the program is a line of what runs. A class that inherits from another is not known to
Monty, so ``ToolCallError`` is an exception of its own that nothing raises but the module ``csv``. Nor is
``__getattr__``: a tool is an attribute that is set.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import attrs

from ._lines import find_starts

if TYPE_CHECKING:
    import pydantic_monty as monty

CALL = "__call_tool__"
"""The only function of the host."""
TOOL_ERROR: Final = "_csv.Error"
"""What a ``ToolCallError`` is called outside."""

_PRELUDE = """
import csv as __csv__, json as __json__

ToolCallError = __csv__.Error

def __tool__(name):
    async def call(arguments):
        return __json__.loads(await __call_tool__(name, arguments))

    def tool(*positional, **arguments):
        if positional:
            raise TypeError(f"the tool {name!r} takes keyword arguments only")
        return call(__json__.dumps(arguments, allow_nan=False, ensure_ascii=False))

    return tool

class Tools:
    def __init__(self):
        for name in __tools__:
            setattr(self, name, __tools__[name])

    def __getitem__(self, name):
        if name not in __tools__:
            raise KeyError(f"no tool {name!r}; there are: {', '.join(__names__)}")
        return __tools__[name]

__tools__ = {name: __tool__(name) for name in __names__}
tools = Tools()

def __end__(value):
    if value is ...:
        return None
    try:
        return __json__.dumps(value, allow_nan=False, ensure_ascii=False)
    except Exception as error:
        return [str(error)]
"""
_HEAD = "async def __program__():\n"
_TAIL = "\n return ...\n__end__(await __program__())"
_LONGEST = 10_000


def prelude(names: Iterable[str]) -> str:
    """Return what runs before a program: ``tools``, ``ToolCallError``, and ``__end__``, which makes JSON."""
    return f"__names__ = {sorted(names)!r}\n{_PRELUDE}"


@attrs.frozen
class Wrapped:
    """A program as Monty takes it."""

    source: str
    lines: int
    """Lines of the program."""
    before: int
    """Lines that stand before it."""

    def line(self, number: int) -> int:
        """Return the line of the program for a line of what runs."""
        return min(max(number - self.before, 1), self.lines)


def wrap(source: str) -> Wrapped:
    """Make a program the body of a function that is called; the value of it all is JSON text.

    ``None`` if it returned nothing, and a list of one sentence if it returned no JSON. What is no Python is left as it
    is, for Monty to say what is wrong with it.
    """
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    lines = source.split("\n")
    starts = find_starts(source)
    if starts is None:
        return Wrapped(source, len(lines), 0)
    body = "\n".join([f" {line}" if number in starts else line for number, line in enumerate(lines, 1)])
    return Wrapped(f"{_HEAD}{body}{_TAIL}", len(lines), 1)


def sentence(error: "monty.MontyRuntimeError | monty.MontySyntaxError", wrapped: Wrapped, names: Iterable[str]) -> str:
    """Return what went wrong in a program, and in which of its lines."""
    said = error.display("type-msg")
    if said.startswith(TOOL_ERROR):
        said = said.replace(TOOL_ERROR, "ToolCallError", 1)
    if said.startswith("AttributeError: 'Tools' object has no attribute "):
        said += f"; there are: {', '.join(sorted(names))}"
    said = shortened(said)
    frames = error.traceback()
    # The prelude is what is fed first, the program second; what is raised in a tool is raised where it was called.
    inside = [frame for frame in frames if frame.filename != "<python-input-0>"]
    return f"{said} (line {wrapped.line(inside[-1].line)})" if inside else said


def shortened(said: str) -> str:
    """Return what a program had said as long as it is fit to be read."""
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}..."

"""Tools as typed Python stubs, for the prompt of a model that writes programs.

Whatever the schemas hold, the text parses as Python. What their authors wrote stands in it as a checked name, a literal,
a docstring or a comment, and can end none of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from creche.messages import ToolSchema

from ._text import is_name, literal, printable
from ._types import Declarations, Hints, Member

_HEAD = """\
# The tools, to be called as `await tools.name(key=value)`. Where it says Any, a text is a str and anything else a JSON
# value. At run time there are only `tools` and `ToolCallError`, which a failed call raises; the types are for reading."""
_SOFT_KEYWORDS = frozenset({"case", "match", "type"})  # not as `keyword` has them, which differs between Pythons


def render_stubs(schemas: Iterable[ToolSchema], returns: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return tools as typed Python, sorted by name; ``""`` if there are none.

    The same tools give the same bytes, in any order. Any schema is taken: what has no form in Python's types is shown
    as ``Any``, and a tool whose name is no identifier as a comment with ``tools["its-name"]``.

    Args:
      schemas: The tools.
      returns: JSON Schemas of what they return, by name, as text; what is not there returns ``Any``.
    """
    ordered = sorted(schemas, key=lambda each: (each.name, each.description, each.parameters))
    if not ordered:
        return ""
    declarations = Declarations()
    tools = [_render_tool(each, returns.get(each.name, ""), declarations) for each in ordered]
    if not any(_is_method(each.name) for each in ordered):
        tools.append("    ...")  # a body of comments alone is none
    block = "class Tools(Protocol):\n" + "\n\n".join(tools)
    return "\n\n".join([_HEAD, *declarations.texts, block, "tools: Tools"])


def _render_tool(schema: ToolSchema, returned: str, declarations: Declarations) -> str:
    hints = Hints(schema.parameters, declarations)
    named, exotic = list[Member](), list[Member]()
    for member in hints.members(hints.root, schema.name):
        (named if is_name(member.key) and member.key != "self" else exotic).append(member)
    result = Hints(returned, declarations).of_value(f"{schema.name} result")
    arguments = [f"{each.key}: {each.annotation}" for each in named]
    if exotic or hints.root.get("additionalProperties", "properties" not in hints.root) is not False:
        arguments.append(f"**{_free_name(named)}: Any")
    docstring = [f"    {line}".rstrip() for line in _docstring(schema.description, named, exotic)]
    if _is_method(schema.name):
        first = ["self", "*"] if named else ["self"]
        head = f"async def {schema.name}({', '.join(first + arguments)}) -> {result}:"
        lines = [head, *docstring] if docstring else [f"{head} ..."]
        return "\n".join(f"    {line}" if line else "" for line in lines)
    lines = [f"await tools[{literal(schema.name)}]({', '.join(arguments)}) -> {result}", *docstring]
    return "\n".join(f"    # {line}" if line else "    #" for line in lines)


def _is_method(name: str) -> bool:
    return is_name(name) and not name.startswith("_") and name not in _SOFT_KEYWORDS


def _free_name(named: Sequence[Member]) -> str:
    taken, name = {each.key for each in named}, "others"
    while name in taken:
        name += "_"
    return name


def _docstring(description: str, named: Sequence[Member], exotic: Sequence[Member]) -> list[str]:
    """Return the lines of the docstring with its quotes, none if there is nothing to say."""
    notes = [f"  {each.key}: {each.note}" for each in named if each.note]
    for each in exotic:  # no signature can have them, so all that is known is said here
        about = f": {each.note}" if each.note else ""
        notes.append(f"  **{{{literal(each.key)}: {each.annotation}}}{about}")
    text = "\n\n".join(filter(None, (description.strip(), "\n".join(["Args:", *notes]) if notes else "")))
    if not text:
        return []
    text = text.replace("\\", "\\\\").replace("\r\n", "\n").replace('"""', r"\"\"\"")
    # A quote at the end would join those that close.
    closed = f'"""{text}\n"""' if "\n" in text or text.endswith('"') else f'"""{text}"""'
    return list(map(printable, closed.split("\n")))

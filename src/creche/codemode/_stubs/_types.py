"""JSON Schemas as Python's type hints, and the declarations that the hints lean on.

Any schema gives a hint that parses: what has no form here is ``Any``. Each part of a schema is visited once, and a
definition once for all tools, so the work and the text grow with the schemas and no faster. What an author wrote
stands in the text as a checked name, a literal or a comment, so none of it is ever code.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import attrs

from creche._util import canonical_json

from ._text import is_name, literal, one_line, type_name

_SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_TAKEN = ("Any", "Literal", "NotRequired", "Protocol", "ToolCallError", "Tools", "TypedDict", "Union")
_KEYWORDS = ("False", "None", "True")
# What is deeper is Any. Python's own parser gives up at 200 brackets and at some 1000 alternatives in a chain.
_DEEPEST = 32
_LONGEST_CHAIN = 12
_LONGEST_DEFAULT = 200


@attrs.frozen
class Member:
    """A parameter of a tool, or a key of a TypedDict."""

    key: str
    """As the schema has it: any text."""
    hint: str = attrs.field(kw_only=True)
    """Its type."""
    default: str = attrs.field(kw_only=True)
    """As Python; ``...`` if it may be left out and no more is known or it is long, ``""`` if it must be given."""
    note: str = attrs.field(kw_only=True)
    """Its description, on one line."""

    @property
    def annotation(self) -> str:
        """What follows the colon."""
        return f"{self.hint} = {self.default}" if self.default else self.hint


class Declarations:
    """What the hints of all tools need declared. Each comes after what it needs itself, a cycle aside."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.names: dict[tuple[str, str], str] = {}
        """Names of the definitions, by their own and by a text that only the same definition has."""
        self._numbers: dict[str, int] = dict.fromkeys(_TAKEN + _KEYWORDS, 1)

    def new_name(self, wish: str) -> str:
        """Return the wish, with a number if it is taken."""
        name = wish
        while name in self._numbers:
            self._numbers[wish] += 1
            name = f"{wish}{self._numbers[wish]}"
        self._numbers[name] = 1
        return name


class Hints:
    """The hints of one tool."""

    def __init__(self, parameters: str, declarations: Declarations) -> None:
        self.root: Mapping[str, Any] = {}
        """What describes all arguments together; empty if it cannot be read."""
        self._declarations = declarations
        self._definitions: dict[str, tuple[tuple[str, str], Any]] = {}  # by reference; with the key of its name
        try:
            root = json.loads(parameters)
            if places := {word: _mapping(root[word]) for word in ("$defs", "definitions") if word in root}:
                self._add_definitions(places)
        except (ValueError, RecursionError):  # nested too deep, or of too many digits, for where this is called
            return
        _, described = self._definitions.get(_text(root.get("$ref")), (None, root))
        self.root = _mapping(described)

    def _add_definitions(self, places: Mapping[str, Mapping[str, Any]]) -> None:
        together = canonical_json(places)
        for word, definitions in places.items():
            for name, schema in definitions.items():
                alone = canonical_json(schema)
                # One that refers to others is the same only if they are.
                self._definitions[f"#/{word}/{name}"] = ((name, together if '"$ref"' in alone else alone), schema)

    def of_value(self, name: str) -> str:
        """Return the hint of all that is described.

        Args:
          name: Words that stand for it; its types are named after them.
        """
        return self._hint(self.root, name, 0)

    def members(self, schema: Mapping[str, Any], name: str, depth: int = 0) -> list[Member]:
        """Return the properties of an object.

        Args:
          schema: What describes the object.
          name: Words that stand for the object; the types of its properties are named after them.
          depth: How many schemas the object is inside of.
        """
        required = set(map(_text, _items(schema.get("required"))))
        found = list[Member]()
        for key, given in _mapping(schema.get("properties")).items():
            member = _mapping(given)
            default = "" if key in required else _default(member["default"]) if "default" in member else "..."
            # A class in the place of the property would repeat the description.
            hint = self._hint({**member, "description": ""}, f"{name} {key}", depth + 1)
            found.append(Member(key, hint=hint, default=default, note=one_line(member.get("description"))))
        return found

    def _hint(self, given: Any, name: str, depth: int) -> str:
        parts = list(dict.fromkeys(self._parts(_mapping(given), name, depth)))
        if "Any" in parts:
            return "Any"
        return " | ".join(parts) if len(parts) <= _LONGEST_CHAIN else f"Union[{', '.join(parts)}]"

    def _parts(self, schema: Mapping[str, Any], name: str, depth: int) -> list[str]:
        """Return the alternatives, those of unions in a union as well, or the chain could be of any length."""
        if depth > _DEEPEST:
            return ["Any"]
        if "$ref" in schema:
            return [self._reference(_text(schema["$ref"]), depth)]
        if choice := _choice(schema):
            return [choice]
        if kinds := _kinds(schema):
            return [self._typed(kind, schema, name, depth) for kind in kinds]
        branches = _branches(schema)
        return [part for each in branches for part in self._parts(_mapping(each), name, depth + 1)] or ["Any"]

    def _typed(self, kind: str, schema: Mapping[str, Any], name: str, depth: int) -> str:
        if kind == "array":
            items = {"anyOf": schema["prefixItems"]} if "prefixItems" in schema else schema.get("items")
            return f"list[{self._hint(items, name, depth + 1)}]"
        if kind != "object":
            return _SCALARS.get(kind, "Any")
        if _mapping(schema.get("properties")):
            return self._declare_class(self._declarations.new_name(type_name(name)), schema, depth)
        return f"dict[str, {self._hint(schema.get('additionalProperties'), name, depth + 1)}]"

    def _reference(self, reference: str, depth: int) -> str:
        if reference not in self._definitions:
            return "Any"
        key, given = self._definitions[reference]
        names, schema = self._declarations.names, _mapping(given)
        if key in names:  # declared, or about to be by a caller of this
            return names[key]
        name = names[key] = self._declarations.new_name(type_name(key[0]))
        if _is_class(schema):
            return self._declare_class(name, schema, depth)
        hint = self._hint(schema, name, depth + 1)
        about = _comment(one_line(schema.get("description")))
        self._declarations.texts.append(f"{name} = {'Any' if hint == name else hint}{about}")
        return name

    def _declare_class(self, name: str, schema: Mapping[str, Any], depth: int) -> str:
        members = self.members(schema, name, depth)
        about = _comment(one_line(schema.get("description")))
        if all(is_name(each.key) for each in members):
            lines = [f"    {each.key}: {_field(each)}{_about(each)}" for each in members]
            lines.insert(0, f"class {name}(TypedDict):{about}")
        else:
            lines = [f"    {literal(each.key)}: {_field(each)},{_about(each)}" for each in members]
            lines = [f'{name} = TypedDict("{name}", {{{about}', *lines, "})"]
        self._declarations.texts.append("\n".join(lines))
        return name


def _field(member: Member) -> str:
    return f"NotRequired[{member.hint}]" if member.default else member.hint


def _about(member: Member) -> str:
    default = "" if member.default == "..." else member.default
    return _comment("; ".join(filter(None, (default and f"default {default}", member.note))))


def _comment(text: str) -> str:
    return text and f"  # {text}"


def _is_class(schema: Mapping[str, Any]) -> bool:
    is_object = _kinds(schema) == ["object"] and bool(_mapping(schema.get("properties")))
    return is_object and "$ref" not in schema and not _choice(schema)


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    if "type" not in schema:
        return ["object"] if "properties" in schema else []
    kinds = schema["type"]
    # Each once: what is below would be visited for each.
    return [kinds] if isinstance(kinds, str) else list(dict.fromkeys(map(_text, _items(kinds)))) or [""]


def _choice(schema: Mapping[str, Any]) -> str:
    values = [schema["const"]] if "const" in schema else _items(schema.get("enum"))
    if not values or not all(isinstance(value, str | int | None) for value in values):
        return ""
    return f"Literal[{', '.join(map(literal, values))}]"


def _branches(schema: Mapping[str, Any]) -> Sequence[Any]:
    every = _items(schema.get("allOf"))
    return _items(schema.get("anyOf")) or _items(schema.get("oneOf")) or (every if len(every) == 1 else ())


def _default(value: object) -> str:
    text = _collection(value, 0)
    return text if len(text) <= _LONGEST_DEFAULT else "..."


def _collection(value: Any, depth: int) -> str:
    if not isinstance(value, list | dict):
        return literal(value)
    if depth > _DEEPEST:
        return "..."
    if isinstance(value, list):
        return f"[{', '.join(_collection(each, depth + 1) for each in _items(value))}]"
    pairs = (f"{literal(key)}: {_collection(each, depth + 1)}" for key, each in _mapping(value).items())
    return f"{{{', '.join(pairs)}}}"


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _items(value: Any) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, list) else ()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""

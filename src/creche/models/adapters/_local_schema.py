"""What a model that knows no tools is told of them, and the JSON Schema that its answer is held to.

The model writes one JSON object: ``{"tool": NAME, "arguments": {...}}`` for a call, ``{"reply": TEXT}`` for an answer.
So there is one call in an answer at most.

Rule 1: llama.cpp makes a grammar of the schema, and refuses a request whose schema has a part that it cannot read:
``true`` and ``false`` in place of a schema, an unknown type, an empty ``enum``, a reference that leads nowhere or to
itself. A pattern that it cannot read it complains of on stderr. So a schema is made anew of the keywords that are known
to work.
Rule 2: what is left out makes the schema looser, never stricter. The tool checks its arguments itself.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from creche._util import canonical_json
from creche.messages import ToolSchema

from .._failures import provider_error
from .._request import ModelRequest

_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_SIZES = ("minItems", "maxItems", "minLength", "maxLength")
_LARGEST_BOUND = 2**53
_LARGEST_SIZE = 256  # a grammar grows with it
_REFERENCE = re.compile(r"#/(?:\$defs|definitions)/([\w.-]+)")
_REPLY = {"type": "string"}

_Json = dict[str, object]


def offered_tools(request: ModelRequest, provider: str) -> tuple[ToolSchema, ...]:
    """Return the tools that the answer may call, by the request's ``tool_choice``.

    Raises:
      ModelError: It names a tool that the request does not have.
    """
    choice = request.settings.options.tool_choice
    if choice == "none":
        return ()
    if choice in (None, "auto", "required") or not request.tools:
        return request.tools
    named = tuple([tool for tool in request.tools if tool.name == choice])
    if not named:
        raise provider_error(
            provider, "invalid-request", f"tool_choice names {choice!r}, which is no tool here", has_cure=True
        )
    return named


def answer_schema(request: ModelRequest, tools: Sequence[ToolSchema]) -> _Json | None:
    """Return the JSON Schema that the answer is held to, ``None`` for free text.

    Args:
      request: The request. With an ``output_schema``, that is what a reply has to follow.
      tools: What the answer may call.
    """
    options = request.settings.options
    wanted = None if options.output_schema is None else json.loads(options.output_schema)
    if not tools:
        return None if wanted is None else loosened(wanted)
    branches = [
        _object(
            {"tool": {"const": tool.name}, "arguments": loosened(json.loads(tool.parameters), _arguments_at(index))}
        )
        for index, tool in enumerate(tools)
    ]
    if options.tool_choice in (None, "auto"):
        reply = _REPLY if wanted is None else loosened(wanted, f"#/anyOf/{len(tools)}/properties/reply")
        branches.append(_object({"reply": reply}))
    return {"anyOf": branches}


def _arguments_at(index: int) -> str:
    return f"#/anyOf/{index}/properties/arguments"


def _object(properties: Mapping[str, object]) -> _Json:
    # In this order: the name of the tool comes before its arguments.
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


# ---------------------------------------------------------------- a schema that llama.cpp takes


def loosened(schema: object, place: str = "#") -> _Json:
    """Return the schema of an object, made of what llama.cpp is known to take.

    Args:
      schema: The schema.
      place: The JSON pointer to where it will stand, for its references.
    """
    whole = _mapping(schema)
    given = {**_mapping(whole.get("definitions")), **_mapping(whole.get("$defs"))}
    loose = _Loosening(place, frozenset(given))
    # A definition that is another one, or a choice of others, could lead to itself without an end.
    definitions: _Json = {name: loose.schema(each, follow=False) for name, each in given.items()}
    found = loose.schema(whole)
    if "anyOf" not in found and "$ref" not in found:
        found["type"] = "object"
    return found | {"$defs": definitions} if definitions else found


class _Loosening:
    """One walk over a schema."""

    def __init__(self, place: str, definitions: frozenset[str]) -> None:
        self._place = place
        self._definitions = definitions

    def schema(self, given: object, *, follow: bool = True) -> _Json:
        schema = _mapping(given)
        if "$ref" in schema:
            return self._reference(schema["$ref"]) if follow else {}
        if choices := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
            branches = [self.schema(each, follow=follow) for each in _list(choices)]
            # A branch of several that all have to hold is no choice.
            return {} if "allOf" in schema and len(branches) > 1 else {"anyOf": branches}
        return self._plain(schema)

    def _reference(self, given: object) -> _Json:
        found = _REFERENCE.fullmatch(given) if isinstance(given, str) else None
        if found is None or found[1] not in self._definitions:
            return {}
        return {"$ref": f"{self._place}/$defs/{found[1]}"}

    def _plain(self, schema: Mapping[str, object]) -> _Json:
        if "const" in schema:
            return {"const": schema["const"]}
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            return {"enum": schema["enum"]}
        found: _Json = {}
        if types := [each for each in _list(schema.get("type")) if each in _TYPES]:
            found["type"] = types[0] if len(types) == 1 else types
        if "properties" in schema:
            properties = {name: self.schema(each) for name, each in _mapping(schema["properties"]).items()}
            found["properties"] = properties
            found["required"] = [each for each in _list(schema.get("required", [])) if each in properties]
        if "additionalProperties" in schema:
            others = schema["additionalProperties"]
            found["additionalProperties"] = others if isinstance(others, bool) else self.schema(others)
        if "prefixItems" in schema:
            found["prefixItems"] = [self.schema(each) for each in _list(schema["prefixItems"])]
        elif "items" in schema:
            found["items"] = self.schema(schema["items"])
        return found | _numbers(schema, _SIZES, 0, _LARGEST_SIZE) | _bounds(schema)


def _bounds(schema: Mapping[str, object]) -> _Json:
    if schema.get("type") != "integer":
        return {}
    return _numbers(schema, _BOUNDS, -_LARGEST_BOUND, _LARGEST_BOUND)


def _numbers(schema: Mapping[str, object], names: Sequence[str], least: int, most: int) -> _Json:
    return {
        name: number
        for name in names
        if isinstance(number := schema.get(name), int) and not isinstance(number, bool) and least <= number <= most
    }


def _mapping(given: object) -> Mapping[str, object]:
    return cast("dict[str, object]", given) if isinstance(given, dict) else {}


def _list(given: object) -> list[object]:
    return cast("list[object]", given) if isinstance(given, list) else [given]


# ---------------------------------------------------------------- what the model is told


def describe_tools(tools: Sequence[ToolSchema], *, may_reply: bool) -> str:
    """Return what the model is told of the tools: one line with the form of a call for each."""
    lines = ["Answer with one JSON object. To use a tool, write one of these:"]
    for tool in tools:
        parameters = json.loads(tool.parameters)
        form = f'{{"tool": {canonical_json(tool.name)}, "arguments": {_form(parameters)}}}'
        lines.append(f"{form} - {' '.join(tool.description.split())}")
        for name, each in _mapping(parameters.get("properties")).items():
            if isinstance(note := _mapping(each).get("description"), str):
                lines.append(f"  {name}: {' '.join(note.split())}")
    if may_reply:
        lines.append('Otherwise write an object with the key "reply" and your own words.')
    return "\n".join(lines)


def _form(schema: object) -> str:
    """Return a short form of a schema: ``{"city": string, "days": integer}``."""
    given = _mapping(schema)
    for keyword, write in _FORMS.items():
        if given.get(keyword):
            return write(given[keyword])
    return "value"


def _form_of_type(given: object) -> str:
    return " or ".join([str(each) for each in _list(given)])


def _form_of_properties(given: object) -> str:
    return "{" + ", ".join([f"{canonical_json(name)}: {_form(each)}" for name, each in _mapping(given).items()]) + "}"


def _form_of_choices(given: object) -> str:
    return " or ".join([_form(each) for each in _list(given)])


def _form_of_values(given: object) -> str:
    return " or ".join([canonical_json(each) for each in _list(given)])


_FORMS: Mapping[str, Callable[[object], str]] = {
    "properties": _form_of_properties,
    "enum": _form_of_values,
    "anyOf": _form_of_choices,
    "oneOf": _form_of_choices,
    "items": lambda given: f"[{_form(given)}, ...]",
    "type": _form_of_type,
}

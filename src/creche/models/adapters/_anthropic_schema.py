"""The schema of an answer, made of the keywords that Anthropic's wire takes.

Rule 1: what is left out makes the schema looser, never stricter; the answer is checked by who asked for it.
Rule 2: an object says which keys it has. One with free keys, and what may be anything, has no place on the wire and is
refused, for the server would hold the model to something else.
"""

from collections.abc import Mapping
from typing import cast

_SCALARS = ("string", "integer", "number", "boolean", "null")
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"})
_Json = dict[str, object]


class NoPlaceError(ValueError):
    """A part of a schema has no place on the wire; the sentence says which, and what would have one."""


def reduce_schema(schema: Mapping[str, object], path: str = "") -> _Json:
    """Return a schema in the keywords that the wire has.

    Raises:
      NoPlaceError: A part of it has no place there.
    """
    found: _Json = {}
    if "$defs" in schema:
        definitions = _mapping(schema["$defs"])
        found["$defs"] = {name: reduce_schema(_mapping(each), name) for name, each in definitions.items()}
    if "$ref" in schema:
        return found | {"$ref": schema["$ref"]}
    if isinstance(schema.get("description"), str):
        found["description"] = schema["description"]
    if isinstance(values := schema.get("enum"), list) and values:
        return found | {"enum": cast("object", values)}
    if "const" in schema:
        return found | {"const": schema["const"]}
    choices = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(choices, list):
        branches = cast("list[object]", choices)
        return found | {"anyOf": [reduce_schema(_mapping(each), path) for each in branches]}
    kind = schema.get("type")
    if isinstance(kind, list):
        kinds = cast("list[object]", kind)
        return found | {"anyOf": [reduce_schema({**schema, "type": each}, path) for each in kinds]}
    return found | _plain(kind, schema, path)


def _plain(kind: object, schema: Mapping[str, object], path: str) -> _Json:
    match kind:
        case "object":
            return _object(schema, path)
        case "array":
            return _array(schema, path)
        case "string" if schema.get("format") in _FORMATS:
            return {"type": "string", "format": schema["format"]}
        case str() if kind in _SCALARS:
            return {"type": kind}
        case _:
            raise _no_place(path, "may be anything; give it a type")


def _object(schema: Mapping[str, object], path: str) -> _Json:
    properties = _mapping(schema.get("properties"))
    if not properties and schema.get("additionalProperties") is not False:
        raise _no_place(path, "is an object with free keys; use a list of objects with a key and a value")
    return {
        "type": "object",
        "properties": {
            name: reduce_schema(_mapping(each), f"{path}.{name}" if path else name) for name, each in properties.items()
        },
        "required": schema.get("required", []),
        "additionalProperties": False,
    }


def _array(schema: Mapping[str, object], path: str) -> _Json:
    items = schema.get("items")
    if isinstance(members := schema.get("prefixItems"), list):
        kinds = [reduce_schema(_mapping(each), f"{path}[]") for each in cast("list[object]", members)]
        different = [each for place, each in enumerate(kinds) if each not in kinds[:place]]
        return {"type": "array", "items": different[0] if len(different) == 1 else {"anyOf": different}}
    return {"type": "array", "items": reduce_schema(_mapping(items), f"{path}[]")}


def _mapping(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def _no_place(path: str, problem: str) -> NoPlaceError:
    return NoPlaceError(f"{path or 'the answer'} {problem}")

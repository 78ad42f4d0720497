"""The schema of an answer, made of the keywords that Anthropic's wire takes."""

from typing import Literal

import attrs
import pytest

from creche.models.adapters._anthropic_schema import NoPlaceError, reduce_schema
from creche.tools import output_shape

BARE = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


def of(**properties):
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


@pytest.mark.parametrize(
    ("given", "reduced"),
    [
        (
            of(n={"type": "integer", "minimum": 1, "description": "How many."}),
            of(n={"type": "integer", "description": "How many."}),
        ),
        (of(s={"type": "string", "pattern": "a+", "minLength": 2}), of(s={"type": "string"})),
        (of(s={"type": "string", "format": "date"}), of(s={"type": "string", "format": "date"})),
        (of(s={"type": "string", "format": "odd"}), of(s={"type": "string"})),
        (of(e={"type": "string", "enum": ["a", "b"]}), of(e={"enum": ["a", "b"]})),
        (of(c={"const": 3}), of(c={"const": 3})),
        (of(x={"type": ["string", "null"]}), of(x={"anyOf": [{"type": "string"}, {"type": "null"}]})),
        (
            of(x={"oneOf": [{"type": "string"}, {"type": "null"}]}),
            of(x={"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ),
        (
            of(l={"type": "array", "items": {"type": "string"}, "maxItems": 3}),
            of(l={"type": "array", "items": {"type": "string"}}),
        ),
        (
            of(t={"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False}),
            of(t={"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}),
        ),
        (
            of(t={"type": "array", "prefixItems": [{"type": "integer"}, {"type": "integer"}]}),
            of(t={"type": "array", "items": {"type": "integer"}}),
        ),
        ({"type": "object", "properties": {"a": {"type": "null"}}}, {**of(a={"type": "null"}), "required": []}),
        ({"$ref": "#/$defs/A", "$defs": {"A": BARE}}, {"$ref": "#/$defs/A", "$defs": {"A": BARE}}),
    ],
)
def test_what_the_server_takes_stays_and_the_rest_is_left_out(given, reduced):
    assert reduce_schema(given) == reduced


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"type": "object"}, "the answer is an object with free keys; use a list of objects with a key and a value"),
        (of(d={"type": "object", "additionalProperties": {"type": "integer"}}), "d is an object with free keys; "),
        (of(a=of(b={})), "a.b may be anything; give it a type"),
        (of(l={"type": "array"}), "l[] may be anything; give it a type"),
        (of(x={"type": "decimal"}), "x may be anything; give it a type"),
    ],
)
def test_what_has_no_place_is_refused_by_its_path(given, sentence):
    with pytest.raises(NoPlaceError) as caught:
        reduce_schema(given)
    assert str(caught.value).startswith(sentence)


def test_the_schema_of_a_class_keeps_its_shape():
    @attrs.frozen
    class Node:
        kind: Literal["leaf", "branch"]
        pair: tuple[int, str]
        children: "list[Node]"

    Node.__annotations__["children"] = list[Node]
    import json

    reduced = reduce_schema(json.loads(output_shape(Node).schema))
    assert reduced["required"] == ["kind", "pair", "children"]
    assert reduced["properties"]["kind"] == {"enum": ["leaf", "branch"]}
    assert reduced["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}

"""Tools as a JSON Schema for a model that knows no tools."""

import pytest

from creche.errors import ModelError
from creche.messages import ToolSchema
from creche.models import ModelOptions, ModelRequest, RequestHead, Settings
from creche.models.adapters._local_schema import answer_schema, describe_tools, loosened, offered_tools


def tool(name, **properties):
    return ToolSchema(
        name,
        description=f"The tool\n {name}.",
        parameters={"type": "object", "properties": properties, "required": list(properties)},
    )


ADD = tool("add", a={"type": "integer"}, b={"type": "integer"})
WEATHER = tool("weather", city={"type": "string", "description": "The city's\nname"})


def request_with(*tools, **options):
    head = RequestHead(Settings("local", model="smollm2", options=ModelOptions(**options)), tools=tools)
    return ModelRequest(head, messages=())


def branches(*tools, **options):
    """Return what an answer may be: names of tools, and "reply"."""
    request = request_with(*tools, **options)
    schema = answer_schema(request, offered_tools(request, "local"))
    if schema is None:
        return None
    return [each["properties"].get("tool", {"const": "reply"})["const"] for each in schema["anyOf"]]


def test_an_answer_is_a_call_of_a_tool_or_a_reply():
    request = request_with(ADD)
    assert answer_schema(request, request.tools) == {
        "anyOf": [
            {
                "type": "object",
                "properties": {
                    "tool": {"const": "add"},
                    "arguments": {
                        "type": "object",
                        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                        "required": ["a", "b"],
                    },
                },
                "required": ["tool", "arguments"],
                "additionalProperties": False,
            },
            {
                "type": "object",
                "properties": {"reply": {"type": "string"}},
                "required": ["reply"],
                "additionalProperties": False,
            },
        ]
    }


def test_tool_choice_leaves_branches_out():
    assert branches(ADD, WEATHER) == ["add", "weather", "reply"]
    assert branches(ADD, WEATHER, tool_choice="auto") == ["add", "weather", "reply"]
    assert branches(ADD, WEATHER, tool_choice="required") == ["add", "weather"]
    assert branches(ADD, WEATHER, tool_choice="weather") == ["weather"]
    assert branches(ADD, WEATHER, tool_choice="none") is None


def test_without_tools_an_answer_is_free_text():
    assert branches() is None
    assert branches(tool_choice="required") is None


def test_a_tool_choice_that_is_no_tool_is_refused():
    with pytest.raises(ModelError) as caught:
        offered_tools(request_with(ADD, tool_choice="sub"), "local")
    assert str(caught.value) == "local: tool_choice names 'sub', which is no tool here"
    assert caught.value.code == "invalid-request"


def test_an_output_schema_is_what_a_reply_follows():
    wanted = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    assert answer_schema(request_with(output_schema=wanted), ()) == wanted
    request = request_with(ADD, output_schema=wanted)
    assert answer_schema(request, request.tools)["anyOf"][1]["properties"] == {"reply": wanted}


# ---------------------------------------------------------------- schemas that llama.cpp takes


def loosened_property(schema):
    return loosened({"type": "object", "properties": {"p": schema}})["properties"]["p"]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": ["string", "null"]},
        {"enum": [1, "a", None]},
        {"const": {"a": 1}},
        {"type": "integer", "minimum": 1, "maximum": 9},
        {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "object", "additionalProperties": False},
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {},
    ],
)
def test_what_llama_cpp_takes_is_kept(schema):
    assert loosened_property(schema) == schema


@pytest.mark.parametrize(
    ("schema", "kept"),
    [
        (True, {}),
        (False, {}),
        ({"type": "frob"}, {}),
        ({"type": "string", "pattern": "a(?=b)", "format": "email", "title": "T", "default": ""}, {"type": "string"}),
        ({"type": "string", "maxLength": 100_000}, {"type": "string"}),
        ({"type": "integer", "minimum": True, "maximum": 2**60}, {"type": "integer"}),
        ({"type": "number", "minimum": 0.5}, {"type": "number"}),
        ({"enum": []}, {}),
        ({"oneOf": [{"type": "string"}, True]}, {"anyOf": [{"type": "string"}, {}]}),
        ({"allOf": [{"type": "string"}]}, {"anyOf": [{"type": "string"}]}),
        ({"allOf": [{"type": "object"}, {"type": "object"}]}, {}),
        ({"not": {"type": "string"}, "if": {}, "patternProperties": {"a": {}}}, {}),
        (
            {"type": "array", "prefixItems": [{"type": "string"}, True], "items": False, "minItems": 2},
            {"type": "array", "prefixItems": [{"type": "string"}, {}], "minItems": 2},
        ),
        ({"$ref": "#/$defs/Absent"}, {}),
        ({"$ref": "https://example.com/schema"}, {}),
        ({"$ref": 7}, {}),
        (
            {"type": "object", "properties": {"a": True}, "required": ["a", "b"]},
            {"type": "object", "properties": {"a": {}}, "required": ["a"]},
        ),
    ],
)
def test_what_llama_cpp_does_not_take_is_left_out(schema, kept):
    """What is left out makes the schema looser; the tool checks its arguments itself."""
    assert loosened_property(schema) == kept


def test_references_lead_to_where_the_schema_stands():
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}, "required": []}
    schema = {"type": "object", "properties": {"first": {"$ref": "#/definitions/Node"}}, "definitions": {"Node": node}}
    assert loosened(schema, "#/anyOf/0/properties/arguments") == {
        "type": "object",
        "properties": {"first": {"$ref": "#/anyOf/0/properties/arguments/$defs/Node"}},
        "required": [],
        "$defs": {
            "Node": {
                "type": "object",
                "properties": {"next": {"$ref": "#/anyOf/0/properties/arguments/$defs/Node"}},
                "required": [],
            }
        },
    }


def test_a_definition_that_could_lead_to_itself_without_end_is_any_value():
    schema = {"$ref": "#/$defs/X", "$defs": {"X": {"anyOf": [{"$ref": "#/$defs/X"}, {"type": "string"}]}}}
    assert loosened(schema) == {"$ref": "#/$defs/X", "$defs": {"X": {"anyOf": [{}, {"type": "string"}]}}}


@pytest.mark.parametrize("schema", [True, {}, {"properties": {}}, {"type": "string"}])
def test_arguments_are_an_object_whatever_their_schema_says(schema):
    assert loosened(schema)["type"] == "object"


# ---------------------------------------------------------------- what the model is told


def test_a_model_is_told_the_form_of_each_call():
    assert describe_tools([ADD, WEATHER], may_reply=True) == (
        "Answer with one JSON object. To use a tool, write one of these:\n"
        '{"tool": "add", "arguments": {"a": integer, "b": integer}} - The tool add.\n'
        '{"tool": "weather", "arguments": {"city": string}} - The tool weather.\n'
        "  city: The city's name\n"
        'Otherwise write an object with the key "reply" and your own words.'
    )
    assert "reply" not in describe_tools([ADD], may_reply=False)


def test_the_form_of_arguments_is_short():
    schema = tool(
        "t",
        unit={"enum": ["c", "f"]},
        names={"type": "array", "items": {"type": "string"}},
        more={"anyOf": [{"type": "string"}, {"type": "null"}]},
        one={"oneOf": [{"type": ["integer", "null"]}, {}]},
        none={"type": "object"},
        whatever=True,
    )
    assert describe_tools([schema], may_reply=False).splitlines()[1] == (
        '{"tool": "t", "arguments": {"unit": "c" or "f", "names": [string, ...], "more": string or null, '
        '"one": integer or null or value, "none": object, "whatever": value}} - The tool t.'
    )

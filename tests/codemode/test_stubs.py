import ast
import enum
import inspect
import json
import sys
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import attrs
import pytest
from inline_snapshot import snapshot

from creche.codemode import render_stubs
from creche.messages import ImagePart, TextPart, ToolSchema
from creche.tools import ToolOutcome, tool


class Style(enum.Enum):
    PLAIN = "plain"
    RICH = "rich"


@attrs.frozen
class Position:
    line: int
    column: int = 0


@attrs.frozen
class Edit:
    start: Position
    end: Position
    text: Annotated[str, "What to put there."]


@attrs.frozen
class Task:
    title: str
    children: "list[Task]" = attrs.Factory(list)


class Options(TypedDict):
    depth: int
    label: NotRequired[Annotated[str, "Shown to people."]]


@tool
def read_file(path: str, offset: int = 1, limit: int | None = None) -> str:
    """Read a text file.

    Args:
      path: Where it is, relative to the agent's folder.
      limit: How many lines; all if absent.
    """


@tool
def edit_file(path: str, edits: list[Edit], style: Style = Style.PLAIN, dry_run: bool = False) -> str:
    r"""Change parts of a file.

    All edits are made, or none; a line is matched by "\S+".
    """


@tool
def plan(
    tasks: list[Task],
    options: Options,
    mode: Literal["add", "replace"] = "add",
    tags: tuple[str, ...] = ("a", "b"),
    weights: dict[str, float] | None = None,
) -> dict[str, Any]:
    """Set the plan."""


@tool
def now() -> str: ...


def render(parameters: object, *, name: str = "t", description: str = "") -> str:
    return render_stubs([ToolSchema(name, description=description, parameters=parameters)])


def signature(parameters: object, **given: str) -> str:
    """Return the one line of a tool that has no docstring."""
    (line,) = [line for line in render(parameters, **given).splitlines() if "-> Any" in line]
    return line.strip().removeprefix("async def ").removesuffix(": ...")


def one(schema: object, **more: object) -> dict[str, object]:
    """Return the schema of a tool with one parameter that must be given."""
    return {"type": "object", "properties": {"x": schema}, "required": ["x"], **more}


def optional(schema: object) -> dict[str, object]:
    return {"type": "object", "properties": {"x": schema}}


def declared(text: str) -> list[str]:
    """Return the declarations of types, each with its comments."""
    return text.partition("\n\nclass Tools(Protocol):")[0].split("\n\n")[1:]


# ---------------------------------------------------------------- what it looks like


def test_typed_functions_are_shown_as_they_are_called():
    schemas = [each.schema for each in (read_file, edit_file, plan, now)]
    assert render_stubs(schemas) == snapshot('''\
# The tools, to be called as `await tools.name(key=value)`. Where it says Any, a text is a str and anything else a JSON
# value. At run time there are only `tools` and `ToolCallError`, which a failed call raises; the types are for reading.

class Position(TypedDict):
    line: int
    column: NotRequired[int]  # default 0

class EditFileEdits(TypedDict):
    start: Position
    end: Position
    text: str  # What to put there.

class Task(TypedDict):
    title: str
    children: NotRequired[list[Task]]

class PlanOptions(TypedDict):
    depth: int
    label: NotRequired[str]  # Shown to people.

class Tools(Protocol):
    async def edit_file(self, *, path: str, edits: list[EditFileEdits], style: Literal["plain", "rich"] = "plain", dry_run: bool = False) -> Any:
        """Change parts of a file.

        All edits are made, or none; a line is matched by "\\\\S+".
        """

    async def now(self) -> Any: ...

    async def plan(self, *, tasks: list[Task], options: PlanOptions, mode: Literal["add", "replace"] = "add", tags: list[str] = ["a", "b"], weights: dict[str, float] | None = None) -> Any:
        """Set the plan."""

    async def read_file(self, *, path: str, offset: int = 1, limit: int | None = None) -> Any:
        """Read a text file.

        Args:
          path: Where it is, relative to the agent's folder.
          limit: How many lines; all if absent.
        """

tools: Tools\
''')


def test_what_python_cannot_name_is_shown_with_its_subscript():
    search = {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for."},
            "max-results": {"type": "integer", "default": 10, "description": "At most these."},
            "filter": {
                "type": "object",
                "properties": {"from": {"type": "string"}, "safe-mode": {"type": "boolean", "default": True}},
                "required": ["from"],
            },
        },
        "required": ["query"],
    }
    assert render(search, name="web-search", description="Search.\n\nOnly the web.") == snapshot('''\
# The tools, to be called as `await tools.name(key=value)`. Where it says Any, a text is a str and anything else a JSON
# value. At run time there are only `tools` and `ToolCallError`, which a failed call raises; the types are for reading.

WebSearchFilter = TypedDict("WebSearchFilter", {
    "from": str,
    "safe-mode": NotRequired[bool],  # default True
})

class Tools(Protocol):
    # await tools["web-search"](query: str, filter: WebSearchFilter = ..., **others: Any) -> Any
    #     """Search.
    #
    #     Only the web.
    #
    #     Args:
    #       query: What to look for.
    #       **{"max-results": int = 10}: At most these.
    #     """

    ...

tools: Tools\
''')


def test_definitions_as_pydantic_writes_them_are_declared_once_and_may_contain_themselves():
    parameters = {
        "$defs": {
            "Color": {"enum": ["red", "blue"], "title": "Color", "type": "string", "description": "Of the lamp."},
            "Node": {
                "properties": {
                    "value": {"title": "Value", "type": "integer"},
                    "color": {"$ref": "#/$defs/Color", "default": "red"},
                    "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}], "default": None},
                },
                "required": ["value"],
                "title": "Node",
                "type": "object",
                "description": "One of a chain.\n\nThe last has no next.",
            },
        },
        "properties": {
            "first": {"$ref": "#/$defs/Node", "description": "Where to start."},
            "colors": {"items": {"$ref": "#/$defs/Color"}, "type": "array"},
        },
        "required": ["first", "colors"],
        "title": "walkArguments",
        "type": "object",
    }
    schemas = [ToolSchema(name, description="Walk.", parameters=parameters) for name in ("walk", "again")]
    assert render_stubs(schemas) == snapshot('''\
# The tools, to be called as `await tools.name(key=value)`. Where it says Any, a text is a str and anything else a JSON
# value. At run time there are only `tools` and `ToolCallError`, which a failed call raises; the types are for reading.

Color = Literal["red", "blue"]  # Of the lamp.

class Node(TypedDict):  # One of a chain. The last has no next.
    value: int
    color: NotRequired[Color]  # default "red"
    next: NotRequired[Node | None]  # default None

class Tools(Protocol):
    async def again(self, *, first: Node, colors: list[Color]) -> Any:
        """Walk.

        Args:
          first: Where to start.
        """

    async def walk(self, *, first: Node, colors: list[Color]) -> Any:
        """Walk.

        Args:
          first: Where to start.
        """

tools: Tools\
''')


def test_without_tools_there_is_no_text():
    assert render_stubs([]) == ""


# ---------------------------------------------------------------- hints


@pytest.mark.parametrize(
    ("schema", "hint"),
    [
        ({"type": "string"}, "str"),
        ({"type": "integer"}, "int"),
        ({"type": "number"}, "float"),
        ({"type": "boolean"}, "bool"),
        ({"type": "null"}, "None"),
        ({"type": "string", "format": "date-time", "pattern": "^2"}, "str"),
        ({"type": ["string", "null", "string"]}, "str | None"),
        ({"type": "array"}, "list[Any]"),
        ({"type": "array", "items": {"type": ["integer", "null"]}}, "list[int | None]"),
        ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]}, "list[str | int]"),
        ({"type": "object"}, "dict[str, Any]"),
        ({"type": "object", "properties": {}, "additionalProperties": False}, "dict[str, Any]"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "dict[str, float]"),
        ({"enum": ["a", 1, True, None]}, 'Literal["a", 1, True, None]'),
        ({"type": "string", "enum": ["a"]}, 'Literal["a"]'),
        ({"const": "it's"}, 'Literal["it\'s"]'),
        ({"const": 'say "no"'}, "Literal['say \"no\"']"),
        ({"const": "'\"\\\n\0\N{BOM}"}, r"""Literal['\'"\\\n\x00\ufeff']"""),
        ({"const": None}, "Literal[None]"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "str | None"),
        ({"oneOf": [{"const": 1}, {"const": 2}]}, "Literal[1] | Literal[2]"),
        ({"anyOf": [{"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": "null"}]}, "str | None"),
        ({"allOf": [{"type": "string"}]}, "str"),
        ({"type": "string", "anyOf": [{"minLength": 1}, {"maxLength": 2}]}, "str"),
        ({"anyOf": [{"const": n} for n in range(13)]}, f"Union[{', '.join(f'Literal[{n}]' for n in range(13))}]"),
    ],
    ids=json.dumps,
)
def test_a_schema_has_a_hint(schema, hint):
    assert signature(one(schema)) == f"t(self, *, x: {hint}) -> Any"


@pytest.mark.parametrize(
    "schema",
    [
        {},
        True,
        False,
        5,
        [],
        None,
        {"type": "file"},
        {"type": 5},
        {"type": []},
        {"type": [["string"]]},
        {"enum": []},
        {"enum": "abc"},
        {"enum": [1.5]},
        {"const": {"a": 1}},
        {"anyOf": []},
        {"anyOf": {"type": "string"}},
        {"anyOf": [{"type": "string"}, {}]},
        {"allOf": [{"type": "string"}, {"maxLength": 3}]},
        {"not": {"type": "string"}},
        {"$ref": "#/$defs/Missing"},
        {"$ref": "#"},
        {"$ref": "https://example.com/schema"},
        {"$ref": ["#"]},
        {"properties": {}},
        {"properties": 5},
    ],
    ids=json.dumps,
)
def test_what_has_no_hint_is_any(schema):
    expected = "dict[str, Any]" if isinstance(schema, dict) and "properties" in schema else "Any"
    assert signature(one(schema)) == f"t(self, *, x: {expected}) -> Any"


@pytest.mark.parametrize(
    ("default", "shown"),
    [
        (None, "None"),
        (False, "False"),
        (-1.5, "-1.5"),
        ('a"b', "'a\"b'"),
        ([], "[]"),
        ({"a": [1, {}], "b": "c"}, '{"a": [1, {}], "b": "c"}'),
        ("a" * 300, "..."),
        (list(range(300)), "..."),
        (json.loads("[" * 100 + "]" * 100), f"{'[' * 33}...{']' * 33}"),
    ],
)
def test_a_default_is_shown_as_python(default, shown):
    assert signature(optional({"default": default})) == f"t(self, *, x: Any = {shown}) -> Any"


def test_what_may_be_left_out_without_a_default_says_so():
    assert signature(optional({"type": "string"})) == "t(self, *, x: str = ...) -> Any"


def test_what_must_be_given_has_no_default():
    assert signature(one({"type": "string", "default": "a"})) == "t(self, *, x: str) -> Any"


@pytest.mark.parametrize("required", [5, "x", [5, ["x"], None], {"x": True}])
def test_a_list_of_required_names_that_is_none_requires_nothing(required):
    assert signature({"properties": {"x": {}}, "required": required}) == "t(self, *, x: Any = ...) -> Any"


@pytest.mark.parametrize(
    ("parameters", "shown"),
    [
        ({}, "self, **others: Any"),
        ({"type": "object"}, "self, **others: Any"),
        ({"type": "object", "properties": {}}, "self"),
        ({"type": "object", "properties": []}, "self"),
        ({"type": "object", "additionalProperties": False}, "self"),
        (one({}, additionalProperties=True), "self, *, x: Any, **others: Any"),
        (one({}, additionalProperties={}), "self, *, x: Any, **others: Any"),
        ({"properties": {"others": {}, "others_": {}, "x y": {}}, "required": ["others", "others_", "x y"]}, None),
        ({"$ref": "#/$defs/A", "$defs": {"A": one({"type": "integer"})}}, "self, *, x: int"),
        ({"$ref": "#/definitions/A", "definitions": {"A": one({"type": "integer"})}}, "self, *, x: int"),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}, "self, **others: Any"),
        ({"$ref": ["#"], "$defs": 5}, "self, **others: Any"),
    ],
)
def test_what_else_may_be_given_is_said(parameters, shown):
    shown = shown or "self, *, others: Any, others_: Any, **others__: Any"
    assert f"    async def t({shown}) -> Any:" in render(parameters)


# ---------------------------------------------------------------- declarations


def test_a_description_of_a_class_is_shown_once():
    inner = {"type": "object", "properties": {"a": {}}, "description": "Of\nthe inner."}
    parameters = {"properties": {"x": inner, "y": {"type": "array", "items": inner}}}
    text = render(parameters)
    assert declared(text) == [
        "class TX(TypedDict):\n    a: NotRequired[Any]",
        "class TY(TypedDict):  # Of the inner.\n    a: NotRequired[Any]",
    ]
    assert "      x: Of the inner.\n" in text


def test_a_kind_that_is_listed_twice_is_declared_once():
    """Rule: what is below is visited once, or lists in lists would double the work at each level."""
    text = render(one({"type": ["object", "null", "object"], "properties": {"a": {}}}))
    assert declared(text) == ["class TX(TypedDict):\n    a: NotRequired[Any]"]
    assert "x: TX | None)" in text


def test_equal_definitions_of_several_tools_share_a_name_and_others_get_a_number():
    definitions = {
        "a": {"P": {"properties": {"x": {"type": "integer"}}}},
        "b": {"P": {"properties": {"x": {"type": "integer"}}}},
        "c": {"P": {"properties": {"x": {"type": "string"}}}},
        "d": {"P": {"properties": {"x": {"$ref": "#/$defs/Q"}}}, "Q": {"type": "string"}},
        "e": {"P": {"properties": {"x": {"$ref": "#/$defs/Q"}}}, "Q": {"type": "integer"}},
    }
    text = render_stubs(
        ToolSchema(name, description="", parameters=one({"$ref": "#/$defs/P"}, **{"$defs": given}))
        for name, given in definitions.items()
    )
    assert declared(text) == [
        "class P(TypedDict):\n    x: NotRequired[int]",
        "class P2(TypedDict):\n    x: NotRequired[str]",
        "Q = str",
        "class P3(TypedDict):\n    x: NotRequired[Q]",
        "Q2 = int",
        "class P4(TypedDict):\n    x: NotRequired[Q2]",
    ]
    found = [line.partition("x: ")[2].partition(")")[0] for line in text.splitlines() if "def " in line]
    assert found == ["P", "P", "P2", "P3", "P4"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Any", "Any2"),
        ("Literal", "Literal2"),
        ("Tools", "Tools2"),
        ("none", "None2"),
        ("user_group", "UserGroup"),
        ("a.b-c", "ABC"),
        ("3d", "Tool3d"),
        ("été", "T"),
        ("名", "Tool"),
        ("", "Tool"),
        ("a" * 100, "A" + "a" * 59),
    ],
)
def test_a_type_is_named_after_the_words_of_its_definition(name, shown):
    text = render(one({"$ref": f"#/$defs/{name}"}, **{"$defs": {name: {"type": "string"}}}))
    assert declared(text) == [f"{shown} = str"]


def test_a_number_that_is_taken_is_passed_over():
    wishes = {name: {"const": name} for name in ("P2", "P", "p", "P_")}
    parameters = {"properties": {name: {"$ref": f"#/$defs/{name}"} for name in wishes}, "$defs": wishes}
    assert [each.partition(" ")[0] for each in declared(render(parameters))] == ["P2", "P", "P3", "P4"]


@pytest.mark.parametrize(
    ("definitions", "shown"),
    [
        ({"A": {"$ref": "#/$defs/A"}}, ["A = Any"]),
        (
            {"A": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/A"}}, {"type": "null"}]}},
            ["A = list[A] | None"],
        ),
        ({"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}, ["B = A", "A = B"]),
        (
            {"A": {"properties": {"b": {"$ref": "#/$defs/B"}}}, "B": {"properties": {"a": {"$ref": "#/$defs/A"}}}},
            ["class B(TypedDict):\n    a: NotRequired[A]", "class A(TypedDict):\n    b: NotRequired[B]"],
        ),
        ({"A": {"type": "string", "enum": ["a"], "description": "One\nof."}}, ['A = Literal["a"]  # One of.']),
        ({"A": True}, ["A = Any"]),
        ({"A": {"type": ["object", "null"], "properties": {"a": {}}}}, None),
    ],
)
def test_a_definition_is_a_class_or_an_alias(definitions, shown):
    shown = shown or ["class A2(TypedDict):\n    a: NotRequired[Any]", "A = A2 | None"]
    assert declared(render(one({"$ref": "#/$defs/A"}, **{"$defs": definitions}))) == shown


@pytest.mark.parametrize("key", ["from", "None", "a-b", "", "__x", "__debug__", "ﬁ", "1a", "a\nb", "a\0", '"', "{}"])
def test_a_key_that_is_no_name_is_a_text(key):
    inner = {"properties": {key: {"type": "string", "description": "Text."}}}
    text = render({"properties": {"x": inner, key: {"type": "string", "description": "Text."}}})
    ((assignment,), docstring) = (
        [each for each in ast.parse(text).body if isinstance(each, ast.Assign)],
        _docstring(text),
    )
    assert ast.literal_eval(assignment.value.args[1].keys[0]) == key
    assert text.count("  # Text.") == 1
    shown = docstring.partition("**{")[2].rpartition(": str = ...}: Text.")[0]
    assert ast.literal_eval(shown) == key
    assert signature_names(text) == ["x", "**others"]


def test_a_parameter_named_self_is_no_second_self():
    assert signature_names(render(one({"type": "string"}) | {"properties": {"self": {}, "x": {}}})) == ["x", "**others"]


def signature_names(text: str) -> list[str]:
    (found,) = [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.AsyncFunctionDef)]
    return [each.arg for each in found.args.kwonlyargs] + [f"**{found.args.kwarg.arg}"] * bool(found.args.kwarg)


def _docstring(text: str) -> str:
    (found,) = [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.AsyncFunctionDef)]
    return ast.get_docstring(found, clean=False)


# ---------------------------------------------------------------- tools


@pytest.mark.parametrize("name", ["read", "a1", "naïve", "print", "self", "Tools"])
def test_a_tool_with_a_name_is_a_method(name):
    assert signature({"properties": {}}, name=name) == f"{name}(self) -> Any"


@pytest.mark.parametrize(
    "name",
    [
        "web-search",
        "a.b",
        "class",
        "None",
        "match",
        "case",
        "type",
        "_",
        "_x",
        "__init__",
        "ﬁ",
        "",
        "1",
        'a"]',
        "a\nb",
        "\0",
    ],
)
def test_a_tool_without_one_is_a_comment(name):
    text = render(one({"type": "string"}), name=name, description="Say\n\nit.")
    head, *rest = text.partition("class Tools(Protocol):\n")[2].splitlines()
    assert head.startswith("    # await tools[")
    assert head.endswith("](x: str) -> Any")
    assert ast.literal_eval(head.removeprefix("    # await tools[").removesuffix("](x: str) -> Any")) == name
    assert rest == ['    #     """Say', "    #", "    #     it.", '    #     """', "", "    ...", "", "tools: Tools"]
    ast.parse(text)


def test_tools_are_sorted_by_name_whatever_their_kind():
    names = ["b", "a-b", "a", "Z", "_c", "c"]
    text = render_stubs(ToolSchema(name, description="", parameters={"properties": {}}) for name in names)
    body = text.partition("class Tools(Protocol):\n")[2].splitlines()
    assert [line for line in body if line] == [
        "    async def Z(self) -> Any: ...",
        '    # await tools["_c"]() -> Any',
        "    async def a(self) -> Any: ...",
        '    # await tools["a-b"]() -> Any',
        "    async def b(self) -> Any: ...",
        "    async def c(self) -> Any: ...",
        "tools: Tools",
    ]


@pytest.mark.parametrize(
    "text",
    [
        'Ends with a quote"',
        '"""',
        '""""',
        '"""""',
        '""""""" """',
        '\\"""',
        '\\\\"""',
        "Ends with a backslash\\",
        '\\"',
        "\\N{DASH} \\N \\x \\u1",
        "C:\\new\\users",
        "{x} %s",
        "tab\there",
        "nul\0, bell\a, escape\x1b[0m",
        "\N{RIGHT-TO-LEFT OVERRIDE}\N{LINE SEPARATOR}\x85\x0b\x0c\rend",
        "\N{SNOWMAN} 名前",
        "one\n\n    two\n\n\nthree",
        '"""\n    import os\n    """',
    ],
)
def test_a_description_stays_in_its_docstring(text):
    found = _docstring(render(one({"description": text}), description=text))
    description, _, arguments = found.partition("\n\n        Args:\n          x: ")
    assert description.replace("\n        ", "\n") == text
    assert " ".join(arguments.split()) == ast.literal_eval(
        f"'{' '.join(text.split())!s}'" if 0 else repr(_folded(text))
    )


def _folded(text: str) -> str:
    """Return a text on one line, with what cannot be seen as escapes."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in " ".join(text.split()))


def test_line_ends_of_another_system_are_line_ends():
    assert '        """One.\n\n        Two.\n        """' in render({}, description="One.\r\n\r\nTwo.\r\n")


def test_parameters_that_cannot_be_read_here_leave_the_name_and_the_description():
    """Rule: how deep JSON may be depends on where it is read; too deep here is no error."""
    schema = ToolSchema("t", description="Do it.", parameters={})
    object.__setattr__(schema, "parameters", '{"properties":' * 10_000 + "{}" + "}" * 10_000)
    with pytest.raises(RecursionError):
        json.loads(schema.parameters)
    assert '    async def t(self, **others: Any) -> Any:\n        """Do it."""' in render_stubs([schema])


@pytest.mark.parametrize("word", ["items", "additionalProperties", "properties", "anyOf", "prefixItems"])
def test_what_is_nested_deep_is_any(word):
    kind = {"additionalProperties": "object"}.get(word, "array")
    schema: dict[str, object] = {}
    for _ in range(sys.getrecursionlimit() // 5):
        inside = {"properties": {"x": schema}, "anyOf": [schema], "prefixItems": [schema]}.get(word, schema)
        schema = {word: inside} if word in ("anyOf", "properties") else {"type": kind, word: inside}
    text = render(one(schema))
    ast.parse(text)
    assert len(text) < 10_000
    assert "Any" in text


def test_the_longest_hint_there_can_be_is_no_trouble_for_the_parser_of_python():
    schema: dict[str, object] = {}
    for _ in range(50):
        schema = {"anyOf": [{"type": "array", "items": schema}, *({"const": n} for n in range(11))]}
    text = render(one(schema))
    assert text.count("list[") == 16
    ast.parse(text)


def test_a_long_chain_of_definitions_ends_in_any():
    definitions = {f"D{n}": {"type": "array", "items": {"$ref": f"#/$defs/D{n + 1}"}} for n in range(10_000)}
    shown = declared(render(one({"$ref": "#/$defs/D0"}, **{"$defs": definitions})))
    assert (len(shown), shown[0], shown[-1]) == (16, "D15 = list[Any]", "D0 = list[D1]")


@attrs.frozen
class Hit:
    path: str
    line: int


@pytest.mark.parametrize(
    ("annotation", "shown"),
    [
        (str, "str"),
        (None, "None"),
        (float, "float"),
        (list[Hit], "list[GiveResult]"),
        (dict[str, int] | None, "dict[str, int] | None"),
        (object, "Any"),
        ("NoSuchName", "Any"),
        (ToolOutcome, "Any"),
        (TextPart, "Any"),
        (list[str | ImagePart], "Any"),
        (bytes, "Any"),
        (inspect.Signature.empty, "Any"),
    ],
)
def test_what_a_tool_returns_is_shown_as_its_annotation_has_it(annotation, shown):
    """Rule: as far as it is a value; a part of a message reaches a program as a text, or not at all."""

    async def give(): ...

    if annotation is not inspect.Signature.empty:
        give.__annotations__["return"] = annotation
    made = tool(give)
    text = render_stubs([made.schema], {"give": made.returns})
    assert f"async def give(self) -> {shown}: ..." in text
    assert ("class GiveResult(TypedDict):\n    path: str\n    line: int\n" in text) is ("GiveResult" in shown)

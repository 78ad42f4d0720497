import enum
import functools
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NewType, NotRequired, TypedDict, TypeVar

import attrs
import pytest

from creche.tools._schema import FunctionShape, Parameter, describe_function

NO_FORM = (
    "has no JSON form; use str, int, float, bool, list, dict with text keys, Literal, an enum, a TypedDict, a dataclass or an "
    "attrs class"
)
T = TypeVar("T")


class Context:
    pass


class GenericContext(Generic[T]):
    pass


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen
class Point:
    x: int
    y: int = 0


@attrs.frozen
class Node:
    value: int
    children: "list[Node]" = attrs.Factory(list)


@attrs.frozen
class Left:
    right: "Right | None" = None


@attrs.frozen
class Right:
    left: Left


class Options(TypedDict):
    depth: int
    label: "NotRequired[Annotated[str, 'Shown to people.']]"


def with_hint(hint: object, default: object = attrs.NOTHING) -> Callable[..., object]:
    def function(p):
        pass

    function.__annotations__ = {"p": hint}
    if default is not attrs.NOTHING:
        function.__defaults__ = (default,)
    return function


def schema_of(hint: object) -> object:
    return describe_function(with_hint(hint)).parameters["properties"]["p"]


def message_for(function: object, **options: Any) -> str:
    with pytest.raises(TypeError) as caught:
        describe_function(function, **options)
    assert type(caught.value) is TypeError
    return str(caught.value)


# ---------------------------------------------------------------- the whole


def test_a_function_is_described_by_its_name_docstring_and_signature():
    def search(query: str, limit: int = 10, exact: bool = False) -> list[str]:
        """Search the notes.

        Case does not matter,
        words do.

        Args:
          query: What to look for,
            in plain words.
          limit (int): At most so many.

        Returns:
          The lines found.

        Raises:
          When the index is gone.
        """
        return [query]

    assert describe_function(search) == FunctionShape(
        "search",
        description="Search the notes.\n\nCase does not matter,\nwords do.",
        parameters={
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What to look for, in plain words."},
                "limit": {"type": "integer", "description": "At most so many.", "default": 10},
                "exact": {"type": "boolean", "default": False},
            },
            "required": ["query"],
            "additionalProperties": False,
        },
        fields=(
            Parameter("query", hint=str, required=True, default=attrs.NOTHING),
            Parameter("limit", hint=int, required=False, default=10),
            Parameter("exact", hint=bool, required=False, default=False),
        ),
        context_parameter=None,
    )


def test_a_function_without_parameters_or_docstring_has_an_empty_object_and_no_description():
    def now():
        pass

    shape = describe_function(now)
    assert (shape.description, shape.fields) == ("", ())
    assert shape.parameters == {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


def test_keys_are_in_the_order_of_the_signature_every_time():
    def function(b: int, a: Point, c: Point, d: Node): ...

    first, second = (json.dumps(describe_function(function).parameters) for _ in range(2))
    assert first == second
    assert list(json.loads(first)["properties"]) == ["b", "a", "c", "d"]
    assert list(json.loads(first)) == ["type", "properties", "required", "additionalProperties", "$defs"]


def test_the_schemas_of_two_functions_share_nothing_that_could_be_changed():
    def function(a: str, b: Color = Color.RED): ...

    first = describe_function(function).parameters
    first["properties"]["a"]["type"] = "changed"
    assert describe_function(function).parameters["properties"]["a"] == {"type": "string"}


def test_importing_the_room_reads_no_docstring_and_compiles_no_schema():
    program = "import sys, creche.tools._arguments; print({'docstring_parser', 'jsonschema_rs'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("set()\n", "")


# ---------------------------------------------------------------- hints


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (Any, {}),
        (object, {}),
        (datetime, {"type": "string", "format": "date-time"}),
        (date, {"type": "string", "format": "date"}),
        (Path, {"type": "string"}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal[1, True], {"enum": [1, True]}),
        (list[None], {"type": "array", "items": {"type": "null"}}),
        (Literal[Color.RED], {"type": "string", "enum": ["red"]}),
        (Color, {"type": "string", "enum": ["red", "blue"]}),
        (list, {"type": "array"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (Sequence[int], {"type": "array", "items": {"type": "integer"}}),
        (Iterable[Any], {"type": "array", "items": {}}),
        (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (frozenset[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (
            tuple[int, str],
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "items": False,
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (dict, {"type": "object", "additionalProperties": True}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Mapping[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (list[Annotated[int, "A port."]], {"type": "array", "items": {"type": "integer", "description": "A port."}}),
        (NewType("UserId", str), {"type": "string"}),
        (dict[NewType("UserId", str), bool], {"type": "object", "additionalProperties": {"type": "boolean"}}),
    ],
)
def test_a_hint_has_a_schema(hint, expected):
    assert schema_of(hint) == expected


def test_a_class_used_once_is_written_in_place():
    assert schema_of(list[Point]) == {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
            "required": ["x"],
            "additionalProperties": False,
        },
    }


def test_a_class_used_twice_is_defined_once():
    def draw(start: Point, end: Annotated[Point, "Where it ends."]): ...

    parameters = describe_function(draw).parameters
    assert parameters["properties"] == {
        "start": {"$ref": "#/$defs/Point"},
        "end": {"$ref": "#/$defs/Point", "description": "Where it ends."},
    }
    assert list(parameters["$defs"]) == ["Point"]
    assert parameters["$defs"]["Point"]["required"] == ["x"]


def test_a_class_that_contains_itself_is_a_reference():
    parameters = describe_function(with_hint(Node)).parameters
    assert parameters["properties"] == {"p": {"$ref": "#/$defs/Node"}}
    assert parameters["$defs"]["Node"]["properties"]["children"] == {
        "type": "array",
        "items": {"$ref": "#/$defs/Node"},
    }


def test_of_two_classes_that_contain_each_other_one_is_written_in_place():
    parameters = describe_function(with_hint(Left)).parameters
    assert list(parameters["$defs"]) == ["Left"]
    assert parameters["$defs"]["Left"]["properties"]["right"]["anyOf"][0]["properties"] == {
        "left": {"$ref": "#/$defs/Left"}
    }


def test_two_classes_of_one_name_have_two_definitions():
    def make_class(hint):
        return attrs.make_class("Twin", {"value": attrs.field(type=hint)})

    def function(a, b, c, d): ...

    first, second = make_class(int), make_class(str)
    function.__annotations__ = {"a": first, "b": second, "c": first, "d": second}
    definitions = describe_function(function).parameters["$defs"]
    assert {name: found["properties"]["value"]["type"] for name, found in definitions.items()} == {
        "Twin": "integer",
        "Twin_2": "string",
    }


def test_a_field_is_known_by_its_alias_and_described_by_its_metadata():
    @attrs.frozen
    class Secret:
        _word: str = attrs.field(metadata={"description": "Not shown to others."})
        length: int = attrs.field(init=False, default=0)

    assert schema_of(Secret)["properties"] == {"word": {"type": "string", "description": "Not shown to others."}}


def test_a_typed_dict_requires_what_is_not_marked_otherwise_also_in_strings():
    assert schema_of(Options) == {
        "type": "object",
        "properties": {"depth": {"type": "integer"}, "label": {"type": "string", "description": "Shown to people."}},
        "required": ["depth"],
        "additionalProperties": False,
    }


def test_a_type_alias_is_looked_through():
    class TypeAliasType:  # Python 3.12 has it, under this name
        __value__ = Literal["fast", "slow"]

    assert schema_of(list[TypeAliasType()]) == {
        "type": "array",
        "items": {"type": "string", "enum": ["fast", "slow"]},
    }


@pytest.mark.parametrize(
    ("default", "shown"),
    [
        (3, 3),
        (None, None),
        ((1, "a"), [1, "a"]),
        (Color.BLUE, "blue"),
        (Path("a/b"), "a/b"),
        (date(2026, 1, 31), "2026-01-31"),
        (Point(1), {"x": 1, "y": 0}),
    ],
)
def test_a_default_is_shown_in_its_json_form(default, shown):
    assert describe_function(with_hint(object, default)).parameters["properties"]["p"] == {"default": shown}


@pytest.mark.parametrize("default", [b"bytes", float("nan"), object(), {1j: 2}])
def test_a_default_without_json_form_is_not_shown(default):
    shape = describe_function(with_hint(object, default))
    assert shape.parameters["properties"]["p"] == {}
    assert shape.parameters["required"] == []


# ---------------------------------------------------------------- functions


def test_annotated_wins_over_the_docstring():
    def read(path: Annotated[str, 3, "Relative to the folder."], size: int):
        """Read.

        Args:
          path: Any path.
          size: In bytes.
        """

    properties = describe_function(read).parameters["properties"]
    assert properties["path"]["description"] == "Relative to the folder."
    assert properties["size"]["description"] == "In bytes."


def test_the_hint_of_a_field_has_no_annotated_at_any_depth():
    def read(paths: Annotated[list[Annotated[str, {"not": "hashable"}]], "Where."]): ...

    assert describe_function(read).fields[0].hint == list[str]


def test_the_context_parameter_is_left_out():
    def read(context: Context, path: str): ...

    shape = describe_function(read, context_type=Context)
    assert shape.context_parameter == "context"
    assert [field.name for field in shape.fields] == list(shape.parameters["properties"]) == ["path"]


@pytest.mark.parametrize("hint", [Context | None, Annotated[Context, "Injected."], "Context"])
def test_the_context_parameter_is_found_behind_other_hints(hint):
    assert describe_function(with_hint(hint), context_type=Context).context_parameter == "p"


def test_the_context_parameter_may_be_generic():
    function = with_hint(GenericContext[int])
    assert describe_function(function, context_type=GenericContext).context_parameter == "p"


def test_hints_may_be_strings_and_the_result_may_be_unknown():
    def move(point: "Point", to: "Literal['up'] | None" = None) -> "Unknown":  # noqa: F821 - known to type checkers
        ...

    assert [field.hint for field in describe_function(move).fields] == [Point, Literal["up"] | None]


def test_decorators_that_wrap_are_seen_through():
    def twice(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs) * 2

        return wrapper

    class Notes:
        @twice
        def count(self, word: "str") -> int:
            """Count."""

    @functools.cache
    def read(path: str): ...

    shape = describe_function(Notes().count)
    assert (shape.name, shape.description, shape.fields[0].hint) == ("count", "Count.", str)
    assert describe_function(read).name == "read"


def test_an_async_method_of_an_object_is_a_function():
    class Notes:
        async def read(self, path: str, *, whole: bool = True) -> str:
            """Read one."""
            return path

    shape = describe_function(Notes().read)
    assert (shape.name, [field.name for field in shape.fields]) == ("read", ["path", "whole"])


# ---------------------------------------------------------------- refusals


def test_what_is_not_a_function_is_refused():
    assert message_for(3) == "3 is not a function; wrap it in a def with typed parameters"
    assert message_for(int) == "<class 'int'> is not a function; wrap it in a def with typed parameters"
    partial = functools.partial(with_hint(int), 1)
    assert message_for(partial) == f"{partial!r} is not a function; wrap it in a def with typed parameters"


def test_a_parameter_without_annotation_is_refused():
    def read(path): ...

    assert message_for(read) == (
        "parameter 'path' of tool function 'read' has no annotation; write its type, or object if anything goes"
    )


def test_any_number_of_arguments_is_refused():
    def positional(*paths: str): ...
    def named(**options: str): ...

    advice = "takes any number of arguments; name each of them, a model must know what to give"
    assert message_for(positional) == f"parameter 'paths' of tool function 'positional' {advice}"
    assert message_for(named) == f"parameter 'options' of tool function 'named' {advice}"


def test_a_positional_only_parameter_is_refused():
    def read(path: str, /): ...

    assert message_for(read) == (
        "parameter 'path' of tool function 'read' is positional-only; remove the '/', a model gives arguments by name"
    )


@pytest.mark.parametrize(
    ("hint", "shown"),
    [
        (bytes, "bytes"),
        (complex, "complex"),
        (dict[int, str], "dict[int, str]"),
        (list[bytes], "bytes"),
        (Callable[[int], str], "collections.abc.Callable[[int], str]"),
        ([str], "[<class 'str'>]"),
        (T, "~T"),
        (Literal[b"x"], "Literal[b'x']"),
        (enum.Enum("Pair", {"ONE": (1, 1)}, module="here"), "here.Pair"),
        (enum.Enum("Nothing", {}, module="here"), "here.Nothing"),
    ],
)
def test_a_hint_without_json_form_is_refused(hint, shown):
    assert message_for(with_hint(hint)) == f"parameter 'p' of tool function 'function': {shown} {NO_FORM}"


def test_a_refusal_inside_of_a_class_says_where():
    @attrs.frozen
    class Inner:
        data: bytes

    @attrs.frozen
    class Outer:
        inner: Inner

    assert message_for(with_hint(list[Outer])) == (
        f"parameter 'p' of tool function 'function': field 'inner' of class 'Outer': field 'data' of class 'Inner': "
        f"bytes {NO_FORM}"
    )


def test_a_field_without_annotation_is_refused():
    bare = attrs.make_class("Bare", ["x"])
    assert message_for(with_hint(bare)) == (
        "parameter 'p' of tool function 'function': field 'x' of class 'Bare': it has no annotation; write its type, "
        "or object if anything goes"
    )


def test_a_name_that_does_not_exist_at_run_time_is_refused():
    @attrs.frozen
    class Late:
        other: "Unknown"  # noqa: F821 - the point of the test

    advice = "names 'Unknown', which its module lacks at run time; define or import it there, not in TYPE_CHECKING"
    assert message_for(with_hint("Unknown")) == f"an annotation of tool function 'function' {advice}"
    assert message_for(with_hint(Late)) == (
        f"parameter 'p' of tool function 'function': an annotation of class 'Late' {advice}"
    )


def test_an_annotation_that_is_not_a_type_is_refused():
    assert message_for(with_hint("int[")) == (
        "an annotation of tool function 'function' cannot be read: Forward reference must be an expression -- got "
        "'int['; write a type"
    )


def test_annotated_with_what_has_no_hash_is_refused_inside_of_a_class():
    @attrs.frozen
    class Limits:
        low: Annotated[int, {"ge": 1}]

    assert message_for(with_hint(Limits)) == (
        "parameter 'p' of tool function 'function': an Annotated in class 'Limits' holds what has no hash; write "
        "frozen values there"
    )


def test_a_type_alias_that_contains_itself_is_refused():
    class TypeAliasType:
        __value__: object = None

    alias = TypeAliasType()
    alias.__value__ = list[alias]
    assert message_for(with_hint(list[alias])) == (
        "parameter 'p' of tool function 'function' has a type alias that contains itself; use an attrs class"
    )


def test_two_context_parameters_are_refused():
    def read(a: Context, b: Context): ...

    assert message_for(read, context_type=Context) == (
        "tool function 'read' has two context parameters, 'a' and 'b'; keep one of them"
    )


def test_an_args_section_that_cannot_be_read_is_refused():
    def read(path: str):
        """Read.

        Args:
          path - where it is
        """

    assert message_for(read) == (
        "the Args section of tool function 'read' cannot be read; write each parameter as 'name: text' and indent "
        "what continues on the next line"
    )

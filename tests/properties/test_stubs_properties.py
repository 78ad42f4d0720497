"""Laws of the stubs of tools: they parse, nothing in a schema becomes code, and they cost as much as the schemas are long."""

import ast
import itertools
import keyword
import sys
import unicodedata

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from creche.codemode import render_stubs
from creche.messages import ToolSchema

# ---------------------------------------------------------------- schemas, of friends and others

NASTY = [
    '"""',
    '""',
    "'''",
    '"',
    "\\",
    '\\"""',
    "\\N{",
    "\\x",
    "\n",
    "\r\n",
    "\r",
    "\0",
    "\x0c",
    "\x1b[2J",
    "\N{LINE SEPARATOR}",
    "\ud800",
    "\N{ZERO WIDTH SPACE}",
    "\n    ...\n\nimport os\n",
    "#",
    "{}",
    "]",
]
NAMES = [
    "x",
    "y",
    "self",
    "others",
    "class",
    "None",
    "type",
    "match",
    "_",
    "_x",
    "__x",
    "__debug__",
    "a-b",
    "ﬁ",
    "é",
    "",
]
WORDS = ["Any", "Tools", "P", "P2", "p", "none", *NAMES]

texts = st.lists(st.sampled_from(NASTY) | st.text(max_size=5), max_size=6).map("".join)
keys = st.sampled_from(WORDS) | texts
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | keys
values = scalars
for _ in range(2):
    values = scalars | st.lists(values, max_size=3) | st.dictionaries(keys, values, max_size=3)
kinds = st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object", "file"])
references = keys.map("#/$defs/{}".format) | keys.map("#/definitions/{}".format)


def around(inner: st.SearchStrategy[object]) -> st.SearchStrategy[dict[str, object]]:
    """Return schemas around schemas: a few keywords, each with what belongs there, or with anything."""
    several, named = st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=4)
    fitting = {
        "type": kinds | st.lists(kinds, max_size=4),
        "properties": named,
        "required": st.lists(keys, max_size=3),
        "additionalProperties": inner,
        "items": inner,
        "prefixItems": several,
        "anyOf": several,
        "oneOf": several,
        "allOf": several,
        "enum": st.lists(scalars, max_size=4),
        "const": scalars,
        "default": values,
        "description": texts,
        "$ref": references,
    }
    pairs = [st.tuples(st.just(word), each) for word, each in fitting.items()]
    return st.lists(st.one_of(pairs) | st.tuples(st.sampled_from(list(fitting)), values), max_size=4).map(dict)


# By hand and not with `st.recursive`, which spends its time on drawing again what came out too large.
schemas = st.booleans() | kinds.map(lambda kind: {"type": kind}) | references.map(lambda name: {"$ref": name})
for _ in range(3):
    schemas |= around(schemas)
named_schemas = st.dictionaries(keys, schemas, max_size=4)
parameters = st.builds(
    lambda first, more: first | {word: each for word, each in more.items() if each is not None},
    around(schemas),
    st.fixed_dictionaries(
        {
            "properties": st.none() | named_schemas,
            "definitions": st.none() | named_schemas,
            "$defs": named_schemas | values,
        }
    ),
)
tools = st.builds(
    ToolSchema, keys | st.from_regex("[a-z_-]{1,9}", fullmatch=True), description=texts, parameters=parameters
)
some_tools = st.lists(tools, max_size=3).map(lambda drawn: list({each.name: each for each in drawn}.values()))


def is_named(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text) and unicodedata.normalize("NFKC", text) == text


def is_method(name: str) -> bool:
    return is_named(name) and not name.startswith("_") and name not in ("match", "case", "type")


# ---------------------------------------------------------------- what holds of the text

BUILT_IN = {
    "str",
    "int",
    "float",
    "bool",
    "list",
    "dict",
    "Any",
    "Literal",
    "NotRequired",
    "Protocol",
    "TypedDict",
    "Union",
}
INERT = (
    *(ast.Name, ast.Load, ast.Store, ast.Constant, ast.Subscript, ast.Tuple, ast.List, ast.Dict, ast.BinOp, ast.BitOr),
    *(ast.UnaryOp, ast.USub, ast.arguments, ast.arg, ast.keyword),
)


def check_is_stub(text: str) -> dict[str, ast.AsyncFunctionDef]:
    """Check that a text declares types and nothing else, each once and of a known name; return the methods."""
    *types, last, instance = ast.parse(text).body
    assert ast.unparse(instance) == "tools: Tools"
    assert ast.unparse(last).startswith("class Tools(Protocol):")
    known = {each.name if isinstance(each, ast.ClassDef) else each.targets[0].id for each in types}
    assert len(known) == len(types)
    assert not known & {*BUILT_IN, "Tools", "ToolCallError"}
    for each in types:
        check_type(each, known | BUILT_IN)
    methods = [each for each in last.body if isinstance(each, ast.AsyncFunctionDef)]
    assert methods == last.body or [ast.unparse(each) for each in last.body] == ["..."]
    for method in methods:
        (body,) = method.body
        assert isinstance(body, ast.Expr)
        assert isinstance(body.value, ast.Constant)
        for part in (method.args, method.returns):
            check_inert(part, known | BUILT_IN)
    return {each.name: each for each in methods}


def check_type(node: ast.stmt, known: set[str]) -> None:
    if isinstance(node, ast.ClassDef):
        assert [ast.unparse(base) for base in node.bases] == ["TypedDict"]
        for field in node.body:
            assert isinstance(field, ast.AnnAssign)
            assert field.value is None
            check_inert(field.annotation, known)
    else:
        assert isinstance(node, ast.Assign)
        value = node.value
        if isinstance(value, ast.Call):
            assert ast.unparse(value.func) == "TypedDict"
            assert ast.literal_eval(value.args[0]) == node.targets[0].id
            value = value.args[1]
        check_inert(value, known)


def check_inert(node: ast.AST, known: set[str]) -> None:
    for each in ast.walk(node):
        assert isinstance(each, INERT), ast.dump(each)
        assert not isinstance(each, ast.Name) or each.id in known


@given(some_tools)
def test_any_schemas_give_a_text_that_declares_types_and_nothing_else(given_tools):
    text = render_stubs(given_tools)
    methods = check_is_stub(text) if given_tools else {}
    assert list(methods) == sorted(each.name for each in given_tools if is_method(each.name))
    for each in given_tools:
        if each.name not in methods:
            assert text.count("# await tools[") >= 1
        elif each.description.strip():
            shown = ast.get_docstring(methods[each.name], clean=False)
            assert "".join(shown.split()).startswith("".join(each.description.split()))


@given(st.dictionaries(keys, schemas, max_size=6), st.sets(keys))
def test_every_argument_is_in_the_signature_or_in_the_docstring(properties, required):
    described = {"properties": properties, "required": sorted(required)}
    (method,) = check_is_stub(render_stubs([ToolSchema("t", description="", parameters=described)])).values()
    properties = {
        key.encode("utf-16", "surrogatepass").decode("utf-16", "replace"): each for key, each in properties.items()
    }
    named = [each for each in properties if is_named(each) and not each.startswith("__") and each != "self"]
    assert [each.arg for each in method.args.kwonlyargs] == named
    assert bool(method.args.kwarg) == (len(named) < len(properties))
    docstring = ast.get_docstring(method, clean=False) or ""
    shown = [line.partition("**{")[2] for line in docstring.splitlines() if line.startswith("          **{")]
    assert len(shown) == len(properties) - len(named)


@given(some_tools.flatmap(lambda each: st.tuples(st.just(each), st.permutations(each))))
def test_the_same_tools_give_the_same_bytes_in_any_order(both):
    given_tools, shuffled = both
    assert render_stubs(given_tools).encode() == render_stubs(iter(shuffled)).encode()


@given(texts, texts)
def test_texts_never_leave_their_places(description, note):
    """Rule: wherever an author's text is shown, what stands around it stays what it was."""
    inner = {"properties": {"x": {"type": "string", "description": note}, note: {"const": note}}, "description": note}
    described = {
        "properties": {"a": {"type": "array", "items": inner}, note: {"description": note, "default": [note]}},
        "$defs": {"D": {"type": "string", "enum": [note], "description": note}},
    }
    described["properties"]["d"] = {"$ref": "#/$defs/D", "description": note}
    for name in ("t", "t-t"):
        text = render_stubs([ToolSchema(name, description=description, parameters=described)])
        assert list(check_is_stub(text)) == (["t"] if name == "t" else [])
        assert all(line.isprintable() for line in text.split("\n"))


# ---------------------------------------------------------------- what it costs


def calls_for(schema: object) -> int:
    """Return how many functions are called to render a schema."""
    tool = ToolSchema("t", description="", parameters=schema)
    count = itertools.count()
    before = sys.getprofile()
    sys.setprofile(lambda _frame, event, _argument: next(count) if event in ("call", "c_call") else None)
    try:
        render_stubs([tool])
    finally:
        sys.setprofile(before)
    return next(count)


def nested(size: int, word: str) -> object:
    schema: object = {"type": "object", "properties": {"a": {}}}
    for _ in range(size):
        schema = {word: {"x": schema} if word == "properties" else [schema, {"type": "null"}]}
    return {"properties": {"x": schema}}


def doubling(size: int, shape: str) -> object:
    """Return definitions of which each refers to the next twice: as many ways as two to the power of their number."""
    given_twice = {
        "classes": lambda next_one: {"properties": {"a": next_one, "b": next_one}},
        "unions": lambda next_one: {"anyOf": [next_one, {"type": "array", "items": next_one}]},
    }[shape]
    given = {f"D{n}": given_twice({"$ref": f"#/$defs/D{n + 1}"}) for n in range(size)}
    return {"$defs": given, "properties": {name: {"$ref": f"#/$defs/{name}"} for name in given}}


SHAPES = {
    "properties": lambda n: {"properties": {f"p{i}": {"type": "string", "default": "a"} for i in range(n)}},
    "exotic properties": lambda n: {"properties": {f"p {i}": {"type": "string"} for i in range(n)}},
    "classes of one name": lambda n: {
        "properties": {f"p{chr(0x4E00 + i)}": {"properties": {"a": {}}} for i in range(n)}
    },
    "definitions of one name": lambda n: {
        "$defs": {f"P{chr(0x4E00 + i)}": {"const": i} for i in range(n)},
        "properties": {f"p{i}": {"$ref": f"#/$defs/P{chr(0x4E00 + i)}"} for i in range(n)},
    },
    "choices": lambda n: {"properties": {"x": {"enum": [str(i) for i in range(n)]}}},
    "alternatives": lambda n: {"properties": {"x": {"anyOf": [{"const": i} for i in range(n)]}}},
    "kinds": lambda n: {"properties": {"x": {"type": ["object"] * n, "properties": {"a": {}}}}},
    "required": lambda n: {"properties": {"x": {}}, "required": [str(i) for i in range(n)]},
    "default": lambda n: {"properties": {"x": {"default": list(range(n))}}},
    "nested properties": lambda n: nested(n // 10, "properties"),
    "nested unions": lambda n: nested(n // 10, "anyOf"),
    "classes that refer twice": lambda n: doubling(n, "classes"),
    "unions that refer twice": lambda n: doubling(n, "unions"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_work_and_the_text_grow_with_the_schema(shape):
    make = SHAPES[shape]
    render_stubs([ToolSchema("warm", description="", parameters=make(10))])
    once, twice = calls_for(make(1000)), calls_for(make(2000))
    assert twice <= 2.2 * once
    assert once < 200_000
    once, twice = (len(render_stubs([ToolSchema("t", description="", parameters=make(n))])) for n in (1000, 2000))
    assert twice <= 2.5 * once


@settings(max_examples=25)
@given(tools, st.integers(2, 20))
def test_the_text_of_many_tools_is_about_as_long_as_their_texts(one, count):
    many = [ToolSchema(f"{one.name}{n}", description=one.description, parameters=one.parameters) for n in range(count)]
    check_is_stub(render_stubs(many))
    assert len(render_stubs(many)) <= count * (len(render_stubs(many[:1])) + 400)

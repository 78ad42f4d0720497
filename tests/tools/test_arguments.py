import contextlib
import enum
import json
import keyword
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, NotRequired, TypedDict

import attrs
import pytest
from hypothesis import given, strategies as st

from creche.errors import InvalidArgumentsError
from creche.tools._arguments import ArgumentBinder, SchemaBinder, parse_arguments
from creche.tools._result import json_text
from creche.tools._schema import describe_function


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mood(enum.StrEnum):
    GOOD = "good"


@attrs.frozen
class Item:
    name: str
    count: int = 1
    _note: str | None = None


@attrs.frozen
class Node:
    value: int
    children: "tuple[Node, ...]" = ()
    parent: "Node | None" = None


@attrs.frozen
class Add:
    kind: Literal["add"]
    left: "Expression"
    right: "Expression"


@attrs.frozen
class Negate:
    kind: Literal["negate"]
    inner: "Expression"


Expression = int | Add | Negate


class Tree(TypedDict):
    size: int
    label: "NotRequired[str]"
    parts: "NotRequired[list[Tree]]"


UserId = NewType("UserId", str)


def function_of(hints: Mapping[str, object]) -> Callable[..., object]:
    exec(f"def function({', '.join(hints)}): ...", namespace := {})
    namespace["function"].__annotations__ = dict(hints)
    return namespace["function"]


def binder_for(**hints: object) -> ArgumentBinder:
    return ArgumentBinder(describe_function(function_of(hints)).fields)


def bind(hint: object, value: object) -> object:
    return binder_for(p=hint).bind({"p": value})["p"]


def problems_of(call: Callable[..., object], *args: object) -> list[tuple[str, str]]:
    with pytest.raises(InvalidArgumentsError) as caught:
        call(*args)
    return list(caught.value.problems)


def problem_of(hint: object, value: object) -> tuple[str, str]:
    (problem,) = problems_of(bind, hint, value)
    return problem


def refusal_of(text: str) -> str:
    ((path, sentence),) = problems_of(parse_arguments, text)
    assert path == ""
    return sentence


# ---------------------------------------------------------------- the text


@pytest.mark.parametrize("text", ["", "  \n", "{}", " { } "])
def test_no_text_is_no_arguments(text):
    assert parse_arguments(text) == {}


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}',
        '```json\n{"a": 1}\n```',
        '```\n{"a": 1}```',
        ' ```json {"a": 1}``` \n',
    ],
)
def test_a_fence_is_looked_through(text):
    assert parse_arguments(text) == {"a": 1}


def test_escaped_surrogate_pairs_are_characters():
    assert parse_arguments('{"a": "\\ud83d\\ude42", "b": "\\\\ud83d"}') == {"a": "🙂", "b": "\\ud83d"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[1]", "the arguments must be a JSON object, not an array"),
        ("null", "the arguments must be a JSON object, not null"),
        ('"a"', 'the arguments must be a JSON object, not "a"'),
        (
            '{"a": }',
            'the arguments are not valid JSON: Expecting value, at character 6, near "{\\"a\\": }"',
        ),
        (
            '{"path": tru',
            'the arguments are not valid JSON: Expecting value, at character 9, near "{\\"path\\": tru"',
        ),
        ('{"a": NaN}', "NaN is not JSON; write null or a number"),
        ('{"a": -Infinity}', "-Infinity is not JSON; write null or a number"),
        ('{"a": 1e999}', "the number 1e999 is too large; write it as a string"),
        ('{"a": ' + "1" * 5000 + "}", "a number has thousands of digits; write it as a string"),
        ('{"a": {"b": 1, "c": 2, "b": 3}}', 'the key "b" appears twice in one object; give it once'),
        ('{"a": "\\ud83d"}', "a string has one half of a surrogate pair; write the character itself, without \\u"),
        ('{"\udc00": 1}', "a string has one half of a surrogate pair; write the character itself, without \\u"),
    ],
)
def test_a_text_that_is_not_one_json_object_is_refused(text, sentence):
    assert refusal_of(text) == sentence


def nested(levels: int) -> str:
    return '{"a":' + "[" * (levels - 1) + "]" * (levels - 1) + "}"


@pytest.mark.parametrize("levels", [129, 500, 100_000])
def test_arguments_that_are_nested_too_deeply_are_refused(levels):
    """The limit is ours, so it is the same on every Python and under every caller."""
    assert refusal_of(nested(levels)) == "the arguments are nested more than 128 levels deep; make them flatter"


def test_arguments_may_be_nested_a_hundred_levels_deep_and_have_many_arrays():
    assert list(parse_arguments(nested(128))) == ["a"]
    assert parse_arguments('{"a": [' + ", ".join(["[]"] * 200) + "]}") == {"a": [[]] * 200}


@pytest.mark.parametrize(
    "text",
    [
        "[" * 5_000_000,
        '{"a":' * 1_000_000,
        "x" * 5_000_000,
        "`" * 5_000_000,
        '{"a": "' + "\\ud800" * 800_000 + '"}',
        '{"' + "k" * 5_000_000 + '": 1}',
        json.dumps({f"key{number}": number for number in range(300_000)}),
        json.dumps({"a": [1] * 1_500_000}),
    ],
    ids=["open", "deep", "junk", "ticks", "surrogates", "key", "keys", "items"],
)
def test_five_megabytes_are_answered_soon_and_briefly(text):
    started = time.perf_counter()
    problems = problems_of(lambda: binder_for(a=list[str], b=int).bind(parse_arguments(text)))
    assert time.perf_counter() - started < 5
    assert len(str(problems)) < 5000


@given(st.text() | st.text(st.sampled_from('{}[]":,1e-. \\untrfalsd`j\n')))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(InvalidArgumentsError):
        assert isinstance(parse_arguments(text), dict)


# ---------------------------------------------------------------- single values


@pytest.mark.parametrize(
    ("hint", "value", "sentence"),
    [
        (int, "3", 'must be an integer, not "3"'),
        (int, True, "must be an integer, not true"),
        (int, 3.0, "must be an integer, not 3.0"),
        (str, 3, "must be a string, not 3"),
        (bool, 1, "must be true or false, not 1"),
        (float, "1.5", 'must be a number, not "1.5"'),
        (float, False, "must be a number, not false"),
        (None, 0, "must be null, not 0"),
        (list[None] | str, 0, "must be an array or a string, not 0"),
        (str, None, "must be a string, not null"),
        (str, {"a": 1}, "must be a string, not an object"),
        (list[int], "12", 'must be an array, not "12"'),
        (dict[str, int], [["a", 1]], "must be an object, not an array"),
        (Literal["a", "b"], "c", 'must be one of "a", "b", not "c"'),
        (Literal[1], True, "must be 1, not true"),
        (Literal["a"], ["a"], 'must be "a", not an array'),
        (Color, "RED", 'must be one of "red", "blue", not "RED"'),
        (Level, 1.0, "must be one of 1, 2, not 1.0"),
        (Mood, "bad", 'must be "good", not "bad"'),
        (date, "2026-02-30", 'must be a date such as "2026-01-31", not "2026-02-30"'),
        (datetime, 5, 'must be a date and time such as "2026-01-31T12:00:00Z", not 5'),
        (Path, 5, "must be a path, not 5"),
        (int | str, 1.5, "must be an integer or a string, not 1.5"),
        (int | None, [], "must be an integer or null, not an array"),
        (Literal["a"] | int, "b", 'must be "a" or an integer, not "b"'),
        (tuple[int, str], [1], "must have 2 items, not 1"),
        (set[Any], [[1]], "is a set, so each item must be a string, a number or another single value"),
        (Item, 3, "must be an object, not 3"),
        (Tree, "x", 'must be an object, not "x"'),
        (Annotated[UserId, "Who."], 1, "must be a string, not 1"),
        (str, {1}, "must be a string, not a set"),
        (str, 10**60, "must be a string, not 10000000000000000000…00000000000000000000"),
        (int, "x" * 1000, 'must be an integer, not "xxxxxxxxxxxxxxxxxxxx…xxxxxxxxxxxxxxxxxxxx"'),
    ],
)
def test_a_value_of_another_kind_is_refused(hint, value, sentence):
    """Values are checked, not converted."""
    assert problem_of(hint, value) == ("p", sentence)


@pytest.mark.parametrize(
    ("hint", "value", "bound"),
    [
        (float, 3, 3),
        (Any, [1, {"a": None}], [1, {"a": None}]),
        (object, "x", "x"),
        (int | str, "3", "3"),
        (bool | int, 1, 1),
        (Color, "red", Color.RED),
        (Literal[Color.RED, "blue"], "red", Color.RED),
        (Level, 2, Level.HIGH),
        (Mood, "good", Mood.GOOD),
        (Path, "a/b", Path("a/b")),
        (date, "2026-01-31", date(2026, 1, 31)),
        (datetime, "2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        (date | str, "soon", "soon"),
        (str | date, "2026-01-31", "2026-01-31"),
        (Path | str, "a", Path("a")),
        (list, [1, "a"], [1, "a"]),
        (Sequence[int], [1], [1]),
        (tuple[int, ...], [1, 2], (1, 2)),
        (tuple[int, str], [1, "a"], (1, "a")),
        (set[str], ["a", "a"], {"a"}),
        (frozenset[int], [1], frozenset({1})),
        (dict[str, float], {"a": 1}, {"a": 1}),
        (Mapping[UserId, list[Level]], {"a": [1]}, {"a": [Level.LOW]}),
        (list[Annotated[Item, "One."]], [{"name": "a"}], [Item("a")]),
        (list[int] | list[str], ["a"], ["a"]),
        (Item | None, None, None),
        (Item, {"name": "a", "note": "b"}, Item("a", note="b")),
        (Tree, {"size": 1, "parts": [{"size": 2}]}, {"size": 1, "parts": [{"size": 2}]}),
        (
            Node,
            {"value": 1, "children": [{"value": 2, "parent": {"value": 3}}]},
            Node(1, (Node(2, parent=Node(3)),)),
        ),
        (Add, {"kind": "add", "left": 1, "right": 2}, Add("add", 1, 2)),
    ],
)
def test_a_value_that_fits_is_bound(hint, value, bound):
    result = bind(hint, value)
    assert (result, type(result)) == (bound, type(bound))


def test_null_in_a_collection_is_checked():
    assert bind(list[None], [None]) == [None]
    assert problem_of(list[None], [0]) == ("p[0]", "must be null, not 0")


def test_an_int_where_a_float_is_expected_stays_an_int():
    assert type(bind(float, 3)) is int
    assert type(bind(list[float], [3])[0]) is int


def test_one_order_of_alternatives_does_not_spoil_another():
    """``str | Path`` equals ``Path | str``, so a cache by hint would mix them up."""
    assert [bind(str | Path, "a"), bind(Path | str, "a"), bind(str | Path, "a")] == ["a", Path("a"), "a"]
    assert [bind(list[str | Path], ["a"]), bind(list[Path | str], ["a"])] == [["a"], [Path("a")]]


# ---------------------------------------------------------------- arguments


def sample(path: str, limit: int = 10, items: list[Item] = (), color: Color | None = None) -> None: ...


SAMPLE = ArgumentBinder(describe_function(sample).fields)


def test_what_is_not_given_is_left_to_the_function():
    assert SAMPLE.bind({"path": "a"}) == {"path": "a"}
    assert SAMPLE.bind({"path": "a", "items": []}) == {"path": "a", "items": []}


def test_what_is_bound_is_another_dict():
    values = {"path": "a"}
    bound = SAMPLE.bind(values)
    bound["limit"] = 3
    assert values == {"path": "a"}


def test_all_problems_come_at_once_with_their_paths():
    values = {
        "limit": "3",
        "colour": "red",
        "items": [{"name": "a"}, {"name": 1, "count": True}, 5, {"cuont": 1}],
        "color": "green",
        "zzz": 1,
    }
    assert problems_of(SAMPLE.bind, values) == [
        ("path", "is required"),
        ("limit", 'must be an integer, not "3"'),
        ("colour", 'is not an argument of this tool; did you mean "color"?'),
        ("items[1].name", "must be a string, not 1"),
        ("items[1].count", "must be an integer, not true"),
        ("items[2]", "must be an object, not 5"),
        ("items[3].name", "is required"),
        ("items[3].cuont", 'is not a field of Item; did you mean "count"?'),
        ("color", 'must be one of "red", "blue" or null, not "green"'),
        ("zzz", "is not an argument of this tool; known: path, limit, items, color"),
    ]


def test_the_message_of_the_error_has_all_problems():
    with pytest.raises(InvalidArgumentsError) as caught:
        SAMPLE.bind({"limit": None})
    assert str(caught.value) == "path: is required; limit: must be an integer, not null; leave it out for its default"


def test_an_optional_argument_that_is_null_may_be_left_out():
    def function(a: int, b: int = 3, c: int | None = None): ...

    binder = ArgumentBinder(describe_function(function).fields)
    assert binder.bind({"a": 1, "c": None}) == {"a": 1, "c": None}
    assert problems_of(binder.bind, {"a": None, "b": None, "d": None}) == [
        ("a", "must be an integer, not null"),
        ("b", "must be an integer, not null; leave it out for its default"),
        ("d", "is not an argument of this tool; known: a, b, c"),
    ]


def test_a_tool_without_arguments_takes_none():
    binder = ArgumentBinder([])
    assert binder.bind({}) == {}
    assert problems_of(binder.bind, {"a": 1}) == [("a", "is not an argument of this tool; known: none")]


def test_paths_reach_into_every_kind_of_collection():
    binder = binder_for(a=dict[str, list[int]], b=tuple[int, dict[str, Tree]], c=Node)
    values = {
        "a": {"x": [1, "2"], "not a name": [None], "1": "3"},
        "b": [1, {"t": {"size": 1, "parts": [{"size": "x"}, {"sise": 1}]}}],
        "c": {"value": 1, "children": [{"value": 1, "parent": {"value": "x", "children": [1]}}]},
    }
    assert problems_of(binder.bind, values) == [
        ("a.x[1]", 'must be an integer, not "2"'),
        ('a["not a name"][0]', "must be an integer, not null"),
        ('a["1"]', 'must be an array, not "3"'),
        ("b[1].t.parts[0].size", 'must be an integer, not "x"'),
        ("b[1].t.parts[1].size", "is required"),
        ("b[1].t.parts[1].sise", 'is not a key of Tree; did you mean "size"?'),
        ("c.children[0].parent.value", 'must be an integer, not "x"'),
        ("c.children[0].parent.children[0]", "must be an object, not 1"),
    ]


def test_the_list_of_problems_ends_after_twenty():
    problems = problems_of(binder_for(a=list[int], b=list[int]).bind, {"a": ["x"] * 15, "b": ["x"] * 15, "c": 1})
    assert len(problems) == 21
    assert problems[19:] == [
        ("b[4]", 'must be an integer, not "x"'),
        ("", "these are the first 20 problems, there are more"),
    ]


@pytest.mark.parametrize("message", ["too low", None])
def test_what_a_class_raises_for_its_fields_is_a_problem(message):
    class OddError(Exception):
        pass

    @attrs.frozen
    class Limits:
        low: int

        def __attrs_post_init__(self):
            raise OddError(message) if message else OddError

    assert problem_of(list[Limits], [{"low": 1}]) == ("p[0]", message or "OddError()")


def test_a_validator_speaks_to_the_model():
    @attrs.frozen
    class Limits:
        low: int = attrs.field(validator=attrs.validators.ge(3))

    assert problem_of(Limits, {"low": 1}) == ("p", "'low' must be >= 3: 1")


def test_a_value_that_is_nested_too_deeply_for_its_class_is_a_problem():
    value: dict[str, object] = {"value": 1}
    for _ in range(2000):
        value = {"value": 1, "parent": value}
    ((path, sentence),) = problems_of(bind, Node, value)
    assert path.startswith("p.parent.parent")
    assert sentence == "is nested too deeply"


@pytest.mark.parametrize("hint", [Node, Tree, Expression])
def test_a_value_that_was_read_is_never_too_deep_for_its_class(hint):
    """What `parse_arguments` lets through fits on the stack, also of a caller that is deep itself."""
    value, grow = {
        Node: ({"value": 1}, lambda inner: {"value": 1, "children": [inner]}),
        Tree: ({"size": 1}, lambda inner: {"size": 1, "parts": [inner]}),
        Expression: (1, lambda inner: {"kind": "negate", "inner": inner}),
    }[hint]
    while True:
        grown = grow(value)
        try:
            parse_arguments(json.dumps({"p": grown}))
        except InvalidArgumentsError:
            break
        value = grown
    binder = binder_for(p=hint)

    def call(depth: int) -> object:
        return binder.bind({"p": value}) if not depth else call(depth - 1)

    assert list(call(200)) == ["p"]


# ---------------------------------------------------------------- alternatives


def test_of_several_classes_the_one_whose_tag_fits_is_taken():
    value = {"kind": "negate", "inner": {"kind": "add", "left": 1, "right": {"kind": "negate", "inner": 2}}}
    assert bind(Expression, value) == Negate("negate", Add("add", 1, Negate("negate", 2)))


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        ({"kind": "add", "left": 1, "right": "x"}, [("p.right", 'must be an integer or an object, not "x"')]),
        ({"kind": "add", "left": 1}, [("p.right", "is required")]),
        (
            {"kind": "negate", "innner": 1},
            [
                ("p.inner", "is required"),
                ("p.innner", 'is not a field of Negate; did you mean "inner"?'),
            ],
        ),
        ({"kind": "ad", "left": 1, "right": 1}, [("p.kind", 'must be "add", not "ad"')]),
        ("x", [("p", 'must be an integer or an object, not "x"')]),
    ],
)
def test_what_is_wrong_is_said_of_the_closest_class(value, problems):
    assert problems_of(bind, Expression, value) == problems


def test_a_deep_tree_of_tagged_classes_takes_no_power_of_its_depth():
    value: object = 1
    for _ in range(60):
        value = {"kind": "add", "left": 1, "right": {"kind": "negate", "inner": value}}
    started = time.perf_counter()
    bind(Expression, value)
    assert time.perf_counter() - started < 2


def test_of_several_collections_the_problems_of_the_first_are_told():
    hint = list[int] | list[bool] | dict[str, int]
    assert problem_of(hint, [1, "a"]) == ("p[1]", 'must be an integer, not "a"')
    assert problem_of(hint, {"a": "b"}) == ("p.a", 'must be an integer, not "b"')
    assert problem_of(hint, 3) == ("p", "must be an array or an object, not 3")


# ---------------------------------------------------------------- any hint, any value


@attrs.frozen
class Case:
    """A hint, and the values that belong to it."""

    hint: Any
    values: st.SearchStrategy[object]


SINGLE = st.sampled_from(
    [
        Case(str, st.text()),
        Case(int, st.integers()),
        Case(float, st.floats(allow_nan=False, allow_infinity=False)),
        Case(bool, st.booleans()),
        Case(type(None), st.none()),
        Case(Color, st.sampled_from(Color)),
        Case(Level, st.sampled_from(Level)),
        Case(Mood, st.just(Mood.GOOD)),
        Case(Literal["a", 1, True], st.sampled_from(["a", 1, True])),
        Case(date, st.dates()),
        Case(datetime, st.datetimes()),
        Case(Path, st.text().map(Path)),
        Case(UserId, st.text()),
        Case(set[str | int], st.sets(st.text() | st.integers())),
        Case(frozenset[Level], st.frozensets(st.sampled_from(Level))),
        Case(str | int | None, st.text() | st.integers() | st.none()),
    ]
)


def make_class(cases: list[Case]) -> Case:
    fields = {f"f{number}": attrs.field(type=case.hint) for number, case in enumerate(cases)}
    cls = attrs.make_class("Made", fields)
    return Case(cls, st.tuples(*(case.values for case in cases)).map(lambda values: cls(*values)))


def make_typed_dict(cases: list[Case], optional: bool) -> Case:
    hints = {f"k{number}": case.hint for number, case in enumerate(cases)}
    values = {name: case.values for name, case in zip(hints, cases, strict=True)}
    if optional:
        hints = {name: NotRequired[hint] for name, hint in hints.items()}
        return Case(TypedDict("Made", hints), st.fixed_dictionaries({}, optional=values))
    return Case(TypedDict("Made", hints), st.fixed_dictionaries(values))


def compound(inner: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        inner.map(lambda case: Case(list[case.hint], st.lists(case.values, max_size=3))),
        inner.map(lambda case: Case(tuple[case.hint, ...], st.lists(case.values, max_size=3).map(tuple))),
        inner.map(lambda case: Case(dict[str, case.hint], st.dictionaries(st.text(), case.values, max_size=3))),
        inner.map(lambda case: Case(Annotated[case.hint, "A note."], case.values)),
        inner.map(lambda case: Case(list[case.hint] | int, st.lists(case.values, max_size=3) | st.integers())),
        several.map(
            lambda cases: Case(tuple[tuple(case.hint for case in cases)], st.tuples(*(case.values for case in cases)))
        ),
        several.map(make_class),
        st.builds(make_typed_dict, several, st.booleans()),
    )


CASES = st.recursive(SINGLE, compound, max_leaves=6)
NAMES = st.from_regex(r"[a-z_]{1,6}", fullmatch=True).filter(lambda name: not keyword.iskeyword(name))
SIGNATURES = st.dictionaries(NAMES, CASES, min_size=1, max_size=4)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["a", "red", 1, "2026-01-31"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["f0", "f1", "f2", "k0", "k1"]) | st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.data())
def test_values_of_any_hint_come_back_from_their_json_text(data):
    cases = data.draw(SIGNATURES)
    values = {name: data.draw(case.values) for name, case in cases.items()}
    binder = binder_for(**{name: case.hint for name, case in cases.items()})
    assert binder.bind(parse_arguments(json_text(values))) == values


@given(st.data())
def test_what_binds_is_what_the_schema_allows(data):
    cases = data.draw(SIGNATURES)
    values = {name: data.draw(case.values) for name, case in cases.items()}
    schema = describe_function(function_of({name: case.hint for name, case in cases.items()})).parameters
    arguments = parse_arguments(json_text(values))
    assert SchemaBinder(json.dumps(schema)).bind(arguments) == arguments


@given(st.data())
def test_any_json_for_any_hint_is_bound_or_refused(data):
    cases = data.draw(SIGNATURES)
    binder = binder_for(**{name: case.hint for name, case in cases.items()})
    values = data.draw(st.dictionaries(st.sampled_from(sorted(cases)) | st.text(), JSON, max_size=5))
    with contextlib.suppress(InvalidArgumentsError):
        assert binder.bind(values).keys() == values.keys()


@given(st.lists(st.text(), max_size=3, unique=True), JSON)
def test_any_json_for_a_raw_schema_is_allowed_or_refused(required, value):
    schema = {
        "properties": {"a": {"anyOf": [{"type": "integer"}, {"items": {"type": "string"}}]}},
        "required": required,
    }
    with contextlib.suppress(InvalidArgumentsError):
        assert SchemaBinder(json.dumps(schema)).bind({"a": value}) == {"a": value}


# ---------------------------------------------------------------- raw schemas


RAW = SchemaBinder(
    json.dumps(
        {
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "edits": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"line": {"type": "integer", "minimum": 1}},
                        "required": ["line"],
                        "additionalProperties": False,
                    },
                },
                "mode": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                "one": {"oneOf": [{"type": "integer"}, {"minimum": 3}]},
            },
            "required": ["path"],
            "additionalProperties": False,
        }
    )
)


def test_a_raw_schema_is_compiled_once():
    assert RAW.compile() is RAW.compile()


def test_a_raw_schema_leaves_the_values_as_they_are():
    values = {"path": "a", "edits": [{"line": 1.0}], "mode": None}
    assert RAW.bind(values) == values


def test_a_raw_schema_tells_every_problem_with_its_path():
    values = {"edits": [{"line": "1"}, {"line": 0}, {"lin": 1}], "mode": "x", "one": 3, "pat": "a"}
    assert sorted(problems_of(RAW.bind, values)) == [
        ("edits[0].line", '"1" is not of type "integer"'),
        ("edits[1].line", "0 is less than the minimum of 1"),
        ("edits[2].lin", "is not expected here; leave it out"),
        ("edits[2].line", "is required"),
        ("mode", 'fits no alternative: "x" is not of type "integer"; "x" is not of type "null"'),
        ("one", "3 is valid under more than one of the schemas listed in the 'oneOf' keyword"),
        ("pat", 'is not an argument of this tool; did you mean "path"?'),
        ("path", "is required"),
    ]


def test_a_raw_schema_shows_little_of_a_long_value():
    ((path, sentence),) = problems_of(RAW.bind, {"path": ["x" * 100_000]})
    assert path == "path"
    assert sentence == '["' + "x" * 98 + "…" + "x" * 74 + '"] is not of type "string"'


def test_what_is_not_json_cannot_be_checked():
    problem = ("", "the arguments cannot be checked: Unsupported type: 'set'")
    assert problems_of(RAW.bind, {"path": {1}}) == [problem]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            '{"type": "objekt"}',
            "wrong at type: \"objekt\" is not valid under any of the schemas listed in the 'anyOf' keyword",
        ),
        (
            '{"properties": {"a": {"minLength": -1}}}',
            "wrong at properties.a.minLength: -1 is less than the minimum of 0",
        ),
        ('{"properties": {"a": {"$ref": "#/$defs/A"}}}', "wrong at its root: Pointer '/$defs/A' does not exist"),
        ("[]", "unreadable: it must be an object, not an array"),
        ("{", "unreadable: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
    ],
)
def test_a_schema_that_is_wrong_is_refused_when_compiled(schema, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is matched below
        SchemaBinder(schema).compile()
    assert str(caught.value) == "the schema of the parameters is " + message


def test_a_schema_that_is_nested_too_deeply_is_refused():
    with pytest.raises(
        ValueError, match=r"^the schema of the parameters is unreadable: maximum recursion depth exceeded"
    ):
        SchemaBinder("[" * 100_000).compile()


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/schema", "file:///etc/hostname"])
def test_a_reference_out_of_a_schema_is_never_fetched(address):
    """A schema comes from a server we do not trust; compiling it must open no file and no connection."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is matched below
        SchemaBinder(json.dumps({"$ref": address})).bind({})
    assert str(caught.value) == (
        f"the schema of the parameters is wrong at its root: Resource '{address}' is not present in a registry and "
        f"retrieving it failed: Retrieval is disabled, cannot fetch {address}"
    )

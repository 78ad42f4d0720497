import enum
import json
from collections import OrderedDict
from datetime import UTC, date, datetime, time
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

import attrs
import pytest
from hypothesis import given, strategies as st

from creche.tools._result import result_text


class Color(enum.Enum):
    RED = "red"


class Mood(enum.StrEnum):
    GOOD = "good"


class OldMood(str, enum.Enum):  # noqa: UP042 - prints differently from a StrEnum
    BAD = "bad"


class Level(enum.IntEnum):
    HIGH = 3


class Pair(NamedTuple):
    left: int
    right: int


@attrs.frozen
class Shape:
    name: str


@attrs.frozen
class Circle(Shape):
    radius: float


@attrs.frozen
class Picture:
    shapes: tuple[Shape, ...]
    _title: str = ""
    area: float = attrs.field(init=False, default=0.0)


def message_for(value: object) -> str:
    with pytest.raises(TypeError) as caught:
        result_text(value)
    return str(caught.value)


def no_form(name: str) -> str:
    return (
        f"the result holds a value of type {name}, which has no JSON form; "
        "return text, numbers, lists, dicts, dataclasses or attrs objects"
    )


@pytest.mark.parametrize("text", ["", "hello", '{"a": 1}', "two\nlines", "naïve 🙂"])
def test_text_goes_as_it_is(text):
    assert result_text(text) == text


def test_nothing_is_done():
    assert result_text(None) == "done"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (0.5, "0.5"),
        (True, "true"),
        ([None], "[null]"),
        ({"b": 1, "a": [2, "x"]}, '{"b":1,"a":[2,"x"]}'),
        ({1: "one"}, '{"1":"one"}'),
        ({"word": "naïve 🙂"}, '{"word":"naïve 🙂"}'),
        ((1, "a"), '[1,"a"]'),
        (Pair(1, 2), "[1,2]"),
        (OrderedDict(b=1, a=2), '{"b":1,"a":2}'),
        (MappingProxyType({"a": MappingProxyType({})}), '{"a":{}}'),
        (Color.RED, '"red"'),
        ([Mood.GOOD, OldMood.BAD, Level.HIGH], '["good","bad",3]'),
        ({Mood.GOOD: 1}, '{"good":1}'),
        (date(2026, 1, 31), '"2026-01-31"'),
        (datetime(2026, 1, 31, 12, tzinfo=UTC), '"2026-01-31T12:00:00+00:00"'),
        (time(12, 30), '"12:30:00"'),
        (Path("a/b"), '"a/b"'),
        ([PurePosixPath("a")], '["a"]'),
    ],
)
def test_any_other_value_is_canonical_json(value, text):
    assert result_text(value) == text


def test_a_member_of_a_text_enum_is_its_text():
    assert result_text(Mood.GOOD) == "good"
    assert result_text(OldMood.BAD) == "bad"


def test_an_attrs_object_is_written_by_its_own_class_and_its_aliases():
    """A field annotated with a base class still shows what the subclass added."""
    picture = Picture((Circle("sun", 2.0), Shape("sky")), title="Noon")
    assert result_text(picture) == '{"shapes":[{"name":"sun","radius":2.0},{"name":"sky"}],"title":"Noon"}'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({10, 9, 2.5}, "[2.5,9,10]"),
        (frozenset({"b", "a"}), '["a","b"]'),
        ({None, "a", 1}, '["a",1,null]'),
        ({frozenset({2}), frozenset({1, 3})}, "[[1,3],[2]]"),
        ({Color.RED: 1}.values() and {"k": 1}.keys(), '["k"]'),
        ({"a": {Path("b"), Path("a")}}, '{"a":["a","b"]}'),
    ],
)
def test_a_set_is_sorted(value, text):
    assert result_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\ud800b", "a\ufffdb"),
        ("\udc00", "\ufffd"),
        (["\udfff"], '["\ufffd"]'),
        ({"\ud800": 1}, '{"\ufffd":1}'),
    ],
)
def test_a_lone_surrogate_is_replaced(value, text):
    """One lone surrogate in a history is a permanent HTTP 400."""
    assert result_text(value) == text


def test_what_has_no_json_form_is_refused_by_its_type():
    assert message_for(b"data") == no_form("bytes")
    assert message_for({"a": [object()]}) == no_form("object")
    assert message_for(Picture(({1j},))) == no_form("complex")
    assert message_for(Shape) == no_form("type")
    assert message_for({b"x"}) == no_form("bytes")


def test_a_key_that_is_not_text_is_refused():
    assert message_for({(1, 2): 3}) == (
        "the result has a dict without a JSON form: keys must be str, int, float, bool or None, not tuple; use text "
        "for its keys"
    )


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], {"a": {float("-inf")}}])
def test_a_float_that_json_lacks_is_refused(value):
    assert message_for(value) == (
        "the result has no JSON form: it holds a float that is nan or infinite; return None or text in its place"
    )


def test_a_value_that_contains_itself_is_refused():
    loop: list[object] = []
    loop.append({"again": loop})
    assert message_for(loop) == "the result has no JSON form: it contains itself; return a tree"


def test_a_value_that_is_nested_too_deeply_is_refused():
    value: object = 1
    for _ in range(100_000):
        value = [value]
    assert message_for(value) == "the result has no JSON form: it is nested too deeply; return something flatter"


def test_an_int_with_thousands_of_digits_is_refused():
    assert message_for(10**5000) == (
        "the result has no JSON form: it holds an int with thousands of digits; return it as text"
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON.filter(lambda value: value is not None and not isinstance(value, str)))
def test_json_reads_back_as_it_was(value):
    assert json.loads(result_text(value)) == value


@given(st.sets(st.integers() | st.text() | st.none() | st.tuples(st.integers(), st.text())))
def test_equal_sets_give_equal_text(values):
    assert result_text(values) == result_text(frozenset(sorted(values, key=repr)))


@given(st.text(st.characters(exclude_categories=())) | st.lists(st.text(st.characters(exclude_categories=()))))
def test_every_text_is_valid_unicode(value):
    result_text(value).encode()

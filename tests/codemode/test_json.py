"""JSON that crosses the wall of a sandbox: what is let through, and that looking takes no longer than the text is long."""

import json
import time
import unittest.mock

import pytest
from hypothesis import given, strategies as st

from creche.codemode._json import DEEPEST, MOST_PARTS, is_readable, without_surrogates

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
TRICKY = st.recursive(
    st.text('[]{}"\\\\a'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('[]{}"\\\\a'), inner),
    max_leaves=20,
)


def depth_of(value):
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inside is None else 1 + max(map(depth_of, inside), default=0)


@given(value=VALUES)
def test_json_that_is_not_too_deep_can_be_read(value):
    assert is_readable(json.dumps(value))


@given(value=TRICKY, most=st.integers(0, 4))
def test_the_depth_is_that_of_the_value_whatever_its_strings_hold(value, most):
    with unittest.mock.patch("creche.codemode._json.DEEPEST", most):
        assert is_readable(json.dumps(value)) == (depth_of(value) <= most)


@pytest.mark.parametrize(("before", "after"), [("[", "]"), ('{"a":', "}"), ('{"[[[\\"{{{":', "}")])
def test_the_depth_is_counted_outside_of_strings(before, after):
    deepest = f'{before * DEEPEST}"[{{"{after * DEEPEST}'
    assert is_readable(deepest)
    assert not is_readable(f"{before}{deepest}{after}")


@pytest.mark.parametrize(
    "text", ["", "[", "{'a': 1}", "[1,]", "NaN x", '"' + "\\" * 5, "[" * 100_000, "[" * 100_000 + "]" * 100_000]
)
def test_what_is_no_json_cannot_be_read(text):
    assert not is_readable(text)


def test_too_many_parts_cannot_be_read():
    assert is_readable(f"[{','.join(['[]'] * (MOST_PARTS - 1))}]")
    assert not is_readable(f"[{','.join(['[]'] * MOST_PARTS)}]")


@pytest.mark.parametrize(
    "text",
    [
        '{"done":' + "[" * 201 + '\\"' * 1_000_000 + "\n",
        "[" * 201 + '"' * 1_000_000,
        '["' + "[{" * 1_000_000 + '"]',
        "[" * 1_000_000,
        "[]," * 1_000_000,
        '"' + "\\" * 2_000_000,
        '["' + "[{" * 1_000 + '\\"' * 2_000_000 + '"]',
    ],
    ids=["quotes that do not end", "quotes", "brackets in a text", "opening", "parts", "backslashes", "escaped quotes"],
)
def test_looking_at_a_text_that_means_harm_takes_no_longer_than_reading_it(text):
    """Rule: linear; megabytes that once took hours take less than a second on a busy machine."""
    began = time.perf_counter()
    is_readable(text)
    assert time.perf_counter() - began < 1


@pytest.mark.parametrize("text", ['"\\ud800"', '"\\uD800x"', '"\ud800"'])
def test_lone_surrogates_are_replaced(text):
    assert "\ufffd" in json.loads(without_surrogates(text))

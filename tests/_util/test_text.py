"""Text and JSON that can cross a wire."""

import json

import pytest
from hypothesis import given, strategies as st

from creche._util import canonical_json, clean_text


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("a\ud800b", "a\ufffdb"),
        ("\udc00", "\ufffd"),
        ("end \ud83d", "end \ufffd"),
        ("\udc00\ud800", "\ufffd\ufffd"),
        ("\ud83d\ude00", "\N{GRINNING FACE}"),
        ("\ufeffafter\udfff", "\ufeffafter\ufffd"),
    ],
    ids=ascii,
)
def test_a_lone_surrogate_is_replaced_and_a_pair_is_joined(text, clean):
    assert clean_text(text) == clean


@pytest.mark.parametrize("text", ["", "plain", "käse", "\N{GRINNING FACE}", "\ufeff", "\ufffd"], ids=ascii)
def test_a_text_without_surrogates_is_the_same_object(text):
    assert clean_text(text) is text


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_a_clean_text_can_be_encoded_and_stays_clean(text):
    clean = clean_text(text)
    clean.encode()
    assert clean_text(clean) is clean


def test_json_has_one_spelling():
    """Rule: keys in their own order, no spaces, text as it is."""
    value = {"b": [1, 2.5, None, True], "a": {"text": 'ä "quoted"\n'}, "c": ()}
    assert canonical_json(value) == '{"b":[1,2.5,null,true],"a":{"text":"ä \\"quoted\\"\\n"},"c":[]}'


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_what_json_has_no_number_for_is_refused(number):
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json([number])


def test_a_value_inside_itself_is_refused():
    inside = []
    inside.append(inside)
    with pytest.raises(ValueError, match="Circular reference"):
        canonical_json(inside)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_reads_back_and_is_spelled_the_same_again(value):
    text = canonical_json(value)
    assert json.loads(text) == value
    assert canonical_json(json.loads(text)) == text

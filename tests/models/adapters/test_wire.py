"""Texts that a strict server takes, whatever stands in the history."""

import json
import re

import pytest
from hypothesis import given, strategies as st

from creche.messages import ImagePart, TextPart
from creche.models.adapters._wire import seen_parts, wire_arguments, wire_id, wire_name

texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]))


@given(texts)
def test_every_name_becomes_one_that_servers_take(name):
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", wire_name(name))


@pytest.mark.parametrize(
    ("name", "sent"), [("read_file", "read_file"), ("functions.read", "functions_read"), ("", "_"), ("é", "_")]
)
def test_a_name_stays_as_it_is_where_it_can(name, sent):
    assert wire_name(name) == sent


@given(texts, st.integers(min_value=29, max_value=64))
def test_every_id_becomes_one_that_servers_take(call_id, longest):
    sent = wire_id(call_id, longest)
    assert re.fullmatch(r"[a-zA-Z0-9_-]+", sent)
    assert len(sent) <= longest


@given(texts, texts)
def test_different_ids_stay_different(one, other):
    assert (wire_id(one, 40) == wire_id(other, 40)) == (one == other)


@given(st.one_of(texts, st.recursive(st.none() | st.integers() | texts, st.lists).map(json.dumps)))
def test_arguments_are_always_a_json_object(arguments):
    assert isinstance(json.loads(wire_arguments(arguments)), dict)


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ('{"b": 1,  "a": 2.50}', '{"b": 1,  "a": 2.50}'),
        ("", "{}"),
        ("  \n", "{}"),
        ("[1]", '{"not_an_object":"[1]"}'),
        ('{"a": ', '{"not_an_object":"{\\"a\\": "}'),
        ('```json\n{"a":1}\n```', '{"a":1}'),
        ('{"a":1e999,"b":"\\ud83d\\ude00"}', '{"not_an_object":"{\\"a\\":1e999,\\"b\\":\\"\\\\ud83d\\\\ude00\\"}"}'),
        ('{"a": NaN}', '{"not_an_object":"{\\"a\\": NaN}"}'),
        ('{"a": "\\ud800"}', '{"a":"\ufffd"}'),
        ('{"a": "\\ud83d\\ude00"}', '{"a":"😀"}'),
    ],
)
def test_arguments_go_out_as_the_model_wrote_them_where_they_can(arguments, sent):
    assert wire_arguments(arguments) == sent


def test_arguments_of_any_depth_go_out():
    assert json.loads(wire_arguments("[" * 100_000)) == {"not_an_object": "[" * 100_000}


def test_a_model_that_sees_no_images_is_told_of_them():
    image = ImagePart("QUJDRA==", media_type="image/png")
    assert seen_parts([TextPart("look"), TextPart(" "), image], images=True) == [TextPart("look"), image]
    assert seen_parts([image], images=False) == [
        TextPart("[image/png, 6 bytes; this model is not known to see images]")
    ]

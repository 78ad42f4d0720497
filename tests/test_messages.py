"""What is said: pure values, each encoded once."""

import gc
import json

import attrs
import pytest

from creche.errors import ConfigError
from creche.messages import (
    AssistantMessage,
    DeveloperMessage,
    ImagePart,
    ReasoningPart,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolSchema,
    UserMessage,
)
from creche.models import ModelOptions, RequestHead, Settings, StreamRun, check_model_given

TEXT = 'say "hé\n\u2028\x00😀\\'


def canonical(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# ---------------------------------------------------------------- encoding

IMAGE = ImagePart("QUJD", media_type="image/png")
ENCODED = [
    (SystemMessage(TEXT), {"role": "system", "text": TEXT}),
    (UserMessage(TEXT), {"role": "user", "content": [{"type": "text", "text": TEXT}]}),
    (UserMessage([]), {"role": "user", "content": []}),
    (
        UserMessage([TextPart("a"), IMAGE], source="agent"),
        {
            "role": "user",
            "content": [{"type": "text", "text": "a"}, {"type": "image", "media_type": "image/png", "data": "QUJD"}],
        },
    ),
    (
        AssistantMessage(
            [
                ReasoningPart(TEXT),
                ReasoningPart("b", signature=TEXT),
                TextPart("c"),
                ToolCall("1", name="read", arguments=TEXT),
            ]
        ),
        {
            "role": "assistant",
            "content": [
                {"type": "reasoning", "text": TEXT, "signature": None},
                {"type": "reasoning", "text": "b", "signature": TEXT},
                {"type": "text", "text": "c"},
                {"type": "tool-call", "id": "1", "name": "read", "arguments": TEXT},
            ],
        },
    ),
    (AssistantMessage([]), {"role": "assistant", "content": []}),
    (
        ToolMessage(TEXT, name="read", parts="done"),
        {
            "role": "tool",
            "call_id": TEXT,
            "name": "read",
            "is_error": False,
            "content": [{"type": "text", "text": "done"}],
        },
    ),
    (
        ToolMessage("1", name="read", parts=[], is_error=True),
        {"role": "tool", "call_id": "1", "name": "read", "is_error": True, "content": []},
    ),
    (DeveloperMessage(), {"role": "developer", "additions": [], "removals": []}),
    (DeveloperMessage(["a"], removals=["b"]), {"role": "developer", "additions": ["a"], "removals": ["b"]}),
    (
        ToolSchema("read", description=TEXT, parameters={"type": "object", "b": 1, "a": [True, None, 0.5]}),
        {"name": "read", "description": TEXT, "parameters": {"type": "object", "b": 1, "a": [True, None, 0.5]}},
    ),
]


@pytest.mark.parametrize(("message", "value"), ENCODED)
def test_the_encoding_is_canonical_json_with_its_keys_in_declared_order(message, value):
    """Rule: keys in declared order, no spaces, one line."""
    assert message.encoded == canonical(value)
    assert "\n" not in message.encoded


@pytest.mark.parametrize("message", [message for message, _ in ENCODED])
def test_a_message_keeps_its_encoding(message):
    assert message.encoded is message.encoded
    assert attrs.evolve(message) == message
    assert hash(attrs.evolve(message)) == hash(message)


def test_the_source_of_a_message_is_not_for_models():
    assert UserMessage("a", source="agent").encoded == UserMessage("a").encoded
    assert UserMessage("a", source="agent") != UserMessage("a")


def test_arguments_are_kept_as_the_model_wrote_them():
    """Rule: the arguments of a tool call are never parsed and written again."""
    written = '{ "b" : 1.0,\n "a": "\\u00e9", '
    call = ToolCall("1", name="read", arguments=written)
    assert json.loads(AssistantMessage([call]).encoded)["content"][0]["arguments"] == written


# ---------------------------------------------------------------- parts


def test_one_text_is_one_part():
    assert UserMessage("a").parts == ToolMessage("1", name="x", parts="a").parts == (TextPart("a"),)


def test_the_text_of_a_message_is_its_text_parts_joined():
    parts = [TextPart("a"), IMAGE, TextPart("b")]
    assert UserMessage(parts).text == ToolMessage("1", name="x", parts=parts).text == "ab"
    said = AssistantMessage([TextPart("a"), ReasoningPart("x"), ToolCall("1", name="y", arguments=""), TextPart("b")])
    assert said.text == "ab"


def test_the_calls_of_an_answer_stand_in_the_models_order():
    calls = [ToolCall(name, name=name, arguments="{}") for name in "ba"]
    assert AssistantMessage([calls[0], TextPart("x"), calls[1]]).tool_calls == tuple(calls)


@pytest.mark.parametrize("part", ["a", None, ToolCall("1", name="x", arguments=""), ReasoningPart("x")])
def test_what_is_no_part_is_refused(part):
    with pytest.raises(TypeError) as caught:
        UserMessage([TextPart("a"), part])
    assert str(caught.value) == f"{part!r} is no part of a message; give one text, or TextPart and ImagePart values"


CALL = ToolCall("1", name="x", arguments="{}")


@pytest.mark.parametrize(
    "value",
    [
        TextPart("a"),
        ReasoningPart("a"),
        IMAGE,
        CALL,
        SystemMessage("a"),
        UserMessage("a"),
        ToolMessage("1", name="x", parts="a"),
        DeveloperMessage(),
        ToolSchema("x", description="", parameters={}),
        ModelOptions(),
        Settings("p", model="m"),
        RequestHead(Settings("p", model="m")),
        StreamRun("text", pieces=("a",)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_field_that_is_given_no_text_says_which(value):
    """Rule: a wrong type is refused where the value is made; bytes have the methods of a text, and a text is iterable."""
    texts = {str: "a text", str | None: "a text or None", tuple[str, ...]: "a tuple of texts"}
    for field in attrs.fields(type(value)):
        if field.type in texts and field.name not in ("parameters", "output_schema", "data"):
            for wrong in (5, "one text" if field.type == tuple[str, ...] else b"a"):
                with pytest.raises(TypeError) as caught:
                    attrs.evolve(value, **{field.name: wrong})
                where = f"{type(value).__name__}.{field.name}"
                assert str(caught.value) == f"{where} is {texts[field.type]}, not {wrong!r}"


def test_an_image_is_no_number():
    with pytest.raises(TypeError) as caught:
        ImagePart(5, media_type="image/png")
    assert str(caught.value) == "ImagePart.data is bytes, or their base64, not 5"


def test_what_was_given_can_change_afterwards():
    user, said, names = [TextPart("a")], [TextPart("a")], ["a"]
    values = [UserMessage(user), AssistantMessage(said), DeveloperMessage(names)]
    before = [hash(value) for value in values]
    for given in (user, said, names):
        given.clear()
    assert [hash(value) for value in values] == before


# ---------------------------------------------------------------- valid Unicode

LONE, MENDED = "a\ud800b\udfff", "a\ufffdb\ufffd"


@pytest.mark.parametrize(
    "make",
    [
        SystemMessage,
        UserMessage,
        lambda text: UserMessage([ImagePart("QUJD", media_type=text)]),
        lambda text: AssistantMessage([TextPart(text), ReasoningPart(text, signature=text)]),
        lambda text: AssistantMessage([ToolCall(text, name=text, arguments=text)]),
        lambda text: ToolMessage(text, name=text, parts=[TextPart(text)]),
        lambda text: DeveloperMessage([text], removals=[text]),
        lambda text: ToolSchema(text, description=text, parameters={text: text}),
        lambda text: ToolSchema(text, description=text, parameters=canonical({text: text})),
    ],
)
def test_a_lone_surrogate_is_replaced_wherever_it_stands(make):
    """Rule: every text that is encoded is valid Unicode from the start."""
    made = make(LONE)
    assert made.encoded.encode().decode() == made.encoded
    assert made == make(MENDED)


def test_a_pair_of_surrogates_is_the_character_it_means():
    assert SystemMessage("\ud83d\ude00").text == "😀"


def test_a_valid_text_is_kept_as_the_very_object():
    text = "é" * 10
    assert SystemMessage(text).text is text


# ---------------------------------------------------------------- tool schemas


def test_parameters_are_one_text_however_they_are_written():
    """Rule: immutable, and always the same bytes."""
    given = {"type": "object", "properties": {"a": {"type": "string"}}}
    schema = ToolSchema("a", description="", parameters=given)
    assert schema.parameters == '{"type":"object","properties":{"a":{"type":"string"}}}'
    assert schema == ToolSchema("a", description="", parameters=json.dumps(given, indent=2))
    given["properties"]["b"] = {}
    assert json.loads(schema.encoded)["parameters"]["properties"] == {"a": {"type": "string"}}


def test_two_keys_that_are_mended_to_one_are_one():
    schema = ToolSchema("a", description="", parameters=dict.fromkeys(["\ud800", "\udfff"], 1))
    assert schema.parameters == '{"\ufffd":1}'


def test_the_order_of_keys_is_the_authors():
    assert ToolSchema("a", description="", parameters={"b": 1, "a": 2}).parameters == '{"b":1,"a":2}'


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("nope", "'nope' is not a JSON Schema: Expecting value: line 1 column 1 (char 0)"),
        ("[1]", "'[1]' is not the JSON Schema of an object; give a dict, or its JSON text"),
        ("true", "'true' is not the JSON Schema of an object; give a dict, or its JSON text"),
        ({"a": {1}}, "{'a': {1}} is not a JSON Schema: Object of type set is not JSON serializable"),
        (5, "5 is not a JSON Schema: 'int' object is not iterable"),
    ],
)
def test_parameters_that_are_no_object_are_refused(parameters, message):
    with pytest.raises(ValueError, match="JSON Schema") as caught:
        ToolSchema("a", description="", parameters=parameters)
    # Some versions of Python tell more of where it was.
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("parameters", [{"a": float("nan")}, '{"a": NaN}', '{"a": 1e999}', '{"a":' * 5000 + "1"])
def test_what_json_has_no_word_for_is_refused(parameters):
    with pytest.raises(ValueError, match=r"^.{1,220} is not a JSON Schema: "):
        ToolSchema("a", description="", parameters=parameters)


class Mute:
    def __repr__(self):
        raise KeyError("mine")


@pytest.mark.parametrize("given", [Mute(), 10**5000], ids=["mute", "long"])
def test_what_cannot_be_shown_is_refused_in_the_same_words(given):
    with pytest.raises(ValueError, match=f"^<{type(given).__name__}, which cannot be shown> is not a JSON Schema: "):
        ToolSchema("a", description="", parameters=given)
    with pytest.raises(ConfigError, match=f"not <{type(given).__name__}, which cannot be shown>$"):
        check_model_given(given, "model")


def test_parameters_that_contain_themselves_are_refused():
    parameters = {}
    parameters["a"] = parameters
    with pytest.raises(ValueError, match="is not a JSON Schema: Circular reference detected"):
        ToolSchema("a", description="", parameters=parameters)


def test_values_are_frozen_and_small():
    message = UserMessage("a")
    assert not hasattr(message, "__dict__")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        message.source = "b"
    gc.collect()


# ---------------------------------------------------------------- images


def test_an_image_is_given_as_its_bytes_or_their_base64():
    assert ImagePart(b"ABC", media_type="image/png") == ImagePart("QUJD", media_type="image/png")
    assert ImagePart(b"", media_type="image/png").data == ""


@pytest.mark.parametrize("wrong", ["https://example.org/cat.png", "data:image/png;base64,QUJD", "QUJ", "Q U J D", "é"])
def test_what_is_no_base64_is_refused(wrong):
    with pytest.raises(ValueError, match="give its bytes, or their base64; an address is not looked up") as caught:
        ImagePart(wrong, media_type="image/png")
    assert str(caught.value).startswith(f"{wrong!r} is not the base64 of a file (")

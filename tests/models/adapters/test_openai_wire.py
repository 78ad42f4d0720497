"""From a request to the body of a chat completion."""

import json

import attrs
import pytest
from hypothesis import given, strategies as st

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
from creche.models import ModelOptions, ModelRequest, RequestHead, Settings
from creche.models.adapters._histories import Histories
from creche.models.adapters._openai_wire import Dialect, cache_key, encode_body

OPENAI = Dialect(provider="openai", is_openai=True, replays_reasoning=False, images=True)
OTHER = Dialect(provider="mine", is_openai=False, replays_reasoning=False, images=False)
DEEPSEEK = Dialect(provider="deepseek", is_openai=False, replays_reasoning=True, images=False)

READ = ToolSchema("read", description="Reads.", parameters={"type": "object"})
IMAGE = ImagePart("QUJD", media_type="image/png")


def request(*messages, tools=(), **options):
    head = RequestHead(Settings("p", model="m", options=ModelOptions(**options)), tools=tools)
    return ModelRequest(head, messages=messages)


def body(*messages, dialect=OPENAI, tools=(), **options):
    return json.loads(encode_body(request(*messages, tools=tools, **options), dialect, Histories()))


def sent(*messages, dialect=OPENAI):
    return body(*messages, dialect=dialect)["messages"]


def called(*calls, text=""):
    return AssistantMessage([*([TextPart(text)] if text else []), *calls])


CALL = ToolCall("c1", name="read", arguments='{"path": "a"}')


def result(*parts, call_id="c1", **fields):
    return ToolMessage(call_id, name="read", parts=parts, **fields)


# ---------------------------------------------------------------- settings


def test_what_is_not_set_is_left_to_the_provider():
    assert body(UserMessage("hi"), dialect=OTHER) == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": "hi"}],
    }


def test_every_option_has_its_field():
    options = {"effort": "high", "max_tokens": 9, "temperature": 0.5, "top_p": 0.25, "seed": 3, "stop": ["x", "y"]}
    fields = body(UserMessage("hi"), dialect=OTHER, **options)
    assert {name: fields[name] for name in ("reasoning_effort", "max_tokens", "temperature", "top_p", "seed")} == {
        "reasoning_effort": "high",
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.25,
        "seed": 3,
    }
    assert fields["stop"] == ["x", "y"]


def test_the_longest_answer_has_another_name_at_openai():
    assert body(UserMessage("hi"), max_tokens=9)["max_completion_tokens"] == 9
    assert "max_tokens" not in body(UserMessage("hi"), max_tokens=9)


@pytest.mark.parametrize(
    ("choice", "field"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ("read", {"type": "function", "function": {"name": "read"}}),
    ],
)
def test_the_choice_of_a_tool(choice, field):
    assert body(UserMessage("hi"), tools=[READ], tool_choice=choice)["tool_choice"] == field
    assert "tool_choice" not in body(UserMessage("hi"), tool_choice=choice)


def test_tools_are_functions():
    assert body(UserMessage("hi"), tools=[READ])["tools"] == [
        {"type": "function", "function": {"name": "read", "description": "Reads.", "parameters": {"type": "object"}}}
    ]


def test_an_answer_can_be_held_to_a_schema():
    assert body(UserMessage("hi"), output_schema={"type": "object"})["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": {"type": "object"}},
    }


# ---------------------------------------------------------------- messages


def test_a_system_prompt_stands_where_it_is_and_an_empty_one_nowhere():
    assert sent(SystemMessage(""), UserMessage("a"), SystemMessage("Be brief."), UserMessage("b")) == [
        {"role": "user", "content": "a"},
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "b"},
    ]


def test_images_go_with_the_text_to_those_who_see_them():
    message = UserMessage([TextPart("look"), IMAGE])
    assert sent(message)[0]["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
    ]
    assert sent(message, dialect=OTHER)[0]["content"] == (
        "look\n[image/png, 3 bytes; this model is not known to see images]"
    )


def test_a_call_and_its_result():
    assert sent(UserMessage("hi"), called(CALL, text="Reading."), result(TextPart("A"), TextPart("B")))[1:] == [
        {
            "role": "assistant",
            "content": "Reading.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "A\nB"},
    ]


def test_images_of_results_follow_the_last_result_of_a_step():
    other = attrs.evolve(CALL, id="c2")
    messages = sent(
        UserMessage("hi"),
        called(CALL, other),
        result(IMAGE),
        result(TextPart("B"), IMAGE, call_id="c2"),
        UserMessage("go"),
    )
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "user", "user"]
    assert [messages[2]["content"], messages[3]["content"]] == ["(an image follows)", "B"]
    assert [part["type"] for part in messages[4]["content"]] == ["text", "image_url", "image_url"]


def test_a_result_of_nothing_says_so():
    assert sent(called(CALL), result())[1]["content"] == "(no output)"
    assert sent(called(CALL), result(TextPart(" ")))[1]["content"] == "(no output)"


@pytest.mark.parametrize(
    "message", [DeveloperMessage(["read"]), AssistantMessage(()), AssistantMessage([ReasoningPart("hm")])]
)
def test_what_the_wire_cannot_carry_is_left_out(message):
    assert sent(UserMessage("a"), message, UserMessage("b")) == sent(UserMessage("a"), UserMessage("b"))


def test_a_message_without_text_says_so():
    assert sent(UserMessage(""), UserMessage([TextPart("\n")])) == [{"role": "user", "content": "(no text)"}] * 2


def test_a_call_that_no_server_would_take_is_mended():
    odd = ToolCall("c" * 41, name="functions.read", arguments="{oops")
    first, second = sent(called(odd), result(TextPart("no such tool"), call_id=odd.id))
    call = first["tool_calls"][0]
    assert call["function"] == {"name": "functions_read", "arguments": '{"not_an_object":"{oops"}'}
    assert len(call["id"]) <= 40
    assert second["tool_call_id"] == call["id"]


def test_only_openai_minds_long_ids():
    assert (
        sent(called(ToolCall("c" * 41, name="read", arguments="{}")), dialect=OTHER)[0]["tool_calls"][0]["id"]
        == "c" * 41
    )


# ---------------------------------------------------------------- reasoning


def test_reasoning_goes_back_only_to_who_wants_it_and_signed_it():
    message = AssistantMessage([ReasoningPart("hm", signature="deepseek:"), TextPart("yes")])
    foreign = AssistantMessage([ReasoningPart("hm", signature="other:"), ReasoningPart("so"), TextPart("yes")])
    assert sent(message, dialect=DEEPSEEK)[0] == {"role": "assistant", "content": "yes", "reasoning_content": "hm"}
    assert sent(foreign, dialect=DEEPSEEK)[0] == {"role": "assistant", "content": "yes"}
    assert sent(message, dialect=OTHER)[0] == {"role": "assistant", "content": "yes"}


def test_next_to_calls_even_empty_reasoning_is_missed():
    assert sent(called(CALL), dialect=DEEPSEEK)[0]["reasoning_content"] == ""


# ---------------------------------------------------------------- bytes


@attrs.define(eq=False)
class Word:
    text: str


texts = st.text(max_size=5)
parts = st.lists(st.one_of(texts.map(TextPart), st.just(IMAGE)), max_size=3)


@st.composite
def steps(draw):
    """What one step adds to a history: what is asked, and with some luck calls and all of their results."""
    added = [UserMessage(draw(parts))]
    if draw(st.booleans()):
        added.insert(0, SystemMessage(draw(texts)))
    calls = [
        ToolCall(f"c{draw(texts)}{n}", name=draw(texts), arguments=draw(texts)) for n in range(draw(st.integers(0, 3)))
    ]
    reasoning = [ReasoningPart(draw(texts), signature=draw(st.sampled_from([None, "deepseek:"])))]
    answer = AssistantMessage([*reasoning, TextPart(draw(texts)), *calls])
    results = [ToolMessage(call.id, name=call.name, parts=draw(parts)) for call in calls]
    return added, [answer, *results]


@given(st.lists(steps(), min_size=1, max_size=4), st.sampled_from([OPENAI, OTHER, DEEPSEEK]))
def test_each_body_begins_with_the_one_before(history, dialect):
    """Law: bodies of successive requests share their bytes up to the end of the older history."""
    messages, older = [], None
    for asked, answered in history:
        messages += asked
        encoded = encode_body(request(*messages, tools=[READ]), dialect, Histories())
        assert json.loads(encoded)["messages"]
        if older is not None:
            assert encoded.startswith(older.removesuffix(b"]}"))
        older = encoded
        messages += answered


def test_a_message_is_encoded_once(monkeypatch):
    counted = []
    history = [UserMessage("a"), AssistantMessage([TextPart("b")]), UserMessage("c")]
    monkeypatch.setattr(
        "creche.models.adapters._openai_wire._encode", lambda message, dialect: counted.append(message) or "{}"
    )
    encode_body(request(*history), OPENAI, Histories())
    encode_body(request(*history, UserMessage("d")), OPENAI, Histories())
    assert counted == [*history, UserMessage("d")]


@given(st.lists(steps(), min_size=1, max_size=5), st.data())
def test_a_history_that_is_kept_says_what_one_from_scratch_does(history, data):
    """Law: whatever was asked before, in whatever dialect, a body is that of its messages alone."""
    kept, token, messages = Histories(), Word("a history"), []
    for asked, answered in history:
        messages += asked
        for _ in range(data.draw(st.integers(0, 2))):
            length = data.draw(st.integers(0, len(messages)))
            dialect = data.draw(st.sampled_from([OPENAI, OTHER, DEEPSEEK]))
            plain = request(*messages[:length], tools=[READ])
            known = attrs.evolve(plain, history=token)
            assert encode_body(known, dialect, kept) == encode_body(plain, dialect, Histories())
        messages += answered


def test_a_step_takes_only_what_is_new(monkeypatch):
    taken = []
    monkeypatch.setattr(
        "creche.models.adapters._openai_wire.ChatPieces.add", lambda self, message: taken.append(message)
    )
    kept, token, messages = Histories(), Word("a history"), []
    for number in range(3):
        messages.append(UserMessage(f"{number}"))
        encode_body(attrs.evolve(request(*messages), history=token), OPENAI, kept)
    assert taken == messages


def test_what_is_kept_of_a_history_goes_with_it():
    kept, token = Histories(), Word("a history")
    encode_body(attrs.evolve(request(UserMessage("a")), history=token), OPENAI, kept)
    assert len(kept._known) == 1
    del token
    assert len(kept._known) == 0


def test_requests_with_one_head_share_their_cache():
    first = request(SystemMessage("You are Ada."), UserMessage("a"), tools=[READ])
    fork = request(SystemMessage("You are Ada."), UserMessage("b"), tools=[READ], max_tokens=5)
    assert cache_key(first) == cache_key(fork)
    assert cache_key(first) != cache_key(request(SystemMessage("You are Bob."), tools=[READ]))
    assert cache_key(first) != cache_key(request(SystemMessage("You are Ada."), tools=[]))
    assert body(UserMessage("a"))["prompt_cache_key"] == cache_key(request(UserMessage("z")))
    assert "prompt_cache_key" not in body(UserMessage("a"), dialect=OTHER)

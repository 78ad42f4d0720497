"""From a request to the body of a call of Anthropic's messages."""

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
from creche.models.adapters._anthropic_wire import Dialect, encode_body
from creche.models.adapters._histories import Histories

ADAPTIVE = Dialect(provider="anthropic", images=True, thinking="adaptive", max_tokens=100_000)
BUDGET = attrs.evolve(ADAPTIVE, thinking="budget")
OTHER = Dialect(provider="mine", images=False, thinking=None, max_tokens=8_192)
EPHEMERAL = {"type": "ephemeral"}

READ = ToolSchema("read", description="Reads.", parameters={"type": "object"})
IMAGE = ImagePart("QUJD", media_type="image/png")
CALL = ToolCall("c1", name="read", arguments='{"path": "a"}')
HI = UserMessage("hi")


def request(*messages, tools=(), **options):
    head = RequestHead(Settings("p", model="m", options=ModelOptions(**options)), tools=tools)
    return ModelRequest(head, messages=messages)


def body(*messages, dialect=ADAPTIVE, tools=(), **options):
    return json.loads(encode_body(request(*messages, tools=tools, **options), dialect, Histories()))


def sent(*messages, dialect=ADAPTIVE):
    return body(*messages, dialect=dialect)["messages"]


def text(*texts):
    return [{"type": "text", "text": each} for each in texts]


def said(role, *texts):
    return {"role": role, "content": text(*texts)}


def answered(*parts):
    return AssistantMessage([TextPart(part) if isinstance(part, str) else part for part in parts])


def result(*parts, call_id="c1", **fields):
    return ToolMessage(call_id, name="read", parts=parts, **fields)


# ---------------------------------------------------------------- settings


def test_what_is_not_set_is_left_to_the_provider():
    assert body(HI, dialect=OTHER) == {
        "model": "m",
        "stream": True,
        "max_tokens": 8_192,
        "cache_control": EPHEMERAL,
        "messages": [said("user", "hi")],
    }


def test_every_option_has_its_field_but_for_the_seed():
    fields = body(HI, dialect=OTHER, max_tokens=9, temperature=0.5, top_p=0.25, seed=3, stop=["x", "y"])
    assert {name: fields[name] for name in ("max_tokens", "temperature", "top_p", "stop_sequences")} == {
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.25,
        "stop_sequences": ["x", "y"],
    }
    assert "seed" not in fields


def test_a_model_that_thinks_as_it_sees_fit_is_told_how_hard():
    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    fields = body(HI, effort="xhigh", output_schema=schema)
    assert fields["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert fields["output_config"] == {
        "effort": "xhigh",
        "format": {"type": "json_schema", "schema": schema},
    }


@pytest.mark.parametrize(
    ("effort", "max_tokens", "budget"),
    [
        ("low", 100_000, 2_048),
        ("medium", 100_000, 8_192),
        ("high", 100_000, 16_384),
        ("max", 100_000, 16_384),
        ("high", 4_096, 2_048),
        ("high", 1_025, 1_024),
    ],
)
def test_a_budget_to_think_leaves_room_for_the_answer(effort, max_tokens, budget):
    fields = body(HI, dialect=BUDGET, effort=effort, max_tokens=max_tokens)
    assert fields["thinking"] == {"type": "enabled", "budget_tokens": budget}
    assert "output_config" not in fields


def test_an_answer_too_short_for_a_budget_goes_without():
    assert "thinking" not in body(HI, dialect=BUDGET, effort="high", max_tokens=1_024)


@pytest.mark.parametrize("effort", ["none", "off"])
@pytest.mark.parametrize("dialect", [ADAPTIVE, BUDGET, OTHER])
def test_thinking_can_be_switched_off(effort, dialect):
    fields = body(HI, dialect=dialect, effort=effort)
    assert fields["thinking"] == {"type": "disabled"}
    assert "output_config" not in fields


def test_a_model_that_is_not_known_to_think_is_not_asked_to():
    assert "thinking" not in body(HI, dialect=OTHER, effort="high")
    assert "thinking" not in body(HI)


@pytest.mark.parametrize(
    ("choice", "field", "thinking"),
    [
        ("auto", {"type": "auto"}, {"type": "auto"}),
        ("none", {"type": "none"}, {"type": "none"}),
        ("required", {"type": "any"}, {"type": "auto"}),
        ("a.read", {"type": "tool", "name": "a_read"}, {"type": "auto"}),
    ],
)
def test_the_choice_of_a_tool(choice, field, thinking):
    """Rule: a call cannot be forced from a model with a budget to think; the server would refuse the request."""
    assert body(HI, tools=[READ], tool_choice=choice)["tool_choice"] == field
    assert body(HI, tools=[READ], tool_choice=choice, effort="high")["tool_choice"] == field
    assert body(HI, dialect=BUDGET, tools=[READ], tool_choice=choice, effort="high")["tool_choice"] == thinking
    assert "tool_choice" not in body(HI, tool_choice=choice)


def test_the_last_tool_and_the_system_prompt_are_breakpoints_of_the_cache():
    other = ToolSchema("edit", description="", parameters={"type": "object", "properties": {}})
    fields = body(SystemMessage("Be brief."), HI, tools=[READ, other])
    assert fields["tools"] == [
        {"name": "read", "description": "Reads.", "input_schema": {"type": "object"}},
        {
            "name": "edit",
            "description": "",
            "input_schema": {"type": "object", "properties": {}},
            "cache_control": EPHEMERAL,
        },
    ]
    assert fields["system"] == [{"type": "text", "text": "Be brief.", "cache_control": EPHEMERAL}]
    assert fields["messages"] == [said("user", "hi")]


@pytest.mark.parametrize("prompt", ["", " \n"])
def test_an_empty_system_prompt_stands_nowhere(prompt):
    assert "system" not in body(SystemMessage(prompt), HI)
    assert sent(SystemMessage(prompt), HI, SystemMessage(prompt)) == [said("user", "hi")]


# ---------------------------------------------------------------- users and tools


def test_images_go_with_the_text_to_those_who_see_them():
    message = UserMessage([TextPart("look"), IMAGE])
    source = {"type": "base64", "media_type": "image/png", "data": "QUJD"}
    assert sent(message)[0]["content"] == [*text("look"), {"type": "image", "source": source}]
    note = "[image/png, 3 bytes; this model is not known to see images]"
    # The same message, so each dialect has a form of its own.
    assert sent(message, dialect=attrs.evolve(ADAPTIVE, images=False)) == [said("user", "look", note)]
    assert sent(message)[0]["content"][1]["source"] == source


def test_empty_texts_are_left_out_and_a_message_without_text_says_so():
    assert sent(UserMessage([TextPart(" "), TextPart("x"), TextPart("")])) == [said("user", "x")]
    assert sent(UserMessage("\n")) == [said("user", "(no text)")]


def test_a_call_and_its_results():
    """Rule: the results of a step are one message, and what a person says is another."""
    calls = answered("Reading.", CALL, attrs.evolve(CALL, id="c2"), attrs.evolve(CALL, id="c3"))
    results = [result(TextPart("A"), IMAGE), result(call_id="c2"), result(TextPart("no"), call_id="c3", is_error=True)]
    messages = sent(HI, calls, *results, UserMessage("go on"))
    assert messages[1]["content"][:2] == [
        *text("Reading."),
        {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a"}},
    ]
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}}
    assert messages[2:] == [
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [*text("A"), image]},
                {"type": "tool_result", "tool_use_id": "c2", "content": text("(no output)")},
                {"type": "tool_result", "tool_use_id": "c3", "is_error": True, "content": text("no")},
            ],
        },
        said("user", "go on"),
    ]


def test_a_call_that_no_server_would_take_is_mended():
    odd = ToolCall("c" * 65, name="functions.read", arguments="{oops")
    first, second = sent(answered(odd), result(TextPart("no such tool"), call_id=odd.id))
    call = first["content"][0]
    assert (call["name"], call["input"]) == ("functions_read", {"not_an_object": "{oops"})
    assert len(call["id"]) <= 64
    assert second["content"][0]["tool_use_id"] == call["id"]
    assert sent(answered(ToolCall("c" * 64, name="read", arguments="")))[0]["content"][0] == {
        "type": "tool_use",
        "id": "c" * 64,
        "name": "read",
        "input": {},
    }


@pytest.mark.parametrize(
    "message",
    [DeveloperMessage(["read"]), answered(), answered(" "), answered(ReasoningPart("hm", signature="anthropic:t:x"))],
)
def test_what_the_wire_cannot_carry_is_left_out(message):
    assert sent(HI, message, UserMessage("b")) == [said("user", "hi"), said("user", "b")]


# ---------------------------------------------------------------- thinking


def test_thinking_goes_back_as_it_came():
    thought = ReasoningPart("hm", signature="anthropic:t:a:b")
    redacted = ReasoningPart("", signature="anthropic:r:data")
    assert sent(HI, answered(thought, redacted, "yes"))[1]["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "a:b"},
        {"type": "redacted_thinking", "data": "data"},
        *text("yes"),
    ]


@pytest.mark.parametrize("signature", [None, "other:t:x", "anthropic:", "anthropic:x", "t:x", "anthropi:t:x"])
def test_thinking_goes_back_only_to_who_signed_it(signature):
    assert sent(HI, answered(ReasoningPart("hm", signature=signature), "yes"))[1] == said("assistant", "yes")


def test_an_answer_does_not_end_with_thinking():
    """Rule: the server refuses an answer whose last block is thinking, as one has that was cancelled."""
    thought = ReasoningPart("hm", signature="anthropic:t:x")
    blocks = sent(HI, answered(thought, "yes", thought, " ", thought))[1]["content"]
    assert [block["type"] for block in blocks] == ["thinking", "text"]


# ---------------------------------------------------------------- system prompts in the history


@pytest.mark.parametrize(
    ("history", "roles"),
    [
        ("hShah", "hhSah"),
        ("haSh", "hahS"),
        ("haShah", "hahSah"),
        ("haShhah", "hahhSah"),
        ("haShSh", "hahhS"),
        ("haSSh", "hahS"),
        ("hctSh", "hchhS"),
        ("hctSah", "hchSah"),
        ("hcSta", "hchSa"),
        ("haSeh", "hahS"),
        ("haSaha", "haahSa"),
        ("haS", "haS"),
        ("Sh", "hS"),
    ],
)
def test_a_later_system_prompt_stands_where_the_server_takes_it(history, roles):
    """Rule: directly after a user message, and before an answer or at the end; never two in a row.

    h is a person, a an answer, c one with a call, t a result, e an answer that is left out.
    """
    kinds = {
        "h": HI,
        "a": answered("yes"),
        "c": answered(CALL),
        "t": result(TextPart("A")),
        "e": answered(),
        "S": SystemMessage("Be brief."),
    }
    sent_roles = [message["role"] for message in sent(SystemMessage(""), *[kinds[kind] for kind in history])]
    names = {"h": "user", "t": "user", "a": "assistant", "c": "assistant", "S": "system"}
    assert sent_roles == [names[role] for role in roles]


def test_system_prompts_that_wait_are_one_message_in_their_order():
    messages = sent(SystemMessage("a"), HI, answered("yes"), SystemMessage("b"), SystemMessage("c"), HI)
    assert messages[-1] == said("system", "b", "c")


# ---------------------------------------------------------------- the law

TEXTS = st.sampled_from(["", " ", "a", 'b"\n', "\ud800"])
SIGNATURES = st.sampled_from([None, "anthropic:t:x", "anthropic:r:y", "other:t:z"])
PARTS = st.lists(st.builds(TextPart, TEXTS) | st.just(IMAGE), max_size=2)
SAID = st.lists(
    st.builds(TextPart, TEXTS) | st.builds(ReasoningPart, TEXTS, signature=SIGNATURES),
    max_size=3,
)


@st.composite
def exchanges(draw):
    """Return what a step adds to a history: what is said, and perhaps an answer with its results."""
    messages = draw(st.lists(st.builds(SystemMessage, TEXTS) | st.builds(DeveloperMessage), max_size=2))
    messages += draw(st.lists(st.builds(UserMessage, PARTS), max_size=2))
    if draw(st.booleans()):
        calls = [ToolCall(f"c{number}", name="a.b", arguments="{") for number in range(draw(st.integers(0, 2)))]
        messages.append(AssistantMessage([*draw(SAID), *calls]))
        messages += [ToolMessage(call.id, name=call.name, parts=draw(PARTS)) for call in calls]
    return messages


HISTORIES = st.lists(exchanges(), max_size=6).map(lambda steps: [message for step in steps for message in step])


@given(HISTORIES)
def test_successive_bodies_share_their_bytes(history):
    """Rule: messages that were sent are sent again as they were.

    A system prompt at the end of a request keeps its place once there is an answer, and until then moves on.
    """
    whole = [json.dumps(message) for message in sent(*history)]
    for end, message in enumerate(history[1:], 1):
        if isinstance(message, ToolMessage) or not isinstance(history[end - 1], UserMessage | ToolMessage):
            continue  # no request can be made here
        start = [json.dumps(each) for each in sent(*history[:end])]
        following = next((each for each in history[end:] if sent(HI, each)[1:]), None)
        if start[-1].startswith('{"role": "system"') and not isinstance(following, AssistantMessage):
            start.pop()
        assert whole[: len(start)] == start


@given(HISTORIES)
def test_every_body_keeps_to_the_rules_of_the_server(history):
    messages = sent(*history)
    roles = [message["role"] for message in messages]
    for place, message in enumerate(messages):
        assert message["content"]
        if message["role"] == "system" and place + 1 < len(roles):
            assert (roles[place - 1], roles[place + 1]) == ("user", "assistant")
            assert place
        if message["role"] == "assistant":
            assert message["content"][-1]["type"] in ("text", "tool_use")
    assert roles.count("system") + roles.count("user") + roles.count("assistant") == len(roles)


def test_the_bodies_of_two_steps_share_their_bytes():
    first = request(SystemMessage("Be brief."), HI, tools=[READ])
    second = ModelRequest(first.head, messages=[*first.messages, answered(CALL), result(TextPart("A"))])
    one, two = encode_body(first, ADAPTIVE, Histories()), encode_body(second, ADAPTIVE, Histories())
    assert two.startswith(one.removesuffix(b"]}"))
    assert encode_body(first, ADAPTIVE, Histories()) == one

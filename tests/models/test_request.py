"""What a model is asked, and its canonical bytes."""

import json
import math

import attrs
import pytest

from creche.messages import (
    AssistantMessage,
    ImagePart,
    SystemMessage,
    TextPart,
    ToolMessage,
    ToolSchema,
    UserMessage,
)
from creche.models import ModelOptions, ModelRequest, RequestHead, Settings, Usage


def schema(name):
    return ToolSchema(name, description=f"Does {name}.", parameters={"type": "object"})


HEAD = RequestHead(Settings("p", model="m"), tools=[schema("read")])
HISTORY = [
    SystemMessage("You are Ada."),
    UserMessage("Hello"),
    AssistantMessage([TextPart("Hi")]),
    UserMessage("now", source="runtime-context"),
    ToolMessage("1", name="read", parts="found"),
    UserMessage("And you?", source="agent"),
    UserMessage("note", source="plugin:x"),
]


# ---------------------------------------------------------------- canonical bytes


def test_the_bytes_are_a_line_of_settings_one_of_tools_and_one_a_message():
    request = ModelRequest(HEAD, messages=HISTORY[:2])
    assert request.canonical_bytes().decode() == (
        '{"provider":"p","model":"m","options":{"effort":null,"max_tokens":null,"temperature":null,"top_p":null,'
        '"seed":null,"stop":[],"tool_choice":null,"output_schema":null}}\n'
        '[{"name":"read","description":"Does read.","parameters":{"type":"object"}}]\n'
        '{"role":"system","text":"You are Ada."}\n'
        '{"role":"user","content":[{"type":"text","text":"Hello"}]}\n'
    )


def test_a_request_without_anything_has_its_two_lines():
    assert ModelRequest(RequestHead(Settings("p", model="m")), messages=()).canonical_bytes().count(b"\n") == 2


def test_the_bytes_of_a_longer_history_begin_with_those_of_the_shorter():
    for length in range(len(HISTORY)):
        shorter = ModelRequest(HEAD, messages=HISTORY[:length]).canonical_bytes()
        assert ModelRequest(HEAD, messages=HISTORY[: length + 1]).canonical_bytes().startswith(shorter)


def test_the_head_keeps_its_lines():
    """Rule: the line of tools is kept with the tuple of schemas; a step costs what is new in it."""
    lines = [list(ModelRequest(HEAD, messages=HISTORY).canonical_lines()) for _ in range(2)]
    assert all(first is second for first, second in zip(*lines, strict=True))


def test_who_asks_and_who_spoke_are_outside_of_the_bytes():
    request = ModelRequest(HEAD, messages=[UserMessage("a")])
    other = ModelRequest(
        attrs.evolve(HEAD, defaults=["effort"]),
        messages=[UserMessage("a", source="agent")],
        agent_path="lead",
        session_id="1",
    )
    assert other.canonical_bytes() == request.canonical_bytes()


@pytest.mark.parametrize(
    "head",
    [
        RequestHead(Settings("q", model="m"), tools=HEAD.tools),
        RequestHead(Settings("p", model="n"), tools=HEAD.tools),
        RequestHead(Settings("p", model="m", options=ModelOptions("high")), tools=HEAD.tools),
        RequestHead(Settings("p", model="m", options=ModelOptions(stop=["x"])), tools=HEAD.tools),
        RequestHead(Settings("p", model="m", options=ModelOptions(tool_choice="none")), tools=HEAD.tools),
        RequestHead(Settings("p", model="m")),
        RequestHead(Settings("p", model="m"), tools=[schema("read"), schema("edit")]),
    ],
)
def test_what_a_model_is_told_is_in_the_bytes(head):
    assert ModelRequest(head, messages=()).canonical_bytes() != ModelRequest(HEAD, messages=()).canonical_bytes()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ModelOptions(temperature=1), ModelOptions(temperature=1.0)),
        (ModelOptions(temperature=0.0, top_p=1), ModelOptions(temperature=-0.0, top_p=True)),
        (ModelOptions(max_tokens=1, seed=0), ModelOptions(max_tokens=True, seed=False)),
        (ModelOptions(stop=["a"]), ModelOptions(stop=("a",))),
    ],
)
def test_equal_options_are_the_same_bytes(one, other):
    assert one == other
    lines = [RequestHead(Settings("p", model="m", options=options)).settings_line for options in (one, other)]
    assert lines[0] == lines[1]


@pytest.mark.parametrize("name", ["provider", "model", "effort", "tool_choice", "stop"])
def test_settings_are_valid_unicode(name):
    options = {name: "\ud800"} if name in ("effort", "tool_choice") else {"stop": ["\ud800"]} if name == "stop" else {}
    settings = Settings(
        "\ud800" if name == "provider" else "p",
        model="\ud800" if name == "model" else "m",
        options=ModelOptions(**options),
    )
    assert "\ufffd" in RequestHead(settings).settings_line
    ModelRequest(RequestHead(settings), messages=()).canonical_bytes()


# ---------------------------------------------------------------- options


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("option", ["temperature", "top_p"])
def test_an_option_is_a_finite_number(option, number):
    with pytest.raises(ValueError, match="finite") as caught:
        ModelOptions(**{option: number})
    assert str(caught.value) == f"an option of a request is a finite number, not {number!r}"


@pytest.mark.parametrize("option", ["max_tokens", "seed"])
def test_a_whole_number_is_not_half_of_one(option):
    with pytest.raises(TypeError):
        ModelOptions(**{option: 1.5})


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"max_tokens": 0}, "ModelOptions.max_tokens is one or more or None, not 0"),
        ({"temperature": -0.1}, "a temperature is zero or more, not -0.1"),
        ({"top_p": 0}, "top_p is a share above zero and at most one, not 0.0"),
        ({"top_p": 1.1}, "top_p is a share above zero and at most one, not 1.1"),
    ],
)
def test_what_no_provider_takes_is_refused(options, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        ModelOptions(**options)


def test_stop_is_a_list_of_texts():
    with pytest.raises(TypeError) as caught:
        ModelOptions(stop="END")
    assert str(caught.value) == "ModelOptions.stop is a tuple of texts, not 'END'"


def test_options_are_left_to_the_provider_if_not_given():
    assert set(attrs.astuple(ModelOptions())) == {None, ()}


# ---------------------------------------------------------------- reading a request


def test_system_is_the_text_of_a_leading_system_message():
    assert ModelRequest(HEAD, messages=HISTORY).system == "You are Ada."
    assert ModelRequest(HEAD, messages=HISTORY[1:]).system == ""
    assert ModelRequest(HEAD, messages=[HISTORY[1], HISTORY[0]]).system == ""
    assert ModelRequest(HEAD, messages=()).system == ""


def test_user_texts_are_those_of_people_and_agents():
    """Rule: the framework's own snapshots and notes are left out."""
    request = ModelRequest(HEAD, messages=HISTORY)
    assert (request.user_texts, request.last_user_text) == (["Hello", "And you?"], "And you?")


def test_the_newest_tool_text():
    request = ModelRequest(
        HEAD, messages=[*HISTORY, ToolMessage("2", name="read", parts=[ImagePart("", media_type="")])]
    )
    assert request.last_tool_text == ""
    assert ModelRequest(HEAD, messages=HISTORY).last_tool_text == "found"


def test_an_empty_history_has_no_texts():
    request = ModelRequest(HEAD, messages=())
    assert (request.user_texts, request.last_user_text, request.last_tool_text) == ([], "", "")


def test_settings_and_tools_are_the_heads():
    request = ModelRequest(HEAD, messages=())
    assert (request.settings, request.tools) == (HEAD.settings, HEAD.tools)


def test_a_head_does_not_change_with_what_it_was_made_of():
    tools = [schema("read")]
    head = RequestHead(Settings("p", model="m"), tools=tools)
    tools.clear()
    assert json.loads(head.tools_line)[0]["name"] == "read"
    assert RequestHead(head.settings, tools=head.tools).tools is head.tools


# ---------------------------------------------------------------- usage


def test_usages_add_up():
    one = Usage(1, input_tokens=10, output_tokens=20, cached_tokens=5, reasoning_tokens=7)
    other = Usage(2, input_tokens=1, output_tokens=2, cached_tokens=3, reasoning_tokens=4)
    assert one + other == Usage(3, input_tokens=11, output_tokens=22, cached_tokens=8, reasoning_tokens=11)
    assert one + Usage() == one


def test_a_sum_of_usages_stops_at_the_largest_number():
    """Rule: what a provider says, however absurd, costs neither an answer nor the end of an agent."""
    most = 2**63 - 1
    one, other = Usage(1, input_tokens=most, output_tokens=3), Usage(2, input_tokens=most, output_tokens=most - 3)
    assert one + other == Usage(3, input_tokens=most, output_tokens=most)
    assert one + other + one == Usage(4, input_tokens=most, output_tokens=most)


def test_total_tokens_counts_cached_and_reasoning_once():
    assert Usage(1, input_tokens=10, output_tokens=20, cached_tokens=5, reasoning_tokens=7).total_tokens == 30

"""A request as llama.cpp's server takes it."""

import json

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
from creche.models.adapters._local_wire import chat_messages, encode_request

ADD = ToolSchema("add", description="Add.", parameters={"type": "object", "properties": {}})


def encoded(*messages, tools=(), **options):
    head = RequestHead(Settings("local", model="smollm2", options=ModelOptions(**options)), tools=tools)
    return json.loads(encode_request(ModelRequest(head, messages=messages), tools))


def test_calls_and_results_are_texts():
    history = [
        SystemMessage("Be brief."),
        UserMessage("2 + 3?"),
        AssistantMessage(
            [
                ReasoningPart("hm"),
                TextPart("Let me see."),
                ToolCall("1", name="add", arguments='{"a":2}'),
                ToolCall("2", name="sub", arguments="no JSON"),
            ]
        ),
        ToolMessage("1", name="add", parts="5"),
        ToolMessage("2", name="sub", parts="no such tool", is_error=True),
        UserMessage("And now?"),
        AssistantMessage([TextPart("5")]),
    ]
    assert chat_messages(history) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "2 + 3?"},
        {
            "role": "assistant",
            "content": 'Let me see.\n{"tool": "add", "arguments": {"a":2}}\n'
            '{"tool": "sub", "arguments": {"not_an_object":"no JSON"}}',
        },
        {"role": "user", "content": "Result of add: 5\n\nError of sub: no such tool\n\nAnd now?"},
        {"role": "assistant", "content": "5"},
    ]


def test_what_says_nothing_to_the_model_is_left_out():
    history = [
        SystemMessage(" "),
        DeveloperMessage(["add"]),
        AssistantMessage([ReasoningPart("hm")]),
        UserMessage(""),
        UserMessage("hello"),
    ]
    assert chat_messages(history) == [{"role": "user", "content": "hello"}]


def test_an_image_is_a_note():
    message = UserMessage([TextPart("Look:"), ImagePart("AAAA", media_type="image/png")])
    (turn,) = chat_messages([message])
    assert turn["content"].startswith("Look:\n[image/png")


def test_the_newest_system_prompt_counts_and_the_tools_come_after_it():
    history = [SystemMessage("Old."), UserMessage("a"), SystemMessage("New."), UserMessage("b")]
    assert chat_messages(history, "Tools.") == [
        {"role": "system", "content": "New.\n\nTools."},
        {"role": "user", "content": "a\n\nb"},
    ]
    assert chat_messages([UserMessage("a")], "Tools.")[0] == {"role": "system", "content": "Tools."}


def test_options_are_passed_on_where_they_are_set():
    body = encoded(UserMessage("a"))
    assert body == {
        "messages": [{"role": "user", "content": "a"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,
        "max_tokens": 512,
        "stop": [],
    }
    body = encoded(UserMessage("a"), temperature=0, top_p=0.5, seed=7, stop=["", "\n"], max_tokens=9, effort="high")
    options = ("temperature", "top_p", "seed", "stop", "max_tokens")
    assert [body[name] for name in options] == [0.0, 0.5, 7, ["\n"], 9]
    assert "effort" not in body


def test_an_answer_is_held_to_a_schema_if_there_are_tools_or_an_output_schema():
    body = encoded(UserMessage("a"), tools=(ADD,))
    assert len(body["response_format"]["json_schema"]["schema"]["anyOf"]) == 2
    assert '"reply"' in body["messages"][0]["content"]
    body = encoded(UserMessage("a"), tools=(ADD,), tool_choice="required")
    assert len(body["response_format"]["json_schema"]["schema"]["anyOf"]) == 1
    assert '"reply"' not in body["messages"][0]["content"]
    body = encoded(UserMessage("a"), output_schema={"type": "object"})
    assert body["response_format"] == {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}
    assert len(body["messages"]) == 1

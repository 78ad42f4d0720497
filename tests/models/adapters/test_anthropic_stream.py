"""From the events of Anthropic's messages to chunks, and what they add up to."""

import json

import pytest

from creche.errors import ModelError
from creche.messages import ReasoningPart, TextPart, ToolCall
from creche.models import (
    Assembler,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageReported,
    model_error,
)
from creche.models.adapters._anthropic_stream import MessagesReader

STOP = {"type": "message_stop"}


def start(**usage):
    return {"type": "message_start", "message": {"type": "message", "content": [], "usage": usage}}


def begin(kind, index=0, **fields):
    return {"type": "content_block_start", "index": index, "content_block": {"type": kind, **fields}}


def more(kind, index=0, **fields):
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def leave(index=0):
    return {"type": "content_block_stop", "index": index}


def ended(reason="end_turn", **usage):
    return {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}


def read(*events, done=True):
    reader = MessagesReader(model_error, provider="p")
    chunks = []
    for event in events:
        name = event.get("type", "message") if isinstance(event, dict) else "message"
        chunks += reader.feed(name, event if isinstance(event, str) else json.dumps(event))
    return chunks + (reader.feed("message_stop", json.dumps(STOP)) if done else reader.end())


def answer(*events, **how):
    assembler = Assembler()
    for chunk in read(*events, **how):
        assembler.feed(chunk)
    return assembler.message()


def failed(*events, **how):
    with pytest.raises(ModelError) as caught:
        read(*events, **how)
    return caught.value


# ---------------------------------------------------------------- what is said


def test_text_comes_as_it_is_cut():
    chunks = read(
        start(input_tokens=3),
        {"type": "ping"},
        begin("text", text=""),
        more("text_delta", text="Hel"),
        more("text_delta", text="lo"),
        leave(),
        ended(output_tokens=2),
    )
    assert chunks == [
        UsageReported(Usage(1, input_tokens=3)),
        TextDelta("Hel"),
        TextDelta("lo"),
        Finished("stop", usage=Usage(1, input_tokens=3, output_tokens=2)),
    ]


def test_thinking_is_signed_when_its_block_ends():
    events = [
        begin("thinking", thinking="", signature=""),
        more("thinking_delta", thinking="h"),
        more("thinking_delta", thinking="m"),
        more("signature_delta", signature="a:"),
        more("signature_delta", signature="b"),
        leave(),
        begin("redacted_thinking", 1, data="secret"),
        leave(1),
        begin("thinking", 2, thinking=""),
        more("signature_delta", 2, signature="c"),
        leave(2),
        begin("text", 3),
        more("text_delta", 3, text="yes"),
        leave(3),
    ]
    assert read(*events)[2] == ReasoningDelta("", signature="p:t:a:b")
    assert answer(*events).parts == (
        ReasoningPart("hm", signature="p:t:a:b"),
        ReasoningPart("", signature="p:r:secret"),
        ReasoningPart("", signature="p:t:c"),
        TextPart("yes"),
    )


def test_calls_are_numbered_among_themselves():
    events = [
        begin("text"),
        more("text_delta", text="Reading."),
        leave(),
        begin("tool_use", 1, id="c1", name="read", input={}),
        more("input_json_delta", 1, partial_json=""),
        more("input_json_delta", 1, partial_json='{"a"'),
        more("input_json_delta", 1, partial_json=":1}"),
        leave(1),
        begin("tool_use", 2, id="c2", name="list", input={}),
        leave(2),
        ended("tool_use"),
    ]
    assert read(*events)[1:] == [
        ToolCallDelta(0, id="c1", name="read"),
        ToolCallDelta(0, arguments='{"a"'),
        ToolCallDelta(0, arguments=":1}"),
        ToolCallDelta(1, id="c2", name="list"),
        ToolCallDelta(1, arguments="{}"),
        Finished("tool-calls"),
    ]
    assert answer(*events).tool_calls[1] == ToolCall("c2", name="list", arguments="{}")


def test_what_comes_whole_with_the_beginning_counts():
    events = [
        begin("thinking", thinking="hm", signature="x"),
        leave(),
        begin("text", 1, text="yes"),
        leave(1),
        begin("tool_use", 2, id="c", name="read", input={"path": "a"}),
        leave(2),
    ]
    assert answer(*events).parts == (
        ReasoningPart("hm", signature="p:t:x"),
        TextPart("yes"),
        ToolCall("c", name="read", arguments='{"path":"a"}'),
    )


def test_blocks_may_overlap_and_need_not_be_ended():
    events = [
        begin("tool_use", 0, id="c1", name="read"),
        begin("tool_use", 1, id="c2", name="read"),
        more("input_json_delta", 1, partial_json='{"b":1}'),
        more("input_json_delta", 0, partial_json='{"a":1}'),
        begin("thinking", 2, thinking="hm", signature="x"),
    ]
    assert [call.arguments for call in answer(*events).tool_calls] == ['{"a":1}', '{"b":1}']
    assert answer(*events).parts[-1] == ReasoningPart("hm", signature="p:t:x")


def test_a_block_may_take_the_place_of_one_that_was_not_ended():
    events = [begin("thinking", thinking="hm", signature="x"), begin("text", text="yes")]
    assert answer(*events).parts == (ReasoningPart("hm", signature="p:t:x"), TextPart("yes"))


def test_a_delta_without_a_block_begins_one():
    events = [
        more("thinking_delta", 0, thinking="hm"),
        more("signature_delta", 0, signature="x"),
        leave(),
        more("text_delta", 1, text="yes"),
    ]
    assert answer(*events).parts == (ReasoningPart("hm", signature="p:t:x"), TextPart("yes"))
    with pytest.raises(ModelError, match="does not say which tool"):
        answer(more("input_json_delta"))


def test_what_is_not_known_is_left_out():
    events = [
        begin("server_tool_use", 0, id="s", name="search", input={}),
        more("input_json_delta", 0, partial_json='{"query":1}'),
        leave(0),
        begin("text", 1, text="yes", citations=None),
        more("citations_delta", 1, citation={}),
        more("signature_delta", 1, signature="x"),
        {"type": "content_block_odd", "index": 1},
        {"type": "odd"},
        {},
        "",
    ]
    assert read(*events) == [TextDelta("yes"), Finished()]


def test_an_event_without_a_type_is_of_the_kind_that_its_line_says():
    reader = MessagesReader(model_error, provider="p")
    assert reader.feed("content_block_delta", '{"delta":{"type":"text_delta","text":"x"}}') == [TextDelta("x")]
    assert reader.feed("message_stop", "{}") == [Finished()]


@pytest.mark.parametrize("nothing", [None, "absent"])
def test_what_an_event_does_not_have_may_be_null_or_absent(nothing):
    def without(event):
        kept = {name: value for name, value in event.items() if name == "type"}
        return kept if nothing == "absent" else {**dict.fromkeys(event), **kept}

    whole = [
        start(),
        begin("text"),
        more("text_delta"),
        leave(),
        ended(),
    ]
    kinds = ["text", "thinking", "redacted_thinking"]
    inside = [
        *[begin(kind, **dict.fromkeys(("text", "thinking", "data", "signature"))) for kind in kinds],
        more("text_delta", 5, text=None),
        more("thinking_delta", 6, thinking=None),
        more("signature_delta", 6, signature=None),
        begin("tool_use", 7, id=None, name="read", input=None),
        more("input_json_delta", 7, partial_json=None),
        start(input_tokens=None, output_tokens_details=None),
        ended(None, output_tokens=None, cache_read_input_tokens=None),
    ]
    assert read(*map(without, whole))[-1] == Finished()
    assert answer(*inside).parts == (ToolCall("call-0", name="read", arguments="{}"),)


# ---------------------------------------------------------------- what it costs, and how it ends


def test_usage_adds_up_the_kinds_of_input():
    first = {"input_tokens": 10, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 70, "output_tokens": 1}
    last = {"input_tokens": 0, "output_tokens": 30, "output_tokens_details": {"thinking_tokens": 12}}
    read_so_far = Usage(1, input_tokens=100, output_tokens=1, cached_tokens=70, cache_write_tokens=20)
    chunks = read(start(**first), ended(**last))
    assert chunks[0] == UsageReported(read_so_far)
    assert chunks[-1].usage == Usage(
        1, input_tokens=100, output_tokens=30, cached_tokens=70, cache_write_tokens=20, reasoning_tokens=12
    )


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("tool_use", "tool-calls"),
        ("max_tokens", "max-tokens"),
        ("model_context_window_exceeded", "max-tokens"),
        ("refusal", "refusal"),
    ],
)
def test_reasons_to_stop(reason, finish):
    call = [begin("tool_use", 1, id="c", name="read"), leave(1)] if finish == "tool-calls" else []
    assert read(begin("text", text="x"), leave(), *call, ended(reason))[-1] == Finished(finish)


@pytest.mark.parametrize("reason", ["end_turn", "tool_use"])
def test_there_are_calls_or_not_whatever_the_reason_says(reason):
    assert read(begin("text", text="x"), ended(reason))[-1].reason == "stop"
    assert read(begin("tool_use", id="c", name="read"), ended(reason))[-1].reason == "tool-calls"


def test_an_unknown_reason_to_stop_is_a_failure_that_names_it():
    error = failed(ended("tired"))
    assert (error.code, str(error)) == (
        "unknown",
        "the answer ended with 'tired', which the protocol does not have",
    )


def test_a_body_that_ends_after_a_reason_to_stop_is_complete():
    assert read(begin("text", text="x"), ended("max_tokens"), done=False)[-1] == Finished("max-tokens")


def test_a_body_that_ends_before_it_is_cut():
    assert failed(start(), begin("text", text="x"), leave(), done=False).code == "stream-cut"
    assert failed(done=False).code == "stream-cut"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, "overloaded", "Overloaded"),
        ({"type": "api_error", "message": "oops"}, "server", "oops"),
        ({"type": "rate_limit_error", "message": "slow"}, "rate-limit", "slow"),
        ({"type": "invalid_request_error", "message": "prompt is too long"}, "context-overflow", "prompt is too long"),
        ("boom", "server", "boom"),
        (None, "server", '{"type":"error","error":null}'),
    ],
)
def test_an_error_in_the_middle_of_an_answer(error, code, said):
    caught = failed(start(), {"type": "error", "error": error})
    assert (caught.code, str(caught)) == (code, f"in the middle of an answer: {said}")


def test_an_error_needs_no_type():
    assert failed({"error": {"type": "overloaded_error", "message": "Overloaded"}}).code == "overloaded"


@pytest.mark.parametrize("data", ["[1]", "{oops", '"x"', "null", "[" * 100_000])
def test_what_is_no_object_is_malformed(data):
    assert failed(data).code == "malformed"


@pytest.mark.parametrize(
    "event",
    [
        {"type": 5},
        {"type": "content_block_delta", "delta": 5},
        more("text_delta", text=["x"]),
        {"type": "message_start", "message": []},
    ],
)
def test_what_has_another_type_is_a_type_error(event):
    with pytest.raises(TypeError, match=r"is no (object|text)"):
        read(event)

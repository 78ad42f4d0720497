"""From the events of a chat completion to chunks, and what they add up to."""

import json

import pytest

from creche.errors import ModelError
from creche.messages import ReasoningPart, TextPart, ToolCall
from creche.models import Assembler, Finished, ReasoningDelta, TextDelta, ToolCallDelta, Usage, model_error
from creche.models.adapters._openai_stream import DONE, ChatReader


def delta(finish=None, **fields):
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def tool(index, call_id=None, name=None, arguments=None):
    return {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}


def read(*events, done=True, signature=""):
    reader = ChatReader(model_error, signature=signature)
    chunks = []
    for event in events:
        chunks += reader.feed("message", event if isinstance(event, str) else json.dumps(event))
    return chunks + (reader.feed("message", DONE) if done else reader.end())


def answer(*events, **how):
    assembler = Assembler()
    for chunk in read(*events, **how):
        assembler.feed(chunk)
    return assembler.message()


def failed(*events, **how):
    with pytest.raises(ModelError) as caught:
        read(*events, **how)
    return caught.value


def test_text_comes_as_it_is_cut():
    assert read(delta(role="assistant", content=""), delta(content="Hel"), delta(content="lo"), delta("stop")) == [
        TextDelta("Hel"),
        TextDelta("lo"),
        Finished("stop"),
    ]


def test_a_call_comes_in_pieces():
    events = [
        delta(tool_calls=[tool(0, "c1", "read", "")]),
        delta(tool_calls=[tool(0, arguments='{"a"')]),
        delta(tool_calls=[tool(0, arguments=":1}")]),
        delta("tool_calls"),
    ]
    assert read(*events)[0] == ToolCallDelta(0, id="c1", name="read")
    assert answer(*events).parts == (ToolCall("c1", name="read", arguments='{"a":1}'),)


@pytest.mark.parametrize("nothing", [None, ""])
def test_later_deltas_may_have_an_empty_id_and_name(nothing):
    said = answer(
        delta(tool_calls=[tool(0, "c1", "read", "{")]),
        delta(tool_calls=[tool(0, nothing, nothing, "}")]),
        delta("tool_calls"),
    )
    assert said.parts == (ToolCall("c1", name="read", arguments="{}"),)


def test_two_calls_on_one_index_stay_two():
    said = answer(
        delta(tool_calls=[tool(0, "c1", "read", "{}")]), delta(tool_calls=[tool(0, "c2", "edit", "{}")]), delta("stop")
    )
    assert [(call.id, call.name) for call in said.tool_calls] == [("c1", "read"), ("c2", "edit")]


def test_of_two_calls_with_one_id_the_second_gets_another():
    said = answer(delta(tool_calls=[tool(0, "c1", "read", "{}"), tool(1, "c1", "edit", "{}")]), delta("tool_calls"))
    assert [call.id for call in said.tool_calls] == ["c1", "call-1"]


@pytest.mark.parametrize("missing", [{}, {"index": None}])
def test_a_server_may_leave_out_the_index(missing):
    def bare(**fields):
        return {**missing, **fields}

    said = answer(
        delta(tool_calls=[bare(id="a", function={"name": "read", "arguments": "{"})]),
        delta(tool_calls=[bare(function={"arguments": "}"})]),
        delta(tool_calls=[bare(id="b", function={"name": "edit", "arguments": {"x": 1}})]),
        delta("tool_calls"),
    )
    assert said.parts == (ToolCall("a", name="read", arguments="{}"), ToolCall("b", name="edit", arguments='{"x":1}'))


def test_a_call_without_a_name_is_one_error():
    error = None
    try:
        answer(delta(tool_calls=[tool(0, "c1", None, "{}")]), delta("tool_calls"))
    except ModelError as caught:
        error = caught
    assert error is not None
    assert (error.code, error.retryable) == ("malformed", True)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_comes_before_the_text(field):
    assert answer(delta(**{field: "hm"}), delta(content="yes"), delta("stop")).parts == (
        ReasoningPart("hm"),
        TextPart("yes"),
    )


def test_reasoning_that_is_wanted_back_is_signed_where_it_ends():
    events = [delta(reasoning_content="h"), delta(reasoning_content="m"), delta(content="yes"), delta("stop")]
    assert read(*events, signature="p:")[2] == ReasoningDelta("", signature="p:")
    assert answer(*events, signature="p:").parts == (ReasoningPart("hm", signature="p:"), TextPart("yes"))
    assert answer(delta(reasoning_content="hm"), delta("stop"), signature="p:").parts == (
        ReasoningPart("hm", signature="p:"),
    )


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", "stop"),
        ("length", "max-tokens"),
        ("content_filter", "refusal"),
        ("tool_calls", "stop"),
        (None, "stop"),
        ("", "stop"),
    ],
)
def test_reasons_to_finish(reason, finish):
    assert read(delta(reason, content="x"))[-1] == Finished(finish)


def test_an_answer_with_calls_finishes_with_calls_whatever_the_server_says():
    assert read(delta("stop", tool_calls=[tool(0, "c", "read", "{}")]))[-1] == Finished("tool-calls")


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("error", "server"),
        ("abort", "stream-cut"),
        ("insufficient_system_resource", "overloaded"),
        ("because", "unknown"),
    ],
)
def test_some_reasons_are_failures(reason, code):
    error = failed(delta(reason, content="x"))
    assert error.code == code
    assert repr(reason) in str(error)


def test_a_refusal_is_said_and_finishes_as_one():
    assert read(delta(refusal="I won't."), delta("stop")) == [TextDelta("I won't."), Finished("refusal")]


def test_usage_comes_with_or_after_the_last_delta():
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 80, "cache_write_tokens": 5},
        "completion_tokens_details": {"reasoning_tokens": 7},
    }
    assert read(delta("stop", content="x"), {"choices": [], "usage": usage})[-1].usage == Usage(
        1, input_tokens=100, output_tokens=20, cached_tokens=80, cache_write_tokens=5, reasoning_tokens=7
    )


@pytest.mark.parametrize(
    "usage",
    [{}, {"prompt_tokens": None, "prompt_tokens_details": None}, {"prompt_tokens": -1, "completion_tokens": "many"}],
)
def test_what_the_provider_does_not_say_costs_nothing(usage):
    assert read(delta("stop", content="x"), {"usage": usage})[-1].usage == Usage(1)


def test_deepseek_says_cached_tokens_elsewhere():
    usage = {"prompt_tokens": 10, "prompt_cache_hit_tokens": 8}
    assert read(delta("stop", content="x"), {"usage": usage})[-1].usage.cached_tokens == 8


def test_other_choices_are_ignored():
    other = {"choices": [{"index": 1, "delta": {"content": "no"}}]}
    assert read(delta(content="yes"), other, delta("stop"))[0] == TextDelta("yes")


@pytest.mark.parametrize(
    "event",
    [{}, {"choices": None}, {"choices": [{}]}, {"choices": [{"delta": None}]}, delta(), delta(content=None), ""],
)
def test_an_event_may_have_nothing_in_it(event):
    assert read(event, delta("stop", content="x")) == [TextDelta("x"), Finished("stop")]


def test_content_may_come_in_parts():
    assert read(delta("stop", content=[{"type": "text", "text": "x"}, {"type": "text"}]))[0] == TextDelta("x")


@pytest.mark.parametrize("data", ["{", "nope", "[1]", "null", "[" * 100_000])
def test_what_is_no_json_object_is_one_error(data):
    error = failed(data)
    assert (error.code, error.retryable) == ("malformed", True)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        ({"message": "slow down", "code": 429}, "rate-limit", "slow down"),
        ({"message": "slow down", "code": "rate_limit_exceeded"}, "rate-limit", "slow down"),
        ({"message": "no credit", "type": "insufficient_quota"}, "quota", "no credit"),
        ({"message": "This model's maximum context length is 8"}, "context-overflow", "maximum context"),
        ("it broke", "server", "it broke"),
        ({"what": "ever"}, "server", '{"what":"ever"}'),
    ],
)
def test_an_error_in_the_middle_is_told_as_one(error, code, text):
    caught = failed(delta(content="x"), {"error": error})
    assert caught.code == code
    assert text in str(caught)


def test_a_body_that_ends_without_a_reason_was_cut():
    assert failed(delta(content="x"), done=False).code == "stream-cut"


def test_a_server_need_not_say_done():
    assert read(delta("stop", content="x"), done=False) == [TextDelta("x"), Finished("stop")]

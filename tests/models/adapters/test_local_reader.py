"""The events of llama.cpp's server as chunks, and the JSON object of an answer read as it comes."""

import json

import pytest
from hypothesis import given, strategies as st

from creche._util import clean_text
from creche.errors import ContextOverflowError, ModelError
from creche.models import Finished, ReasoningDelta, TextDelta, ToolCallDelta, Usage, UsageReported
from creche.models.adapters._local_reader import LocalReader, ObjectReader


def cut(text, places):
    places = sorted({place % (len(text) + 1) for place in places})
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


def read(pieces):
    reader = ObjectReader()
    deltas = [delta for piece in pieces for delta in reader.feed(piece)]
    return deltas, reader.called


CUTS = st.lists(st.integers(0, 10_000), max_size=8)
TEXTS = st.text(st.characters()) | st.text(st.characters(categories=["Cs", "Cc", "So"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('ab"\\{}[]', max_size=3), inner, max_size=3),
    max_leaves=8,
)
INDENTS = st.none() | st.integers(0, 3)


@given(TEXTS, CUTS, INDENTS)
def test_a_reply_streams_as_its_text_however_it_is_cut(text, places, indent):
    """The pieces add up to what the JSON string means; no half of a surrogate pair gets out."""
    written = json.dumps({"reply": text}, indent=indent)
    deltas, called = read(cut(written, places))
    said = "".join(delta.text for delta in deltas)
    assert said == clean_text(json.loads(written)["reply"])
    assert all(clean_text(delta.text) == delta.text for delta in deltas)
    assert not called


@given(st.dictionaries(st.text('ab"\\{}[]é', max_size=3), JSON, max_size=3), CUTS, INDENTS, st.booleans())
def test_arguments_stream_as_the_json_they_are_however_they_are_cut(arguments, places, indent, escape):
    written = json.dumps({"tool": 'na"me', "arguments": arguments}, indent=indent, ensure_ascii=escape)
    deltas, called = read(cut(written + "\n", places))
    assert deltas[0] == ToolCallDelta(0, name='na"me')
    assert all(isinstance(delta, ToolCallDelta) and not delta.id for delta in deltas[1:])
    said = "".join(delta.arguments for delta in deltas)
    assert json.loads(said) == arguments
    assert said in written
    assert called


@given(CUTS)
def test_a_reply_that_is_an_object_is_passed_on_as_json(places):
    deltas, called = read(cut('{ "reply" : {"city": "P\\"}aris", "more": [{}]} }', places))
    assert "".join(delta.text for delta in deltas) == '{"city": "P\\"}aris", "more": [{}]}'
    assert not called


def test_a_reply_comes_out_as_far_as_it_has_come():
    reader = ObjectReader()
    assert reader.feed('{"reply": "Par') == [TextDelta("Par")]
    assert reader.feed("is\\") == [TextDelta("is")]
    assert reader.feed("n\\ud83d") == [TextDelta("\n")]
    assert reader.feed("\\ude00.\\ud83d") == [TextDelta("😀.")]
    assert reader.feed('"}') == [TextDelta("\ufffd")]


@pytest.mark.parametrize(
    "text", ["Paris", "[1]", '{"reply": 7}', '{"tool": "a", "arguments": []}', '{"reply": "\\uxyzw']
)
def test_an_answer_of_another_form_is_an_error(text):
    with pytest.raises(ValueError, match=r"^(expected|invalid literal)"):
        ObjectReader().feed(text)


# ---------------------------------------------------------------- events


def event(text=None, *, finish=None, **more):
    delta = {} if text is None else {"content": text}
    return json.dumps({"choices": [{"finish_reason": finish, "index": 0, "delta": delta}], **more})


def usage(read_tokens, written, cached):
    details = {"cached_tokens": cached}
    return json.dumps(
        {
            "choices": [],
            "usage": {"prompt_tokens": read_tokens, "completion_tokens": written, "prompt_tokens_details": details},
        }
    )


def chunks_of(*events, structured=False):
    reader = LocalReader("local", structured=structured)
    return [chunk for each in events for chunk in reader.feed(each)]


def test_text_streams_and_the_last_event_says_what_it_cost():
    assert chunks_of(
        event(prompt_progress={"total": 9, "cache": 4, "processed": 4}),
        event("Par"),
        event("is"),
        event(finish="stop"),
        usage(9, 2, 4),
    ) == [
        UsageReported(Usage(1, input_tokens=9, cached_tokens=4)),
        TextDelta("Par"),
        TextDelta("is"),
        Finished("stop", usage=Usage(1, input_tokens=9, output_tokens=2, cached_tokens=4)),
    ]


def test_reasoning_is_told_apart():
    thought = json.dumps({"choices": [{"finish_reason": None, "delta": {"reasoning_content": "hm"}}]})
    assert chunks_of(thought) == [ReasoningDelta("hm")]


def test_an_answer_ends_for_one_of_three_reasons():
    call = event('{"tool": "add", "arguments": {}}')
    assert chunks_of(call, event(finish="stop"), usage(1, 1, 0), structured=True)[-1].reason == "tool-calls"
    assert chunks_of(call, event(finish="length"), usage(1, 1, 0), structured=True)[-1].reason == "max-tokens"
    reply = event('{"reply": "a"}')
    assert chunks_of(reply, event(finish="stop"), usage(1, 1, 0), structured=True)[-1].reason == "stop"


def refused(code, message):
    return json.dumps({"error": {"code": code, "message": message}})


def test_a_request_that_is_too_long_is_a_context_overflow():
    with pytest.raises(ContextOverflowError) as caught:
        chunks_of(refused(400, "request (9 tokens) exceeds the available context size (4 tokens)"))
    assert str(caught.value) == (
        "local: request (9 tokens) exceeds the available context size (4 tokens); LocalModel(context=...) makes it larger (shorten or compact the history)"
    )
    assert (caught.value.code, caught.value.provider) == ("context-overflow", "local")


def test_other_errors_are_classified_by_their_status():
    for status, code in ((400, "invalid-request"), (500, "server"), (503, "overloaded")):
        with pytest.raises(ModelError) as caught:
            chunks_of(refused(status, "no"))
        assert caught.value.code == code


def test_an_answer_that_is_not_held_to_its_form_is_malformed():
    with pytest.raises(ModelError) as caught:
        chunks_of(event("Paris"), structured=True)
    assert str(caught.value) == (
        "local: the answer has not the form it is held to: expected '{', not 'P' "
        "(the provider sent what its protocol does not allow)"
    )
    assert caught.value.code == "malformed"

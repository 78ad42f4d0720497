"""What a model streams, and the answer it adds up to."""

import pytest

from creche.errors import ModelError
from creche.messages import AssistantMessage, ReasoningPart, TextPart, ToolCall
from creche.models import (
    Assembler,
    Finished,
    ReasoningDelta,
    StreamRun,
    TextDelta,
    ToolCallDelta,
    Usage,
    expand_stream,
    pack_stream,
)


def fed(*chunks):
    answer = Assembler()
    for chunk in chunks:
        answer.feed(chunk)
    return answer


def parts(*chunks, **options):
    return list(fed(*chunks).message(**options).parts)


def text(said):
    return TextDelta(said)


def think(said, signature=None):
    return ReasoningDelta(said, signature=signature)


def call(index, arguments="", **carried):
    return ToolCallDelta(index, arguments=arguments, **carried)


# ---------------------------------------------------------------- text and reasoning


def test_deltas_of_one_kind_in_a_row_are_one_part():
    assert parts(text("a"), text("b"), think("c"), think("d"), text("e")) == [
        TextPart("ab"),
        ReasoningPart("cd"),
        TextPart("e"),
    ]


@pytest.mark.parametrize("empty", [text(""), think("")])
def test_an_empty_delta_opens_and_ends_nothing(empty):
    """Rule: many a wire has an empty text in every chunk."""
    assert parts(empty) == []
    assert parts(think("a"), empty, think("b"), empty, text("c"), empty, text("d")) == [
        ReasoningPart("ab"),
        TextPart("cd"),
    ]


def test_a_signature_ends_a_stretch_of_reasoning():
    assert parts(think("a"), think("b", "s1"), think("c"), think("", "s2"), think("d")) == [
        ReasoningPart("ab", signature="s1"),
        ReasoningPart("c", signature="s2"),
        ReasoningPart("d"),
    ]


def test_reasoning_may_be_all_signature():
    assert parts(think("", "sealed"), text("a")) == [ReasoningPart("", signature="sealed"), TextPart("a")]


def test_an_empty_signature_is_none():
    assert think("a", "") == think("a")


def test_halves_of_a_character_meet_in_the_message():
    assert parts(text("\ud83d"), text("\ude00"), think("\ud83d")) == [TextPart("😀"), ReasoningPart("\ufffd")]


def test_a_blank_part_is_kept_unless_the_answer_was_cut():
    assert parts(text(" \n")) == [TextPart(" \n")]
    assert parts(text(" \n"), think(" "), text("a"), cut=True) == [TextPart("a")]


# ---------------------------------------------------------------- tool calls


def test_a_call_is_added_up_by_its_index():
    assert parts(call(0, id="a", name="read"), call(0, '{"x"'), call(0, ":1}")) == [
        ToolCall("a", name="read", arguments='{"x":1}')
    ]


def test_calls_may_be_interleaved():
    assert parts(
        call(0, "1", id="a", name="read"),
        call(1, "x", id="b", name="edit"),
        call(0, "2"),
        text("meanwhile"),
        call(1, "y"),
        text(" on"),
        call(0, "3"),
    ) == [
        ToolCall("a", name="read", arguments="123"),
        ToolCall("b", name="edit", arguments="xy"),
        TextPart("meanwhile on"),
    ]


def test_id_and_name_may_come_late_and_be_null():
    """Rule: what a delta does not have may be None."""
    assert parts(
        call(0, None, id=None, name=None), call(0, "{", id="a"), call(0, name="read"), call(0, "}", id="", name="")
    ) == [ToolCall("a", name="read", arguments="{}")]


def test_id_and_name_may_be_repeated():
    assert parts(call(0, "1", id="a", name="read"), call(0, "2", id="a", name="read")) == [
        ToolCall("a", name="read", arguments="12")
    ]


def test_another_id_and_name_on_one_index_is_another_call():
    assert parts(
        call(0, "1", id="a", name="read"),
        call(0, "x", id="b", name="edit"),
        call(0, "y"),
        call(0, "2", id="a"),
        call(0, "3"),
    ) == [ToolCall("a", name="read", arguments="123"), ToolCall("b", name="edit", arguments="xy")]


def test_an_id_made_up_for_each_delta_is_no_other_call():
    assert parts(call(0, "1", id="a", name="read"), call(0, "2", id="b"), call(0, "3", id="c")) == [
        ToolCall("a", name="read", arguments="123")
    ]


def test_a_call_without_an_id_is_given_one():
    assert parts(call(0, name="read"), call(3, name="edit")) == [
        ToolCall("call-0", name="read", arguments=""),
        ToolCall("call-3", name="edit", arguments=""),
    ]


def test_an_id_is_given_once():
    said = parts(call(0, id="a", name="read"), call(1, id="a", name="edit"), call(2, id="a", name="glob"))
    assert [each.id for each in said] == ["a", "call-1", "call-2"]


def test_two_ids_that_are_mended_to_one_are_two_ids():
    said = parts(call(0, id="\ud83d", name="read"), call(1, id="\ude00", name="edit"))
    assert [each.id for each in said] == ["\ufffd", "call-1"]


def test_a_given_id_is_never_taken_from_the_call_it_belongs_to():
    said = parts(call(0, name="a"), call(1, id="call-0", name="b"), call(2, name="c"), call(3, id="call-2", name="d"))
    assert [each.id for each in said] == ["call-1", "call-0", "call-3", "call-2"]


def test_a_call_that_names_no_tool_is_malformed():
    answer = fed(text("a"), call(0, name="read"), call(4, "{}", id="b"))
    with pytest.raises(ModelError) as caught:
        answer.feed(Finished("tool-calls", usage=Usage(1, output_tokens=5)))
    assert str(caught.value) == "the model's tool call 4 does not say which tool"
    assert (caught.value.code, caught.value.retryable) == ("malformed", True)
    assert answer.finished.usage.output_tokens == 5


# ---------------------------------------------------------------- the end


@pytest.mark.parametrize("reason", ["stop", "tool-calls"])
def test_calls_run_whatever_a_provider_calls_the_end(reason):
    assert parts(call(0, id="a", name="read"), Finished(reason)) == [ToolCall("a", name="read", arguments="")]


@pytest.mark.parametrize("reason", ["max-tokens", "refusal"])
def test_calls_of_an_answer_that_was_cut_off_are_dropped(reason):
    """Rule: half a call must not run."""
    said = parts(text("a"), call(0, '{"x', id="a", name="read"), call(1), text(" "), Finished(reason))
    assert said == [TextPart("a"), TextPart(" ")]


def test_an_interrupted_answer_keeps_what_was_said_and_drops_calls():
    said = parts(think("a"), call(0, "{", id="a", name="read"), text("b"), cut=True)
    assert said == [ReasoningPart("a"), TextPart("b")]


@pytest.mark.parametrize("late", [text("b"), think("b"), call(0), Finished()])
def test_nothing_comes_after_the_end(late):
    answer = fed(text("a"), Finished())
    with pytest.raises(ModelError) as caught:
        answer.feed(late)
    assert (str(caught.value), caught.value.code) == ("the model streamed on after it had finished", "malformed")
    assert (answer.message(), answer.deltas) == (AssistantMessage([TextPart("a")]), [text("a")])


def test_an_answer_of_reasoning_alone_says_nothing():
    message = fed(think("hm"), Finished()).message()
    assert (message.text, message.tool_calls, message.parts) == ("", (), (ReasoningPart("hm"),))


def test_asking_for_the_message_changes_nothing():
    answer = fed(text("a"))
    assert answer.message() == answer.message(cut=True) == AssistantMessage([TextPart("a")])
    answer.feed(text("b"))
    answer.feed(Finished())
    assert answer.message() == AssistantMessage([TextPart("ab")])
    assert answer.message() is answer.message()
    assert answer.message(cut=True) == answer.message()


def test_how_it_ended_is_kept():
    finished = Finished("refusal", usage=Usage(1, cached_tokens=3))
    assert (fed().finished, fed(finished).finished) == (None, finished)
    assert Finished().usage == Usage(1)


# ---------------------------------------------------------------- runs


def test_deltas_of_one_kind_are_packed_into_runs():
    deltas = [
        text("a"),
        text("b"),
        think("c"),
        think("d", "s"),
        think("e"),
        call(0, id="1", name="read"),
        call(0, "{"),
        call(1, "["),
        call(0, "}"),
    ]
    assert pack_stream(deltas) == (
        StreamRun("text", pieces=["a", "b"]),
        StreamRun("reasoning", pieces=["c"]),
        StreamRun("reasoning", pieces=["d", "e"], name="s"),
        StreamRun("tool-call", pieces=["", "{"], id="1", name="read"),
        StreamRun("tool-call", pieces=["["], index=1),
        StreamRun("tool-call", pieces=["}"]),
    )
    assert list(expand_stream(pack_stream(deltas))) == deltas


def test_the_stream_of_an_answer_has_every_delta_and_not_the_end():
    deltas = [text(""), text("a"), call(0, name="read")]
    assert list(expand_stream(fed(*deltas, Finished()).stream())) == deltas


def test_nothing_is_packed_into_nothing():
    assert (pack_stream([]), list(expand_stream([])), fed().message()) == ((), [], AssistantMessage([]))

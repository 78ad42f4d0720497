"""Whatever a server sends, a reader makes chunks of it or one error that the adapter knows."""

import json

import hypothesis.strategies as st
from httpx2 import ServerSentEvent
from hypothesis import given

from creche.errors import ModelError
from creche.models import Assembler, Finished, UsageReported, model_error
from creche.models.adapters._anthropic_stream import MessagesReader
from creche.models.adapters._http import read_event
from creche.models.adapters._openai_stream import DONE, ChatReader

KEYS = st.sampled_from(
    [
        "choices",
        "delta",
        "content",
        "tool_calls",
        "index",
        "id",
        "function",
        "name",
        "arguments",
        "finish_reason",
        "usage",
        "error",
        "message",
        "code",
        "type",
        "content_block",
        "message_delta",
        "stop_reason",
        "partial_json",
        "thinking",
        "signature",
        "text",
        "input",
        "prompt_tokens",
    ]
)
WORDS = st.sampled_from(
    [
        "stop",
        "length",
        "tool_calls",
        "end_turn",
        "tool_use",
        "refusal",
        "text",
        "text_delta",
        "thinking_delta",
        "input_json_delta",
        "signature_delta",
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "error",
        "x",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | WORDS | st.just(""),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=15,
)

DELTA = st.fixed_dictionaries(
    {},
    optional={
        "content": st.none() | WORDS,
        "reasoning_content": st.none() | WORDS,
        "tool_calls": st.none()
        | st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "index": st.none() | st.integers(0, 2),
                    "id": st.none() | WORDS,
                    "function": st.none()
                    | st.fixed_dictionaries({}, optional={"name": st.none() | WORDS, "arguments": st.none() | WORDS}),
                },
            ),
            max_size=2,
        ),
    },
)
CHAT = st.fixed_dictionaries(
    {},
    optional={
        "choices": st.none()
        | st.lists(st.fixed_dictionaries({"delta": st.none() | DELTA}, optional={"finish_reason": JSON}), max_size=2),
        "usage": JSON,
    },
)
BLOCK = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "thinking", "redacted_thinking", "tool_use", "x"])},
    optional={"id": st.none() | WORDS, "name": st.none() | WORDS, "input": JSON, "text": st.none() | WORDS},
)
MESSAGES = st.fixed_dictionaries(
    {"type": WORDS},
    optional={"index": st.integers(0, 2), "content_block": BLOCK, "delta": JSON, "message": JSON, "usage": JSON},
)


def check(reader, events):
    """Feed events until one fails; what came is legal, and adds up or fails as one error."""
    answer = Assembler()
    try:
        for data in [*events, None]:
            event = None if data is None else ServerSentEvent(data=data)
            for chunk in read_event(reader, event, model_error):
                assert answer.finished is None, "nothing comes after the end"
                answer.feed(chunk)
            if answer.finished is not None:
                break
    except ModelError:
        answer.message(cut=True)
    else:
        assert answer.finished is not None
        answer.message()
    assert not any(isinstance(delta, Finished | UsageReported) for delta in answer.deltas)


@given(st.lists((CHAT | JSON).map(json.dumps) | st.just(DONE), max_size=6), st.sampled_from(["", "p:"]))
def test_chat_completions_of_any_shape(events, signature):
    check(ChatReader(model_error, signature=signature), events)


@given(st.lists((MESSAGES | JSON).map(json.dumps), max_size=8))
def test_messages_of_any_shape(events):
    check(MessagesReader(model_error, provider="p"), events)


@given(st.text(max_size=20))
def test_what_is_no_json_at_all(text):
    check(ChatReader(model_error), [text])
    check(MessagesReader(model_error, provider="p"), [text])

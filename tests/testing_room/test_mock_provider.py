import json
import math
import socket
import struct
import sys
from types import MappingProxyType

import anthropic
import httpx2
import openai
import pytest
import trio
import trio.testing

from creche.models import Call, Usage, call, fail, say
from creche.testing import (
    MockProvider,
    MockRequest,
    cut,
    garbage,
    open_mock_provider,
    page,
    pause,
    raw,
    silent,
    status,
    think,
    unended,
    until,
)

WIRES = pytest.mark.parametrize("wire_name", ["openai", "anthropic"])
USAGE = Usage(1, input_tokens=10, output_tokens=5, cached_tokens=4, reasoning_tokens=2)


def client_of(provider, wire_name, *, max_retries=0):
    if wire_name == "openai":
        return openai.AsyncOpenAI(base_url=provider.openai_url, api_key="none", max_retries=max_retries)
    return anthropic.AsyncAnthropic(base_url=provider.anthropic_url, api_key="none", max_retries=max_retries)


def ask(client, *, stream=True, **options):
    """Ask with the SDK of either wire."""
    if isinstance(client, openai.AsyncOpenAI):
        return client.chat.completions.create(model="m", messages=[], stream=stream, **options)
    return client.messages.create(model="m", messages=[], max_tokens=9, stream=stream, **options)


async def events_of(provider, wire_name):
    """Return the events of one streamed answer, as the SDK sees them."""
    async with client_of(provider, wire_name) as client:
        options = {"stream_options": {"include_usage": True}} if wire_name == "openai" else {}
        return [event.model_dump(exclude_unset=True) async for event in await ask(client, **options)]


def url_of(provider, wire_name):
    if wire_name == "openai":
        return f"{provider.openai_url}/chat/completions"
    return f"{provider.anthropic_url}/v1/messages"


async def post(provider, wire_name="openai", **body):
    """Return the answer to a plain request."""
    async with httpx2.AsyncClient() as client:
        return await client.post(url_of(provider, wire_name), json=body)


async def connect(provider):
    return await trio.open_tcp_stream("127.0.0.1", int(provider.anthropic_url.rpartition(":")[2]))


async def raw_stream(provider, wire_name="openai"):
    return (await post(provider, wire_name, stream=True)).text


# ---------------------------------------------------------------- what is said


async def test_openais_wire_streams_one_chunk_a_piece():
    async with open_mock_provider([say("Hel", "lo", usage=USAGE)]) as provider:
        chunks = await events_of(provider, "openai")
    *said, last = chunks
    assert [chunk["choices"][0]["delta"] for chunk in said] == [
        {"role": "assistant", "content": ""},
        {"content": "Hel"},
        {"content": "lo"},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in said] == [None, None, None, "stop"]
    assert {(chunk["id"], chunk["model"]) for chunk in chunks} == {("chatcmpl-1", "m")}
    assert last["choices"] == []
    assert last["usage"] == {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }


async def test_openais_usage_is_streamed_only_if_the_request_asks_for_it():
    async with open_mock_provider([say("Hi", usage=USAGE)]) as provider:
        text = await raw_stream(provider)
    assert "usage" not in text
    assert text.endswith("data: [DONE]\n\n")


async def test_anthropics_wire_streams_blocks():
    answer = [think("h", "m", signature="s"), say("Hel", "lo", usage=USAGE), call("add", a=1, b=2)]
    async with open_mock_provider([answer]) as provider:
        events = await events_of(provider, "anthropic")
    assert [event["type"].removeprefix("content_") for event in events] == [
        "message_start",
        *["block_start", "block_delta", "block_delta", "block_delta", "block_stop"],
        *["block_start", "block_delta", "block_delta", "block_stop"],
        *["block_start", "block_delta", "block_delta", "block_stop"],
        "message_delta",
        "message_stop",
    ]
    assert [event["index"] for event in events if "index" in event] == [0] * 5 + [1] * 4 + [2] * 4
    assert [event["content_block"] for event in events if event["type"] == "content_block_start"] == [
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "text", "text": ""},
        {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}},
    ]
    assert [event["delta"] for event in events if event["type"] == "content_block_delta"] == [
        {"type": "thinking_delta", "thinking": "h"},
        {"type": "thinking_delta", "thinking": "m"},
        {"type": "signature_delta", "signature": "s"},
        {"type": "text_delta", "text": "Hel"},
        {"type": "text_delta", "text": "lo"},
        {"type": "input_json_delta", "partial_json": '{"a":1'},
        {"type": "input_json_delta", "partial_json": ',"b":2}'},
    ]
    usage = {"input_tokens": 6, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 4}
    assert events[0]["message"]["usage"] == {**usage, "output_tokens": 0}
    assert events[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert events[-2]["usage"] == {**usage, "output_tokens": 5, "output_tokens_details": {"thinking_tokens": 2}}


async def test_anthropics_own_helper_adds_an_answer_up():
    answer = [think("hm", signature="s"), say("Hel"), pause(0), say("lo"), call("add", a=1), call("now")]
    async with (
        open_mock_provider([answer]) as provider,
        client_of(provider, "anthropic") as client,
        client.messages.stream(model="m", messages=[], max_tokens=9) as stream,
    ):
        message = await stream.get_final_message()
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert message.content[1].text == "Hello"
    assert [(block.id, block.input) for block in message.content[2:]] == [("toolu_1", {"a": 1}), ("toolu_2", {})]


async def test_a_block_of_reasoning_ends_with_its_signature():
    async with open_mock_provider([[think("a", signature="s"), think("b"), think("c")]]) as provider:
        events = await events_of(provider, "anthropic")
    assert [event["index"] for event in events if event["type"] == "content_block_start"] == [0, 1]


async def test_calls_and_reasoning_on_openais_wire():
    async with open_mock_provider([[think("h", "m"), call("add", a=1), call("now")]]) as provider:
        chunks = await events_of(provider, "openai")
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[1:-2]]
    assert deltas[:2] == [{"reasoning_content": "h"}, {"reasoning_content": "m"}]
    assert [delta["tool_calls"][0] for delta in deltas[2:]] == [
        {"index": 0, "id": "call_1", "type": "function", "function": {"name": "add", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"a'}},
        {"index": 0, "function": {"arguments": '":1}'}},
        {"index": 1, "id": "call_2", "type": "function", "function": {"name": "now", "arguments": ""}},
        {"index": 1, "function": {"arguments": "{"}},
        {"index": 1, "function": {"arguments": "}"}},
    ]
    assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"


async def test_an_answer_that_is_not_streamed_is_one_object_on_openais_wire():
    answer = [think("hm"), say("Hel", "lo", usage=USAGE), call("add", a=1)]
    async with open_mock_provider([answer, call("now")]) as provider, client_of(provider, "openai") as client:
        first, second = await ask(client, stream=False), await ask(client, stream=False)
    message = first.choices[0].message
    assert (message.content, message.reasoning_content) == ("Hello", "hm")
    assert (message.tool_calls[0].id, message.tool_calls[0].function.arguments) == ("call_1", '{"a":1}')
    assert first.choices[0].finish_reason == "tool_calls"
    assert first.usage.prompt_tokens_details.cached_tokens == 4
    assert second.choices[0].message.content is None
    assert second.choices[0].message.tool_calls[0].id == "call_2"


async def test_an_answer_that_is_not_streamed_is_one_object_on_anthropics_wire():
    answer = [think("hm", signature="s"), say("Hel"), say("lo", usage=USAGE), say(), call("add", a=1), call("now")]
    async with open_mock_provider([answer]) as provider, client_of(provider, "anthropic") as client:
        message = await ask(client, stream=False)
    assert [block.model_dump(exclude_unset=True) for block in message.content] == [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "Hello"},
        {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1}},
        {"type": "tool_use", "id": "toolu_2", "name": "now", "input": {}},
    ]
    assert (message.stop_reason, message.usage.input_tokens) == ("tool_use", 6)


@pytest.mark.parametrize(
    ("finish", "on_openai", "on_anthropic"),
    [
        (None, "stop", "end_turn"),
        ("stop", "stop", "end_turn"),
        ("tool-calls", "tool_calls", "tool_use"),
        ("max-tokens", "length", "max_tokens"),
        ("refusal", "content_filter", "refusal"),
    ],
)
async def test_an_end_has_each_wires_own_word(finish, on_openai, on_anthropic):
    async with open_mock_provider([say("Hi", finish=finish)] * 2) as provider:
        chunks = await events_of(provider, "openai")
        events = await events_of(provider, "anthropic")
    assert chunks[-2]["choices"][0]["finish_reason"] == on_openai
    assert events[-2]["delta"]["stop_reason"] == on_anthropic


@WIRES
async def test_an_empty_answer_starts_and_ends(wire_name):
    async with open_mock_provider([[]]) as provider:
        events = await events_of(provider, wire_name)
    assert len(events) == 3


async def test_a_lone_surrogate_reaches_the_client():
    async with open_mock_provider([say("ä\ud800")]) as provider:
        text = await raw_stream(provider)
    assert r"\u00e4\ud800" in text


async def test_a_delta_is_sent_when_it_is_written():
    go_on = trio.Event()
    async with (
        open_mock_provider([[say("one"), until(go_on), say("two")]]) as provider,
        httpx2.AsyncClient() as client,
        client.stream("POST", url_of(provider, "openai"), json={"stream": True}) as response,
    ):
        texts = response.aiter_text()
        received = ""
        while "one" not in received:
            received += await anext(texts)
        assert "two" not in received
        assert provider.streaming == 1
        go_on.set()
        assert "two" in "".join([text async for text in texts])
        assert provider.streaming == 0


async def test_ten_thousand_deltas():
    async with open_mock_provider([say(*["x"] * 10_000)]) as provider:
        text = await raw_stream(provider)
    assert text.count('"content":"x"') == 10_000


# ---------------------------------------------------------------- what is asked


async def test_a_request_is_kept_byte_for_byte():
    async with open_mock_provider([say("Hi")] * 2) as provider:
        async with httpx2.AsyncClient() as client:
            content = b'{"model" : "m"}'
            headers = [("X-Twice", "a"), ("X-Twice", "b")]
            await client.post(f"{provider.anthropic_url}/v1/messages?beta=true", content=content, headers=headers)
        (request,) = provider.requests
        await events_of(provider, "openai")
        assert [each.wire for each in provider.requests] == ["anthropic", "openai"]
    assert (request.wire, request.path, request.body) == ("anthropic", "/v1/messages?beta=true", content)
    assert request.json == {"model": "m"}
    assert request.headers["x-twice"] == "a, b"
    assert repr(request) == "MockRequest(wire='anthropic', path='/v1/messages?beta=true')"


async def test_a_large_request_arrives_whole():
    text = "ä" * 3_000_000
    async with open_mock_provider([say("Hi")]) as provider:
        response = await post(provider, text=text)
        assert response.json()["choices"][0]["message"]["content"] == "Hi"
        assert provider.requests[0].json["text"] == text


async def test_a_function_answers_by_the_request():
    async def later(request):
        await trio.lowlevel.checkpoint()
        return [say(request.json["text"]), say(".")]

    def answer(request: MockRequest):
        return later(request) if request.wire == "anthropic" else say(request.json["text"])

    async with open_mock_provider(answer) as provider:
        plain = await post(provider, text="one")
        waited = await post(provider, "anthropic", text="two")
    assert plain.json()["choices"][0]["message"]["content"] == "one"
    assert waited.json()["content"] == [{"type": "text", "text": "two."}]


async def test_answers_are_given_in_order_of_arrival():
    go_on = trio.Event()
    async with open_mock_provider([[until(go_on), say("one")], say("two")]) as provider:
        texts = {}

        async def first():
            texts["first"] = (await post(provider)).json()["choices"][0]["message"]["content"]

        async with trio.open_nursery() as nursery:
            nursery.start_soon(first)
            await provider.wait_requests(1)
            texts["second"] = (await post(provider)).json()["choices"][0]["message"]["content"]
            go_on.set()
    assert texts == {"first": "one", "second": "two"}


async def test_a_connection_serves_many_requests():
    async with open_mock_provider([say("Hi")] * 4) as provider, httpx2.AsyncClient() as client:
        for stream in (True, False, True, False):
            response = await client.post(url_of(provider, "anthropic"), json={"stream": stream})
            assert response.status_code == 200
        assert (len(provider.requests), provider.connections) == (4, 1)


async def test_a_client_may_ask_not_to_keep_its_connection():
    async with open_mock_provider([say("Hi")] * 2) as provider, httpx2.AsyncClient() as client:
        for _ in range(2):
            await client.post(url_of(provider, "openai"), json={}, headers={"connection": "close"})
        assert provider.connections == 2


async def test_two_hundred_answers_at_once():
    go_on = trio.Event()
    async with open_mock_provider([[say("a"), until(go_on), say("b")]] * 200) as provider:
        limits = httpx2.Limits(max_connections=200)
        async with httpx2.AsyncClient(limits=limits, timeout=None) as client:
            texts = []

            async def one():
                response = await client.post(url_of(provider, "openai"), json={"stream": True})
                texts.append(response.text)

            async with trio.open_nursery() as nursery:
                for _ in range(200):
                    nursery.start_soon(one)
                await provider.wait_requests(200)
                go_on.set()
        assert (provider.streaming, provider.most_streaming, provider.hung_up) == (0, 200, 0)
    assert len(texts) == 200
    assert all('"b"' in text for text in texts)
    assert len({json.loads(text.split("\n")[0].removeprefix("data: "))["id"] for text in texts}) == 200


async def test_a_client_that_waits_to_be_told_to_continue_is_told():
    head = b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    async with open_mock_provider([say("Hi")]) as provider, await connect(provider) as stream:
        await stream.send_all(head)
        assert await stream.receive_some() == b"HTTP/1.1 100 \r\n\r\n"
        await stream.send_all(b"{}")
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 \r\n")


async def test_what_is_sent_early_waits_for_its_turn():
    go_on = trio.Event()
    async with open_mock_provider([[until(go_on), say("one")], say("two")]) as provider:
        async with await connect(provider) as stream:
            request = b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
            await stream.send_all(request)
            await provider.wait_requests(1)
            await stream.send_all(request)
            await trio.testing.wait_all_tasks_blocked(0.01)
            go_on.set()
            received = b""
            while b'"two"' not in received:
                received += await stream.receive_some()
        assert received.index(b'"one"') < received.index(b'"two"')


# ---------------------------------------------------------------- faults


@WIRES
async def test_a_status_is_an_error_of_the_wire(wire_name):
    answer = status(429, "slow down", retry_after=1.5, headers={"X-More": "yes"})
    async with open_mock_provider([answer]) as provider, client_of(provider, wire_name) as client:
        kind = {"openai": openai, "anthropic": anthropic}[wire_name].RateLimitError
        with pytest.raises(kind) as caught:
            await ask(client)
    headers = caught.value.response.headers
    assert (headers["retry-after"], headers["x-more"]) == ("1.5", "yes")
    assert caught.value.request_id == "req_1"
    body = caught.value.response.json()
    assert body["error"]["message"] == "slow down"
    assert body["error"]["type"] == {"openai": "rate_limit_exceeded", "anthropic": "rate_limit_error"}[wire_name]


@pytest.mark.parametrize(
    ("wire_name", "code", "kind", "body"),
    [
        ("openai", 400, None, {"type": "invalid_request_error", "param": None, "code": None}),
        ("openai", 503, None, {"type": "server_error", "param": None, "code": None}),
        (
            "openai",
            429,
            "insufficient_quota",
            {"type": "insufficient_quota", "param": None, "code": "insufficient_quota"},
        ),
        ("anthropic", 400, None, {"type": "invalid_request_error"}),
        ("anthropic", 500, None, {"type": "api_error"}),
        ("anthropic", 529, None, {"type": "overloaded_error"}),
        ("anthropic", 500, "mine", {"type": "mine"}),
    ],
)
async def test_an_error_has_a_type(wire_name, code, kind, body):
    async with open_mock_provider([status(code, "no", kind=kind)]) as provider:
        response = await post(provider, wire_name)
    assert response.status_code == code
    assert response.json()["error"] == {"message": "no", **body}


async def test_an_error_may_wait_and_name_a_date():
    date = "Wed, 21 Oct 2026 07:28:00 GMT"
    async with open_mock_provider([[pause(0.01), status(503, retry_after=date)]]) as provider:
        response = await post(provider)
    assert response.headers["retry-after"] == date


async def test_a_page_is_sent_as_it_is():
    async with open_mock_provider([page("<p>ä</p>", code=502), page("{}", "application/json")]) as provider:
        bad, odd = await post(provider, stream=True), await post(provider, stream=True)
    assert (bad.status_code, bad.text, bad.headers["content-type"]) == (502, "<p>ä</p>", "text/html")
    assert (odd.status_code, odd.text, odd.headers["content-type"]) == (200, "{}", "application/json")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_cut_at_the_start_comes_before_any_head(stream):
    async with open_mock_provider([cut()]) as provider:
        with pytest.raises(httpx2.RemoteProtocolError, match="without sending a response"):
            await post(provider, stream=stream)
        assert (provider.streaming, provider.hung_up) == (0, 0)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_cut_leaves_the_body_unfinished(stream):
    async with open_mock_provider([[say("one"), cut()]]) as provider, httpx2.AsyncClient() as client:
        received = b""
        with pytest.raises(httpx2.RemoteProtocolError, match="incomplete chunked read"):  # noqa: PT012 - it breaks while it is read
            async with client.stream("POST", url_of(provider, "openai"), json={"stream": stream}) as response:
                async for data in response.aiter_raw():
                    received += data
        assert received.startswith(b"data: " if stream else b"{")
        assert provider.hung_up == 0


async def test_an_unended_answer_is_whole_for_http_and_not_for_the_wire():
    async with open_mock_provider([[say("one"), unended()]] * 3 + [unended()]) as provider:
        text = await raw_stream(provider)
        assert text.endswith('"delta":{"content":"one"},"finish_reason":null}]}\n\n')
        assert (await raw_stream(provider, "anthropic")).rpartition("event: ")[2].startswith("content_block_delta")
        with pytest.raises(json.JSONDecodeError):
            (await post(provider)).json()
        assert await raw_stream(provider) == ""


async def test_garbage_stands_where_it_is_put():
    async with open_mock_provider([[say("one"), garbage("data: {oops\n\n")], garbage(b"\xff")]) as provider:
        text = await raw_stream(provider)
        assert (await post(provider)).content == b"\xff"
    assert [line[:9] for line in text.split("\n\n")] == ['data: {"i'] * 2 + ["data: {oo", 'data: {"i', "data: [DO", ""]


async def test_raw_events_are_all_that_is_sent():
    events = raw({"type": "ping"}, {"x": 1}, "[DONE]")
    async with open_mock_provider([events] * 3) as provider:
        assert await raw_stream(provider) == 'data: {"type":"ping"}\n\ndata: {"x":1}\n\ndata: [DONE]\n\n'
        expected = 'event: ping\ndata: {"type":"ping"}\n\ndata: {"x":1}\n\ndata: [DONE]\n\n'
        assert await raw_stream(provider, "anthropic") == expected
        assert (await post(provider)).text == '{"type":"ping"}{"x":1}[DONE]'


async def test_texts_among_raw_events_are_not_started_or_ended():
    async with open_mock_provider([[say("one"), raw({"error": {}})]]) as provider:
        text = await raw_stream(provider)
    assert [json.loads(line.removeprefix("data: ")).keys() >= {"choices"} for line in text.split("\n\n")[:-1]] == [
        True,
        False,
    ]


@WIRES
async def test_silence_lasts_until_the_client_leaves(wire_name):
    async with open_mock_provider([silent(), [say("one"), silent()]]) as provider:
        async with client_of(provider, wire_name) as client, trio.open_nursery() as nursery:
            nursery.start_soon(ask, client)
            await provider.wait_requests(1)
            nursery.cancel_scope.cancel()
        await provider.wait_quiet()
        assert provider.hung_up == 1


async def test_silence_shows_a_client_its_timeout():
    async with open_mock_provider([silent()]) as provider:
        async with httpx2.AsyncClient(timeout=0.05) as client:
            with pytest.raises(httpx2.ReadTimeout):
                await client.post(url_of(provider, "openai"), json={})
        await provider.wait_quiet()
        assert provider.hung_up == 1


@pytest.mark.parametrize("stream", [True, False])
async def test_silence_in_the_middle_keeps_what_was_sent(stream):
    async with open_mock_provider([[say("one"), silent()]]) as provider, httpx2.AsyncClient() as client:
        async with client.stream("POST", url_of(provider, "openai"), json={"stream": stream}) as response:
            assert response.status_code == 200
            assert await anext(response.aiter_raw())
            assert provider.streaming == 1
        await provider.wait_quiet()
        assert provider.hung_up == 1


@WIRES
async def test_a_client_that_leaves_in_the_middle_is_counted(wire_name):
    async with open_mock_provider([say(*["x"] * 1_000_000)]) as provider:
        async with client_of(provider, wire_name) as client:
            stream = await ask(client)
            with trio.CancelScope() as cancel_scope:
                async for _ in stream:
                    cancel_scope.cancel()
            await stream.close()
        await provider.wait_quiet()
        assert (provider.hung_up, provider.streaming) == (1, 0)


async def test_a_client_that_leaves_cancels_the_function():
    cancelled = []

    async def answer(request):
        try:
            await trio.sleep_forever()
        finally:
            cancelled.append(request.path)

    async with open_mock_provider(answer) as provider:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(post, provider)
            await provider.wait_requests(1)
            nursery.cancel_scope.cancel()
        await provider.wait_quiet()
        assert (cancelled, provider.hung_up) == (["/v1/chat/completions"], 1)


async def test_a_reset_is_a_way_to_leave():
    async with open_mock_provider([silent()]) as provider:
        stream = await connect(provider)
        async with stream:
            await stream.send_all(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
            await provider.wait_requests(1)
            stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await provider.wait_quiet()
        assert provider.hung_up == 1


@pytest.mark.parametrize(("stream", "hung_up"), [(True, 1), (False, 0)])
async def test_a_send_that_fails_is_a_client_that_left_unless_it_was_the_last(stream, hung_up, monkeypatch):
    async def broken(self, *events):
        await trio.lowlevel.checkpoint()
        raise trio.BrokenResourceError

    monkeypatch.setattr("creche.testing._mock_http.Connection._send", broken)
    async with open_mock_provider([say("Hi")]) as provider:
        with pytest.raises(httpx2.RemoteProtocolError):
            await post(provider, stream=stream)
        assert (provider.streaming, provider.hung_up) == (0, hung_up)


@WIRES
async def test_a_client_that_closes_after_the_last_event_has_not_left_early(wire_name):
    async with open_mock_provider([say("Hi")] * 5) as provider:
        for _ in range(5):
            async with client_of(provider, wire_name) as client:
                async for _ in await ask(client):
                    pass
        assert (provider.streaming, provider.hung_up) == (0, 0)


# ---------------------------------------------------------------- refusals


@WIRES
async def test_a_script_that_is_exhausted_says_so(wire_name):
    async with open_mock_provider([say("Hi")]) as provider, client_of(provider, wire_name, max_retries=2) as client:
        await ask(client, stream=False)
        with pytest.raises({"openai": openai, "anthropic": anthropic}[wire_name].BadRequestError) as caught:
            await ask(client)
        assert len(provider.requests) == 2
    error = caught.value.response.json()["error"]
    assert error["type"] == "script_exhausted"
    assert error["message"] == "the script has answers for 1 requests, and this is request 2"


async def test_what_is_not_served_is_refused_in_the_wires_shape():
    async with open_mock_provider([say("Hi")]) as provider, httpx2.AsyncClient() as client:
        plain = await client.get(f"{provider.openai_url}/models?limit=1")
        other = await client.post(f"{provider.openai_url}/files", headers={"anthropic-version": "1"})
        head = await client.head(url_of(provider, "openai"))
        assert [each.path for each in provider.requests] == ["/v1/models?limit=1", "/v1/files", "/v1/chat/completions"]
        assert (await post(provider)).status_code == 200
    assert plain.json()["error"]["message"] == (
        "GET /v1/models is not served here, but POST .../chat/completions and POST .../v1/messages"
    )
    assert other.json()["type"] == "error"
    assert other.json()["error"]["type"] == "not_found_error"
    assert [each.status_code for each in (plain, other, head)] == [404, 404, 404]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff"])
async def test_a_body_that_is_no_object_is_refused_and_takes_no_answer(content):
    async with open_mock_provider([say("Hi")]) as provider:
        async with httpx2.AsyncClient() as client:
            response = await client.post(url_of(provider, "openai"), content=content)
        assert (response.status_code, response.json()["error"]["message"]) == (400, "the body is no JSON object")
        assert (await post(provider)).status_code == 200


@pytest.mark.parametrize(
    "data", [b"nonsense\r\n\r\n", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{", b""]
)
async def test_what_is_no_request_ends_its_connection(data):
    async with open_mock_provider([]) as provider:
        async with await connect(provider) as stream:
            await stream.send_all(data)
            await stream.send_eof()
            assert await stream.receive_some() == b""
        assert provider.requests == []


async def test_what_the_function_raises_comes_out_of_the_block():
    def answer(request):
        raise ValueError("mine")

    with pytest.raises(ValueError, match=r"^mine$"):  # noqa: PT012 - the block is the server's
        async with open_mock_provider(answer) as provider:
            response = await post(provider)
            assert response.status_code == 400
            assert response.json()["error"]["message"] == "the script failed: ValueError('mine')"


async def test_what_the_function_raises_replaces_what_it_causes():
    """Rule: the mistake in the script is what is seen, not the client's complaint; the client does not ask again."""
    asked = []

    async def answer(request):
        asked.append(request)
        raise ValueError("mine")

    with pytest.raises(ValueError, match=r"^mine$") as caught:  # noqa: PT012 - the block is the server's
        async with open_mock_provider(answer) as provider, client_of(provider, "openai", max_retries=2) as client:
            with pytest.raises(openai.InternalServerError):
                await ask(client)
            await ask(client)
    assert isinstance(caught.value.__context__, openai.BadRequestError)
    assert len(asked) == 1


async def test_a_script_that_fails_twice_at_once_says_so():
    barrier = trio.Event()

    async def answer(request):
        await barrier.wait()
        raise ValueError(request.json["name"])

    with pytest.raises(ValueError, match=r"^(one|two)\n") as caught:  # noqa: PT012 - the block is the server's
        async with open_mock_provider(answer) as provider, trio.open_nursery() as nursery:
            for name in ("one", "two"):
                nursery.start_soon(lambda name=name: post(provider, name=name))
            await provider.wait_requests(2)
            barrier.set()
    (note,) = caught.value.__notes__
    assert note in {"the script failed once more: ValueError('one')", "the script failed once more: ValueError('two')"}


async def test_a_function_that_returns_something_else_has_failed():
    with pytest.raises(TypeError) as caught:
        async with open_mock_provider(lambda request: "Hi") as provider:
            assert (await post(provider)).status_code == 400
    assert str(caught.value) == (
        "what the script's function returned is 'Hi'; expected say(...), status(...) or another item, or a list of them"
    )


async def test_a_call_that_is_no_json_has_no_form_in_a_whole_message():
    bad = Call("add", arguments="{oops")
    with pytest.raises(json.JSONDecodeError):  # noqa: PT012 - the block is the server's
        async with open_mock_provider([bad] * 3) as provider:
            assert '"arguments":"ops"' in await raw_stream(provider)
            assert (await post(provider)).json()["choices"][0]["message"]["tool_calls"][0]["id"] == "call_2"
            assert (await post(provider, "anthropic")).status_code == 400


@pytest.mark.parametrize(
    ("script", "error", "sentence"),
    [
        (say("Hi"), TypeError, "open_mock_provider() takes a list of answers or a function, not Say("),
        ("Hi", TypeError, "open_mock_provider() takes a list of answers or a function, not 'Hi'; write [...]"),
        (
            [say("Hi"), "Hi"],
            TypeError,
            "answer 2 of the script is 'Hi'; expected say(...), status(...) or another item",
        ),
        ([[say("Hi"), 5]], TypeError, "answer 1 of the script has 5 in its list; expected say(...), status(...)"),
        ([fail()], TypeError, "answer 1 of the script is Fail("),
        ([[say("Hi"), status(500)]], ValueError, "answer 1 of the script has status(...) after something that is sent"),
        ([[say("Hi"), page("")]], ValueError, "answer 1 of the script has page(...) after something that is sent"),
        ([[cut(), say("Hi")]], ValueError, "answer 1 of the script goes on after cut(...), which ends it"),
        ([[status(500), pause(1)]], ValueError, "answer 1 of the script goes on after status(...), which ends it"),
    ],
)
async def test_a_script_that_cannot_be_is_refused_at_once(script, error, sentence):
    with pytest.raises(error) as caught:
        async with open_mock_provider(script):
            raise AssertionError
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: status(302), ValueError, "status() takes the status of an error, 400 to 599, not 302; page() takes"),
        (lambda: page("", code=204), ValueError, "page() takes a status of 200 to 599 that has a body, not 204"),
        (lambda: page("", code=100), ValueError, "page() takes a status of 200 to 599 that has a body, not 100"),
        (lambda: think(5), TypeError, "think() takes texts, not 5"),
        (lambda: raw(5), TypeError, "raw() takes mappings and texts, not 5"),
        (lambda: raw({"a": object()}), TypeError, "Object of type object is not JSON serializable"),
        (lambda: pause(-1), ValueError, "pause() takes finite seconds from zero, not -1; silent() waits for ever"),
        (lambda: pause(math.inf), ValueError, "pause() takes finite seconds from zero, not inf; silent() waits"),
        (lambda: until(5), TypeError, "until() takes a trio.Event, not 5"),
    ],
)
def test_an_item_that_cannot_be_is_refused(make, error, sentence):
    with pytest.raises(error) as caught:
        make()
    assert str(caught.value).startswith(sentence)


# ---------------------------------------------------------------- the block


async def test_leaving_the_block_ends_what_is_under_way():
    def tasks():
        return trio.lowlevel.current_statistics().tasks_living

    before = tasks()
    async with httpx2.AsyncClient() as client:
        async with open_mock_provider([[say("one"), silent()], silent()]) as provider:
            request = client.build_request("POST", url_of(provider, "openai"), json={"stream": True})
            response = await client.send(request, stream=True)
            assert provider.streaming == 1
        assert tasks() == before
        assert (provider.streaming, provider.hung_up) == (0, 0)
        with pytest.raises(httpx2.RemoteProtocolError):
            await response.aread()
        with pytest.raises(httpx2.ConnectError):
            await client.post(url_of(provider, "openai"), json={})


async def test_an_error_of_the_block_comes_out_as_itself():
    with pytest.raises(ValueError, match=r"^mine$"):
        async with open_mock_provider([silent()]):
            raise ValueError("mine")


async def test_requests_are_waited_for_by_their_number():
    async with open_mock_provider([say("Hi")] * 3) as provider:
        with trio.testing.assert_checkpoints():
            await provider.wait_requests(0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(post, provider)
            await provider.wait_requests(1)
            assert len(provider.requests) == 1
            nursery.start_soon(post, provider)
            nursery.start_soon(post, provider)
            await provider.wait_requests(3)
        assert len(provider.requests) == 3


async def test_quiet_is_when_the_last_answer_is_over():
    go_on = trio.Event()
    async with open_mock_provider([say("Hi"), [until(go_on), say("Hi")]]) as provider:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(post, provider)
            nursery.start_soon(post, provider)
            await provider.wait_requests(2)
            nursery.start_soon(provider.wait_quiet)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert (provider.streaming, len(nursery.child_tasks)) == (1, 2)
            go_on.set()
        assert provider.streaming == 0


async def test_quiet_is_at_once_where_nothing_is_under_way():
    async with open_mock_provider([]) as provider:
        with trio.testing.assert_checkpoints():
            await provider.wait_quiet()


async def test_a_provider_is_made_by_opening_it():
    with pytest.raises(
        TypeError, match=r"^creche\.testing\.MockProvider has no public constructor; call what opens or returns one$"
    ):
        MockProvider("http://127.0.0.1:1/v1")


async def test_without_h11_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "creche.testing._mock_http", raising=False)
    monkeypatch.setitem(sys.modules, "h11", None)
    with pytest.raises(ImportError) as caught:
        async with open_mock_provider([]):
            raise AssertionError
    assert str(caught.value) == "the mock provider needs 'h11'; run: pip install 'creche[openai]'"


async def test_another_missing_module_is_not_hidden(monkeypatch):
    monkeypatch.setitem(sys.modules, "creche.testing._mock_http", None)
    with pytest.raises(ModuleNotFoundError, match=r"_mock_http"):
        async with open_mock_provider([]):
            raise AssertionError


def test_headers_are_read_only_and_a_request_can_be_hashed():
    request = MockRequest("openai", path="/", headers=MappingProxyType({}), body=b"{}")
    assert {request: 1}[request] == 1

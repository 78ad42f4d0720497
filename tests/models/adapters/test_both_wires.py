"""What holds for every adapter that asks over HTTP: a request, its answer, and each way in which it can fail."""

import functools
import gc
import logging
import math
import socket
import warnings

import attrs
import pytest
import trio

from creche import AgentSpec, call, open_host, say, tool
from creche.errors import ConfigError, ContextOverflowError, ModelError
from creche.messages import AssistantMessage, ImagePart, ReasoningPart, TextPart, ToolCall, ToolMessage, UserMessage
from creche.models import Usage, adapters
from creche.session import AttemptFailed, RetryPlanned
from creche.testing import (
    cut,
    garbage,
    open_mock_provider,
    page,
    silent,
    status,
    think,
    unended,
    until,
)

KEY = "sk-secret-0123456789"
USAGE = Usage(1, input_tokens=100, output_tokens=20, cached_tokens=80)


async def test_an_answer_is_what_was_said(open_mock, ask):
    async with open_mock([say("Hel", "lo", usage=USAGE)]) as (_, model):
        answer = await ask(model)
    assert answer.message().parts == (TextPart("Hello"),)
    assert [delta.text for delta in answer.deltas] == ["Hel", "lo"]
    assert (answer.finished.reason, answer.finished.usage) == ("stop", USAGE)


async def test_calls_come_with_their_ids(open_mock, ask):
    async with open_mock([say("Reading."), call("read", path="a"), call("read", path="b")]) as (_, model):
        message = (await ask(model)).message()
    assert message.text == "Reading."
    assert [(each.name, each.arguments) for each in message.tool_calls] == [
        ("read", '{"path":"a"}'),
        ("read", '{"path":"b"}'),
    ]
    assert len({each.id for each in message.tool_calls}) == 2


@pytest.mark.parametrize("finish", ["stop", "max-tokens", "refusal"])
async def test_reasons_to_finish(finish, open_mock, ask):
    async with open_mock([say("x", finish=finish)]) as (_, model):
        assert (await ask(model)).finished.reason == finish


async def test_the_first_delta_comes_before_the_last_was_sent(open_lead):
    go_on = trio.Event()
    async with open_lead([say("first"), until(go_on), say("last")]) as (_, lead), lead.stream("hi") as deltas:
        texts = []
        async for delta in deltas:
            texts.append(delta.text)
            go_on.set()
    assert texts == ["first", "last"]


# ---------------------------------------------------------------- failures

FAILURES = {
    "bad key": (status(401, "Incorrect API key"), "credential"),
    "unknown model": (status(404, "The model does not exist"), "unknown-model"),
    "refused request": (status(400, "Unknown parameter"), "invalid-request"),
    "overflow": (status(400, "prompt is too long: 300000 tokens"), "context-overflow"),
    "no credit": (status(429, "You exceeded your current quota", kind="insufficient_quota"), "quota"),
    "too many requests": (status(429, "slow down"), "rate-limit"),
    "server error": (status(500, "oops"), "server"),
    "bad gateway": (page("<h1>502</h1>", code=502), "server"),
    "overloaded": (status(529, "Overloaded"), "overloaded"),
    "a page": (page("<h1>Welcome</h1>"), "no-endpoint"),
    "cut at once": (cut(), "transport"),
    "cut in the middle": ([say("half"), cut()], "stream-cut"),
    "no end": ([say("half"), unended()], "stream-cut"),
    "garbage": ([say("half"), garbage("event: x\ndata: {oops\n\n")], "malformed"),
    "not an object": ([garbage("event: x\ndata: [1]\n\n")], "malformed"),
    "bad bytes": ([garbage(b"data: \xff\xfe\n\n")], "malformed"),
    "odd shape": ([garbage('data: {"choices": [5], "type": "content_block_delta", "delta": 5}\n\n')], "malformed"),
}
NOT_RETRIED = {"no-endpoint", "credential", "unknown-model", "invalid-request", "context-overflow", "quota"}


@pytest.mark.parametrize(("answer", "code"), FAILURES.values(), ids=FAILURES)
async def test_a_failure_is_one_error_with_its_code(answer, code, open_mock, ask):
    async with open_mock(answer) as (mock, model):
        with pytest.raises(ModelError) as caught:
            await ask(model)
        await mock.wait_quiet()
    assert caught.value.code == code
    assert caught.value.retryable is (code not in NOT_RETRIED)
    assert str(caught.value).startswith(f"{model.provider}: ")
    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is None
    assert isinstance(caught.value, ContextOverflowError) is (code == "context-overflow")


@pytest.mark.parametrize("answer", [silent(), [say("half"), silent()]], ids=["before the first byte", "in the middle"])
async def test_silence_is_a_timeout(answer, open_mock, ask):
    async with open_mock(answer, silence=0.05) as (mock, model):
        with pytest.raises(ModelError) as caught:
            await ask(model)
        await mock.wait_quiet()
    assert caught.value.code == "timeout"
    assert mock.hung_up == 1


async def test_a_host_that_is_not_there_is_a_transport_error(make_adapter, ask):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        model = make_adapter(f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(ModelError) as caught:
            await ask(model)
    assert (caught.value.code, caught.value.retryable) == ("transport", True)


@pytest.mark.parametrize("asked", [0.001, 7.5])
async def test_what_the_provider_asks_to_wait_is_told(asked, open_mock, ask):
    async with open_mock(status(429, "slow down", retry_after=asked)) as (_, model):
        with pytest.raises(ModelError) as caught:
            await ask(model)
    assert caught.value.retry_after == asked


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({"retry-after-ms": "1500"}, 1.5, 1.5),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0, 0),
        ({"retry-after": "soon"}, None, None),
    ],
)
async def test_a_wait_comes_in_more_than_one_form(headers, least, most, open_mock, ask):
    async with open_mock(status(503, "busy", headers=headers)) as (_, model):
        with pytest.raises(ModelError) as caught:
            await ask(model)
    assert caught.value.retry_after == least == most


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream"
ODD = {
    "an error whose body is cut": (b"HTTP/1.1 500 Oops\r\ncontent-length: 99\r\n\r\nhalf", "server"),
    "an error whose body never ends": (
        b"HTTP/1.1 503 Busy\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbusy\r\n",
        "overloaded",
    ),
    "an error with an absurd date": (
        b"HTTP/1.1 429 Slow\r\nretry-after: Fri, 31 Dec 99999 00:00:00 GMT\r\ncontent-length: 0\r\n\r\n",
        "rate-limit",
    ),
    "an error that is packed": (
        b"HTTP/1.1 429 Slow\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\n\xff\xff",
        "rate-limit",
    ),
    "a packed answer": (HEAD + b"\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\n\xff\xff", "malformed"),
    "a place that has moved": (
        b"HTTP/1.1 307 Moved\r\nlocation: http://127.0.0.1:9/else\r\ncontent-length: 0\r\n\r\n",
        "no-endpoint",
    ),
    "nothing of HTTP": (b"hello\r\n\r\n", "transport"),
    "another character set": (HEAD + b"; charset=idna\r\nconnection: close\r\n\r\ndata: \xff\n\n", "malformed"),
}


@pytest.mark.parametrize("name", ODD)
async def test_odd_servers_are_one_error(name, make_adapter, ask, monkeypatch):
    answer, code = ODD[name]
    monkeypatch.setattr("creche.models.adapters._http._ERROR_SECONDS", 0.05)
    served = []

    async def serve(stream):
        served.append(await stream.receive_some(65536))
        await stream.send_all(answer)
        if "never ends" not in name:
            await stream.send_eof()
        async for _ in stream:
            pass

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(functools.partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        model = make_adapter(f"http://127.0.0.1:{listener.socket.getsockname()[1]}", silence=5)
        with pytest.raises(ModelError) as caught:
            await ask(model)
        nursery.cancel_scope.cancel()
    assert caught.value.code == code, str(caught.value)
    assert len(served) == 1


async def test_a_mark_at_the_beginning_of_the_stream_says_nothing(open_mock, ask, wire):
    ending = {"openai": "data: [DONE]\n\n", "anthropic": ""}[wire]
    async with open_mock([garbage(b"\xef\xbb\xbf"), say("Hello."), garbage(ending)]) as (_, model):
        assert (await ask(model)).message().text == "Hello."


@pytest.mark.parametrize("end", ["\n", "\r\n", " ", "\t"])
async def test_blanks_around_a_key_are_no_part_of_it(end, open_mock, ask):
    async with open_mock([say("ok")], api_key=f"{KEY}{end}") as (mock, model):
        await ask(model)
    assert mock.requests[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("key", ["sk-\u200b123456789", "sk-123\n456789", "sk-\x00123456789", "sk-\ud800123456789"])
async def test_a_key_that_no_header_can_carry_is_refused_and_not_told(key, open_mock, ask):
    async with open_mock([say("ok")], api_key=key) as (mock, model):
        with pytest.raises(ModelError) as caught:
            await ask(model)
    assert caught.value.code == "credential"
    assert str(caught.value).endswith("api_key= has characters that no key has (check the API key in the environment)")
    assert "123" not in str(caught.value)
    assert mock.requests == []


async def test_what_the_sdk_knows_is_not_behind_the_error(open_mock, ask):
    async with open_mock(status(401, f"Incorrect API key: {KEY}"), [say("half"), cut()]) as (_, model):
        for _ in range(2):
            with pytest.raises(ModelError) as caught:
                await ask(model)
            assert caught.value.__cause__ is None
            assert caught.value.__context__ is None


async def test_a_key_that_changes_is_used_from_the_next_request_on(open_lead, wire, monkeypatch):
    name = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}[wire]
    monkeypatch.setenv(name, "sk-old-0123456789")
    async with open_lead(
        [say("a")], status(401, "Wrong key sk-old-0123456789, or sk-new-0123456789"), api_key=None
    ) as (mock, lead):
        await lead.ask("hi")
        monkeypatch.setenv(name, "sk-new-0123456789")
        with pytest.raises(ModelError) as caught:
            await lead.ask("hi")
    assert [request.headers["authorization"] for request in mock.requests] == [
        "Bearer sk-old-0123456789",
        "Bearer sk-new-0123456789",
    ]
    assert "Wrong key ***, or ***" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"limit": 0}, "limit: an adapter needs room for at least one request at once, not 0"),
        ({"silence": -1}, "silence: a number of seconds above zero, not -1"),
        ({"silence": math.nan}, "silence: a number of seconds above zero, not nan"),
        ({"provider": "a:b"}, "provider: 'a:b' cannot be the name of a provider: a text without a colon"),
        ({"cards": {"m": 1000}}, "cards['m']: a ModelCard, not 1000"),
    ],
)
def test_what_could_not_work_is_refused_when_the_adapter_is_made(options, sentence, make_adapter):
    with pytest.raises(ConfigError) as caught:
        make_adapter("http://127.0.0.1:9", **options)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://x", "http://", "http://[::1", "http://x:port", "x y"])
def test_an_address_is_checked_when_the_adapter_is_made(url, make_adapter):
    with pytest.raises(ConfigError, match=r"^base_url: "):
        make_adapter(url)


async def test_an_address_in_the_environment_is_checked_too(make_adapter, wire, ask, monkeypatch):
    monkeypatch.setenv({"openai": "OPENAI_BASE_URL", "anthropic": "ANTHROPIC_BASE_URL"}[wire], "nowhere")
    kind = {"openai": adapters.OpenAIModel, "anthropic": adapters.AnthropicModel}[wire]
    with pytest.raises(ConfigError, match=r"is 'nowhere', which is no address"):
        await ask(kind("m", api_key=KEY))


async def test_a_missing_key_is_told_before_anything_is_sent(make_adapter, wire, monkeypatch):
    name = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}[wire]
    monkeypatch.delenv(name, raising=False)
    model = make_adapter(
        {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}[wire], api_key=None
    )
    async with open_host(model=model) as host, host.open_agent(AgentSpec("lead")) as lead:
        with pytest.raises(ModelError) as caught:
            await lead.ask("hi")
    assert str(caught.value) == (f"{wire}: there is no API key: set {name}")


async def test_a_key_that_a_server_repeats_is_not_told(open_mock, ask, caplog):
    caplog.set_level(logging.DEBUG)
    async with open_mock(status(401, f"Incorrect API key: {KEY}")) as (_, model):
        with pytest.raises(ModelError) as caught:
            await ask(model)
    assert "Incorrect API key: ***" in str(caught.value)
    assert KEY not in caplog.text
    assert KEY not in repr(model)


async def test_a_placeholder_for_a_key_takes_no_words_apart(open_mock, ask):
    async with open_mock(status(401, "no model at all"), api_key="a") as (_, model):
        with pytest.raises(ModelError) as caught:
            await ask(model)
    assert "no model at all" in str(caught.value)


@pytest.mark.parametrize("nothing", [[say()], [think("hm")], [say(" ")]], ids=["nothing", "reasoning", "a blank"])
async def test_an_empty_answer_is_tried_again(nothing, open_lead):
    async with open_lead(nothing, [say("Yes.")]) as (_, lead):
        assert (await lead.ask("hi")).text == "Yes."
        (failed,) = lead.session.records("assistant/attempt")
    assert failed.data.code == "empty-response"


# ---------------------------------------------------------------- in an agent


@tool(inline=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_retries_are_in_the_log_and_what_failed_leaves_no_trace(open_lead):
    script = [status(529, "Overloaded"), [say("half"), cut()], [say("Done.", usage=USAGE)]]
    async with open_lead(*script) as (mock, lead):
        reply = await lead.ask("hi")
        facts = [record.data for record in lead.session.records()]
    assert reply.text == "Done."
    assert reply.usage.requests == 3
    assert [fact.code for fact in facts if isinstance(fact, AttemptFailed)] == ["overloaded", "stream-cut"]
    assert [fact.attempt for fact in facts if isinstance(fact, RetryPlanned)] == [1, 2]
    assert mock.requests[0].body == mock.requests[2].body


async def test_a_call_and_its_result_go_round(open_lead):
    async with open_lead([call("add", a=2, b=3)], [say("5")], tools=[add]) as (mock, lead):
        assert (await lead.ask("2+3?")).text == "5"
    assert mock.requests[1].body.startswith(mock.requests[0].body.removesuffix(b"]}"))


async def test_what_no_server_would_take_does_not_stay_in_the_way(open_mock, ask):
    history = [
        UserMessage("\ud800"),
        AssistantMessage([ReasoningPart("hm"), ToolCall("c 1", name="functions.read", arguments="{oops")]),
        ToolMessage("c 1", name="functions.read", parts="", is_error=True),
        AssistantMessage([ReasoningPart("only")]),
        UserMessage([ImagePart("QUJD", media_type="image/png"), TextPart("")]),
    ]
    async with open_mock([say("ok")]) as (mock, model):
        await ask(model, *history)
    assert b"oops" in mock.requests[0].body
    mock.requests[0].body.decode()


async def test_an_answer_is_held_to_a_class(open_lead):
    @attrs.frozen
    class Verdict:
        ok: bool

    async with open_lead([say('{"ok": true}')]) as (mock, lead):
        assert (await lead.ask("Well?", output=Verdict)).output == Verdict(ok=True)
    assert b'"required":["ok"]' in mock.requests[0].body


# ---------------------------------------------------------------- cancellation, connections, load


@pytest.mark.parametrize("answer", [silent(), [say("half"), silent()]], ids=["before the first byte", "in the middle"])
async def test_a_cancelled_turn_closes_its_connection(answer, open_lead):
    async with open_lead(answer, [say("on")]) as (mock, lead):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lead.ask, "hi")
            await mock.wait_requests(1)
            nursery.cancel_scope.cancel()
        await mock.wait_quiet()
        assert mock.hung_up == 1
        assert (await lead.ask("go on")).text == "on"


async def test_connections_are_kept_until_the_host_ends(open_mock):
    async with open_mock([say("a")], [say("b")], [say("c")]) as (mock, model):
        for connections in (1, 2):
            async with open_host(model=model) as host:
                for _ in range(3 - connections):
                    async with host.open_agent(AgentSpec("lead")) as lead:
                        await lead.ask("hi")
            assert mock.connections == connections


async def test_connections_end_with_the_host(open_mock):
    async with open_mock([say("a")]) as (_, model):
        async with open_host(model=model) as host, host.open_agent(AgentSpec("lead")) as lead:
            await lead.ask("hi")
            assert len(model._connection._clients) == 1
        assert model._connection._clients == {}


def test_an_adapter_serves_one_run_after_the_other(make_adapter):
    async def main():
        async with open_mock_provider([[say("x")]]) as mock:
            model = models[0] if models else make_adapter(mock)
            models[:] = [model]
            url = mock.openai_url if model.provider == "openai" else mock.anthropic_url
            model._endpoint = model._connection._endpoint = attrs.evolve(model._endpoint, base_url=url)
            async with open_host(model=model) as host, host.open_agent(AgentSpec("lead")) as lead:
                return (await lead.ask("hi")).text

    models = []
    assert [trio.run(main), trio.run(main)] == ["x", "x"]


async def test_200_streams_at_once_keep_to_the_limit(open_mock):
    full = trio.Event()

    def answer(request):
        if mock.streaming == 20:
            full.set()
        return [say("one ", "two "), until(full), say("three ", "four ", "five")]

    async with open_mock(answer, limit=20) as (mock, model), open_host(model=model) as host:

        async def one(number):
            async with host.open_agent(AgentSpec(f"a{number}")) as agent:
                texts.append((await agent.ask("Count.")).text)

        texts = []
        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(one, number)
    assert texts == ["one two three four five"] * 200
    assert (len(mock.requests), mock.most_streaming) == (200, 20)


def test_no_generator_is_left_unfinished(make_adapter, ask):
    """Rule: streams are drained or unwound, so trio finds no async generator to complain of."""

    async def main():
        for answer, _ in FAILURES.values():
            async with open_mock_provider([answer, [say("ok")]]) as mock:
                model = make_adapter(mock)
                async with model.opened():
                    with pytest.raises(ModelError):
                        await ask(model)
                    await ask(model)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        unraisable = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.unraisablehook", unraisable.append)
            trio.run(main)
            gc.collect()
    assert unraisable == []

"""What only the adapter of Anthropic's messages does; what it shares with the others is in `test_both_wires`."""

from contextlib import asynccontextmanager

import attrs
import pytest

from creche import AgentSpec, Section, call, open_host, say, tool
from creche.errors import ModelError
from creche.messages import ReasoningPart, TextPart
from creche.models import ModelOptions, RetryPolicy, Settings, Usage, adapters
from creche.models.adapters import PROVIDER_FACTORIES, AnthropicModel, ModelCard
from creche.testing import check_log, open_mock_provider, raw, status, think

KEY = "sk-ant-0123456789"
QUICK = RetryPolicy(2, first_delay=0.001, longest_delay=0.002)
ENVIRONMENT = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_CUSTOM_HEADERS",
    "ANTHROPIC_PROFILE",
)


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)


def adapter(mock, model="claude-sonnet-5-5", **options):
    return AnthropicModel(model, base_url=mock.anthropic_url, **{"api_key": KEY, "retry": QUICK, **options})


@asynccontextmanager
async def open_agent(*script, spec=AgentSpec("lead")):  # noqa: B008 - it is a value
    """Open an agent that asks a mock provider; yield the provider, the host and the agent."""
    async with (
        open_mock_provider(script) as mock,
        open_host(model=adapter(mock)) as host,
        host.open_agent(spec) as lead,
    ):
        yield mock, host, lead


@tool(inline=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# ---------------------------------------------------------------- what is known of a call


def test_every_host_has_it():
    model = PROVIDER_FACTORIES["anthropic"]()
    assert isinstance(model, adapters.AnthropicModel)
    assert (model.provider, model.model, model.limiter.total_tokens) == ("anthropic", "claude-sonnet-5-5", 20)


@pytest.mark.parametrize(
    ("name", "given", "longest", "defaults"),
    [
        ("claude-opus-4-5", None, 64_000, ("max_tokens",)),
        ("other", None, 8_192, ("max_tokens",)),
        ("other", 100, 100, ()),
    ],
)
async def test_the_longest_answer_is_filled_in(name, given, longest, defaults):
    settings = Settings("anthropic", model=name, options=ModelOptions("high", max_tokens=given))
    prepared = await AnthropicModel(api_key=KEY).prepare(settings)
    assert prepared.settings.options == ModelOptions("high", max_tokens=longest)
    assert prepared.defaults == defaults


async def test_what_is_known_of_a_model_is_told():
    model = AnthropicModel(api_key=KEY, cards={"mine-*": ModelCard(1_000, max_tokens=10)}, retry=QUICK)
    known = await model.prepare(Settings("anthropic", model="claude-sonnet-5-5"))
    assert known.capabilities.system_prompt_update == "in-history"
    assert known.retry is QUICK
    mine = await model.prepare(Settings("anthropic", model="mine-1"))
    assert (mine.context_window, mine.settings.options.max_tokens) == (1_000, 10)


# ---------------------------------------------------------------- keys


async def test_the_key_and_nothing_else_of_the_environment_is_sent(ask, monkeypatch):
    """Rule: a key that was given is the only credential that goes out."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "other-key")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "other-token")
    monkeypatch.setenv(
        "ANTHROPIC_CUSTOM_HEADERS", "authorization: Bearer other-header\nX-API-Key: other-header\nX-Team: blue"
    )
    async with open_mock_provider([say("hi")]) as mock:
        await ask(adapter(mock))
    (request,) = mock.requests
    assert request.path == "/v1/messages"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["x-team"] == "blue"
    assert request.headers["anthropic-version"]
    assert "other" not in repr(dict(request.headers))


async def test_the_key_and_the_url_come_from_the_environment(ask, monkeypatch):
    async with open_mock_provider([say("hi")]) as mock:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", mock.anthropic_url)
        monkeypatch.setenv("MY_KEY", KEY)
        await ask(AnthropicModel(key_env="MY_KEY"))
    assert mock.requests[0].headers["authorization"] == f"Bearer {KEY}"


async def test_a_server_of_ones_own_wants_no_key(ask):
    async with open_mock_provider([say("hi")]) as mock:
        assert (await ask(adapter(mock, api_key=None))).message().text == "hi"
    assert mock.requests[0].headers["authorization"] == "Bearer none"


@pytest.mark.parametrize("options", [{}, {"base_url": "http://127.0.0.1:1", "key_env": "MY_KEY"}])
async def test_a_missing_key_is_told_with_its_variable(options, ask, monkeypatch):
    monkeypatch.delenv("MY_KEY", raising=False)
    with pytest.raises(ModelError) as caught:
        await ask(AnthropicModel(**options))
    name = options.get("key_env", "ANTHROPIC_API_KEY")
    assert str(caught.value) == f"anthropic: there is no API key: set {name}"
    assert caught.value.code == "credential"


# ---------------------------------------------------------------- answers


async def test_thinking_is_kept_and_sent_back():
    usage = Usage(1, input_tokens=100, output_tokens=20, cached_tokens=80, reasoning_tokens=15)
    first = [think("Let me", " see.", signature="seal"), say("Adding."), call("add", a=2, b=3)]
    spec = AgentSpec("lead", tools=[add], options=ModelOptions("high"))
    async with open_agent(first, say("5", usage=usage), spec=spec) as (mock, _, lead):
        reply = await lead.ask("2+3?")
        parts = lead.session.records("assistant/message")[0].data.message.parts
        check_log(lead.session)
    assert reply.text == "5"
    assert (reply.usage.input_tokens, reply.usage.cached_tokens, reply.usage.reasoning_tokens) == (100, 80, 15)
    assert parts[:2] == (ReasoningPart("Let me see.", signature="anthropic:t:seal"), TextPart("Adding."))
    asked, again = [request.json for request in mock.requests]
    assert asked["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert asked["output_config"] == {"effort": "high"}
    assert again["messages"][-2]["content"] == [
        {"type": "thinking", "thinking": "Let me see.", "signature": "seal"},
        {"type": "text", "text": "Adding."},
        {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 2, "b": 3}},
    ]
    assert again["messages"][-1]["content"][0]["content"] == [{"type": "text", "text": "5"}]


async def test_a_redacted_thought_is_kept_and_sent_back():
    redacted = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "redacted_thinking", "data": "secret"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "yes"}},
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    async with open_agent(raw(*redacted), say("yes")) as (mock, _, lead):
        await lead.ask("well?")
        await lead.ask("sure?")
    assert mock.requests[1].json["messages"][1]["content"] == [
        {"type": "redacted_thinking", "data": "secret"},
        {"type": "text", "text": "yes"},
    ]


async def test_a_changed_system_prompt_keeps_what_is_cached():
    """Rule: it stands behind the new user message, where the server takes it, and the bytes before it stay."""
    rules = ["Be brief."]
    async with open_agent(say("a"), say("b"), say("c")) as (mock, host, lead):
        host.registrar.add(Section("rules", order=300, text=lambda context: rules[0]))
        await lead.ask("one")
        rules[0] = "Be verbose."
        await lead.ask("two")
        await lead.ask("three")
        check_log(lead.session)
    first, second, third = mock.requests
    roles = [message["role"] for message in third.json["messages"]]
    assert roles == ["user", "assistant", "user", "system", "assistant", "user"]
    assert "Be verbose." in second.json["messages"][-1]["content"][0]["text"]
    assert first.json["system"] == third.json["system"]
    assert second.body.startswith(first.body.removesuffix(b"]}"))
    assert third.body.startswith(second.body.removesuffix(b"]}"))


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("answer", "code", "asked"),
    [
        (status(404, "model: claude-9"), "unknown-model", None),
        (status(413, "too large"), "context-overflow", None),
        (status(429, "slow down", retry_after=3), "rate-limit", 3.0),
        (status(529, "Overloaded", retry_after=2.5), "overloaded", 2.5),
        (status(400, "Your credit balance is too low", kind="invalid_request_error"), "quota", None),
    ],
)
async def test_a_status_is_one_failure_with_its_request(answer, code, asked, ask):
    async with open_mock_provider([answer]) as mock:
        with pytest.raises(ModelError) as caught:
            await ask(adapter(mock))
    assert (caught.value.code, caught.value.retry_after) == (code, asked)
    assert f"{answer.message} [HTTP {answer.code}, request req_1]" in str(caught.value)


async def test_an_error_in_the_middle_of_an_answer_is_tried_again():
    failing = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 7}}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "half"}},
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    ]
    async with open_agent(raw(*failing), say("whole")) as (_, _, lead):
        reply = await lead.ask("hi")
        failed = lead.session.records("assistant/attempt")[0].data
    assert reply.text == "whole"
    assert reply.usage.requests == 2
    assert (failed.code, failed.usage.input_tokens) == ("overloaded", 7)


async def test_a_refusal_is_an_answer(ask):
    async with open_mock_provider([[say("I will not."), call("add", a=1, b=2), say(finish="refusal")]]) as mock:
        answer = await ask(adapter(mock))
    assert answer.finished.reason == "refusal"
    assert answer.message().parts == (TextPart("I will not."),)


async def test_an_answer_that_the_wire_cannot_describe_is_refused_with_what_to_do():
    @attrs.frozen
    class Counts:
        words: dict[str, int]

    async with open_agent(say("{}")) as (mock, _, agent):
        with pytest.raises(ModelError) as caught:
            await agent.ask("Count.", output=Counts)
        assert str(caught.value) == (
            "anthropic: output=: words is an object with free keys; use a list of objects with a key and a value "
            "(the provider's sentence says what it refused)"
        )
        assert caught.value.retryable is False
        assert mock.requests == []

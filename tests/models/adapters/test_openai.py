"""What only the adapter of chat completions does."""

import json

import pytest

from creche import AgentSpec, ModelError, call, open_host, say, tool
from creche.messages import ReasoningPart
from creche.models import Capabilities, Settings
from creche.models.adapters import ModelCard, OpenAIModel
from creche.testing import open_mock_provider, raw, think

NO_KEYS = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "DEEPSEEK_API_KEY")


@pytest.fixture(autouse=True)
def no_keys(monkeypatch):
    for name in NO_KEYS:
        monkeypatch.delenv(name, raising=False)


@tool(inline=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def run(mock, *said, model=None, **spec):
    model = model or OpenAIModel("m", base_url=mock.openai_url)
    async with open_host(model=model) as host, host.open_agent(AgentSpec("lead", **spec)) as lead:
        replies = [await lead.ask(text) for text in said]
        return lead, replies


async def test_a_server_of_ones_own_needs_no_key():
    async with open_mock_provider([[say("hello")]]) as mock:
        await run(mock, "hi")
    assert mock.requests[0].headers["authorization"] == "Bearer none"


async def test_the_environment_has_the_key_and_the_address(monkeypatch):
    async with open_mock_provider([[say("hello")]]) as mock:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-environment")
        monkeypatch.setenv("OPENAI_BASE_URL", mock.openai_url)
        async with open_host(model="openai:gpt-5") as host, host.open_agent(AgentSpec("lead")) as lead:
            assert (await lead.ask("hi")).text == "hello"
    assert mock.requests[0].headers["authorization"] == "Bearer sk-of-the-environment"
    assert mock.requests[0].json["model"] == "gpt-5"


@pytest.mark.parametrize(
    ("model", "name"), [("openai:gpt-5", "OPENAI_API_KEY"), ("deepseek:deepseek-chat", "DEEPSEEK_API_KEY")]
)
async def test_without_a_key_the_sentence_says_which_is_missing(model, name):
    async with open_host(model=model) as host, host.open_agent(AgentSpec("lead")) as lead:
        with pytest.raises(ModelError) as caught:
            await lead.ask("hi")
        assert (caught.value.code, caught.value.retryable) == ("credential", False)
        assert f"set {name}" in str(caught.value)


async def test_openai_s_key_does_not_go_to_another_provider(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-environment")
    async with open_mock_provider([[say("hello")]]) as mock:
        monkeypatch.setenv("MINE_KEY", "sk-mine")
        await run(mock, "hi", model=OpenAIModel("m", provider="mine", base_url=mock.openai_url, key_env="MINE_KEY"))
    assert mock.requests[0].headers["authorization"] == "Bearer sk-mine"


async def test_one_id_in_two_answers_becomes_two():
    def again(request):
        if len(request.json["messages"]) > 5:
            return [say("done")]
        function = {"name": "add", "arguments": '{"a":1,"b":2}'}
        delta = {"tool_calls": [{"index": 0, "id": "call_0", "function": function}]}
        return raw({"choices": [{"delta": delta, "finish_reason": "tool_calls"}]}, "[DONE]")

    async with open_mock_provider(again) as mock:
        lead, _ = await run(mock, "Add.", tools=[add])
    assert [message.call_id for message in lead.session.tool_results()] == ["call_0", "call-1"]
    sent = [each["tool_call_id"] for each in mock.requests[-1].json["messages"] if each["role"] == "tool"]
    assert sent == ["call_0", "call-1"]


async def test_ids_that_a_fork_inherits_are_taken_too():
    from creche import fork

    def again(request):
        if request.json["messages"][-1]["role"] == "tool":
            return [say("done")]
        delta = {"tool_calls": [{"index": 0, "function": {"name": "add", "arguments": '{"a":1,"b":2}'}}]}
        return raw({"choices": [{"delta": delta, "finish_reason": "tool_calls"}]}, "[DONE]")

    async with open_mock_provider(again) as mock:
        model = OpenAIModel("m", base_url=mock.openai_url)
        async with open_host(model=model) as host, host.open_agent(AgentSpec("lead", tools=[add])) as lead:
            await lead.ask("Add.")
            await fork(lead, "Add again.")
            await lead.ask("And again.")
            assert [message.call_id for message in lead.session.tool_results()] == ["call-0", "call-1"]
    forked = mock.requests[3].json["messages"]
    assert [each["tool_call_id"] for each in forked if each["role"] == "tool"] == ["call-0", "call-1"]


async def test_a_provider_that_wants_its_reasoning_back_gets_it():
    async with open_mock_provider([[think("h", "m"), call("add", a=1, b=2)], [say("3")], [say("yes")]]) as mock:
        model = OpenAIModel("m", base_url=mock.openai_url, replays_reasoning=True)
        lead, _ = await run(mock, "1+2?", "Sure?", model=model, tools=[add])
    answers = [each for each in mock.requests[2].json["messages"] if each["role"] == "assistant"]
    assert [each.get("reasoning_content") for each in answers] == ["hm", None]
    assert lead.session.records("assistant/message")[0].data.message.parts[0] == ReasoningPart(
        "hm", signature="openai:"
    )


async def test_the_card_of_a_model_can_be_given():
    cards = {"mine*": ModelCard(4096, capabilities=Capabilities(images=True))}
    model = OpenAIModel("mine-7b", base_url="http://127.0.0.1:1/v1", cards=cards)
    prepared = await model.prepare(Settings("openai", model="mine-7b"))
    assert (prepared.context_window, prepared.capabilities.images) == (4096, True)
    assert (await model.prepare(Settings("openai", model="gpt-4o"))).context_window == 128_000


async def test_a_package_that_is_missing_is_told_with_its_cure(monkeypatch):
    from creche.errors import ConfigError

    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(ConfigError) as caught:
        await OpenAIModel("m", base_url="http://127.0.0.1:1/v1").prepare(Settings("openai", model="m"))
    assert str(caught.value) == "model: 'openai' needs the package 'openai'; run: pip install 'creche[openai]'"


async def test_a_server_that_goes_on_after_the_end_is_not_waited_for():
    from creche.testing import silent

    async with open_mock_provider(
        [[raw(json.dumps({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]}), "[DONE]"), silent()]]
    ) as mock:
        _, (reply,) = await run(mock, "hi")
        await mock.wait_quiet()
    assert reply.text == "x"
    assert mock.hung_up == 1

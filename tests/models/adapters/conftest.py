"""Both adapters against the mock provider."""

from contextlib import asynccontextmanager

import pytest

from creche import AgentSpec, open_host
from creche.messages import UserMessage
from creche.models import Assembler, ModelRequest, RequestHead, RetryPolicy, Settings, adapters
from creche.testing import check_log, open_mock_provider

QUICK = RetryPolicy(2, first_delay=0.001, longest_delay=0.002)


@pytest.fixture(params=["openai", "anthropic"])
def wire(request):
    """Return the name of a wire."""
    return request.param


@pytest.fixture
def make_adapter(wire):
    """Return what makes an adapter of the wire that asks a mock provider, or a URL."""

    def make(mock, **options):
        options = {"api_key": "sk-secret-0123456789", "retry": QUICK, **options}
        if wire == "openai":
            return adapters.OpenAIModel("m", base_url=mock if isinstance(mock, str) else mock.openai_url, **options)
        return adapters.AnthropicModel("m", base_url=mock if isinstance(mock, str) else mock.anthropic_url, **options)

    return make


@pytest.fixture
def open_mock(make_adapter):
    """Return what opens a mock provider with a script, and an adapter that asks it."""

    @asynccontextmanager
    async def opened(*script, **options):
        async with open_mock_provider(script[0] if callable(script[0]) else script) as mock:
            yield mock, make_adapter(mock, **options)

    return opened


@pytest.fixture
def open_lead(open_mock):
    """Return what opens a mock provider with a script and an agent that asks it; its log is checked at the end."""

    @asynccontextmanager
    async def opened(*script, tools=(), **options):
        async with (
            open_mock(*script, **options) as (mock, model),
            open_host(model=model) as host,
            host.open_agent(AgentSpec("lead", tools=tools)) as lead,
        ):
            yield mock, lead
            check_log(lead.session)

    return opened


@pytest.fixture
def ask():
    """Return what asks a model one thing and adds the answer up."""

    async def asked(model, *messages, tools=()):
        settings = (await model.prepare(Settings(model.provider, model=model.model))).settings
        request = ModelRequest(RequestHead(settings, tools=tools), messages=messages or [UserMessage("hi")])
        answer = Assembler()
        async with model.stream(request) as chunks:
            async for chunk in chunks:
                answer.feed(chunk)
        return answer

    return asked

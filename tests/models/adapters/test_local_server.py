"""The adapter of chat completions against llama.cpp's own HTTP server, with the weights of SmolLM2."""

import importlib.util

import attrs
import pytest
import trio

from creche import AgentSpec, open_host, spawn
from creche.errors import ContextOverflowError, ModelError
from creche.models import ModelOptions, TextDelta
from creche.models.adapters import OpenAIModel
from creche.models.adapters._local_weights import find_weights
from creche.testing import check_log, check_model

pytestmark = pytest.mark.local_model

BRIEF = ModelOptions(temperature=0, max_tokens=24)


@pytest.fixture(scope="module")
def url():
    """Start llama.cpp's server with three slots; it ends with the module."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("the package 'xllamacpp' is not installed")
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    try:
        parameters.model.path = str(find_weights("smollm2", "local"))
    except ModelError as error:
        pytest.skip(str(error))
    parameters.n_parallel = 3
    parameters.n_ctx = 3 * 512
    parameters.n_threads_http = 4
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.ui = parameters.warmup = False
    parameters.verbosity = -1
    server = xllamacpp.Server(parameters)
    yield f"{server.listening_address}/v1"
    del server


@pytest.fixture
def model(url):
    return OpenAIModel("smollm2", provider="llamacpp", base_url=url, limit=3)


async def test_it_keeps_the_contract_of_an_adapter(model):
    await check_model(model, streams=3)


async def test_a_lead_and_two_subagents_stream_at_once(model):
    streaming, together = set(), []

    def note(event):
        streaming.add(event.agent_path)
        together.append(len(streaming))

    from creche.agent import DeltaStreamed

    async with open_host(model=model) as host:
        spec = AgentSpec("lead", persona="You are a helpful assistant.", options=BRIEF)
        async with host.open_agent(spec) as lead:
            host.registrar.on(DeltaStreamed, note)
            results = {}

            async def child(name, task):
                results[name] = await spawn(lead, task, name=name)
                streaming.discard(f"lead/{name}")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(child, "france", "What is the capital of France?")
                nursery.start_soon(child, "italy", "What is the capital of Italy?")
                reply = await lead.ask("Count from one to twenty.")
                streaming.discard("lead")
            check_log(lead.session)
    assert max(together) == 3
    assert reply.text.strip()
    assert sorted(results) == ["france", "italy"]
    assert {result.outcome for result in results.values()} <= {"done", "truncated"}
    assert reply.usage.input_tokens > 10


async def test_a_cancelled_stream_frees_its_slot(model):
    async with open_host(model=model) as host:
        spec = AgentSpec("lead", persona="You are a helpful assistant.", options=attrs.evolve(BRIEF, max_tokens=400))
        async with host.open_agent(spec) as lead:
            for _ in range(6):  # twice as many as there are slots
                async with lead.stream("Count to one hundred.") as deltas:
                    async for delta in deltas:
                        assert isinstance(delta, TextDelta)
                        break
            with trio.fail_after(30):
                async with host.open_agent(AgentSpec("other", options=attrs.evolve(BRIEF, max_tokens=2))) as other:
                    assert (await other.ask("Hello.")).text
            check_log(lead.session)


async def test_an_answer_is_held_to_a_class(model):
    @attrs.frozen
    class Verdict:
        ok: bool

    async with open_host(model=model) as host:
        options = attrs.evolve(BRIEF, max_tokens=100)
        spec = AgentSpec("lead", persona="You are a helpful assistant.", options=options)
        async with host.open_agent(spec) as lead:
            reply = await lead.ask("Is Paris in France?", output=Verdict)
            assert isinstance(reply.output, Verdict)


async def test_an_overflow_is_one_error(model):
    async with open_host(model=model) as host, host.open_agent(AgentSpec("lead")) as lead:
        with pytest.raises(ContextOverflowError):
            await lead.ask("word " * 1000)
        check_log(lead.session)

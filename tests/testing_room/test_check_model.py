"""The check for those who write an adapter: ours pass it, and each broken rule is named."""

from contextlib import asynccontextmanager, suppress

import attrs
import pytest
import trio

from creche import FunctionModel, say
from creche.models import Finished, ModelOptions, TextDelta, Usage
from creche.models.adapters import AnthropicModel, OpenAIModel
from creche.testing import check_model, open_mock_provider


def hello(request):
    return [say("Hel", "lo.")]


async def test_the_fake_models_pass():
    await check_model(FunctionModel(hello))


async def test_a_limit_is_kept_to():
    await check_model(FunctionModel(hello, limit=1), streams=5)


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
async def test_the_adapters_pass(wire):
    async with open_mock_provider(hello) as mock:
        if wire == "openai":
            await check_model(OpenAIModel("m", base_url=mock.openai_url))
        else:
            await check_model(AnthropicModel("m", base_url=mock.anthropic_url))
        await mock.wait_quiet()
    assert len(mock.requests) == 8


class Broken:
    """A model that streams what it is given."""

    provider = model = "broken"
    limiter = None

    def __init__(self, *chunks):
        self._chunks = chunks or (TextDelta("Hello."), Finished())
        self._inner = FunctionModel(hello)

    async def prepare(self, settings, /):
        return await self._inner.prepare(settings)

    @asynccontextmanager
    async def stream(self, request, /):
        async def chunks():
            for chunk in self._chunks:
                await trio.lowlevel.checkpoint()
                yield chunk

        yield chunks()


@pytest.mark.parametrize(
    ("chunks", "sentence"),
    [
        ([TextDelta("Hello.")], "the last chunk is Finished, not TextDelta(text='Hello.')"),
        ([Finished()], "the model was asked for text and gave none"),
        ([TextDelta("Hello."), Finished(usage=Usage(2))], "an answer costs one request, not 2"),
    ],
)
async def test_what_is_wrong_with_an_answer_is_told(chunks, sentence):
    with pytest.raises(AssertionError, match=sentence.replace("(", r"\(").replace(")", r"\)")):
        await check_model(Broken(*chunks))


async def test_settings_that_are_changed_are_told():
    class Changing(Broken):
        async def prepare(self, settings, /):
            prepared = await super().prepare(settings)
            return attrs.evolve(prepared, settings=attrs.evolve(settings, options=ModelOptions(max_tokens=1)))

    with pytest.raises(AssertionError, match="fills in what is not set"):
        await check_model(Changing())


async def test_a_swallowed_cancellation_is_told():
    class Deaf(Broken):
        @asynccontextmanager
        async def stream(self, request, /):
            async with super().stream(request) as chunks:
                with suppress(trio.Cancelled):
                    yield chunks

    with pytest.raises(AssertionError, match="a cancellation while a block"):
        await check_model(Deaf())


async def test_what_is_missing_is_told():
    class Bare:
        provider = model = "bare"
        limiter = None

    with pytest.raises(AssertionError, match=r"^a model has prepare; see creche\.models\.Model$"):
        await check_model(Bare())


async def test_a_prepare_that_does_not_wait_is_told():
    class Hasty(Broken):
        def prepare(self, settings, /):
            raise NotImplementedError

    with pytest.raises(AssertionError, match=r"^prepare\(\) is async$"):
        await check_model(Hasty())


async def test_an_error_of_another_kind_is_told():
    class Leaky(Broken):
        @asynccontextmanager
        async def stream(self, request, /):
            raise ConnectionError("boom")
            yield

    with pytest.raises(AssertionError, match=r"is a ModelError, not ConnectionError\('boom'\)$"):
        await check_model(Leaky())

"""What every adapter has to do, as a check for those who write one."""

import inspect
from collections.abc import Sequence

import trio

from creche.errors import CrecheError
from creche.messages import AssistantMessage, SystemMessage, TextPart, UserMessage
from creche.models import (
    Assembler,
    Chunk,
    Finished,
    KeepsOpen,
    Model,
    ModelOptions,
    ModelRequest,
    PreparedCall,
    RequestHead,
    Settings,
)

_HISTORY = (SystemMessage("You are brief."), UserMessage("Say hello."))
_LONGER = (*_HISTORY, AssistantMessage([TextPart("Hello.")]), UserMessage("Say it again."))


async def check_model(model: Model, /, *, streams: int = 2, max_tokens: int = 32) -> None:
    """Ask a model a few short questions and see that it keeps the contract of `creche.models.Model`.

    It makes at most ``streams + 6`` requests and needs the model to answer all of them with text. A limit of the adapter
    is the caller's to hold, so at most its number of streams are open at once here.

    Args:
      model: The adapter, such as one that asks a mock provider.
      streams: How many answers to read at once.
      max_tokens: Longest answer, for a model that costs something.

    Raises:
      AssertionError: It does not, or several answers at once took more than a minute; the message says what was
        expected.
      ModelError: The model failed, which says nothing about the adapter.
    """
    for name in ("provider", "model", "limiter", "prepare", "stream"):
        assert hasattr(model, name), f"a model has {name}; see creche.models.Model"
    assert model.provider, "a model has the name of its provider"
    assert model.model, "a model has a name"
    assert inspect.iscoroutinefunction(model.prepare), "prepare() is async"
    try:
        if isinstance(model, KeepsOpen):
            async with model.opened(), model.opened():
                await _check_open(model, streams, max_tokens)
            await _check_answer(model, await _prepared(model, max_tokens), _HISTORY)  # nobody keeps it open now
        else:
            await _check_open(model, streams, max_tokens)
    except (AssertionError, CrecheError):
        raise
    except Exception as error:
        raise AssertionError(f"what goes wrong in a model is a ModelError, not {error!r}") from error


async def _check_open(model: Model, streams: int, max_tokens: int) -> None:
    prepared = await _prepared(model, max_tokens)
    await _check_answer(model, prepared, _HISTORY)
    await _check_answer(model, prepared, _LONGER)
    await _check_left_early(model, prepared)
    await _check_cancelled(model, prepared)
    most = streams if model.limiter is None else min(streams, int(model.limiter.total_tokens))
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for _ in range(most):
                nursery.start_soon(_check_answer, model, prepared, _HISTORY)


async def _prepared(model: Model, max_tokens: int) -> PreparedCall:
    settings = Settings(model.provider, model=model.model, options=ModelOptions(max_tokens=max_tokens))
    prepared = await model.prepare(settings)
    assert isinstance(prepared, PreparedCall), f"prepare() returns a PreparedCall, not {prepared!r}"
    assert prepared.settings.options.max_tokens == max_tokens, "prepare() fills in what is not set, and changes nothing"
    again = await model.prepare(prepared.settings)
    assert again.settings == prepared.settings, "prepared settings are prepared to themselves"
    return prepared


def _request(
    prepared: PreparedCall, messages: Sequence[SystemMessage | UserMessage | AssistantMessage]
) -> ModelRequest:
    return ModelRequest(RequestHead(prepared.settings, defaults=prepared.defaults), messages=messages)


async def _check_answer(
    model: Model, prepared: PreparedCall, messages: Sequence[SystemMessage | UserMessage | AssistantMessage]
) -> None:
    request = _request(prepared, messages)
    before = request.canonical_bytes()
    answer = Assembler()
    chunks: list[Chunk] = []
    async with model.stream(request) as stream:
        async for chunk in stream:
            chunks.append(chunk)
            answer.feed(chunk)
    assert chunks, "an answer has chunks"
    assert isinstance(chunks[-1], Finished), f"the last chunk is Finished, not {chunks[-1]!r}"
    assert answer.usage.requests == 1, f"an answer costs one request, not {answer.usage.requests}"
    assert answer.message().text.strip(), "the model was asked for text and gave none"
    assert request.canonical_bytes() == before, "a request is not changed"


async def _check_left_early(model: Model, prepared: PreparedCall) -> None:
    async with model.stream(_request(prepared, _HISTORY)) as stream:
        first = await anext(aiter(stream), None)
    assert first is not None, "an answer has chunks"
    await _check_answer(model, prepared, _HISTORY)  # an answer that was left is not in the way of the next


async def _check_cancelled(model: Model, prepared: PreparedCall) -> None:
    with trio.CancelScope() as scope:
        async with model.stream(_request(prepared, _HISTORY)) as stream:
            first = await anext(aiter(stream), None)
            assert first is not None, "an answer has chunks"
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught, "a cancellation while a block of stream() is open comes out of it"

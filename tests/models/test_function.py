"""A model that is a function, and the items that fake models say."""

import functools
import gc
import json

import pytest
import trio
import trio.testing

from creche.errors import ModelError
from creche.messages import TextPart, ToolCall
from creche.models import (
    FAILURES,
    Capabilities,
    Fail,
    Finished,
    FunctionModel,
    RetryPolicy,
    Settings,
    TextDelta,
    ToolCallDelta,
    Usage,
    call,
    fail,
    say,
)


def saying(answer):
    return FunctionModel(lambda request: answer)


# ---------------------------------------------------------------- answers


async def test_a_function_answers_a_request(ask):
    model = FunctionModel(lambda request: [say(f"{request.agent_path}: "), say(request.last_user_text)])
    assert (await ask(model, "hello")).parts == (TextPart("lead: hello"),)


async def test_an_async_function_answers_too(ask):
    async def answer(request):
        await trio.lowlevel.checkpoint()
        return [say("waited")]

    class Callable:
        async def __call__(self, request):
            return say("called")

    assert (await ask(FunctionModel(answer))).text == "waited"
    assert (await ask(FunctionModel(Callable()))).text == "called"
    assert (await ask(FunctionModel(functools.partial(answer)))).text == "waited"


@pytest.mark.parametrize("answer", [say("a"), [say("a")], (say("a"),), iter([say("a")])])
async def test_an_answer_is_an_item_or_a_list_of_them(ask, answer):
    assert (await ask(saying(answer))).text == "a"


async def test_each_piece_is_a_delta_and_the_end_is_last(stream):
    answer = [say("a", "b"), call("read", path="x"), say("c")]
    assert await stream(saying(answer), "one", "two") == [
        TextDelta("a"),
        TextDelta("b"),
        ToolCallDelta(0, id="call-2-0", name="read", arguments='{"path":"x"}'),
        TextDelta("c"),
        Finished("tool-calls"),
    ]


async def test_ids_of_calls_tell_steps_apart_and_are_the_same_in_every_run(ask):
    model = saying([call("a"), call("b")])
    assert [[each.id for each in (await ask(model, *texts)).tool_calls] for texts in ("x", "xyz", "x")] == [
        ["call-1-0", "call-1-1"],
        ["call-3-0", "call-3-1"],
        ["call-1-0", "call-1-1"],
    ]


async def test_the_last_usage_and_reason_that_are_said_count(stream):
    usage = Usage(1, input_tokens=5)
    answer = [say("a", usage=Usage(1), finish="stop"), say(usage=usage, finish="max-tokens"), say("b")]
    assert (await stream(saying(answer)))[-1] == Finished("max-tokens", usage=usage)
    assert await stream(saying([])) == [Finished("stop", usage=Usage(1))]


def test_arguments_of_a_call_are_json():
    made = call("read", path="é", limit=None, name="x")
    assert (made.name, json.loads(made.arguments)) == ("read", {"path": "é", "limit": None, "name": "x"})
    assert made.arguments == '{"path":"é","limit":null,"name":"x"}'
    assert call("read").arguments == "{}"


@pytest.mark.parametrize("piece", [5, None, ["a"], b"a"])
def test_only_texts_are_said(piece):
    with pytest.raises(TypeError) as caught:
        say("a", piece)
    assert str(caught.value) == f"say() takes texts, not {piece!r}"


async def test_a_call_can_be_answered_to_in_a_tool_call(ask):
    assert (await ask(saying(call("read", path="x")), "a")).parts == (
        ToolCall("call-1-0", name="read", arguments='{"path":"x"}'),
    )


# ---------------------------------------------------------------- failures


async def test_a_failure_comes_after_what_was_said_before_it(make_request):
    model = FunctionModel(
        lambda request: [say("a"), fail("down", code="overloaded", retry_after=3), say("b")], provider="p"
    )
    said = []
    async with model.stream(make_request()) as chunks:
        said.append(await anext(chunks))
        with pytest.raises(ModelError) as caught:
            await anext(chunks)
    assert said == [TextDelta("a")]
    error = caught.value
    assert (str(error), error.code, error.provider, error.retry_after) == ("down", "overloaded", "p", 3)


async def test_a_failure_is_another_error_each_time(stream):
    """Rule: an error that is raised remembers where, so one object must not be raised twice."""
    model, errors = saying(fail()), []
    for _ in range(2):
        with pytest.raises(ModelError) as caught:
            await stream(model)
        errors.append(caught.value)
    assert errors[0] is not errors[1]
    assert (str(errors[0]), errors[0].code) == ("the model failed", "server")


@pytest.mark.parametrize("make", [fail, Fail])
def test_a_failure_of_no_known_kind_is_refused_when_it_is_written(make):
    with pytest.raises(ValueError, match="no kind of failure") as caught:
        make("x", code="sever")
    assert str(caught.value) == f"no kind of failure has the code 'sever'; there are {', '.join(FAILURES)}"


async def test_what_the_function_raises_comes_out_as_itself(stream):
    error = ModelError("mine", retryable=True)

    def raises(request):
        raise error

    with pytest.raises(ModelError) as caught:
        await stream(FunctionModel(raises))
    assert caught.value is error


# ---------------------------------------------------------------- nonsense


def nameless(request):
    return None


@pytest.mark.parametrize("answer", [None, 5, "text", b"text", {"say": "a"}, say])
async def test_an_answer_that_is_none_is_refused(stream, answer):
    def answers(request):
        return answer

    with pytest.raises(TypeError) as caught:
        await stream(FunctionModel(answers))
    assert str(caught.value) == (
        f"the model function {answers.__qualname__!r} gave {answer!r}; "
        "expected say(...), call(...), fail(...) or a list of them"
    )


@pytest.mark.parametrize("item", [None, "text", [say("a")], TextDelta("a")])
async def test_an_item_that_is_none_is_refused(stream, item):
    def answers(request):
        return [say("a"), item]

    with pytest.raises(TypeError) as caught:
        await stream(FunctionModel(answers))
    assert str(caught.value) == (
        f"the model function {answers.__qualname__!r} gave {item!r} in its list; expected say(...), call(...) or fail(...)"
    )


async def test_coroutines_in_a_list_are_refused_and_nothing_is_said_of_them_later(stream):
    async def later():
        return say("a")

    with pytest.raises(TypeError, match=r"^the model function .* gave <coroutine object .* in its list; "):
        await stream(FunctionModel(lambda request: [later(), later()]))
    gc.collect()


async def test_an_async_generator_is_no_answer(stream):
    async def streams(request):
        yield say("a")

    with pytest.raises(TypeError, match=r" gave <async_generator object "):
        await stream(FunctionModel(streams))


async def test_a_function_without_a_name_is_shown(stream):
    with pytest.raises(TypeError, match=r"^the model function functools\.partial\(<function nameless "):
        await stream(FunctionModel(functools.partial(nameless)))


@pytest.mark.parametrize("function", [None, [say("a")], "x"])
def test_what_cannot_be_called_is_no_model(function):
    with pytest.raises(TypeError) as caught:
        FunctionModel(function)
    assert str(caught.value) == f"FunctionModel takes a function of the request, not {function!r}"


# ---------------------------------------------------------------- the seam


async def test_it_waits_once_on_entering_and_calls_the_function_then(make_request):
    asked = []
    model = FunctionModel(lambda request: asked.append(request) or [say("a")])
    request = make_request("x")
    opened = model.stream(request)
    assert asked == []
    with trio.testing.assert_checkpoints():
        chunks = await opened.__aenter__()
    assert asked == [request]
    with trio.testing.assert_no_checkpoints():
        assert [chunk async for chunk in chunks] == [TextDelta("a"), Finished()]
        await opened.__aexit__(None, None, None)


async def test_a_stream_that_is_left_is_over(make_request):
    async with saying([say("a", "b"), fail()]).stream(make_request()) as chunks:
        assert await anext(chunks) == TextDelta("a")
    assert [chunk async for chunk in chunks] == []


async def test_a_model_claims_what_it_is_told_to():
    model = FunctionModel(
        nameless,
        provider="p",
        model="m",
        limit=3,
        context_window=100,
        capabilities=Capabilities(images=True),
        retry=RetryPolicy(0),
    )
    settings = Settings("p", model="m")
    prepared = await model.prepare(settings)
    assert (model.provider, model.model, model.limiter.total_tokens) == ("p", "m", 3)
    assert prepared.settings is settings
    assert (prepared.context_window, prepared.capabilities.images, prepared.retry) == (100, True, RetryPolicy(0))
    assert await model.prepare(settings) is prepared
    assert (await model.prepare(Settings("p", model="n"))).settings.model == "n"


async def test_a_model_without_a_limit_has_no_limiter():
    assert FunctionModel(nameless).limiter is None

"""`fallback`: whom an agent asks when its model cannot be had."""

import gc
import weakref

import pytest
import trio

from creche.agent import AgentSpec, BuildRequest, StreamRestarted
from creche.errors import ConfigError, ModelError, NotRegisteredError, PluginError
from creche.host import open_host
from creche.models import FunctionModel, ModelOptions, ModelProvider, RetryPolicy, TextDelta, call, fail, say
from creche.plugins.fallback import fallback
from creche.subagents import delegation, spawn
from creche.testing import assert_no_leaks, check_log
from creche.tools import tool

REFUSED = fail("no such model", code="unknown-model")


def model(provider, *items, retries=2, asked=None, name="m"):
    """A model that says its items one after the other, and its last one for ever."""
    given = list(items)

    def answer(request):
        if asked is not None:
            asked.append((request.agent_path, request.settings))
        return given.pop(0) if len(given) > 1 else given[0]

    return FunctionModel(answer, provider=provider, model=name, retry=RetryPolicy(retries, first_delay=0.25, jitter=0))


@tool
def look() -> str:
    """Look."""
    return "seen"


def routes(agent):
    return [record.data.head.settings.provider for record in agent.session.records() if hasattr(record.data, "head")]


async def test_what_no_retry_mends_falls_back_at_once(autojump_clock):
    first, second = model("a", REFUSED), model("b", say("Here."))
    async with (
        open_host(model=first, plugins=[fallback(second)]) as host,
        host.open_agent(AgentSpec("lead")) as lead,
    ):
        reply = await lead.ask("Hello.")
        assert (reply.text, reply.usage.requests) == ("Here.", 2)
        assert routes(lead) == ["a", "b"]
        check_log(lead.session)
    assert trio.current_time() < 0.25


async def test_retries_are_exhausted_first_and_the_fallback_has_its_own(autojump_clock):
    asked = []
    first, second = model("a", fail(), asked=asked), model("b", fail(), fail(), say("Here."), asked=asked)
    async with (
        open_host(model=first, plugins=[fallback(second)]) as host,
        host.open_agent(AgentSpec("lead")) as lead,
    ):
        begun = trio.current_time()
        assert (await lead.ask("Hello.")).text == "Here."
        assert [settings.provider for _, settings in asked] == ["a", "a", "a", "b", "b", "b"]
        assert trio.current_time() - begun == pytest.approx(0.25 + 0.5 + 0.25 + 0.5)
        check_log(lead.session)


async def test_one_fallback_after_the_other_is_asked_until_the_last_error_comes_out(autojump_clock):
    texts = ("first", "second", "third")
    models = [model(name, fail(text, code="quota")) for name, text in zip("abc", texts, strict=True)]
    async with (
        open_host(model=models[0], plugins=[fallback(*models[1:])]) as host,
        host.open_agent(AgentSpec("lead")) as lead,
    ):
        with pytest.raises(ModelError, match=r"^third$") as raised:
            await lead.ask("Hello.")
        assert raised.value.provider == "c"
        failed = [record.data.error for record in lead.session.records() if hasattr(record.data, "error")]
        assert failed == list(texts)
        check_log(lead.session)


async def test_a_fallback_stays_for_the_turn_and_the_next_turn_begins_with_the_own_model():
    first = model("a", REFUSED, say("Back."))
    second = model("b", [call("look")], say("Seen."))
    async with (
        open_host(model=first, plugins=[fallback(second)]) as host,
        host.open_agent(AgentSpec("lead", tools=[look])) as lead,
    ):
        assert (await lead.ask("Look.")).text == "Seen."
        assert routes(lead) == ["a", "b"]
        assert (await lead.ask("And now?")).text == "Back."
        assert routes(lead) == ["a", "b", "a"]
        check_log(lead.session)


async def test_who_streams_is_told_that_the_answer_begins_anew():
    first, second = model("a", [say("Half"), fail(code="quota")]), model("b", say("Whole."))
    async with (
        open_host(model=first, plugins=[fallback(second)]) as host,
        host.open_agent(AgentSpec("lead")) as lead,
        lead.stream("Hello.") as deltas,
    ):
        told = [delta async for delta in deltas]
    assert told == [TextDelta("Half"), StreamRestarted(1), TextDelta("Whole.")]


async def test_subagents_inherit_it_and_agents_at_work_at_once_do_not_disturb_each_other(autojump_clock):
    """Rule: the state is an agent's and a turn's own."""
    asked = []

    async def answer(request):
        asked.append((request.agent_path, request.settings.provider))
        await trio.sleep(1)
        if request.agent_path == "lead":
            if request.last_tool_text:
                return [say("Both.")]
            return [call("subagent", description=word, prompt=word) for word in ("good", "bad")]
        return fail(code="quota") if request.last_user_text == "bad" else say("Good.")

    first, second = FunctionModel(answer, provider="a"), model("b", say("Mended."))
    async with open_host(model=first, plugins=[delegation(), fallback(second)]) as host:
        with assert_no_leaks(host):
            async with host.open_agent(AgentSpec("lead")) as lead:
                assert (await lead.ask("Go.")).text == "Both."
                assert [result.text for result in lead.session.tool_results()] == ["Good.", "Mended."]
                assert routes(lead) == ["a"]


async def test_a_child_that_is_started_meanwhile_asks_what_its_parent_asks_and_nobody_twice():
    asked = []
    first = model("a", REFUSED, asked=asked)
    second = model("b", [call("subagent", description="x", prompt="x")], REFUSED, say("Done."), asked=asked)
    third = model("c", say("Child."), asked=asked)
    async with (
        open_host(model=first, plugins=[delegation(), fallback(second, third)]) as host,
        host.open_agent(AgentSpec("lead")) as lead,
    ):
        assert (await lead.ask("Go.")).text == "Done."
    assert [(path, settings.provider) for path, settings in asked] == [
        ("lead", "a"),
        ("lead", "b"),
        ("lead/subagent-1", "b"),
        ("lead/subagent-1", "c"),
        ("lead", "b"),
    ]


async def test_texts_and_aliases_are_models_too():
    first, second, third = model("a", REFUSED), model("b", REFUSED), model("c", say("Here."), name="own")
    async with open_host(
        model="strong",
        plugins=[fallback("weak", "last")],
        aliases={"strong": first, "weak": "corporate:tiny", "last": third},
    ) as host:
        host.registrar.add(ModelProvider("corporate", model=second))
        async with host.open_agent(AgentSpec("lead")) as lead:
            assert (await lead.ask("Hello.")).text == "Here."
            named = [
                (data.provider, data.model)
                for data in [record.data for record in lead.session.records()]
                if hasattr(data, "context_window")
            ]
            assert named == [("a", "m"), ("corporate", "tiny"), ("c", "own")]
            assert (await spawn(lead, "Hello.")).text == "Here."


async def test_an_adapter_under_another_name_is_asked_under_that():
    first, second = model("a", REFUSED), model("b", say("Here."))
    async with open_host(model=first, plugins=[fallback("alias")], aliases={"alias": "corp:x"}) as host:
        host.registrar.add(ModelProvider("corp", model=second))
        async with host.open_agent(AgentSpec("lead")) as lead:
            assert (await lead.ask("Hello.")).text == "Here."
            assert routes(lead) == ["a", "corp"]


async def test_another_model_of_the_same_adapter_is_a_fallback():
    def answer(request):
        return say("Small.") if request.settings.model == "small" else REFUSED

    both = FunctionModel(answer, provider="a", model="large")
    async with open_host(model=both, plugins=[fallback("a:small")]) as host:
        host.registrar.add(ModelProvider("a", model=both))
        async with host.open_agent(AgentSpec("lead", options=ModelOptions("high"))) as lead:
            assert (await lead.ask("Hello.")).text == "Small."
            assert lead.session.last_header.head.settings.options.effort == "high"


async def test_options_are_kept_but_for_those_in_the_words_of_another_provider():
    asked = []
    first, second = model("a", REFUSED, asked=asked), model("b", say("Here."), asked=asked)
    options = ModelOptions("high", max_tokens=7, temperature=0.5, stop=("x",))
    async with (
        open_host(model=first, plugins=[fallback(second)]) as host,
        host.open_agent(AgentSpec("lead", options=options)) as lead,
    ):
        await lead.ask("Hello.")
    assert asked[0][1].options == options
    assert asked[1][1].options == ModelOptions(max_tokens=7, temperature=0.5, stop=("x",))


async def test_what_a_wrapper_below_it_chose_falls_back_as_well():
    first, other, second = model("a", say("Never.")), model("o", REFUSED), model("b", say("Here."))

    async def choose(event, go_on):
        await go_on()
        return type(event.settings)("o", model="x")

    async with open_host(model=first, plugins=[fallback(second)]) as host:
        host.registrar.add(ModelProvider("o", model=other))
        async with host.open_agent(AgentSpec("lead")) as lead:
            host.registrar.at(lead.scope).wrap(BuildRequest, choose)
            assert (await lead.ask("Hello.")).text == "Here."
            assert routes(lead) == ["o", "b"]


async def test_a_model_that_is_renamed_by_its_adapter_is_given_up_once():
    """Rule: every model has its attempts once a turn, so there is an end."""

    class Renaming:
        provider, model, limiter = "b", "latest", None

        async def prepare(self, settings, /):
            prepared = await inner.prepare(settings)
            return type(prepared)(type(settings)("b", model="dated"), retry=RetryPolicy(0))

        def stream(self, request, /):
            return inner.stream(request)

    inner = model("b", REFUSED)
    async with (
        open_host(model=model("a", REFUSED), plugins=[fallback(Renaming())]) as host,
        host.open_agent(AgentSpec("lead")) as lead,
    ):
        with pytest.raises(ModelError):
            await lead.ask("Hello.")
        assert routes(lead) == ["a", "b"]


async def test_of_two_the_nearer_one_is_used_up_first():
    near, far = model("b", REFUSED), model("c", say("Far."))
    async with (
        open_host(model=model("a", REFUSED), plugins=[fallback(far)]) as host,
        host.open_agent(AgentSpec("lead", setup=[fallback(near)])) as lead,
    ):
        assert (await lead.ask("Hello.")).text == "Far."
        assert routes(lead) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("name", "error", "sentence"),
    [
        ("nobody:x", NotRegisteredError, "no model provider 'nobody' is registered"),
        (
            "plain",
            ConfigError,
            "model: 'plain' is not of the form 'provider:model' and no alias; providers: anthropic, deepseek, local, ollama, openai, openrouter",
        ),
    ],
)
async def test_a_wrong_name_is_told_at_the_first_request(name, error, sentence):
    """Rule: not in the middle of an outage."""
    async with (
        open_host(model=model("a", say("Hello.")), plugins=[fallback(name)]) as host,
        host.open_agent(AgentSpec("lead")) as lead,
    ):
        with pytest.raises(error) as raised:
            await lead.ask("Hello.")
        assert str(raised.value).startswith(sentence)


@pytest.mark.parametrize(("own", "others"), [("a", ["a"]), ("a", ["b", "b"]), ("a", ["b:m", "b"]), ("a", ["b", "b:m"])])
async def test_two_adapters_of_one_name_cannot_be_told_apart(own, others):
    """Rule: neither of them is asked in the place of the other."""
    fallbacks = [each if ":" in each else model(each, say("Other."), name="other") for each in others]
    async with open_host(model=model(own, say("Hello.")), plugins=[fallback(*fallbacks)]) as host:
        if any(":" in each for each in others):
            host.registrar.add(ModelProvider("b", model=model("b", say("B."))))
        async with host.open_agent(AgentSpec("lead")) as lead:
            with pytest.raises(ConfigError) as raised:
                await lead.ask("Hello.")
    name = others[-1][0]
    asked = "m" if others[-1] == "b:m" else "other"
    assert str(raised.value) == (
        f"fallback: agent 'lead' asks a provider {name!r} already, and the fallback to {asked!r} is another adapter "
        "of that name; give one of them another provider="
    )


async def test_an_adapter_does_not_take_the_place_of_the_agents_own_provider():
    """Rule: ``"b:m"`` means the same with and without the plugin."""
    own = model("b", say("Own."))
    async with open_host(model="b:m", plugins=[fallback(model("b", say("Other.")))]) as host:
        host.registrar.add(ModelProvider("b", model=own))
        async with host.open_agent(AgentSpec("lead")) as lead:
            with pytest.raises(ConfigError):
                await lead.ask("Hello.")


def test_no_model_is_no_fallback():
    with pytest.raises(PluginError) as raised:
        fallback()
    assert str(raised.value) == "fallback: there is no model to fall back to; write fallback('provider:model')"


async def test_it_holds_no_agent_that_is_closed():
    async with open_host(model=model("a", REFUSED), plugins=[fallback(model("b", say("Here.")))]) as host:
        async with host.open_agent(AgentSpec("lead")) as lead:
            await lead.ask("Hello.")
        closed = weakref.ref(lead)
        del lead
        gc.collect()
        assert closed() is None


async def test_an_agent_that_asks_its_fallback_already_gives_up(autojump_clock):
    asked = []
    own = model("a", REFUSED, asked=asked)
    async with open_host(model=own, plugins=[fallback(own)]) as host, host.open_agent(AgentSpec("lead")) as lead:
        with pytest.raises(ModelError, match=r"^no such model$"):
            await lead.ask("Hello.")
        assert len(asked) == 1
        check_log(lead.session)


async def test_mounted_while_a_request_is_under_way_it_helps_from_the_next_one_on(autojump_clock):
    async def answer(request):
        if not answers:
            await host.mount(fallback(model("b", say("Here."))))
        answers.append(request)
        return REFUSED

    answers = []
    async with open_host(model=FunctionModel(answer, provider="a")) as host, host.open_agent(AgentSpec("lead")) as lead:
        with pytest.raises(ModelError, match=r"^no such model$"):
            await lead.ask("Hello.")
        assert (await lead.ask("Hello.")).text == "Here."

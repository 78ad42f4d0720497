"""The seam to models: retries, and finding an adapter by name."""

import math
import random

import pytest

from creche.errors import ConfigError, ContextOverflowError, ModelError, NotRegisteredError
from creche.models import FunctionModel, ModelProvider, PreparedCall, RetryPolicy, Route, Settings, resolve_model
from creche.scope import Owner, Registry, ScopeKey, make_registrar


def delays(policy, error, attempts):
    return [policy.delay(error, attempt) for attempt in range(1, attempts + 1)]


def server_error(**options):
    return ModelError("down", retryable=True, **options)


# ---------------------------------------------------------------- retries


def test_a_delay_doubles_up_to_the_longest():
    policy = RetryPolicy(6, first_delay=0.5, longest_delay=4, jitter=0)
    assert delays(policy, server_error(), 7) == [0.5, 1, 2, 4, 4, 4, None]


def test_jitter_adds_up_to_its_share(monkeypatch):
    policy = RetryPolicy(1, first_delay=1, jitter=0.5)
    for value, delay in [(0.0, 1.0), (0.5, 1.25)]:
        monkeypatch.setattr(random, "random", lambda value=value: value)
        assert policy.delay(server_error(), 1) == delay


def test_what_no_retry_mends_is_given_up():
    assert RetryPolicy().delay(ModelError("no key", retryable=False), 1) is None
    assert RetryPolicy().delay(ContextOverflowError("too long"), 1) is None


def test_no_retries_are_none():
    assert RetryPolicy(0).delay(server_error(retry_after=1), 1) is None


@pytest.mark.parametrize("asked", [0, 3.5, 120])
def test_what_the_provider_asks_for_is_honoured(asked):
    assert RetryPolicy().delay(server_error(retry_after=asked), 1) == asked


def test_a_provider_that_asks_for_too_long_a_wait_is_not_waited_for():
    assert RetryPolicy().delay(server_error(retry_after=120.1), 1) is None
    assert RetryPolicy(longest_asked=3600).delay(server_error(retry_after=3600), 1) == 3600


@pytest.mark.parametrize(("asked", "delay"), [(-5, 0), (-math.inf, 2), (math.inf, 2), (math.nan, 2)])
def test_a_delay_is_always_one_that_can_be_waited_for(asked, delay):
    policy = RetryPolicy(first_delay=2, jitter=0)
    assert policy.delay(server_error(retry_after=asked), 1) == delay


def test_any_number_of_retries_can_be_asked_for():
    assert RetryPolicy(10**6, longest_delay=10, jitter=0).delay(server_error(), 10**6) == 10


# ---------------------------------------------------------------- routes


@pytest.fixture
def registry():
    return Registry()


@pytest.fixture
def pen(registry):
    return make_registrar(registry, Owner("host"), None)


def answers(request):
    return []


def test_an_adapter_routes_to_its_own_model(registry):
    model = FunctionModel(answers, model="m-1")
    assert resolve_model(model, registry, None) == Route(model, name="m-1")


def test_a_text_routes_to_the_nearest_provider_of_its_name(registry, pen):
    scope = ScopeKey("lead")
    here, everywhere = FunctionModel(answers), FunctionModel(answers)
    pen.add(ModelProvider("local", model=everywhere))
    pen.at(scope).add(ModelProvider("local", model=here))
    assert resolve_model("local:m", registry, scope) == Route(here, name="m")
    assert resolve_model("local:m", registry, None) == Route(everywhere, name="m")


def test_only_the_first_colon_divides(registry, pen):
    pen.add(ModelProvider("ollama", model=FunctionModel(answers)))
    assert resolve_model("ollama:qwen3:0.6b", registry, None).name == "qwen3:0.6b"


@pytest.mark.parametrize("text", [":", "local:", ":m"])
def test_a_text_of_another_form_is_refused(registry, text):
    with pytest.raises(ConfigError) as caught:
        resolve_model(text, registry, None)
    assert str(caught.value) == f"model: {text!r} is not of the form 'provider:model'"


@pytest.mark.parametrize(("registered", "shown"), [((), "(none)"), (("b", "a"), "a, b")])
def test_an_unknown_provider_is_refused_with_those_that_are_known(registry, pen, registered, shown):
    for name in registered:
        pen.add(ModelProvider(name, model=FunctionModel(answers)))
    with pytest.raises(NotRegisteredError) as caught:
        resolve_model("c:m", registry, None)
    assert str(caught.value) == (
        f"no model provider 'c' is registered; registered: {shown}; "
        "register one with registrar.add(ModelProvider(name, model=adapter))"
    )


def test_a_prepared_call_claims_nothing_by_default():
    prepared = PreparedCall(Settings("p", model="m"), defaults=["effort"])
    assert (prepared.defaults, prepared.context_window, prepared.retry) == (("effort",), None, RetryPolicy())
    capabilities = prepared.capabilities
    assert not capabilities.images
    assert not capabilities.structured_output
    assert (capabilities.system_prompt_update, capabilities.tool_update) == (None, None)

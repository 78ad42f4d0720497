"""From the name of a model to its adapter."""

import pytest

from creche.errors import ConfigError, NotRegisteredError
from creche.models import (
    FunctionModel,
    ModelAlias,
    ModelProvider,
    Route,
    StandardProviders,
    find_provider,
    resolve_model,
)
from creche.scope import Owner, Registry, ScopeKey, make_registrar


@pytest.fixture
def registry():
    return Registry()


@pytest.fixture
def pen(registry):
    return make_registrar(registry, Owner("host"), None)


def answers(request):
    return []


def test_a_text_without_a_colon_is_an_alias(registry, pen):
    model = FunctionModel(answers)
    pen.add(ModelProvider("p", model=model))
    pen.add(ModelAlias("fast", model="p:small"))
    pen.add(ModelAlias("mine", model=model))
    assert resolve_model("fast", registry, None) == Route(model, name="small")
    assert resolve_model("mine", registry, None) == Route(model, name=model.model)


def test_the_nearest_alias_counts(registry, pen):
    scope = ScopeKey("lead")
    model = FunctionModel(answers)
    pen.add(ModelProvider("p", model=model))
    pen.add(ModelAlias("fast", model="p:small"))
    pen.at(scope).add(ModelAlias("fast", model="p:smaller"))
    assert resolve_model("fast", registry, scope).name == "smaller"
    assert resolve_model("fast", registry, None).name == "small"


def test_an_alias_may_lead_to_another(registry, pen):
    model = FunctionModel(answers)
    pen.add(ModelProvider("p", model=model))
    pen.add(ModelAlias("fast", model="small"))
    pen.add(ModelAlias("small", model="p:small"))
    assert resolve_model("fast", registry, None).name == "small"


def test_aliases_in_a_circle_are_refused(registry, pen):
    pen.add(ModelAlias("a", model="b"))
    pen.add(ModelAlias("b", model="a"))
    with pytest.raises(ConfigError) as caught:
        resolve_model("a", registry, None)
    assert str(caught.value) == "model: aliases lead in a circle: a -> b -> a"


@pytest.mark.parametrize(
    ("aliases", "listed"), [([], ""), (["small", "fast"], "; aliases: fast, small")], ids=["none", "some"]
)
def test_a_text_that_is_neither_is_refused(aliases, listed, registry, pen):
    for alias in aliases:
        pen.add(ModelAlias(alias, model="p:m"))
    with pytest.raises(ConfigError) as caught:
        resolve_model("big", registry, None)
    assert (
        str(caught.value) == f"model: 'big' is not of the form 'provider:model' and no alias{listed}; providers: (none)"
    )


@pytest.mark.parametrize("name", ["", "a:b", ":"])
def test_an_alias_is_a_text_without_a_colon(name):
    with pytest.raises(ConfigError) as caught:
        ModelAlias(name, model="p:m")
    assert str(caught.value) == f"aliases: {name!r} cannot be an alias: it is a text without a colon"


def test_standard_providers_are_made_at_their_first_use_and_once(registry, pen):
    made = []

    def make():
        made.append(FunctionModel(answers, provider="std"))
        return made[-1]

    pen.provide(StandardProviders({"std": make}))
    assert not made
    route = resolve_model("std:m", registry, None)
    assert route == Route(made[0], name="m")
    assert resolve_model("std:n", registry, None).model is made[0]
    assert find_provider("std", registry, ScopeKey("lead")) is made[0]
    assert len(made) == 1


def test_a_registered_provider_comes_before_a_standard_one(registry, pen):
    own = FunctionModel(answers)
    pen.provide(StandardProviders({"p": lambda: FunctionModel(answers)}))
    pen.add(ModelProvider("p", model=own))
    assert resolve_model("p:m", registry, None).model is own


def test_what_nobody_registered_is_refused_with_all_names(registry, pen):
    pen.provide(StandardProviders({"std": lambda: FunctionModel(answers)}))
    pen.add(ModelProvider("mine", model=FunctionModel(answers)))
    with pytest.raises(NotRegisteredError) as caught:
        resolve_model("other:m", registry, None)
    assert str(caught.value) == (
        "no model provider 'other' is registered; registered: mine, std; "
        "register one with registrar.add(ModelProvider(name, model=adapter))"
    )
    assert find_provider("other", registry, None) is None

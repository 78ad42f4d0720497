"""What can be contributed, and what is refused when it is made."""

import functools
import math
from types import SimpleNamespace

import attrs
import pytest

from creche.errors import DuplicateNameError, PromptError
from creche.messages import ToolSchema
from creche.prompt import (
    UNLISTED_TOOLS,
    AssembleContext,
    RuntimeContext,
    Section,
    SuppressRuntimeContext,
    ToolOrder,
    ToolProvider,
    ToolSchemas,
    Variable,
    tool_order,
)
from creche.scope import ScopeKey


def schema(name):
    return ToolSchema(name, description="", parameters={"type": "object"})


async def waits(context):
    raise AssertionError("never called")


def refusal(make, *args, **options):
    with pytest.raises(PromptError) as caught:
        make(*args, **options)
    return str(caught.value)


# ---------------------------------------------------------------- sections and contexts


@pytest.mark.parametrize("kind", [Section, RuntimeContext])
@pytest.mark.parametrize("order", [math.nan, math.inf, -math.inf, "5", None, 1j])
def test_an_order_that_is_no_finite_number_is_refused(kind, order):
    message = refusal(kind, "a", order=order, text="")
    assert message == f"{kind.__name__} 'a' has order {order!r}; an order is a finite number"


@pytest.mark.parametrize("kind", [Section, RuntimeContext])
@pytest.mark.parametrize("order", [-1000, 0, 116.5, -0.0, 10**400, -(10**400)])
def test_any_finite_order_is_legal(kind, order):
    assert kind("a", order=order, text="").order == order


@pytest.mark.parametrize("kind", [Section, RuntimeContext])
@pytest.mark.parametrize("text", [None, 5, b"bytes", ["lines"]])
def test_a_text_is_a_string_or_a_function(kind, text):
    message = refusal(kind, "a", order=0, text=text)
    assert message == f"the text of {kind.__name__} 'a' is {text!r}; it is a string or a plain function"


@pytest.mark.parametrize("kind", [Section, RuntimeContext])
def test_an_async_text_function_is_refused(kind):
    """Rule: source functions are plain functions; waiting belongs into wraps."""
    message = refusal(kind, "a", order=0, text=waits)
    assert message == (
        f"the text of {kind.__name__} 'a' is the async function 'waits'; it is a string or a plain function, "
        "and what has to wait belongs into a wrapper around AssemblePrompt"
    )


def test_a_partial_of_an_async_function_is_refused_too():
    assert "is the async function functools.partial(" in refusal(
        Section, "a", order=0, text=functools.partial(waits, None)
    )


@pytest.mark.parametrize("name", ["", " ", "a b", "{{x}}", "{", "naïve", "x" * 1000])
def test_a_section_may_have_any_name(name):
    assert Section(name, order=0, text="").name == name


def test_entries_are_frozen_and_have_an_identity():
    section = Section("a", order=0, text="")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        section.text = "b"
    assert section != Section("a", order=0, text="")


# ---------------------------------------------------------------- variables


@pytest.mark.parametrize("name", ["a", "cwd", "v0", "a_b", "z" * 200, "constructor"])
def test_a_variable_name_is_lower_case_letters_digits_and_underscores(name):
    assert Variable(name, lambda _: "x").name == name


@pytest.mark.parametrize("name", ["", "A", "0a", "_a", "a-b", "a b", " a", "a\n", "é", "a{", "__class__"])
def test_another_variable_name_is_refused(name):
    message = refusal(Variable, name, lambda _: "x")
    assert message == f"{name!r} cannot be the name of a variable: it must be like [a-z][a-z0-9_]*"


def test_the_name_of_the_built_in_variable_is_refused():
    message = refusal(Variable, "open", lambda _: "x")
    assert message == "variable 'open' is built in (it writes two opening braces); choose another name"


def test_a_provider_that_is_no_function_is_refused():
    assert refusal(Variable, "a", "x") == "the provider of variable 'a' is 'x'; it is a plain function"


def test_an_async_provider_is_refused():
    assert refusal(Variable, "a", waits) == (
        "the provider of variable 'a' is the async function 'waits'; it is a plain function, "
        "and what has to wait belongs into a wrapper around AssemblePrompt"
    )


# ---------------------------------------------------------------- tools


def test_known_names_are_those_of_the_schemas_if_not_given():
    schemas = ToolSchemas([schema("b"), schema("a")])
    assert (schemas.known_names, [each.name for each in schemas.schemas]) == ({"a", "b"}, ["b", "a"])


def test_known_names_may_be_more_than_the_schemas():
    assert ToolSchemas([], known_names=["a"]).known_names == {"a"}


def test_schemas_do_not_change_with_what_they_were_made_of():
    given, known = [schema("a")], {"a", "b"}
    schemas = ToolSchemas(given, known_names=known)
    given.clear()
    known.clear()
    assert ([each.name for each in schemas.schemas], schemas.known_names) == (["a"], {"a", "b"})


@pytest.mark.parametrize("wrong", ["read", SimpleNamespace(name="read"), None])
def test_schemas_of_another_kind_are_refused(wrong):
    assert refusal(ToolSchemas, [wrong]) == f"ToolSchemas holds {wrong!r}; it holds ToolSchema values"


def test_a_tool_provider_is_a_plain_function():
    assert refusal(ToolProvider, ToolSchemas([])).endswith("; it is a plain function that returns ToolSchemas(...)")
    assert refusal(ToolProvider, waits) == (
        "a tool provider is the async function 'waits'; it is a plain function that returns ToolSchemas(...), "
        "and what has to wait belongs into a wrapper around AssemblePrompt"
    )


def test_a_tool_order_lists_names_and_the_marker():
    assert tool_order(iter(["b", UNLISTED_TOOLS, "a"])).names == ("b", "<unlisted-tools>", "a")
    assert tool_order([UNLISTED_TOOLS]).names == ("<unlisted-tools>",)


@pytest.mark.parametrize("make", [tool_order, lambda names: ToolOrder(tuple(names))], ids=["function", "class"])
class TestToolOrder:
    def test_a_name_stands_once(self, make):
        message = refusal(make, ["b", "a", "b", UNLISTED_TOOLS, "a"])
        assert message == "tool order lists 'a', 'b' more than once"

    def test_the_marker_stands_once(self, make):
        message = refusal(make, [UNLISTED_TOOLS, UNLISTED_TOOLS])
        assert message == "tool order lists '<unlisted-tools>' more than once"

    @pytest.mark.parametrize("names", [[], ["a", "b"]])
    def test_the_marker_must_stand(self, make, names):
        assert refusal(make, names) == (
            f"tool order {names!r} must contain '<unlisted-tools>' once, where the others stand"
        )


def test_a_tool_order_is_not_one_text():
    with pytest.raises(TypeError) as caught:
        tool_order("read")
    assert str(caught.value) == "names= takes a list, not 'read'; write names=[...]"


# ---------------------------------------------------------------- registering


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: Section("a", order=0, text=""), "Section 'a'"),
        (lambda: RuntimeContext("a", order=0, text=""), "RuntimeContext 'a'"),
        (lambda: Variable("a", lambda _: None), "Variable 'a'"),
        (lambda: tool_order([UNLISTED_TOOLS]), "ToolOrder 'tool order'"),
    ],
)
def test_a_named_entry_is_registered_once_a_scope(pen, scopes, make, what):
    pen.add(make())
    with pytest.raises(DuplicateNameError) as caught:
        pen.add(make())
    assert str(caught.value).startswith(f"{what} ")
    pen.at(scopes.ada).add(make())


@pytest.mark.parametrize("make", [SuppressRuntimeContext, lambda: ToolProvider(lambda _: ToolSchemas([]))])
def test_an_anonymous_entry_is_registered_any_number_of_times(pen, registry, make):
    pen.add(make())
    again = pen.add(make())
    assert len(registry.collect(again.kind, None)) == 2
    again.undo()
    assert len(registry.collect(again.kind, None)) == 1


# ---------------------------------------------------------------- for whom


def test_the_context_of_an_agent_has_its_scope():
    agent = SimpleNamespace(scope=ScopeKey("lead"), path="lead")
    context = AssembleContext.of(agent)
    assert (context.agent, context.scope) == (agent, agent.scope)


@pytest.mark.parametrize(("scope", "place"), [(None, "the global layer"), (ScopeKey("x"), "scope 'x'")])
def test_a_context_with_another_scope_than_its_agents_is_refused(scope, place):
    agent = SimpleNamespace(scope=ScopeKey("lead"), path="lead")
    message = refusal(AssembleContext, scope, agent)
    assert message == f"{place} is not the scope of agent 'lead'; use AssembleContext.of(agent)"


def test_in_diagnostics_there_is_no_agent():
    assert (AssembleContext().scope, AssembleContext().agent) == (None, None)

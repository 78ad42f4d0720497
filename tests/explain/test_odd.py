"""What contributors do that they should not: the report says so, says whose it is, and is JSON all the same."""

import json
import math

import attrs
import pytest

from creche.explain import render_report, report_as_json
from creche.messages import ToolSchema
from creche.prompt import (
    AssemblePrompt,
    Origin,
    Piece,
    PromptAssembly,
    RuntimeContext,
    Section,
    ToolProvider,
    ToolSchemas,
    Variable,
)
from creche.tools import Guard, Tool


class MuteError(Exception):
    def __repr__(self):
        raise RuntimeError("no repr")

    __str__ = __repr__


HUGE = 10**5000  # longer than Python writes out


class Odd:
    def __repr__(self):
        raise RuntimeError("no repr")


@pytest.fixture
def told(explain, scopes):
    """Return what is said of a wrapper, or of whatever was registered, as one JSON object that a strict reader takes."""

    async def report(scope=None):
        found = await explain(scope)
        render_report(found)
        return json.loads(json.dumps(report_as_json(found), allow_nan=False))

    return report


def noted(error):
    error.add_note("noted")
    error.__notes__.append(5)
    raise error


def raises(error):
    raise error


@pytest.mark.parametrize(
    ("nonsense", "said"),
    [
        (lambda: {"sections": [5]}, "TypeError('PromptAssembly.sections holds 5; it holds Piece values')"),
        (lambda: {"sections": 5}, "TypeError(\"'int' object is not iterable\")"),
        (lambda: {"contexts": ["text"]}, "TypeError(\"PromptAssembly.contexts holds 'text'; it holds Piece values\")"),
        (
            lambda: {"tools": [{"name": "x"}]},
            "TypeError(\"PromptAssembly.tools holds {'name': 'x'}; it holds ToolSchema values\")",
        ),
        (lambda: {"variables": {"x": 5}}, "variable 'x' of an assembly is 5; it is a text or None"),
        (lambda: {"variables": {5: "x"}}, "5 cannot be the name of a variable: it must be like [a-z][a-z0-9_]*"),
        (
            lambda: {"sections": [Piece(Origin("x", order=math.nan), "text")]},
            "Origin 'x' has order nan; an order is a finite number",
        ),
        (lambda: {"sections": [Piece(Origin(5), "text")]}, "TypeError('Origin.name is a text, not 5')"),
        (
            lambda: {"sections": [Piece(Origin("x"), 5)]},
            "TypeError(\"a Piece is an Origin and a text, not Origin 'x' and 5\")",
        ),
        (
            lambda: {"sections": [Piece("x", "text")]},
            "TypeError(\"a Piece is an Origin and a text, not 'x' and 'text'\")",
        ),
        (
            lambda: {"sections": [Piece(Origin("x", scope=[]), "")]},
            "TypeError('Origin.scope is ScopeKey or None, not []')",
        ),
        (lambda: raises(MuteError()), "<MuteError, which cannot be shown"),
        (lambda: raises(ValueError(object())), "ValueError(<object object>)"),
        (lambda: noted(ValueError()), "ValueError(); noted; 5"),
        (
            lambda: raises(ExceptionGroup("of a nursery", [ValueError("x")])),
            "ExceptionGroup('of a nursery', [ValueError('x')])",
        ),
    ],
)
async def test_nonsense_of_a_wrapper_is_told_and_whose_it_is(pens, told, nonsense, said):
    async def wrapper(event, go_on):
        return attrs.evolve(await go_on(), **nonsense())

    pens.host.add(Section("rules", order=200, text="Be brief."))
    pens.host.wrap(AssemblePrompt, wrapper)
    report = await told()
    (problem,) = report["problems"]
    assert problem.startswith(said)
    assert "'host'" in problem
    assert [each["text"] for each in report["sections"]] == ["Be brief."]


async def test_a_section_of_a_wrapper_that_fails_is_said_to_be_of_a_wrapper(pens, told):
    async def wrapper(event, go_on):
        return attrs.evolve(await go_on(), sections=[Piece(Origin("mine"), "{{nothing}}")])

    pens.host.wrap(AssemblePrompt, wrapper)
    report = await told()
    (problem,) = report["problems"]
    assert problem.startswith("unknown variable {{nothing}} in section 'mine' of a wrapper around prompt/assemble; ")
    assert report["sections"][0]["note"] == "a wrapper added it"


@pytest.mark.parametrize("result", [None, 5, lambda: 0, Odd()])
async def test_a_wrapper_that_gives_no_assembly_is_told(pens, told, result):
    async def wrapper(event, go_on):
        return result

    pens.host.wrap(AssemblePrompt, wrapper)
    (problem,) = (await told())["problems"]
    assert "'host'" in problem
    assert " at 0x" not in problem


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (object(), "gave <object object>; "),
        ([lambda: 0], "gave [<function <lambda>>]; "),
        (HUGE, "gave <int, which cannot be shown>; "),
        (Odd(), "gave <Odd, which cannot be shown>; "),
    ],
    ids=["object", "list", "int", "odd"],
)
@pytest.mark.parametrize(
    "make",
    [
        lambda source: Section("x", order=200, text=source),
        lambda source: RuntimeContext("x", order=200, text=source),
        lambda source: Variable("x", source),
        ToolProvider,
    ],
)
async def test_what_a_source_function_gives_is_shown_without_its_address(pens, told, make, given, shown):
    """Rule: two processes give the same report."""
    pens.host.add(make(lambda _: given))
    (problem,) = (await told())["problems"]
    assert shown in problem
    assert "'host'" in problem


@pytest.mark.parametrize(
    "error",
    [MuteError(), ValueError(object()), ValueError(lambda: 0), ValueError(HUGE)],
    ids=["mute", "object", "function", "int"],
)
async def test_what_a_source_function_raises_is_shown_without_addresses(pens, told, error):
    pens.host.add(Section("x", order=200, text=lambda _: raises(error)))
    (problem,) = (await told())["problems"]
    assert problem.startswith("section 'x' of 'host' at the global layer raised ")
    assert " at 0x" not in problem


@pytest.mark.parametrize("verdict", [lambda name: raises(MuteError()), lambda name: Odd().nothing, lambda: True])
async def test_a_guard_that_cannot_tell_is_told_of(pens, scopes, told, verdict):
    pens.host.add(Tool("read", description="", parameters={}, run=print))
    pens.team.add(Guard(lambda execution: None, lets_through=verdict))
    pens.ada.add(Guard(lambda execution: None, lets_through=lambda name: False))
    (tool,) = (await told(scopes.ada))["tools"]
    assert tool["note"].startswith("a guard of 'team' at scope 'team' cannot tell whether it refuses it: ")
    assert [each["owner"] for each in tool["refused_by"]] == ["ada"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Section(5, order=200, text="x"),
        lambda: Section("x", order=200, text="x", interpolate="no"),
        lambda: Section("x", order=200, text="x", complete=1),
        lambda: RuntimeContext(None, order=200, text="x"),
        lambda: ToolSchemas([], known_names=[5]),
        lambda: ToolSchemas([], known_names="read"),
        lambda: Origin("x", kind="tool"),
        lambda: PromptAssembly(tools=[ToolSchema("x", description="", parameters={}), None]),
    ],
)
def test_what_would_end_a_report_is_refused_where_it_is_made(make):
    with pytest.raises((TypeError, ValueError)):
        make()

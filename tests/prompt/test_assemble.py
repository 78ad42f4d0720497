"""From what is registered to one assembly."""

import gc
import weakref
from types import MappingProxyType

import attrs
import pytest

from creche.errors import InternalError, PromptError
from creche.messages import ToolSchema
from creche.prompt import (
    UNLISTED_TOOLS,
    AssembleContext,
    AssemblePrompt,
    Origin,
    Piece,
    PromptAssembly,
    RuntimeContext,
    Section,
    SuppressRuntimeContext,
    ToolProvider,
    ToolSchemas,
    Variable,
    assemble,
    render_prompt,
    tool_order,
)


def section(name, text, order=0, **options):
    return Section(name, order=order, text=text, **options)


def context(name, text, order=0):
    return RuntimeContext(name, order=order, text=text)


def offering(*names, known=None):
    schemas = [ToolSchema(name, description=f"Does {name}.", parameters={"type": "object"}) for name in names]
    given = ToolSchemas(schemas) if known is None else ToolSchemas(schemas, known_names=known)
    return ToolProvider(lambda _: given)


def fails(context):
    raise RuntimeError("broken")


def never(context):
    raise AssertionError("a shadowed source function was called")


def lazily(value):
    """Return a plain function that gives a coroutine, as one does that forgets an await."""

    async def give():
        return value

    return lambda _: give()


async def refusal(see, scope=None):
    with pytest.raises(PromptError) as caught:
        await see(scope)
    return str(caught.value)


def names(pieces):
    return [piece.name for piece in pieces]


async def test_an_empty_registry_gives_an_empty_assembly(see):
    assembly = await see()
    assert (assembly.sections, assembly.contexts, assembly.tools, assembly.suppressed) == ((), (), (), ())
    assert dict(assembly.variables) == {}


# ---------------------------------------------------------------- order and shadowing


@pytest.mark.parametrize("kind", [Section, RuntimeContext])
async def test_texts_stand_by_order_and_then_by_name(pen, see, kind):
    """Rule: names compare as Python strings, by code point and never by a locale."""
    for name, order in [("b", 1), ("a", 1.5), ("é", 0), ("z", 0), ("Z", 0), ("", 0), ("\U0001f600", 0), ("\uffff", 0)]:
        pen.add(kind(name, order=order, text="x"))
    assembly = await see()
    assert names(assembly.sections + assembly.contexts) == ["", "Z", "z", "é", "\uffff", "\U0001f600", "b", "a"]


async def test_orders_may_be_longer_than_a_float(pen, see):
    for name, order in [("last", 10**400), ("first", -(10**400)), ("middle", 1e300)]:
        pen.add(section(name, "x", order))
    assert names((await see()).sections) == ["first", "middle", "last"]


async def test_the_nearest_scope_wins_a_name_in_whatever_order_they_register(pen, prompt, scopes):
    pen.at(scopes.ada).add(section("a", "Ada's"))
    pen.at(scopes.preset).add(section("a", never))
    pen.add(section("a", "everybody's"))
    pen.at(scopes.ben).add(section("b", "Ben's"))
    with pytest.raises(PromptError):
        await prompt(scopes.preset)
    assert [await prompt(scope) for scope in (None, scopes.ada)] == ["everybody's", "Ada's"]


async def test_a_shadowed_source_function_is_never_called(pen, see, scopes):
    pen.add(section("a", never))
    pen.add(context("a", never))
    pen.add(Variable("a", never))
    own = pen.at(scopes.ada)
    for entry in (section("a", "x"), context("a", "x"), Variable("a", lambda _: "x")):
        own.add(entry)
    assembly = await see(scopes.ada)
    assert (names(assembly.sections), names(assembly.contexts), dict(assembly.variables)) == (["a"], ["a"], {"a": "x"})


async def test_what_takes_a_name_over_stands_at_its_own_place(pen, see, scopes):
    pen.add(section("a", "x", 5))
    pen.add(section("b", "x", 6))
    pen.at(scopes.ada).add(section("a", "x", 7))
    assert names((await see(scopes.ada)).sections) == ["b", "a"]
    assert names((await see(scopes.ben)).sections) == ["a", "b"]


async def test_siblings_share_what_is_above_them_and_nothing_else(pen, prompt, scopes):
    pen.at(scopes.preset).add(section("p", "preset", 0))
    pen.at(scopes.ada).add(section("a", "ada", 1))
    pen.at(scopes.ben).add(section("b", "ben", 1))
    assert [await prompt(scope) for scope in (scopes.ada, scopes.ben)] == ["preset\n\nada", "preset\n\nben"]


async def test_an_undo_uncovers_what_was_shadowed(pen, prompt, scopes):
    pen.add(section("a", "global"))
    own = pen.at(scopes.ada).add(section("a", "own"))
    assert await prompt(scopes.ada) == "own"
    own.undo()
    assert await prompt(scopes.ada) == "global"
    pen.at(scopes.ada).add(section("a", "again"))
    assert await prompt(scopes.ada) == "again"


async def test_a_piece_tells_where_it_comes_from(make_pen, see, scopes):
    make_pen("guide", scopes.ada).add(section("a", lambda _: "{{x}}", 3, interpolate=False, complete=True))
    make_pen("clock", scopes.preset).add(context("b", "noon", 4))
    assembly = await see(scopes.ada)
    assert assembly.sections[0].origin == Origin(
        "a", kind="section", order=3, owner="guide", scope=scopes.ada, interpolate=False, complete=True
    )
    assert assembly.contexts[0].origin == Origin(
        "b", kind="runtime context", order=4, owner="clock", scope=scopes.preset
    )
    assert str(assembly.contexts[0].origin) == "runtime context 'b' of 'clock' at scope 'preset'"


# ---------------------------------------------------------------- source functions


async def test_source_functions_are_called_once_an_assembly_with_its_context(pen, registry, scopes):
    calls = []

    def source(name, value):
        return lambda given: calls.append((name, given)) or value

    pen.add(section("s", source("section", "x")))
    pen.add(context("c", source("context", "x")))
    pen.add(Variable("v", source("variable", "x")))
    pen.add(ToolProvider(source("tools", ToolSchemas([]))))
    given = AssembleContext(scopes.ada)
    await assemble(registry, given)
    assert calls == [(name, given) for name in ("variable", "tools", "section", "context")]


async def test_evaluated_text_is_never_kept(pen, prompt):
    numbers = iter(range(9))
    pen.add(section("a", lambda _: str(next(numbers))))
    assert [await prompt() for _ in range(3)] == ["0", "1", "2"]


WRONG = [None, 5, b"bytes", ["list"]]


@pytest.mark.parametrize("value", WRONG)
@pytest.mark.parametrize("kind", [section, context])
async def test_a_text_function_that_gives_no_text_is_named(pen, see, kind, value):
    pen.add(kind("a", lambda _: value))
    what = "section" if kind is section else "runtime context"
    assert await refusal(see) == (
        f"{what} 'a' of 'host' at the global layer gave {value!r}; "
        "its text is a string or a plain function that returns one"
    )


@pytest.mark.parametrize("value", WRONG[1:])
async def test_a_variable_that_gives_no_text_is_named(pen, see, value):
    pen.add(Variable("a", lambda _: value))
    assert await refusal(see) == (
        f"variable 'a' of 'host' at the global layer gave {value!r}; "
        "a provider is a plain function that returns a text or None"
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "None"), ([], "[]"), (ToolSchema("a", description="", parameters={}), "ToolSchema 'a'")],
)
async def test_a_tool_provider_that_gives_no_schemas_is_named(pen, see, value, shown):
    pen.add(ToolProvider(lambda _: value))
    assert await refusal(see) == (
        f"a tool provider of 'host' at the global layer gave {shown}; it returns ToolSchemas(...)"
    )


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda give: section("a", give), "section 'a'"),
        (lambda give: context("a", give), "runtime context 'a'"),
        (lambda give: Variable("a", give), "variable 'a'"),
        (ToolProvider, "a tool provider"),
    ],
)
class TestEachSource:
    async def test_an_error_is_a_prompt_error_from_it(self, pen, see, make, what):
        pen.add(make(fails))
        with pytest.raises(PromptError) as caught:
            await see()
        assert str(caught.value) == f"{what} of 'host' at the global layer raised RuntimeError('broken')"
        assert repr(caught.value.__cause__) == "RuntimeError('broken')"

    async def test_a_prompt_error_is_one_from_it_too(self, pen, see, make, what):
        def refuses(_):
            raise PromptError("inner")

        pen.add(make(refuses))
        assert await refusal(see) == f"{what} of 'host' at the global layer raised PromptError('inner')"

    async def test_a_coroutine_is_refused_and_nothing_is_said_of_it_later(self, pen, see, make, what):
        """Rule: no 'was never awaited' comes after the refusal; pytest turns one into a failure."""
        pen.add(make(lazily("x")))
        message = await refusal(see)
        assert message.startswith(f"{what} of 'host' at the global layer gave <coroutine object lazily.")
        gc.collect()

    async def test_an_interrupt_passes_through(self, pen, see, make, what):
        def interrupted(_):
            raise KeyboardInterrupt

        pen.add(make(interrupted))
        with pytest.raises(KeyboardInterrupt):
            await see()


class Huge:
    def __repr__(self):
        return "x" * 100_000


class Unprintable:
    def __repr__(self):
        raise RuntimeError("no repr")


@pytest.mark.parametrize("value", [Huge(), Unprintable(), b"x" * 100_000])
async def test_a_message_stays_short_whatever_is_given(pen, see, value):
    pen.add(section("a", lambda _: value))
    assert len(await refusal(see)) < 400


async def test_what_a_provider_registers_joins_where_it_is_read_later(pen, see):
    """Rule: variables are read before any is evaluated, sections after; nothing is evaluated in the middle of a change."""

    def provide(_):
        if not added:
            added.append(pen.add(Variable("b", lambda _: "late")))
            added.append(pen.add(section("b", "late")))
        return "x"

    added = []
    pen.add(Variable("a", provide))
    pen.add(section("a", "{{a}}"))
    assembly = await see()
    assert (dict(assembly.variables), names(assembly.sections)) == ({"a": "x"}, ["a", "b"])
    assert dict((await see()).variables) == {"a": "x", "b": "late"}


# ---------------------------------------------------------------- complete sections


async def test_a_complete_section_is_the_whole_prompt(pen, see, scopes):
    pen.add(section("a", "a", 0))
    pen.at(scopes.ada).add(section("b", "all", 1, complete=True))
    assert names((await see(scopes.ada)).sections) == ["b"]
    assert names((await see(scopes.ben)).sections) == ["a"]


async def test_a_wrapper_sees_the_others_and_cannot_add_to_it(pen, see):
    seen = []

    async def add(event, go_on):
        seen.extend(names(event.assembly.sections))
        assembly = await go_on()
        return attrs.evolve(
            assembly,
            sections=[*assembly.sections, Piece(Origin("more"), "more")],
            contexts=[Piece(Origin("more"), "more")],
        )

    pen.wrap(AssemblePrompt, add)
    pen.add(section("a", "a", 0))
    pen.add(section("b", "all", 1, complete=True))
    assembly = await see()
    assert (seen, names(assembly.sections), names(assembly.contexts)) == (["a", "b"], ["b"], ["more"])


async def test_a_wrapper_cannot_take_it_away_or_change_it(pen, prompt):
    async def clear(event, go_on):
        return attrs.evolve(await go_on(), sections=[Piece(event.assembly.sections[0].origin, "changed")])

    pen.wrap(AssemblePrompt, clear)
    pen.add(section("a", lambda _: "all", complete=True))
    assert await prompt() == "all"


async def test_two_complete_sections_fail_and_are_named(pen, make_pen, see, scopes):
    pen.add(section("a", fails, complete=True))
    make_pen("other", scopes.ada).add(section("b", fails, complete=True))
    assert await refusal(see, scopes.ada) == (
        "only one section can be the complete prompt, not section 'a' of 'host' at the global layer "
        "and section 'b' of 'other' at scope 'ada'"
    )


async def test_a_shadowed_complete_section_does_not_count(pen, prompt, scopes):
    pen.add(section("a", "all", complete=True))
    pen.at(scopes.ada).add(section("a", "mine"))
    pen.at(scopes.ada).add(section("b", "more", 1))
    assert await prompt(scopes.ada) == "mine\n\nmore"


# ---------------------------------------------------------------- suppression


async def test_suppressed_contexts_are_named_and_not_evaluated(pen, see, scopes):
    pen.add(context("b", never, 1))
    pen.add(context("a", never, 2))
    pen.at(scopes.preset).add(SuppressRuntimeContext())
    assembly = await see(scopes.ada)
    assert (assembly.contexts, assembly.suppressed) == ((), ("b", "a"))


async def test_any_suppressor_on_the_chain_counts_and_each_is_undone_by_itself(pen, contexts, scopes):
    pen.add(context("a", "x"))
    first = pen.at(scopes.preset).add(SuppressRuntimeContext())
    second = pen.at(scopes.ada).add(SuppressRuntimeContext())
    assert [await contexts(scope) for scope in (None, scopes.ada, scopes.ben)] == [{"a": "x"}, {}, {}]
    first.undo()
    assert [await contexts(scope) for scope in (scopes.ada, scopes.ben)] == [{}, {"a": "x"}]
    second.undo()
    assert await contexts(scopes.ada) == {"a": "x"}


async def test_a_wrapper_cannot_add_to_suppressed_contexts(pen, see):
    async def add(event, go_on):
        return attrs.evolve(await go_on(), contexts=[Piece(Origin("more"), "more")])

    pen.wrap(AssemblePrompt, add)
    assert names((await see()).contexts) == ["more"]
    pen.add(SuppressRuntimeContext())
    assert names((await see()).contexts) == []


# ---------------------------------------------------------------- wrappers


async def test_wrappers_stand_root_outermost_and_what_comes_back_counts(pen, prompt, scopes):
    def adding(text):
        async def add(event, go_on):
            assembly = await go_on()
            return attrs.evolve(assembly, sections=[*assembly.sections, Piece(Origin(text), text)])

        return add

    pen.at(scopes.ada).wrap(AssemblePrompt, adding("ada"))
    pen.wrap(AssemblePrompt, adding("global"))
    pen.at(scopes.preset).wrap(AssemblePrompt, adding("preset"))
    assert await prompt(scopes.ada) == "ada\n\npreset\n\nglobal"
    assert await prompt(scopes.ben) == "preset\n\nglobal"


async def test_a_wrapper_may_pass_another_assembly_inwards_or_none(pen, prompt, scopes):
    async def replace(event, go_on):
        return await go_on(attrs.evolve(event, assembly=PromptAssembly([Piece(Origin("x"), "given")])))

    async def refuse(event, go_on):
        return PromptAssembly()

    pen.add(section("a", "a"))
    pen.wrap(AssemblePrompt, replace)
    assert await prompt() == "given"
    pen.at(scopes.ada).wrap(AssemblePrompt, refuse)
    assert await prompt(scopes.ada) == ""


async def test_a_wrapper_that_gives_nothing_is_blamed(pen, see):
    async def forgets(event, go_on):
        await go_on()

    pen.wrap(AssemblePrompt, forgets)
    with pytest.raises(InternalError, match=r"^the wrapper of 'host' at the global layer around prompt/assemble "):
        await see()


async def test_what_a_wrapper_does_reaches_no_other_assembly(pen, see, scopes):
    """Rule: assemblies are frozen, and what is registered cannot be reached through one."""

    async def spoil(event, go_on):
        with pytest.raises(TypeError):
            event.assembly.variables["a"] = "spoilt"
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            event.assembly.sections = ()
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            event.assembly.tools[0].description = "spoilt"
        return attrs.evolve(event.assembly, sections=(), tools=(), variables={})

    pen.add(Variable("a", lambda _: "x"))
    pen.add(section("a", "{{a}}"))
    pen.add(offering("read"))
    pen.at(scopes.ada).wrap(AssemblePrompt, spoil)
    assert (await see(scopes.ada)).tools == ()
    other = await see(scopes.ben)
    assert (render_prompt(other), names(other.tools)) == ("x", ["read"])


async def test_a_wrapper_sets_a_variable_that_is_bound_late(pen, prompt):
    """Rule: a late-bound model's owner sets ``variables["model"]`` in this wrap."""

    async def bind(event, go_on):
        assembly = await go_on()
        return attrs.evolve(assembly, variables={**assembly.variables, "model": "m-1"})

    pen.add(Variable("model", lambda _: None))
    pen.add(section("a", "{{model}}"))
    pen.wrap(AssemblePrompt, bind)
    assert await prompt() == "m-1"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"a b": "x"}, "'a b' cannot be the name of a variable: it must be like [a-z][a-z0-9_]*"),
        ({"open": "x"}, "variable 'open' is built in (it writes two opening braces); choose another name"),
        ({"model": 5}, "variable 'model' of an assembly is 5; it is a text or None"),
    ],
)
def test_an_assembly_takes_no_variable_that_could_not_be_registered(variables, expected):
    with pytest.raises(PromptError) as caught:
        PromptAssembly(variables=variables)
    assert str(caught.value) == expected


def test_an_assembly_does_not_change_with_what_it_was_made_of():
    variables, sections = {"a": "x"}, [Piece(Origin("a"), "a")]
    assembly = PromptAssembly(sections, variables=variables)
    variables["b"] = "y"
    sections.clear()
    assert (dict(assembly.variables), len(assembly.sections)) == ({"a": "x"}, 1)
    assert attrs.evolve(assembly, sections=()).variables is assembly.variables
    assert isinstance(assembly.variables, MappingProxyType)


# ---------------------------------------------------------------- tools


async def test_the_tools_of_all_providers_add_up_sorted_by_name(pen, see, scopes):
    pen.add(offering("write", "Read"))
    pen.at(scopes.ada).add(offering("edit"))
    pen.at(scopes.ben).add(offering("other"))
    assert names((await see(scopes.ada)).tools) == ["Read", "edit", "write"]


async def test_a_tool_order_puts_the_unlisted_at_the_marker(pen, see):
    pen.add(offering("d", "c", "b", "a"))
    pen.add(tool_order(["c", UNLISTED_TOOLS, "a"]))
    assert names((await see()).tools) == ["c", "b", "d", "a"]


async def test_the_nearest_tool_order_wins(pen, see, scopes):
    pen.add(offering("a", "b"))
    pen.add(tool_order(["nobody", UNLISTED_TOOLS]))
    own = pen.at(scopes.ada).add(tool_order(["b", UNLISTED_TOOLS]))
    assert names((await see(scopes.ada)).tools) == ["b", "a"]
    own.undo()
    assert (await refusal(see, scopes.ada)).startswith("tool order lists unknown tools 'nobody'; ")


async def test_a_known_tool_that_is_restricted_away_is_merely_absent(pen, see):
    pen.add(offering("a", known=["a", "hidden"]))
    pen.add(tool_order(["hidden", UNLISTED_TOOLS]))
    assert names((await see()).tools) == ["a"]


async def test_a_tool_that_is_there_is_known_whatever_its_provider_says(pen, see):
    pen.add(offering("b", "a", known=[]))
    pen.add(tool_order(["b", UNLISTED_TOOLS]))
    assert names((await see()).tools) == ["b", "a"]


async def test_unknown_names_of_a_tool_order_fail_with_the_known_ones(pen, see):
    pen.add(offering("read", known=["read", "edit"]))
    pen.add(tool_order(["raed", UNLISTED_TOOLS, "edti"]))
    assert await refusal(see) == "tool order lists unknown tools 'raed', 'edti'; known: edit, read"


async def test_a_tool_order_where_there_are_no_tools(pen, see):
    order = pen.add(tool_order([UNLISTED_TOOLS]))
    assert (await see()).tools == ()
    order.undo()
    pen.add(tool_order(["read", UNLISTED_TOOLS]))
    assert await refusal(see) == "tool order lists unknown tools 'read'; known: (none)"


async def test_two_providers_of_one_tool_fail_and_both_are_named(make_pen, see, scopes):
    make_pen("one").add(offering("read"))
    make_pen("two", scopes.ada).add(offering("read"))
    assert await refusal(see, scopes.ada) == "tool 'read' is offered by 'one' and by 'two'; rename one of them"
    assert names((await see(scopes.ben)).tools) == ["read"]


async def test_one_provider_of_two_tools_of_one_name_fails(pen, see):
    pen.add(offering("read", "read"))
    assert await refusal(see) == "tool 'read' is offered by 'host' and by 'host'; rename one of them"


async def test_a_tool_of_the_reserved_name_is_refused(pen, see):
    pen.add(offering(UNLISTED_TOOLS))
    assert (
        await refusal(see)
        == "'host' offers a tool named '<unlisted-tools>', which is reserved for tool orders; rename it"
    )


async def test_a_wrapper_sees_the_tools_in_order(pen, see):
    seen = []

    async def look(event, go_on):
        seen.extend(names(event.assembly.tools))
        return await go_on()

    pen.add(offering("a", "b"))
    pen.add(tool_order(["b", UNLISTED_TOOLS]))
    pen.wrap(AssemblePrompt, look)
    await see()
    assert seen == ["b", "a"]


# ---------------------------------------------------------------- one tuple of tools for as long as nothing changes


async def test_the_tools_are_one_tuple_while_the_providers_give_the_same(pen, see, scopes):
    """Rule: the request's head stays one value for as long as nothing changes."""
    pen.add(offering("a"))
    shared = (await see(scopes.ada)).tools
    pen.add(section("more", "x"))
    assert (await see(scopes.ada)).tools is (await see(scopes.ben)).tools is shared
    own = pen.at(scopes.ada).add(offering("b"))
    mine = (await see(scopes.ada)).tools
    assert (await see(scopes.ada)).tools is mine
    assert (await see(scopes.ben)).tools is shared
    own.undo()
    assert (await see(scopes.ada)).tools is shared


async def test_each_order_has_a_tuple_of_its_own(pen, see, scopes):
    pen.add(offering("a", "b"))
    pen.at(scopes.ada).add(tool_order(["b", UNLISTED_TOOLS]))
    first, second = (await see(scopes.ada)).tools, (await see(scopes.ben)).tools
    assert (names(first), names(second)) == (["b", "a"], ["a", "b"])
    assert ((await see(scopes.ada)).tools is first, (await see(scopes.ben)).tools is second) == (True, True)


async def test_another_provider_before_changes_the_tools(pen, see):
    first = pen.add(offering("a"))
    pen.add(offering("b"))
    assert names((await see()).tools) == ["a", "b"]
    first.undo()
    assert names((await see()).tools) == ["b"]
    pen.add(offering("c"))
    assert names((await see()).tools) == ["b", "c"]


async def test_orders_of_schemas_that_are_gone_are_not_kept(pen, see):
    """Rule: what is kept of an order lives no longer than the schemas it is an order of."""

    def provide(_):
        schemas = ToolSchemas([ToolSchema("a", description="", parameters={})])
        given.append(weakref.ref(schemas))
        return schemas

    given = []
    pen.add(offering("b"))
    pen.add(ToolProvider(provide))
    for _ in range(3):
        await see()
    gc.collect()
    assert [each() for each in given] == [None, None, None]


async def test_a_few_orders_are_kept_for_schemas_and_no_more(pen, see):
    schemas = ToolSchemas([ToolSchema("a", description="", parameters={})])
    pen.add(ToolProvider(lambda _: schemas))
    for _ in range(30):
        with pen.add(tool_order([UNLISTED_TOOLS])):
            assert names((await see()).tools) == ["a"]
    assert len(schemas._orders) <= 8

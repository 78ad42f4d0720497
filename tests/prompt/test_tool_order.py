"""The tools of an assembly in order: those of all providers, and what tool orders make of them."""

import gc
import weakref

from creche.messages import ToolSchema
from creche.prompt import UNLISTED_TOOLS, AssemblePrompt, Section, ToolProvider, ToolSchemas, tool_order


def offering(*names, known=None):
    schemas = [ToolSchema(name, description=f"Does {name}.", parameters={"type": "object"}) for name in names]
    given = ToolSchemas(schemas) if known is None else ToolSchemas(schemas, known_names=known)
    return ToolProvider(lambda _: given)


def names(pieces):
    return [piece.name for piece in pieces]


async def test_the_tools_of_all_providers_add_up_sorted_by_name(pen, see, scopes):
    pen.add(offering("write", "Read"))
    pen.at(scopes.ada).add(offering("edit"))
    pen.at(scopes.ben).add(offering("other"))
    assert names((await see(scopes.ada)).tools) == ["Read", "edit", "write"]


async def test_a_tool_order_puts_the_unlisted_at_the_marker(pen, see):
    pen.add(offering("d", "c", "b", "a"))
    pen.add(tool_order(["c", UNLISTED_TOOLS, "a"]))
    assert names((await see()).tools) == ["c", "b", "d", "a"]


async def test_the_nearest_tool_order_wins(pen, see, scopes, refusal):
    pen.add(offering("a", "b"))
    pen.add(tool_order(["nobody", UNLISTED_TOOLS]))
    own = pen.at(scopes.ada).add(tool_order(["b", UNLISTED_TOOLS]))
    assert names((await see(scopes.ada)).tools) == ["b", "a"]
    own.undo()
    assert (await refusal(scopes.ada)).startswith("tool order lists unknown tools 'nobody'; ")


async def test_a_known_tool_that_is_restricted_away_is_merely_absent(pen, see):
    pen.add(offering("a", known=["a", "hidden"]))
    pen.add(tool_order(["hidden", UNLISTED_TOOLS]))
    assert names((await see()).tools) == ["a"]


async def test_a_tool_that_is_there_is_known_whatever_its_provider_says(pen, see):
    pen.add(offering("b", "a", known=[]))
    pen.add(tool_order(["b", UNLISTED_TOOLS]))
    assert names((await see()).tools) == ["b", "a"]


async def test_unknown_names_of_a_tool_order_fail_with_the_known_ones(pen, refusal):
    pen.add(offering("read", known=["read", "edit"]))
    pen.add(tool_order(["raed", UNLISTED_TOOLS, "edti"]))
    assert await refusal() == "tool order lists unknown tools 'raed', 'edti'; known: edit, read"


async def test_a_tool_order_where_there_are_no_tools(pen, see, refusal):
    order = pen.add(tool_order([UNLISTED_TOOLS]))
    assert (await see()).tools == ()
    order.undo()
    pen.add(tool_order(["read", UNLISTED_TOOLS]))
    assert await refusal() == "tool order lists unknown tools 'read'; known: (none)"


async def test_two_providers_of_one_tool_fail_and_both_are_named(make_pen, see, scopes, refusal):
    make_pen("one").add(offering("read"))
    make_pen("two", scopes.ada).add(offering("read"))
    assert await refusal(scopes.ada) == "tool 'read' is offered by 'one' and by 'two'; rename one of them"
    assert names((await see(scopes.ben)).tools) == ["read"]


async def test_one_provider_of_two_tools_of_one_name_fails(pen, refusal):
    pen.add(offering("read", "read"))
    assert await refusal() == "tool 'read' is offered by 'host' and by 'host'; rename one of them"


async def test_a_tool_of_the_reserved_name_is_refused(pen, refusal):
    pen.add(offering(UNLISTED_TOOLS))
    assert (
        await refusal() == "'host' offers a tool named '<unlisted-tools>', which is reserved for tool orders; rename it"
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
    pen.add(Section("more", order=0, text="x"))
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

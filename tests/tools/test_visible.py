import pytest

from creche import AgentSpec, Preset, open_host
from creche.errors import DuplicateNameError, PluginError, RegistryError
from creche.models import FunctionModel, say
from creche.prompt import AssembleContext, assemble
from creche.scope import Owner, Registry, ScopeKey, bind_scope_parent, make_registrar
from creche.tools import (
    RUN_CODE,
    VISIBLE,
    Presentation,
    Restriction,
    Tool,
    present_as,
    restrict,
    tool,
    tool_provider,
    visible,
)


def named(name: str) -> Tool:
    return Tool(name, description="", parameters={}, run=print)


A, B, C = map(named, "abc")


class Tree:
    """A global layer and three scopes, each below the one before it."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.pen = make_registrar(self.registry, Owner("test"), None)
        self.keys = [ScopeKey(label) for label in ("org", "team", "agent")]
        for key, parent in zip(self.keys, [None, *self.keys], strict=False):
            bind_scope_parent(key, parent)
        self.org, self.team, self.agent = [self.pen.at(key) for key in self.keys]

    def names(self, pen) -> list[str]:
        return sorted(visible(self.registry, pen.scope))


@pytest.fixture
def tree() -> Tree:
    return Tree()


# ---------------------------------------------------------------- the rule


def test_the_global_tools_are_what_none_sees(tree):
    tree.pen.add(A)
    tree.org.add(B)
    assert visible(tree.registry, None) == {"a": A}


def test_a_scope_sees_its_parents_tools_and_its_own(tree):
    tree.pen.add(A)
    tree.org.add(B)
    tree.agent.add(C)
    assert [tree.names(pen) for pen in (tree.org, tree.team, tree.agent)] == [["a", "b"], ["a", "b"], ["a", "b", "c"]]


@pytest.mark.parametrize("own_first", [True, False])
def test_the_nearest_tool_of_a_name_wins_in_whatever_order_they_came(tree, own_first):
    own = named("a")
    entries = [(tree.team, own), (tree.pen, A)]
    for pen, entry in entries if own_first else reversed(entries):
        pen.add(entry)
    assert visible(tree.registry, tree.agent.scope) == {"a": own}
    assert visible(tree.registry, tree.org.scope) == {"a": A}


def test_a_restriction_hides_what_its_scope_inherits_and_from_all_below_it(tree):
    tree.pen.add(A)
    tree.org.add(B)
    tree.team.add(restrict(deny=["a", "b"]))
    assert [tree.names(pen) for pen in (tree.org, tree.team, tree.agent)] == [["a", "b"], [], []]


def test_a_restriction_never_hides_its_own_scopes_tools(tree):
    """Rule: restrictions are read by peek, so what a scope filters is what it inherits."""
    own = named("a")
    tree.pen.add(A)
    tree.team.add(own)
    tree.team.add(restrict(deny=["a"]))
    assert visible(tree.registry, tree.team.scope) == {"a": own}


def test_an_own_tool_below_a_restriction_is_the_composers_grant(tree):
    tree.pen.add(A)
    tree.team.add(restrict(deny=["a"]))
    tree.agent.add(named("a"))
    assert [tree.names(pen) for pen in (tree.team, tree.agent)] == [[], ["a"]]


def test_allow_hides_what_comes_later_too(tree):
    tree.pen.add(A)
    tree.team.add(restrict(allow=["a"]))
    tree.pen.add(B)
    tree.org.add(C)
    assert [tree.names(pen) for pen in (tree.org, tree.team, tree.agent)] == [["a", "b", "c"], ["a"], ["a"]]


def test_a_name_that_goes_and_returns_is_filtered_again(tree):
    """Rule: a filter holds for names, not for the tools that had them."""
    registration = tree.pen.add(A)
    tree.team.add(restrict(deny=["a"]))
    registration.undo()
    assert tree.names(tree.agent) == []
    tree.org.add(named("a"))
    assert [tree.names(pen) for pen in (tree.org, tree.team, tree.agent)] == [["a"], [], []]


def test_several_restrictions_intersect_and_are_lifted_one_by_one(tree):
    for each in (A, B, C):
        tree.pen.add(each)
    first = tree.team.add(restrict(allow=["a", "b"]))
    second = tree.team.add(restrict(deny=["b"]))
    third = tree.org.add(restrict(allow=["b", "c"]))
    assert tree.names(tree.agent) == []
    third.undo()
    assert tree.names(tree.agent) == ["a"]
    second.undo()
    assert tree.names(tree.agent) == ["a", "b"]
    first.undo()
    assert tree.names(tree.agent) == ["a", "b", "c"]


def test_allow_and_deny_in_one_restriction_both_hold(tree):
    for each in (A, B, C):
        tree.pen.add(each)
    tree.team.add(restrict(allow=["a", "b"], deny=["b"]))
    assert tree.names(tree.team) == ["a"]


def test_the_names_are_copied_when_the_restriction_is_made(tree):
    tree.pen.add(A)
    tree.pen.add(B)
    names = ["a"]
    tree.team.add(restrict(deny=iter(names)))
    names.append("b")
    assert tree.names(tree.team) == ["b"]


def test_a_scope_that_moves_takes_its_restrictions_along():
    registry = Registry()
    pen = make_registrar(registry, Owner("test"), None)
    left, right, agent = map(ScopeKey, ("left", "right", "agent"))
    binding = bind_scope_parent(agent, left)
    pen.at(left).add(A)
    pen.at(right).add(A)
    pen.at(right).add(B)
    pen.at(agent).add(restrict(deny=["a"]))
    assert list(visible(registry, agent)) == []
    binding.rebind(right)
    assert list(visible(registry, agent)) == ["b"]


def test_scopes_that_declare_nothing_share_their_parents_view(tree):
    tree.pen.add(A)
    assert visible(tree.registry, tree.agent.scope) is visible(tree.registry, None)
    assert tree.registry.scopes() == ()


def test_a_view_cannot_be_changed(tree):
    with pytest.raises(TypeError):
        visible(tree.registry, None)["a"] = A


# ---------------------------------------------------------------- what cannot be restricted


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "a restriction without names hides nothing; give allow= or deny= some"),
        ({"deny": []}, "a restriction without names hides nothing; give allow= or deny= some"),
        ({"allow": []}, "an empty allow= hides every tool; give it some names, or use deny="),
        ({"allow": [], "deny": ["a"]}, "an empty allow= hides every tool; give it some names, or use deny="),
        (
            {"allow": [RUN_CODE]},
            "'run_code' belongs to the presentation, not to the visible tools; use present_as()",
        ),
        (
            {"deny": ["a", RUN_CODE]},
            "'run_code' belongs to the presentation, not to the visible tools; use present_as()",
        ),
    ],
)
def test_a_filter_that_says_nothing_sensible_is_refused(options, message):
    with pytest.raises(RegistryError) as caught:
        restrict(**options)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"allow": "read"}, "allow= takes a list, not 'read'; write allow=[...]"),
        ({"deny": "read"}, "deny= takes a list, not 'read'; write deny=[...]"),
        ({"deny": ["a", 3]}, "deny= takes str, and 3 is none; give names"),
        ({"deny": [A]}, "deny= takes str, and Tool 'a' is none; give names"),
    ],
)
def test_a_filter_is_a_list_of_names(options, message):
    with pytest.raises(TypeError) as caught:
        restrict(**options)
    assert str(caught.value) == message


def test_a_global_restriction_is_refused(tree):
    tree.pen.add(A)
    with pytest.raises(RegistryError) as caught:
        tree.pen.add(restrict(deny=["a"]))
    assert str(caught.value) == "a restriction needs a scope: globally, do not register the tool instead"
    assert visible(tree.registry, None) == {"a": A}


def test_unknown_names_are_refused_and_the_known_ones_are_listed(tree):
    tree.pen.add(B)
    tree.org.add(A)
    with pytest.raises(RegistryError) as caught:
        tree.team.add(restrict(allow=["a", "raed"], deny=["raed", "wirte"]))
    assert str(caught.value) == (
        "restriction at scope 'team' names 'raed', 'wirte', which it does not inherit; inherited: a, b"
    )
    assert tree.registry.is_empty(tree.team.scope)


def test_a_name_that_only_the_scope_itself_has_is_refused(tree):
    """Rule: it would hide nothing, so its author thinks of something else."""
    tree.team.add(A)
    with pytest.raises(RegistryError) as caught:
        tree.team.add(restrict(deny=["a"]))
    assert str(caught.value) == (
        "restriction at scope 'team' names 'a', which it does not inherit "
        "('a' is its own, which a restriction never hides; leave it out there, or register it further up); inherited: (none)"
    )


def test_a_name_that_only_a_scope_below_or_beside_has_is_refused(tree):
    tree.agent.add(A)
    tree.pen.at(ScopeKey("sibling")).add(B)
    for name in "ab":
        with pytest.raises(RegistryError, match=rf"^restriction at scope 'team' names '{name}', which it does not"):
            tree.team.add(restrict(deny=[name]))


def test_a_name_that_is_its_own_and_inherited_hides_the_inherited_one(tree):
    tree.pen.add(A)
    own = tree.team.add(named("a"))
    tree.team.add(restrict(deny=["a"]))
    own.undo()
    assert tree.names(tree.team) == []


def test_what_an_ancestor_hides_already_may_be_hidden_again(tree):
    """Rule: known is what the chain has before any restriction, so nothing breaks when the other one is lifted."""
    tree.pen.add(A)
    above = tree.org.add(restrict(deny=["a"]))
    tree.team.add(restrict(deny=["a"]))
    above.undo()
    assert [tree.names(pen) for pen in (tree.org, tree.team)] == [["a"], []]


@tool(inline=True)
def write(path: str) -> None:
    """Write a file."""


async def test_in_a_setup_a_restriction_stands_after_what_it_names():
    """Rule: names are checked where the restriction stands, and a preset's own tools are not inherited by it."""
    model = FunctionModel(lambda request: [say(",".join(schema.name for schema in request.tools) or "none")])
    base = Preset("base", setup=[write])
    tight = Preset("tight", extends="base", setup=[restrict(deny=["write"])])
    async with open_host(model=model, presets=[base, tight]) as host:
        async with host.open_agent(AgentSpec("a"), preset="tight") as agent:
            assert (await agent.ask("?")).text == "none"
        spec = AgentSpec("b", setup=[restrict(deny=["write"])])
        async with host.open_agent(spec, preset="base") as agent:
            assert (await agent.ask("?")).text == "none"
    own = " ('write' is its own, which a restriction never hides; leave it out there, or register it further up)"
    for setup, hint in (([write, restrict(deny=["write"])], own), ([restrict(deny=["write"]), write], "")):
        with pytest.raises(RegistryError) as caught:
            async with open_host(model=model, presets=[Preset("wrong", setup=setup)]):
                raise AssertionError
        assert str(caught.value) == (
            f"restriction at scope 'preset wrong' names 'write', which it does not inherit{hint}; inherited: (none)"
        )


# ---------------------------------------------------------------- how tools are shown


async def test_schemas_and_look_up_read_the_same_view(bench):
    """Rule: what is hidden from the model is stopped, too, and what is shown can be called."""
    for each in (write, A, B):
        bench.pen.add(each)
    bench.pen.add(tool_provider(bench.registry))
    bench.own.add(restrict(allow=["write"]))
    assembly = await assemble(bench.registry, AssembleContext(bench.agent.scope))
    assert assembly.tools == (write.schema,)
    assert [(await bench.call(name, path="x")).code for name in ("write", "a", "b")] == [
        "",
        "unknown-tool",
        "unknown-tool",
    ]


def test_known_names_are_those_before_any_restriction(tree):
    for each in (A, B):
        tree.pen.add(each)
    tree.team.add(restrict(deny=["a"]))
    view = tree.registry.read(VISIBLE, tree.agent.scope)
    assert view.known_names == {"a", "b"}
    assert view.schemas.known_names == {"a", "b"}
    assert view.schemas.schemas == (B.schema,)


def test_a_presentation_says_how_a_scope_shows_its_tools(tree):
    tree.team.add(present_as("native"))
    assert tree.registry.merge(Presentation, tree.agent.scope)["presentation"].mode == "native"
    with pytest.raises(DuplicateNameError):
        tree.team.add(present_as("native"))


@pytest.mark.parametrize("mode", ["code", "hybrid"])
def test_a_mode_that_needs_a_code_runtime_is_refused_without_one(tree, mode):
    with pytest.raises(PluginError) as caught:
        tree.team.add(present_as(mode))
    assert str(caught.value) == (
        f"present_as('{mode}') at scope 'team' needs the plugin code_mode() of creche.codemode, mounted there or above"
    )


def test_a_global_presentation_is_refused(tree):
    with pytest.raises(RegistryError) as caught:
        tree.pen.add(present_as("native"))
    assert str(caught.value) == "a presentation needs a scope: native is what holds everywhere already"


@pytest.mark.parametrize("mode", ["both", "", None, []])
def test_another_mode_is_refused(mode):
    with pytest.raises(RegistryError) as caught:
        present_as(mode)
    assert str(caught.value) == f"no presentation {mode!r}; there are native, code, hybrid"


def test_equal_restrictions_are_two(tree):
    tree.pen.add(A)
    entry = restrict(deny=["a"])
    first, second = tree.team.add(entry), tree.team.add(entry)
    assert tree.registry.collect(Restriction, tree.team.scope) == (entry, entry)
    first.undo()
    assert tree.names(tree.team) == []
    second.undo()
    assert tree.names(tree.team) == ["a"]

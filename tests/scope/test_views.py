"""A view is kept as long as it is right: nothing is rebuilt without a reason, and nothing is served stale."""

from typing import ClassVar, Literal

import attrs
import pytest

from creche.scope import Derivation, Notification, Registry, ScopeKey, bind_scope_parent


@attrs.frozen
class Note:
    """A named entry."""

    name: str
    text: str = ""
    entry_shape: ClassVar[Literal["named"]] = "named"


@attrs.frozen
class Tag:
    """An anonymous entry."""

    text: str = ""
    entry_shape: ClassVar[Literal["anonymous"]] = "anonymous"


@attrs.frozen
class Ping(Notification):
    """A notification."""

    wire_name: ClassVar[str] = "test/ping"


@pytest.fixture
def chain():
    """Keys ``root``, ``middle``, ``leaf``, bound one under the other, and the binding of the middle one."""
    root, middle, leaf = ScopeKey("root"), ScopeKey("middle"), ScopeKey("leaf")
    binding = bind_scope_parent(middle, root)
    bind_scope_parent(leaf, middle)
    return root, middle, leaf, binding


@pytest.fixture
def counted():
    """A derivation of notes and tags that counts how often it is computed."""
    computed = []

    def derive(levels):
        computed.append(levels)
        return tuple(
            (level.scope and level.scope.label, [[each.entry.text for each in table] for table in level.tables])
            for level in levels
        )

    return Derivation((Note, Tag), derive=derive), computed


# ---------------------------------------------------------------- kept


def test_an_unchanged_view_is_the_same_object(registry, pen, chain):
    _, middle, leaf, _ = chain
    pen.at(middle).add(Note("a"))
    assert registry.merge(Note, leaf) is registry.merge(Note, leaf)


def test_scopes_without_entries_of_their_own_share_the_view_of_the_nearest_that_has_some(registry, pen, chain):
    """Rule: agents without registrations of their own share their preset's view."""
    _, middle, leaf, _ = chain
    bind_scope_parent(sibling := ScopeKey(), middle)
    pen.at(middle).add(Note("a"))
    pen.at(leaf).add(Tag())
    assert registry.merge(Note, leaf) is registry.merge(Note, middle) is registry.merge(Note, sibling)
    assert registry.collect(Tag, middle) is registry.collect(Tag, sibling) is registry.collect(Tag, None)


def test_a_registration_elsewhere_rebuilds_nothing(registry, pen, chain, counted):
    """Rule: one agent's registration never rebuilds another's views."""
    derivation, computed = counted
    root, middle, leaf, _ = chain
    bind_scope_parent(sibling := ScopeKey(), root)
    pen.at(root).add(Note("a"))
    pen.at(leaf).add(Note("b"))
    views = registry.merge(Note, root), registry.merge(Note, leaf)
    registry.read(derivation, leaf)
    with pen.at(sibling).add(Note("c")), pen.at(sibling).add(Tag()):
        assert (registry.merge(Note, root), registry.merge(Note, leaf)) == views
        assert registry.merge(Note, leaf) is views[1]
        assert registry.merge(Note, root) is views[0]
        registry.read(derivation, leaf)
    registry.read(derivation, leaf)
    assert len(computed) == 1
    pen.at(leaf).add(Note("d"))
    assert registry.merge(Note, middle) is views[0]


def test_another_kind_rebuilds_nothing(registry, pen, chain):
    _, _, leaf, _ = chain
    pen.at(leaf).add(Note("a"))
    view = registry.merge(Note, leaf)
    pen.at(leaf).add(Tag())
    pen.at(leaf).on(Ping, print)
    assert registry.merge(Note, leaf) is view


def test_opening_a_scope_rebuilds_nothing(registry, pen, chain, counted):
    derivation, computed = counted
    _, middle, leaf, _ = chain
    pen.at(middle).add(Note("a"))
    registry.read(derivation, leaf)
    for _ in range(3):
        bind_scope_parent(fresh := ScopeKey(), middle)
        registry.read(derivation, fresh)
    assert len(computed) == 1


def test_a_link_that_moves_elsewhere_rebuilds_nothing(registry, pen, chain, counted):
    derivation, computed = counted
    root, _, leaf, _ = chain
    pen.at(root).add(Note("a"))
    registry.read(derivation, leaf)
    binding = bind_scope_parent(other := ScopeKey(), None)
    registry.read(derivation, other)
    binding.rebind(root)
    registry.read(derivation, other)
    registry.read(derivation, leaf)
    assert len(computed) == 1 + 1, "the other scope's first read, of the global layer"


# ---------------------------------------------------------------- right


@pytest.mark.parametrize("at", ["global", "root", "middle", "leaf"])
def test_a_view_follows_every_change_on_its_chain(registry, pen, chain, at):
    root, middle, leaf, _ = chain
    where = {"global": None, "root": root, "middle": middle, "leaf": leaf}[at]
    pen.at(leaf).add(Note("own"))
    assert set(registry.merge(Note, leaf)) == {"own"}
    registration = pen.at(where).add(Note("new"))
    assert set(registry.merge(Note, leaf)) == {"own", "new"}
    registration.undo()
    assert set(registry.merge(Note, leaf)) == {"own"}


def test_a_replaced_entry_is_seen_though_the_table_is_as_long_as_before(registry, pen, chain):
    _, middle, leaf, _ = chain
    first = pen.at(middle).add(Note("a", "first"))
    pen.at(leaf).add(Tag())
    assert registry.merge(Note, leaf)["a"].text == "first"
    first.undo()
    pen.at(middle).add(Note("a", "second"))
    assert registry.merge(Note, leaf)["a"].text == "second"


def test_a_layer_that_is_removed_and_made_anew_is_another_layer(registry, pen, chain):
    _, middle, leaf, _ = chain
    pen.at(leaf).add(Note("own"))
    for text in "abc":
        with pen.at(middle).add(Note("a", text)):
            assert registry.merge(Note, leaf)["a"].text == text
            assert registry.merge(Note, middle)["a"].text == text
    assert set(registry.merge(Note, leaf)) == {"own"}


def test_a_table_that_is_removed_and_made_anew_in_a_layer_that_stays_is_another_table(registry, pen):
    key = ScopeKey()
    pen.at(key).add(Tag("stays"))
    for text in "abc":
        with pen.at(key).add(Note("a", text)):
            assert registry.merge(Note, key)["a"].text == text
        assert registry.merge(Note, key) == {}


def test_a_scope_that_begins_to_declare_something_stops_sharing_at_once(registry, pen, chain):
    """Rule: the contents are shared, never the stamp. Parent and child read in turn."""
    _, middle, leaf, _ = chain
    pen.at(middle).add(Note("a", "middle's"))
    assert registry.merge(Note, leaf) is registry.merge(Note, middle)
    own = pen.at(leaf).add(Note("a", "leaf's"))
    for _ in range(2):
        assert registry.merge(Note, middle)["a"].text == "middle's"
        assert registry.merge(Note, leaf)["a"].text == "leaf's"
    with pen.at(middle).add(Note("b")):
        assert set(registry.merge(Note, middle)) == {"a", "b"}
        assert registry.merge(Note, leaf)["a"].text == "leaf's"
        assert set(registry.merge(Note, leaf)) == {"a", "b"}
    own.undo()
    assert registry.merge(Note, leaf)["a"].text == "middle's"
    assert registry.merge(Note, leaf) is registry.merge(Note, middle)


def test_a_rebind_of_a_middle_key_is_seen_from_below(registry, pen, chain):
    root, middle, leaf, binding = chain
    other = ScopeKey("other")
    pen.at(root).add(Note("a", "root's"))
    pen.at(other).add(Note("a", "other's"))
    pen.at(leaf).add(Note("own"))
    texts = []
    for parent in (other, root, None, other):
        binding.rebind(parent)
        texts.append([registry.merge(Note, key).get("a", Note("-", "none")).text for key in (leaf, middle)])
    assert texts == [["other's"] * 2, ["root's"] * 2, ["none"] * 2, ["other's"] * 2]


def test_a_rebind_to_and_fro_without_a_read_in_between_is_seen_too(registry, pen, chain):
    root, _, leaf, binding = chain
    pen.at(root).add(Note("a", "root's"))
    pen.at(leaf).add(Note("own"))
    assert set(registry.merge(Note, leaf)) == {"own", "a"}
    binding.rebind(None)
    binding.rebind(other := ScopeKey())
    assert set(registry.merge(Note, leaf)) == {"own"}
    pen.at(other).add(Note("b"))
    assert set(registry.merge(Note, leaf)) == {"own", "b"}


def test_binding_a_key_that_was_read_before_is_seen(registry, pen):
    parent, key = ScopeKey("parent"), ScopeKey("key")
    pen.at(parent).add(Note("a"))
    pen.at(key).add(Note("own"))
    assert set(registry.merge(Note, key)) == {"own"}
    bind_scope_parent(key, parent)
    assert set(registry.merge(Note, key)) == {"own", "a"}


def test_binding_a_parent_whose_child_was_read_before_is_seen(registry, pen):
    root, middle, leaf = ScopeKey("root"), ScopeKey("middle"), ScopeKey("leaf")
    bind_scope_parent(leaf, middle)
    pen.at(root).add(Note("a"))
    assert registry.merge(Note, leaf) == {}
    bind_scope_parent(middle, root)
    assert set(registry.merge(Note, leaf)) == {"a"}


def test_a_refused_bind_is_not_seen(registry, pen, chain):
    root, middle, leaf, binding = chain
    pen.at(leaf).add(Note("a"))
    with pytest.raises(Exception, match="below it"):
        binding.rebind(leaf)
    assert registry.merge(Note, middle) == {}
    assert registry.merge(Note, root) == {}
    assert set(registry.merge(Note, leaf)) == {"a"}


def test_two_registries_share_keys_and_no_entries(registry, pen, chain):
    _, _, leaf, _ = chain
    pen.at(leaf).add(Note("a"))
    assert Registry().merge(Note, leaf) == {}
    assert set(registry.merge(Note, leaf)) == {"a"}


# ---------------------------------------------------------------- derivations


def test_a_derivation_is_given_the_levels_that_declared_anything_farthest_first(registry, pen, chain, counted):
    derivation, computed = counted
    root, _, leaf, _ = chain
    pen.at(leaf).add(Tag("t1"))
    pen.add(Note("a", "n1"))
    pen.at(root).add(Tag("t2"))
    pen.at(root).add(Note("a", "n2"))
    pen.at(root).add(Note("b", "n3"))
    assert registry.read(derivation, leaf) == (
        (None, [["n1"], []]),
        ("root", [["n2", "n3"], ["t2"]]),
        ("leaf", [[], ["t1"]]),
    )
    assert [registration.owner.name for registration in computed[0][1].tables[0]] == ["host", "host"]


def test_a_derivation_with_nothing_to_read_is_given_no_levels(registry, chain, counted):
    derivation, computed = counted
    assert registry.read(derivation, chain[2]) == ()
    assert computed == [()]


@pytest.mark.parametrize("entry", [Note("a"), Tag()])
def test_a_derivation_is_computed_anew_when_any_of_its_kinds_changes(registry, pen, chain, counted, entry):
    derivation, computed = counted
    root, _, leaf, _ = chain
    registry.read(derivation, leaf)
    registration = pen.at(root).add(entry)
    assert len(registry.read(derivation, leaf)) == 1
    registration.undo()
    assert registry.read(derivation, leaf) == ()
    assert len(computed) == 2, "the global layer's view was right all the time"


def test_derivations_of_one_kind_do_not_share_values(registry, pen):
    """Rule: each derived form has its own key."""
    pen.add(Note("a"))
    names = Derivation((Note,), derive=lambda levels: [each.name for level in levels for each in level.tables[0]])
    count = Derivation((Note,), derive=lambda levels: sum(len(level.tables[0]) for level in levels))
    assert (registry.read(names, None), registry.read(count, None)) == (["a"], 1)
    assert (registry.read(names, None), registry.read(count, None)) == (["a"], 1)


def test_a_derivation_that_raises_is_tried_again(registry, pen):
    pen.add(Note("a"))
    attempts = []

    def derive(levels):
        attempts.append(levels)
        if len(attempts) == 1:
            raise ValueError("first")
        return "value"

    derivation = Derivation((Note,), derive=derive)
    with pytest.raises(ValueError, match="first"):
        registry.read(derivation, None)
    assert registry.read(derivation, None) == "value"

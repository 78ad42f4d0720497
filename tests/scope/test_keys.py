import gc
import weakref

import pytest

from creche.errors import ScopeBoundError, ScopeCycleError, ScopeError
from creche.scope import ScopeKey, ScopeParentBinding, bind_scope_parent, scope_chain_of, scope_parent_of


def test_a_key_is_its_own_identity_and_its_label_is_for_messages():
    one, other = ScopeKey("same"), ScopeKey("same")
    assert one != other
    assert len({one, other}) == 2
    assert (one.label, repr(one), ScopeKey().label) == ("same", "<ScopeKey 'same'>", "scope")


def test_a_key_cannot_be_subclassed():
    with pytest.raises(TypeError, match=r"^creche.scope.ScopeKey is final, Sub cannot subclass it; hold one instead$"):
        type("Sub", (ScopeKey,), {})


def test_an_unbound_key_stands_under_the_global_layer():
    key = ScopeKey()
    assert scope_parent_of(key) is None
    assert scope_chain_of(key) == (key,)


def test_the_chain_of_the_global_layer_is_empty():
    assert scope_chain_of(None) == ()


def test_a_chain_runs_from_the_key_to_its_farthest_ancestor():
    root, middle, leaf = ScopeKey("root"), ScopeKey("middle"), ScopeKey("leaf")
    bind_scope_parent(middle, root)
    bind_scope_parent(leaf, middle)
    assert scope_chain_of(leaf) == (leaf, middle, root)
    assert scope_parent_of(leaf) is middle


def test_a_key_is_bound_once():
    """Rule: whoever bound a key holds the only handle that can move it."""
    parent, key = ScopeKey("team"), ScopeKey("ann")
    bind_scope_parent(key, parent)
    with pytest.raises(ScopeBoundError) as caught:
        bind_scope_parent(key, ScopeKey("other"))
    assert str(caught.value) == (
        "scope 'ann' is already bound under 'team'; "
        "only the holder of its binding can move it (ScopeParentBinding.rebind)"
    )
    assert scope_parent_of(key) is parent


def test_a_key_can_be_bound_under_the_global_layer_once_too():
    key = ScopeKey("ann")
    binding = bind_scope_parent(key, None)
    assert scope_parent_of(key) is None
    with pytest.raises(ScopeBoundError) as caught:
        bind_scope_parent(key, ScopeKey("team"))
    assert str(caught.value) == (
        "scope 'ann' is already bound under the global layer; "
        "only the holder of its binding can move it (ScopeParentBinding.rebind)"
    )
    binding.rebind(parent := ScopeKey("team"))
    assert scope_chain_of(key) == (key, parent)


def test_a_refused_first_bind_leaves_the_key_free():
    key, below = ScopeKey("key"), ScopeKey("below")
    bind_scope_parent(below, key)
    with pytest.raises(ScopeCycleError):
        bind_scope_parent(key, below)
    bind_scope_parent(key, parent := ScopeKey("parent"))
    assert scope_chain_of(below) == (below, key, parent)


def test_the_holder_of_a_binding_moves_the_key_and_all_below_it():
    first, second = ScopeKey("first"), ScopeKey("second")
    middle, leaf = ScopeKey("middle"), ScopeKey("leaf")
    binding = bind_scope_parent(middle, first)
    bind_scope_parent(leaf, middle)
    assert scope_chain_of(leaf) == (leaf, middle, first)
    binding.rebind(second)
    assert scope_chain_of(leaf) == (leaf, middle, second)
    binding.rebind(None)
    assert scope_chain_of(leaf) == (leaf, middle)
    assert scope_parent_of(middle) is None
    assert repr(binding) == "<ScopeParentBinding of 'middle'>"


def test_rebinding_to_the_same_parent_changes_nothing():
    parent, key = ScopeKey("parent"), ScopeKey("key")
    bind_scope_parent(key, parent).rebind(parent)
    assert scope_chain_of(key) == (key, parent)


def test_a_binding_has_no_public_constructor():
    with pytest.raises(
        TypeError, match=r"^creche.scope.ScopeParentBinding has no public constructor; call what opens or returns one$"
    ):
        ScopeParentBinding(ScopeKey())


@pytest.mark.parametrize("is_read_before", [True, False])
def test_a_key_bound_under_a_key_that_is_bound_later_follows_it(is_read_before):
    root, middle, leaf = ScopeKey("root"), ScopeKey("middle"), ScopeKey("leaf")
    bind_scope_parent(leaf, middle)
    if is_read_before:
        assert scope_chain_of(leaf) == (leaf, middle)
    bind_scope_parent(middle, root)
    assert scope_chain_of(leaf) == (leaf, middle, root)


def test_a_key_that_was_read_before_it_was_bound_has_its_new_chain():
    root, key = ScopeKey("root"), ScopeKey("key")
    assert scope_chain_of(key) == (key,)
    bind_scope_parent(key, root)
    assert scope_chain_of(key) == (key, root)


def test_a_key_is_never_its_own_parent():
    key = ScopeKey("ann")
    with pytest.raises(ScopeCycleError) as caught:
        bind_scope_parent(key, key)
    assert str(caught.value) == "scope 'ann' cannot be bound under 'ann': that is the scope itself"
    assert scope_chain_of(key) == (key,)


def test_a_link_never_makes_a_key_its_own_ancestor_and_a_refused_one_changes_nothing():
    root, middle, leaf = ScopeKey("root"), ScopeKey("middle"), ScopeKey("leaf")
    binding = bind_scope_parent(middle, root)
    bind_scope_parent(leaf, middle)
    sentence = r"^scope 'middle' cannot be bound under 'leaf': that one is below it$"
    with pytest.raises(ScopeCycleError, match=sentence):
        binding.rebind(leaf)
    with pytest.raises(
        ScopeCycleError, match=r"^scope 'middle' cannot be bound under 'middle': that is the scope itself$"
    ):
        binding.rebind(middle)
    with pytest.raises(ScopeError, match=r"^scope 'root' cannot be bound under 'leaf': that one is below it$"):
        bind_scope_parent(root, leaf)
    assert scope_chain_of(leaf) == (leaf, middle, root)


def test_a_cycle_is_seen_along_the_links_as_they_are_now():
    """Rule: what was an ancestor once and is none any more may go below."""
    upper, lower = ScopeKey("upper"), ScopeKey("lower")
    binding = bind_scope_parent(lower, upper)
    assert scope_chain_of(lower) == (lower, upper)
    binding.rebind(None)
    bind_scope_parent(upper, lower)
    assert scope_chain_of(upper) == (upper, lower)
    with pytest.raises(ScopeCycleError):
        binding.rebind(upper)


def test_a_key_that_nobody_holds_is_freed_and_its_children_keep_their_parents():
    parent, key = ScopeKey("parent"), ScopeKey("key")
    bind_scope_parent(key, parent)
    scope_chain_of(key)
    gone = weakref.ref(key)
    del key
    gc.collect()
    assert gone() is None

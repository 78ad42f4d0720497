"""Layers come with the first entry and go with the last; a table takes a name once."""

from typing import ClassVar, Literal

import attrs
import pytest

from creche.errors import DuplicateNameError, RegistryError
from creche.scope import Notification, ScopeKey, Service, bind_scope_parent


@attrs.frozen
class Note:
    """A named entry."""

    name: str
    text: str = ""
    entry_shape: ClassVar[Literal["named"]] = "named"


@attrs.frozen
class Tag:
    """An anonymous entry; equal ones are equal."""

    text: str = ""
    entry_shape: ClassVar[Literal["anonymous"]] = "anonymous"


@attrs.frozen
class Picky:
    """An entry that refuses some names."""

    name: str
    entry_shape: ClassVar[Literal["named"]] = "named"

    def check_registration(self, registry, scope):
        if self.name == "bad":
            raise RegistryError(f"{self.name!r} is refused")


def test_reading_never_makes_a_layer(registry, pen):
    parent, key = ScopeKey("parent"), ScopeKey("key")
    bind_scope_parent(key, parent)
    pen.add(Note("a"))
    for scope in (key, parent, None):
        registry.merge(Note, scope)
        registry.collect(Tag, scope)
        registry.peek(Note, scope)
        registry.peek(Tag, scope)
    assert registry.is_empty(key)
    assert registry.scopes() == ()


def test_a_layer_comes_with_the_first_entry_and_goes_with_the_last(registry, pen):
    key = ScopeKey("key")
    first, second = pen.at(key).add(Note("a")), pen.at(key).add(Tag())
    assert registry.scopes() == (key,)
    first.undo()
    assert not registry.is_empty(key)
    second.undo()
    assert registry.is_empty(key)


def test_a_registration_that_fails_leaves_no_layer(registry, pen):
    key = ScopeKey("key")
    with pytest.raises(RegistryError, match=r"^'bad' is refused$"):
        pen.at(key).add(Picky("bad"))
    with pytest.raises(TypeError, match="unhashable"):
        pen.at(key).add(Note([]))
    assert registry.is_empty(key)


def test_a_registration_that_fails_leaves_a_layer_that_was_there(registry, pen):
    key = ScopeKey("key")
    pen.at(key).add(Note("a", "first"))
    with pytest.raises(DuplicateNameError):
        pen.at(key).add(Note("a", "second"))
    with pytest.raises(RegistryError):
        pen.at(key).add(Picky("bad"))
    assert registry.merge(Note, key) == {"a": Note("a", "first")}


def test_a_name_is_taken_once_in_a_scope(registry, pen):
    """Rule: the message names both owners and says what to do."""
    pen.at(key := ScopeKey("ann")).add(Note("a"))
    with pytest.raises(DuplicateNameError) as caught:
        pen.at(key).add(Note("a"))
    assert str(caught.value) == (
        "Note 'a' is already registered at scope 'ann' by 'host', so 'host' cannot register it there; "
        "register it at a narrower scope to shadow it there, or undo the first"
    )


def test_a_name_is_taken_once_globally(pen, registry, make_pen):
    pen.add(Note("a"))
    with pytest.raises(DuplicateNameError) as caught:
        make_pen("files").add(Note("a"))
    assert str(caught.value) == (
        "Note 'a' is already registered at the global layer by 'host', so 'files' cannot register it there; "
        "register through the agent's own registrar, registrar.at(agent.scope), to override it for one agent"
    )


def test_a_service_takes_its_type_as_a_name(pen):
    pen.provide("text")
    with pytest.raises(DuplicateNameError) as caught:
        pen.add(Service(str, value="other"))
    assert str(caught.value) == (
        "Service 'str' is already registered at the global layer by 'host', so 'host' cannot register it there; "
        "register through the agent's own registrar, registrar.at(agent.scope), to override it for one agent"
    )


def test_two_classes_of_one_name_are_two_services(registry, pen):
    one, other = type("Store", (), {}), type("Store", (), {})
    pen.provide(first := one())
    pen.provide(second := other())
    assert registry.find(one, None) is first
    assert registry.find(other, None) is second


def test_one_name_in_two_scopes_or_of_two_kinds_is_fine(registry, pen):
    pen.add(Note("a"))
    pen.add(Picky("a"))
    pen.at(key := ScopeKey()).add(Note("a"))
    assert len(registry.merge(Note, key)) == 1


def test_a_name_is_free_again_after_its_undo(registry, pen):
    pen.add(Note("a", "first")).undo()
    pen.add(Note("a", "second"))
    assert registry.merge(Note, None) == {"a": Note("a", "second")}


def test_a_stale_undo_does_not_take_back_what_took_the_name_since(registry, pen):
    stale = pen.add(Note("a", "first"))
    stale.undo()
    pen.add(Note("a", "second"))
    stale.undo()
    assert registry.merge(Note, None) == {"a": Note("a", "second")}


def test_two_equal_anonymous_values_are_two_registrations(registry, pen):
    first, second = pen.add(Tag("x")), pen.add(Tag("x"))
    assert registry.collect(Tag, None) == (Tag("x"), Tag("x"))
    first.undo()
    assert registry.collect(Tag, None) == (Tag("x"),)
    second.undo()
    assert registry.collect(Tag, None) == ()


def test_one_value_registered_twice_is_two_registrations(registry, pen):
    tag = Tag("x")
    pen.add(tag)
    pen.add(tag).undo()
    assert registry.collect(Tag, None) == (tag,)


def test_an_entry_whose_name_changes_later_is_taken_back_all_the_same(registry, pen):
    """Rule: the name is what it was at the registration."""

    @attrs.define
    class Loose:
        name: str
        entry_shape: ClassVar[Literal["named"]] = "named"

    loose = Loose("a")
    registration = pen.at(key := ScopeKey()).add(loose)
    loose.name = "b"
    assert list(registry.merge(Loose, key)) == ["a"]
    registration.undo()
    assert registry.is_empty(key)


def test_a_class_that_is_no_kind_of_entry_cannot_be_read(registry):
    for read in (registry.merge, registry.collect, registry.peek):
        with pytest.raises(RegistryError, match=r"^int is not a kind of entry: it has no entry_shape$"):
            read(int, None)


def test_named_kinds_are_merged_and_anonymous_ones_collected(registry):
    class Ping(Notification):
        pass

    with pytest.raises(RegistryError, match=r"^Tag entries are not named: use collect\(\) instead of merge\(\)$"):
        registry.merge(Tag, None)
    with pytest.raises(RegistryError, match=r"^Note entries are not anonymous: use merge\(\) instead of collect\(\)$"):
        registry.collect(Note, None)
    with pytest.raises(RegistryError, match=r"Ping entries are not named: use collect\(\) instead of merge\(\)$"):
        registry.merge(Ping, None)

"""What a scope sees, and what is refused."""

from typing import ClassVar, Literal

import attrs
import pytest

from creche.errors import NotRegisteredError, RegistryError, ScopeClosedError
from creche.scope import Listener, Notification, Operation, ScopeKey, Wrapper, bind_scope_parent


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


class Ping(Notification):
    """A notification."""

    wire_name = "test/ping"


class Brew(Operation[str]):
    """An operation."""

    wire_name = "test/brew"


async def passes(event, go_on):
    return await go_on()


@pytest.fixture
def chain():
    root, middle, leaf = ScopeKey("root"), ScopeKey("middle"), ScopeKey("leaf")
    bind_scope_parent(middle, root)
    bind_scope_parent(leaf, middle)
    return root, middle, leaf


# ---------------------------------------------------------------- reading


def test_the_nearest_scope_wins_a_name(registry, pen, chain):
    root, middle, leaf = chain
    for scope, text in ((leaf, "leaf"), (None, "global"), (root, "root")):
        pen.at(scope).add(Note("a", text))
    assert [registry.merge(Note, scope)["a"].text for scope in (None, root, middle, leaf)] == [
        "global",
        "root",
        "root",
        "leaf",
    ]


def test_a_merge_runs_from_global_to_nearest_and_a_name_taken_over_keeps_its_place(registry, pen, chain):
    root, middle, leaf = chain
    pen.at(leaf).add(Note("d"))
    pen.at(leaf).add(Note("b", "leaf's"))
    pen.at(root).add(Note("c"))
    pen.at(middle).add(Note("a", "middle's"))
    pen.add(Note("a"))
    pen.add(Note("b"))
    assert list(registry.merge(Note, leaf).values()) == [
        Note("a", "middle's"),
        Note("b", "leaf's"),
        Note("c"),
        Note("d"),
    ]


def test_a_collection_runs_from_global_to_nearest_and_nothing_is_shadowed(registry, pen, chain):
    root, middle, leaf = chain
    for scope in (leaf, middle, None, root, middle):
        pen.at(scope).add(Tag(scope.label if scope else "global"))
    texts = [tag.text for tag in registry.collect(Tag, leaf)]
    assert texts == ["global", "root", "middle", "middle", "leaf"]
    assert [tag.text for tag in registry.collect(Tag, root)] == ["global", "root"]


def test_siblings_and_those_below_are_not_seen(registry, pen, chain):
    root, middle, leaf = chain
    bind_scope_parent(sibling := ScopeKey("sibling"), middle)
    pen.at(leaf).add(Note("a"))
    assert [registry.merge(Note, scope) for scope in (sibling, middle, root, None)] == [{}] * 4


def test_none_is_the_global_layer_alone(registry, pen, chain):
    pen.add(Note("a"))
    pen.at(chain[0]).add(Note("b"))
    assert registry.merge(Note, None) == {"a": Note("a")}
    assert registry.collect(Tag, None) == ()


def test_peek_is_chain_blind(registry, pen, chain):
    root, middle, leaf = chain
    pen.add(Note("global"))
    pen.add(Tag("global"))
    pen.at(root).add(Note("root"))
    pen.at(leaf).add(Note("leaf"))
    pen.at(leaf).add(Tag("leaf"))
    assert registry.peek(Note, leaf) == {"leaf": Note("leaf")}
    assert registry.peek(Tag, leaf) == (Tag("leaf"),)
    assert (registry.peek(Note, middle), registry.peek(Tag, middle)) == ({}, ())
    assert (set(registry.peek(Note, None)), registry.peek(Tag, None)) == ({"global"}, (Tag("global"),))


def test_the_kind_of_listeners_and_wrappers_is_the_class_of_their_event(registry, pen, chain):
    _, _, leaf = chain
    pen.on(Ping, print)
    pen.at(leaf).wrap(Brew, passes, here_only=True)
    assert [each.hear for each in registry.collect(Ping, leaf)] == [print]
    assert [(each.wrap, each.here_only) for each in registry.collect(Brew, leaf)] == [(passes, True)]
    assert registry.peek(Ping, leaf) == ()
    assert registry.collect(Listener, leaf) == registry.collect(Wrapper, leaf) == ()


def test_what_is_read_is_finished_and_cannot_be_changed(registry, pen):
    registration = pen.add(Note("a"))
    for read in (registry.merge, registry.peek):
        view = read(Note, None)
        with pytest.raises(TypeError):
            view["b"] = Note("b")
        assert dict(view) == {"a": Note("a")}
    view = registry.merge(Note, None)
    registration.undo()
    assert dict(view) == {"a": Note("a")}, "a view that was given out stays as it was"


def test_a_subclass_is_another_kind(registry, pen):
    @attrs.frozen
    class Special(Note):
        pass

    pen.add(Special("a"))
    assert registry.merge(Note, None) == {}
    assert registry.merge(Special, None) == {"a": Special("a")}


def test_the_scopes_that_declare_anything_can_be_listed(registry, pen, chain):
    root, _, leaf = chain
    pen.add(Note("a"))
    pen.at(root).add(Note("a"))
    pen.at(leaf).add(Note("a"))
    assert set(registry.scopes()) == {root, leaf}
    assert repr(registry) == "<Registry scopes=2 registered=3>"


# ---------------------------------------------------------------- hearing


def test_whether_anybody_listens_is_known_without_an_event(registry, pen, chain):
    assert not registry.hears(Ping)
    with pen.at(chain[2]).on(Ping, print):
        assert registry.hears(Ping)
    assert not registry.hears(Ping)
    with pen.on(Ping, print):
        assert registry.hears(Ping)
    assert not registry.hears(Ping)


# ---------------------------------------------------------------- services


def test_a_service_is_found_by_exact_type_and_the_nearest_wins(registry, pen, chain):
    class Store:
        pass

    class DiskStore(Store):
        pass

    root, middle, leaf = chain
    far, near, disk = Store(), Store(), DiskStore()
    pen.provide(far)
    pen.at(middle).provide(near)
    pen.at(leaf).provide(disk)
    assert [registry.find(Store, scope) for scope in (None, root, middle, leaf)] == [far, far, near, near]
    assert registry.find(DiskStore, leaf) is disk
    assert registry.service_registration(Store, leaf).owner.name == "host"
    assert registry.service_registration(DiskStore, middle) is None


def test_a_missing_service_says_what_is_visible(registry, pen, chain):
    with pytest.raises(NotRegisteredError) as caught:
        registry.find(int, None)
    assert str(caught.value) == (
        "no service int is visible from the global layer; visible: (none); provide one with registrar.provide(service)"
    )
    pen.provide("text")
    pen.at(chain[0]).provide(b"bytes")
    with pytest.raises(LookupError) as caught:
        registry.find(int, chain[2])
    assert str(caught.value) == (
        "no service int is visible from scope 'leaf'; visible: bytes, str; provide one with registrar.provide(service)"
    )


# ---------------------------------------------------------------- refusing, and the end of a scope


def test_an_entry_may_check_its_registration_before_it_is_there(registry, pen):
    seen = []

    @attrs.frozen
    class Careful:
        name: str
        entry_shape: ClassVar[Literal["named"]] = "named"

        def check_registration(self, registry, scope):
            seen.append((scope, dict(registry.peek(Careful, scope))))

    pen.at(key := ScopeKey()).add(Careful("a"))
    pen.at(key).add(Careful("b"))
    assert seen == [(key, {}), (key, {"a": Careful("a")})]


def test_an_entry_may_act_on_its_registration_and_be_told_of_its_undo(registry, pen):
    told = []

    @attrs.frozen
    class Telling:
        name: str
        entry_shape: ClassVar[Literal["named"]] = "named"

        def on_registered(self, registry, registration):
            told.append(("in", list(registry.merge(Telling, None))))
            registration.before_undo = lambda gone: told.append(("before", list(registry.merge(Telling, None)), gone))
            registration.after_undo = lambda gone: told.append(("after", list(registry.merge(Telling, None)), gone))

    registration = pen.add(Telling("a"))
    registration.undo()
    registration.undo()
    assert told == [("in", ["a"]), ("before", ["a"], registration), ("after", [], registration)]


def test_a_registration_whose_entry_fails_to_act_on_it_is_rolled_back(registry, pen):
    @attrs.frozen
    class Failing:
        name: str
        told: list
        entry_shape: ClassVar[Literal["named"]] = "named"

        def on_registered(self, registry, registration):
            registration.after_undo = lambda gone: self.told.append(gone.name)
            raise ValueError("mine")

    with pytest.raises(ValueError, match=r"^mine$"):
        pen.at(key := ScopeKey()).add(Failing("a", told := []))
    assert told == ["a"]
    assert registry.is_empty(key)


def test_closing_a_scope_undoes_what_anybody_registered_there_newest_first(registry, pen, make_pen):
    key, gone = ScopeKey("ann"), []
    for owner in (pen, make_pen("files")):
        for text in "ab":
            registration = owner.at(key).add(Tag(text))
            registration.before_undo = lambda each: gone.append((each.owner.name, each.entry.text))
    pen.add(kept := Tag("global"))
    registry.close_scope(key)
    assert gone == [("files", "b"), ("files", "a"), ("host", "b"), ("host", "a")]
    assert registry.is_empty(key)
    assert registry.collect(Tag, key) == (kept,), "a closed scope still sees its ancestors"


def test_a_closed_scope_takes_no_registrations(registry, pen):
    key = ScopeKey("ann")
    registry.close_scope(key)
    registry.close_scope(key)
    with pytest.raises(ScopeClosedError) as caught:
        pen.at(key).add(Tag())
    assert str(caught.value) == "scope 'ann' is closed, so 'host' cannot register anything there"
    assert registry.is_empty(key)


def test_a_scope_that_is_closing_takes_no_registrations(registry, pen):
    key, refused = ScopeKey("ann"), []

    def register(_):
        with pytest.raises(ScopeClosedError) as caught:
            pen.at(key).add(Tag("late"))
        refused.append(str(caught.value))

    pen.at(key).add(Tag()).before_undo = register
    registry.close_scope(key)
    assert refused == ["scope 'ann' is closed, so 'host' cannot register anything there"]


def test_an_undo_that_fails_stops_no_other_and_the_failures_come_out_together(registry, pen):
    key = ScopeKey()

    def fail(registration):
        raise ValueError(registration.entry.text)

    for text in "abc":
        registration = pen.at(key).add(Tag(text))
        if text != "b":
            registration.before_undo = fail
    with pytest.raises(ExceptionGroup) as caught:
        registry.close_scope(key)
    assert caught.value.message == "some registrations could not be undone"
    assert [str(error) for error in caught.value.exceptions] == ["c", "a"]
    assert registry.is_empty(key)


def test_what_is_no_entry_is_refused(pen):
    def read_file(path):
        """A plain function."""

    with pytest.raises(RegistryError) as caught:
        pen.add(read_file)
    assert str(caught.value) == (
        f"{read_file!r} is not an entry; entries are sections, contexts, variables, tools, restrictions, listeners "
        "and the like (a plain function becomes a tool with @tool)"
    )
    with pytest.raises(RegistryError, match="is not an entry"):
        pen.add(Note)

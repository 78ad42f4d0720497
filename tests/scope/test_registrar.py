"""The pen: who writes where, and how it is taken back."""

from typing import ClassVar, Literal, Protocol

import attrs
import pytest

from creche.errors import DuplicateNameError, NotRegisteredError, RegistryError, ScopeClosedError
from creche.scope import (
    Notification,
    Operation,
    Owner,
    Registrar,
    Registration,
    ScopeKey,
    Service,
    make_registrar,
    place_name,
)


@attrs.frozen
class Note:
    """A named entry."""

    name: str
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


class Store(Protocol):
    """A service's type."""

    def load(self) -> str: ...


class MemoryStore:
    """A service."""

    def load(self) -> str:
        return "loaded"


def test_an_entry_carries_its_owner_its_scope_and_its_place(pen, make_pen):
    key = ScopeKey("ann")
    first = pen.at(key).add(Note("a"))
    second = make_pen("files").add(Tag("x"))
    assert (first.entry, first.kind, first.name, first.scope, first.owner.name) == (Note("a"), Note, "a", key, "host")
    assert (second.entry, second.kind, second.name, second.scope, second.owner.name) == (
        Tag("x"),
        Tag,
        None,
        None,
        "files",
    )
    assert first.place < second.place
    assert repr(first) == "<Registration of Note 'a' of 'host' at scope 'ann'>"
    assert repr(second) == "<Registration of Tag of 'files' at the global layer>"
    assert repr(pen.provide("text")) == "<Registration of Service 'str' of 'host' at the global layer>"


def test_registrars_and_registrations_have_no_public_constructor(registry):
    for handle in (Registrar, Registration):
        with pytest.raises(
            TypeError,
            match=f"^creche.scope.{handle.__name__} has no public constructor; call what opens or returns one$",
        ):
            handle(registry, Owner("x"), None)


def test_an_undo_is_idempotent(registry, pen):
    registration = pen.add(Note("a"))
    registration.undo()
    registration.undo()
    assert registry.merge(Note, None) == {}
    assert repr(registration) == "<Registration of Note 'a' of 'host' at the global layer>"


def test_a_registration_is_a_context_manager(registry, pen):
    with pen.add(Note("a")) as registration:
        assert registration.entry == Note("a")
        assert set(registry.merge(Note, None)) == {"a"}
    assert registry.merge(Note, None) == {}


def test_the_error_of_a_block_comes_out_and_the_entry_is_taken_back(registry, pen):
    with pytest.raises(ValueError, match=r"^mine$"), pen.add(Note("a")):
        raise ValueError("mine")
    assert registry.merge(Note, None) == {}


def test_a_registration_that_was_undone_inside_its_block_is_left_alone(registry, pen):
    with pen.add(Note("a")) as registration:
        registration.undo()
        pen.add(Note("a"))
    assert set(registry.merge(Note, None)) == {"a"}


def test_an_undo_within_an_undo_does_nothing_more(registry, pen):
    registration, calls = pen.add(Note("a")), []
    registration.before_undo = lambda each: (calls.append(each), each.undo())
    registration.undo()
    assert calls == [registration]
    assert registry.merge(Note, None) == {}


def test_the_same_owner_writes_at_another_place(registry, pen):
    key = ScopeKey("ann")
    there = pen.at(key)
    there.add(Note("a"))
    there.at(None).add(Note("b"))
    assert (there.owner, there.scope, there.registry) == ("host", key, registry)
    assert set(registry.peek(Note, key)) == {"a"}
    assert set(registry.peek(Note, None)) == {"b"}
    assert (repr(there), repr(pen)) == (
        "<Registrar of 'host' at scope 'ann'>",
        "<Registrar of 'host' at the global layer>",
    )


def test_another_place_has_the_same_configuration(registry):
    registrar = make_registrar(registry, Owner("files"), None, {"root": "/"})
    assert registrar.at(ScopeKey()).config == {"root": "/"}
    assert make_registrar(registry, Owner("files"), None).config is None


def test_an_owners_end_undoes_what_it_registered_anywhere_newest_first(registry):
    owner, gone = Owner("files"), []
    pen = make_registrar(registry, owner, None)
    for text, scope in (("a", None), ("b", ScopeKey()), ("c", None), ("d", None)):
        pen.at(scope).add(Tag(text)).before_undo = lambda each: gone.append(each.entry.text)
    assert repr(owner) == "<Owner 'files' registrations=4>"
    (one,) = [each for each in owner._registrations if each.entry.text == "c"]
    one.undo()
    owner.close()
    owner.close()
    assert gone == ["c", "d", "b", "a"]
    assert (owner.closed, registry.scopes(), registry.collect(Tag, None)) == (True, (), ())


def test_the_failures_of_an_owners_end_come_out_together(registry):
    owner = Owner("files")
    pen = make_registrar(registry, owner, None)

    def fail(registration):
        raise ValueError(registration.entry.text)

    for text in "ab":
        pen.add(Tag(text)).before_undo = fail
    pen.add(Tag("c"))
    with pytest.raises(ExceptionGroup) as caught:
        owner.close()
    assert caught.value.message == "some registrations could not be undone"
    assert [str(error) for error in caught.value.exceptions] == ["b", "a"]
    assert registry.collect(Tag, None) == ()


def test_an_owner_that_is_closed_registers_nothing(registry):
    owner = Owner("files")
    pen = make_registrar(registry, owner, None)
    owner.check_open()
    owner.close()
    for register in (
        lambda: pen.add(Note("a")),
        lambda: pen.at(ScopeKey()).add(Note("a")),
        lambda: pen.provide("text"),
        lambda: pen.on(Ping, print),
        owner.check_open,
    ):
        with pytest.raises(ScopeClosedError) as caught:
            register()
        assert str(caught.value) == "'files' is closing or closed and cannot register anything any more"
    assert registry.merge(Note, None) == {}


def test_an_owner_that_is_closing_registers_nothing(registry):
    owner, refused = Owner("files"), []
    pen = make_registrar(registry, owner, None)

    def register(_):
        with pytest.raises(ScopeClosedError):
            pen.add(Tag("late"))
        refused.append(1)

    pen.add(Tag()).before_undo = register
    owner.close()
    assert refused == [1]
    assert registry.collect(Tag, None) == ()


def test_a_refused_registration_is_not_the_owners(registry):
    owner = Owner("files")
    pen = make_registrar(registry, owner, None)
    first = pen.add(Note("a"))
    with pytest.raises(DuplicateNameError):
        pen.add(Note("a"))
    first.undo()
    assert repr(owner) == "<Owner 'files' registrations=0>"


# ---------------------------------------------------------------- services


def test_a_service_is_found_by_its_own_class(pen):
    pen.provide(store := MemoryStore())
    assert pen.get(MemoryStore) is store
    assert pen.at(ScopeKey()).get(MemoryStore) is store


def test_a_service_can_be_found_by_another_type_alone(pen):
    pen.provide(store := MemoryStore(), as_=Store)
    assert pen.get(Store) is store
    with pytest.raises(
        NotRegisteredError, match=r"^no service MemoryStore is visible from the global layer; visible: Store;"
    ):
        pen.get(MemoryStore)


def test_a_service_has_the_name_of_its_type_for_messages():
    assert Service(Store, value=MemoryStore()).name == "Store"


def test_a_service_that_is_false_is_found(pen):
    pen.provide("")
    pen.provide(None, as_=int)
    assert (pen.get(str), pen.get(int)) == ("", None)


def test_a_service_taken_back_is_not_found_and_the_farther_one_is_again(pen):
    key = ScopeKey()
    pen.provide("far")
    with pen.at(key).provide("near"):
        assert (pen.get(str), pen.at(key).get(str)) == ("far", "near")
    assert pen.at(key).get(str) == "far"


# ---------------------------------------------------------------- listeners and wrappers


async def late(event):
    """An async function where a plain one belongs."""


async def passes(event, go_on):
    return await go_on()


def test_a_listener_is_a_plain_function(pen):
    with pytest.raises(RegistryError) as caught:
        pen.on(Ping, late)
    assert str(caught.value) == (
        f"the listener {late!r} of Ping is async, and listeners are synchronous; "
        "for what has to wait, let it send_nowait() the event into a memory channel that a task reads"
    )


def test_what_is_no_notification_cannot_be_heard(pen):
    for wrong in (Brew, int, "test/ping"):
        with pytest.raises(RegistryError) as caught:
            pen.on(wrong, print)
        assert str(caught.value) == (
            f"{wrong!r} is not a class of Notification; write on(Event, listener), and around an Operation wrap(Event, wrapper)"
        )


def test_nothing_stands_around_what_is_no_operation(pen):
    for wrong in (Ping, int, None):
        with pytest.raises(RegistryError) as caught:
            pen.wrap(wrong, passes)
        assert str(caught.value) == (
            f"{wrong!r} is not a class of Operation; write wrap(Event, wrapper), and for a Notification on(Event, listener)"
        )


def test_an_operation_that_does_not_say_what_comes_back_cannot_be_wrapped(pen):
    class Vague(Operation):
        pass

    with pytest.raises(TypeError, match=r"Vague does not say what comes back: derive it from Operation\[Result\]$"):
        pen.wrap(Vague, passes)


def test_a_place_has_a_name_for_messages():
    assert (place_name(None), place_name(ScopeKey("ann"))) == ("the global layer", "scope 'ann'")


def what_it_holds(registration):
    return [registration.entry]


def test_what_is_made_of_a_registration_is_made_once(pen):
    """Rule: every view that a registration is in shares what a derivation makes of it; another maker makes its own."""
    registration = pen.add(Tag("a"))
    first = registration.once(what_it_holds)
    assert first == [registration.entry]
    assert registration.once(what_it_holds) is first
    assert registration.once(type) is type(registration)
    assert registration.once(what_it_holds) == first

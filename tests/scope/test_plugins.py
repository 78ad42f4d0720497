"""Mounting: what a setup does stands as a whole, goes as a whole, and comes back with the services it needs."""

import sys
from contextlib import asynccontextmanager, contextmanager
from typing import ClassVar, Literal

import attrs
import pytest
import trio
import trio.testing

from creche.errors import DuplicateNameError, PluginError, RegistryError, ScopeClosedError
from creche.scope import Fault, Mounted, Mounts, Notification, Plugin, ScopeKey, Service, bind_scope_parent, open_mounts


@attrs.frozen
class Note:
    """A named entry."""

    name: str
    entry_shape: ClassVar[Literal["named"]] = "named"


@attrs.frozen
class Ping(Notification):
    """A notification."""

    wire_name: ClassVar[str] = "test/ping"


@attrs.frozen
class Ban:
    """An anonymous entry that narrows authority."""

    what: str
    entry_shape: ClassVar[Literal["anonymous"]] = "anonymous"
    narrows: ClassVar[bool] = True


class Store:
    """A service."""


class Cache:
    """Another."""


@pytest.fixture
def told():
    """What bodies and registrations tell, in order."""
    return []


@pytest.fixture
async def mounts(registry):
    async with open_mounts(registry) as mounts:
        yield mounts


@pytest.fixture
def faults(pen):
    faults = []
    pen.on(Fault, lambda fault: faults.append((fault.owner, fault.what, repr(fault.error))))
    return faults


@pytest.fixture
def body(told):
    """Return a setup function whose body tells when it begins and ends, and registers a note of its name."""

    def make(name, *, slow_exit=False):
        @asynccontextmanager
        async def live(registrar):
            told.append(f"{name} up")
            registrar.add(Note(name))
            try:
                yield
            finally:
                if slow_exit:
                    await trio.sleep(1)
                told.append(f"{name} down")

        return live

    return make


def names(registry, scope=None):
    return list(registry.merge(Note, scope))


def bans(registry, scope=None):
    return [ban.what for ban in registry.collect(Ban, scope)]


def noted(told, name):
    """Return a setup function that registers a note and tells when it goes."""

    def setup(registrar):
        registrar.add(Note(name)).after_undo = lambda _: told.append(f"{name} undone")

    return setup


# ---------------------------------------------------------------- what a setup is made of


async def test_a_setup_is_entries_plugins_and_functions_in_order(registry, mounts, told, body):
    async def later(registrar):
        await trio.lowlevel.checkpoint()
        registrar.add(Note("async"))

    plugin = Plugin(
        "files",
        [
            Note("entry"),
            lambda registrar: registrar.add(Note("function")),
            later,
            body("body"),
            Plugin("inner", [Note("nested")]),
            noted(told, "last"),
        ],
    )
    mounted = await mounts.mount(plugin)
    assert names(registry) == ["entry", "function", "async", "body", "nested", "last"]
    assert (mounted.active, mounted.plugin, mounted.scope, mounted.config) == (True, plugin, None, None)
    assert repr(mounted) == "<Mounted 'files' at the global layer (active)>"
    await mounted.unmount()
    assert names(registry) == []
    assert (mounted.active, repr(mounted)) == (False, "<Mounted 'files' at the global layer (unmounted)>")


async def test_a_contributor_never_needs_to_know_about_scopes(registry, mounts):
    key = ScopeKey("ann")
    below = ScopeKey("below")
    bind_scope_parent(below, key)
    await mounts.mount(Plugin("files", [Note("a"), Plugin("inner", [Note("b")])]), scope=key)
    assert (names(registry, below), names(registry, None)) == (["a", "b"], [])


async def test_entries_carry_the_name_of_their_plugin_and_functions_see_its_config(registry, mounts):
    seen = []

    def setup(registrar):
        seen.append((registrar.owner, registrar.scope, registrar.config))

    key = ScopeKey()
    mounted = await mounts.mount(Plugin("files", [setup, Plugin("inner", [setup])]), scope=key, config={"root": "/"})
    assert seen == [("files", key, {"root": "/"}), ("inner", key, None)]
    assert (mounted.owner.name, mounted.config) == ("files", {"root": "/"})


async def test_a_setup_without_lifespans_has_no_task_and_makes_no_checkpoint(registry, mounts):
    with trio.testing.assert_no_checkpoints():
        mounted = await mounts.mount(Plugin("files", [Note("a"), Plugin("inner", [Note("b")])]))
        await mounted.unmount()


async def test_a_body_has_a_task_of_its_own_that_is_named_after_the_plugin(mounts):
    tasks = []

    @asynccontextmanager
    async def live(registrar):
        tasks.append(trio.lowlevel.current_task())
        yield

    await mounts.mount(Plugin("files", [live]))
    assert tasks[0] is not trio.lowlevel.current_task()
    assert tasks[0].name == "plugin files"


async def test_one_plugin_can_be_mounted_in_many_places(registry, mounts):
    plugin, keys = Plugin("files", [Note("a")]), [ScopeKey(), ScopeKey()]
    first, _ = [await mounts.mount(plugin, scope=key) for key in keys]
    await first.unmount()
    assert [names(registry, key) for key in keys] == [[], ["a"]]


@pytest.mark.parametrize("item", [None, "note", 3, [Note("a")]], ids=repr)
async def test_what_is_no_item_of_a_setup_is_refused(registry, mounts, item):
    with pytest.raises(PluginError) as caught:
        await mounts.mount(Plugin("files", [Note("a"), item]))
    assert str(caught.value) == (
        f"setup of 'files' holds {item!r}; its items are entries, plugins, or functions of a registrar"
    )
    assert names(registry) == []


@contextmanager
def plain_context(registrar):
    """A context manager that is not async."""
    yield


async def generator(registrar):
    """An async generator whose decorator was forgotten."""
    yield


async def returns_a_context(registrar):
    """An async function that returns what it should have entered."""
    return plain_context(registrar)


@pytest.mark.parametrize("function", [plain_context, generator, returns_a_context, lambda registrar: 3])
async def test_a_function_that_returns_something_else_is_refused(registry, mounts, function):
    with pytest.raises(PluginError) as caught:
        await mounts.mount(Plugin("files", [Note("a"), function]))
    message = str(caught.value)
    assert message.startswith("a setup function of 'files' returned ")
    assert message.endswith("; it returns nothing, is async, or is an async context manager")
    assert names(registry) == []


def test_handles_have_no_public_constructor():
    for handle in (Mounted, Mounts):
        with pytest.raises(
            TypeError,
            match=rf"^creche.scope.{handle.__name__} has no public constructor; call what opens or returns one$",
        ):
            handle()


# ---------------------------------------------------------------- a setup that fails


async def test_a_setup_that_fails_halfway_leaves_nothing(registry, mounts, told, body):
    def fail(registrar):
        raise ValueError("mine")

    setup = [Note("a"), body("one"), Plugin("inner", [body("two"), Note("b")]), body("three"), fail, body("never")]
    with pytest.raises(PluginError) as caught:
        await mounts.mount(Plugin("files", setup))
    assert str(caught.value) == "setup of plugin 'files' failed: ValueError('mine')"
    assert repr(caught.value.__cause__) == "ValueError('mine')"
    assert names(registry) == []
    assert told == ["one up", "two up", "three up", "three down", "two down", "one down"]


@pytest.mark.parametrize("kind", ["function", "async", "body", "nested"])
async def test_whatever_kind_of_function_fails_is_the_cause(registry, mounts, kind):
    error = ValueError("mine")

    def plain(registrar):
        registrar.add(Note("late"))
        raise error

    async def later(registrar):
        plain(registrar)

    @asynccontextmanager
    async def live(registrar):
        plain(registrar)
        yield

    item = {"function": plain, "async": later, "body": live, "nested": Plugin("inner", [plain])}[kind]
    with pytest.raises(PluginError) as caught:
        await mounts.mount(Plugin("files", [Note("a"), item]))
    name = "inner" if kind == "nested" else "files"
    assert str(caught.value) == f"setup of plugin '{name}' failed: ValueError('mine')"
    assert caught.value.__cause__ is error
    assert names(registry) == []


async def test_an_error_raised_on_purpose_comes_out_as_itself(registry, mounts, pen):
    pen.add(Note("a"))
    with pytest.raises(DuplicateNameError) as caught:
        await mounts.mount(Plugin("files", [Note("b"), Note("a")]))
    assert str(caught.value) == (
        "Note 'a' is already registered at the global layer by 'host', so 'files' cannot register it there; "
        "register through the agent's own registrar, registrar.at(agent.scope), to override it for one agent"
    )
    assert names(registry) == ["a"]


async def test_an_interrupt_in_a_setup_comes_out_as_itself(registry, mounts, told, body):
    def interrupt(registrar):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await mounts.mount(Plugin("files", [body("one"), interrupt]))
    assert (names(registry), told) == ([], ["one up", "one down"])


async def test_a_plugin_that_failed_registers_nothing_any_more(registry, mounts):
    registrars = []

    def keep(registrar):
        registrars.append(registrar)
        raise ValueError

    with pytest.raises(PluginError):
        await mounts.mount(Plugin("files", [keep]))
    with pytest.raises(ScopeClosedError, match=r"^'files' is closing or closed and cannot register anything any more$"):
        registrars[0].add(Note("late"))


def steps(told, name):
    """Return a setup that waits a second at each of its five steps, and at each exit."""

    @asynccontextmanager
    async def live(registrar):
        registrar.add(Note(f"{name} before"))
        await trio.sleep(1)
        told.append("up")
        try:
            registrar.add(Note(f"{name} live"))
            yield
        finally:
            told.append("down")
            with trio.CancelScope(shield=True):
                await trio.sleep(1)

    async def later(registrar):
        registrar.add(Note(f"{name} async"))
        await trio.sleep(1)

    return [live, later]


@pytest.mark.parametrize("seconds", [each / 2 for each in range(12)])
@pytest.mark.parametrize("repeat", range(3))
async def test_a_mount_that_is_cancelled_at_any_point_leaves_nothing(registry, told, autojump_clock, seconds, repeat):
    """Rule: it stands as a whole or not at all. Trio's order within one tick is random, hence the repetition."""
    plugin = Plugin("files", [*steps(told, "a"), Plugin("inner", steps(told, "b")), *steps(told, "c")])
    async with open_mounts(registry) as mounts:
        with trio.move_on_after(seconds) as scope:
            await mounts.mount(plugin)
        assert scope.cancelled_caught
        assert names(registry) == []
        assert told.count("up") == told.count("down")
        await mounts.mount(plugin)
        assert len(names(registry)) == 9
    assert names(registry) == []
    assert told.count("up") == told.count("down")


async def test_a_mount_that_is_cancelled_in_the_moment_a_body_stands_leaves_nothing(registry, mounts, told):
    """Rule: a body whose start was cancelled too late to stop it belongs to nobody, and must not wait to be ended."""

    @asynccontextmanager
    async def live(registrar):
        registrar.add(Note("a"))
        scope.cancel()
        try:
            yield
        finally:
            told.append("down")

    with trio.CancelScope() as scope:
        await mounts.mount(Plugin("files", [live]))
    assert (scope.cancelled_caught, told, names(registry)) == (True, ["down"], [])


async def test_a_cancelled_mount_does_not_wait_for_slow_exits(registry, mounts, told, body, autojump_clock):
    async def forever(registrar):
        await trio.sleep_forever()

    begun = trio.current_time()
    with trio.move_on_after(5):
        await mounts.mount(Plugin("files", [body("one", slow_exit=True), body("two", slow_exit=True), forever]))
    assert trio.current_time() - begun == 5
    assert told == ["one up", "two up"], "their exits were cancelled, in order"


async def test_a_failed_mount_waits_for_slow_exits(registry, mounts, told, body, autojump_clock):
    def fail(registrar):
        raise ValueError

    begun = trio.current_time()
    with pytest.raises(PluginError):
        await mounts.mount(Plugin("files", [body("one", slow_exit=True), body("two", slow_exit=True), fail]))
    assert trio.current_time() - begun == 2
    assert told == ["one up", "two up", "two down", "one down"]


# ---------------------------------------------------------------- taking down


async def test_registrations_go_at_once_and_newest_first_then_bodies_leave_newest_first(registry, mounts, told, body):
    """Rule: nothing reaches a plugin any more when its exits begin."""
    seen = []

    @asynccontextmanager
    async def watch(registrar):
        yield
        seen.append(names(registry))

    plugin = Plugin(
        "files",
        [
            body("one"),
            noted(told, "a"),
            Plugin("inner", [noted(told, "b"), body("two"), noted(told, "c")]),
            noted(told, "d"),
            body("three"),
            watch,
        ],
    )
    mounted = await mounts.mount(plugin)
    told.clear()
    await mounted.unmount()
    assert told == [
        "d undone",
        "c undone",
        "b undone",
        "a undone",
        "three down",
        "two down",
        "one down",
    ]
    assert seen == [[]]


async def test_what_is_registered_by_a_body_goes_with_it(registry, mounts):
    registrars = []

    @asynccontextmanager
    async def live(registrar):
        registrars.append(registrar)
        yield

    mounted = await mounts.mount(Plugin("files", [live]))
    registrars[0].add(Note("late"))
    registrars[0].at(key := ScopeKey()).add(Note("elsewhere"))
    assert names(registry, key) == ["late", "elsewhere"]
    await mounted.unmount()
    assert names(registry, key) == []


async def test_unmounting_twice_and_at_once_is_one_end(mounts, told, body, autojump_clock):
    mounted = await mounts.mount(Plugin("files", [body("one", slow_exit=True)]))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mounted.unmount)
        nursery.start_soon(mounted.unmount)
        await mounted.unmount()
        assert told == ["one up", "one down"]
    await mounted.unmount()
    assert told == ["one up", "one down"]


async def test_an_unmount_that_is_cancelled_goes_on_in_the_host(registry, mounts, told, body, autojump_clock):
    mounted = await mounts.mount(Plugin("files", [body("one", slow_exit=True), body("two", slow_exit=True)]))
    with trio.move_on_after(0.5) as scope:
        await mounted.unmount()
    assert (scope.cancelled_caught, names(registry), told) == (True, [], ["one up", "two up"])
    await mounted.unmount()
    assert told == ["one up", "two up", "two down", "one down"]


async def test_a_host_that_ends_waits_for_an_unmount_under_way(registry, told, body, autojump_clock):
    async with open_mounts(registry) as mounts:
        mounted = await mounts.mount(Plugin("files", [body("one", slow_exit=True), body("two", slow_exit=True)]))
        with trio.move_on_after(0.5):
            await mounted.unmount()
    assert told == ["one up", "two up", "two down", "one down"]


async def test_an_undo_that_fails_stops_no_other_and_no_exit(registry, mounts, told, body):
    def fail(registration):
        raise ValueError(registration.name)

    def setup(registrar):
        for name in "ab":
            registrar.add(Note(name)).before_undo = fail

    mounted = await mounts.mount(Plugin("files", [body("one"), setup]))
    with pytest.raises(ExceptionGroup) as caught:
        await mounted.unmount()
    assert caught.value.message == "some registrations could not be undone"
    assert [str(error) for error in caught.value.exceptions] == ["b", "a"]
    assert (names(registry), told) == ([], ["one up", "one down"])
    await mounted.unmount()


async def test_an_undo_that_fails_while_the_host_ends_is_a_fault(registry, faults):
    def fail(registration):
        raise ValueError(registration.name)

    def setup(registrar):
        registrar.add(Note("a")).before_undo = fail

    async with open_mounts(registry) as mounts:
        await mounts.mount(Plugin("one", [Note("b")]))
        await mounts.mount(Plugin("files", [setup]))
    assert faults == [("files", "undoing a registration of plugin 'files'", "ValueError('a')")]
    assert names(registry) == []


async def test_a_hundred_mounts_and_unmounts_leave_no_trace(registry, mounts, told, body):
    for _ in range(100):
        mounted = await mounts.mount(Plugin("files", [Note("a"), Plugin("inner", [body("b")], requires=[])]))
        await mounted.unmount()
    assert (len(mounts._mounted), len(mounts._alive), len(mounts._users), len(mounts._waiting)) == (0, 0, 0, 0)
    assert names(registry) == []


# ---------------------------------------------------------------- bodies that fail


def fragile(event, name="frail"):
    """Return a setup function whose body crashes at an event."""

    @asynccontextmanager
    async def live(registrar):
        async def crash():
            await event.wait()
            raise ValueError("mine")

        registrar.add(Note(name))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(crash)
            yield
            nursery.cancel_scope.cancel()

    return live


async def test_a_body_that_crashes_is_unmounted_with_a_fault_and_the_host_lives(registry, mounts, told, body, faults):
    event = trio.Event()
    other = await mounts.mount(Plugin("other", [body("other")]))
    mounted = await mounts.mount(Plugin("files", [body("before"), fragile(event), body("after"), Note("a")]))
    event.set()
    await trio.testing.wait_all_tasks_blocked()
    assert [(owner, what) for owner, what, _ in faults] == [("files", "running plugin 'files'")]
    assert "ValueError('mine')" in faults[0][2]
    assert names(registry) == ["other"]
    assert told[-2:] == ["after down", "before down"]
    assert (mounted.active, other.active) == (False, True)
    assert repr(mounted) == "<Mounted 'files' at the global layer (failed)>"
    await mounted.unmount()


async def test_a_crash_is_reported_when_nothing_of_the_plugin_is_reached_any_more(registry, mounts):
    event, heard = trio.Event(), []

    def listen(registrar):
        registrar.on(Fault, heard.append)

    await mounts.mount(Plugin("files", [listen, fragile(event)]))
    await mounts.mount(
        Plugin("watcher", [lambda registrar: registrar.on(Fault, lambda _: heard.append(names(registry)))])
    )
    event.set()
    await trio.testing.wait_all_tasks_blocked()
    assert heard == [[]]


async def test_a_crash_is_dispatched_at_the_plugins_scope(pen, mounts):
    event, key, heard = trio.Event(), ScopeKey("team"), []
    bind_scope_parent(below := ScopeKey(), key)
    for scope in (key, below):
        pen.at(scope).on(Fault, lambda fault, scope=scope: heard.append(scope))
    await mounts.mount(Plugin("files", [fragile(event)]), scope=key)
    event.set()
    await trio.testing.wait_all_tasks_blocked()
    assert heard == [key]


async def test_a_nested_plugin_that_crashes_takes_itself_down_alone(registry, mounts, faults):
    event = trio.Event()
    mounted = await mounts.mount(Plugin("files", [Note("a"), Plugin("inner", [fragile(event), Note("b")])]))
    event.set()
    await trio.testing.wait_all_tasks_blocked()
    assert (names(registry), mounted.active) == (["a"], True)
    assert [owner for owner, *_ in faults] == ["inner"]


async def test_a_body_that_fails_while_leaving_is_a_fault_and_the_others_leave(registry, mounts, told, body, faults):
    @asynccontextmanager
    async def live(registrar):
        yield
        raise ValueError("mine")

    mounted = await mounts.mount(Plugin("files", [body("one"), live, body("two")]))
    await mounted.unmount()
    assert faults == [("files", "leaving plugin 'files'", "ValueError('mine')")]
    assert told == ["one up", "two up", "two down", "one down"]


async def test_a_body_that_crashes_while_the_setup_goes_on_fails_the_mount(registry, mounts, told, body, faults):
    event = trio.Event()

    async def forever(registrar):
        event.set()
        await trio.sleep_forever()

    with pytest.raises(PluginError) as caught:
        await mounts.mount(Plugin("files", [body("one"), fragile(event), forever]))
    assert str(caught.value).startswith("plugin 'files' crashed while it was being set up: ExceptionGroup(")
    assert isinstance(caught.value.__cause__, ExceptionGroup)
    assert (names(registry), told, len(faults)) == ([], ["one up", "one down"], 1)


async def test_a_crash_beside_a_cancellation_is_still_a_fault(registry, faults):
    """Rule: the host's cancellation goes on as itself, the body's own error does not join it in a group."""

    @asynccontextmanager
    async def live(registrar):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            try:
                yield
            finally:
                raise ValueError("mine")

    with trio.move_on_after(0) as scope:
        async with open_mounts(registry) as mounts:
            with trio.CancelScope(shield=True):
                await mounts.mount(Plugin("files", [live]))
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert [(owner, what) for owner, what, _ in faults] == [("files", "leaving plugin 'files'")]


async def test_a_crash_beside_an_interrupt_is_a_fault_and_the_interrupt_goes_on(registry, faults):
    @asynccontextmanager
    async def live(registrar):
        yield
        raise BaseExceptionGroup("both", [ValueError("mine"), KeyboardInterrupt()])

    with pytest.raises(KeyboardInterrupt):
        async with open_mounts(registry) as mounts:
            await mounts.mount(Plugin("files", [live]))
    assert faults == [("files", "leaving plugin 'files'", "ExceptionGroup('both', [ValueError('mine')])")]


async def test_an_interrupt_in_a_body_ends_the_host_as_itself(registry, told, body):
    @asynccontextmanager
    async def live(registrar):
        async def interrupt():
            raise KeyboardInterrupt

        async with trio.open_nursery() as nursery:
            yield nursery.start_soon(interrupt)

    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the whole block is what raises
        async with open_mounts(registry) as mounts:
            await mounts.mount(Plugin("one", [body("one")]))
            await mounts.mount(Plugin("files", [live, Note("a")]))
            await trio.sleep_forever()
    assert (names(registry), told) == ([], ["one up", "one down"])


# ---------------------------------------------------------------- services


async def test_a_plugin_names_the_services_it_requires_and_is_not_mounted_without(registry, mounts):
    key = ScopeKey("ann")
    with pytest.raises(PluginError) as caught:
        await mounts.mount(Plugin("files", [Note("a")], requires=[Store, Cache]), scope=key)
    assert str(caught.value) == (
        "plugin 'files' requires Store, Cache, which is not visible from scope 'ann'; mount what provides it first"
    )
    assert registry.is_empty(key)


def needs(told, *more):
    """Return a setup function that tells which service it is set up with."""

    def setup(registrar):
        told.append(f"with {registrar.get(Store)}")
        registrar.add(Note("user")).before_undo = lambda _: told.append(f"undone, still {registrar.get(Store)}")

    return setup


async def test_a_service_that_leaves_takes_its_users_down_before_it_goes_and_they_come_back_with_it(
    registry, mounts, pen, told
):
    service = pen.provide("first", as_=Store)
    mounted = await mounts.mount(Plugin("files", [needs(told)], requires=[Store]))
    first_owner = mounted.owner
    service.undo()
    assert told == ["with first", "undone, still first"], "synchronously"
    assert (names(registry), mounted.active) == ([], False)
    assert repr(mounted) == "<Mounted 'files' at the global layer (waiting)>"
    await trio.testing.wait_all_tasks_blocked()
    pen.provide("second", as_=Store)
    await trio.testing.wait_all_tasks_blocked()
    assert told[2:] == ["with second"]
    assert (names(registry), mounted.active) == (["user"], True)
    assert first_owner.closed
    assert not mounted.owner.closed


async def test_a_service_may_come_as_an_entry_and_before_the_mounts_are_open(registry, pen, told):
    service = pen.add(Service(Store, value="first"))
    async with open_mounts(registry) as mounts:
        await mounts.mount(Plugin("files", [needs(told)], requires=[Store]))
        service.undo()
        assert names(registry) == []


async def test_a_user_comes_back_with_the_farther_service_when_the_nearer_leaves(mounts, pen, told):
    key = ScopeKey()
    pen.provide("far", as_=Store)
    near = pen.at(key).provide("near", as_=Store)
    await mounts.mount(Plugin("files", [needs(told)], requires=[Store]), scope=key)
    near.undo()
    await trio.testing.wait_all_tasks_blocked()
    assert told == ["with near", "undone, still near", "with far"]


async def test_a_user_goes_with_the_service_it_was_set_up_with_though_another_is_nearer_by_then(mounts, pen, told):
    key = ScopeKey()
    far = pen.provide("far", as_=Store)
    await mounts.mount(Plugin("files", [needs(told)], requires=[Store]), scope=key)
    pen.at(key).provide("near", as_=Store)
    await trio.testing.wait_all_tasks_blocked()
    assert told == ["with far"], "a nearer one alone is no reason to start anew"
    far.undo()
    await trio.testing.wait_all_tasks_blocked()
    assert told[-1] == "with near"


async def test_other_services_that_come_and_go_change_nothing(mounts, pen, told):
    pen.provide("first", as_=Store)
    await mounts.mount(Plugin("files", [needs(told)], requires=[Store]))
    pen.provide("x", as_=Cache).undo()
    with pen.at(ScopeKey()).provide("elsewhere", as_=Store):
        pass
    await trio.testing.wait_all_tasks_blocked()
    assert told == ["with first"]


async def test_a_plugin_that_waits_for_two_services_comes_back_when_both_are_there(registry, mounts, pen):
    services = [pen.provide(kind(), as_=kind) for kind in (Store, Cache)]
    await mounts.mount(Plugin("files", [Note("a")], requires=[Store, Cache]))
    for service in services:
        service.undo()
    for kind, standing in ((Store, []), (Cache, ["a"])):
        pen.provide(kind())
        await trio.testing.wait_all_tasks_blocked()
        assert names(registry) == standing


async def test_a_chain_of_plugins_goes_at_once_and_comes_back(registry, mounts, told):
    store = await mounts.mount(plugin := Plugin("store", [lambda r: r.provide(Store()), noted(told, "store")]))
    cache = Plugin("cache", [lambda r: r.provide(Cache()), noted(told, "cache")], requires=[Store])
    await mounts.mount(cache)
    await mounts.mount(Plugin("files", [noted(told, "files")], requires=[Cache]))
    await store.unmount()
    assert told == ["store undone", "cache undone", "files undone"]
    assert names(registry) == []
    await mounts.mount(plugin)
    await trio.testing.wait_all_tasks_blocked()
    assert sorted(names(registry)) == ["cache", "files", "store"]


async def test_what_provides_a_service_outlives_the_exits_of_what_used_it(mounts, told, body, autojump_clock):
    provider = await mounts.mount(Plugin("store", [lambda r: r.provide(Store()), body("store")]))
    inner = Plugin("inner", [body("inner", slow_exit=True)])
    await mounts.mount(Plugin("user", [body("user", slow_exit=True), inner], requires=[Store]))
    await provider.unmount()
    assert told == ["store up", "user up", "inner up", "inner down", "user down", "store down"]


async def test_a_cancelled_host_does_not_wait_for_the_users_of_a_service(registry, told, body, autojump_clock):
    with trio.move_on_after(0.5):
        async with open_mounts(registry) as mounts:
            provider = await mounts.mount(Plugin("store", [lambda r: r.provide(Store()), body("store")]))
            await mounts.mount(Plugin("user", [body("user", slow_exit=True)], requires=[Store]))
            await provider.unmount()
    assert told == ["store up", "user up", "store down"]
    assert names(registry) == []


async def test_the_users_of_one_service_leave_latest_first(mounts, pen, told):
    service = pen.provide(Store())
    for name in "abc":
        await mounts.mount(Plugin(name, [noted(told, name)], requires=[Store]))
    service.undo()
    assert told == ["c undone", "b undone", "a undone"]


async def test_services_of_others_cost_nothing(registry, mounts, pen):
    """Rule: when a service comes or goes, those are looked at that use it or wait; ten thousand agents may have their own."""

    async def mount(number):
        scope = ScopeKey(f"agent {number}")
        provided = pen.at(scope).provide(Store())
        user = await mounts.mount(Plugin("user", [Note("a")], requires=[Store]), scope=scope)
        return provided, user

    async def count_calls():
        calls = 0

        def count(_frame, event, _argument):
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count)
        try:
            provided, user = await mount("counted")
            provided.undo()
            await user.unmount()
        finally:
            sys.setprofile(None)
        return calls

    await mount(0)
    await count_calls()  # what is made on first use
    few = await count_calls()
    for number in range(1, 100):
        await mount(number)
    assert await count_calls() == few


async def test_a_nested_plugin_comes_and_goes_with_its_services_alone(registry, mounts, pen, told):
    service = pen.provide(Store())
    mounted = await mounts.mount(
        Plugin("files", [Note("a"), Plugin("inner", [Note("b")], requires=[Store]), Note("c")])
    )
    service.undo()
    assert (names(registry), mounted.active) == (["a", "c"], True)
    pen.provide(Store())
    await trio.testing.wait_all_tasks_blocked()
    assert set(names(registry)) == {"a", "b", "c"}
    await mounted.unmount()
    assert names(registry) == []
    pen.provide(Cache()).undo()
    assert not mounts._users
    assert not mounts._waiting


async def test_a_plugin_waits_for_a_nested_one_that_leaves_on_its_own(mounts, pen, told, body, autojump_clock):
    service = pen.provide(Store())
    inner = Plugin("inner", [body("two"), body("three", slow_exit=True)], requires=[Store])
    mounted = await mounts.mount(Plugin("files", [body("one"), inner]))
    service.undo()
    await trio.testing.wait_all_tasks_blocked()
    await mounted.unmount()
    assert told[3:] == ["three down", "two down", "one down"]


async def test_a_plugin_waits_for_a_nested_one_that_is_coming_back(  # noqa: PLR0917 - fixtures
    mounts, pen, slow, told, body, autojump_clock
):
    setup, runs = slow
    service = pen.provide(Store())
    mounted = await mounts.mount(
        Plugin("files", [body("one"), Plugin("inner", [body("two"), setup], requires=[Store])])
    )
    service.undo()
    pen.provide(Store())
    await trio.sleep(0.5)
    assert told == ["one up", "two up", "two down", "two up"]
    await mounted.unmount()
    assert (runs, told[4:], names(mounts.registry)) == (["ended", "cancelled"], ["two down", "one down"], [])


async def test_a_plugin_unmounted_while_it_waits_does_not_come_back(registry, mounts, pen, told):
    service = pen.provide("first", as_=Store)
    mounted = await mounts.mount(Plugin("files", [needs(told)], requires=[Store]))
    service.undo()
    await mounted.unmount()
    pen.provide("second", as_=Store)
    await trio.testing.wait_all_tasks_blocked()
    assert (told, names(registry)) == (["with first", "undone, still first"], [])


async def test_a_service_that_is_replaced_while_a_user_leaves_is_found_when_it_has_left(
    mounts, pen, told, body, autojump_clock
):
    service = pen.provide("first", as_=Store)
    await mounts.mount(Plugin("files", [body("one", slow_exit=True), needs(told)], requires=[Store]))
    service.undo()
    await trio.testing.wait_all_tasks_blocked()
    pen.provide("second", as_=Store)
    await trio.sleep(2)
    assert told == ["one up", "with first", "undone, still first", "one down", "one up", "with second"]


@pytest.fixture
def slow():
    """A setup that waits for a second at each run and says how it came out."""
    runs = []

    async def setup(registrar):
        registrar.add(Note(f"run {len(runs)}"))
        runs.append("began")
        try:
            await trio.sleep(1)
            runs[-1] = "ended"
        except trio.Cancelled:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.5)
            runs[-1] = "cancelled"
            raise

    return setup, runs


async def test_a_service_that_leaves_while_its_user_is_mounted_fails_the_mount(mounts, pen, slow, told, autojump_clock):
    setup, runs = slow
    service = pen.provide(Store())

    async def leave():
        await trio.sleep(0.5)
        service.undo()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(leave)
        with pytest.raises(PluginError) as caught:
            await mounts.mount(Plugin("files", [noted(told, "one"), setup], requires=[Store]))
    assert str(caught.value) == "plugin 'files' was not set up to the end: a service that it requires left meanwhile"
    assert (runs, told, names(mounts.registry)) == (["cancelled"], ["one undone"], [])
    pen.provide(Store())
    await trio.sleep(2)
    assert runs == ["cancelled"], "a mount that failed does not come back"


async def test_a_setup_that_undoes_the_service_it_requires_fails(registry, mounts, pen):
    service = pen.provide(Store())

    def undo(registrar):
        service.undo()

    def late(registrar):
        pytest.fail("the setup went on")

    with pytest.raises(PluginError) as caught:
        await mounts.mount(Plugin("files", [Note("a"), undo, late], requires=[Store]))
    assert str(caught.value) == "plugin 'files' was not set up to the end: a service that it requires left meanwhile"
    assert names(registry) == []


async def test_a_service_that_leaves_while_its_user_comes_back_stops_that_and_it_comes_back_later(
    registry, mounts, pen, slow, autojump_clock
):
    setup, runs = slow
    service = pen.provide(Store())
    mounted = await mounts.mount(Plugin("files", [setup], requires=[Store]))
    service.undo()
    second = pen.provide(Store())
    await trio.sleep(0.5)
    second.undo()
    assert names(registry) == []
    await trio.sleep(2)
    assert (runs, mounted.active) == (["ended", "cancelled"], False)
    pen.provide(Store())
    await trio.sleep(2)
    assert (runs, mounted.active, names(registry)) == (["ended", "cancelled", "ended"], True, ["run 2"])


async def test_a_service_that_leaves_and_is_back_before_that_setup_has_ended_is_found(
    registry, mounts, pen, slow, autojump_clock
):
    setup, runs = slow
    service = pen.provide(Store())
    mounted = await mounts.mount(Plugin("files", [setup], requires=[Store]))
    service.undo()
    second = pen.provide(Store())
    await trio.sleep(0.5)
    second.undo()
    pen.provide(Store())
    await trio.sleep(2)
    assert (runs, mounted.active, names(registry)) == (["ended", "cancelled", "ended"], True, ["run 2"])


async def test_an_unmount_while_it_comes_back_cancels_that_and_waits(registry, mounts, pen, slow, autojump_clock):
    setup, runs = slow
    service = pen.provide(Store())
    mounted = await mounts.mount(Plugin("files", [setup], requires=[Store]))
    service.undo()
    pen.provide(Store())
    await trio.sleep(0.5)
    assert names(registry) == ["run 1"]
    await mounted.unmount()
    assert (runs, names(registry), repr(mounted)) == (
        ["ended", "cancelled"],
        [],
        "<Mounted 'files' at the global layer (unmounted)>",
    )


async def test_a_setup_that_fails_when_it_comes_back_is_a_fault_and_the_end_of_it(registry, mounts, pen, told, faults):
    def setup(registrar):
        registrar.add(Note("a"))
        told.append(registrar.get(Store))
        if registrar.get(Store) == "second":
            raise ValueError("mine")

    service = pen.provide("first", as_=Store)
    mounted = await mounts.mount(Plugin("files", [setup], requires=[Store]))
    for text in ("second", "third"):
        service.undo()
        service = pen.provide(text, as_=Store)
        await trio.testing.wait_all_tasks_blocked()
    assert told == ["first", "second"]
    assert (names(registry), mounted.active) == ([], False)
    cause = "PluginError(\"setup of plugin 'files' failed: ValueError('mine')\")"
    assert faults == [("files", "setting up plugin 'files' again", cause)]


async def test_a_setup_that_fails_when_it_comes_back_is_a_fault_though_it_is_unmounted_meanwhile(
    mounts, pen, body, faults, autojump_clock
):
    def setup(registrar):
        if registrar.get(Store) == "second":
            raise ValueError("mine")

    service = pen.provide("first", as_=Store)
    mounted = await mounts.mount(Plugin("files", [body("one", slow_exit=True), setup], requires=[Store]))
    service.undo()
    pen.provide("second", as_=Store)
    await trio.sleep(1.5)
    await mounted.unmount()
    assert [what for _, what, _ in faults] == ["setting up plugin 'files' again"]


async def test_a_body_that_crashes_while_its_plugin_comes_back_is_one_fault(registry, mounts, pen, faults):
    event = trio.Event()

    async def wait(registrar):
        if registrar.get(Store) == "second":
            event.set()
            await trio.sleep_forever()

    service = pen.provide("first", as_=Store)
    await mounts.mount(Plugin("files", [fragile(event), wait], requires=[Store]))
    service.undo()
    pen.provide("second", as_=Store)
    await trio.testing.wait_all_tasks_blocked()
    assert [(owner, what) for owner, what, _ in faults] == [("files", "running plugin 'files'")]
    assert names(registry) == []


# ---------------------------------------------------------------- what narrows authority


@pytest.fixture
def crash():
    """What the bodies of `fragile` wait for before they crash."""
    return trio.Event()


async def settle(event=None):
    if event is not None:
        event.set()
    await trio.testing.wait_all_tasks_blocked()


async def test_what_narrows_stands_after_a_crash_until_the_plugin_is_unmounted(registry, mounts, crash):
    """Rule: a crash takes away what a plugin gave, never what it forbade."""
    scope = ScopeKey("other")

    def elsewhere(registrar):
        registrar.at(scope).add(Ban("elsewhere"))

    setup = [Ban("own"), Note("a"), elsewhere, Plugin("nested", [Ban("nested"), Note("b")]), fragile(crash)]
    mounted = await mounts.mount(Plugin("files", setup))
    await settle(crash)
    assert (names(registry), mounted.active) == ([], False)
    assert bans(registry, scope) == ["own", "nested", "elsewhere"]
    await mounted.unmount()
    assert bans(registry, scope) == []
    assert not mounts._mounted


@pytest.mark.parametrize("nested", [False, True])
async def test_what_narrows_goes_with_the_host_though_its_plugin_crashed(registry, nested, crash):
    plugin = Plugin("files", [Ban("own"), fragile(crash)])
    async with open_mounts(registry) as mounts:
        await mounts.mount(Plugin("outer", [plugin]) if nested else plugin)
        await settle(crash)
        assert bans(registry) == ["own"]
    assert bans(registry) == []


async def test_what_narrows_goes_with_its_scope_though_its_plugin_crashed(registry, mounts, crash):
    scope = ScopeKey("lead")
    mounted = await mounts.mount(Plugin("files", [Ban("own"), fragile(crash)]), scope=scope)
    await settle(crash)
    assert bans(registry, scope) == ["own"]
    registry.close_scope(scope)
    assert registry.is_empty(scope)
    await mounted.unmount()


async def test_what_a_crashed_nested_plugin_forbade_goes_with_the_outer_one(registry, mounts, crash):
    mounted = await mounts.mount(Plugin("outer", [Plugin("nested", [Ban("nested"), Note("a"), fragile(crash)])]))
    await settle(crash)
    assert (names(registry), bans(registry), mounted.active) == ([], ["nested"], True)
    await mounted.unmount()
    assert bans(registry) == []


async def test_what_narrows_stands_while_its_plugin_waits_and_does_not_pile_up(registry, mounts, pen):
    """Rule: there is no moment without it, and one of each when the plugin is back."""
    seen = []

    async def look(registrar):
        seen.append(bans(registry))
        await trio.lowlevel.checkpoint()

    setup = [look, Ban("own"), Note("a"), Plugin("nested", [Ban("nested")])]
    service = pen.provide("first", as_=Store)
    mounted = await mounts.mount(Plugin("files", setup, requires=[Store]))
    for text in ("second", "third"):
        service.undo()
        assert (names(registry), bans(registry)) == ([], ["own", "nested"])
        await settle()
        service = pen.provide(text, as_=Store)
        await settle()
        assert (names(registry), bans(registry), mounted.active) == (["a"], ["own", "nested"], True)
    assert seen == [[], ["own", "nested"], ["own", "nested"]]
    await mounted.unmount()
    assert bans(registry) == []


async def test_what_a_waiting_nested_plugin_forbade_stands_when_the_outer_one_waits_too(registry, mounts, pen):
    inner, outer = pen.provide("inner", as_=Cache), pen.provide("outer", as_=Store)
    nested = Plugin("nested", [Ban("nested")], requires=[Cache])
    await mounts.mount(Plugin("files", [Ban("own"), nested], requires=[Store]))
    inner.undo()
    await settle()
    outer.undo()
    await settle()
    assert bans(registry) == ["own", "nested"]
    pen.provide("inner", as_=Cache)
    pen.provide("outer", as_=Store)
    await settle()
    assert bans(registry) == ["own", "nested"]


async def test_of_a_nested_plugin_that_is_coming_back_the_earlier_ones_stand_alone(  # noqa: PLR0917 - fixtures
    registry, mounts, pen, slow, crash, autojump_clock
):
    service = pen.provide("first", as_=Store)
    nested = Plugin("nested", [Ban("nested"), slow[0]], requires=[Store])
    mounted = await mounts.mount(Plugin("files", [Ban("own"), nested, fragile(crash)]))
    service.undo()
    pen.provide("second", as_=Store)
    await trio.sleep(0.5)
    assert bans(registry) == ["own", "nested", "nested"]
    crash.set()
    await trio.sleep(0.1)
    assert bans(registry) == ["own", "nested"], "at once"
    await trio.sleep(2)
    assert (slow[1], bans(registry), mounted.active) == (["ended", "cancelled"], ["own", "nested"], False)
    await mounted.unmount()
    assert bans(registry) == []


@pytest.mark.parametrize("how", ["a crash", "a service that leaves"])
async def test_a_mount_that_fails_leaves_nothing_that_narrows(registry, mounts, pen, crash, how):
    service = pen.provide("first", as_=Store)

    async def fail(registrar):
        (crash.set if how == "a crash" else service.undo)()
        await trio.sleep_forever()

    nested = Plugin("nested", [Ban("nested")], requires=[Store])
    with pytest.raises(PluginError):
        await mounts.mount(Plugin("files", [Ban("own"), nested, fragile(crash), fail], requires=[Store]))
    assert bans(registry) == []
    assert not mounts._mounted


async def test_what_narrows_stands_when_the_setup_fails_as_it_comes_back(registry, mounts, pen, faults):
    def setup(registrar):
        if registrar.get(Store) == "second":
            raise ValueError("mine")

    service = pen.provide("first", as_=Store)
    mounted = await mounts.mount(Plugin("files", [Ban("own"), setup], requires=[Store]))
    service.undo()
    pen.provide("second", as_=Store)
    await settle()
    assert (bans(registry), len(faults), mounted.active) == (["own"], 1, False)
    await mounted.unmount()
    assert bans(registry) == []


async def test_what_narrows_goes_when_its_plugin_is_unmounted_while_it_waits_or_comes_back(
    registry, mounts, pen, slow, autojump_clock
):
    service = pen.provide("first", as_=Store)
    plugin = Plugin("files", [Ban("own"), slow[0]], requires=[Store])
    waits, comes_back = await mounts.mount(plugin, scope=ScopeKey("a")), await mounts.mount(plugin, scope=ScopeKey("b"))
    service.undo()
    await waits.unmount()
    assert (bans(registry, waits.scope), bans(registry, comes_back.scope)) == ([], ["own"])
    pen.provide("second", as_=Store)
    await trio.sleep(0.5)
    assert bans(registry, comes_back.scope) == ["own", "own"]
    await comes_back.unmount()
    assert bans(registry, comes_back.scope) == []


async def test_what_cannot_be_undone_of_what_narrowed_is_a_fault_and_the_plugin_is_back(
    registry, mounts, pen, faults, told
):
    def fails(registration):
        raise ValueError("mine")

    def setup(registrar):
        ban = registrar.add(Ban("own"))
        if registrar.get(Store) == "first":
            ban.after_undo = fails

    service = pen.provide("first", as_=Store)
    mounted = await mounts.mount(Plugin("files", [setup], requires=[Store]))
    service.undo()
    pen.provide("second", as_=Store)
    await settle()
    assert (mounted.active, bans(registry)) == (True, ["own"])
    assert faults == [("files", "undoing a registration of plugin 'files'", "ValueError('mine')")]


# ---------------------------------------------------------------- the end of the host


async def test_the_end_of_the_host_unmounts_all_newest_first(registry, told, body):
    async with open_mounts(registry) as mounts:
        for name in "abc":
            await mounts.mount(Plugin(name, [body(f"{name}1"), noted(told, name), body(f"{name}2")]))
        told.clear()
    assert told == [f"{name}{what}" for name in "cba" for what in (" undone", "2 down", "1 down")]
    assert names(registry) == []


async def test_many_lifespans_leave_newest_first(registry, told, body, autojump_clock):
    async with open_mounts(registry) as mounts:
        for number in range(50):
            await mounts.mount(Plugin("files", [body(number, slow_exit=number % 2 == 0)]), scope=ScopeKey())
        told.clear()
    assert told == [f"{number} down" for number in reversed(range(50))]


@pytest.mark.parametrize("repeat", range(5))
async def test_a_cancelled_host_ends_its_lifespans_newest_first_too(registry, told, repeat):
    """Rule: each is cancelled when its turn comes; none waits for what only time would end."""

    def live(name):
        @asynccontextmanager
        async def setup(registrar):
            try:
                yield
            finally:
                told.append(f"{name} leaves")
                try:
                    await trio.sleep_forever()
                except trio.Cancelled:
                    told.append(f"{name} cancelled")
                    with trio.CancelScope(shield=True):
                        await trio.testing.wait_all_tasks_blocked()
                    told.append(f"{name} left")
                    raise

        return setup

    with trio.CancelScope() as scope:
        async with open_mounts(registry) as mounts:
            await mounts.mount(Plugin("a", [live("a1"), Note("a"), live("a2")]))
            await mounts.mount(Plugin("b", [live("b")]))
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert told == [f"{name} {what}" for name in ("b", "a2", "a1") for what in ("leaves", "cancelled", "left")]
    assert names(registry) == []


async def test_cancelling_the_host_leaves_its_plugins_in_place_until_the_block_has_ended(registry, told, body):
    """Rule: what the block does on its way out still finds them."""
    with trio.CancelScope() as scope:
        async with open_mounts(registry) as mounts:
            await mounts.mount(Plugin("files", [body("one")]))
            try:
                scope.cancel()
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.testing.wait_all_tasks_blocked()
                told.append(names(registry))
    assert told == ["one up", ["one"], "one down"]


async def test_a_host_that_is_cancelled_while_it_ends_ends_in_haste(registry, told, body, autojump_clock):
    begun = trio.current_time()
    with trio.move_on_after(1.5):
        async with open_mounts(registry) as mounts:
            for name in "abc":
                await mounts.mount(Plugin(name, [body(name, slow_exit=True)]))
            told.clear()
    assert (told, names(registry)) == (["c down"], []), "the others' slow exits were cancelled"
    assert trio.current_time() - begun == 1.5


async def test_the_error_of_the_block_comes_out_as_itself(registry, told, body):
    error = ValueError("mine")
    with pytest.raises(ValueError, match=r"^mine$") as caught:  # noqa: PT012 - the whole block is what raises
        async with open_mounts(registry) as mounts:
            await mounts.mount(Plugin("files", [body("one")]))
            raise error
    assert caught.value is error
    assert (error.__cause__, error.__context__) == (None, None)
    assert told == ["one up", "one down"]


async def test_an_interrupt_of_the_block_comes_out_as_itself(registry, told, body):
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the whole block is what raises
        async with open_mounts(registry) as mounts:
            await mounts.mount(Plugin("files", [body("one")]))
            raise KeyboardInterrupt
    assert told == ["one up", "one down"]


async def test_an_interrupt_while_the_host_ends_ends_it_all_the_same(registry, told, body, monkeypatch):
    async def interrupt(mounted):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the whole block is what raises
        async with open_mounts(registry) as mounts:
            for name in "ab":
                await mounts.mount(Plugin(name, [body(name)]))
            monkeypatch.setattr(Mounts, "_settled", lambda self, mounted: interrupt(mounted))
    assert sorted(told) == ["a down", "a up", "b down", "b up"]


async def test_a_mount_under_way_when_the_host_ends_is_cancelled(registry, slow, told, body, autojump_clock):
    setup, runs = slow
    raised = []

    async def mount():
        try:
            await mounts.mount(Plugin("files", [body("one"), setup]))
        except PluginError as error:
            raised.append(str(error))

    async with trio.open_nursery() as nursery, open_mounts(registry) as mounts:
        nursery.start_soon(mount)
        await trio.sleep(0.5)
    assert raised == ["plugin 'files' was not set up to the end: it was unmounted meanwhile"]
    assert (runs, told, names(registry)) == (["cancelled"], ["one up", "one down"], [])


async def test_nothing_is_mounted_when_the_host_has_ended_or_ends(registry):
    raised = []

    @asynccontextmanager
    async def live(registrar):
        yield
        try:
            await mounts.mount(Plugin("late", []))
        except ScopeClosedError as error:
            raised.append(str(error))

    async with open_mounts(registry) as mounts:
        mounted = await mounts.mount(Plugin("files", [live]))
    with pytest.raises(ScopeClosedError) as caught:
        await mounts.mount(Plugin("late", []))
    assert str(caught.value) == "the host closes, so plugin 'late' cannot be mounted"
    assert raised == [str(caught.value)]
    await mounted.unmount()


async def test_a_plugin_does_not_come_back_while_the_host_ends(registry, told, body, autojump_clock):
    def provide(text):
        return lambda registrar: registrar.provide(text, as_=Store)

    key = ScopeKey()
    async with open_mounts(registry) as mounts:
        await mounts.mount(Plugin("far", [provide("far")]))
        near = await mounts.mount(Plugin("near", [provide("near")]), scope=key)
        await mounts.mount(Plugin("files", [needs(told)], requires=[Store]), scope=key)
        await near.unmount()
        await mounts.mount(Plugin("near", [provide("near again"), body("near", slow_exit=True)]), scope=key)
        await trio.testing.wait_all_tasks_blocked()
        assert "with near again" in told
        told.clear()
    assert told == ["undone, still near again", "near down"]


async def test_nothing_is_mounted_on_a_closed_scope(registry, mounts, body, told):
    key = ScopeKey("ann")
    registry.close_scope(key)
    with pytest.raises(ScopeClosedError) as caught:
        await mounts.mount(Plugin("files", [body("one")]), scope=key)
    assert str(caught.value) == "scope 'ann' is closed, so 'files' cannot register anything there"
    assert told == []


async def test_a_registry_has_one_place_for_plugins_at_a_time(registry):
    async with open_mounts(registry):
        with pytest.raises(RegistryError) as caught:
            await open_mounts(registry).__aenter__()
    assert str(caught.value) == (
        "the plugins of this registry are mounted elsewhere; a registry has one place for them"
    )
    async with open_mounts(registry) as mounts:
        assert mounts.registry is registry

"""Who hears a notification, and what stands around an operation."""

import functools
import logging
import types
from typing import Any, ClassVar, Literal, Optional, Protocol, TypeVar, Union

import attrs
import pytest
import trio
import trio.testing

from creche.errors import InternalError
from creche.scope import (
    Fault,
    Listener,
    Notification,
    Operation,
    Owner,
    ScopeKey,
    Wrapper,
    bind_scope_parent,
    result_type_of,
)


@attrs.frozen
class Ping(Notification):
    """A notification."""

    wire_name: ClassVar[str] = "test/ping"
    text: str = ""


@attrs.frozen
class Pong(Ping):
    """A subclass of one, which is another class."""


@attrs.frozen
class Brew(Operation[str]):
    """An operation that comes back with a text."""

    wire_name: ClassVar[str] = "test/brew"
    text: str = "tea"


async def innermost(event):
    return event.text


@pytest.fixture
def chain():
    root, middle, leaf = ScopeKey("root"), ScopeKey("middle"), ScopeKey("leaf")
    bind_scope_parent(middle, root)
    bind_scope_parent(leaf, middle)
    return root, middle, leaf


@pytest.fixture
def heard():
    return []


@pytest.fixture
def faults(pen):
    """Every fault of an owner below the global layer, as text."""
    faults = []
    pen.on(Fault, lambda fault: faults.append((fault.owner, fault.what, repr(fault.error))))
    return faults


# ---------------------------------------------------------------- who hears


def test_hearing_is_root_first_and_in_order_of_registration(registry, pen, chain, heard):
    root, middle, leaf = chain
    for number, scope in enumerate((leaf, middle, None, root, leaf, None)):
        name = scope.label if scope else "global"
        pen.at(scope).on(Ping, lambda ping, who=(name, number): heard.append(who))
    registry.emit(Ping(), at=leaf)
    assert heard == [("global", 2), ("global", 5), ("root", 3), ("middle", 1), ("leaf", 0), ("leaf", 4)]


def test_what_is_dispatched_at_a_scope_is_not_heard_below_it_nor_beside_it(registry, pen, chain, heard):
    root, middle, _ = chain
    bind_scope_parent(sibling := ScopeKey("sibling"), root)
    for scope in (None, *chain, sibling):
        pen.at(scope).on(Ping, lambda ping, scope=scope: heard.append(scope))
    registry.emit(Ping(), at=middle)
    assert heard == [None, root, middle]
    heard.clear()
    registry.emit(Ping(), at=sibling)
    assert heard == [None, root, sibling]


def test_what_is_dispatched_at_none_is_heard_globally_alone(registry, pen, chain, heard):
    pen.on(Ping, heard.append)
    pen.at(chain[0]).on(Ping, heard.append)
    registry.emit(Ping("x"), at=None)
    assert heard == [Ping("x")]


def test_a_listener_hears_its_exact_class(registry, pen, heard):
    pen.on(Ping, lambda event: heard.append("ping"))
    pen.on(Pong, lambda event: heard.append("pong"))
    registry.emit(Pong(), at=None)
    assert heard == ["pong"]


def test_a_here_only_listener_hears_what_is_dispatched_at_exactly_its_scope(registry, pen, chain, heard):
    for scope in (None, *chain):
        pen.at(scope).on(Ping, lambda ping, scope=scope: heard.append(scope), here_only=True)
    for scope in (None, *chain):
        registry.emit(Ping(), at=scope)
        assert heard == [scope]
        heard.clear()
    registry.emit(Ping(), at=ScopeKey())
    assert heard == []


def test_here_only_holds_where_the_scope_below_declared_nothing(registry, pen, chain, heard):
    """Both scopes read one kept view; what it says to each is another thing."""
    _, middle, leaf = chain
    pen.at(middle).on(Ping, lambda ping: heard.append("all"))
    pen.at(middle).on(Ping, lambda ping: heard.append("here"), here_only=True)
    for _ in range(2):
        registry.emit(Ping(), at=middle)
        registry.emit(Ping(), at=leaf)
    assert heard == ["all", "here", "all"] * 2


def test_a_scope_whose_only_listeners_are_here_only_is_quiet_for_those_below(registry, pen, chain, heard):
    _, middle, leaf = chain
    pen.at(middle).on(Ping, heard.append, here_only=True)
    registry.emit(Ping(), at=leaf)
    assert heard == []


def test_hearing_follows_a_link_that_moves(registry, pen, heard):
    one, other, key = ScopeKey("one"), ScopeKey("other"), ScopeKey("key")
    binding = bind_scope_parent(key, one)
    for scope in (one, other):
        pen.at(scope).on(Ping, lambda ping, scope=scope: heard.append(scope))
    registry.emit(Ping(), at=key)
    binding.rebind(other)
    registry.emit(Ping(), at=key)
    binding.rebind(None)
    registry.emit(Ping(), at=key)
    assert heard == [one, other]


def test_a_listener_may_come_as_an_entry(registry, pen, heard):
    pen.add(Listener(Ping, hear=heard.append))
    registry.emit(Ping(), at=None)
    assert heard == [Ping()]


# ---------------------------------------------------------------- the list is fixed when the dispatch starts


def test_a_listener_registered_during_a_dispatch_hears_the_next_one(registry, pen, heard):
    def first(ping):
        heard.append("first")
        pen.on(Ping, lambda ping: heard.append("new"))

    registration = pen.on(Ping, first)
    registry.emit(Ping(), at=None)
    assert heard == ["first"]
    registration.undo()
    registry.emit(Ping(), at=None)
    assert heard == ["first", "new"]


def test_a_listener_undone_during_a_dispatch_still_hears_it(registry, pen, heard):
    pen.on(Ping, lambda ping: second.undo())
    second = pen.on(Ping, lambda ping: heard.append("second"))
    registry.emit(Ping(), at=None)
    assert heard == ["second"]
    registry.emit(Ping(), at=None)
    assert heard == ["second"]


def test_a_listener_may_undo_itself(registry, pen, heard):
    registration = pen.on(Ping, lambda ping: (heard.append("once"), registration.undo()))
    pen.on(Ping, lambda ping: heard.append("always"))
    for _ in range(2):
        registry.emit(Ping(), at=None)
    assert heard == ["once", "always", "always"]


def test_a_listener_may_dispatch(registry, pen, chain, heard):
    pen.on(Ping, lambda ping: (heard.append(ping.text), ping.text < "b" and registry.emit(Ping("b"), at=chain[2])))
    pen.at(chain[2]).on(Ping, lambda ping: heard.append(ping.text + " at leaf"))
    registry.emit(Ping("a"), at=chain[2])
    assert heard == ["a", "b", "b at leaf", "a at leaf"]


# ---------------------------------------------------------------- listeners that fail


def fail(event):
    """A listener that raises."""
    raise ValueError("mine")


def test_a_listener_that_raises_starves_nobody_and_is_reported_at_its_owner(registry, pen, make_pen, chain, faults):
    heard = []
    make_pen("files", chain[0]).on(Ping, fail)
    make_pen("web", chain[2]).on(Ping, fail)
    pen.at(chain[2]).on(Ping, heard.append)
    registry.emit(Ping(), at=chain[2])
    assert heard == [Ping()]
    assert faults == [
        ("files", "hearing test/ping", "ValueError('mine')"),
        ("web", "hearing test/ping", "ValueError('mine')"),
    ]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_one_that_raised_is_named_wherever_it_stands(registry, make_pen, faults, place):
    for number in range(3):
        make_pen(f"owner {number}").on(Ping, fail if number == place else (lambda ping: None))
    registry.emit(Ping(), at=None)
    assert [owner for owner, *_ in faults] == [f"owner {place}"]


def test_a_fault_is_dispatched_at_the_owners_scope_wherever_it_registered(registry, pen, make_pen, chain, heard):
    root, middle, leaf = chain
    for scope in (None, *chain):
        pen.at(scope).on(Fault, lambda fault, scope=scope: heard.append(scope))
    make_pen("files", middle).at(leaf).on(Ping, fail)
    registry.emit(Ping(), at=leaf)
    assert heard == [None, root, middle]


def test_a_fault_that_nobody_hears_is_logged(registry, make_pen, chain, caplog):
    make_pen("files", chain[0]).on(Ping, fail)
    registry.emit(Ping(), at=chain[0])
    (record,) = caplog.records
    assert (record.name, record.levelno, record.getMessage()) == (
        "creche",
        logging.ERROR,
        "files failed hearing test/ping",
    )
    assert repr(record.exc_info[1]) == "ValueError('mine')"


def test_a_fault_heard_by_a_here_only_listener_elsewhere_is_logged(registry, pen, make_pen, chain, caplog):
    heard = []
    pen.at(chain[0]).on(Fault, heard.append, here_only=True)
    make_pen("files", chain[1]).on(Ping, fail)
    registry.emit(Ping(), at=chain[1])
    assert (heard, [record.getMessage() for record in caplog.records]) == ([], ["files failed hearing test/ping"])


@pytest.mark.parametrize("by", ["a failing listener", "whoever emits one"])
def test_a_fault_in_a_listener_of_faults_goes_to_logging_alone(registry, pen, make_pen, caplog, by):
    heard = []
    make_pen("watcher").on(Fault, fail)
    pen.on(Fault, lambda fault: heard.append(fault.owner))
    if by == "a failing listener":
        make_pen("files").on(Ping, fail)
        registry.emit(Ping(), at=None)
    else:
        registry.emit(Fault("files", what="testing"), at=None)
    assert heard == ["files"]
    assert [record.getMessage() for record in caplog.records] == ["watcher failed hearing creche/fault"]


def test_a_report_without_an_error_is_heard_and_logged_all_the_same(registry, faults, caplog, chain):
    registry.report(Owner("files"), "leaving a thread behind", None)
    assert faults == [("files", "leaving a thread behind", "None")]
    faults.clear()


def test_an_interrupt_in_a_listener_is_no_fault(registry, pen, faults):
    def interrupt(event):
        raise KeyboardInterrupt

    pen.on(Ping, interrupt)
    with pytest.raises(KeyboardInterrupt):
        registry.emit(Ping(), at=None)
    assert faults == []


# ---------------------------------------------------------------- operations


def wrapper(calls, name):
    async def wrap(event, go_on):
        calls.append(f"{name} in")
        result = await go_on()
        calls.append(f"{name} out")
        return f"{name}({result})"

    return wrap


async def test_an_operation_nobody_wraps_runs_as_it_is(registry, chain):
    assert await registry.around(Brew(), at=chain[2], innermost=innermost) == "tea"
    assert await registry.around(Brew(), at=None, innermost=innermost) == "tea"


async def test_the_root_is_outermost_and_what_comes_back_counts(registry, pen, chain, heard):
    root, middle, leaf = chain
    for scope in (leaf, None, middle, root, leaf):
        name = scope.label if scope else "global"
        pen.at(scope).wrap(Brew, wrapper(heard, name))
    assert await registry.around(Brew(), at=leaf, innermost=innermost) == "global(root(middle(leaf(leaf(tea)))))"
    assert heard[:3] == ["global in", "root in", "middle in"]
    assert heard[-1] == "global out"
    assert await registry.around(Brew(), at=middle, innermost=innermost) == "global(root(middle(tea)))"
    assert await registry.around(Brew(), at=None, innermost=innermost) == "global(tea)"


async def test_a_here_only_wrapper_stands_around_what_is_dispatched_at_exactly_its_scope(registry, pen, chain, heard):
    root, middle, leaf = chain
    pen.at(middle).wrap(Brew, wrapper(heard, "here"), here_only=True)
    results = [await registry.around(Brew(), at=scope, innermost=innermost) for scope in (None, root, middle, leaf)]
    assert results == ["tea", "tea", "here(tea)", "tea"]


async def test_a_wrapper_passes_another_event_inwards(registry, pen, chain):
    async def outer(event, go_on):
        return await go_on(attrs.evolve(event, text="coffee"))

    async def inner(event, go_on):
        return f"{event.text} and {await go_on()}"

    pen.wrap(Brew, outer)
    pen.at(chain[0]).wrap(Brew, inner)
    assert await registry.around(Brew(), at=chain[0], innermost=innermost) == "coffee and coffee"


async def test_another_event_is_of_the_same_class(registry, pen):
    async def wrap(event, go_on):
        return await go_on(Ping("x"))

    pen.wrap(Brew, wrap)
    with pytest.raises(TypeError) as caught:
        await registry.around(Brew(), at=None, innermost=innermost)
    assert str(caught.value) == "next() takes nothing, or another Brew, not Ping(text='x')"


async def test_a_wrapper_that_does_not_call_next_refuses(registry, pen, chain, heard):
    async def refuse(event, go_on):
        return "no"

    async def run(event):
        heard.append(event)

    pen.wrap(Brew, refuse)
    pen.at(chain[0]).wrap(Brew, wrapper(heard, "inner"))
    assert await registry.around(Brew(), at=chain[0], innermost=run) == "no"
    assert heard == []


async def test_a_wrapper_that_calls_next_twice_runs_what_is_inside_twice(registry, pen, chain, heard):
    async def twice(event, go_on):
        return f"{await go_on()} {await go_on(Brew('coffee'))}"

    pen.wrap(Brew, twice)
    pen.at(chain[0]).wrap(Brew, wrapper(heard, "inner"))
    assert await registry.around(Brew(), at=chain[0], innermost=innermost) == "inner(tea) inner(coffee)"
    assert heard == ["inner in", "inner out"] * 2


async def test_a_wrapper_may_try_again_after_an_error(registry, pen):
    async def retry(event, go_on):
        try:
            return await go_on()
        except ValueError:
            return await go_on(Brew("second"))

    async def run(event):
        if event.text != "second":
            raise ValueError(event.text)
        return event.text

    pen.wrap(Brew, retry)
    assert await registry.around(Brew(), at=None, innermost=run) == "second"


async def test_a_wrapper_may_call_next_from_two_tasks_at_once(registry, pen, autojump_clock):
    async def race(event, go_on):
        async with trio.open_nursery() as nursery:
            results = []

            async def one(text):
                results.append(await go_on(Brew(text)))

            nursery.start_soon(one, "a")
            nursery.start_soon(one, "b")
        return " ".join(sorted(results))

    async def run(event):
        await trio.sleep(1)
        return event.text

    pen.wrap(Brew, race)
    begun = trio.current_time()
    assert await registry.around(Brew(), at=None, innermost=run) == "a b"
    assert trio.current_time() - begun == 1


async def test_the_list_of_wrappers_is_fixed_when_the_dispatch_starts(registry, pen, chain, heard):
    async def meddle(event, go_on):
        inner.undo()
        pen.at(chain[0]).wrap(Brew, wrapper(heard, "late"))
        return await go_on()

    pen.wrap(Brew, meddle)
    inner = pen.at(chain[0]).wrap(Brew, wrapper(heard, "inner"))
    assert await registry.around(Brew(), at=chain[0], innermost=innermost) == "inner(tea)"
    assert await registry.around(Brew(), at=chain[0], innermost=innermost) == "late(tea)"


async def test_a_wrapper_may_be_anything_that_returns_an_awaitable(registry, pen):
    class Callable:
        async def __call__(self, event, go_on):
            return await go_on()

    pen.wrap(Brew, Callable())
    pen.wrap(Brew, functools.partial(wrapper([], "partial")))
    pen.add(Wrapper(Brew, wrap=lambda event, go_on: go_on()))
    assert await registry.around(Brew(), at=None, innermost=innermost) == "partial(tea)"


# ---------------------------------------------------------------- what comes back is checked


@pytest.mark.parametrize("wrong", [None, 3])
async def test_a_wrapper_that_returns_something_else_is_blamed_on_its_owner(registry, pen, make_pen, chain, wrong):
    async def wrap(event, go_on):
        await go_on()
        return wrong

    pen.wrap(Brew, wrapper([], "outer"))
    make_pen("files", chain[0]).wrap(Brew, wrap)
    pen.at(chain[1]).wrap(Brew, wrapper([], "inner"))
    with pytest.raises(InternalError) as caught:
        await registry.around(Brew(), at=chain[1], innermost=innermost)
    assert str(caught.value) == (
        f"the wrapper of 'files' at scope 'root' around test/brew returned {wrong!r} where str was expected; "
        "return what `await next()` gives, or a value of that class"
    )
    assert not hasattr(caught.value, "__notes__")


async def test_an_operation_that_gives_something_else_is_not_blamed_on_a_wrapper(registry, pen):
    async def run(event):
        return 3

    pen.wrap(Brew, wrapper([], "outer"))
    with pytest.raises(InternalError) as caught:
        await registry.around(Brew(), at=None, innermost=run)
    assert str(caught.value) == "test/brew itself gave 3 where str was expected"


async def test_an_operation_may_come_back_with_none(registry, pen):
    class Stop(Operation[None]):
        wire_name = "test/stop"

    async def stop(event):
        return None

    async def wrap(event, go_on):
        return await go_on()

    pen.wrap(Stop, wrap)
    assert await registry.around(Stop(), at=None, innermost=stop) is None


class Shown(Protocol):
    """A protocol that cannot be checked at run time."""

    def show(self) -> str: ...


T = TypeVar("T")


class Base(Operation[str]):
    """Says what comes back for its subclasses."""


class Sub(Base):
    """Comes back with what its base says."""


class Pair(Operation[T]):
    """Generic in its result."""


class TextPair(Pair[str]):
    """What comes back is said by its base, as a variable."""


@pytest.mark.parametrize(
    ("result", "checked"),
    [
        (str, str),
        (None, type(None)),
        (str | None, str | None),
        (Optional[str], str | None),  # noqa: UP045 - both spellings
        (Union[str, int], str | int),  # noqa: UP007 - both spellings
        (list[str], list),
        (list[str] | tuple[int, ...], list | tuple),
        (Any, object),
        (object, object),
        (Literal["a"], object),
        (Shown, object),
        (T, object),
    ],
    ids=str,
)
def test_what_can_be_checked_of_a_result_is(result, checked):
    assert result_type_of(types.new_class("Made", (Operation[result],))) == checked


def test_a_result_is_inherited():
    assert (result_type_of(Sub), result_type_of(Pair), result_type_of(TextPair)) == (str, object, object)
    assert result_type_of(Sub) is result_type_of(Sub)


async def test_a_wrapper_cannot_leave_the_members_of_a_union(registry, pen):
    class Ask(Operation[str | None]):
        wire_name = "test/ask"

    async def wrap(event, go_on):
        return await go_on() or 3

    async def ask(event):
        return None

    pen.wrap(Ask, wrap)
    with pytest.raises(InternalError, match=r"returned 3 where str \| None was expected;"):
        await registry.around(Ask(), at=None, innermost=ask)


# ---------------------------------------------------------------- errors and cancellation


async def test_what_a_wrapper_raises_comes_out_as_itself_with_a_note_of_whose_it_is(registry, pen, make_pen, chain):
    async def wrap(event, go_on):
        raise ValueError("mine")

    pen.wrap(Brew, wrapper([], "outer"))
    make_pen("files", chain[0]).wrap(Brew, wrap)
    pen.at(chain[1]).wrap(Brew, wrapper([], "inner"))
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - `match` would read the notes too
        await registry.around(Brew(), at=chain[1], innermost=innermost)
    assert str(caught.value) == "mine"
    assert caught.value.__notes__ == ["raised by the wrapper of 'files' at scope 'root' around test/brew"]


async def test_what_the_operation_raises_is_not_blamed_on_a_wrapper(registry, pen, chain):
    async def run(event):
        raise error

    error = ValueError("the operation's")
    for scope in (None, *chain):
        pen.at(scope).wrap(Brew, wrapper([], "w"))
    with pytest.raises(ValueError, match=r"^the operation's$") as caught:
        await registry.around(Brew(), at=chain[2], innermost=run)
    assert caught.value is error
    assert not hasattr(error, "__notes__")


async def test_a_wrapper_that_translates_an_error_is_whose_the_new_one_is(registry, pen):
    async def translate(event, go_on):
        try:
            return await go_on()
        except ValueError as error:
            raise LookupError("translated") from error

    async def run(event):
        raise ValueError

    pen.wrap(Brew, translate)
    with pytest.raises(LookupError) as caught:
        await registry.around(Brew(), at=None, innermost=run)
    assert caught.value.__notes__ == ["raised by the wrapper of 'host' at the global layer around test/brew"]


async def test_a_wrapper_that_is_no_async_function_is_named(registry, pen):
    pen.wrap(Brew, lambda event, go_on: "tea")
    with pytest.raises(TypeError, match="await") as caught:
        await registry.around(Brew(), at=None, innermost=innermost)
    assert caught.value.__notes__ == ["raised by the wrapper of 'host' at the global layer around test/brew"]


async def test_cancellation_passes_through_wrappers(registry, pen, heard):
    async def clean(event, go_on):
        try:
            return await go_on()
        finally:
            heard.append("cleaned")

    async def run(event):
        await trio.sleep_forever()

    pen.wrap(Brew, clean)
    with trio.move_on_after(0) as scope:
        await registry.around(Brew(), at=None, innermost=run)
    assert (scope.cancelled_caught, heard) == (True, ["cleaned"])


async def test_a_wrapper_that_swallows_cancellation_still_owes_a_result(registry, pen):
    """Swallowing it is the wrapper's bug; the check of its result makes it a loud one."""

    async def swallow(event, go_on):
        try:
            return await go_on()
        except trio.Cancelled:
            return None

    async def run(event):
        await trio.sleep_forever()

    pen.wrap(Brew, swallow)
    with pytest.raises(
        InternalError, match=r"^the wrapper of 'host' at the global layer around test/brew returned None"
    ):
        with trio.move_on_after(0):
            await registry.around(Brew(), at=None, innermost=run)


async def test_a_dispatch_makes_no_checkpoint_of_its_own(registry, pen, chain):
    pen.on(Ping, lambda ping: None)
    pen.wrap(Brew, wrapper([], "w"))
    with trio.testing.assert_no_checkpoints():
        registry.emit(Ping(), at=chain[2])
        await registry.around(Brew(), at=chain[2], innermost=innermost)

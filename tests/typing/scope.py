"""Checked by mypy and pyright, never run: what the door of `creche.scope` promises statically."""

import abc
from collections.abc import Mapping
from typing import ClassVar, Literal, Protocol, assert_type

import attrs

from creche.scope import (
    Derivation,
    Level,
    Listener,
    Mounted,
    Mounts,
    Next,
    Notification,
    Operation,
    Plugin,
    Registrar,
    Registration,
    Registry,
    ScopeKey,
    ScopeParentBinding,
    Service,
    Wrapper,
    bind_scope_parent,
    open_mounts,
    scope_chain_of,
    scope_parent_of,
)


@attrs.frozen
class Note:
    """A named entry."""

    name: str
    entry_shape: ClassVar[Literal["named"]] = "named"


@attrs.frozen
class Tag:
    """An anonymous entry."""

    entry_shape: ClassVar[Literal["anonymous"]] = "anonymous"


@attrs.frozen
class Ping(Notification):
    """A notification."""

    wire_name: ClassVar[str] = "test/ping"


@attrs.frozen
class Pong(Notification):
    """Another."""

    wire_name: ClassVar[str] = "test/pong"


@attrs.frozen
class Brew(Operation[str]):
    """An operation with an argument of its own."""

    wire_name: ClassVar[str] = "test/brew"
    cups: int = attrs.field(kw_only=True)


@attrs.frozen
class Ask(Operation[int | None]):
    """An operation that comes back with a union."""

    wire_name: ClassVar[str] = "test/ask"


@attrs.frozen
class Stop(Operation[None]):
    """An operation that comes back with nothing."""

    wire_name: ClassVar[str] = "test/stop"


class Store(Protocol):
    """A service's type that nothing is an instance of."""

    def load(self) -> str: ...


class Cache(abc.ABC):
    """A service's type that cannot be constructed."""

    @abc.abstractmethod
    def look(self) -> str: ...


class Disk:
    """A service."""

    def load(self) -> str:
        """Be a `Store`."""
        return ""


key = ScopeKey("key")
binding = bind_scope_parent(key, None)
assert_type(binding, ScopeParentBinding)
assert_type(binding.rebind(ScopeKey()), None)
assert_type(scope_chain_of(None), tuple[ScopeKey, ...])
assert_type(scope_parent_of(key), ScopeKey | None)
bind_scope_parent(None, key)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
scope_parent_of(None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# ---------------------------------------------------------------- writing


def on_ping(event: Ping) -> None:
    """Hear a ping."""


def on_any(event: Notification) -> None:
    """Hear anything."""


async def late(event: Ping) -> None:
    """Hear a ping, too late."""


async def brew(event: Brew, next: Next[str]) -> str:  # noqa: A002 - as users write it
    """Stand around brewing."""
    assert_type(event.cups, int)
    assert_type(await next(), str)
    await next(Stop())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    return await next(attrs.evolve(event, cups=2))


async def brew_nothing(event: Brew, next: Next[str]) -> None:  # noqa: A002
    """Forget what comes back."""


async def brew_number(event: Brew, next: Next[int]) -> int:  # noqa: A002
    """Expect something else inside."""
    return await next()


async def ask(event: Ask, next: Next[int | None]) -> int | None:  # noqa: A002
    """Stand around asking."""
    return await next()


async def stop(event: Stop, next: Next[None]) -> None:  # noqa: A002
    """Stand around stopping."""
    await next()


def contribute(registrar: Registrar) -> None:
    """Use every method that writes."""
    assert_type(registrar.add(Note("a")), Registration)
    assert_type(registrar.add(Tag()), Registration)
    assert_type(registrar.add(Listener(Ping, hear=on_ping)), Registration)
    assert_type(registrar.add(Wrapper(Brew, wrap=brew)), Registration)
    assert_type(registrar.add(Service(Store, value=Disk())), Registration)
    registrar.add(Ping())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    registrar.add(on_ping)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with registrar.add(Tag()) as registration:
        assert_type(registration, Registration)

    assert_type(registrar.on(Ping, on_ping), Registration)
    assert_type(registrar.on(Ping, on_any, here_only=True), Registration)
    registrar.on(Ping, lambda event: on_ping(assert_type(event, Ping)))
    registrar.on(Pong, on_ping)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    registrar.on(Ping, late)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    registrar.on(Brew, on_any)  # type: ignore[arg-type, type-var]  # pyright: ignore[reportArgumentType]
    registrar.on(Ping, on_ping, True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

    assert_type(registrar.wrap(Brew, brew), Registration)
    assert_type(registrar.wrap(Ask, ask, here_only=True), Registration)
    assert_type(registrar.wrap(Stop, stop), Registration)
    registrar.wrap(Brew, lambda event, go_on: go_on(assert_type(event, Brew)))
    registrar.wrap(Brew, brew_nothing)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    registrar.wrap(Brew, brew_number)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    registrar.wrap(Ask, brew)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    registrar.wrap(Ping, brew)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    assert_type(registrar.at(None), Registrar)
    assert_type(registrar.at(key).scope, ScopeKey | None)


def use_services(registrar: Registrar) -> None:
    """Provide and find, also by types that cannot be constructed."""
    assert_type(registrar.provide(Disk()), Registration)
    assert_type(registrar.provide(Disk(), as_=Store), Registration)
    assert_type(registrar.get(Disk), Disk)
    assert_type(registrar.get(Store), Store)
    assert_type(registrar.get(Cache), Cache)
    assert_type(registrar.registry.find(Disk, key), Disk)
    assert_type(registrar.registry.find(Store, None), Store)
    registrar.get("Disk")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    registrar.get(Disk())  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


# ---------------------------------------------------------------- reading


def read(registry: Registry) -> None:
    """Use every method that reads."""
    assert_type(registry.merge(Note, key), Mapping[str, Note])
    registry.merge(Tag, key)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    registry.merge(Ping, key)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    registry.merge(Note, key)["a"] = Note("a")  # type: ignore[index]  # pyright: ignore[reportIndexIssue]

    assert_type(registry.collect(Tag, key), tuple[Tag, ...])
    assert_type(registry.collect(Ping, None), tuple[Listener[Ping], ...])
    assert_type(registry.collect(Brew, key), tuple[Wrapper[Brew], ...])
    registry.collect(Note, key)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType, reportCallIssue]

    assert_type(registry.peek(Note, key), Mapping[str, Note])
    assert_type(registry.peek(Tag, key), tuple[Tag, ...])
    assert_type(registry.peek(Ping, key), tuple[Listener[Ping], ...])
    assert_type(registry.peek(Brew, None), tuple[Wrapper[Brew], ...])
    registry.peek(int, key)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType, reportCallIssue]

    assert_type(registry.read(NAMES, key), tuple[str, ...])
    assert_type(registry.hears(Ping), bool)
    registry.hears(Brew)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def _names(levels: tuple[Level, ...]) -> tuple[str, ...]:
    return tuple(str(each.name) for level in levels for each in level.tables[0])


NAMES = Derivation((Note,), derive=_names)
assert_type(NAMES, Derivation[tuple[str, ...]])


# ---------------------------------------------------------------- dispatch


async def run_brew(event: Brew) -> str:
    """Brew."""
    return f"{event.cups} cups"


async def run_number(event: Brew) -> int:
    """Count."""
    return event.cups


async def dispatch(registry: Registry) -> None:
    """Use both ways to dispatch."""
    assert_type(registry.emit(Ping(), at=key), None)
    registry.emit(Ping())  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    registry.emit(Brew(cups=1), at=key)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(await registry.around(Brew(cups=1), at=None, innermost=run_brew), str)
    await registry.around(Ping(), at=None, innermost=run_brew)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await registry.around(Stop(), at=None, innermost=run_brew)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    # pyright widens the result to a union instead; mypy does not.
    await registry.around(Brew(cups=1), at=None, innermost=run_number)  # type: ignore[arg-type]


# ---------------------------------------------------------------- plugins


async def mount(registry: Registry) -> None:
    """Mount what a setup can be made of."""
    plugin = Plugin(
        "files", [Note("a"), Tag(), contribute, mount_nothing, Service(Store, value=Disk())], requires=[Store]
    )
    outer = Plugin("outer", [plugin])
    async with open_mounts(registry) as mounts:
        assert_type(mounts, Mounts)
        assert_type(await mounts.mount(outer, scope=key, config={"root": "/"}), Mounted)
    Plugin("files", [3])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    Plugin("files", [], [Store])  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def mount_nothing(registrar: Registrar) -> None:
    """Be an async item of a setup."""

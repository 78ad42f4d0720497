"""Plugins that come, go, crash and depend on each other in any order, and a host that ends in any way.

Rule: nothing outlives its owner. Whatever happens, in the end every body has left, nothing is registered, and
the only error that comes out is the block's own. A schedule is made from a seed and runs on the virtual clock.
"""

import random
from contextlib import asynccontextmanager
from typing import ClassVar, Literal

import attrs
import pytest
import trio
import trio.testing

from creche.errors import DuplicateNameError, PluginError, ScopeClosedError
from creche.scope import Owner, Plugin, Registry, ScopeKey, bind_scope_parent, make_registrar, open_mounts

SEEDS_A_TEST = 20
SERVICES = tuple([type(f"Service{number}", (), {}) for number in range(3)])


@attrs.frozen
class Tag:
    """An anonymous entry of one mount."""

    root: "Root"
    entry_shape: ClassVar[Literal["anonymous"]] = "anonymous"


@attrs.frozen
class Ban:
    """The same, and it narrows authority, so it outlasts a crash."""

    root: "Root"
    entry_shape: ClassVar[Literal["anonymous"]] = "anonymous"
    narrows: ClassVar[bool] = True


@attrs.define(eq=False)
class Root:
    """One mount, with all that is nested in it."""

    bodies_up: int = 0


class Schedule:
    """One random life of a host."""

    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.registry = Registry()
        self.owner = Owner("host")
        self.pen = make_registrar(self.registry, self.owner, None)
        self.scopes = [None, *[ScopeKey(str(number)) for number in range(3)]]
        bind_scope_parent(self.scopes[2], self.scopes[1])
        self.roots = []
        self.bodies_seen = 0

    # ------------------------------------------------------------ plugins

    def plugin(self, root, depth=0):
        makers = [Tag, self.provider, self.waiter, self.body, self.body]
        if depth < 2:
            makers.append(lambda root: self.plugin(root, depth + 1))
        setup = [self.dice.choice(makers)(root) for _ in range(self.dice.randint(1, 4))]
        return Plugin("plugin", setup, requires=self.dice.sample(SERVICES, self.dice.choice([0, 0, 1, 1, 2])))

    def provider(self, root):
        service = self.dice.choice(SERVICES)

        def provide(registrar):
            try:
                registrar.provide(service())
            except DuplicateNameError:
                registrar.add(Tag(root))

        return provide

    def waiter(self, root):
        seconds, fails = self.dice.choice([0, 0.5, 1]), self.dice.random() < 0.15

        async def wait(registrar):
            registrar.add(Tag(root))
            registrar.add(Ban(root))
            await trio.sleep(seconds)
            if fails:
                raise ValueError("setup")

        return wait

    def body(self, root):
        dice = self.dice
        enter, leave, life = (dice.choice(each) for each in ([0, 0.5, 1], [0, 0.5, 1], [None, None, None, 0.5, 1.5]))
        fails, is_shielded = dice.random() < 0.1, dice.random() < 0.3

        async def crash():
            await trio.sleep(life)
            raise ValueError("crash")

        @asynccontextmanager
        async def live(registrar):
            await trio.sleep(enter)
            registrar.add(Tag(root))
            registrar.add(Ban(root))
            root.bodies_up += 1
            self.bodies_seen += 1
            try:
                async with trio.open_nursery() as nursery:
                    if life is not None:
                        nursery.start_soon(crash)
                    yield
                    nursery.cancel_scope.cancel()
            finally:
                try:
                    with trio.CancelScope(shield=is_shielded):
                        await trio.sleep(leave)
                    if fails:
                        raise ValueError("exit")
                finally:
                    root.bodies_up -= 1

        return live

    # ------------------------------------------------------------ users

    async def mount(self, mounts, mounted):
        """Mount something; if it does not stand, nothing of it is left."""
        root = Root()
        self.roots.append(root)
        try:
            mounted[await mounts.mount(self.plugin(root), scope=self.dice.choice(self.scopes))] = root
        finally:
            if root not in mounted.values():
                self.check_gone(root)

    async def unmount(self, mounted):
        """Unmount something; when that has returned, nothing of it is left."""
        handle, root = self.dice.choice(list(mounted.items()))
        await handle.unmount()
        self.check_gone(root)

    def check_gone(self, root):
        """Check that nothing of a mount lives, and that nothing is registered for it."""
        assert root.bodies_up == 0
        tags = [tag for kind in (Tag, Ban) for scope in self.scopes for tag in self.registry.peek(kind, scope)]
        assert root not in [tag.root for tag in tags]

    async def use(self, mounts):
        """Mount, unmount, provide and take back, each in its own time or cancelled."""
        dice, mounted, services = self.dice, {}, []
        for _ in range(dice.randint(1, 12)):
            what = dice.choice(["mount", "mount", "mount", "unmount", "provide", "undo"])
            with trio.move_on_after(dice.choice([0, 0.25, 0.5, 1, 1.5, 3, 100])):
                try:
                    if what == "mount":
                        await self.mount(mounts, mounted)
                    elif what == "unmount" and mounted:
                        await self.unmount(mounted)
                    elif what == "provide":
                        pen = self.pen.at(dice.choice(self.scopes))
                        services.append(pen.provide(dice.choice(SERVICES)()))
                    elif what == "undo" and services:
                        services.pop().undo()
                except (PluginError, DuplicateNameError, ScopeClosedError):
                    pass  # refused on purpose: what counts is what is left
                await trio.sleep(dice.choice([0, 0, 0.5, 1]))

    async def live(self, ending):
        """Run a host with three users until it ends well, by an error, or cancelled."""
        seconds = self.dice.uniform(0, 6)
        with trio.move_on_after(seconds if ending == "cancelled" else 1000):
            async with trio.open_nursery() as outside, open_mounts(self.registry) as mounts:
                if ending == "a user outside":
                    outside.start_soon(self.use, mounts)
                async with trio.open_nursery() as users:
                    for _ in range(3):
                        users.start_soon(self.use, mounts)
                    if ending == "an error":
                        await trio.sleep(seconds)
                        raise LookupError("mine")


def _run(schedule, ending):
    """Run a schedule and return what came out of it, apart from the block's own error."""
    try:
        trio.run(schedule.live, ending, clock=trio.testing.MockClock(autojump_threshold=0))
    except BaseExceptionGroup as group:
        return group.split(LookupError)[1]


@pytest.mark.parametrize("ending", ["well", "cancelled", "an error", "a user outside"])
@pytest.mark.parametrize("seed", range(5))
def test_nothing_outlives_a_host_however_it_ends(ending, seed):
    seen = 0
    for number in range(SEEDS_A_TEST):
        schedule = Schedule(1000 * seed + number)
        assert _run(schedule, ending) is None
        schedule.owner.close()
        for root in schedule.roots:
            schedule.check_gone(root)
        assert schedule.registry.scopes() == ()
        seen += schedule.bodies_seen
    assert seen > SEEDS_A_TEST, "the schedules have something in them"

"""The registry against a naive model: any order of registrations, undos, binds, rebinds and closings.

The model is plain dicts and lists. It knows each key's parent, walks the chain anew at every question, and
has one list of entries for each kind and scope; a view is these lists, one after the other. After each step the views
of some scopes are compared at every level of their chain, parent and child in turn, because the defects of
the real one would be in what it keeps between reads.
"""

import random
from collections.abc import Iterator
from typing import ClassVar, Literal

import attrs
import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from creche.errors import DuplicateNameError, ScopeBoundError, ScopeClosedError, ScopeCycleError
from creche.scope import (
    Derivation,
    Notification,
    Operation,
    Owner,
    Registration,
    Registry,
    ScopeKey,
    ScopeParentBinding,
    bind_scope_parent,
    make_registrar,
    scope_chain_of,
)


@attrs.frozen
class Note:
    """A named entry; few names, so that they meet."""

    name: str
    text: int
    entry_shape: ClassVar[Literal["named"]] = "named"


@attrs.frozen
class Tag:
    """An anonymous entry; few texts, so that equal ones meet."""

    text: int
    entry_shape: ClassVar[Literal["anonymous"]] = "anonymous"


@attrs.frozen
class Ping(Notification):
    """A notification."""

    wire_name: ClassVar[str] = "test/ping"


@attrs.frozen
class Brew(Operation[tuple[int, ...]]):
    """An operation; each wrapper puts its number in front of what comes back."""

    wire_name: ClassVar[str] = "test/brew"


def _derive_both(levels):
    return tuple(
        (level.scope, tuple(tuple(each.entry for each in table) for table in level.tables)) for level in levels
    )


BOTH = Derivation((Note, Tag), derive=_derive_both)
KINDS = (Note, Tag, Ping, Brew)
NAMES = "abc"
SCOPES = 200


@attrs.define(eq=False)
class Entry:
    """What the model knows of one registration."""

    kind: type
    scope: ScopeKey | None
    value: object
    here_only: bool
    registration: Registration


class Model:
    """What should be true, told naively."""

    def __init__(self) -> None:
        self.parents: dict[ScopeKey, ScopeKey | None] = {}
        self.closed: set[ScopeKey] = set()
        self.tables: dict[tuple[type, ScopeKey | None], list[Entry]] = {}

    def own(self, kind: type, scope: ScopeKey | None) -> list[Entry]:
        """Return what a scope itself declared of a kind, in order of registration."""
        return self.tables.setdefault((kind, scope), [])

    def entries(self) -> list[Entry]:
        """Return all that stands."""
        return [entry for table in self.tables.values() for entry in table]

    def chain(self, scope: ScopeKey | None) -> list[ScopeKey]:
        """Return the chain, nearest first."""
        chain = []
        while scope is not None:
            chain.append(scope)
            scope = self.parents.get(scope)
        return chain

    def levels(self, scope: ScopeKey | None) -> Iterator[ScopeKey | None]:
        """Yield what a scope sees, farthest first."""
        yield None
        yield from reversed(self.chain(scope))

    def seen(self, kind: type, scope: ScopeKey | None) -> list[Entry]:
        """Return the entries of a kind on a chain, farthest first, in order of registration at each level."""
        return [entry for level in self.levels(scope) for entry in self.own(kind, level)]

    def merged(self, scope: ScopeKey | None) -> list[tuple[str, Note]]:
        """Return the notes in the order of their names' first appearance, with the nearest value."""
        view: dict[str, Note] = {}
        for entry in self.seen(Note, scope):
            view[entry.value.name] = entry.value
        return list(view.items())

    def reached(self, kind: type, scope: ScopeKey | None) -> list[int]:
        """Return who hears or wraps what is dispatched at a scope, root first."""
        return [each.value for each in self.seen(kind, scope) if not each.here_only or each.scope is scope]

    def both(self, scope: ScopeKey | None) -> tuple[object, ...]:
        """Return what `BOTH` should be derived to."""
        found = []
        for level in self.levels(scope):
            tables = tuple([tuple([entry.value for entry in self.own(kind, level)]) for kind in (Note, Tag)])
            if any(tables):
                found.append((level, tables))
        return tuple(found)


class Pair:
    """The registry and its model, changed and compared together."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.model = Model()
        self.owner = Owner("host")
        self.pen = make_registrar(self.registry, self.owner, None)
        self.bindings: dict[ScopeKey, ScopeParentBinding] = {}
        self.heard: list[int] = []
        self.number = 0

    # ------------------------------------------------------------ changes

    def open_scope(self) -> ScopeKey:
        """Make a key that nobody has bound."""
        key = ScopeKey(f"scope {len(self.model.parents)}")
        self.model.parents[key] = None
        return key

    def link(self, key: ScopeKey, parent: ScopeKey | None) -> None:
        """Bind a key, or move it if it is bound; a cycle is refused and changes nothing."""
        is_cycle = key in self.model.chain(parent)
        try:
            if key in self.bindings:
                with pytest.raises(ScopeBoundError):
                    bind_scope_parent(key, parent)
                self.bindings[key].rebind(parent)
            else:
                self.bindings[key] = bind_scope_parent(key, parent)
        except ScopeCycleError:
            assert is_cycle
            if key not in self.bindings:  # a refused first bind leaves it free
                self.bindings[key] = bind_scope_parent(key, None)
        else:
            assert not is_cycle
            self.model.parents[key] = parent

    def link_between_reads(self, key: ScopeKey, parents: list[ScopeKey | None], *, with_itself: bool) -> None:
        """Move a key about, each time when the views below it are fresh, and its own too or not."""
        below = [each for each in self.model.parents if each is not key and key in self.model.chain(each)][:10]
        probes = [key, *below] if with_itself else below
        for parent in parents:
            for each in probes:
                self.compare(each)
                self.compare_dispatch(each)
            self.link(key, parent)
        for each in probes:
            self.compare(each)
            self.compare_dispatch(each)

    def register(self, kind: type, scope: ScopeKey | None, choice: int, *, here_only: bool) -> Entry | None:
        """Register something of a kind; a taken name and a closed scope are refused and change nothing."""
        self.number += 1
        number = self.number
        pen = self.pen.at(scope)
        try:
            if kind is Note:
                value = Note(NAMES[choice % len(NAMES)], number)
                registration = pen.add(value)
            elif kind is Tag:
                value = Tag(choice % 3)
                registration = pen.add(value)
            elif kind is Ping:
                value = number
                registration = pen.on(Ping, lambda ping: self.heard.append(number), here_only=here_only)
            else:
                value = number

                async def wrap(event, go_on):
                    return (number, *await go_on())

                registration = pen.wrap(Brew, wrap, here_only=here_only)
        except ScopeClosedError:
            assert scope in self.model.closed
            return None
        except DuplicateNameError:
            assert any(each.value.name == value.name for each in self.model.own(Note, scope))
            return None
        assert scope not in self.model.closed
        assert kind is not Note or all(each.value.name != value.name for each in self.model.own(Note, scope))
        entry = Entry(kind, scope, value, here_only and kind in (Ping, Brew), registration)
        self.model.own(kind, scope).append(entry)
        return entry

    def register_in_vain(self, scope: ScopeKey | None) -> None:
        """Register what no table takes; nothing changes."""
        with pytest.raises((TypeError, ScopeClosedError)):
            self.pen.at(scope).add(Note([], 0))

    def undo(self, entry: Entry) -> None:
        """Take one back; a second time nothing happens."""
        entry.registration.undo()
        table = self.model.own(entry.kind, entry.scope)
        table[:] = [each for each in table if each is not entry]

    def close_scope(self, scope: ScopeKey) -> None:
        """Close a scope: its entries go, its place in the chains stays."""
        self.registry.close_scope(scope)
        self.model.closed.add(scope)
        for kind in KINDS:
            self.model.own(kind, scope).clear()

    def undo_everything(self) -> None:
        """End the owner."""
        self.owner.close()
        self.model.tables.clear()

    # ------------------------------------------------------------ comparisons

    def compare(self, scope: ScopeKey | None) -> None:
        """Compare every view at a scope, contents and order."""
        registry, model = self.registry, self.model
        assert list(scope_chain_of(scope)) == model.chain(scope)
        assert list(registry.merge(Note, scope).items()) == model.merged(scope)
        assert registry.collect(Tag, scope) == tuple([each.value for each in model.seen(Tag, scope)])
        assert registry.read(BOTH, scope) == model.both(scope)
        assert dict(registry.peek(Note, scope)) == {each.value.name: each.value for each in self.model.own(Note, scope)}
        assert registry.peek(Tag, scope) == tuple([each.value for each in self.model.own(Tag, scope)])
        assert len(registry.collect(Ping, scope)) == len(model.seen(Ping, scope))

    def compare_dispatch(self, scope: ScopeKey | None) -> None:
        """Compare who hears what is dispatched at a scope, in order, and what stands around an operation."""
        self.heard.clear()
        self.registry.emit(Ping(), at=scope)
        assert self.heard == self.model.reached(Ping, scope)
        assert list(self._wrapped(scope)) == self.model.reached(Brew, scope)
        assert self.registry.hears(Ping) == any(
            kind is Ping and table for (kind, _), table in self.model.tables.items()
        )

    def compare_chain(self, scope: ScopeKey | None) -> None:
        """Compare at every level of a chain, parent and child in turn: up, and down again."""
        up = [*self.model.chain(scope), None]
        for level in (*up, *reversed(up)):
            self.compare(level)
            self.compare_dispatch(level)

    def compare_layers(self) -> None:
        """Compare where there is a layer: only where something is registered."""
        scopes = self.registry.scopes()
        assert len(scopes) == len(set(scopes))
        assert set(scopes) == {scope for (_, scope), table in self.model.tables.items() if table and scope is not None}

    def _wrapped(self, scope: ScopeKey | None) -> tuple[int, ...]:
        async def innermost(event):
            return ()

        running = self.registry.around(Brew(), at=scope, innermost=innermost)
        try:
            running.send(None)
        except StopIteration as ended:
            return ended.value
        raise AssertionError("a dispatch makes no checkpoint of its own")


class RegistryMachine(RuleBasedStateMachine):
    """Any order of changes, with reads in between."""

    keys = Bundle("keys")
    entries = Bundle("entries")

    @initialize(target=keys, count=st.sampled_from([2, 3, 5, 8, 12, 150]), seed=st.integers(0, 1000))
    def begin(self, count, seed):
        """Begin with some scopes, most of them bound and most with entries, so that there is something to see."""
        self.pair = Pair()
        self.dice = dice = random.Random(seed)
        keys = [self.pair.open_scope() for _ in range(count)]
        for number, key in enumerate(keys):
            if dice.random() < 0.8:
                self.pair.link(key, dice.choice([None, *keys[:number]]))
            for kind in (*KINDS, Note, Tag):
                if dice.random() < 0.3:
                    self.pair.register(kind, key, dice.randrange(3), here_only=dice.random() < 0.3)
        return multiple(*keys)

    @rule(target=keys, parent=st.none() | keys, is_bound=st.booleans(), entry=st.none() | st.integers(0, 2))
    def open_scope(self, parent, is_bound, entry):
        """Open a scope as an agent does: a fresh key, bound at once, often with something of its own."""
        if len(self.pair.model.parents) >= SCOPES:
            return multiple()
        key = self.pair.open_scope()
        if is_bound:
            self.pair.link(key, parent)
        if entry is not None:
            self.pair.register(Note, key, entry, here_only=False)
        return key

    @rule(key=keys, parent=st.none() | keys)
    def link(self, key, parent):
        self.pair.link(key, parent)

    @rule(key=keys, parents=st.lists(st.none() | keys, min_size=1, max_size=3), with_itself=st.booleans())
    def link_between_reads(self, key, parents, with_itself):
        self.pair.link_between_reads(key, parents, with_itself=with_itself)

    @rule(
        target=entries,
        places=st.lists(st.tuples(st.sampled_from(KINDS), st.none() | keys), min_size=1, max_size=6),
        choice=st.integers(0, 2),
        here_only=st.booleans(),
    )
    def register(self, places, choice, here_only):
        made = [self.pair.register(kind, scope, choice, here_only=here_only) for kind, scope in places]
        return multiple(*[entry for entry in made if entry is not None])

    @rule(scope=st.none() | keys)
    def register_in_vain(self, scope):
        self.pair.register_in_vain(scope)

    @rule(entry=consumes(entries))
    def undo(self, entry):
        self.pair.undo(entry)

    @rule(entry=entries)
    def undo_and_keep_the_handle(self, entry):
        self.pair.undo(entry)

    @rule(numbers=st.lists(st.integers(0, 1000), min_size=1, max_size=6))
    def undo_some(self, numbers):
        """Take back some of all that stands, also of what the scopes began with."""
        for number in numbers:
            if entries := self.pair.model.entries():
                self.pair.undo(entries[number % len(entries)])

    @rule(key=keys, chance=st.integers(0, 3))
    def close_scope(self, key, chance):
        if chance == 0:  # seldom: nothing happens at a closed scope any more
            self.pair.close_scope(key)

    @rule(scope=st.none() | keys)
    def read(self, scope):
        """Read at one scope alone; what is kept there is then compared after later changes."""
        self.pair.compare(scope)

    @rule(scope=st.none() | keys)
    def dispatch(self, scope):
        self.pair.compare_dispatch(scope)

    @rule(scope=keys)
    def read_along_a_chain(self, scope):
        self.pair.compare_chain(scope)

    @invariant()
    def layers_are_where_entries_are(self):
        if hasattr(self, "pair"):
            self.pair.compare_layers()

    @invariant()
    def some_scopes_see_and_hear_what_they_should(self):
        """Not all, and not the same each time: what nobody has read since the last change is a case of its own."""
        if hasattr(self, "pair"):
            for key in self.dice.choices(list(self.pair.model.parents), k=2):
                self.pair.compare(key)
                self.pair.compare_dispatch(key)

    def teardown(self):
        """Compare everything once, then undo everything: no layer is left, and nothing is seen."""
        if hasattr(self, "pair"):
            for key in self.pair.model.parents:
                self.pair.compare(key)
                self.pair.compare_dispatch(key)
            self.pair.undo_everything()
            self.pair.compare_layers()
            assert self.pair.registry.scopes() == ()
            for key in (None, *self.pair.model.parents):
                self.pair.compare(key)
                self.pair.compare_dispatch(key)


RegistryMachine.TestCase.settings = settings(stateful_step_count=40)
TestRegistry = RegistryMachine.TestCase


@pytest.mark.parametrize("seed", range(3))
def test_two_hundred_scopes_agree_with_the_model(seed):
    """A thousand random changes over exactly 200 scopes, with reads up and down random chains after each."""
    dice, pair = random.Random(seed), Pair()
    keys = [pair.open_scope() for _ in range(SCOPES)]
    for number, key in enumerate(keys):
        if dice.random() < 0.9:
            pair.link(key, dice.choice([None, *keys[max(0, number - 5) : number]]))
    assert max(len(pair.model.chain(key)) for key in keys) > 8
    for _ in range(1000):
        _change(dice, pair, keys)
        if dice.random() < 0.3:
            pair.compare_chain(dice.choice(keys))
        for key in dice.sample(keys, 3):
            pair.compare(key)
            pair.compare_dispatch(key)
        pair.compare_layers()
    for key in keys:
        pair.compare(key)
        pair.compare_dispatch(key)
    pair.undo_everything()
    assert pair.registry.scopes() == ()
    assert len(pair.model.parents) == SCOPES
    for key in keys:
        pair.compare(key)


def _change(dice, pair, keys):
    what = dice.random()
    if what < 0.6:
        kind = dice.choice([Note, Note, Tag, Ping, Brew])
        scope = dice.choice([None, *dice.choices(keys, k=10)])
        pair.register(kind, scope, dice.randrange(3), here_only=dice.random() < 0.4)
        pair.register_in_vain(dice.choice(keys))
    elif what < 0.85 and (entries := pair.model.entries()):
        entry = dice.choice(entries)
        for _ in range(dice.randrange(1, 3)):
            pair.undo(entry)
    elif what < 0.99:
        parents = [dice.choice([None, *dice.choices(keys, k=10)]) for _ in range(dice.randrange(1, 3))]
        pair.link_between_reads(dice.choice(keys), parents, with_itself=dice.random() < 0.5)
    else:
        pair.close_scope(dice.choice(keys))

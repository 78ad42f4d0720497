"""A report says what `assemble` gives, and names the right ones for the rest, in any tree of scopes.

Each thing that is registered has an owner of its own, so a place in a report names exactly one of them.
"""

from collections import Counter
from contextlib import suppress

import attrs
import hypothesis.strategies as st
from hypothesis import event, given, settings

from creche.errors import CrecheError, InternalError, PromptError
from creche.explain import explain_prompt, report_as_json
from creche.messages import ToolSchema
from creche.prompt import (
    UNLISTED_TOOLS,
    AssembleContext,
    AssemblePrompt,
    Origin,
    Piece,
    RuntimeContext,
    Section,
    SuppressRuntimeContext,
    ToolProvider,
    ToolSchemas,
    Variable,
    assemble,
    join_context_sections,
    render_context_sections,
    render_prompt,
    tool_order,
)
from creche.scope import Owner, Registry, ScopeKey, Wrapper, bind_scope_parent, make_registrar
from creche.tools import Guard, Tool, restrict, tool_provider, visible

TOOLS = ("read", "write", "edit")
PIECES = ("a", "b", "c")
KINDS = ["section", "context", "variable", "tool", "restriction", "guard", "provider", "suppress", "order", "wrapper"]
WRAPPERS = ["add", "change", "drop", "reverse", "bind", "fail", "wrong"]


@attrs.frozen
class Wish:
    """One thing that somebody tries to register."""

    kind: str
    scope: int  # of four scopes; 0 is the global layer
    name: str
    gives: str  # what its source function gives: a text, "!" for one that raises, "?" for no text
    order: int
    tools: frozenset[str]
    is_allow: bool
    is_complete: bool
    wrapper: str


WISHES = st.builds(
    Wish,
    kind=st.sampled_from(["section", "context", "restriction"] * 3 + ["variable", "tool"] * 2 + KINDS),
    scope=st.integers(0, 3),
    name=st.sampled_from(PIECES),
    gives=st.sampled_from(["", "text", "{{a}} {{b}}", "say {{a}}"] * 8 + ["{{c", "{{zz}}", "!", "?"]),
    order=st.integers(0, 2),
    tools=st.frozensets(st.sampled_from(TOOLS), min_size=1),
    is_allow=st.booleans(),
    is_complete=st.sampled_from([False] * 12 + [True]),
    wrapper=st.sampled_from(WRAPPERS[:5] * 4 + WRAPPERS),
)
BASE = [
    Wish("tool", 0, "", "", 0, tools=frozenset([name]), is_allow=False, is_complete=False, wrapper="") for name in TOOLS
]
TREES = st.tuples(*[st.integers(0, at) for at in range(3)])  # the parent of each scope but the global layer


class World:
    """A registry with four scopes, and what is registered in it, by owner."""

    def __init__(self, tree):
        self.registry = Registry()
        self.scopes = [None, *[ScopeKey(f"scope {at}") for at in range(1, 4)]]
        self.parents = {at + 1: parent for at, parent in enumerate(tree)}
        for child, parent in self.parents.items():
            bind_scope_parent(self.scopes[child], self.scopes[parent])
        self.standing = {}
        self.calls = Counter()
        make_registrar(self.registry, Owner("host"), None).add(tool_provider(self.registry))

    def fulfil(self, number, wish):
        owner = f"owner {number}"
        registrar = make_registrar(self.registry, Owner(owner), self.scopes[wish.scope])
        with suppress(CrecheError):  # it cannot stand there: the name is taken, or a filter names what is unknown
            self.standing[owner] = (wish, registrar.add(self.entry(owner, wish)))

    def entry(self, owner, wish):
        def give(_):
            self.calls[owner] += 1
            if wish.gives == "!":
                raise ValueError(owner)
            return None if wish.gives == "?" else wish.gives

        def offer(_):
            self.calls[owner] += 1
            if wish.gives in ("!", "?"):
                raise ValueError(owner)
            schemas = [ToolSchema(f"extra_{wish.name}", description="", parameters={})]
            return ToolSchemas(schemas, known_names=[f"extra_{wish.name}", f"known_{wish.name}"])

        makers = {
            "section": lambda: Section(wish.name, order=wish.order, text=give, complete=wish.is_complete),
            "context": lambda: RuntimeContext(wish.name, order=wish.order, text=give),
            "variable": lambda: Variable(wish.name, give),
            "tool": lambda: Tool(min(wish.tools), description=owner, parameters={}, run=print),
            "restriction": lambda: restrict(allow=wish.tools) if wish.is_allow else restrict(deny=wish.tools),
            "guard": lambda: Guard(lambda _: None, lets_through=lambda name: name not in wish.tools),
            "provider": lambda: ToolProvider(offer),
            "suppress": SuppressRuntimeContext,
            "order": lambda: tool_order([*sorted(wish.tools), UNLISTED_TOOLS]),
            "wrapper": lambda: wrapper_entry(wish.wrapper),
        }
        return makers[wish.kind]()

    def chain(self, scope):
        """Return the indices of a scope and those above it, nearest first; the global layer is the last."""
        chain = [scope]
        while chain[-1]:
            chain.append(self.parents[chain[-1]])
        return chain

    def owners(self, scope, kind, name):
        """Return who registered a name along a chain, the nearest first."""
        return [
            owner
            for place in self.chain(scope)
            for owner, (wish, registration) in self.standing.items()
            if (wish.scope, wish.kind, registration.name) == (place, kind, name)
        ]


def wrapper_entry(kind):
    async def wrap(event, go_on):
        found = await go_on()
        match kind:
            case "add":
                return attrs.evolve(found, sections=[*found.sections, Piece(Origin("new", order=1), "{{a}}")])
            case "change":
                changed = [attrs.evolve(each, text=f"{each.text}!") for each in found.sections]
                return attrs.evolve(found, sections=changed)
            case "drop":
                return attrs.evolve(
                    found, sections=found.sections[1:], contexts=found.contexts[1:], tools=found.tools[1:]
                )
            case "reverse":
                return attrs.evolve(found, sections=found.sections[::-1], tools=found.tools[::-1])
            case "bind":
                return attrs.evolve(found, variables={**found.variables, "a": "bound"})
            case "fail":
                raise RuntimeError("the wrapper")
        return None

    return Wrapper(AssemblePrompt, wrap=wrap)


def finish(coroutine):
    """Run a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stopped:
        return stopped.value
    raise AssertionError("these wrappers do not wait")


def outcome(function):
    """Return what comes back, or ``None`` and what the error says."""
    try:
        return function(), ""
    except (PromptError, InternalError) as error:
        return None, str(error)
    except RuntimeError as error:
        return None, repr(error)


def shown(pieces):
    return [(piece.name, piece.text) for piece in pieces if piece.state == "shown"]


@settings(deadline=None, max_examples=150)
@given(tree=TREES, wishes=st.lists(WISHES, max_size=16))
def test_a_report_says_what_is_assembled_and_from_whom(tree, wishes):
    world = World(tree)
    for number, wish in enumerate([*BASE, *wishes]):
        world.fulfil(number, wish)
    for at, scope in enumerate(world.scopes):
        context = AssembleContext(scope)
        world.calls.clear()
        report = finish(explain_prompt(world.registry, context))
        calls = dict(world.calls)
        assert set(calls.values()) <= {1}, "a source function is called once"
        world.calls.clear()
        assembly, said = outcome(lambda context=context: finish(assemble(world.registry, context)))
        if assembly is None:
            event("refused")
            assert any(said in problem for problem in report.problems), (said, report.problems)
            assert (report.text, report.snapshot) == (None, None)
        else:
            assert calls == dict(world.calls)
            compare(report, assembly)
        check_shadows(world, at, report)
        check_tools(world, scope, report)
        report_as_json(report)


def compare(report, assembly):
    """The report is of this very assembly."""
    rendered, said = outcome(lambda: (render_prompt(assembly), render_context_sections(assembly)))
    if rendered is None:
        event("a reference failed")
        assert said in report.problems
        assert (report.text, report.snapshot) == (None, None)
    else:
        event("no problem")
        text, pieces = rendered
        assert report.problems == ()
        assert (report.text, report.snapshot) == (text, join_context_sections(pieces))
        assert "\n\n".join([told for _, told in shown(report.sections)]) == text
        assert shown(report.contexts) == [(piece.name, piece.text) for piece in pieces]
    assert tuple([tool.schema for tool in report.tools if tool.schema is not None]) == assembly.tools
    assert {variable.name: variable.value for variable in report.variables} == dict(assembly.variables)
    in_order = [piece.name for piece in assembly.sections]
    assert [piece.name for piece in report.sections if piece.state != "left-out"] == in_order
    states = {piece.state for piece in report.contexts}
    assert (states <= {"suppressed"}) if report.suppressed_by else ("suppressed" not in states)


def check_shadows(world, at, report):
    """Of each name the nearest is told, and all the others are hidden, the nearest first."""
    for kind, reports in (("section", report.sections), ("context", report.contexts), ("variable", report.variables)):
        for each in reports:
            owners = world.owners(at, kind, each.name)
            if each.place is None:
                assert each.note == "a wrapper added it"
                continue
            assert [each.place.owner, *[place.owner for place in each.shadows]] == owners
        names = {registration.name for wish, registration in world.standing.values() if wish.kind == kind}
        assert {name for name in names if world.owners(at, kind, name)} <= {each.name for each in reports}


def check_tools(world, scope, report):
    """What is hidden is what is not visible, and becomes visible when all that hides it is undone."""
    at = world.scopes.index(scope)
    seen = visible(world.registry, scope)
    reports = {each.name: each for each in report.tools}
    for name in TOOLS:
        owners = world.owners(at, "tool", name)
        assert (name in reports) is bool(owners)
        if not owners:
            continue
        each = reports[name]
        assert [each.place.owner, *[place.owner for place in each.shadows]] == owners
        assert (each.state == "hidden") is bool(each.hidden_by) is (name not in seen)
        standing = [world.standing[rule.place.owner] for rule in (*each.hidden_by, *each.refused_by)]
        assert all((name in wish.tools) is not (wish.is_allow and wish.kind == "restriction") for wish, _ in standing)
    hidden = [each for each in reports.values() if each.hidden_by]
    if hidden:
        event("something is hidden")
        world_without(world, scope, hidden[0])


def world_without(world, scope, report):
    """Each rule that hides a tool is needed to be undone, and all of them are enough."""
    rules = [world.standing[rule.place.owner][1] for rule in report.hidden_by]
    put_back = []
    for number, registration in enumerate(rules):
        assert report.name not in visible(world.registry, scope), f"{number} of {len(rules)} undone"
        registration.undo()
        put_back.append(registration)
    assert report.name in visible(world.registry, scope)
    for registration in put_back:
        owner = registration.owner.name
        wish, _ = world.standing[owner]
        again = make_registrar(world.registry, Owner(owner), registration.scope).add(registration.entry)
        world.standing[owner] = (wish, again)

"""Assembly and rendering equal what section 5 of the design says, read straight.

The machine registers, undoes and rebinds in a tree of scopes, and looks from one of them now and then. What it
sees must be what `Plain` works out from the list of what is registered: everything anew each time, nothing
kept. That includes which error comes out, with its whole message, and which source functions are called, in
which order: none that is shadowed, and each effective one once.
"""

import re

import attrs
import hypothesis.strategies as st
from hypothesis import given
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from creche.errors import DuplicateNameError, PromptError
from creche.messages import ToolSchema
from creche.prompt import (
    UNLISTED_TOOLS,
    AssembleContext,
    AssemblePrompt,
    Origin,
    Piece,
    PromptAssembly,
    RuntimeContext,
    Section,
    SuppressRuntimeContext,
    ToolProvider,
    ToolSchemas,
    Variable,
    assemble,
    render_context_sections,
    render_prompt,
    tool_order,
)
from creche.scope import Owner, Registry, ScopeKey, bind_scope_parent, make_registrar

# ---------------------------------------------------------------- the world


@attrs.frozen
class Source:
    """What gives a text."""

    uid: int
    kind: str  # fixed, gives, none, wrong, raises
    text: str

    def entry_text(self, calls):
        """Return it as an entry has it; a function notes that it was called."""
        if self.kind == "fixed":
            return self.text

        def give(context):
            calls.append(self.uid)
            if self.kind == "raises":
                raise ValueError(self.uid)
            return {"none": None, "wrong": 5}.get(self.kind, self.text)

        return give


@attrs.frozen(eq=False)
class Fact:
    """Something that is registered."""

    kind: str
    scope: int  # an index of the machine's scopes; 0 is the global layer
    owner: str
    registration: object
    name: str = ""
    order: float = 0
    source: Source | None = None
    interpolate: bool = True
    complete: bool = False
    names: tuple[str, ...] = ()
    known: tuple[str, ...] = ()


NAMES = st.sampled_from(["a", "b", "é", "B"])
ORDERS = st.sampled_from([0, 1, 1.5, -100])
FRAGMENTS = st.sampled_from(
    ["", "text ", "{{x}}", "{{y}}", "{{open}}", "}}", "{", "%s", "\ud83d", "\ude00", "{{x}}\n"] * 3
    + ["{{", "{{z}}", "{{ x}}", "{{{x}}}", "{{}}"]
)
TEXTS = st.lists(FRAGMENTS, max_size=4).map("".join)
KINDS = st.sampled_from(["fixed", "gives"] * 8 + ["none", "raises", "wrong"])
LISTED_TOOLS = ["read", "edit", "Glob", "é"]
TOOL_NAMES = [*LISTED_TOOLS, *"abcdefghijkl"]
OWNERS = st.sampled_from(["host", "guest"])


# ---------------------------------------------------------------- section 5, read straight


class RefusedError(Exception):
    pass


class Plain:
    """The assembly of a scope, from the list of what is registered."""

    def __init__(self, facts, chain, labels):
        self.facts = [fact for scope in chain for fact in facts if fact.scope == scope]
        self.labels = labels
        self.calls = []

    def of(self, kind):
        return [fact for fact in self.facts if fact.kind == kind]

    def nearest(self, kind):
        found = {}
        for fact in self.of(kind):
            found[fact.name] = fact
        return list(found.values())

    def label(self, what, fact):
        return f"{what} of {fact.owner!r} at {self.labels[fact.scope]}"

    def evaluate(self, source, label, expected, *, none=False):
        if source.kind != "fixed":
            self.calls.append(source.uid)
        if source.kind == "raises":
            raise RefusedError(f"{label} raised ValueError({source.uid})")
        if source.kind == "wrong" or (source.kind == "none" and not none):
            raise RefusedError(f"{label} gave {'5' if source.kind == 'wrong' else 'None'}; {expected}")
        return None if source.kind == "none" else source.text

    def assemble(self):
        suppressed = bool(self.of("suppress"))
        variables = {
            fact.name: self.evaluate(
                fact.source,
                self.label(f"variable {fact.name!r}", fact),
                "a provider is a plain function that returns a text or None",
                none=True,
            )
            for fact in self.nearest("variable")
        }
        offered = [
            (self.evaluate(fact.source, self.label("a tool provider", fact), "it returns ToolSchemas(...)"), fact)
            for fact in self.of("provider")
        ]
        sections = sorted(self.nearest("section"), key=lambda fact: (fact.order, fact.name))
        contexts = sorted(self.nearest("context"), key=lambda fact: (fact.order, fact.name))
        complete = [fact for fact in sections if fact.complete]
        if len(complete) > 1:
            both = " and ".join(self.label(f"section {fact.name!r}", fact) for fact in complete)
            raise RefusedError(f"only one section can be the complete prompt, not {both}")
        pieces = [self.piece("section", fact) for fact in sections]
        context_pieces = [] if suppressed else [self.piece("runtime context", fact) for fact in contexts]
        tools = self.tools([fact for _, fact in offered])
        seen = (pieces, context_pieces, tools, variables)
        for fact in reversed(self.of("wrapper")):
            seen = wrapped(fact.name, fact.source.uid, seen)
        pieces_after, contexts_after, tools, variables = seen
        if complete:
            pieces_after = [pieces[sections.index(complete[0])]]
        if suppressed:
            contexts_after = []
        return pieces_after, contexts_after, tools, variables, [fact.name for fact in contexts] if suppressed else []

    def piece(self, kind, fact):
        label = self.label(f"{kind} {fact.name!r}", fact)
        text = self.evaluate(fact.source, label, "its text is a string or a plain function that returns one")
        return (fact.name, label, text, fact.interpolate)

    def tools(self, facts):
        owners = {}
        for fact in facts:
            for name in fact.names:
                if name == UNLISTED_TOOLS:
                    raise RefusedError(
                        f"{fact.owner!r} offers a tool named {name!r}, which is reserved for tool orders; rename it"
                    )
                if name in owners:
                    raise RefusedError(
                        f"tool {name!r} is offered by {owners[name]!r} and by {fact.owner!r}; rename one of them"
                    )
                owners[name] = fact.owner
        order = self.nearest("order")
        if not order:
            return sorted(owners)
        listed = order[0].names
        known = sorted(set(owners).union(*[fact.known for fact in facts]))
        unknown = [name for name in listed if name not in [*known, UNLISTED_TOOLS]]
        if unknown:
            raise RefusedError(
                f"tool order lists unknown tools {', '.join(map(repr, unknown))}; known: {', '.join(known) or '(none)'}"
            )
        others = sorted(name for name in owners if name not in listed)
        at = listed.index(UNLISTED_TOOLS)
        return [name for name in (*listed[:at], *others, *listed[at + 1 :]) if name in owners]


def wrapped(kind, uid, seen):
    """Return what a wrapper makes of an assembly; `wrapper` is its other half."""
    pieces, contexts, tools, variables = seen
    more = [(f"more {uid}", f"section 'more {uid}' of a wrapper around prompt/assemble", "more {{x}}", True)]
    match kind:
        case "add":
            return pieces + more, contexts + more, tools, variables
        case "bind":
            return pieces, contexts, tools, {**variables, "x": f"bound by {uid}"}
        case "reverse":
            return pieces[::-1], contexts[::-1], tools[::-1], variables
        case "refuse":
            return more, more, [], {}
    raise AssertionError(kind)


def wrapper(kind, uid):
    more = [Piece(Origin(f"more {uid}"), "more {{x}}")]

    async def wrap(event, go_on):
        if kind == "refuse":
            return PromptAssembly(more, contexts=more)
        found = await go_on()
        match kind:
            case "add":
                return attrs.evolve(found, sections=[*found.sections, *more], contexts=[*found.contexts, *more])
            case "bind":
                return attrs.evolve(found, variables={**found.variables, "x": f"bound by {uid}"})
            case "reverse":
                return attrs.evolve(
                    found, sections=found.sections[::-1], contexts=found.contexts[::-1], tools=found.tools[::-1]
                )
        raise AssertionError(kind)

    return wrap


def rendered(pieces, variables):
    return [text for piece in pieces if (text := rendered_piece(piece, variables))]


def rendered_piece(piece, variables):
    _, label, rest, interpolate = piece
    text = ""
    while interpolate and "{{" in rest and "}}" in rest.split("{{", 1)[1]:
        before, after = rest.split("{{", 1)
        name, rest = after.split("}}", 1)
        text += before + (("{{") if name == "open" else value(name, label, variables))
    return mended(text + rest)


def value(name, label, variables):
    reference = "{{" + name + "}}"
    if "{" in name or "}" in name:
        raise RefusedError(f"malformed reference {reference!r} in {label}; write {{{{open}}}} for two opening braces")
    if not re.fullmatch("[a-z][a-z0-9_]*", name):
        raise RefusedError(
            f"illegal variable name in {reference!r} in {label}; names are like [a-z][a-z0-9_]*; "
            "write {{open}} for two opening braces"
        )
    if name not in variables:
        known = ", ".join(sorted(variables)) or "(none)"
        raise RefusedError(
            f"unknown variable {reference} in {label}; registered: {known}; "
            "register a Variable of that name, or write {{open}} for two opening braces"
        )
    if variables[name] is None:
        raise RefusedError(f"variable {reference} in {label} has no value this time")
    return variables[name]


def mended(text):
    def mend(found):
        pair = found[0]
        if len(pair) == 1:
            return "\ufffd"
        return chr(0x10000 + (ord(pair[0]) - 0xD800) * 0x400 + ord(pair[1]) - 0xDC00)

    return re.sub("[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]", mend, text)


# ---------------------------------------------------------------- the machine


def finish(coroutine):
    """Run a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stopped:
        return stopped.value
    raise AssertionError("assembling waits for wrappers alone, and these do not wait")


class Prompts(RuleBasedStateMachine):
    """A host with two presets, one of them under the other, and three agents."""

    def __init__(self):
        super().__init__()
        self.registry = Registry()
        self.scopes = [None, *[ScopeKey(label) for label in ("team", "review", "ada", "ben", "eve")]]
        self.labels = ["the global layer", *[f"scope {key.label!r}" for key in self.scopes[1:]]]
        self.parents = {1: 0, 2: 1, 3: 1, 4: 2, 5: 2}
        self.bindings = {
            child: bind_scope_parent(self.scopes[child], self.scopes[parent])
            for child, parent in self.parents.items()
            if parent
        }
        self.facts = []
        self.calls = []
        self.uid = 0
        self.looks = 0

    def source(self, kind, text):
        self.uid += 1
        return Source(self.uid, kind, text)

    def add(self, kind, scope, owner, entry, **known):
        taken = any((fact.kind, fact.scope, fact.name) == (kind, scope, known.get("name", "")) for fact in self.facts)
        registrar = make_registrar(self.registry, Owner(owner), self.scopes[scope])
        try:
            registration = registrar.add(entry)
        except DuplicateNameError:
            assert taken
            assert kind in ("section", "context", "variable", "order")
            return
        assert not taken or kind in ("provider", "suppress", "wrapper")
        self.facts.append(Fact(kind, scope, owner, registration, **known))

    @initialize()
    def begin(self):
        """Let there be something to see from the start; all of it can be undone."""
        for name, scope in (("x", 0), ("y", 0), ("y", 2)):
            self.add_variable(scope, "host", name, "gives", f"<{name}>")
        for name, scope, kind in (
            ("a", 0, "gives"),
            ("b", 0, "gives"),
            ("b", 1, "fixed"),
            ("a", 3, "gives"),
            ("é", 4, "gives"),
        ):
            options = {"owner": "host", "name": name, "order": scope, "kind": kind, "text": f"{name} {{{{x}}}}"}
            self.add_section(scope=scope, interpolate=True, complete=False, **options)
            self.add_context(scope=scope, **options)
        for names, scope in ((["read"], 0), (["Glob"], 3)):
            self.add_provider(scope, "host", names, LISTED_TOOLS, "gives")

    @rule(
        scope=st.integers(0, 5),
        owner=OWNERS,
        name=NAMES,
        order=ORDERS,
        kind=KINDS,
        text=TEXTS,
        interpolate=st.booleans(),
        complete=st.sampled_from([False] * 9 + [True]),
    )
    def add_section(self, *, scope, owner, name, order, kind, text, interpolate, complete):
        source = self.source(kind, text)
        options = {"order": order, "interpolate": interpolate, "complete": complete}
        entry = Section(name, text=source.entry_text(self.calls), **options)
        self.add("section", scope, owner, entry, name=name, source=source, **options)

    @rule(scope=st.integers(0, 5), owner=OWNERS, name=NAMES, order=ORDERS, kind=KINDS, text=TEXTS)
    def add_context(self, *, scope, owner, name, order, kind, text):
        source = self.source(kind, text)
        entry = RuntimeContext(name, order=order, text=source.entry_text(self.calls))
        self.add("context", scope, owner, entry, name=name, order=order, source=source)

    @rule(
        scope=st.integers(0, 5),
        owner=OWNERS,
        name=st.sampled_from(["x", "y", "z"]),
        kind=st.sampled_from(["gives"] * 8 + ["none"] * 2 + ["raises", "wrong"]),
        text=TEXTS,
    )
    def add_variable(self, scope, owner, name, kind, text):
        source = self.source(kind, text)
        self.add("variable", scope, owner, Variable(name, source.entry_text(self.calls)), name=name, source=source)

    @rule(
        scope=st.integers(0, 5),
        owner=OWNERS,
        names=st.lists(st.sampled_from(TOOL_NAMES * 3 + [UNLISTED_TOOLS]), max_size=2),
        hidden=st.lists(st.sampled_from(TOOL_NAMES), max_size=1),
        kind=st.sampled_from(["gives"] * 9 + ["raises", "none", "wrong"]),
    )
    def add_provider(self, scope, owner, names, hidden, kind):
        source = self.source(kind, "")
        schemas = ToolSchemas(
            [ToolSchema(name, description="", parameters={}) for name in names], known_names=[*names, *hidden]
        )
        give = source.entry_text(self.calls)

        def provide(context):
            return schemas if (found := give(context)) == "" else found

        self.add(
            "provider", scope, owner, ToolProvider(provide), source=source, names=tuple(names), known=(*names, *hidden)
        )

    @rule(
        scope=st.integers(0, 5),
        owner=OWNERS,
        names=st.permutations([*LISTED_TOOLS, UNLISTED_TOOLS]),
        cut=st.integers(0, 4),
    )
    def add_order(self, scope, owner, names, cut):
        names = [name for number, name in enumerate(names) if number >= cut or name == UNLISTED_TOOLS]
        self.add("order", scope, owner, tool_order(names), names=tuple(names))

    @rule(scope=st.integers(0, 5), owner=OWNERS)
    def suppress(self, scope, owner):
        self.add("suppress", scope, owner, SuppressRuntimeContext())

    @rule(scope=st.integers(0, 5), owner=OWNERS, kind=st.sampled_from(["add", "bind", "reverse", "refuse"]))
    def wrap(self, scope, owner, kind):
        source = self.source("fixed", "")
        registrar = make_registrar(self.registry, Owner(owner), self.scopes[scope])
        registration = registrar.wrap(AssemblePrompt, wrapper(kind, source.uid))
        self.facts.append(Fact("wrapper", scope, owner, registration, name=kind, source=source))

    @precondition(lambda self: self.facts)
    @rule(data=st.data())
    def undo(self, data):
        fact = data.draw(st.sampled_from(self.facts))
        fact.registration.undo()
        self.facts.remove(fact)

    @rule(agent=st.integers(3, 5), parent=st.integers(0, 2))
    def rebind(self, agent, parent):
        self.bindings[agent].rebind(self.scopes[parent])
        self.parents[agent] = parent

    @invariant()
    def look(self):
        """Look from the scopes in turn; from one of them twice in a row, so what was kept is looked at too."""
        self.looks += 1
        scope = self.looks // 2 % len(self.scopes)
        chain = [scope]
        while chain[0]:
            chain.insert(0, self.parents[chain[0]])
        plain = Plain(self.facts, chain, self.labels)
        try:
            expected = plain.assemble()
        except RefusedError as refused:
            expected = str(refused)
        first, second = self.assembled(scope, plain.calls), self.assembled(scope, plain.calls)
        if isinstance(expected, str):
            assert first == second == expected
            return
        self.compare(first, expected)
        assert first.tools is second.tools or [fact for fact in plain.of("wrapper") if fact.name != "add"]

    def assembled(self, scope, expected_calls):
        """Return the assembly, or the message of the error; the calls must be those that are expected."""
        self.calls.clear()
        try:
            return finish(assemble(self.registry, AssembleContext(self.scopes[scope])))
        except PromptError as error:
            return str(error)
        finally:
            assert self.calls == expected_calls

    def compare(self, found, expected):
        assert not isinstance(found, str), found
        pieces, contexts, tools, variables, suppressed = expected
        assert [(each.name, str(each.origin), each.text, each.origin.interpolate) for each in found.sections] == [
            (name, label, text, interpolate) for name, label, text, interpolate in pieces
        ]
        assert [(each.name, str(each.origin), each.text) for each in found.contexts] == [
            (name, label, text) for name, label, text, _ in contexts
        ]
        assert [tool.name for tool in found.tools] == tools
        assert list(found.variables.items()) == list(variables.items())
        assert list(found.suppressed) == suppressed
        assert outcome(render_prompt, found) == outcome(lambda: "\n\n".join(rendered(pieces, variables)))
        assert outcome(lambda: [each.text for each in render_context_sections(found)]) == outcome(
            lambda: rendered(contexts, variables)
        )


def outcome(function, *args):
    try:
        return function(*args)
    except (PromptError, RefusedError) as error:
        return "refused: " + str(error)


TestPrompts = Prompts.TestCase


# ---------------------------------------------------------------- rendering alone


@given(
    text=st.lists(
        st.sampled_from(
            ["{", "}", "{{", "}}", "x", "open", " ", "é", "\ud800", "\udc00", "%", "y", "{{x}}", "{{y}}", "{{z}}"]
        ),
        max_size=12,
    ).map("".join),
    value=st.sampled_from(["", "{{x}}", "{", "}}", "\ud800", "%s"]),
)
def test_any_text_renders_as_read_straight(text, value):
    assembly = PromptAssembly([Piece(Origin("a"), text)], variables={"x": value, "y": None})
    expected = ("a", "section 'a' of a wrapper around prompt/assemble", text, True)
    assert outcome(render_prompt, assembly) == outcome(rendered_piece, expected, assembly.variables)

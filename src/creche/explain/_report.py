"""What a report says: for every piece of a prompt who registered it, where, and what became of it."""

from collections.abc import Iterable
from typing import Literal, TypeVar

import attrs

from creche.errors import NotRegisteredError
from creche.messages import ToolSchema
from creche.scope import Registration, ScopeKey, place_name
from creche.tools import Mode

from ._estimate import estimate_tokens

PieceState = Literal["shown", "empty", "failed", "suppressed", "left-out"]
ToolState = Literal["direct", "in-programs", "hidden", "known", "left-out"]
FindingCheck = Literal["owned-below", "persona-order", "needs-an-agent", "named-after-agent"]


@attrs.frozen
class Place:
    """Who registered something, and where."""

    owner: str
    """Name of the owner."""
    scope: ScopeKey | None = attrs.field(kw_only=True)
    """The scope; ``None`` is the global layer."""

    def __str__(self) -> str:
        return f"{self.owner!r} at {place_name(self.scope)}"


def place_of(by: Registration) -> Place:
    """Return who registered it, and where."""
    return Place(by.owner.name, scope=by.scope)


def places_of(registrations: Iterable[Registration]) -> tuple[Place, ...]:
    """Return who registered them, and where, in their order."""
    return tuple([place_of(by) for by in registrations])


@attrs.frozen
class Explained:
    """What every piece says of itself."""

    name: str
    """Its name."""
    place: Place | None = attrs.field(kw_only=True)
    """Who registered it, and where; ``None`` if a wrapper of `creche.prompt.AssemblePrompt` put it there."""
    shadows: tuple[Place, ...] = attrs.field(default=(), kw_only=True)
    """Whose registrations of that name it hides, the nearest first."""
    note: str = attrs.field(default="", kw_only=True)
    """Why it is left out, or what a wrapper did to it; ``""`` if there is nothing to say."""


@attrs.frozen
class PieceReport(Explained):
    """One section or runtime context."""

    kind: Literal["section", "runtime context"] = attrs.field(kw_only=True)
    """Which of the two."""
    order: float = attrs.field(kw_only=True)
    """Where it stands."""
    state: PieceState = attrs.field(kw_only=True)
    """``shown``: the model is told it. ``empty``: there is nothing to tell. ``failed``: its source function or a reference in
    it did. ``suppressed``: a context that is left out by a `creche.prompt.SuppressRuntimeContext`. ``left-out``: another
    section is complete, or a wrapper took it out."""
    text: str = attrs.field(default="", kw_only=True)
    """As the model is told it; if a reference in it failed, or it is left out, before variables are put in."""
    interpolate: bool = attrs.field(default=True, kw_only=True)
    """Whether variables are put in."""
    complete: bool = attrs.field(default=False, kw_only=True)
    """Whether it claims to be the whole prompt."""
    problem: str = attrs.field(default="", kw_only=True)
    """Why it failed, in the words of the error; ``""`` if it did not."""

    @property
    def tokens(self) -> int:
        """An estimate of what it costs; 0 if it is not shown."""
        return estimate_tokens(self.text) if self.state == "shown" else 0


@attrs.frozen
class VariableReport(Explained):
    """One variable."""

    value: str | None = attrs.field(kw_only=True)
    """Its value; ``None`` if it has none this time."""
    problem: str = attrs.field(default="", kw_only=True)
    """Why its source function failed, in the words of the error; ``""`` if it did not."""


@attrs.frozen
class Rule:
    """What takes a tool away."""

    kind: Literal["allow", "deny", "guard"]
    """``allow``: a restriction whose list does not have it. ``deny``: one whose list has it. ``guard``: it stays visible, and
    a guard that goes by names refuses its calls."""
    names: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    """The names that a restriction lists, sorted."""
    place: Place = attrs.field(kw_only=True)
    """Whose rule it is, and where it holds from."""

    def __str__(self) -> str:
        what = "a guard" if self.kind == "guard" else f"{self.kind}={','.join(self.names)}"
        return f"{what} of {self.place}"


@attrs.frozen
class ToolReport(Explained):
    """One tool."""

    state: ToolState = attrs.field(kw_only=True)
    """``direct``: the model calls it. ``in-programs``: programs of the model call it. ``hidden``: a restriction takes it
    away. ``known``: its tool provider knows the name and does not offer it. ``left-out``: nothing offers it, or a wrapper took it
    out."""
    schema: ToolSchema | None = attrs.field(default=None, kw_only=True)
    """What the model is told of it, if it calls it itself."""
    hidden_by: tuple[Rule, ...] = attrs.field(default=(), kw_only=True)
    """Every restriction that it does not pass, the farthest first. Each of them alone hides it."""
    refused_by: tuple[Rule, ...] = attrs.field(default=(), kw_only=True)
    """Guards that refuse its calls by its name, the farthest first."""

    @property
    def tokens(self) -> int:
        """An estimate of what its schema costs; 0 if the model is not shown it."""
        return 0 if self.schema is None else estimate_tokens(self.schema.encoded)


@attrs.frozen
class Finding:
    """A registration at the global layer that looks like one agent's."""

    check: FindingCheck
    """``owned-below``: its owner stands at a scope. ``persona-order``: a section at the order of the persona that is not it.
    ``needs-an-agent``: its source function fails where there is no agent. ``named-after-agent``: it has the agent's name."""
    kind: str = attrs.field(kw_only=True)
    """The class of the entry, such as ``"Section"``."""
    name: str = attrs.field(kw_only=True)
    """Its name; ``""`` if it has none."""
    owner: str = attrs.field(kw_only=True)
    """Who registered it."""
    sentence: str = attrs.field(kw_only=True)
    """What it looks like, and what to do."""


P = TypeVar("P", bound=Explained)


@attrs.frozen(kw_only=True)
class PromptReport:
    """What one scope is told, from whom, and what is wrong with it. Made by `explain_prompt`."""

    chain: tuple[ScopeKey, ...]
    """The scope and those above it, nearest first; ``()`` is the global layer."""
    agent: str | None
    """Path of the agent; ``None`` if the report was made without one."""
    text: str | None
    """The system prompt; ``None`` if it does not come about."""
    snapshot: str | None
    """The runtime contexts as one message; ``""`` if there are none, ``None`` if it does not come about."""
    sections: tuple[PieceReport, ...]
    """The sections in their order, also those that are not shown."""
    contexts: tuple[PieceReport, ...]
    """The runtime contexts in their order, also those that are not shown."""
    variables: tuple[VariableReport, ...]
    """The variables by name."""
    tools: tuple[ToolReport, ...]
    """The tools that the model calls, in their order, and then the others by name."""
    mode: Mode
    """How tools are presented."""
    presented_by: Place | None
    """Who says so; ``None`` if nobody does, and then it is native."""
    suppressed_by: tuple[Place, ...]
    """Who suppresses runtime contexts."""
    wrappers: tuple[Place, ...]
    """Whose wrappers stand around `creche.prompt.AssemblePrompt`, outermost first."""
    wrapped: bool
    """Whether they were run, and what they did is shown; not if one of them failed, or something before them."""
    problems: tuple[str, ...]
    """Everything because of which a step of the scope would fail now, in the words of its error."""
    findings: tuple[Finding, ...]
    """What at the global layer looks like one agent's."""

    @property
    def scope(self) -> ScopeKey | None:
        """The scope; ``None`` is the global layer."""
        return self.chain[0] if self.chain else None

    @property
    def tokens(self) -> int:
        """The sum of the estimates of all pieces."""
        pieces = sum([piece.tokens for piece in (*self.sections, *self.contexts)])
        return pieces + sum([tool.tokens for tool in self.tools])

    def section(self, name: str) -> PieceReport:
        """Return the section of a name.

        Raises:
          NotRegisteredError: The scope has none; the message lists those that it has.
        """
        return _find(self.sections, name, "section")

    def context(self, name: str) -> PieceReport:
        """Return the runtime context of a name.

        Raises:
          NotRegisteredError: The scope has none; the message lists those that it has.
        """
        return _find(self.contexts, name, "runtime context")

    def variable(self, name: str) -> VariableReport:
        """Return the variable of a name.

        Raises:
          NotRegisteredError: The scope has none; the message lists those that it has.
        """
        return _find(self.variables, name, "variable")

    def tool(self, name: str) -> ToolReport:
        """Return the tool of a name, also one that is hidden.

        Raises:
          NotRegisteredError: The scope has none; the message lists those that it has.
        """
        return _find(self.tools, name, "tool")


def _find(pieces: tuple[P, ...], name: str, what: str) -> P:
    for piece in pieces:
        if piece.name == name:
            return piece
    known = ", ".join([piece.name for piece in pieces]) or "(none)"
    raise NotRegisteredError(f"the report has no {what} {name!r}; it has: {known}")

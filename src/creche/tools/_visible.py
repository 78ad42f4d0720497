"""Which tools a scope sees, and how they are shown to the model.

Rule 1: ``visible(None)`` is the global tools; ``visible(k)`` is ``visible(parent of k)`` filtered by k's own
restrictions, then k's own tools over it. A restriction is read chain-blind: what a scope filters is what it
inherits, never what it declares itself.
Rule 2: the request's schemas and the look-up of a call read the same view, so what is hidden is stopped.
Rule 3: a filter holds for names, also for one that goes and comes back.
Rule 4: ``run_code`` is never visible and no filter concerns it: the presentation adds it to what the model calls
itself. Native: all visible tools. Code: ``run_code`` alone, through which programs call the visible ones. Hybrid: both.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import ClassVar, Literal, get_args

import attrs

from creche._util import as_names
from creche.errors import PluginError, PromptError, RegistryError
from creche.prompt import AssembleContext, ToolProvider, ToolSchemas
from creche.scope import Derivation, Level, Registry, ScopeKey, place_name, scope_parent_of

from ._tool import RUN_CODE, Tool

Mode = Literal["native", "code", "hybrid"]


@attrs.frozen(eq=False)
class Restriction:
    """An entry: hides tools that a scope inherits, from it and from all below it. Made by `restrict`."""

    allow: frozenset[str] | None
    """The only inherited tools that stay visible; ``None`` lets all through."""
    deny: frozenset[str] = attrs.field(kw_only=True)
    """Inherited tools that are hidden."""
    entry_shape: ClassVar[Literal["anonymous"]] = "anonymous"
    narrows: ClassVar[bool] = True

    def lets_through(self, name: str) -> bool:
        """Tell whether a tool of this name stays visible."""
        return name == RUN_CODE or (name not in self.deny and (self.allow is None or name in self.allow))

    def check_registration(self, registry: Registry, scope: ScopeKey | None) -> None:
        """Refuse what would not do what its author thinks.

        Raises:
          RegistryError: It is registered globally, or names a tool that the scope does not inherit now.
        """
        if scope is None:
            raise RegistryError("a restriction needs a scope: globally, do not register the tool instead")
        inherited = registry.read(VISIBLE, scope_parent_of(scope)).known_names
        named = self.deny | (self.allow or frozenset())
        unknown = sorted(named - inherited)
        if unknown:
            own = registry.peek(Tool, scope)
            hint = next(
                (
                    f" ({name!r} is its own, which a restriction never hides; leave it out there, or register it further up)"
                    for name in unknown
                    if name in own
                ),
                "",
            )
            raise RegistryError(
                f"restriction at {place_name(scope)} names {', '.join(map(repr, unknown))}, "
                f"which it does not inherit{hint}; inherited: {', '.join(sorted(inherited)) or '(none)'}"
            )


def restrict(*, allow: Iterable[str] | None = None, deny: Iterable[str] = ()) -> Restriction:
    """Return an entry that hides inherited tools from a scope and all below it.

    A hidden tool cannot be called either. Several restrictions intersect. The names are checked against what
    the scope inherits at the moment of registration, so the order of a setup counts.

    Args:
      allow: The only inherited tools that stay visible, also among those registered later.
      deny: Tools that are hidden.

    Raises:
      RegistryError: The filter is empty, or names `run_code`.
      TypeError: It is no list of names.
    """
    allowed = None if allow is None else frozenset(as_names(allow, "allow="))
    denied = frozenset(as_names(deny, "deny="))
    if allowed is None and not denied:
        raise RegistryError("a restriction without names hides nothing; give allow= or deny= some")
    if allowed is not None and not allowed:
        raise RegistryError("an empty allow= hides every tool; give it some names, or use deny=")
    if RUN_CODE in denied | (allowed or frozenset()):
        raise RegistryError(f"{RUN_CODE!r} belongs to the presentation, not to the visible tools; use present_as()")
    return Restriction(allowed, deny=denied)


@attrs.frozen(eq=False)
class Presentation:
    """An entry: how the tools of a scope and all below it are shown to the model. Made by `present_as`."""

    mode: Mode
    """``native``: each tool is one the model calls directly. ``code``: it calls ``run_code`` alone, whose programs call the
    tools. ``hybrid``: both."""
    entry_shape: ClassVar[Literal["named"]] = "named"

    @property
    def name(self) -> str:
        """``"presentation"``: a scope has one at most."""
        return "presentation"

    def check_registration(self, registry: Registry, scope: ScopeKey | None) -> None:
        """Refuse a global presentation, and a mode that nothing here can serve.

        Raises:
          RegistryError: It is registered globally.
          PluginError: The mode needs a code runtime, and none is mounted.
        """
        if scope is None:
            raise RegistryError("a presentation needs a scope: native is what holds everywhere already")
        if self.mode != "native" and not registry.merge(CodeTool, scope):
            raise PluginError(
                f"present_as({self.mode!r}) at {place_name(scope)} needs the plugin code_mode() of creche.codemode, "
                "mounted there or above"
            )


@attrs.frozen(eq=False)
class CodeTool:
    """An entry: the tool ``run_code``, for the presentations of a scope and all below it. Code mode registers it."""

    tool: Tool
    """The tool; its name is ``run_code``."""
    entry_shape: ClassVar[Literal["named"]] = "named"

    @property
    def name(self) -> str:
        """``"run_code"``: the nearest one counts."""
        return RUN_CODE


def present_as(mode: Mode) -> Presentation:
    """Return an entry that says how tools are shown to the model at a scope and all below it; the nearest wins.

    Raises:
      RegistryError: There is no such mode.
    """
    if mode not in get_args(Mode):
        raise RegistryError(f"no presentation {mode!r}; there are {', '.join(get_args(Mode))}")
    return Presentation(mode)


@attrs.frozen(eq=False)
class VisibleTools:
    """The tools a scope sees, and how the model is shown them."""

    tools: Mapping[str, Tool]
    """The visible ones, by name."""
    known_names: frozenset[str] = attrs.field(kw_only=True)
    """Names of all tools of the chain, also of those that are restricted away."""
    direct: Mapping[str, Tool] = attrs.field(kw_only=True)
    """Those that the model calls itself, by name; programs call the visible ones."""
    mode: Mode = attrs.field(kw_only=True)
    """How they are presented."""
    presented_at: ScopeKey | None = attrs.field(default=None, kw_only=True)
    """The scope that says so, if one does."""
    schemas: ToolSchemas = attrs.field(kw_only=True)
    """What the request says about those that the model calls itself."""


def _derive_visible(levels: tuple[Level, ...]) -> VisibleTools:
    visible: dict[str, Tool] = {}
    known: set[str] = set()
    mode: Mode = "native"
    presented_at: ScopeKey | None = None
    code: Tool | None = None
    for level in levels:
        tools, restrictions, presentations, code_tools = level.tables
        for registration in restrictions:
            restriction = registration.entry
            assert isinstance(restriction, Restriction), "the table holds one kind"
            visible = {name: each for name, each in visible.items() if restriction.lets_through(name)}
        for registration in tools:
            entry = registration.entry
            assert isinstance(entry, Tool), "the table holds one kind"
            visible[entry.name] = entry
            known.add(entry.name)
        for registration in presentations:
            presentation = registration.entry
            assert isinstance(presentation, Presentation), "the table holds one kind"
            mode, presented_at = presentation.mode, level.scope
        for registration in code_tools:
            code_tool = registration.entry
            assert isinstance(code_tool, CodeTool), "the table holds one kind"
            code = code_tool.tool
    seen = MappingProxyType(visible)
    if mode == "native":
        direct: Mapping[str, Tool] = seen
        shown = known
    else:
        added = {} if code is None else {RUN_CODE: code}
        direct = MappingProxyType(added if mode == "code" else {**visible, **added})
        shown = {RUN_CODE} if mode == "code" else {*known, RUN_CODE}
    return VisibleTools(
        seen,
        known_names=frozenset(known),
        direct=direct,
        mode=mode,
        presented_at=presented_at,
        schemas=ToolSchemas(
            [each.schema for each in direct.values()],
            known_names=shown,
            orders_from=presented_at if mode == "code" else None,
        ),
    )


VISIBLE: Derivation[VisibleTools] = Derivation((Tool, Restriction, Presentation, CodeTool), derive=_derive_visible)
"""The tools a scope sees, for ``registry.read``."""


def visible(registry: Registry, scope: ScopeKey | None) -> Mapping[str, Tool]:
    """Return the tools a scope sees, by name; ``None`` is the global tools."""
    return registry.read(VISIBLE, scope).tools


def lost_sight(registry: Registry, scope: ScopeKey | None, tool: Tool, *, direct: bool) -> str | None:
    """Return a sentence for the model if a scope does not see a tool any more; ``None`` if it does.

    Args:
      registry: The shared registry.
      scope: The scope.
      tool: The tool that was found.
      direct: Whether the model itself calls it, and no program of the model.
    """
    seen = registry.read(VISIBLE, scope)
    tools = seen.direct if direct else seen.tools
    if tools.get(tool.name) is tool:
        return None
    gone = f"tool {tool.name!r} was taken away or replaced before the call began."
    return f"{gone} Visible: {', '.join(sorted(tools)) or '(none)'}"


def tool_provider(registry: Registry) -> ToolProvider:
    """Return the provider that puts what the model calls itself into every assembly; the host registers it."""

    def provide(context: AssembleContext) -> ToolSchemas:
        seen = registry.read(VISIBLE, context.scope)
        if seen.mode != "native" and RUN_CODE not in seen.direct:
            raise PromptError(
                f"tools are presented as {seen.mode!r} at {place_name(seen.presented_at)}, and the plugin code_mode() "
                "is not mounted there or above any more"
            )
        return seen.schemas

    return ToolProvider(provide)

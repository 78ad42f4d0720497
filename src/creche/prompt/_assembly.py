"""What one step tells the model besides history, as values: an assembly, its pieces, and where each comes from."""

import reprlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import ClassVar, cast

import attrs

from creche._util import is_a, is_bool, is_none_or, is_one_of, is_text, shown
from creche.errors import PromptError
from creche.messages import ToolSchema
from creche.scope import Operation, ScopeKey, place_name

from ._entries import AssembleContext, check_order, check_variable_name


@attrs.frozen
class Origin:
    """Where a piece of a prompt comes from."""

    name: str = attrs.field(validator=is_text)
    """Name of the entry."""
    kind: str = attrs.field(default="section", kw_only=True, validator=is_one_of("section", "runtime context"))
    """``"section"`` or ``"runtime context"``."""
    order: float = attrs.field(default=0.0, kw_only=True, validator=check_order)
    """Where it stands."""
    owner: str = attrs.field(default="", kw_only=True, validator=is_text)
    """Who registered it."""
    scope: ScopeKey | None = attrs.field(default=None, kw_only=True, validator=is_none_or(is_a(ScopeKey)))
    """Where it is registered; ``None`` is the global layer."""
    interpolate: bool = attrs.field(default=True, kw_only=True, validator=is_bool)
    """Whether variables are put in."""
    complete: bool = attrs.field(default=False, kw_only=True, validator=is_bool)
    """Whether it is the whole prompt."""

    def __str__(self) -> str:
        # Nobody registered what a wrapper has made.
        whose = f"{self.owner!r} at {place_name(self.scope)}" if self.owner else "a wrapper around prompt/assemble"
        return f"{self.kind} {self.name!r} of {whose}"


@attrs.frozen
class Piece:
    """One section or runtime context of an assembly."""

    origin: Origin
    """Where it comes from."""
    text: str
    """Its text, before variables are put in."""

    def __attrs_post_init__(self) -> None:
        # Many are made in a step, and a validator for each field takes as long as all the rest of it.
        if type(self.origin) is not Origin or not isinstance(cast("object", self.text), str):
            raise TypeError(f"a Piece is an Origin and a text, not {shown(self.origin)} and {shown(self.text)}")

    @property
    def name(self) -> str:
        """Name of the entry."""
        return self.origin.name


def _as_pieces(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    return tuple(pieces)


def _as_tools(tools: Iterable[ToolSchema]) -> tuple[ToolSchema, ...]:
    return tuple(tools)


def _as_variables(variables: Mapping[str, str | None]) -> Mapping[str, str | None]:
    if isinstance(variables, MappingProxyType):
        return variables  # an assembly's own, whose names were checked already
    for name, value in variables.items():
        check_variable_name(name)
        _check_value(name, value)
    return MappingProxyType(dict(variables))


def _check_value(name: str, value: object) -> None:
    if value is not None and not isinstance(value, str):
        raise PromptError(f"variable {name!r} of an assembly is {short_repr(value)}; it is a text or None")


_NO_VARIABLES: Mapping[str, str | None] = MappingProxyType({})


@attrs.frozen(eq=False)
class PromptAssembly:
    """Everything that one step tells the model besides history. Immutable; wrappers return an evolved copy."""

    sections: tuple[Piece, ...] = attrs.field(default=(), converter=_as_pieces)
    """The system prompt, in order."""
    contexts: tuple[Piece, ...] = attrs.field(default=(), converter=_as_pieces, kw_only=True)
    """The runtime contexts, in order."""
    tools: tuple[ToolSchema, ...] = attrs.field(default=(), converter=_as_tools, kw_only=True)
    """The tools, in order; the request's tools are these."""
    variables: Mapping[str, str | None] = attrs.field(default=_NO_VARIABLES, converter=_as_variables, kw_only=True)
    """Values of the registered variables; ``None`` is known but without a value this time."""
    suppressed: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    """Names of runtime contexts that a `SuppressRuntimeContext` leaves out."""

    def __attrs_post_init__(self) -> None:
        for name, kind in (("sections", Piece), ("contexts", Piece), ("tools", ToolSchema)):
            for each in getattr(self, name):
                if type(each) is not kind:
                    raise TypeError(f"PromptAssembly.{name} holds {shown(each)}; it holds {kind.__name__} values")
        for name, value in self.variables.items():
            _check_value(name, value)


class UnwrappedAssembly(PromptAssembly):
    """An assembly that no wrapper will see. It is made at each step, and not checked: the registry's entries were."""

    __slots__ = ()

    def __attrs_post_init__(self) -> None:
        pass


@attrs.frozen(eq=False)
class AssemblePrompt(Operation[PromptAssembly]):
    """A prompt has been assembled; wrappers may return another.

    They cannot add to a complete section, nor to suppressed contexts.
    """

    wire_name: ClassVar[str] = "prompt/assemble"
    context: AssembleContext
    """For whom."""
    assembly: PromptAssembly = attrs.field(kw_only=True)
    """What the registry gives."""


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = 200

    def repr_instance(self, x: object, level: int) -> str:
        return shown(x)

    def repr_int(self, x: int, level: int) -> str:
        return shown(x)  # it may be longer than Python writes out


short_repr = _Short().repr
"""Return how an error shows what somebody gave: at most some items and texts of it."""

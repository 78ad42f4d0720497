"""What the entries of a scope come to, derived once a registration and kept by the registry.

Merged and sorted: of each name the nearest, and the finished pieces of fixed texts. What depends on the moment is a
source, a function that is called at each assembly.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import attrs

from creche.scope import Derivation, Level, NamedEntry, Registration, place_name

from ._assembly import Origin, Piece
from ._entries import AssembleContext, RuntimeContext, Section, ToolOrder, ToolProvider, Variable

T = TypeVar("T")
N = TypeVar("N", bound=NamedEntry)


@attrs.frozen(eq=False)
class TextSource:
    """One effective section or context; if its text is fixed, the piece is there and nothing gives it."""

    origin: Origin
    piece: Piece | None
    give: Callable[[AssembleContext], object]


@attrs.frozen(eq=False)
class Sections:
    """The effective sections, in order, and those of them that claim to be the whole prompt."""

    texts: tuple[TextSource, ...]
    pieces: tuple[Piece, ...] | None
    """All their pieces, if all of the texts are fixed."""
    complete: tuple[Origin, ...]


@attrs.frozen(eq=False)
class Source:
    """One effective variable, or one tool provider."""

    label: str
    name: str
    owner: str
    give: Callable[[AssembleContext], object]


def _declared(levels: Iterable[Level], kind: type[T]) -> Iterator[tuple[T, Registration]]:
    for level in levels:
        for registration in level.tables[0]:
            entry = registration.entry
            assert isinstance(entry, kind), "a table holds one kind"
            yield entry, registration


def _effective(levels: Iterable[Level], kind: type[N]) -> list[tuple[N, Registration]]:
    nearest = {entry.name: (entry, registration) for entry, registration in _declared(levels, kind)}
    return list(nearest.values())


def _derive_sections(levels: tuple[Level, ...]) -> Sections:
    texts = _sorted([by.once(_text) for _, by in _effective(levels, Section)])
    fixed = tuple([text.piece for text in texts if text.piece is not None])
    pieces = fixed if len(fixed) == len(texts) else None
    return Sections(texts, pieces, tuple([text.origin for text in texts if text.origin.complete]))


def _derive_contexts(levels: tuple[Level, ...]) -> tuple[TextSource, ...]:
    return _sorted([by.once(_text) for _, by in _effective(levels, RuntimeContext)])


def _sorted(texts: list[TextSource]) -> tuple[TextSource, ...]:
    return tuple(sorted(texts, key=lambda text: (text.origin.order, text.origin.name)))


def _text(by: Registration) -> TextSource:
    entry = by.entry
    if isinstance(entry, Section):
        origin = Origin(
            entry.name,
            order=entry.order,
            owner=by.owner.name,
            scope=by.scope,
            interpolate=entry.interpolate,
            complete=entry.complete,
        )
    else:
        assert isinstance(entry, RuntimeContext), "sections and contexts alone have a text"
        origin = Origin(entry.name, kind="runtime context", order=entry.order, owner=by.owner.name, scope=by.scope)
    text = entry.text
    return TextSource(origin, Piece(origin, text), str) if isinstance(text, str) else TextSource(origin, None, text)


def _derive_variables(levels: tuple[Level, ...]) -> tuple[Source, ...]:
    return tuple(
        [
            Source(_label(f"variable {entry.name!r}", by), entry.name, by.owner.name, entry.provider)
            for entry, by in _effective(levels, Variable)
        ]
    )


def _derive_providers(levels: tuple[Level, ...]) -> tuple[Source, ...]:
    return tuple(
        [
            Source(_label("a tool provider", by), "", by.owner.name, entry.provide)
            for entry, by in _declared(levels, ToolProvider)
        ]
    )


def _label(what: str, by: Registration) -> str:
    return f"{what} of {by.owner.name!r} at {place_name(by.scope)}"


def _derive_order(levels: tuple[Level, ...]) -> Registration | None:
    found = [each for level in levels for each in level.tables[0]]
    return found[-1] if found else None


SECTIONS = Derivation((Section,), derive=_derive_sections)
CONTEXTS = Derivation((RuntimeContext,), derive=_derive_contexts)
VARIABLES = Derivation((Variable,), derive=_derive_variables)
PROVIDERS = Derivation((ToolProvider,), derive=_derive_providers)
ORDERS = Derivation((ToolOrder,), derive=_derive_order)

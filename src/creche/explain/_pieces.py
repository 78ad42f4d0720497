"""Sections, runtime contexts and variables: what became of each between its registration and the prompt."""

from collections.abc import Iterable

import attrs

from creche.errors import PromptError
from creche.prompt import (
    Origin,
    Piece,
    PromptAssembly,
    RuntimeContext,
    Section,
    render_context_sections,
    render_prompt,
)
from creche.scope import Registration

from ._report import PieceReport, PieceState, VariableReport, place_of, places_of
from ._trial import Evaluated, Trial

ADDED = "a wrapper added it"
CHANGED = "a wrapper changed it"
TAKEN_OUT = "a wrapper took it out"


def explain_sections(trial: Trial) -> tuple[PieceReport, ...]:
    """Return the sections of a prompt in order, also those that did not come into it."""
    whole = next((piece.name for piece in trial.assembly.sections if piece.origin.complete), None)
    why = TAKEN_OUT if whole is None else f"section {whole!r} is the whole prompt"
    return _explain(trial.assembly, trial.sections, trial.assembly.sections, ("left-out", why))


def explain_contexts(trial: Trial) -> tuple[PieceReport, ...]:
    """Return the runtime contexts of a prompt in order, also those that did not come into it."""
    missing: tuple[PieceState, str] = ("left-out", TAKEN_OUT)
    if trial.suppressed_by:
        missing = ("suppressed", f"suppressed by {', '.join(map(str, places_of(trial.suppressed_by)))}")
    return _explain(trial.assembly, trial.contexts, trial.assembly.contexts, missing)


def explain_variables(trial: Trial) -> tuple[VariableReport, ...]:
    """Return the variables of a prompt by name."""
    evaluated = {str(each.by.name): each for each in trial.variables}
    values = trial.assembly.variables
    return tuple([_variable(name, evaluated.get(name), values.get(name)) for name in sorted({*evaluated, *values})])


def _variable(name: str, source: Evaluated | None, value: str | None) -> VariableReport:
    if source is None:
        return VariableReport(name, place=None, note=ADDED, value=value)
    return VariableReport(
        name,
        place=place_of(source.by),
        shadows=places_of(source.shadowed),
        note=CHANGED if value != source.value else "",
        value=value,
        problem=source.failure,
    )


# ---------------------------------------------------------------- sections and runtime contexts


def _explain(
    assembly: PromptAssembly, evaluated: Iterable[Evaluated], pieces: Iterable[Piece], missing: tuple[PieceState, str]
) -> tuple[PieceReport, ...]:
    """Report on the pieces in their order, and on what did not become one where it would stand."""
    unmet = {(str(each.by.name), each.by.scope): each for each in evaluated}
    reports = [_shown(assembly, piece, unmet.pop((piece.name, piece.origin.scope), None)) for piece in pieces]
    for each in unmet.values():
        if each.failure:
            report = _report(_origin_of(each.by), each, state="failed", problem=each.failure)
        else:
            text = "" if each.piece is None else each.piece.text
            report = _report(_origin_of(each.by), each, state=missing[0], note=missing[1], text=text)
        behind = [at for at, other in enumerate(reports) if (other.order, other.name) > (report.order, report.name)]
        reports.insert(behind[0] if behind else len(reports), report)
    return tuple(reports)


def _shown(assembly: PromptAssembly, piece: Piece, source: Evaluated | None) -> PieceReport:
    """Report on a piece of the assembly."""
    note = ADDED if source is None else CHANGED if piece != source.piece else ""
    try:
        text = _render(assembly, piece)
    except PromptError as error:
        return _report(piece.origin, source, state="failed", note=note, text=piece.text, problem=str(error))
    return _report(piece.origin, source, state="shown" if text else "empty", note=note, text=text)


def _render(assembly: PromptAssembly, piece: Piece) -> str:
    """Return what the model is told of one piece.

    Raises:
      PromptError: A reference in it is malformed, illegal, unknown or without a value.
    """
    if piece.origin.kind == "section":
        return render_prompt(attrs.evolve(assembly, sections=(piece,)))
    return "".join([each.text for each in render_context_sections(attrs.evolve(assembly, contexts=(piece,)))])


def _report(
    origin: Origin,
    source: Evaluated | None,
    *,
    state: PieceState,
    note: str = "",
    text: str = "",
    problem: str = "",
) -> PieceReport:
    return PieceReport(
        origin.name,
        place=None if source is None else place_of(source.by),
        shadows=() if source is None else places_of(source.shadowed),
        note=note,
        kind="section" if origin.kind == "section" else "runtime context",
        order=origin.order,
        state=state,
        text=text,
        interpolate=origin.interpolate,
        complete=origin.complete,
        problem=problem,
    )


def _origin_of(by: Registration) -> Origin:
    """Return where an entry without a piece comes from."""
    entry, place = by.entry, place_of(by)
    if isinstance(entry, Section):
        return Origin(
            entry.name,
            order=entry.order,
            owner=place.owner,
            scope=place.scope,
            interpolate=entry.interpolate,
            complete=entry.complete,
        )
    assert isinstance(entry, RuntimeContext), "sections and contexts alone have a text"
    return Origin(entry.name, kind="runtime context", order=entry.order, owner=place.owner, scope=place.scope)

"""From an assembly to text, strictly.

``{{name}}`` is replaced by the value of a variable. The name is what stands between ``{{`` and the next
``}}``, spaces included. It is malformed if it contains a brace, illegal if it is not like
``[a-z][a-z0-9_]*``, unknown if nothing of that name is registered; and a known one may be without a value
this time. Each is an error that names the piece. ``{{`` with no ``}}`` after it is prose. What is put in is
not scanned again. ``{{open}}`` writes ``{{``.
"""

import functools
from collections.abc import Iterable, Mapping

from creche.errors import PromptError

from ._assemble import Origin, Piece, PromptAssembly
from ._entries import OPEN_VARIABLE, VARIABLE_NAME

CONTEXT_LEAD = "Runtime context as of now. It supersedes every earlier snapshot."
"""First line of every snapshot."""

_SEPARATOR = "\n\n"


def render_prompt(assembly: PromptAssembly) -> str:
    """Return the system prompt: variables put in, empty sections dropped, joined by a blank line.

    Raises:
      PromptError: A reference in a section is malformed, illegal, unknown or without a value.
    """
    variables = assembly.variables
    return _SEPARATOR.join([text for piece in assembly.sections if (text := _interpolate(piece, variables))])


def render_context_sections(assembly: PromptAssembly) -> tuple[Piece, ...]:
    """Return the runtime contexts with variables put in, empty ones dropped, each with its origin.

    Raises:
      PromptError: A reference in a context is malformed, illegal, unknown or without a value.
    """
    variables = assembly.variables
    return tuple(
        [
            piece if text is piece.text else Piece(piece.origin, text)
            for piece in assembly.contexts
            if (text := _interpolate(piece, variables))
        ]
    )


def join_context_sections(pieces: Iterable[Piece]) -> str:
    """Return rendered contexts as one snapshot under its fixed first line, ``""`` if there are none."""
    texts = [piece.text for piece in pieces]
    return _SEPARATOR.join([CONTEXT_LEAD, *texts]) if texts else ""


def _interpolate(piece: Piece, variables: Mapping[str, str | None]) -> str:
    text = piece.text
    if "{{" not in text or not piece.origin.interpolate:
        return text
    literals, names = _parse(text)
    if not names:
        return text
    pieces = [literals[0]]
    for name, literal in zip(names, literals[1:], strict=True):
        value = variables.get(name)
        if value is None:
            value = _without_value(name, piece.origin, variables)
        pieces += (value, literal)
    return "".join(pieces)


@functools.lru_cache(maxsize=1024)
def _parse(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the literal stretches of a text and the names between them. A pure function of the text."""
    literals: list[str] = []
    names: list[str] = []
    start = 0
    while (opening := text.find("{{", start)) >= 0:
        closing = text.find("}}", opening + 2)
        if closing < 0:
            break
        literals.append(text[start:opening])
        names.append(text[opening + 2 : closing])
        start = closing + 2
    literals.append(text[start:])
    return tuple(literals), tuple(names)


def _without_value(name: str, origin: Origin, variables: Mapping[str, str | None]) -> str:
    if name == OPEN_VARIABLE:
        return "{{"
    reference = "{{" + name + "}}"
    if "{" in name or "}" in name:
        raise PromptError(f"malformed reference {reference!r} in {origin}; write {{{{open}}}} for two opening braces")
    if not VARIABLE_NAME.fullmatch(name):
        raise PromptError(f"illegal variable name in {reference!r} in {origin}; names are like [a-z][a-z0-9_]*")
    if name not in variables:
        known = ", ".join(sorted(variables)) or "(none)"
        raise PromptError(f"unknown variable {reference} in {origin}; registered: {known}")
    raise PromptError(f"variable {reference} in {origin} has no value this time")

"""From an assembly to text, strictly.

``{{name}}`` is replaced by the value of a variable. The name is what stands between ``{{`` and the next
``}}``, spaces included. It is malformed if it contains a brace, illegal if it is not like
``[a-z][a-z0-9_]*``, unknown if nothing of that name is registered; and a known one may be without a value
this time. Each is an error that names the piece. ``{{`` with no ``}}`` after it is prose. What is put in is
not scanned again. ``{{open}}`` writes ``{{``.
"""

import functools
from collections.abc import Iterable, Mapping

import attrs

from creche._util import clean_text
from creche.errors import PromptError

from ._assembly import Origin, Piece, PromptAssembly
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
    return _SEPARATOR.join(
        [
            text
            for piece in assembly.sections
            # Most sections have no reference and are ASCII: there are many, and a call for each is half the work.
            if (text := piece.text if "{{" not in piece.text and piece.text.isascii() else _fill(piece, variables))
        ]
    )


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
            if (text := _fill(piece, variables))
        ]
    )


def join_context_sections(pieces: Iterable[Piece]) -> str:
    """Return rendered contexts as one snapshot under its fixed first line, ``""`` if there are none."""
    texts = [piece.text for piece in pieces]
    return _SEPARATOR.join([CONTEXT_LEAD, *texts]) if texts else ""


def _fill(piece: Piece, variables: Mapping[str, str | None]) -> str:
    """Return the text of a piece with variables put in, as valid Unicode: what is logged of it is compared with it."""
    text = piece.text
    if "{{" in text and piece.origin.interpolate:
        template = _parse_once(text) if len(text) <= _KEPT_LENGTH else _parse(text)
        pieces = template.pieces.copy()
        for at, name in template.slots:
            value = variables.get(name)
            if value is None:
                raise _without_value(template, piece.origin, variables)
            pieces[at] = value
        text = "".join(pieces)
    return text if text.isascii() else clean_text(text)


@attrs.frozen(eq=False)
class _Template:
    """A text, taken apart."""

    pieces: list[str]
    """The stretches between names, and an empty one for each name."""
    slots: tuple[tuple[int, str], ...]
    """Which of them are for which names."""


def _parse(text: str) -> _Template:
    pieces: list[str] = []
    slots: list[tuple[int, str]] = []
    start = 0
    # Not a regular expression: one that looks for the next }} takes quadratic time where there is none.
    while (opening := text.find("{{", start)) >= 0 and (closing := text.find("}}", opening + 2)) >= 0:
        name = text[opening + 2 : closing]
        pieces.append(text[start:opening])
        if name == OPEN_VARIABLE:
            pieces.append("{{")
        else:
            slots.append((len(pieces), name))
            pieces.append("")
        start = closing + 2
    pieces.append(text[start:])
    return _Template(pieces, tuple(slots))


_KEPT_LENGTH = 4096
# Bounded in number and in size: a text that is another one at each step must not stay for good.
_parse_once = functools.lru_cache(maxsize=1024)(_parse)


def _without_value(template: _Template, origin: Origin, variables: Mapping[str, str | None]) -> PromptError:
    """Return what is wrong with the first name that has no value."""
    name = next(name for _, name in template.slots if variables.get(name) is None)
    reference = "{{" + name + "}}"
    shown = repr(reference if len(reference) <= _SHOWN_LENGTH else reference[:_SHOWN_LENGTH] + "...")
    if "{" in name or "}" in name:
        return PromptError(f"malformed reference {shown} in {origin}; write {{{{open}}}} for two opening braces")
    if not VARIABLE_NAME.fullmatch(name):
        return PromptError(
            f"illegal variable name in {shown} in {origin}; names are like [a-z][a-z0-9_]*; "
            "write {{open}} for two opening braces"
        )
    if name not in variables:
        known = ", ".join(sorted(variables)) or "(none)"
        return PromptError(
            f"unknown variable {reference} in {origin}; registered: {known}; "
            "register a Variable of that name, or write {{open}} for two opening braces"
        )
    return PromptError(f"variable {reference} in {origin} has no value this time")


_SHOWN_LENGTH = 80

"""What a scope is told and why: each piece of its prompt, from whom, what it hides, and what takes a tool away.

`explain_prompt` is `creche.prompt.assemble` for people: it takes the same, and tells of what is wrong instead of
stopping at it.
"""

from creche._util import publish

from ._estimate import estimate_tokens as estimate_tokens
from ._explain import explain_prompt as explain_prompt
from ._json import report_as_json as report_as_json
from ._render import render_report as render_report
from ._report import (
    Explained as Explained,
    Finding as Finding,
    PieceReport as PieceReport,
    Place as Place,
    PromptReport as PromptReport,
    Rule as Rule,
    ToolReport as ToolReport,
    VariableReport as VariableReport,
)

__all__ = [
    "Explained",
    "Finding",
    "PieceReport",
    "Place",
    "PromptReport",
    "Rule",
    "ToolReport",
    "VariableReport",
    "estimate_tokens",
    "explain_prompt",
    "render_report",
    "report_as_json",
]

publish(globals(), __name__)

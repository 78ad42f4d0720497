"""A report for programs: the same keys always, in this order. A scope is its label, ``null`` the global layer."""

import json
import sys
from collections.abc import Iterable

from creche.messages import ToolSchema

from ._report import Explained, Finding, PieceReport, Place, PromptReport, Rule, ToolReport, VariableReport

_LARGEST = sys.float_info.max  # a whole number may be longer than Python writes out


def report_as_json(report: PromptReport) -> dict[str, object]:
    """Return a report as values that go into JSON."""
    return {
        "scope": None if report.scope is None else report.scope.label,
        "chain": [key.label for key in report.chain],
        "agent": report.agent,
        "tokens": report.tokens,
        "text": report.text,
        "snapshot": report.snapshot,
        "sections": [_piece(each) for each in report.sections],
        "contexts": [_piece(each) for each in report.contexts],
        "variables": [_variable(each) for each in report.variables],
        "tools": [_tool(each) for each in report.tools],
        "presentation": {"mode": report.mode, **_place(report.presented_by)},
        "suppressed_by": _places(report.suppressed_by),
        "wrappers": _places(report.wrappers),
        "wrapped": report.wrapped,
        "problems": list(report.problems),
        "findings": [_finding(each) for each in report.findings],
    }


def _explained(each: Explained) -> dict[str, object]:
    return {"name": each.name, **_place(each.place), "shadows": _places(each.shadows), "note": each.note}


def _place(place: Place | None) -> dict[str, object]:
    if place is None:
        return {"owner": None, "scope": None}
    return {"owner": place.owner, "scope": None if place.scope is None else place.scope.label}


def _places(places: Iterable[Place]) -> list[dict[str, object]]:
    return [_place(place) for place in places]


def _piece(piece: PieceReport) -> dict[str, object]:
    return _explained(piece) | {
        "order": min(max(piece.order, -_LARGEST), _LARGEST),
        "state": piece.state,
        "tokens": piece.tokens,
        "text": piece.text,
        "interpolate": piece.interpolate,
        "complete": piece.complete,
        "problem": piece.problem,
    }


def _variable(variable: VariableReport) -> dict[str, object]:
    return _explained(variable) | {"value": variable.value, "problem": variable.problem}


def _tool(tool: ToolReport) -> dict[str, object]:
    return _explained(tool) | {
        "state": tool.state,
        "tokens": tool.tokens,
        "schema": _schema(tool.schema),
        "hidden_by": [_rule(rule) for rule in tool.hidden_by],
        "refused_by": [_rule(rule) for rule in tool.refused_by],
    }


def _schema(schema: ToolSchema | None) -> object:
    return None if schema is None else json.loads(schema.encoded)


def _rule(rule: Rule) -> dict[str, object]:
    return {"kind": rule.kind, "names": list(rule.names), **_place(rule.place)}


def _finding(finding: Finding) -> dict[str, object]:
    return {
        "check": finding.check,
        "kind": finding.kind,
        "name": finding.name,
        "owner": finding.owner,
        "sentence": finding.sentence,
    }

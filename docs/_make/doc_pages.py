"""The pages that are drawn from the code, and the list of decisions.

``python docs/_make/doc_pages.py`` writes them anew; ``tests/docs/test_pages.py`` keeps them equal.
"""

import importlib
import inspect
import io
import re
from pathlib import Path

import attrs
from cyclopts import App
from doc_names import ROOMS
from rich.console import Console

from creche.models import FAILURES
from creche.scope import Notification, Operation, result_type_of
from creche.session import KINDS

DOCS = Path(__file__).parents[1]


def records_page() -> str:
    """Return the table of records."""
    rows = [
        f"| `{kind.name}` | `{kind.fact.__name__}` | {', '.join([f'`{each.name}`' for each in attrs.fields(kind.fact)])} "
        f"| {', '.join(sorted(kind.where))} | {kind.then or 'stays'} "
        f"| {'yes' if kind.surface else ''} | {summary(kind.fact)} |"
        for kind in KINDS.values()
    ]
    return (
        "# Records\n\n"
        "Every kind of record, where it may stand, and which phase it leads to. Drawn from `creche.session.KINDS`.\n\n"
        "| kind | data | its fields | may stand in | leads to | history | says |\n|---|---|---|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n"
    )


def events_page() -> str:
    """Return the table of events."""
    rows = []
    for event in event_classes():
        notification = issubclass(event, Notification)
        result = "" if notification else f"`{getattr(result_type_of(event), '__name__', result_type_of(event))}`"
        fields = ", ".join(f"`{each.name}`" for each in event.__attrs_attrs__)
        kind = "heard" if notification else "wrapped"
        path = f"`{event.__module__}.{event.__name__}`"
        rows.append(f"| `{event.wire_name}` | {path} | {kind} | {result} | {fields} | {summary(event)} |")
    return (
        "# Events\n\n"
        "Every event: notifications are heard with `registrar.on`, operations wrapped with `registrar.wrap`. "
        "Drawn from the classes.\n\n"
        "| wire name | class | kind | comes back | fields | says |\n|---|---|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n"
    )


def decisions_page() -> str:
    """Return the list of decisions, the newest day first."""
    notes = sorted((DOCS / "explanation" / "decisions").glob("20*.md"))
    notes.sort(key=lambda note: note.name[: len("2026-11-30")], reverse=True)
    titles = [note.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ") for note in notes]
    links = [f"- [{title}]({note.name})" for title, note in zip(titles, notes, strict=True)]
    return (
        "# Decisions\n\n"
        "Each closed a road. A note says what was decided, what else there was, and what was given up.\n\n"
        + "\n".join(links)
        + "\n"
    )


def failures_page() -> str:
    """Return the table of failures of models."""
    rows = [
        f"| `{failure.code}` | {'yes' if failure.retryable else ''} | {failure.fault} | {failure.cure} |"
        for failure in FAILURES.values()
    ]
    return (
        "# Failures of models\n\n"
        "Every kind of `ModelError`, by its `code`. What is retryable is tried again by the retry policy of the adapter. "
        "Drawn from `creche.models.FAILURES`.\n\n"
        "| code | retryable | whose fault | what to do |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def cli_page() -> str:
    """Return what each command says with ``--help``."""
    from creche.cli._app import app

    commands = [[]] + [[name] for name in sorted(app) if not name.startswith("-")]
    parts = [f"## {' '.join(['creche', *command])}\n\n```text\n{_help_of(app, command)}\n```\n" for command in commands]
    return (
        "# The command line\n\n"
        "What each command says with `--help`; [how to ask a real model](../how-to/ask-a-real-model.md) shows them at "
        "work.\n\n" + "\n".join(parts) + "\n## From Python\n\n::: creche.cli.main\n"
    )


def _help_of(app: App, command: list[str]) -> str:
    told = io.StringIO()
    app.help_print(command, console=Console(file=told, width=88, color_system=None, force_terminal=False))
    lines = [line.rstrip() for line in told.getvalue().strip().splitlines()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines))


def event_classes() -> list[type]:
    """Return the public classes of events, by wire name."""
    found: dict[str, type] = {}
    for room in ROOMS:
        for _, value in inspect.getmembers(importlib.import_module(room), inspect.isclass):
            if issubclass(value, Notification | Operation) and value not in (Notification, Operation):
                found[value.wire_name] = value
    return [found[name] for name in sorted(found)]


def summary(cls: type) -> str:
    """Return the first line of a docstring, for the cell of a table."""
    return (inspect.getdoc(cls) or "").splitlines()[0].replace("|", "\\|")


PAGES = {
    "reference/records.md": records_page,
    "reference/events.md": events_page,
    "reference/failures.md": failures_page,
    "reference/cli.md": cli_page,
    "explanation/decisions/index.md": decisions_page,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")

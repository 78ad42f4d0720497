"""The reference tables are drawn from the code.

``python tests/test_docs.py`` writes them anew.
"""

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

import creche
from creche.scope import Notification, Operation, result_type_of
from creche.session import KINDS

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"


def records_page() -> str:
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


def event_classes() -> list[type]:
    found: dict[str, type] = {}
    for module in pkgutil.walk_packages(creche.__path__, "creche."):
        if module.name.rpartition(".")[2].startswith("_"):
            continue
        for _, value in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if issubclass(value, Notification | Operation) and value not in (Notification, Operation):
                found[value.wire_name] = value
    return [found[name] for name in sorted(found)]


def summary(cls: type) -> str:
    return (inspect.getdoc(cls) or "").splitlines()[0].replace("|", "\\|")


OWN_TESTS = {"serve-from-fastapi", "use-from-a-notebook"}
"""How-to pages whose programs need a server or a kernel around them; see `tests/portal`."""

PAGES = {"records.md": records_page, "events.md": events_page}


def test_the_table_of_records_is_the_one_in_the_code() -> None:
    assert (REFERENCE / "records.md").read_text(encoding="utf-8") == records_page()


def test_the_table_of_events_is_the_one_in_the_code() -> None:
    assert (REFERENCE / "events.md").read_text(encoding="utf-8") == events_page()


@pytest.mark.parametrize(
    "page",
    [page for page in sorted((REFERENCE.parent / "how-to").glob("*.md")) if page.stem not in OWN_TESTS],
    ids=lambda page: page.stem,
)
def test_what_a_how_to_page_says_is_printed_is_printed(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    (printed,) = re.findall(r"```text\n(.*?)```", text, flags=re.DOTALL)
    script = tmp_path / "program.py"
    script.write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stderr, done.stdout) == ("", printed)


if __name__ == "__main__":
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")

"""Pages drawn from the code are the ones that the code draws now, and every link leads somewhere."""

import re
from pathlib import Path

import pytest
from doc_pages import DOCS, PAGES

ROOT = DOCS.parent
MARKDOWN = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_drawn_from_the_code_is_up_to_date(name):
    """Rule: ``python docs/_make/doc_pages.py`` has been run."""
    assert _words((DOCS / name).read_text(encoding="utf-8")) == _words(PAGES[name]())


def _words(page: str) -> list[str]:
    """Return what a page says, whatever the width of the boxes that help is printed in."""
    return [word for line in page.splitlines() for word in line.strip("│╭╮╰╯─ ").split()]


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_into_the_repository_leads_somewhere(page):
    """Rule: on GitHub too, where a page stands for itself."""
    text = re.sub(r"`[^`\n]*`", "", page.read_text(encoding="utf-8"))
    targets = re.findall(r"\]\(([^)#]+)", text)
    assert [target for target in targets if "://" not in target and not Path(page.parent, target).exists()] == []

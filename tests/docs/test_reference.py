"""Every public name stands on exactly one page of the reference."""

import re
from collections import Counter

import pytest
from doc_names import HOMES, ROOMS
from doc_pages import DOCS

import creche

REFERENCE = DOCS / "reference"
SHOWN = Counter(
    path
    for page in REFERENCE.rglob("*.md")
    for path in re.findall(r"^::: (\S+)$", page.read_text("utf-8"), re.MULTILINE)
)


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_of_a_room_stands_on_one_page(room):
    own = [path for path in HOMES.values() if path.rpartition(".")[0] == room]
    assert {path: SHOWN[path] for path in own if SHOWN[path] != 1} == {}


def test_nothing_else_stands_in_the_reference():
    assert set(SHOWN) - set(HOMES.values()) <= set(ROOMS)


def test_every_room_that_has_a_page_shows_what_it_says_of_itself():
    assert set(ROOMS) - set(SHOWN) == {"creche.cli"}  # its page is the one of the command line


def test_names_of_one_group_are_of_one_room():
    """Rule: a page shows the names of its own room, so that its address can be guessed."""
    strays = [
        f"{page.stem}: {path}"
        for page in (REFERENCE / "rooms").glob("*.md")
        for path in re.findall(r"^::: (\S+)$", page.read_text("utf-8"), re.MULTILINE)
        if page.stem not in path.split(".")
    ]
    assert strays == []


def test_the_front_page_links_every_name_of_the_root_to_its_room():
    linked = re.findall(r"\[`(\w+)`\]\[(\S+)\]", (REFERENCE / "index.md").read_text("utf-8"))
    everyday = [name for name in creche.__all__ if not name.startswith("_")]
    assert sorted(linked) == sorted((name, HOMES[name]) for name in everyday)

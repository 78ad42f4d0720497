"""The examples are the programs of the tutorial. They run as they stand, without a key, and are what its chapters show.

That a chapter says what its program prints is shown in `tests/docs`, which runs every page.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from doc_blocks import ROOT, read_blocks
from doc_pages import DOCS

from creche import say
from creche.testing import open_mock_provider

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
CHAPTERS = sorted((DOCS / "tutorial").glob("[0-9]*.md"))
CHAPTER_OF = dict(zip(EXAMPLES, CHAPTERS, strict=True))
QUESTIONS = {"desk_1_agent.py": 1, "desk_2_team.py": 3, "desk_3_scopes.py": 4, "desk_4_presets.py": 1}


def name(path):
    return path.stem


@pytest.mark.parametrize("example", EXAMPLES, ids=name)
def test_an_example_runs_and_shows_something(example, run_program):
    assert run_program(example)


@pytest.mark.parametrize("example", EXAMPLES, ids=name)
def test_an_example_fits_on_two_pages(example):
    assert len(example.read_text("utf-8").splitlines()) <= 100


@pytest.mark.parametrize("example", EXAMPLES, ids=name)
def test_the_pieces_of_a_chapter_are_its_example(example):
    """Rule: what a reader puts together is the file, but for empty lines between its pieces."""
    pieces = [each.text for each in read_blocks(CHAPTER_OF[example]) if each.needs.get("file") == example.name]
    assert filled_lines("".join(pieces)) == filled_lines(example.read_text("utf-8"))


def test_the_tutorial_says_how_long_it_takes():
    """Rule: 200 words a minute, code too, and half a minute for what is installed or run; chapters 1 to 4 are under 15 minutes."""
    start = DOCS / "tutorial" / "index.md"
    said = re.findall(r"^\|.*\| (\d+) \|$", start.read_text("utf-8"), re.MULTILINE)
    counted = [minutes(start) + 0.5, *map(minutes, CHAPTERS)]
    assert [round(each) for each in counted] == [int(number) for number in said]
    assert sum(counted[:-1]) < 15


def minutes(page):
    words = re.sub(r"<!--.*?-->", "", page.read_text("utf-8"), flags=re.DOTALL).split()
    runs = [each for each in read_blocks(page) if each.language == "console" and "not run" not in each.needs]
    return len([word for word in words if re.search(r"\w", word)]) / 200 + len(runs) / 2


def filled_lines(text):
    return [line for line in text.splitlines() if line]


@pytest.mark.parametrize("example", EXAMPLES[:-1], ids=name)
async def test_the_one_line_that_a_chapter_names_makes_it_ask_a_real_model(example, tmp_path):
    """Rule: "write NEW for OLD" is said once, OLD is there once, and the program copes with whatever is answered."""
    ((new, old),) = re.findall(r"rite `([^`]+)` for `([^`]+)`", CHAPTER_OF[example].read_text("utf-8"))
    text = example.read_text("utf-8")
    assert (text.count(old), "\n" in old) == (1, False)
    (tmp_path / example.name).write_text(text.replace(old, new), "utf-8")
    async with open_mock_provider([say("I cannot say.")] * QUESTIONS[example.name]) as mock:
        printed = await run(tmp_path / example.name, OPENAI_BASE_URL=mock.openai_url, OPENAI_API_KEY="none")
    assert {request.json["model"] for request in mock.requests} == {"gpt-5"}
    assert printed


async def run(program: Path, **variables: str) -> str:
    with trio.fail_after(60):
        done = await trio.run_process(
            [sys.executable, program],
            cwd=program.parent,
            env=os.environ | variables,
            capture_stdout=True,
            stderr=subprocess.STDOUT,
            check=False,
        )
    assert done.returncode == 0, done.stdout.decode()
    return done.stdout.decode()

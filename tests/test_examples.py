"""The examples run as they stand, without a key, and fit on a page."""

from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def test_there_are_examples():
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_runs_and_shows_something(example, run_program):
    assert run_program(example)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_fits_on_a_page(example):
    assert len(example.read_text("utf-8").splitlines()) < 60

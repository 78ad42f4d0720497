"""The sketches are part of the contract: they run unchanged."""

from pathlib import Path

import pytest

SKETCHES = sorted((Path(__file__).parent / "sketches").glob("0[1-4]*.py"))


def test_all_sketches_are_here():
    assert len(SKETCHES) == 4


@pytest.mark.parametrize("sketch", SKETCHES, ids=lambda sketch: sketch.stem)
def test_a_sketch_runs_unchanged(sketch, run_program):
    subject = sketch.stem.partition("_")[2].replace("_", " ")
    assert run_program(sketch).splitlines()[-1:] == [f"{subject} ok"]

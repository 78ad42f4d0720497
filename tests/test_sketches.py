"""The sketches are part of the contract: they run unchanged."""

import sys
from pathlib import Path

import pytest

SKETCHES = sorted((Path(__file__).parent / "sketches").glob("0*.py"))


def test_all_sketches_are_here():
    assert len(SKETCHES) == 6


@pytest.mark.parametrize("sketch", SKETCHES, ids=lambda sketch: sketch.stem)
def test_a_sketch_runs_unchanged(sketch, run_program):
    subject = sketch.stem.partition("_")[2].replace("_", " ")
    assert run_program(sketch).splitlines()[-1:] == [f"{subject} ok"]


@pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")
def test_the_sketch_of_code_mode_runs_in_the_other_runtime_too(run_program, tmp_path):
    source = next(sketch for sketch in SKETCHES if sketch.stem == "05_code_mode").read_text("utf-8")
    program = tmp_path / "sketch.py"
    other = source.replace("import code_mode", "import BubblewrapRuntime, code_mode").replace(
        "code_mode()", "code_mode(BubblewrapRuntime())"
    )
    assert other.count("BubblewrapRuntime") == 2
    program.write_text(other, "utf-8")
    assert run_program(program).splitlines() == ["code mode ok"]

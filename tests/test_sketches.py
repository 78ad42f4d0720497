"""The sketches are part of the contract: they run unchanged."""

import subprocess
import sys
from pathlib import Path

import pytest

SKETCHES = sorted((Path(__file__).parent / "sketches").glob("0[1-4]*.py"))


def test_all_sketches_are_here():
    assert len(SKETCHES) == 4


@pytest.mark.parametrize("sketch", SKETCHES, ids=lambda sketch: sketch.stem)
def test_a_sketch_runs_unchanged(sketch, tmp_path):
    done = subprocess.run(
        [sys.executable, sketch],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1:] == [f"{_subject(sketch)} ok"]


def _subject(sketch: Path) -> str:
    return sketch.stem.partition("_")[2].replace("_", " ")

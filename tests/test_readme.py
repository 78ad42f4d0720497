"""The README stays short; that what it says is what happens is shown in `tests/docs`."""

from doc_blocks import ROOT, read_blocks

BLOCKS = read_blocks(ROOT / "README.md")


def test_the_program_is_short():
    (program,) = [block.text for block in BLOCKS if block.language == "python"]
    assert len([line for line in program.splitlines() if line]) <= 20


def test_there_are_two_commands():
    assert [block.text.strip() for block in BLOCKS if block.language == "console"] == [
        "pip install '.[cli]' && creche demo .",
        "pip install -e '.[test]' && pytest",
    ]

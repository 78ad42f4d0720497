"""What the README says is what happens."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_program_prints_what_the_text_below_it_says(tmp_path: Path) -> None:
    (program,) = blocks("python")
    said = re.search(r"It prints `(.*?)`", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert said is not None
    script = tmp_path / "program.py"
    script.write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == (said[1].replace("\n", " ") + "\n", "")


def test_the_program_is_short() -> None:
    (program,) = blocks("python")
    assert len([line for line in program.splitlines() if line]) <= 20


def test_there_are_two_commands() -> None:
    assert [block.strip() for block in blocks("console")] == [
        "pip install '.[cli]' && creche demo .",
        "pip install -e '.[test]' && pytest",
    ]

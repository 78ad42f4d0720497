"""The picture of the README: ``creche demo .`` in a terminal, as it was left when the demo had ended.

``python docs/_make/picture.py`` runs the demo once more, on a real pseudo-terminal and a folder that is made for it, and
draws ``docs/pictures/demo.svg``. Only the seconds that it took and the name of its log differ from run to run; the log's
line is left out.
"""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import CONSOLE_SVG_FORMAT, Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

PICTURE = Path(__file__).parents[1] / "pictures" / "demo.svg"
COLUMNS, LINES = 84, 40
PROMPT = "\x1b[2m$\x1b[0m \x1b[1mcreche demo .\x1b[0m"

FILES = {
    "README.md": "# Teashop\n\nSells tea.\n\n- TODO: say where\n" + "About tea.\n" * 40,
    "pyproject.toml": '[project]\nname = "teashop"\n',
    "src/teashop/app.py": "# The app\n" * 180 + "    # TODO: ask for the milk first\n" + "# More of it\n" * 60,
    "src/teashop/orders.py": "# Orders\n" * 310,
    "src/teashop/stock.py": "# Stock\n" * 95 + "        # TODO: count the scones\n",
    "src/teashop/till.py": "# The till\n" * 130,
    "tests/test_orders.py": "# Tests\n" * 220,
    "tests/test_stock.py": "# Tests\n" * 75,
    "static/tea.css": ".tea { color: brown; }\n" * 45,
    "static/logo.png": "\0" * 18_000,
}

THEME = TerminalTheme(
    (24, 26, 31),
    (204, 208, 214),
    [
        (24, 26, 31),
        (232, 105, 113),
        (135, 195, 115),
        (229, 192, 110),
        (97, 169, 240),
        (200, 122, 222),
        (80, 186, 196),
        (204, 208, 214),
    ],
)


def run_demo() -> str:
    """Run the demo in a terminal of its own, and return all that it wrote there."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "teashop"
        for name, text in FILES.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        ours, theirs = pty.openpty()
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        env = {name: value for name, value in os.environ.items() if name not in ("CI", "NO_COLOR", "COLUMNS")}
        demo = subprocess.Popen(
            [sys.executable, "-m", "creche", "demo", ".", "--log", place],
            cwd=folder,
            env={**env, "TERM": "xterm-256color"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        written = b""
        while piece := _read(ours):
            written += piece
        os.close(ours)
        if demo.wait() != 0:
            raise SystemExit(f"the demo failed:\n{written.decode()}")
    return written.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says so when the last process on it has ended
        return b""


def last_screen(written: str) -> list[str]:
    """Return the lines that stay: the tree as it was drawn last, and what was written after it."""
    last = re.split(r"\r(?:\x1b\[J)?(?=\x1b\[\?7l)", written)[-1].replace("\r", "")
    lines = re.sub(r"\x1b\[(K|\?7[hl])", "", last).split("\n")
    return lines[: next(number for number, line in enumerate(lines) if line.startswith("log: ")) - 1]


def draw(lines: list[str]) -> str:
    """Return lines of a terminal as an SVG."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True, color_system="truecolor")
        for line in lines:
            console.print(Text.from_ansi(line), no_wrap=True, crop=True)
    # Without fonts from elsewhere: what shows a picture does not load them.
    shape = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    shape = shape.replace("Fira Code", "DejaVu Sans Mono, Menlo, Consolas")
    return console.export_svg(title="", theme=THEME, code_format=shape, unique_id="demo")


def picture() -> str:
    """Run the demo and return its picture."""
    return draw([PROMPT, *last_screen(run_demo())])


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(picture(), encoding="utf-8")

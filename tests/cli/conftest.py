"""What the tests of ``creche run`` share: a folder to work in, and how its process is started."""

import os
import sys

import pytest

UNSET = ("CRECHE_MODEL", "OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")


@pytest.fixture
def no_keys(monkeypatch):
    """No model and no key in the environment of this process."""
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "notes.md").write_text("milk\nbread\n", encoding="utf-8")
    return folder


@pytest.fixture
def command(folder, tmp_path):
    """What starts a process, but for the arguments: `trio.run_process` and the like take it."""

    def make(*arguments, **variables):
        env = {name: value for name, value in os.environ.items() if name not in UNSET}
        return {
            "command": [
                sys.executable,
                "-W",
                "error",
                "-m",
                "creche",
                "run",
                *arguments,
                "--folder",
                os.fspath(folder),
            ],
            "env": {**env, "CRECHE_STATE": os.fspath(tmp_path / "state"), **variables},
        }

    return make

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


def starter(name, folder, state):
    """Return what makes a command line: `trio.run_process` and the like take it."""

    def make(*arguments, **variables):
        env = {name: value for name, value in os.environ.items() if name not in UNSET}
        typed = [sys.executable, "-W", "error", "-m", "creche", name, *arguments, "--folder", os.fspath(folder)]
        return {"command": typed, "env": {**env, "CRECHE_STATE": os.fspath(state), "TERM": "xterm", **variables}}

    return make


@pytest.fixture
def command(folder, tmp_path):
    """What starts ``creche run``, but for the arguments."""
    return starter("run", folder, tmp_path / "state")


@pytest.fixture
def chat(folder, tmp_path):
    """What starts ``creche chat``, but for the arguments."""
    return starter("chat", folder, tmp_path / "state")

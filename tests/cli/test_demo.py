"""``creche demo`` as a user runs it: a real process on real folders."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from creche.cli import _app
from creche.errors import InternalError, StoreError
from creche.session import load_sessions
from creche.testing import check_log


def creche(*arguments: str | os.PathLike[str], state: Path, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "creche", *map(os.fspath, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "CRECHE_STATE": os.fspath(state)},
        **options,  # type: ignore[call-overload]  # passed on as they are
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "app.py").write_text("import os\n# TODO: say why\nprint(os)\n", encoding="utf-8")
    (folder / "notes.md").write_text("one\ntwo\nthree\nfour\n", encoding="utf-8")
    (folder / "picture.bin").write_bytes(bytes(range(256)) * 4)
    (folder / "empty.txt").write_text("", encoding="utf-8")
    return folder


def test_it_says_what_is_in_the_folder(folder: Path, tmp_path: Path) -> None:
    done = creche("demo", folder, state=tmp_path / "state")
    assert done.returncode == 0, done.stderr
    summary = done.stdout
    assert "4 files, 1.1 kB, 1 folder:" in summary
    assert ".bin: 1 file, 1.0 kB" in summary
    assert "notes.md: 4 lines" in summary
    assert "src/app.py: 3 lines" in summary
    assert "1 TODO line:\n  src/app.py:2: # TODO: say why" in summary


def test_two_subagents_are_spawned_and_one_is_forked_and_they_work_at_the_same_time(
    folder: Path, tmp_path: Path
) -> None:
    done = creche("demo", folder, state=tmp_path / "state")
    location = re.search(r"^log: (.*)$", done.stdout, flags=re.MULTILINE)
    assert location is not None
    sessions = {session.header.path: session for session in load_sessions(location[1]).values()}
    assert sorted(sessions) == ["lead", "lead/subagent-1", "lead/subagent-2", "lead/subagent_fork-1"]
    for session in sessions.values():
        check_log(session)
    started = [record.data.provider for record in sessions["lead"].records("subagent/start")]
    assert sorted(started) == ["fork", "spawn", "spawn"]
    last_start = max(record.seq for record in sessions["lead"].records("subagent/start"))
    first_end = min(record.seq for record in sessions["lead"].records("subagent/end"))
    assert last_start < first_end, "all of them were at work before the first was done"


def test_nothing_is_written_into_the_folder(folder: Path, tmp_path: Path) -> None:
    before = sorted(folder.rglob("*"))
    creche("demo", ".", state=tmp_path / "state", cwd=folder)
    assert sorted(folder.rglob("*")) == before


def test_an_empty_folder_is_summarised_too(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    done = creche("demo", tmp_path / "work", state=tmp_path / "state")
    assert done.returncode == 0
    assert "The folder is empty.\n\nNo text files.\n\nNo TODO lines.\n" in done.stdout


def test_json_is_one_object_and_no_progress(folder: Path, tmp_path: Path) -> None:
    done = creche("demo", "--json", folder, state=tmp_path / "state")
    told = json.loads(done.stdout)
    assert sorted(told) == ["log", "summary"]
    assert "notes.md: 4 lines" in told["summary"]
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("name", "problem"),
    [("missing", "No such file or directory"), ("notes.md", "Not a directory"), ("nul\0", "embedded null byte")],
)
def test_a_bad_folder_is_one_sentence_and_exit_code_2(name: str, problem: str, folder: Path, tmp_path: Path) -> None:
    if "\0" in name:
        pytest.skip("no process can be given such an argument")
    done = creche("demo", folder / name, state=tmp_path / "state")
    assert done.returncode == 2
    assert done.stderr == f"creche: cannot work in {str(folder / name)!r}: {problem}\n"
    assert done.stdout == ""
    assert not (tmp_path / "state").exists()


def test_a_working_directory_that_is_gone_is_one_sentence_and_exit_code_2(folder: Path, tmp_path: Path) -> None:
    script = (
        "import os, shutil, sys; shutil.rmtree(os.getcwd()); sys.argv[1:] = ['demo'];"
        "import creche.cli; creche.cli.main()"
    )
    env = {**os.environ, "CRECHE_STATE": os.fspath(tmp_path / "state")}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False, env=env, cwd=folder
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "creche: cannot work in '.': No such file or directory\n"


@pytest.mark.parametrize("error", [StoreError("the disk is full"), InternalError("a bug")])
def test_what_fails_below_is_one_sentence_and_exit_code_1(
    error: Exception,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def fail(*_arguments: object) -> str:
        raise error

    monkeypatch.setattr(_app, "survey", fail)
    assert _app.demo(os.fspath(folder), log=os.fspath(tmp_path / "log")) == 1
    assert capfd.readouterr() == ("", f"creche: {error}. nothing was logged\n")


def test_without_a_stdout_nothing_is_begun(folder: Path, tmp_path: Path) -> None:
    command = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "creche", "demo", folder]
    env = {**os.environ, "CRECHE_STATE": os.fspath(tmp_path / "state")}
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60, check=False, env=env)
    assert (done.returncode, done.stderr) == (1, "creche: no result: stdout is closed\n")
    assert not (tmp_path / "state").exists()


def test_wrong_usage_is_exit_code_2(tmp_path: Path) -> None:
    assert creche("demo", "a", "b", state=tmp_path / "state").returncode == 2
    assert creche("dance", state=tmp_path / "state").returncode == 2


def test_a_place_for_logs_that_cannot_be_written_is_one_sentence_and_exit_code_1(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file, not a folder", encoding="utf-8")
    done = creche("demo", folder, state=tmp_path / "state")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("creche: ")


def test_a_result_that_cannot_be_written_is_one_sentence_and_exit_code_1(folder: Path, tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        process = subprocess.run(
            [sys.executable, "-W", "error", "-m", "creche", "demo", "--json", folder],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "CRECHE_STATE": os.fspath(tmp_path / "state")},
        )
    assert (process.returncode, process.stderr) == (1, "creche: no result: No space left on device\n")


def test_odd_names_and_contents_do_not_confuse_it(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "line\nbreak.py").write_text("# TODO one\n", encoding="utf-8")
    (folder / '"quoted" {{name}}.py').write_text("// TODO two", encoding="utf-8")
    with open(os.fsencode(folder) + b"/caf\xe9.txt", "wb") as file:
        file.write(b"- TODO \xff three\n")
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe")
    done = creche("demo", folder, state=tmp_path / "state")
    assert done.returncode == 0, done.stderr
    assert "3 TODO lines:" in done.stdout
    assert "3 files" in done.stdout


@pytest.mark.parametrize(
    ("number", "word", "code"), [(signal.SIGINT, "interrupted", 130), (signal.SIGTERM, "terminated", 143)]
)
def test_a_signal_stops_everything_and_says_where_the_log_is(number: int, word: str, code: int, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    for each in range(20_000):
        (folder / f"{each}.txt").touch()
    process = subprocess.Popen(
        [sys.executable, "-m", "creche", "demo", folder],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "CRECHE_STATE": os.fspath(tmp_path / "state")},
        # Where these tests run in the background of a shell, SIGINT is ignored, and a child would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - it starts no thread
    )
    assert process.stderr is not None
    first = process.stderr.readline()
    assert "lead" in first
    process.send_signal(number)
    _, rest = process.communicate(timeout=30)
    assert process.returncode == code, rest
    assert "Traceback" not in rest
    told = re.search(rf"{word}; every agent was stopped\. log: (.*)$", rest, flags=re.MULTILINE)
    assert told is not None
    for session in load_sessions(told[1]).values():
        check_log(session)

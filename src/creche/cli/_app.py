"""The commands, and what each way of ending means to the shell.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""

import importlib.metadata
import json
import os
import sys
from pathlib import Path
from typing import Annotated

import cyclopts
import trio

from creche.errors import CrecheError
from creche.session import JsonlStore

from ._demo import survey
from ._progress import Progress
from ._state import state_folder

FAILED, USAGE, INTERRUPTED = 1, 2, 130

app = cyclopts.App(
    name="creche",
    version=importlib.metadata.version("creche"),
    help="Many AI agents in one program. `creche demo` shows a team at work, with no key and no network.",
)


@app.command
def demo(
    folder: str = ".",
    /,
    *,
    log: Annotated[str | None, cyclopts.Parameter(name="--log")] = None,
    as_json: Annotated[bool, cyclopts.Parameter(name="--json", negative=())] = False,
) -> int:
    """Let a lead and three subagents survey a folder: kinds and sizes, longest files, TODO lines.

    The model is scripted, everything else is real: the agents read the folder with file tools, work at the
    same time, and log what they do. Nothing is written into the folder.

    Args:
      folder: The folder to survey.
      log: Folder for the log; the user's state folder if absent.
      as_json: Write the summary and the place of the log as one JSON object, and no progress.
    """
    problem = _problem_with(folder)
    if problem is not None:
        return _complain(problem, USAGE)
    progress = Progress(None if as_json else sys.stderr)
    store = JsonlStore(Path(log) if log is not None else state_folder())
    try:
        summary = trio.run(survey, os.path.abspath(folder), store, progress.follow)
    except KeyboardInterrupt:
        return _complain(f"interrupted; every agent was stopped. {_where(progress.location)}", INTERRUPTED)
    except CrecheError as error:
        return _complain(f"{error}. {_where(progress.location)}", FAILED)
    if as_json:
        return _tell(json.dumps({"summary": summary, "log": progress.location}) + "\n")
    return _tell(f"\n{summary}\n\nlog: {progress.location}\n")


def _problem_with(folder: str) -> str | None:
    """Return why a folder cannot be surveyed, a sentence."""
    try:
        os.scandir(folder).close()
    except OSError as error:
        return f"cannot survey {folder!r}: {error.strerror}"
    except ValueError as error:
        return f"cannot survey {folder!r}: {error}"
    return None


def _tell(text: str) -> int:
    """Write the result; one that nobody can read is a failure, and a reader that has left needs no words."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # What is left in the buffer would fail once more when the interpreter closes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED if isinstance(error, BrokenPipeError) else _complain(f"no result: {error.strerror}", FAILED)
    return 0


def _where(location: str | None) -> str:
    return f"log: {location}" if location is not None else "nothing was logged"


def _complain(sentence: str, code: int) -> int:
    sys.stderr.write(f"creche: {sentence}\n")
    return code

"""The commands, and what each way of ending means to the shell; see `_ending.py`."""

import importlib.metadata
import json
import os
from pathlib import Path
from typing import Annotated

import cyclopts
import trio

from creche.errors import CrecheError
from creche.session import JsonlStore

from ._demo import survey
from ._ending import FAILED, INTERRUPTED, USAGE, complain, problem_with, tell, write_line
from ._progress import Progress
from ._prompt import EPILOGUE as PROMPT_EPILOGUE, prompt
from ._run import EPILOGUE as RUN_EPILOGUE, run
from ._state import sessions_folder

app = cyclopts.App(
    name="creche",
    version=importlib.metadata.version("creche"),
    help=(
        "Many AI agents in one program. `creche demo` shows a team at work, with no key and no network; "
        "`creche run` gives a task to a real model."
    ),
)
app.command(run, help_epilogue=RUN_EPILOGUE)
app.command(prompt, help_epilogue=PROMPT_EPILOGUE)


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
    problem = problem_with(folder)
    if problem is not None:
        return complain(f"cannot survey {folder!r}: {problem}", USAGE)
    progress = Progress(None if as_json else write_line)
    store = JsonlStore(Path(log) if log is not None else sessions_folder())
    try:
        summary = trio.run(survey, os.path.abspath(folder), store, progress.follow)
    except KeyboardInterrupt:
        return complain(f"interrupted; every agent was stopped. {progress.where}", INTERRUPTED)
    except CrecheError as error:
        return complain(f"{error}. {progress.where}", FAILED)
    if as_json:
        return tell(json.dumps({"summary": summary, "log": progress.location}) + "\n")
    return tell(f"\n{summary}\n\nlog: {progress.location}\n")


__all__ = ["USAGE", "app"]

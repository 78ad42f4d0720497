"""The commands, and what each way of ending means to the shell; see `_ending.py`."""

import importlib.metadata
import json
from functools import partial
from pathlib import Path
from typing import Annotated

import cyclopts
import trio

from creche.agent import Agent
from creche.host import Host
from creche.session import JsonlStore

from ._chat import EPILOGUE as CHAT_EPILOGUE, chat
from ._demo import survey
from ._ending import FAILED, USAGE, WrongUsage, check_stdout, complain, tell, unread
from ._folder import check_folder
from ._output import attend, open_output
from ._progress import Progress
from ._prompt import EPILOGUE as PROMPT_EPILOGUE, prompt
from ._run import EPILOGUE as RUN_EPILOGUE, run
from ._state import sessions_folder
from ._stopped import Stopped, run_until_stopped

app = cyclopts.App(
    name="creche",
    suppress_keyboard_interrupt=False,  # `main` says what happened
    version=importlib.metadata.version("creche"),
    help=(
        "Many AI agents in one program. `creche demo` shows a team at work, with no key and no network; "
        "`creche run` gives a task to a real model, `creche chat` talks with one."
    ),
)
app.command(run, help_epilogue=RUN_EPILOGUE)
app.command(chat, help_epilogue=CHAT_EPILOGUE)
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
    try:
        folder = check_folder(folder)
    except WrongUsage as wrong:
        return complain(str(wrong), USAGE)
    if (code := check_stdout()) is not None:
        return code
    output = None if as_json else open_output()
    progress = Progress.beside(output)
    store = JsonlStore(Path(log) if log is not None else sessions_folder())

    def watch(host: Host, lead: Agent) -> None:
        progress.follow(host, lead)
        if output is not None:
            output.follow(host.registrar)

    ended = run_until_stopped(lambda: trio.run(attend, output, partial(survey, folder, store, watch)), output)
    if isinstance(ended, Stopped) and ended.by_signal:
        return complain(f"{ended.sentence}; every agent was stopped. {progress.where}", ended.code)
    if output is not None and output.error is not None:
        return complain(f"{unread(output.error)}. {progress.where}", FAILED)
    if isinstance(ended, Stopped):
        return complain(f"{ended.sentence}. {progress.where}", ended.code)
    told = {"summary": ended, "log": progress.location}
    return tell(f"{json.dumps(told)}\n" if as_json else f"\n{ended}\n\nlog: {progress.location}\n")

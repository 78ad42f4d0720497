"""``creche run``: a lead works on a task in a folder, with a real model."""

import json
import re
import sys
from functools import partial
from typing import Annotated

import trio
from cyclopts import Parameter

from ._ending import FAILED, USAGE, WrongUsage, check_stdout, complain, is_terminal, tell, unread
from ._lead import LEAD, Job, work
from ._options import USUAL, Options
from ._outcome import End, account, end_of
from ._output import attend, open_output
from ._progress import Progress
from ._stopped import Stopped, run_until_stopped

NAMED = 4
"""Most agents that are named when they were stopped, or one less and how many more there are."""
EPILOGUE = """
Examples:

    creche run "What does this project do?" --model openai:gpt-5

    creche run "Who calls parse()?" --folder src --model llama3.2 --base-url http://127.0.0.1:8080/v1

    git diff | creche run - --model anthropic:claude-sonnet-5-5 --fallback openai:gpt-5

Exit codes: 0 done, also if an answer was cut off at the limit of tokens, which is said; 1 failed, or the model
refused; 2 wrong usage; 129 the terminal has gone; 130 interrupted; 143 terminated.
"""


def run(
    task: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    options: Options = USUAL,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """Give a task to a lead, which works in a folder and delegates to subagents.

    The answer is written to stdout as it comes, what the agents do to stderr. Keys come from the environment, such
    as OPENAI_API_KEY. Files are read, and not written without --write; what is read goes to the model's provider.

    Args:
      task: What to do; "-" reads it from stdin.
      options: What the lead works with.
      as_json: Write one JSON object at the end and nothing before: answer, outcome, usage, log, and error if it
        failed.
    """
    if (code := check_stdout()) is not None:
        return code
    can_ask = not as_json and task != "-" and is_terminal(sys.stderr)
    try:
        task = _read_task(task)
        job = options.job(can_ask=can_ask)
    except WrongUsage as wrong:
        return complain(str(wrong), USAGE)
    return _run_job(job, task, as_json=as_json)


def _read_task(task: str) -> str:
    if re.fullmatch(r"--?[a-z][\w-]*(=.*)?", task):  # what is alone on the line is not taken for an option before
        raise WrongUsage(f"the task is missing, or {task!r} is no option; see creche run --help")
    if task == "-":
        try:
            task = sys.stdin.read() if sys.stdin is not None else ""
        except (OSError, UnicodeDecodeError) as error:
            raise WrongUsage(f"the task on stdin cannot be read: {error}") from None
    if not task.strip():
        raise WrongUsage("the task is empty")
    return task


def _run_job(job: Job, task: str, *, as_json: bool) -> int:
    output = None if as_json else open_output()
    progress = Progress.beside(output, speaker=LEAD)
    ended = run_until_stopped(lambda: trio.run(attend, output, partial(work, job, task, progress, output)), output)
    end = _end_without_reply(ended, progress) if isinstance(ended, Stopped) else end_of(ended)
    if output is not None and output.error is not None and end.outcome != "cancelled":
        return complain(f"{unread(output.error)}. {account(progress)}", FAILED)
    if output is None:
        told = tell(json.dumps(end.told(progress.usage, progress.location)) + "\n")
        if told:
            return told
    note = end.error or end.note
    if note:
        return complain(f"{note.rstrip('.')}. {account(progress)}", end.code)
    return complain(account(progress), end.code) if output is not None else end.code


def _end_without_reply(stopped: Stopped, progress: Progress) -> End:
    who = f"; stopped: {_names(sorted(progress.stopped))}" if stopped.by_signal and progress.stopped else ""
    outcome = "cancelled" if stopped.by_signal else "failed"
    return End(outcome, answer=progress.answer, error=f"{stopped.sentence}{who}", code=stopped.code)


def _names(paths: list[str]) -> str:
    if len(paths) <= NAMED:
        return ", ".join(paths)
    return f"{', '.join(paths[: NAMED - 1])} and {len(paths) - NAMED + 1:,} more"

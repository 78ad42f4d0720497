"""``creche run``: a lead works on a task in a folder, with a real model."""

import errno
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import attrs
import trio
from cyclopts import Parameter

from creche.agent import Reply
from creche.errors import CrecheError, InternalError
from creche.models import ModelOptions, Usage

from ._choice import choose_models
from ._console import Console
from ._ending import (
    FAILED,
    INTERRUPTED,
    TERMINATED,
    USAGE,
    WrongUsage,
    check_folder,
    check_stdout,
    complain,
    tell,
    unread,
)
from ._lead import LEAD, Job, Powers, work
from ._progress import Progress
from ._state import approvals_file, sessions_folder

_LARGEST = 10**9

EPILOGUE = """
Examples:

    creche run "What does this project do?" --model openai:gpt-5

    creche run "Who calls parse()?" --folder src --model llama3.2 --base-url http://127.0.0.1:8080/v1

    git diff | creche run - --model anthropic:claude-sonnet-5-5 --fallback openai:gpt-5

Exit codes: 0 done, also if an answer was cut off at the limit of tokens, which is said; 1 failed, or the model
refused; 2 wrong usage; 130 interrupted; 143 terminated.
"""


def run(
    task: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    model: str | None = None,
    base_url: str | None = None,
    fallback: Annotated[list[str] | None, Parameter(negative=())] = None,
    folder: str = ".",
    log: str | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
    max_tokens: int | None = None,
    max_requests: int = 200,
    effort: str | None = None,
    write: Annotated[bool, Parameter(negative=())] = False,
    shell: Annotated[bool, Parameter(negative=())] = False,
    yes: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Give a task to a lead, which works in a folder and delegates to subagents.

    The answer is written to stdout as it comes, what the agents do to stderr. Keys come from the environment, such
    as OPENAI_API_KEY. Files are read, and not written without --write; what is read goes to the model's provider.

    Args:
      task: What to do; "-" reads it from stdin.
      model: PROVIDER:MODEL; $CRECHE_MODEL if absent.
      base_url: An endpoint that speaks as OpenAI does, for a model that is then named without a provider; it is sent
        $OPENAI_API_KEY if that is set. For "anthropic:MODEL", one that speaks as Anthropic does.
      fallback: PROVIDER:MODEL to ask when the model fails; may be given several times.
      folder: The folder to work in.
      log: Folder for the log; the user's state folder if absent.
      as_json: Write one JSON object at the end and nothing before: answer, outcome, usage, log, and error if it
        failed.
      max_tokens: Longest answer of the model, in tokens.
      max_requests: How many requests all agents may make together; then the run ends as failed.
      effort: How hard the model should think, in its provider's words, such as "low" or "high".
      write: Let the agents write and change files in the folder, and nowhere else.
      shell: Let the agents run commands, with your rights and wherever they reach. Each one is asked for on the
        terminal.
      yes: Allow every command without asking. For machines where nothing can be lost.
    """
    if (code := check_stdout()) is not None:
        return code
    try:
        job = Job(
            _read_task(task),
            folder=check_folder(folder),
            choice=choose_models(model, fallback or (), base_url),
            options=ModelOptions(effort, max_tokens=_check_number("--max-tokens", max_tokens)),
            requests=_check_number("--max-requests", max_requests) or max_requests,
            log=_check_log(log),
            powers=_check_powers(folder, write=write, shell=shell, yes=yes, can_ask=not as_json and task != "-"),
        )
    except WrongUsage as wrong:
        return complain(str(wrong), USAGE)
    return _run_job(job, as_json=as_json)


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


def _check_log(log: str | None) -> Path:
    """Return the folder for the log, which is there and can be written to."""
    folder = Path(log) if log is not None else sessions_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except (OSError, ValueError) as error:
        problem = (error.strerror if isinstance(error, OSError) else "") or str(error)
        raise WrongUsage(f"cannot keep a log in {str(folder)!r}: {problem}; give another folder with --log") from None
    return folder


def _check_powers(folder: str, *, write: bool, shell: bool, yes: bool, can_ask: bool) -> Powers:
    if yes and not shell:
        raise WrongUsage("--yes allows commands, and without --shell there are none")
    if shell and not yes and not (can_ask and sys.stdin is not None and sys.stdin.isatty()):
        raise WrongUsage("--shell asks before each command, and there is no terminal to ask on; --yes allows them all")
    memory = approvals_file(folder)
    if write and shell and not yes and memory.is_relative_to(os.path.realpath(folder)):
        raise WrongUsage(
            f"with --write, agents could change what is always allowed, in {os.fspath(memory.parent)!r}; work in a "
            "folder that does not contain that one, or set CRECHE_STATE to another"
        )
    return Powers(write=write, shell=shell, yes=yes)


def _check_number(option: str, number: int | None) -> int | None:
    if number is not None and not 1 <= number <= _LARGEST:
        raise WrongUsage(f"{option} is at least 1 and at most {_LARGEST:,}, not {number}")
    return number


def _run_job(job: Job, *, as_json: bool) -> int:
    console = None if as_json else Console()
    progress = Progress(None if console is None else console.line, speaker=LEAD)
    end = _End()
    with _terminated_as_interrupted() as terminations:
        try:
            end = _end_of(trio.run(work, job, progress, console))
        except KeyboardInterrupt:
            stopped = f"; stopped: {', '.join(sorted(progress.stopped))}" if progress.stopped else ""
            how, code = ("terminated", TERMINATED) if terminations else ("interrupted", INTERRUPTED)
            end = _End("cancelled", answer=progress.answer, error=f"{how}{stopped}", code=code)
        except (CrecheError, InternalError) as error:
            end = _End("failed", answer=progress.answer, error=str(error), code=FAILED)
        finally:
            if console is not None:
                console.drain()
    if console is not None and console.error is not None:
        return complain(f"{unread(console.error)}. {_account(progress)}", FAILED)
    if console is None:
        told = tell(json.dumps(end.told(progress)) + "\n")
        if told:
            return told
    note = end.error or end.note
    if note:
        return complain(f"{note.rstrip('.')}. {_account(progress)}", end.code)
    return complain(_account(progress), end.code) if console is not None else end.code


@contextmanager
def _terminated_as_interrupted() -> Iterator[list[int]]:
    """Let SIGTERM end a run as Ctrl-C does, for the length of the block; yield the signals that came."""
    came: list[int] = []

    def interrupt(number: int, _frame: object) -> None:
        came.append(number)
        signal.raise_signal(signal.SIGINT)  # trio knows how to raise that one where it does no harm

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield came
    finally:
        signal.signal(signal.SIGTERM, before)


@attrs.frozen
class _End:
    """How a job ended."""

    outcome: str = "failed"
    answer: str = attrs.field(default="", kw_only=True)
    note: str = attrs.field(default="", kw_only=True)
    error: str = attrs.field(default="", kw_only=True)
    code: int = attrs.field(default=FAILED, kw_only=True)

    def told(self, progress: Progress) -> dict[str, object]:
        """Return it for programs."""
        told: dict[str, object] = {
            "answer": self.answer,
            "outcome": self.outcome,
            "usage": attrs.asdict(progress.usage),
            "log": progress.location,
        }
        return told | {"error": self.error} if self.error else told


def _end_of(reply: Reply | None) -> _End:
    if reply is None:
        return _End()
    if reply.outcome == "refused":
        return _End("refused", answer=reply.text, error="the model refused to answer", code=FAILED)
    cut = "an answer was cut off at the limit of tokens; a higher --max-tokens may help"
    return _End(reply.outcome, answer=reply.text, note=cut if reply.outcome == "truncated" else "", code=0)


def _account(progress: Progress) -> str:
    usage: Usage = progress.usage
    return (
        f"{usage.requests:,} request{'' if usage.requests == 1 else 's'}, {usage.input_tokens:,} input tokens "
        f"({usage.cached_tokens:,} cached), {usage.output_tokens:,} output tokens; {progress.where}"
    )

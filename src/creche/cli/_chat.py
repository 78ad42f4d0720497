"""``creche chat``: several turns with a lead that works in a folder."""

import os
import sys
from typing import Annotated

import trio
from cyclopts import Parameter

from ._console import Console
from ._ending import USAGE, WrongUsage, check_stdout, complain, is_terminal
from ._lead import Job, open_lead
from ._options import USUAL, Options
from ._outcome import account
from ._progress import Progress
from ._state import history_file
from ._stopped import Stopped, run_until_stopped

EPILOGUE = """
Examples:

    creche chat --model openai:gpt-5

    creche chat --model llama3.2 --base-url http://127.0.0.1:8080/v1 --folder src

    printf 'What is here?\\nAnd what is missing?\\n' | creche chat --model openai:gpt-5

Exit codes: 0 left; 1 failed, or without a terminal a turn that failed; 2 wrong usage; 129 the terminal has gone; 130
interrupted; 143 terminated.
"""


def chat(
    *,
    options: Options = USUAL,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """Talk with a lead, which works in a folder and delegates to subagents.

    A line is a turn. One that is typed while the lead works reaches it in that turn. /help says what else can be typed.
    If stdin or stdout is no terminal, each line of stdin is a turn, the answers go to stdout, and what the agents do to
    stderr.

    Args:
      options: What the lead works with.
      as_json: Write one JSON object a turn and nothing else: answer, outcome, usage, log, and error if it failed. Each
        line of stdin is a turn.
    """
    if (code := check_stdout()) is not None:
        return code
    has_terminal = _has_terminal()
    try:
        job = options.job(can_ask=not as_json and (has_terminal or is_terminal(sys.stderr)))
    except WrongUsage as wrong:
        return complain(str(wrong), USAGE)
    if as_json or not has_terminal:
        from ._lines import chat_in_lines

        return chat_in_lines(job, as_json=as_json)
    return _chat_on_terminal(job)


def _has_terminal() -> bool:
    return (
        is_terminal(sys.stdin) and is_terminal(sys.stdout) and os.environ.get("TERM", "") not in ("", "dumb", "unknown")
    )


def _chat_on_terminal(job: Job) -> int:
    progress = Progress(None)
    ended = run_until_stopped(lambda: trio.run(_converse, job, progress))
    note = f"{ended.sentence}. " if isinstance(ended, Stopped) else ""
    console = Console()
    console.line(f"creche: {note}{account(progress)}")
    console.drain()
    return ended.code if isinstance(ended, Stopped) else ended


async def _converse(job: Job, progress: Progress) -> int:
    from ._conversation import Conversation  # which imports what lines need not
    from ._desk import open_desk

    async with open_desk(history_file()) as desk:
        desk.note(f"The lead works in {job.folder} with {job.choice.model}.")
        desk.note("/help says what can be typed, Ctrl-D leaves.")
        async with open_lead(job, progress, desk) as (host, lead):
            try:
                return await Conversation(host, lead, desk).run()
            finally:
                desk.close()

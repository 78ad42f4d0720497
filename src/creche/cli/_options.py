"""The options of the commands that work with a real model, and what they come to: a job.

What cannot be done is refused here, before anything is opened or sent.
"""

import errno
import os
import sys
from pathlib import Path
from typing import Annotated

import attrs
from cyclopts import Parameter

from creche.models import ModelOptions

from ._choice import choose_models
from ._ending import WrongUsage, is_terminal
from ._folder import check_folder
from ._lead import Job, Powers
from ._state import approvals_file, sessions_folder

_LARGEST = 10**9


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class Options:
    """What was typed about the lead."""

    model: str | None = None
    """PROVIDER:MODEL; $CRECHE_MODEL if absent."""
    base_url: str | None = None
    """An endpoint that speaks as OpenAI does, for a model that is then named without a provider; it is sent
    $OPENAI_API_KEY if that is set. For "anthropic:MODEL", one that speaks as Anthropic does."""
    fallback: Annotated[list[str] | None, Parameter(negative=())] = None
    """PROVIDER:MODEL to ask when the model fails; may be given several times."""
    folder: str = "."
    """The folder to work in."""
    log: str | None = None
    """Folder for the log; the user's state folder if absent."""
    max_tokens: int | None = None
    """Longest answer of the model, in tokens."""
    max_requests: int = 200
    """How many requests all agents may make together; each one after that fails."""
    effort: str | None = None
    """How hard the model should think, in its provider's words, such as "low" or "high"."""
    write: Annotated[bool, Parameter(negative=())] = False
    """Let the agents write and change files in the folder, and nowhere else."""
    shell: Annotated[bool, Parameter(negative=())] = False
    """Let the agents run commands, with your rights and wherever they reach. Each one is asked for on the terminal."""
    yes: Annotated[bool, Parameter(negative=())] = False
    """Allow every command without asking. For machines where nothing can be lost."""

    def job(self, *, can_ask: bool) -> Job:
        """Return what they come to.

        Args:
          can_ask: Whether stdin is free for answers about commands, and questions are shown.

        Raises:
          WrongUsage: It cannot be done.
        """
        return Job(
            check_folder(self.folder),
            choice=choose_models(self.model, self.fallback or (), self.base_url),
            options=ModelOptions(self.effort, max_tokens=_check_number("--max-tokens", self.max_tokens)),
            requests=_check_number("--max-requests", self.max_requests) or self.max_requests,
            log=_check_log(self.log),
            powers=_check_powers(self, can_ask=can_ask),
        )


USUAL = Options()
"""What holds when nothing was typed."""


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


def _check_powers(options: Options, *, can_ask: bool) -> Powers:
    if options.yes and not options.shell:
        raise WrongUsage("--yes allows commands, and without --shell there are none")
    asks = options.shell and not options.yes
    if asks and not (can_ask and is_terminal(sys.stdin)):
        raise WrongUsage("--shell asks before each command, and there is no terminal to ask on; --yes allows them all")
    memory = approvals_file(options.folder)
    if options.write and asks and memory.is_relative_to(os.path.realpath(options.folder)):
        raise WrongUsage(
            f"with --write, agents could change what is always allowed, in {os.fspath(memory.parent)!r}; work in a "
            "folder that does not contain that one, or set CRECHE_STATE to another"
        )
    return Powers(write=options.write, shell=options.shell, yes=options.yes)


def _check_number(option: str, number: int | None) -> int | None:
    if number is not None and not 1 <= number <= _LARGEST:
        raise WrongUsage(f"{option} is at least 1 and at most {_LARGEST:,}, not {number}")
    return number

"""The ``bash`` tool, bound to one folder, and the plugin that brings it."""

import os
import shutil
import signal
import sys
from collections.abc import Mapping

from creche.errors import PluginError, ToolFailed
from creche.scope import Plugin, SetupItem
from creche.tools import Execution, Tool, ToolContext, tool

from .._paths import decoded_path, quoted, real_path, reason, shortened
from ..approvals import ask_before
from ._environment import PLAIN, environment_from
from ._output import Output
from ._process import run_command

USUAL_SECONDS = 120
MOST_SECONDS = 600

GUIDANCE = """\
Where there is a tool to read, find, search or change files, use it instead of bash: its answers come in pages. Run what \
checks a change after you have made it."""


def shell(root: str | os.PathLike[str] = ".", *, ask: bool = True, env: Mapping[str, str] | None = None) -> Plugin:
    """Give a tool that runs commands in one folder: ``bash``.

    A command runs with the rights of this program: it is not kept in the folder, nor from the network. So each one is
    asked for: it runs if an `creche.tools.Approver` allows it, and where there is none, nothing runs. What is allowed for
    longer than once is that very command in that very folder.

    Each command starts anew in the folder. When it ends, when its time is up and when the call is cancelled, everything
    in its process group ends with it, at the latest 0.2 seconds later; what was printed until then is kept. Where there
    is no bash, it is sh that runs them.

    Args:
      root: The folder. A relative one is taken from the current folder at the time of this call.
      ask: Whether commands are asked for. Without it, let the program run where it can do no harm.
      env: The environment of the commands; by default that of this program at the time of this call, without variables
        whose names look like secrets (``OPENAI_API_KEY``, ``GH_TOKEN``, ``PGPASSWORD``). In either case variables that
        keep programs from paging and colouring are added, unless ``env`` has them.

    Raises:
      PluginError: it is not a folder, or this system has no process groups or no shell.
    """
    if sys.platform == "win32":
        raise PluginError(
            "shell: Windows has no process groups that could be ended as a whole; use it on Linux or macOS"
        )
    real: str = os.path.realpath(os.fspath(root))
    if not os.path.isdir(real):
        raise PluginError(f"shell: {quoted(real)} is not a folder")
    program = shutil.which("bash") or shutil.which("sh")
    if program is None:
        raise PluginError("shell: there is neither bash nor sh on the PATH")
    environment = environment_from(os.environ) if env is None else {**PLAIN, **env}
    setup: list[SetupItem] = [_bash(real, program, environment)]
    if ask:

        def subject(execution: Execution) -> str:
            """Name the very command in the very folder, wherever symlinks lead."""
            folder = _folder(real, str(execution.arguments.get("cwd", ".")))
            return f"in {quoted(folder)}: {execution.arguments['command']}"

        setup.append(ask_before("bash", reason="it runs with the rights of this program", subject=subject))
    return Plugin("shell", setup=setup)


def _bash(root: str, program: str, environment: Mapping[str, str]) -> Tool:
    @tool(name="bash", guidance=GUIDANCE)
    async def run_bash(
        command: str,
        description: str,
        *,
        timeout: int = USUAL_SECONDS,  # noqa: ASYNC109 - the word that models know, and what it ends is not this task
        cwd: str = ".",
        context: ToolContext | None = None,
    ) -> str:
        """Run a shell command.

        Gives what it prints, errors among the rest, and a last line in brackets if its exit code is not 0. Of more than
        30 kB the beginning and the end are given. Every command starts anew: no folder and no variable is kept from the
        one before. There is no input and no terminal. When the shell ends, what it started in the background is ended.

        Args:
          command: What bash runs.
          description: What it is for, in a few words, for people.
          timeout: Seconds it may take, 600 at most; then it is ended, and what it printed is given.
          cwd: The folder it starts in, relative to the working folder and inside it.
          context: Who calls; the model does not see this.
        """
        folder = _folder(root, cwd)
        if not 1 <= timeout <= MOST_SECONDS:
            raise ToolFailed(f"timeout is {timeout}, and it can be from 1 to {MOST_SECONDS} seconds")
        if "\0" in command:
            raise ToolFailed("the command has a NUL character in it, which no shell takes")
        output = Output()
        try:
            code = await run_command(
                [program, "-c", command], folder=folder, environment=environment, seconds=timeout, output=output
            )
        except UnicodeEncodeError:
            raise ToolFailed("the command has half of a surrogate pair in it, which is no character") from None
        except OSError as error:
            raise ToolFailed(f"the command cannot be started: {reason(error)}") from error
        finally:
            if context is not None:
                context.said = output.text()
        return _told(output.text(), _ending(code, timeout))

    return run_bash


def _folder(root: str, cwd: str) -> str:
    path = decoded_path(root, cwd)
    real = real_path(root, path)
    if not os.path.isdir(real):
        raise ToolFailed(f"{shortened(path)} is not a folder")
    return real


def _ending(code: int | None, seconds: int) -> str:
    if code is None:
        return f"[its {seconds} seconds were up, and it was ended with all that it had started]"
    if code >= 0:
        return f"[exit code {code}]" if code else ""
    try:
        return f"[ended by {signal.Signals(-code).name}]"
    except ValueError:
        return f"[ended by signal {-code}]"


def _told(text: str, ending: str) -> str:
    if not text:
        return f"[no output]\n{ending}" if ending else "[no output]"
    return f"{text}\n{ending}" if ending else text

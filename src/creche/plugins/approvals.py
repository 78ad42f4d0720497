"""Approvals: which calls have to be asked for, and what was allowed for the whole project.

Who answers is an `creche.tools.Approver`, registered wherever its agents are: on the host for all of them.

Rule 1: what was allowed for the project is a list of subjects in a file, and nothing else; a subject that is not in it
is asked for.
Rule 2: the file belongs outside of every folder that agents can write to. It is read when the plugin is mounted, and
written, whole or not at all, when somebody answers ``Allow("project")``.
"""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import cast

from creche._util import publish
from creche.errors import PluginError
from creche.scope import Next, Plugin, Registrar
from creche.session import ApprovalDecided, RecordAppended
from creche.tools import (
    Allow,
    ApprovalRequest,
    Approver,
    Deny,
    Execution,
    PreExecute,
    Proceed,
    RequestApproval,
)

Subject = Callable[[Execution], str]
"""What would be allowed if a call was allowed for longer than once."""


def ask_before(*tools: str, reason: str = "it is to be asked for", subject: Subject | None = None) -> Plugin:
    """Request an approval before each call of some tools, at a scope and all below it, in programs too.

    Args:
      tools: Their names.
      reason: Why, a sentence for who decides.
      subject: What is allowed if a call is allowed for longer than once, given the call; the name of the tool, and so
        every call of it, if absent.

    Raises:
      PluginError: No tool is named.

    Example:
      Every push is asked for, and allowed by branch::

          ask_before("push", subject=lambda execution: f"push {execution.arguments['branch']}")
    """
    if not tools:
        raise PluginError("ask_before: there is no tool to ask for; write ask_before('write', 'bash')")
    names = frozenset(tools)

    async def ask(event: PreExecute, go_on: Next[Proceed | Deny | RequestApproval]) -> Proceed | Deny | RequestApproval:
        decision = await go_on()
        if not isinstance(decision, Proceed) or event.execution.tool.name not in names:
            return decision
        about = subject(event.execution) if subject is not None else None
        return RequestApproval(reason, subject=about, arguments=decision.arguments)

    def setup(registrar: Registrar) -> None:
        registrar.wrap(PreExecute, ask)

    return Plugin("ask_before", setup=[setup])


def remember_approvals(file: str | os.PathLike[str]) -> Plugin:
    """Remember what is allowed for the project, and do not ask for it again.

    Mount it before the approver that people answer through, at the same scope: the first one that decides is asked no
    further.

    Args:
      file: Where, a path outside of the folders that agents work in. It is made when there is something to remember.

    Raises:
      PluginError: The file cannot be read, or is none of this plugin; when it is mounted.
    """
    path = Path(file)

    def setup(registrar: Registrar) -> None:
        allowed = _read(path)

        async def answer(request: ApprovalRequest) -> Allow | None:
            return Allow() if request.subject in allowed else None

        def remember(event: RecordAppended) -> None:
            fact = event.record.data
            if not isinstance(fact, ApprovalDecided) or fact.decision != "allowed" or fact.lasting != "project":
                return
            allowed.add(fact.subject)
            _write(path, allowed | _read(path))  # another program may have added to it

        registrar.add(Approver(answer))
        registrar.on(RecordAppended, remember)

    return Plugin("remember_approvals", setup=[setup])


def _read(path: Path) -> set[str]:
    try:
        found: object = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return set()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else f"it is no JSON ({error})"
        raise PluginError(f"remember_approvals: {os.fspath(path)!r} cannot be read: {why}") from error
    allowed = cast("dict[str, object]", found).get("allowed") if isinstance(found, dict) else None
    subjects = cast("list[object]", allowed) if isinstance(allowed, list) else [None]
    if not all(isinstance(each, str) for each in subjects):
        raise PluginError(f'remember_approvals: {os.fspath(path)!r} is no file of it; it would be {{"allowed": [...]}}')
    return set(cast("list[str]", subjects))


def _write(path: Path, allowed: set[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
        json.dump({"allowed": sorted(allowed)}, file, indent=2)
        file.write("\n")
    os.replace(file.name, path)


__all__ = ["Subject", "ask_before", "remember_approvals"]

publish(globals(), __name__)

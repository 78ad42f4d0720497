"""Approvals: which calls have to be asked for, and what was allowed for the whole project.

Who answers is an `creche.tools.Approver`, registered wherever its agents are: on the host for all of them.

Rule 1: what was allowed for the project is a list of tools and subjects in a file, and nothing else; what is not in it
is asked for.
Rule 2: the file belongs outside of every folder that agents can write to. It is read when the plugin is mounted, and
written, whole or not at all, when somebody answers ``Allow("project")``.
"""

import difflib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType

import attrs

from creche._util import publish
from creche.errors import InvalidArgumentsError, PluginError
from creche.scope import Next, Owner, Plugin, Registrar
from creche.session import ApprovalDecided, RecordAppended
from creche.tools import (
    VISIBLE,
    Allow,
    ApprovalRequest,
    Approver,
    Deny,
    Execution,
    PreExecute,
    Proceed,
    RequestApproval,
    Tool,
    output_shape,
)


@attrs.frozen
class _Allowed:
    tool: str
    subject: str


@attrs.frozen
class _File:
    allowed: list[_Allowed]


Subject = Callable[[Execution], str]
"""What would be allowed if a call was allowed for longer than once."""


def ask_before(*tools: str | Tool, reason: str = "it is to be asked for", subject: Subject | None = None) -> Plugin:
    """Request an approval before each call of some tools, at a scope and all below it, in programs too.

    Args:
      tools: Their names, or the tools themselves, which are meant by name. A name that no tool has, and is nearly one
        that a tool has, is a `Fault` at the first call of any tool.
      reason: Why, a sentence for who decides.
      subject: What is allowed if a call is allowed for longer than once, given the call; the name of the tool, and so
        every call of it, if absent.

    Raises:
      PluginError: No tool is named, or something else than tools.

    Example:
      Every push is asked for, and allowed by branch::

          ask_before("push", subject=lambda execution: f"push {execution.arguments['branch']}")
    """
    if not tools:
        raise PluginError("ask_before: there is no tool to ask for; write ask_before('write', 'bash')")
    names = frozenset([_name_of(each) for each in tools])

    async def ask(event: PreExecute, go_on: Next[Proceed | Deny | RequestApproval]) -> Proceed | Deny | RequestApproval:
        decision = await go_on()
        if not isinstance(decision, Proceed) or event.execution.tool.name not in names:
            return decision
        execution = event.execution
        if decision.arguments is not None:  # it is asked for what will run
            execution = attrs.evolve(execution, arguments=MappingProxyType(dict(decision.arguments)))
        about = subject(execution) if subject is not None else None
        return RequestApproval(reason, subject=about, arguments=decision.arguments)

    def setup(registrar: Registrar) -> None:
        unchecked = set(names)

        async def ask_known(
            event: PreExecute, go_on: Next[Proceed | Deny | RequestApproval]
        ) -> Proceed | Deny | RequestApproval:
            if unchecked:
                seen = registrar.registry.read(VISIBLE, event.execution.context.scope).known_names
                for name in sorted(unchecked - seen):
                    for near in difflib.get_close_matches(name, seen, n=1):
                        what = f"asking before calls of {name!r}, which there is not; did you mean {near!r}?"
                        registrar.registry.report(Owner(registrar.owner, registrar.scope), what, None)
                unchecked.clear()
            return await ask(event, go_on)

        registrar.wrap(PreExecute, ask_known)

    return Plugin("ask_before", setup=[setup])


def _name_of(tool: object) -> str:
    if isinstance(tool, Tool):
        return tool.name
    if not isinstance(tool, str):
        raise PluginError(f"ask_before takes names of tools, not {tool!r}")
    return tool


def remember_approvals(file: str | os.PathLike[str]) -> Plugin:
    """Remember what is allowed for the project, and do not ask for it again.

    Mounted anywhere on the chain of an agent, it is asked before those who decide.

    Args:
      file: Where, a path outside of the folders that agents work in. It is made when there is something to remember.

    Raises:
      PluginError: The file cannot be read, or is none of this plugin; when it is mounted.
    """
    path = Path(file)

    def setup(registrar: Registrar) -> None:
        allowed = _read(path)

        async def answer(request: ApprovalRequest) -> Allow | None:
            return Allow() if (request.tool, request.subject) in allowed else None

        def remember(event: RecordAppended) -> None:
            fact = event.record.data
            if not isinstance(fact, ApprovalDecided) or fact.decision != "allowed" or fact.lasting != "project":
                return
            allowed.add((fact.tool, fact.subject))
            _write(path, allowed | _read(path))  # another program may have added to it

        registrar.add(Approver(answer, remembers=True))
        registrar.on(RecordAppended, remember)

    return Plugin("remember_approvals", setup=[setup])


def _read(path: Path) -> set[tuple[str, str]]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return set()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise PluginError(f"remember_approvals: {os.fspath(path)!r} cannot be read: {why}") from error
    try:
        found = output_shape(_File).read(text)
    except InvalidArgumentsError as error:
        raise PluginError(f"remember_approvals: {os.fspath(path)!r} is no file of approvals: {error}") from error
    assert isinstance(found, _File), "it is what was asked for"
    return {(each.tool, each.subject) for each in found.allowed}


def _write(path: Path, allowed: set[tuple[str, str]]) -> None:
    content = {"allowed": [{"tool": tool, "subject": subject} for tool, subject in sorted(allowed)]}
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
        try:
            json.dump(content, file, indent=2)
            file.write("\n")
            file.close()
            os.replace(file.name, path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


__all__ = ["Subject", "ask_before", "remember_approvals"]

publish(globals(), __name__)

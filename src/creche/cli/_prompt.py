"""``creche prompt``: what an agent is told, piece by piece, and from whom."""

import json
import shutil
import sys
from contextlib import redirect_stdout
from typing import Annotated

import attrs
import trio
from cyclopts import Parameter

from creche.agent import AgentSpec
from creche.errors import ConfigError, CrecheError, InternalError, NotRegisteredError
from creche.explain import PromptReport, explain_prompt, render_report, report_as_json
from creche.host import Host, open_host
from creche.models import ScriptedModel
from creche.prompt import AssembleContext

from ._ending import FAILED, USAGE, WrongUsage, complain, tell, write_line
from ._folder import check_folder
from ._lead import LEAD, PERSONA, Powers, plugins_for
from ._named import Named, UserCodeFailed, find_named, said

EPILOGUE = """
Examples:

    creche prompt

    creche prompt --preset team:PRESETS:reviewer --agent ann

    creche prompt --preset app:make_host --json

Exit codes: 0 done, also if the report tells of something that is wrong; 1 there is no report, or with --text no
prompt; 2 wrong usage; 130 interrupted.
"""


@attrs.frozen(eq=False, kw_only=True)
class _Whom:
    """Whose prompt is wanted."""

    named: Named
    """The host, and the preset in it."""
    agent: str | None
    """Name of an agent to open there; ``None`` is nobody."""
    folder: str
    """The agent's working directory."""


def prompt(
    *,
    preset: str | None = None,
    agent: str | None = None,
    folder: str = ".",
    write: Annotated[bool, Parameter(negative=())] = False,
    shell: Annotated[bool, Parameter(negative=())] = False,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
    as_text: Annotated[bool, Parameter(name="--text", negative=())] = False,
) -> int:
    """Show what an agent is told: each piece of its prompt, from whom, what it hides, and who takes tools away.

    Without --preset it is the lead of `creche run`. No model is asked, and tokens are estimated.

    Args:
      preset: MODULE:NAME, found as `python -m MODULE` would find it: a Preset, a list of them, what open_host() gives, or
        a function that returns one of these. MODULE:NAME:PRESET says which preset of several, or of a host. What the
        plugins of a host bring is shown only if the host is named. The module runs when it is imported.
      agent: Name of an agent to open there, so that what needs one is shown too. Without it, --preset shows what the
        preset or host says for itself.
      folder: Working directory of the agent.
      write: As for `creche run`.
      shell: As for `creche run`.
      as_json: Write one JSON object.
      as_text: Write the system prompt alone, as it would be sent, and a line break.
    """
    try:
        _check_one_way(as_json=as_json, as_text=as_text)
        whom = _find(preset, agent, folder, Powers(write=write, shell=shell))
        with redirect_stdout(sys.stderr):  # what the user's code prints is not a part of the report
            report = trio.run(_explain, whom)
    except WrongUsage as wrong:
        return complain(str(wrong), USAGE)
    except (UserCodeFailed, CrecheError, InternalError) as error:
        return complain(" ".join(str(error).split()), FAILED)
    return _show(report, alone=whom.named.alone, as_json=as_json, as_text=as_text)


def _find(preset: str | None, agent: str | None, folder: str, powers: Powers) -> _Whom:
    folder = check_folder(folder)
    if agent is not None:
        _check_name(agent)
    if preset is None:
        host = open_host(model=ScriptedModel({}), persona=PERSONA, plugins=plugins_for(folder, powers))
        return _Whom(named=Named(host, preset=None), agent=agent or LEAD, folder=folder)
    if powers != Powers():
        raise WrongUsage(
            "--write and --shell are for the lead of creche run; with --preset, the presets say what there is"
        )
    with redirect_stdout(sys.stderr):
        return _Whom(named=find_named(preset), agent=agent, folder=folder)


def _check_one_way(*, as_json: bool, as_text: bool) -> None:
    if as_json and as_text:
        raise WrongUsage("--json and --text are two ways to show it; give one of them")


def _check_name(agent: str) -> None:
    try:
        AgentSpec(agent)
    except ConfigError as error:
        raise WrongUsage(f"--agent: {error.problems[0][1]}") from None


async def _explain(whom: _Whom) -> PromptReport:
    try:
        async with whom.named.host as host:
            return await _explain_in(_check_host(host), whom)
    except (WrongUsage, CrecheError, InternalError):
        raise
    except Exception as error:
        raise UserCodeFailed(f"what --preset names failed: {said(error)}") from error


def _check_host(opened: object) -> Host:
    if not isinstance(opened, Host):
        raise WrongUsage(f"what --preset names opens {opened!r:.200}, and not a host")
    return opened


async def _explain_in(host: Host, whom: _Whom) -> PromptReport:
    try:
        standing = None if whom.named.preset is None else host.presets.get(whom.named.preset)
    except NotRegisteredError as error:
        raise WrongUsage(str(error)) from None
    if whom.agent is None:
        return await explain_prompt(host.registry, AssembleContext(None if standing is None else standing.scope))
    model = host.model if standing is None or standing.model is None else standing.model
    spec = AgentSpec(whom.agent, cwd=whom.folder, model=ScriptedModel({}) if model is None else None)
    async with host.open_agent(spec, preset=whom.named.preset) as opened:
        return await explain_prompt(host.registry, AssembleContext.of(opened))


ALONE = "what the plugins of a host bring is not shown with a preset alone; name the function that opens the host"


def _show(report: PromptReport, *, alone: bool, as_json: bool, as_text: bool) -> int:
    hint = "" if report.agent is not None or not report.problems else "give --agent NAME for what needs an agent"
    if as_json:
        return tell(json.dumps(report_as_json(report)) + "\n")
    if as_text:
        if report.text is None:
            return complain("; ".join(["there is no prompt", *report.problems, *([hint] if hint else [])]), FAILED)
        code, hint = tell(f"{report.text}\n"), ""
    else:
        code = tell(render_report(report, width=shutil.get_terminal_size().columns))
    for line in (hint, ALONE if alone else ""):
        if line and not code:
            write_line(f"creche: {line}")
    return code

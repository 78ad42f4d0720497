"""``creche prompt``: what an agent is told, piece by piece, and from whom."""

import json
import shutil
from functools import partial
from typing import Annotated

import attrs
import outcome
import trio
from cyclopts import Parameter

from creche._util import shown
from creche.agent import AgentSpec
from creche.errors import ConfigError, NotRegisteredError
from creche.explain import PromptReport, explain_prompt, render_report, report_as_json
from creche.host import Host, open_host
from creche.models import ScriptedModel
from creche.prompt import AssembleContext

from ._ending import FAILED, WrongUsage, check_stdout, complain, tell, write_line
from ._folder import check_folder
from ._lead import LEAD, PERSONA, Powers, plugins_for
from ._named import Named, find_named
from ._stopped import Stopped, run_until_stopped
from ._users import UserCodeFailed, kept_from_stdout, users_code

EPILOGUE = """
Examples:

    creche prompt

    creche prompt --preset team:PRESETS:reviewer --agent ann

    creche prompt --preset app:make_host --json

Exit codes: 0 done, also if the report tells of something that is wrong; 1 there is no report, or with --text no
prompt; 2 wrong usage; 129 the terminal has gone; 130 interrupted; 143 terminated.
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
    if (code := check_stdout()) is not None:
        return code
    powers = Powers(write=write, shell=shell)
    ended = run_until_stopped(partial(_report, preset, agent, folder, powers, ways=(as_json, as_text)))
    if isinstance(ended, Stopped):
        return complain(" ".join(ended.sentence.split()), ended.code)
    report, alone = ended
    return _show(report, alone=alone, as_json=as_json, as_text=as_text)


def _report(
    preset: str | None, agent: str | None, folder: str, powers: Powers, *, ways: tuple[bool, bool]
) -> tuple[PromptReport, bool]:
    """Return the report, and whether it is about a preset alone."""
    if all(ways):
        raise WrongUsage("--json and --text are two ways to show it; give one of them")
    with kept_from_stdout():
        whom = _find(preset, agent, folder, powers)
        with users_code("what --preset names failed", is_host=True):
            explained = trio.run(_explain, whom)
            report = None if explained is None else explained.unwrap()
    if report is None:
        raise UserCodeFailed("what --preset names ended before there was a report, and swallowed why")
    return report, whom.named.alone


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
    return _Whom(named=find_named(preset), agent=agent, folder=folder)


def _check_name(agent: str) -> None:
    try:
        AgentSpec(agent)
    except ConfigError as error:
        raise WrongUsage(f"--agent: {error.problems[0][1]}") from None


async def _explain(whom: _Whom) -> outcome.Value[PromptReport] | outcome.Error | None:
    """Open the host and explain. What goes wrong inside is no exception of the host's block: that is the user's code.

    Returns:
      The report, or what was wrong; ``None`` if the block was ended from outside, and nobody says why.
    """
    explained: outcome.Value[PromptReport] | outcome.Error | None = None
    async with whom.named.host as host:
        try:
            explained = outcome.Value(await _explain_in(_check_host(host), whom))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it is raised once the host is closed
            explained = outcome.Error(error)
    return explained


def _check_host(opened: object) -> Host:
    if not isinstance(opened, Host):
        raise WrongUsage(f"what --preset names opens {shown(opened)}, and not a host")
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

"""The lead that works on a task: what it is, and how its answer is heard."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import attrs

from creche.agent import Agent, AgentSpec, Budget, DeltaStreamed, Reply
from creche.host import Host, open_host
from creche.models import ModelOptions, TextDelta, ToolCallDelta
from creche.plugins.approvals import remember_approvals
from creche.plugins.fallback import fallback
from creche.plugins.files import files
from creche.plugins.shell import shell
from creche.scope import Plugin
from creche.session import AssistantSaid, AttemptFailed, JsonlStore, RecordAppended, RetryPlanned
from creche.subagents import delegation

from ._approver import Answers, Keyboard, Terminal
from ._choice import Choice
from ._output import Output
from ._progress import Progress
from ._state import approvals_file

LEAD = "lead"
PERSONA = (
    "You work in the folder {{cwd}}, whose files you see through your tools. Look before you answer, and do not guess "
    "what a file says. If you have tools to delegate, give parts of the task that do not need each other to subagents, "
    "all in one answer, so that they work at the same time; do small things yourself. Answer concisely, and say what "
    "you could not find out."
)
"""Who the lead and its subagents are."""


@attrs.frozen(kw_only=True)
class Powers:
    """What the agents may do besides reading."""

    write: bool = False
    """Whether they may write files in the folder."""
    shell: bool = False
    """Whether they may run commands."""
    yes: bool = False
    """Whether nobody is asked before a command."""


@attrs.frozen(eq=False)
class Job:
    """What a lead has to work with."""

    folder: str
    """Where, an absolute path."""
    choice: Choice = attrs.field(kw_only=True)
    """With which models."""
    options: ModelOptions = attrs.field(kw_only=True)
    """How they are asked."""
    requests: int = attrs.field(kw_only=True)
    """How many requests they may make together."""
    log: Path = attrs.field(kw_only=True)
    """Folder for the log."""
    powers: Powers = attrs.field(factory=Powers, kw_only=True)
    """What the agents may do."""


def plugins_for(folder: str, powers: Powers) -> list[Plugin]:
    """Return what gives agents their tools."""
    plugins = [files(folder, write=powers.write), delegation()]
    if powers.shell:
        plugins.append(shell(folder, ask=not powers.yes))
    return plugins


class Page(Protocol):
    """Where an answer can be written as it comes."""

    def say(self, text: str, /) -> None:
        """Write more of the answer."""
        ...

    def end_line(self) -> None:
        """Let what comes next begin on a line of its own."""
        ...


async def work(job: Job, task: str, progress: Progress, output: Output | None) -> Reply:
    """Let a lead work on a task and return its reply.

    Args:
      job: What it has to work with.
      task: What to do.
      progress: Told what the agents do.
      output: Where the answer is written as it comes; nowhere if absent.
    """
    answers = None if output is None else Keyboard(output)
    async with open_lead(job, progress, answers) as (host, lead):
        if output is not None:
            output.follow(host.registrar)
            speak(host, lead, output, lambda: progress.line(LEAD, "begins the answer anew"))
        return await lead.ask(task)


@asynccontextmanager
async def open_lead(job: Job, progress: Progress, answers: Answers | None = None) -> AsyncIterator[tuple[Host, Agent]]:
    """Open a host and a lead for the length of the block.

    Args:
      job: What it has to work with.
      progress: Told what the agents do.
      answers: Who is asked before a command; what has to be asked for is refused if absent.
    """
    plugins = plugins_for(job.folder, job.powers)
    if job.powers.shell and answers is not None and not job.powers.yes:
        plugins += [remember_approvals(approvals_file(job.folder)), Terminal(answers).plugin]
    if job.choice.fallbacks:
        plugins.append(fallback(*job.choice.fallbacks))
    spec = AgentSpec(LEAD, cwd=job.folder, options=job.options, budget=Budget(requests=job.requests))
    async with open_host(model=job.choice.model, persona=PERSONA, plugins=plugins, store=JsonlStore(job.log)) as host:
        for provider in job.choice.providers:
            host.registrar.add(provider)
        async with host.open_agent(spec) as lead:
            progress.follow(host, lead)
            yield host, lead


def speak(host: Host, lead: Agent, page: Page, tell_anew: Callable[[], None]) -> None:
    """Write what a lead says as it says it, each of its answers on lines of its own.

    Args:
      host: Its host.
      lead: The lead.
      page: Where it is written.
      tell_anew: Called before an answer is said once more whose beginning is written already.
    """
    speech = _Speech(page, tell_anew)
    pen = host.registrar.at(lead.scope)
    pen.on(DeltaStreamed, speech.hear, here_only=True)
    pen.on(RecordAppended, speech.note, here_only=True)


class _Speech:
    """Hears what an agent says."""

    def __init__(self, page: Page, tell_anew: Callable[[], None]) -> None:
        self._page = page
        self._tell_anew = tell_anew
        self._has_begun = False

    def hear(self, event: DeltaStreamed) -> None:
        """Write a delta."""
        if isinstance(event.delta, TextDelta):
            self._has_begun = True
            self._page.say(event.delta.text)
        elif isinstance(event.delta, ToolCallDelta):
            self._page.end_line()

    def note(self, event: RecordAppended) -> None:
        """End the lines of an answer that is complete, or void."""
        match event.record.data:
            case AssistantSaid():
                self._page.end_line()
                self._has_begun = False
            case AttemptFailed():
                self._page.end_line()
            case RetryPlanned() if self._has_begun:
                self._tell_anew()
                self._has_begun = False
            case _:
                pass

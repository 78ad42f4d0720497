"""The demo: a lead and three subagents survey a folder with real file tools; only the model is scripted.

What the agents decide is written here, as functions of their requests; everything they know they read with
tools, so the summary is right for any folder. The lead looks at the top level first. Then it delegates three
things at once: two subagents are spawned, for kinds and sizes and for the longest files, and one is forked,
for the TODO lines: what to look for was said in the turn that it inherits.
"""

import re
from collections.abc import Callable

from creche.agent import Agent, AgentSpec
from creche.host import Host, open_host
from creche.messages import AssistantMessage, ToolMessage
from creche.models import Call, FunctionModel, ModelRequest, Say, call, say
from creche.plugins.files import files
from creche.session import SessionStore
from creche.subagents import delegation

from ._survey import (
    MOST_TODOS,
    TODO,
    Entry,
    parse_listing,
    parse_matches,
    summarise_kinds,
    summarise_longest,
    summarise_todos,
)

PAGE = 5000
"""Entries that the agents ask for at once."""

INTRODUCTION = "We survey this folder. Look at its top level, and say which mark of unfinished work you will look for."
TASK = "Summarise the folder: kinds and sizes, the longest files, and the lines that mark unfinished work."

Answer = list[Say | Call]


async def survey(folder: str, store: SessionStore, watch: Callable[[Host, Agent], None]) -> str:
    """Survey a folder with a team of agents and return the lead's summary.

    Args:
      folder: The folder.
      store: Where the log goes.
      watch: Called once the lead is there, to follow what happens.
    """
    async with (
        open_host(model=FunctionModel(answer), plugins=[files(folder), delegation()], store=store) as host,
        host.open_agent(AgentSpec("lead", cwd=folder)) as lead,
    ):
        watch(host, lead)
        await lead.ask(INTRODUCTION)
        return (await lead.ask(TASK)).text


def answer(request: ModelRequest) -> Answer:
    """Answer any of the demo's agents."""
    roles = {
        "lead": _lead,
        "lead/subagent-1": _kinds,
        "lead/subagent-2": _longest,
        "lead/subagent_fork-1": _todos,
    }
    return roles[request.agent_path](request)


def _lead(request: ModelRequest) -> Answer:
    results = _results(request)
    if not results:
        return [call("list", recursive=False, limit=PAGE)]
    if len(results) == 1 and request.last_user_text == INTRODUCTION:
        seen = _listed(results)
        if isinstance(seen, str):
            return [say(seen)]
        return [say(f"There are {len(seen)} entries at the top level. I will look for lines that match {TODO} ...")]
    reports = [result for result in results if result.name in ("subagent", "subagent_fork")]
    if not reports:
        return [
            call("subagent", description="kinds and sizes", prompt="List the folder. Report kinds and sizes of files."),
            call(
                "subagent", description="longest files", prompt="List the folder. Report the five longest text files."
            ),
            call("subagent_fork", description="TODO lines", prompt="Report the lines that mark unfinished work."),
        ]
    return [say("\n\n".join([report.text for report in reports]))]


def _kinds(request: ModelRequest) -> Answer:
    return _from_listing(request, summarise_kinds)


def _longest(request: ModelRequest) -> Answer:
    return _from_listing(request, summarise_longest)


def _from_listing(request: ModelRequest, report: Callable[[list[Entry]], str]) -> Answer:
    results = _results(request)
    if not results:
        return [call("list", limit=PAGE)]
    if not results[-1].is_error and (after := parse_listing(results[-1].text).after):
        return [call("list", limit=PAGE, after=after)]
    listed = _listed(results)
    return [say(listed if isinstance(listed, str) else report(listed))]


def _todos(request: ModelRequest) -> Answer:
    results = [result for result in _results(request) if result.name == "grep"]
    if not results:
        return [call("grep", pattern=_agreed_pattern(request), limit=MOST_TODOS)]
    if results[-1].is_error:
        return [say(f"TODO lines could not be found: {results[-1].text}")]
    page = parse_matches(results[-1].text)
    return [say(summarise_todos(page.matches, page.more))]


def _agreed_pattern(request: ModelRequest) -> str:
    """Return what the lead said it would look for, in the turn that the fork inherits."""
    for message in reversed(request.messages):
        if isinstance(message, AssistantMessage) and (
            said := re.search(r"lines that match (\S+) \.\.\.", message.text)
        ):
            return said[1]
    return TODO


def _results(request: ModelRequest) -> list[ToolMessage]:
    return [message for message in request.messages if isinstance(message, ToolMessage)]


def _listed(results: list[ToolMessage]) -> list[Entry] | str:
    """Return the entries of all pages, or the sentence of the page that failed."""
    for result in results:
        if result.is_error:
            return f"The folder could not be listed: {result.text}"
    return [entry for result in results for entry in parse_listing(result.text).entries]

"""What a chat says about its agents when it is asked, as text for people."""

import shutil
import sys
from typing import Literal

from creche.agent import Agent
from creche.explain import explain_prompt, render_report
from creche.prompt import AssembleContext

from ._live import ASCII, UNICODE, draw, plain
from ._team import Team
from ._text import counted, shortened
from ._typed import COMMANDS

MOST_SHOWN = 60
"""Characters of what an agent does."""
ROOM_BESIDE = 10
"""Lines of a tree that are no agents, and some more."""


async def command_text(name: Literal["help", "agents", "prompt"], team: Team, lead: Agent, now: float) -> str:
    """Return what is said to a command that asks for something.

    Args:
      name: The command.
      team: The team.
      lead: The agent whose prompt it is.
      now: The time on the team's clock.
    """
    match name:
        case "help":
            return help_text()
        case "agents":
            return agents_text(team, now)
        case "prompt":
            return await prompt_text(lead)


def status_text(team: Team, unread: int, now: float) -> str:
    """Return who works, on one line; of an idle team, what it cost.

    Args:
      team: The team.
      unread: How many lines wait for the next step.
      now: The time on the team's clock.
    """
    at_work = [row for row in team.rows() if not row.doing.is_over]
    waiting = [f"{counted(unread, 'line')} not read yet"] if unread else []
    if not at_work:
        usage = team.totals().usage
        cost = f"{usage.total_tokens:,} tokens, {usage.cached_tokens:,} cached; " if usage.requests else ""
        return "; ".join([*waiting, f"idle; {cost}/help"])
    shown = [
        f"{row.name} {shortened(row.doing.says(now), MOST_SHOWN)} {now - row.doing.since:.0f} s" for row in at_work
    ]
    return " | ".join([*waiting, *([f"{len(shown)} at work"] if len(shown) > 1 else []), *shown])


def agents_text(team: Team, now: float) -> str:
    """Return the tree of agents: what each does, what it cost, how long it has been there."""
    rows = team.rows()
    if not rows:
        return "no agent has done anything yet"
    glyphs = UNICODE if sys.stdout.encoding.lower().startswith("utf") else ASCII
    height = len(rows) + ROOM_BESIDE
    lines = draw(rows, team.totals(), now, width=_columns(), height=height, glyphs=glyphs)
    return "\n".join([plain(line).rstrip() for line in lines])


def _columns() -> int:
    return shutil.get_terminal_size().columns


async def prompt_text(lead: Agent) -> str:
    """Return the prompt and the tools of an agent as they would be sent now, piece by piece."""
    report = await explain_prompt(lead.registry, AssembleContext.of(lead))
    return render_report(report, width=_columns()).rstrip("\n")


def help_text() -> str:
    """Return what can be typed."""
    width = max(map(len, COMMANDS)) + 1
    lines = [f"{'/' + name:<{width}}  {what}" for name, what in COMMANDS.items()]
    return "\n".join([*lines, f"{'//':<{width}}  begins a line that is sent with one slash"])

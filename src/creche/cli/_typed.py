"""What a line that was typed into a chat means: a message, or a command of its own."""

from typing import Literal, cast, get_args

import attrs

from creche._util import clean_text

from ._ending import WrongUsage

Name = Literal["help", "agents", "prompt", "cancel", "quit"]

COMMANDS: dict[Name, str] = {
    "help": "what can be typed",
    "agents": "the agents: what each does, tokens, cached tokens, seconds",
    "prompt": "the prompt and the tools of the lead, as they would be sent now",
    "cancel": "cancel the turn",
    "quit": "leave; so does Ctrl-D",
}
"""The commands and what they are for."""
LONGEST = 40
"""Characters of a line that are repeated when it is no command."""


@attrs.frozen
class Message:
    """Something to say to the lead."""

    text: str
    """As it is sent: of two slashes at its beginning, one."""


@attrs.frozen
class Command:
    """One of `COMMANDS`."""

    name: Name
    """Its name, without the slash."""


def read_line(line: str) -> Message | Command | None:
    """Return what a line means; ``None`` for a blank one. It may be several lines that were pasted.

    Raises:
      WrongUsage: It begins with a slash and is no command.
    """
    text = clean_text(line.rstrip())
    if not text:
        return None
    if text.startswith("//"):
        return Message(text[1:])
    if not text.startswith("/"):
        return Message(text)
    name = text[1:]
    if name in get_args(Name):
        return Command(cast("Name", name))
    known = ", ".join([f"/{each}" for each in COMMANDS])
    raise WrongUsage(f"{_short(text)!r} is no command; there are {known}; to send it as it is, begin with //")


def _short(text: str) -> str:
    line = text.splitlines()[0]
    return line if line == text and len(line) <= LONGEST else f"{line[:LONGEST]}..."

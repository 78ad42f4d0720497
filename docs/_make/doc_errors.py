"""The page of errors: every message of `doc_messages`, in groups that have one cause and one cure, written by hand.

A group is a heading, a list of messages with how each is met, and what is under it. ``python docs/_make/doc_errors.py``
writes the messages that the page lacks under a heading of their room, for somebody to explain, and takes out those that
the code has no more. ``tests/docs/test_errors.py`` keeps both equal.
"""

import re

import attrs
from doc_messages import PLACE, Message, Reader
from doc_pages import DOCS

PAGE = DOCS / "reference" / "errors.md"
TITLES = {"_util": "Values of any room", "cli": "The command line"}
NEW = "To be explained"
ENTRY = re.compile(r"- (`+) ?(?P<template>.*?) ?\1 \((?P<raised>[^()]*)\)")


@attrs.define
class Group:
    """Messages with one cause and one cure."""

    room: str
    """The heading of the room."""
    title: str
    """The heading of the group."""
    entries: list[tuple[str, str]] = attrs.field(factory=list)
    """Templates, and how each is met."""
    text: list[str] = attrs.field(factory=list)
    """The other lines: cause and cure."""


def title_of(room: str) -> str:
    """Return the heading of a room."""
    return TITLES.get(room, f"creche.{room}")


def key_of(room: str, template: str) -> tuple[str, str]:
    """Return what makes an entry one, whatever the places to fill are called."""
    return room, PLACE.sub("{}", template)


def read_page(text: str) -> tuple[str, list[Group]]:
    """Return what stands before the first room, and the groups in order."""
    begin = text.index("\n## ") + 1
    groups: list[Group] = []
    room = ""
    for line in text[begin:].splitlines():
        if line.startswith("## "):
            room = line.removeprefix("## ")
        elif line.startswith("### "):
            groups.append(Group(room, line.removeprefix("### ")))
        elif (found := ENTRY.fullmatch(line)) is not None:
            groups[-1].entries.append((found["template"], found["raised"]))
        elif groups:
            groups[-1].text.append(line)
    return text[:begin], groups


def write_page(head: str, groups: list[Group]) -> str:
    """Return the text of the page."""
    lines, room = [head.rstrip(), ""], ""
    for group in groups:
        if group.room != room:
            room = group.room
            lines += [f"## {room}", ""]
        lines += [f"### {group.title}", ""]
        lines += [_line(template, raised) for template, raised in group.entries]
        lines += ["", "\n".join(group.text).strip(), ""]
    return "\n".join(lines).rstrip() + "\n"


def _line(template: str, raised: str) -> str:
    fence = "``" if "`" in template else "`"
    blank = " " if template.startswith("`") or template.endswith("`") else ""
    return f"- {fence}{blank}{template}{blank}{fence} ({raised})"


def bring_up_to_date(text: str, messages: list[Message]) -> str:
    """Return the page without the messages that are gone, and with those that it lacks."""
    head, groups = read_page(text)
    wanted = {key_of(title_of(message.room), message.template): message for message in sorted(messages)}
    for group in groups:
        kept = []
        for template, _ in group.entries:
            message = wanted.pop(key_of(group.room, template), None)
            if message is not None:
                kept.append((template, message.raised))
        group.entries = kept
    for (room, _), message in wanted.items():
        group = next((each for each in groups if (each.room, each.title) == (room, NEW)), None)
        if group is None:
            group = Group(room, NEW, text=["**Cause.**", "", "**Cure.**"])
            last = [number for number, each in enumerate(groups) if each.room == room]
            groups.insert(last[-1] + 1 if last else len(groups), group)
        group.entries.append((message.template, message.raised))
    return write_page(head, groups)


if __name__ == "__main__":
    PAGE.write_text(bring_up_to_date(PAGE.read_text("utf-8"), Reader().messages()), "utf-8")

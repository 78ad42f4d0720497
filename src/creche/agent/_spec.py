"""What an agent is made from, and what it answers."""

import os
from collections.abc import Iterable
from typing import Literal

import attrs

from creche.errors import ConfigError
from creche.messages import AssistantPart
from creche.models import Model, ModelOptions, Usage, check_model_given
from creche.prompt import PERSONA_ORDER, PERSONA_SECTION, Section, Text
from creche.scope import SetupItem
from creche.tools import Mode, Tool, as_tools, present_as

from ._budget import Budget

ReplyOutcome = Literal["done", "truncated", "refused"]


def _check_name(instance: object, _attribute: object, name: str) -> None:
    if not name or "/" in name or "*" in name or name != name.strip():
        problem = f"{name!r} cannot be a name: it is a segment of paths, so no '/', no '*', no blank ends"
        raise ConfigError([("name", problem)])


def _check_cwd(_instance: object, _attribute: object, cwd: str | None) -> None:
    if cwd is not None and not os.path.isabs(cwd):
        problem = (
            f"{cwd!r} is no absolute path, and would be another folder after os.chdir; give os.path.abspath({cwd!r})"
        )
        raise ConfigError([("cwd", problem)])


def _check_model(_instance: object, _attribute: object, model: Model | str | None) -> None:
    check_model_given(model, "model")


def _as_setup(items: Iterable[SetupItem]) -> tuple[SetupItem, ...]:
    return tuple(items)


@attrs.frozen(eq=False)
class AgentSpec:
    """What an agent is made from."""

    name: str = attrs.field(validator=_check_name)
    """The last segment of its path."""
    model: Model | str | None = attrs.field(default=None, validator=_check_model, kw_only=True)
    """An adapter or ``"provider:model"``; the preset's, the parent's or the host's if absent."""
    setup: tuple[SetupItem, ...] = attrs.field(default=(), converter=_as_setup, kw_only=True)
    """What is registered on the agent's own scope, in order: entries, plugins, functions of a registrar."""
    persona: Text | None = attrs.field(default=None, kw_only=True)
    """Who the agent is; shadows the persona of its preset and host."""
    tools: tuple[Tool, ...] = attrs.field(default=(), converter=as_tools, kw_only=True)
    """Tools of its own; they shadow those of the same name above it."""
    present_as: Mode | None = attrs.field(default=None, kw_only=True)
    """How tools are shown to the model; the chain decides if absent."""
    budget: Budget | None = attrs.field(default=None, kw_only=True)
    """Limits of the agent and everything below it."""
    cwd: str | None = attrs.field(default=None, validator=_check_cwd, kw_only=True)
    """Its working directory, an absolute path, for tools and for the variable ``cwd``; the parent's if absent."""
    options: ModelOptions = attrs.field(factory=ModelOptions, kw_only=True)
    """Effort, longest answer, temperature and the like."""


def expand_setup(
    *, persona: Text | None, tools: Iterable[Tool], mode: Mode | None, setup: Iterable[SetupItem]
) -> tuple[SetupItem, ...]:
    """Return a setup with its shorthands as items: before its own, but for the presentation, which may need them."""
    items: list[SetupItem] = []
    if persona is not None:
        items.append(Section(PERSONA_SECTION, order=PERSONA_ORDER, text=persona))
    return (*items, *tools, *setup, *(() if mode is None else (present_as(mode),)))


@attrs.frozen
class Reply:
    """What an agent answered."""

    text: str
    """The text of its last message."""
    parts: tuple[AssistantPart, ...] = attrs.field(default=(), kw_only=True)
    """The whole of its last message."""
    output: object = attrs.field(default=None, kw_only=True)
    """The structured answer that was asked for with ``output=``; ``None`` without, and if the outcome is not ``"done"``."""
    outcome: ReplyOutcome = attrs.field(default="done", kw_only=True)
    """``"truncated"`` when an answer of the turn hit the limit of tokens, ``"refused"`` when the model would not."""
    usage: Usage = attrs.field(factory=Usage, kw_only=True)
    """What this turn's own requests cost, failed attempts included."""
    usage_tree: Usage = attrs.field(factory=Usage, kw_only=True)
    """What this turn and the subagents it started cost."""
    turn: int = attrs.field(default=0, kw_only=True)
    """Number of the turn."""

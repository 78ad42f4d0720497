"""What a model is asked: settings, tools, messages; and what it cost.

The canonical bytes of a request are one JSON line of settings, one of tools, one a message, keys in
declared order. Prefix, equality, diff and fork are defined on them. Settings and tools stay together in a
`RequestHead`, which is one value for as long as they do not change and keeps their encoding; messages keep
theirs. So the bytes of the next request cost what is new in it.

Two requests have the same bytes exactly if their settings, tools and messages are equal, but for what a model
is not told: who filled in an option, and the source of a user message.
"""

import functools
import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from creche._util import (
    LARGEST,
    Keeping,
    canonical_json,
    clean_all,
    clean_optional,
    clean_text,
    is_a,
    is_count,
    is_none_or,
    is_positive,
    is_text,
    is_tuple_of,
    is_whole,
)
from creche.messages import Message, SystemMessage, ToolMessage, ToolSchema, UserMessage, schema_text

SAID_BY_OTHERS = ("user", "agent")
"""Sources of user-role messages that come from people and agents rather than from the framework."""


def _as_float(number: float | None) -> float | None:
    # Equal numbers are to be the same bytes: 1 is 1.0, and -0.0 is 0.0.
    if number is None:
        return None
    if not math.isfinite(number):
        raise ValueError(f"an option of a request is a finite number, not {number!r}")
    return float(number) + 0.0


def _as_int(number: int | None) -> int | None:
    return None if number is None else int(operator.index(number))


def _at_least_zero(_owner: object, _field: "attrs.Attribute[float | None]", number: float | None) -> None:
    if number is not None and number < 0:
        raise ValueError(f"a temperature is zero or more, not {number!r}")


def _share(_owner: object, _field: "attrs.Attribute[float | None]", number: float | None) -> None:
    if number is not None and not 0 < number <= 1:
        raise ValueError(f"top_p is a share above zero and at most one, not {number!r}")


def _output_schema(schema: str | Mapping[str, object] | None) -> str | None:
    return None if schema is None else schema_text(schema)


def _schemas(tools: Iterable[ToolSchema]) -> tuple[ToolSchema, ...]:
    return tuple(tools)


@attrs.frozen
class ModelOptions:
    """What may be set for a request; ``None`` leaves it to the provider."""

    effort: str | None = attrs.field(default=None, converter=clean_optional, validator=is_none_or(is_text))
    """How hard a reasoning model should think, in the provider's words."""
    max_tokens: int | None = attrs.field(
        default=None, converter=_as_int, validator=is_none_or(is_positive), kw_only=True
    )
    """Longest answer, in tokens, reasoning included."""
    temperature: float | None = attrs.field(default=None, converter=_as_float, validator=_at_least_zero, kw_only=True)
    """Sampling temperature: 0 for the likeliest words; providers end at 1 or 2."""
    top_p: float | None = attrs.field(default=None, converter=_as_float, validator=_share, kw_only=True)
    """Nucleus sampling: the share of the probability that is sampled from, up to 1."""
    seed: int | None = attrs.field(default=None, converter=_as_int, validator=is_none_or(is_whole), kw_only=True)
    """Seed for sampling, where the provider has one."""
    stop: tuple[str, ...] = attrs.field(
        default=(), converter=clean_all, validator=is_tuple_of(str, "texts"), kw_only=True
    )
    """Texts that end the answer."""
    tool_choice: str | None = attrs.field(
        default=None, converter=clean_optional, validator=is_none_or(is_text), kw_only=True
    )
    """``"auto"``: the model decides; ``"none"``: no call; ``"required"``: some call, at every step, so the turn has no
    end by itself; or the name of the one tool to call, likewise."""
    output_schema: str | None = attrs.field(default=None, converter=_output_schema, kw_only=True, repr=False)
    """The JSON Schema of an object that the answer has to follow, given as a mapping or as JSON text; kept as canonical
    JSON text."""


@attrs.frozen
class Settings:
    """Where a request goes and how it is to be answered."""

    provider: str = attrs.field(converter=clean_text, validator=is_text)
    """Name of the model provider."""
    model: str = attrs.field(converter=clean_text, validator=is_text, kw_only=True)
    """Name of the model, in the provider's words."""
    options: ModelOptions = attrs.field(factory=ModelOptions, validator=is_a(ModelOptions), kw_only=True)
    """Sampling and the like."""


@attrs.frozen
class RequestHead(Keeping):
    """Everything of a request that is not history."""

    settings: Settings = attrs.field(validator=is_a(Settings))
    """Where it goes and how it is to be answered."""
    tools: tuple[ToolSchema, ...] = attrs.field(
        default=(), converter=_schemas, validator=is_tuple_of(ToolSchema), kw_only=True
    )
    """What the model may call, in prompt order."""
    defaults: tuple[str, ...] = attrs.field(
        default=(), converter=clean_all, validator=is_tuple_of(str, "texts"), kw_only=True
    )
    """Names of the options that the adapter filled in, so that another route may fill in its own."""

    @functools.cached_property
    def settings_line(self) -> str:
        """The canonical line of settings, encoded once."""
        settings = self.settings
        return canonical_json(
            {"provider": settings.provider, "model": settings.model, "options": attrs.asdict(settings.options)}
        )

    @functools.cached_property
    def tools_line(self) -> str:
        """The canonical line of tools, encoded once."""
        return f"[{','.join([tool.encoded for tool in self.tools])}]"


@attrs.define(eq=False)
class ModelRequest:
    """One request to a model."""

    head: RequestHead
    """Settings and tools."""
    messages: Sequence[Message] = attrs.field(kw_only=True)
    """The history, an immutable view; a leading system message is the system prompt."""
    agent_path: str = attrs.field(default="", kw_only=True)
    """Which agent asks. Metadata, outside the canonical bytes."""
    session_id: str = attrs.field(default="", kw_only=True)
    """Which session asks. Metadata, outside the canonical bytes."""
    history: object = attrs.field(default=None, kw_only=True, repr=False)
    """What the messages are a view of, if that only grows: of two requests with one history, the messages of the shorter
    begin those of the longer. For adapters that keep what they made of it, by a weak reference. Metadata as well."""

    @property
    def settings(self) -> Settings:
        """Where the request goes and how it is to be answered."""
        return self.head.settings

    @property
    def tools(self) -> tuple[ToolSchema, ...]:
        """What the model may call."""
        return self.head.tools

    @property
    def system(self) -> str:
        """The text of a leading system message, ``""`` if there is none."""
        first = self.messages[0] if self.messages else None
        return first.text if isinstance(first, SystemMessage) else ""

    @property
    def user_texts(self) -> list[str]:
        """The texts of messages from people and agents, oldest first; the framework's own are left out."""
        return [each.text for each in self.messages if isinstance(each, UserMessage) and each.source in SAID_BY_OTHERS]

    @property
    def last_user_text(self) -> str:
        """The text of the newest message from a person or an agent, ``""`` if there is none."""
        for message in reversed(self.messages):
            if isinstance(message, UserMessage) and message.source in SAID_BY_OTHERS:
                return message.text
        return ""

    @property
    def last_tool_text(self) -> str:
        """The text of the newest tool result, ``""`` if there is none."""
        for message in reversed(self.messages):
            if isinstance(message, ToolMessage):
                return message.text
        return ""

    def canonical_lines(self) -> Iterator[str]:
        """Yield the canonical lines: settings, tools, then one a message."""
        yield self.head.settings_line
        yield self.head.tools_line
        for message in self.messages:
            yield message.encoded

    def canonical_bytes(self) -> bytes:
        """Return the canonical lines as UTF-8, each ended by a newline."""
        return "\n".join([*self.canonical_lines(), ""]).encode()


@attrs.frozen
class Usage:
    """What requests cost. Usages add up: ``a + b``; a sum stops at the largest number that there is."""

    requests: int = attrs.field(default=0, validator=is_count)
    """How many requests, every attempt counted once."""
    input_tokens: int = attrs.field(default=0, validator=is_count, kw_only=True)
    """Tokens read, cached ones included."""
    output_tokens: int = attrs.field(default=0, validator=is_count, kw_only=True)
    """Tokens written, reasoning included."""
    cached_tokens: int = attrs.field(default=0, validator=is_count, kw_only=True)
    """How many of the tokens read came from the provider's cache."""
    cache_write_tokens: int = attrs.field(default=0, validator=is_count, kw_only=True)
    """How many of the tokens read were put into the provider's cache, where it says so."""
    reasoning_tokens: int = attrs.field(default=0, validator=is_count, kw_only=True)
    """How many of the tokens written were reasoning."""

    @property
    def total_tokens(self) -> int:
        """Tokens read and written."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        try:
            return Usage(
                self.requests + other.requests,
                input_tokens=self.input_tokens + other.input_tokens,
                output_tokens=self.output_tokens + other.output_tokens,
                cached_tokens=self.cached_tokens + other.cached_tokens,
                cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
                reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            )
        except ValueError:  # some provider says nonsense; refused here, it would cost an answer or the end of an agent
            sums = {name: getattr(self, name) + getattr(other, name) for name in attrs.fields_dict(Usage)}
            return Usage(**{name: min(value, LARGEST) for name, value in sums.items()})

"""What is known of models: windows, longest answers, capabilities. A small table that a user can extend.

The facts are from the providers' pages of November 2026. A pattern is a name that may end in ``*``; the longest that
fits wins, and what a user adds comes before all of it. A model that no pattern fits is asked all the same: as one of
which nothing is known.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import attrs

from creche._util import is_a, is_none_or, is_one_of, is_whole
from creche.errors import ConfigError

from .._model import Capabilities

Thinking = Literal["adaptive", "budget"]


_TRUSTED = Capabilities(images=True, structured_output=True)


@attrs.frozen
class ModelCard:
    """What is known of a model before it is asked."""

    context_window: int | None = attrs.field(default=None, validator=is_none_or(is_whole))
    """Tokens that fit, question and answer together."""
    max_tokens: int | None = attrs.field(default=None, validator=is_none_or(is_whole), kw_only=True)
    """Longest answer, in tokens."""
    capabilities: Capabilities = attrs.field(default=_TRUSTED, validator=is_a(Capabilities), kw_only=True)
    """What it can do; if absent, it is trusted with images and schemas, as a model without a card is."""
    thinking: Thinking | None = attrs.field(
        default=None, validator=is_none_or(is_one_of("adaptive", "budget")), kw_only=True
    )
    """How an Anthropic model is asked to think: as it sees fit, or with a budget of tokens."""


_FULL = _TRUSTED
_UPDATED = Capabilities(images=True, structured_output=True, system_prompt_update="in-history")
_CLAUDE = ModelCard(1_000_000, max_tokens=128_000, capabilities=_UPDATED, thinking="adaptive")
_CLAUDE_4_6 = ModelCard(1_000_000, max_tokens=128_000, capabilities=_FULL, thinking="adaptive")
_CLAUDE_4_5 = ModelCard(200_000, max_tokens=64_000, capabilities=_FULL, thinking="budget")

ANTHROPIC_CARDS: Mapping[str, ModelCard] = MappingProxyType(
    {
        "claude-*": _CLAUDE,
        "claude-haiku-4-5*": _CLAUDE_4_5,
        "claude-opus-4-5*": _CLAUDE_4_5,
        "claude-opus-4-6*": _CLAUDE_4_6,
        "claude-opus-4-7*": _CLAUDE_4_6,
        "claude-sonnet-4-5*": _CLAUDE_4_5,
        "claude-sonnet-4-6*": _CLAUDE_4_6,
    }
)
"""Models of Anthropic. Those from Opus 4.8 on take a changed system prompt in the history."""

OPENAI_CARDS: Mapping[str, ModelCard] = MappingProxyType(
    {
        "gpt-*": ModelCard(capabilities=_UPDATED),
        "gpt-3.5*": ModelCard(16_385, max_tokens=4_096, capabilities=Capabilities()),
        "gpt-4*": ModelCard(8_192, max_tokens=8_192, capabilities=Capabilities()),
        "gpt-4-turbo*": ModelCard(128_000, max_tokens=4_096, capabilities=Capabilities(images=True)),
        "gpt-4.1*": ModelCard(1_047_576, max_tokens=32_768, capabilities=_UPDATED),
        "gpt-4o*": ModelCard(128_000, max_tokens=16_384, capabilities=_UPDATED),
        "gpt-oss*": ModelCard(131_072, capabilities=Capabilities(structured_output=True)),
        "gpt-5*": ModelCard(400_000, max_tokens=128_000, capabilities=_UPDATED),
        "gpt-5.4*": ModelCard(1_050_000, max_tokens=128_000, capabilities=_UPDATED),
        "gpt-5.4-mini*": ModelCard(400_000, max_tokens=128_000, capabilities=_UPDATED),
        "gpt-5.4-nano*": ModelCard(400_000, max_tokens=128_000, capabilities=_UPDATED),
        "gpt-5.5*": ModelCard(1_050_000, max_tokens=128_000, capabilities=_UPDATED),
        "o1*": ModelCard(200_000, max_tokens=100_000, capabilities=_FULL),
        "o3*": ModelCard(200_000, max_tokens=100_000, capabilities=_FULL),
        "o4*": ModelCard(200_000, max_tokens=100_000, capabilities=_FULL),
    }
)
"""Models of OpenAI."""

DEEPSEEK_CARDS: Mapping[str, ModelCard] = MappingProxyType(
    {"deepseek-*": ModelCard(1_048_576, max_tokens=262_144, capabilities=Capabilities())}
)
"""Models of DeepSeek."""

UNKNOWN = ModelCard()
"""The card of a model that is not in the table."""


def check_cards(cards: Mapping[str, ModelCard] | None) -> Mapping[str, ModelCard]:
    """Return cards that somebody gave.

    Raises:
      ConfigError: One of them is none; all problems at once.
    """
    if cards is None:
        return {}
    problems = [
        (f"cards[{name!r}]", f"a ModelCard, not {card!r}") for name, card in cards.items() if not _is_card(card)
    ]
    if problems:
        raise ConfigError(problems)
    return cards


def _is_card(value: object) -> bool:
    return isinstance(value, ModelCard)


def find_card(name: str, *tables: Mapping[str, ModelCard]) -> ModelCard:
    """Return the card of a model, from the first table that has one for it."""
    for table in tables:
        fitting = [pattern for pattern in table if _fits(pattern, name)]
        if fitting:
            return table[max(fitting, key=len)]
    return UNKNOWN


def _fits(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern

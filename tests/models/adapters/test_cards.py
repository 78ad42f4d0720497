"""What is known of models."""

import pytest

from creche.models import Capabilities
from creche.models.adapters import ModelCard
from creche.models.adapters._cards import ANTHROPIC_CARDS, OPENAI_CARDS, UNKNOWN, find_card


def test_the_longest_pattern_that_fits_wins():
    table = {"gpt-*": ModelCard(1), "gpt-5*": ModelCard(2), "gpt-5": ModelCard(3), "gpt-5-mini*": ModelCard(4)}
    windows = [find_card(name, table).context_window for name in ("gpt-4", "gpt-5.1", "gpt-5-mini-2025", "gpt-5-nano")]
    assert windows == [1, 2, 4, 2]


def test_an_earlier_table_comes_first_whatever_the_length():
    assert find_card("gpt-5", {"*": ModelCard(7)}, {"gpt-5": ModelCard(3)}).context_window == 7


def test_an_unknown_model_is_trusted_with_images_and_schemas():
    assert find_card("my-model", OPENAI_CARDS) is UNKNOWN
    assert ModelCard() == UNKNOWN
    assert UNKNOWN.capabilities == Capabilities(images=True, structured_output=True)


@pytest.mark.parametrize(
    ("name", "window", "in_history"),
    [
        ("claude-opus-5-5", 1_000_000, True),
        ("claude-opus-4-8-20260528", 1_000_000, True),
        ("claude-opus-4-6", 1_000_000, False),
        ("claude-haiku-4-5-20251001", 200_000, False),
    ],
)
def test_the_table_knows_the_current_models(name, window, in_history):
    card = find_card(name, ANTHROPIC_CARDS)
    assert card.context_window == window
    assert (card.capabilities.system_prompt_update == "in-history") is in_history

"""The providers that every host has."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from .._model import Model
from ._anthropic import AnthropicModel
from ._local import LocalModel
from ._openai import OpenAIModel, deepseek, ollama, openrouter

PROVIDER_FACTORIES: Mapping[str, Callable[[], Model]] = MappingProxyType(
    {
        "anthropic": AnthropicModel,
        "deepseek": deepseek,
        "local": LocalModel,
        "ollama": ollama,
        "openai": OpenAIModel,
        "openrouter": openrouter,
    }
)
"""What makes the adapter of each, by the name that routes use."""

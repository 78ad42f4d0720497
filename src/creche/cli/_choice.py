"""From what was typed about models to what a host is given."""

import os
from collections.abc import Sequence

import attrs

from creche.errors import ConfigError
from creche.models import Model, ModelProvider
from creche.models.adapters import PROVIDER_FACTORIES, AnthropicModel, OpenAIModel

from ._ending import WrongUsage

MODEL_VARIABLE = "CRECHE_MODEL"
ENDPOINT = "endpoint"
"""Name of the provider behind a URL that was given with the bare name of a model."""


@attrs.frozen
class Choice:
    """The models of one run."""

    model: str
    """What the agents ask, ``"provider:model"``."""
    fallbacks: tuple[str, ...] = attrs.field(kw_only=True)
    """What they ask when that fails, in order."""
    providers: tuple[ModelProvider, ...] = attrs.field(kw_only=True)
    """Those that are not standard, or not as usual."""


def choose_models(model: str | None, fallbacks: Sequence[str], base_url: str | None) -> Choice:
    """Return the models of a run.

    With a URL, a model that begins with no provider's name is one of the OpenAI-compatible endpoint there,
    ``openai:`` and ``anthropic:`` say which wire the endpoint speaks, and a bare name of a fallback is one of its
    other models.

    Raises:
      WrongUsage: A text names no model, or the URL is none.
    """
    named = model or os.environ.get(MODEL_VARIABLE)
    if not named:
        raise WrongUsage(f"which model? Give --model PROVIDER:MODEL or set {MODEL_VARIABLE}; {_providers()}")
    if base_url is None:
        texts = [_check(each) for each in (named, *fallbacks)]
        return Choice(texts[0], fallbacks=tuple(texts[1:]), providers=())
    provider, name = _split(named)
    texts = [each if _split(each)[0] != ENDPOINT else f"{provider}:{_split(each)[1]}" for each in fallbacks]
    return Choice(
        f"{provider}:{name}",
        fallbacks=tuple([_check(each, provider) for each in texts]),
        providers=(ModelProvider(provider, model=_adapter(provider, name, base_url)),),
    )


def _adapter(provider: str, name: str, base_url: str) -> Model:
    try:
        if provider == "anthropic":
            return AnthropicModel(name, base_url=base_url)
        if provider in ("openai", ENDPOINT):
            return OpenAIModel(name, provider=provider, base_url=base_url)
    except ConfigError as error:
        raise WrongUsage(f"--base-url: {error.problems[0][1]}") from None
    raise WrongUsage(
        f"--base-url goes with a model's bare name, 'openai:NAME' or 'anthropic:NAME', and not with {provider!r}, whose "
        "address is known"
    )


def _split(text: str) -> tuple[str, str]:
    """Return provider and model of a text; a name that begins with no provider's is one of the endpoint's."""
    provider, colon, name = text.partition(":")
    return (provider, name) if colon and provider in PROVIDER_FACTORIES else (ENDPOINT, text)


def _check(text: str, *more: str) -> str:
    provider, colon, name = text.partition(":")
    if not colon or not name:
        raise WrongUsage(f"{text!r} is no PROVIDER:MODEL; {_providers()}")
    if provider not in (*PROVIDER_FACTORIES, *more):
        raise WrongUsage(f"there is no provider {provider!r}; {_providers()}")
    return text


def _providers() -> str:
    return f"providers: {', '.join(sorted(PROVIDER_FACTORIES))}; for another endpoint, give its --base-url"

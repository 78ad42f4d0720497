"""Adapters of real model providers, and what is known of their models.

None of their packages is imported before the first request.
"""

from creche._util import publish

from ._anthropic import AnthropicModel as AnthropicModel
from ._cards import ModelCard as ModelCard
from ._local import LocalModel as LocalModel
from ._openai import OpenAIModel as OpenAIModel
from ._standard import PROVIDER_FACTORIES as PROVIDER_FACTORIES

__all__ = ["PROVIDER_FACTORIES", "AnthropicModel", "LocalModel", "ModelCard", "OpenAIModel"]

publish(globals(), __name__)

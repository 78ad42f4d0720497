"""Packages that adapters need and creche does not."""

import importlib
from types import ModuleType

from creche.errors import ConfigError


def import_extra(provider: str, package: str, extra: str) -> ModuleType:
    """Import a package of an extra.

    Raises:
      ConfigError: It is not installed; the sentence says what to run.
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        sentence = f"{provider!r} needs the package {error.name!r}; run: pip install 'creche[{extra}]'"
        raise ConfigError([("model", sentence)]) from error

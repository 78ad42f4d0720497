"""Structured answers: a class as the schema that a model is held to, and an answer as a value of the class."""

import functools
from collections.abc import Hashable
from typing import cast

from creche._util import canonical_json
from creche.errors import InvalidArgumentsError

from ._arguments import parse_arguments
from ._schema import describe_class
from ._sentences import leaves_of, limited, sentence_of
from ._strict import strict_converter


class OutputShape:
    """What an answer has to look like.

    Args:
      cls: An attrs class, a dataclass or a TypedDict.

    Raises:
      TypeError: It is no such class, or one of its fields has no JSON form.
    """

    __slots__ = ("cls", "schema")

    def __init__(self, cls: type) -> None:
        self.schema: str = canonical_json(describe_class(cls))
        """Its JSON Schema, as canonical JSON text."""
        self.cls: type = cls
        """The class."""

    def read(self, text: str) -> object:
        """Return an answer as a value of the class. Values are checked, not converted, as those of arguments are.

        Raises:
          InvalidArgumentsError: It does not fit; with every problem.
        """
        values = parse_arguments(text, what="the answer", verb="is")
        try:
            value = cast("object", strict_converter().structure(values, self.cls))
        except Exception as error:  # noqa: BLE001 - what a user's class raises for a wrong value is its own affair
            problems = limited((path, sentence_of(leaf)) for path, leaf in leaves_of(error, ""))
            raise InvalidArgumentsError(problems) from None
        return value


def output_shape(cls: type[object]) -> OutputShape:
    """Return the shape of a class, made once.

    Raises:
      TypeError: It is no attrs class, dataclass or TypedDict, or one of its fields has no JSON form.
    """
    # mypy holds that a class might have no hash, if the metaclass said so.
    return _kept_shape(cast("Hashable", cls))


@functools.lru_cache(maxsize=128)
def _kept_shape(cls: Hashable) -> OutputShape:
    return OutputShape(cast("type[object]", cls))

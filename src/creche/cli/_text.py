"""Text of models and tools as it is shown to people: on one line, short, and with nothing that a terminal would obey."""

import json
from typing import cast

LONGEST_ARGUMENTS = 2000
"""Characters of arguments that are read for names and values."""


def short_arguments(arguments: str) -> str:
    """Return the arguments of a call for people: names and values, without braces."""
    if len(arguments) > LONGEST_ARGUMENTS:
        return arguments[:LONGEST_ARGUMENTS]
    try:
        values = json.loads(arguments)
    except ValueError:
        return arguments
    if not isinstance(values, dict):
        return arguments
    return ", ".join(f"{name}={value!r}" for name, value in cast("dict[str, object]", values).items())

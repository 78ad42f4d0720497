"""From the JSON text a model wrote to the keyword arguments of a call.

Rule 1: values are checked, not converted: ``"3"`` is not 3, True is not an int, 3.0 is not an int; only an
int is welcome where a float is expected. A date, a path, an enum or a class is built from its JSON form.
Rule 2: every problem comes at once, each with its path, in a sentence a model can act on; a sentence shows
a little of a wrong value, and a list of problems ends at twenty, for both go into the history.
Rule 3: whatever the text, the only exception is `InvalidArgumentsError`.

Nearly every call has a few primitive arguments. Those are checked by a table; cattrs does the rest, and
explains what the table refused. Its converter is made at the first such call, like its hooks.
"""

import difflib
import enum
import functools
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import date, datetime
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args, get_origin

import attrs

from creche.errors import InvalidArgumentsError

from ._schema import COLLECTIONS, MAPPINGS, UNIONS, Parameter, is_typed_dict, read_fields, unwrap

if TYPE_CHECKING:
    from cattrs import Converter
    from jsonschema_rs import ValidationError, Validator

_MOST_LEVELS = 128
_MOST_PROBLEMS = 20
_Hook = Callable[[Any, Any], Any]


# ---------------------------------------------------------------- the text


def parse_arguments(text: str) -> dict[str, object]:
    """Return the arguments in a text.

    No text at all is no arguments; a Markdown fence around the object is looked through.

    Raises:
      InvalidArgumentsError: it is not one JSON object (RFC 8259: no NaN, no infinity), a key appears twice,
        a string has half of a surrogate pair, or it is nested more than 128 levels deep.
    """
    body = _without_fence(text.strip())
    if not body:
        return {}
    try:
        value = _decode(body)
    except RecursionError:
        value = _too_deep
    except json.JSONDecodeError as error:
        ...

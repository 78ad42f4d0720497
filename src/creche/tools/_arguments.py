"""From the JSON text a model wrote to the keyword arguments of a call.

Rule 1: values are checked, not converted: ``"3"`` is not 3, True is not an int, 3.0 is not an int; only an
int is welcome where a float is expected. A date, a path, an enum or a class is built from its JSON form.
Rule 2: all problems come at once, each with its path and a sentence a model can act on. Both go into the
history, so a sentence shows little of a wrong value and a list ends after twenty.
Rule 3: whatever the text, the only exception is `InvalidArgumentsError`.

Nearly every call has a few primitive arguments. A table checks those; cattrs does the rest, and explains
what the table refused. Its converter and its hooks are made at the first call that needs them.
"""

import difflib
import enum
import functools
import itertools
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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

_Problem = tuple[str, str]
_Hook = Callable[[Any, Any], Any]
_MOST_LEVELS = 128
_MOST_PROBLEMS = 20
_HALF_A_PAIR = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


def parse_arguments(text: str) -> dict[str, object]:
    """Return the arguments in a text. No text is no arguments; a Markdown fence around them is looked through.

    Raises:
      InvalidArgumentsError: it is not one JSON object (so no NaN either), a key appears twice, a string has half
        of a surrogate pair, or it is nested more than 128 levels deep.
    """
    body = text.strip()
    if body.startswith("```") and body.endswith("```"):
        body = body.strip("`").removeprefix("json").strip()
    if not body:
        return {}
    try:
        value = _decode(body)
        _check_depth(body, value)
        if _HALF_A_PAIR.search(body):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        problem = f"the arguments are nested more than {_MOST_LEVELS} levels deep"
    except json.JSONDecodeError as error:
        before = body[max(0, error.pos - 30) : error.pos]
        problem = f"the arguments are not valid JSON: {error.msg}, at character {error.pos} after {_shown(before)}"
    except UnicodeEncodeError:
        problem = "a string has one half of a surrogate pair; write the character itself, not its \\u escapes"
    except _RefusedError as error:
        problem = str(error)
    except ValueError:
        problem = "a number has thousands of digits; write it as a string"
    else:
        if isinstance(value, dict):
            return value
        problem = f"the arguments must be a JSON object, not {_shown(value)}"
    raise InvalidArgumentsError([("", problem)])


class _RefusedError(ValueError):
    """The message is a sentence for the model."""


class _MismatchError(_RefusedError):
    """A value is not what its place is for."""

    def __init__(self, expected: str, value: object) -> None:
        super().__init__(f"must be {expected}, not {_shown(value)}")
        self.expected = expected


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) < len(pairs):
        seen = set[str]()
        for key, _ in pairs:
            if key in seen:
                raise _RefusedError(f"the key {_shown(key)} appears twice in one object; give it once")
            seen.add(key)
    return values


def _finite(text: str) -> float:
    if math.isinf(value := float(text)):
        raise _RefusedError(f"the number {_clipped(text, 40)} is too large for JSON; write a smaller one")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise _RefusedError(f"{name} is not JSON; write null or a number")


_decode = json.JSONDecoder(
    object_pairs_hook=_without_repeats, parse_float=_finite, parse_constant=_refuse_constant
).decode


def _check_depth(body: str, value: object) -> None:
    """Hold one limit everywhere; the decoder's own depends on the version of Python and on the caller's depth."""
    if body.count("[") + body.count("{") <= _MOST_LEVELS:
        return
    level: list[Any] = [value]
    for _ in range(_MOST_LEVELS):
        children = (child for node in level for child in (node.values() if isinstance(node, dict) else node))
        level = [child for child in children if isinstance(child, (dict, list))]
        if not level:
            return
    raise RecursionError


class ArgumentBinder:
    """Checks the arguments of one tool.

    Args:
      fields: What the tool takes, as `describe_function` found it.
    """

    __slots__ = ("_accepted", "_fields", "_hooks", "_required")

    def __init__(self, fields: Iterable[Parameter]) -> None:
        self._fields = {field.name: field for field in fields}
        self._accepted = {name: _exact_types(field.hint) for name, field in self._fields.items()}
        self._required = frozenset(name for name, field in self._fields.items() if field.required)
        self._hooks: dict[str, _Hook] = {}

    def bind(self, values: Mapping[str, object]) -> dict[str, object]:
        """Return the keyword arguments of a call; what is not given is left to the function's own default.

        Raises:
          InvalidArgumentsError: with every problem.
        """
        accepted = self._accepted
        for name, value in values.items():
            if type(value) not in accepted.get(name, ()):
                return self._bind_by_hooks(values)
        if self._required <= values.keys():
            return dict(values)
        return self._bind_by_hooks(values)

    def _bind_by_hooks(self, values: Mapping[str, object]) -> dict[str, object]:
        if not self._hooks:
            make = _strict_converter().get_structure_hook
            self._hooks = {name: make(field.hint, cache_result=False) for name, field in self._fields.items()}
        bound: dict[str, object] = {}
        problems = [(name, "is required") for name in self._fields if name in self._required and name not in values]
        for name, value in values.items():
            if len(problems) > _MOST_PROBLEMS:
                break
            if name not in self._fields:
                problems.append((_child("", name), _unknown(name, self._fields, "an argument of this tool")))
                continue
            try:
                bound[name] = self._hooks[name](value, self._fields[name].hint)
            except Exception as error:  # noqa: BLE001 - validators and converters of the tool's classes raise anything
                hint = "" if value is not None or name in self._required else "; leave it out for its default"
                problems += ((path, _sentence(leaf) + hint) for path, leaf in _leaves(error, name))
        if problems:
            raise InvalidArgumentsError(_limited(problems))
        return bound


class SchemaBinder:
    """Checks the arguments of a tool that has a JSON Schema and no typed function.

    Args:
      parameters_json: The schema as JSON text. It is compiled at first use, without looking at other addresses.
    """

    __slots__ = ("_known", "_parameters_json", "_validator")

    def __init__(self, parameters_json: str) -> None:
        self._parameters_json = parameters_json
        self._known: Collection[str] = ()
        self._validator: Validator | None = None

    def compile(self) -> "Validator":
        """Compile the schema, once.

        Raises:
          ValueError: it is not a schema; the sentence says why.
        """
        if self._validator is None:
            from jsonschema_rs import ValidationError, validator_for

            try:
                schema = json.loads(self._parameters_json)
                self._validator = validator_for(schema, offline=True)
            except ValidationError as error:
                path = functools.reduce(_child, error.instance_path, "")
                raise ValueError(f"the schema of the parameters is wrong at {path or 'its root'}: {_clipped(error.message, 200)}") from None
            except ValueError as error:
                raise ValueError(f"the schema of the parameters cannot be read: {error}") from None
            self._known = schema.get("properties", ()) if isinstance(schema, dict) else ()
        return self._validator

    def bind(self, values: Mapping[str, object]) -> dict[str, object]:
        """Return the values, unchanged.

        Raises:
          InvalidArgumentsError: with every problem.
        """
        arguments = dict(values)
        validator = self._validator or self.compile()
        try:
            if validator.is_valid(arguments):
                return arguments
            problems = _limited(self._explained(validator.iter_errors(arguments)))
        except ValueError as error:  # they are not JSON, or a pattern gave up
            problems = [("", f"the arguments cannot be checked: {_clipped(str(error), 200)}")]
        raise InvalidArgumentsError(problems)

    def _explained(self, errors: "Iterable[ValidationError]") -> Iterator[_Problem]:
        for error in errors:
            path = functools.reduce(_child, error.instance_path, "")
            details = error.kind.as_dict()
            if "property" in details and error.kind.name == "required":
                yield _child(path, details["property"]), "is required"
            elif "unexpected" in details:
                for key in details["unexpected"]:
                    yield _child(path, key), "is not expected here" if path else _unknown(key, self._known, "an argument of this tool")
            elif "context" in details:
                reasons = dict.fromkeys(inner.message for branch in details["context"] for inner in branch[:1])
                yield path, _clipped(f"fits no alternative: {'; '.join(reasons) or error.message}", 300)
            else:
                yield path, _clipped(error.message, 200)


# ---------------------------------------------------------------- sentences


def _unknown(name: str, known: Iterable[str], what: str) -> str:
    # Comparing is quadratic in the length, and a model may have put a whole file in a key.
    close = difflib.get_close_matches(name, known, n=1) if len(name) <= 100 else []
    names = ", ".join(known)
    return f"is not {what}; " + (f"did you mean {_shown(close[0])}?" if close else f"known: {_clipped(names, 200) or 'none'}")


def _limited(problems: Iterable[_Problem]) -> list[_Problem]:
    listed = list(itertools.islice(problems, _MOST_PROBLEMS + 1))
    if len(listed) > _MOST_PROBLEMS:
        listed[_MOST_PROBLEMS:] = [("", f"these are the first {_MOST_PROBLEMS} problems, there are more")]
    return listed


def _child(path: str, key: str | int) -> str:
    if isinstance(key, int):
        return f"{path}[{key}]"
    if not key.isidentifier():
        return f"{path}[{_shown(key)}]"
    ...
    return f"{path}.{key}" if path else key


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, str):
        return json.dumps(_clipped(value, 40), ensure_ascii=False)
    ...


def _clipped(text: str, most: int) -> str:
    """Cut the middle: what matters of a message about a value is at its end."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-(most // 2) :]}"


def _sentence(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "is nested too deeply"
    first = error.args[0] if error.args else ""
    return _clipped(first if isinstance(first, str) and first else repr(error), 300)

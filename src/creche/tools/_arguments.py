"""From the JSON text a model wrote to the keyword arguments of a call.

Rule 1: values are checked, not converted: ``"3"`` is not 3, True is not an int, 3.0 is not an int; only an
int is welcome where a float is expected. A date, a path, an enum or a class is built from its JSON form.
Rule 2: all problems come at once, each with its path and a sentence a model can act on. Both go into the
history, so a sentence shows little of a wrong value and a list ends after twenty.
Rule 3: whatever the text, the only exception is `InvalidArgumentsError`.

Nearly every call has a few primitive arguments. A table checks those; cattrs does the rest, and explains
what the table refused. Its converter and its hooks are made at the first call that needs them.
"""

import functools
import json
import math
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any, NoReturn, cast, get_args, get_origin

from creche._util import unfenced
from creche.errors import InvalidArgumentsError

from ._hints import UNIONS, Parameter, unwrap
from ._sentences import (
    Problem,
    RefusedError,
    child_path,
    clipped,
    is_array,
    is_object,
    leaves_of,
    limited,
    sentence_of,
    shown,
    unknown,
)
from ._strict import Hook, field_hooks, strict_converter, structured_fields

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

_MOST_LEVELS = 128
_HALF_A_PAIR = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
_EXACT: Mapping[object, frozenset[type]] = {
    str: frozenset({str}),
    int: frozenset({int}),
    float: frozenset({int, float}),
    bool: frozenset({bool}),
    NoneType: frozenset({NoneType}),
}


def parse_arguments(text: str, *, what: str = "the arguments", verb: str = "are") -> dict[str, object]:
    """Return the arguments in a text. No text is no arguments; a Markdown fence around them is looked through.

    Args:
      text: The text.
      what: What it is, for the sentences.
      verb: Its verb.

    Raises:
      InvalidArgumentsError: it is not one JSON object (so no NaN either), a key appears twice, a string has half
        of a surrogate pair, or it is nested more than 128 levels deep.
    """
    body = unfenced(text)
    if not body:
        return {}
    try:
        value = _decode(body)
        _check_depth(body, value)
        if _HALF_A_PAIR.search(body):
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        problem = _why_unreadable(error, f"{what} {verb}")
    else:
        if is_object(value):
            return value
        problem = f"{what} must be a JSON object, not {shown(value)}"
    raise InvalidArgumentsError([("", problem)])


def _why_unreadable(error: ValueError | RecursionError, it_is: str) -> str:
    if isinstance(error, RecursionError):
        return f"{it_is} nested more than {_MOST_LEVELS} levels deep; make them flatter"
    if isinstance(error, json.JSONDecodeError):
        around = error.doc[max(0, error.pos - 20) : error.pos + 20]
        return f"{it_is} not valid JSON: {error.msg}, at character {error.pos}, near {shown(around)}"
    if isinstance(error, UnicodeEncodeError):
        return "a string has one half of a surrogate pair; write the character itself, without \\u"
    if isinstance(error, RefusedError):
        return str(error)
    return "a number has thousands of digits; write it as a string"  # Python's limit on the digits of an int


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) < len(pairs):
        seen = set[str]()
        for key, _ in pairs:
            if key in seen:
                raise RefusedError(f"the key {shown(key)} appears twice in one object; give it once")
            seen.add(key)
    return values


def _finite(text: str) -> float:
    if math.isinf(value := float(text)):
        raise RefusedError(f"the number {clipped(text, 40)} is too large; write it as a string")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise RefusedError(f"{name} is not JSON; write null or a number")


_decode: Callable[[str], object] = json.JSONDecoder(
    object_pairs_hook=_without_repeats, parse_float=_finite, parse_constant=_refuse_constant
).decode


def _check_depth(body: str, value: object) -> None:
    """Hold one limit everywhere; the decoder's own depends on the version of Python and on the caller's depth."""
    if body.count("[") + body.count("{") <= _MOST_LEVELS:
        return
    level: list[Any] = [value]
    for _ in range(_MOST_LEVELS):
        children: Iterator[Any] = (child for node in level for child in (node.values() if is_object(node) else node))
        level = [child for child in children if is_object(child) or is_array(child)]
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
        self._hooks: dict[str, Hook] = {}

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
            self._hooks = field_hooks(self._fields, strict_converter())
        try:
            return structured_fields(self._fields, self._hooks, values, "an argument of this tool")
        except Exception as error:  # noqa: BLE001 - what a user's class raises for a wrong value is its own affair
            leaves = leaves_of(error, "")
            raise InvalidArgumentsError(
                limited((path, sentence_of(leaf) + self._advice(path, values)) for path, leaf in leaves)
            ) from None

    def _advice(self, path: str, values: Mapping[str, object]) -> str:
        optional = path in self._fields and path not in self._required
        return "; leave it out for its default" if optional and values[path] is None else ""


class _Anything:
    """The accepted types where anything goes."""

    def __contains__(self, kind: object, /) -> bool:
        return True


def _exact_types(hint: object) -> Container[type]:
    """Return the types that need no further look; empty if the hooks have to decide."""
    if hint is Any or hint is object:
        return _Anything()
    if get_origin(hint) in UNIONS:
        parts = [_EXACT.get(unwrap(arg)[0], frozenset[type]()) for arg in get_args(hint)]
        return frozenset[type]().union(*parts) if all(parts) else ()
    return _EXACT.get(hint, ())


class SchemaBinder:
    """Checks the arguments of a tool that has a JSON Schema and no typed function.

    Args:
      parameters_json: The schema as JSON text, compiled at first use. A reference out of it is never fetched.
    """

    __slots__ = ("_known", "_parameters_json", "_validator")

    def __init__(self, parameters_json: str) -> None:
        self._parameters_json = parameters_json
        self._known: Iterable[str] = ()
        self._validator: Validator | None = None

    def compile(self) -> "Validator":
        """Compile the schema, once.

        Raises:
          ValueError: it is not a schema; the sentence says what is wrong and where.
        """
        if self._validator is None:
            from jsonschema_rs import ValidationError, validator_for

            try:
                schema: object = json.loads(self._parameters_json)
                if not is_object(schema):
                    raise ValueError(f"it must be an object, not {shown(schema)}")  # noqa: TRY301 - told like the rest
                self._validator = validator_for(schema, offline=True)
            except ValidationError as error:
                place = functools.reduce(child_path, error.instance_path, "") or "its root"
                reason = clipped(error.message, 200)
                raise ValueError(f"the schema of the parameters is wrong at {place}: {reason}") from None
            except (ValueError, RecursionError) as error:
                raise ValueError(f"the schema of the parameters is unreadable: {error}") from None
            self._known = cast("Mapping[str, object]", schema.get("properties", {}))
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
            problems = limited(self._explained(validator.iter_errors(arguments)))
        except ValueError as error:  # a value is not JSON
            problems = [("", f"the arguments cannot be checked: {clipped(str(error), 200)}")]
        raise InvalidArgumentsError(problems)

    def _explained(self, errors: "Iterable[ValidationError]") -> Iterator[Problem]:
        for error in errors:
            path = functools.reduce(child_path, error.instance_path, "")
            details = error.kind.as_dict()
            if error.kind.name == "required":
                yield child_path(path, details["property"]), "is required"
            elif error.kind.name in ("additionalProperties", "unevaluatedProperties"):
                for key in details["unexpected"]:
                    sentence = unknown(key, self._known, "an argument of this tool")
                    yield child_path(path, key), "is not expected here; leave it out" if path else sentence
            elif "context" in details:
                reasons = dict.fromkeys(inner.message for branch in details["context"] for inner in branch[:1])
                sentence = f"fits no alternative: {'; '.join(reasons)}" if reasons else error.message
                yield path, clipped(sentence, 300)
            else:
                yield path, clipped(error.message, 200)

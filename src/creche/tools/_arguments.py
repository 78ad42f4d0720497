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
import functools
import itertools
import json
import math
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from datetime import date, datetime
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard, cast, get_args, get_origin

import attrs

from creche.errors import InvalidArgumentsError

from ._schema import (
    COLLECTIONS,
    MAPPINGS,
    UNIONS,
    Parameter,
    choices,
    is_choice,
    is_class,
    is_typed_dict,
    read_fields,
    unwrap,
)

if TYPE_CHECKING:
    from cattrs import Converter
    from jsonschema_rs import ValidationError, Validator

_Problem = tuple[str, str]
_Hook = Callable[[Any, Any], Any]
_MOST_LEVELS = 128
_MOST_PROBLEMS = 20
_LONGEST_NAME = 100
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
    except (ValueError, RecursionError) as error:
        problem = _why_unreadable(error)
    else:
        if _is_object(value):
            return value
        problem = f"the arguments must be a JSON object, not {_shown(value)}"
    raise InvalidArgumentsError([("", problem)])


def _why_unreadable(error: ValueError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return f"the arguments are nested more than {_MOST_LEVELS} levels deep; make them flatter"
    if isinstance(error, json.JSONDecodeError):
        around = error.doc[max(0, error.pos - 20) : error.pos + 20]
        return f"the arguments are not valid JSON: {error.msg}, at character {error.pos}, near {_shown(around)}"
    if isinstance(error, UnicodeEncodeError):
        return "a string has one half of a surrogate pair; write the character itself, without \\u"
    if isinstance(error, _RefusedError):
        return str(error)
    return "a number has thousands of digits; write it as a string"  # Python's limit on the digits of an int


class _RefusedError(ValueError):
    """The message is a sentence for the model."""


class _MismatchError(_RefusedError):
    """A value is not of the kind that its place is for."""

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
        raise _RefusedError(f"the number {_clipped(text, 40)} is too large; write it as a string")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise _RefusedError(f"{name} is not JSON; write null or a number")


_decode: Callable[[str], object] = json.JSONDecoder(
    object_pairs_hook=_without_repeats, parse_float=_finite, parse_constant=_refuse_constant
).decode


def _check_depth(body: str, value: object) -> None:
    """Hold one limit everywhere; the decoder's own depends on the version of Python and on the caller's depth."""
    if body.count("[") + body.count("{") <= _MOST_LEVELS:
        return
    level: list[Any] = [value]
    for _ in range(_MOST_LEVELS):
        children: Iterator[Any] = (child for node in level for child in (node.values() if _is_object(node) else node))
        level = [child for child in children if _is_object(child) or _is_array(child)]
        if not level:
            return
    raise RecursionError


# ---------------------------------------------------------------- the binders


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
            self._hooks = _field_hooks(self._fields, _strict_converter())
        try:
            return _structured_fields(self._fields, self._hooks, values, "an argument of this tool")
        except Exception as error:  # noqa: BLE001 - what a user's class raises for a wrong value is its own affair
            leaves = _leaves(error, "")
            raise InvalidArgumentsError(
                _limited((path, _sentence(leaf) + self._advice(path, values)) for path, leaf in leaves)
            ) from None

    def _advice(self, path: str, values: Mapping[str, object]) -> str:
        optional = path in self._fields and path not in self._required
        return "; leave it out for its default" if optional and values[path] is None else ""


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
                if not _is_object(schema):
                    raise ValueError(f"it must be an object, not {_shown(schema)}")  # noqa: TRY301 - told like the rest
                self._validator = validator_for(schema, offline=True)
            except ValidationError as error:
                place = functools.reduce(_child, error.instance_path, "") or "its root"
                reason = _clipped(error.message, 200)
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
            problems = _limited(self._explained(validator.iter_errors(arguments)))
        except ValueError as error:  # a value is not JSON
            problems = [("", f"the arguments cannot be checked: {_clipped(str(error), 200)}")]
        raise InvalidArgumentsError(problems)

    def _explained(self, errors: "Iterable[ValidationError]") -> Iterator[_Problem]:
        for error in errors:
            path = functools.reduce(_child, error.instance_path, "")
            details = error.kind.as_dict()
            if error.kind.name == "required":
                yield _child(path, details["property"]), "is required"
            elif error.kind.name in ("additionalProperties", "unevaluatedProperties"):
                for key in details["unexpected"]:
                    sentence = _unknown(key, self._known, "an argument of this tool")
                    yield _child(path, key), "is not expected here; leave it out" if path else sentence
            elif "context" in details:
                reasons = dict.fromkeys(inner.message for branch in details["context"] for inner in branch[:1])
                sentence = f"fits no alternative: {'; '.join(reasons)}" if reasons else error.message
                yield path, _clipped(sentence, 300)
            else:
                yield path, _clipped(error.message, 200)


# ---------------------------------------------------------------- the strict converter


_EXACT: Mapping[object, frozenset[type]] = {
    str: frozenset({str}),
    int: frozenset({int}),
    float: frozenset({int, float}),
    bool: frozenset({bool}),
    NoneType: frozenset({NoneType}),
}
_SCALARS: Mapping[type, tuple[Any, Callable[[Any], object] | None, str]] = {
    str: (str, None, "a string"),
    int: (int, None, "an integer"),
    float: ((int, float), None, "a number"),
    bool: (bool, None, "true or false"),
    NoneType: (NoneType, None, "null"),
    datetime: (str, datetime.fromisoformat, 'a date and time such as "2026-01-31T12:00:00Z"'),
    date: (str, date.fromisoformat, 'a date such as "2026-01-31"'),
    Path: (str, Path, "a path"),
}


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


@functools.cache
def _strict_converter() -> "Converter":
    """Make the one converter of the process; cattrs is imported here."""
    from cattrs import Converter

    converter = Converter(forbid_extra_keys=True, detailed_validation=True, use_alias=True)
    # The last that fits wins.
    factories: list[tuple[Callable[[Any], bool], Callable[[Any, Converter], _Hook]]] = [
        (lambda hint: hint is object, lambda hint, converter: converter.get_structure_hook(Any)),
        (is_class, _class_hook),
        (is_typed_dict, _typed_dict_hook),
        (lambda hint: (get_origin(hint) or hint) in COLLECTIONS, _collection_hook),
        (lambda hint: (get_origin(hint) or hint) in MAPPINGS, _mapping_hook),
        (lambda hint: get_origin(hint) in UNIONS, _union_hook),
        (lambda hint: unwrap(hint)[0] is not hint, _inner_hook),
        (is_choice, _choice_hook),
    ]
    for fits, factory in factories:
        converter.register_structure_hook_factory(fits, factory)
    for kind in _SCALARS:
        converter.register_structure_hook(kind, _scalar_hook(kind))
    return converter


def _inner_hook(hint: object, converter: "Converter") -> _Hook:
    inner = unwrap(hint)[0]
    hook = converter.get_structure_hook(inner, cache_result=False)
    return lambda value, _: hook(value, inner)


def _scalar_hook(hint: type) -> _Hook:
    kinds, build, expected = _SCALARS[hint]

    def structure(value: object, wanted: type) -> object:
        if wanted is not hint:  # an enum of strings or of ints, for which cattrs finds the hook of its base
            return _choice_hook(wanted, None)(value, wanted)
        if isinstance(value, kinds) and (hint is bool or not isinstance(value, bool)):
            try:
                return build(value) if build else value
            except ValueError:
                pass  # text, and not a date
        raise _MismatchError(expected, value)

    return structure


def _by_form(hint: object) -> dict[tuple[type, object], object]:
    # With the type, because True equals 1.
    return {(type(value), value): member for value, member in choices(hint)}


def _chosen(members: Mapping[tuple[type, object], object], value: object) -> object:
    return attrs.NOTHING if _is_array(value) or _is_object(value) else members.get((type(value), value), attrs.NOTHING)


@functools.cache
def _choice_hook(hint: object, _: object) -> _Hook:
    members = _by_form(hint)
    names = _clipped(", ".join(_shown(value) for _, value in members), 300)

    def structure(value: object, _: object) -> object:
        if (member := _chosen(members, value)) is attrs.NOTHING:
            raise _MismatchError(names if len(members) == 1 else f"one of {names}", value)
        return member

    return structure


def _collection_hook(hint: Any, converter: "Converter") -> _Hook:
    build, args = COLLECTIONS[get_origin(hint) or hint], get_args(hint) or (Any, ...)
    size = len(args) if build is tuple and args[-1] is not ... else None
    hooks = [(converter.get_structure_hook(arg, cache_result=False), arg) for arg in args if arg is not ...]

    def structure(value: object, _: object) -> object:
        if not _is_array(value):
            raise _MismatchError("an array", value)
        if size is not None and size != len(value):
            raise _RefusedError(f"must have {size} items, not {len(value)}")
        places = zip(itertools.count(), itertools.cycle(hooks), value, strict=False)
        items = _each((index, hook, item, inner) for index, (hook, inner), item in places)
        try:
            return build(items)
        except TypeError:
            raise _RefusedError("is a set, so each item must be a string, a number or another single value") from None

    return structure


def _mapping_hook(hint: Any, converter: "Converter") -> _Hook:
    _, inner = get_args(hint) or (str, Any)
    hook = converter.get_structure_hook(inner, cache_result=False)

    def structure(value: object, _: object) -> object:
        if not _is_object(value):
            raise _MismatchError("an object", value)
        return dict(zip(value, _each((key, hook, item, inner) for key, item in value.items()), strict=True))

    return structure


def _each(jobs: Iterable[tuple[str | int, _Hook, object, object]]) -> list[object]:
    """Structure what an array or an object holds, and raise the errors together."""
    from cattrs import IterableValidationError
    from cattrs.errors import IterableValidationNote

    built, errors = list[object](), list[Exception]()
    for key, hook, value, hint in jobs:
        try:
            built.append(hook(value, hint))
        except Exception as error:  # noqa: BLE001 - see ArgumentBinder
            error.add_note(IterableValidationNote("", key, hint))
            errors.append(error)
            if len(errors) > _MOST_PROBLEMS:
                break
    if errors:
        raise IterableValidationError("items", errors, list)  # pyright: ignore[reportCallIssue] - it reads __init__
    return built


def _field_hooks(fields: Mapping[str, Parameter], converter: "Converter") -> dict[str, _Hook]:
    return {name: converter.get_structure_hook(field.hint, cache_result=False) for name, field in fields.items()}


def _structured_fields(
    fields: Mapping[str, Parameter], hooks: Mapping[str, _Hook], values: Mapping[str, object], what: str
) -> dict[str, object]:
    def jobs() -> Iterator[tuple[str, _Hook, object, object]]:
        for name, field in fields.items():
            if field.required and name not in values:
                yield name, _refuse, "is required", None
        for name, value in values.items():
            if name in fields:
                yield name, hooks[name], value, fields[name].hint
            else:
                yield name, _refuse, _unknown(name, fields, what), None

    return dict(zip(values, _each(jobs()), strict=True))


def _refuse(sentence: str, _: object) -> NoReturn:
    raise _RefusedError(sentence)


def _typed_dict_hook(cls: type, converter: "Converter") -> _Hook:
    # Not by cattrs, which takes a NotRequired for required where annotations are strings.
    fields = {field.name: attrs.evolve(field, hint=unwrap(field.hint)[0]) for field in read_fields(cls)[0]}
    hooks: dict[str, _Hook] = {}

    def structure(value: object, _: object) -> object:
        if not _is_object(value):
            raise _MismatchError("an object", value)
        if not hooks:  # made late, because the class may contain itself
            hooks.update(_field_hooks(fields, converter))
        return _structured_fields(fields, hooks, value, f"a key of {cls.__name__}")

    return structure


def _class_hook(cls: type, converter: "Converter") -> _Hook:
    read_fields(cls)  # evaluates string annotations, also those that name the class itself
    build: _Hook = converter.gen_structure_attrs_fromdict(cls)

    def structure(value: object, _: object) -> object:
        if not _is_object(value):
            raise _MismatchError("an object", value)
        return build(value, cls)

    return structure


def _union_hook(hint: Any, converter: "Converter") -> _Hook:
    """Try the alternatives in their order; of the classes, only those whose keys and tags fit.

    Without that look ahead, a tree of tagged nodes would cost a power of its depth.
    """
    members = [(arg, converter.get_structure_hook(arg, cache_result=False), _misfit_of(arg)) for arg in get_args(hint)]

    def structure(value: object, _: object) -> object:
        expected, inner = list[str](), list[Exception]()
        unfit: list[tuple[tuple[int, int], int]] = []
        for index, (arg, hook, misfit) in enumerate(members):
            if misfit and _is_object(value) and (score := misfit(value)) != (0, 0):
                unfit.append((score, index))
                continue
            try:
                return hook(value, arg)
            except _MismatchError as error:
                expected.append(error.expected)
            except Exception as error:  # noqa: BLE001 - of the right kind, with something wrong inside
                inner.append(error)
        if inner:
            raise inner[0]
        if unfit:
            arg, hook, _ = members[min(unfit)[1]]
            return hook(value, arg)  # it raises, and says what is wrong with the closest
        raise _MismatchError(" or ".join(dict.fromkeys(expected)), value)

    return structure


def _misfit_of(hint: object) -> Callable[[dict[str, object]], tuple[int, int]] | None:
    """Return what counts the wrong tags, and the missing and unknown keys, of an object for a class."""
    cls = unwrap(hint)[0]
    if not is_class(cls):
        return None
    fields = [(field.name, unwrap(field.hint)[0], field.required) for field in read_fields(cls)[0]]
    names = {name for name, _, _ in fields}
    required = {name for name, _, required in fields if required}
    tags = {name: _by_form(hint) for name, hint, _ in fields if is_choice(hint)}

    def misfit(value: dict[str, object]) -> tuple[int, int]:
        wrong = [name for name in tags.keys() & value if _chosen(tags[name], value[name]) is attrs.NOTHING]
        return len(wrong), len(value.keys() - names) + len(required - value.keys())

    return misfit


# ---------------------------------------------------------------- sentences and paths


def _leaves(error: Exception, path: str) -> Iterator[tuple[str, Exception]]:
    """Walk what cattrs raised down to the single errors; each brings its path."""
    from cattrs import BaseValidationError, ForbiddenExtraKeysError

    stack = [(path, error)]
    while stack:
        path, error = stack.pop()
        if isinstance(error, BaseValidationError):
            stack += reversed([_located(inner, path, error.cl) for inner in error.exceptions])
        elif isinstance(error, ForbiddenExtraKeysError):
            known = [field.name for field in read_fields(error.cl)[0]]
            for key in sorted(error.extra_fields):
                yield _child(path, key), _RefusedError(_unknown(key, known, f"a field of {error.cl.__name__}"))
        else:
            yield path, error


def _located(error: Exception, path: str, cls: type) -> tuple[str, Exception]:
    """Read where an error happened from the notes that cattrs left on it."""
    from cattrs.errors import AttributeValidationNote, IterableValidationNote

    notes: list[object] = getattr(error, "__notes__", [])
    for note in reversed(notes):
        if isinstance(note, IterableValidationNote):
            return _child(path, note.index), error
        if isinstance(note, AttributeValidationNote):
            key = (attrs.fields_dict(cls)[note.name].alias if attrs.has(cls) else None) or note.name
            missing = isinstance(error, KeyError) and error.args == (key,)
            return _child(path, key), _RefusedError("is required") if missing else error
    return path, error


def _sentence(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "is nested too deeply"
    first = error.args[0] if error.args else None
    return _clipped(first if isinstance(first, str) else repr(error), 300)


def _unknown(name: str, known: Iterable[str], what: str) -> str:
    # Comparing is quadratic in the length, and a model may have put a whole file into a key.
    close = difflib.get_close_matches(name, known, n=1) if len(name) <= _LONGEST_NAME else []
    advice = f"did you mean {_shown(close[0])}?" if close else f"known: {_clipped(', '.join(known), 200) or 'none'}"
    return f"is not {what}; {advice}"


def _limited(problems: Iterable[_Problem]) -> list[_Problem]:
    listed = list(itertools.islice(problems, _MOST_PROBLEMS + 1))
    if len(listed) > _MOST_PROBLEMS:
        listed[_MOST_PROBLEMS:] = [("", f"these are the first {_MOST_PROBLEMS} problems, there are more")]
    return listed


def _is_object(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)


def _is_array(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def _child(path: str, key: str | int) -> str:
    if isinstance(key, int):
        return f"{path}[{key}]"
    if not key.isidentifier():
        return f"{path}[{_shown(key)}]"
    key = _clipped(key, 60)
    return f"{path}.{key}" if path else key


def _shown(value: object) -> str:
    """Show a JSON value in a sentence: a little of it."""
    if _is_object(value):
        return "an object"
    if _is_array(value):
        return "an array"
    if isinstance(value, str):
        return json.dumps(_clipped(value, 40), ensure_ascii=False)
    if value is None or isinstance(value, (bool, int, float)):
        return _clipped(json.dumps(value), 40)
    return f"a {type(value).__name__}"


def _clipped(text: str, most: int) -> str:
    """Cut the middle out: of a message about a value, the end matters."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-(most // 2) :]}"

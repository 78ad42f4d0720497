"""The strict cattrs converter: values are checked, not converted, and all problems are found.

Unions, collections and TypedDicts have hooks of our own. cattrs would take any iterable for a list, tell
alternatives apart by class only, and read a string annotation ``NotRequired[...]`` as required.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, NoReturn, get_args, get_origin

import attrs

from ._hints import (
    COLLECTIONS,
    MAPPINGS,
    UNIONS,
    Parameter,
    choices,
    is_choice,
    is_class,
    is_dataclass,
    is_typed_dict,
    read_fields,
    unwrap,
)
from ._sentences import MOST_PROBLEMS, MismatchError, RefusedError, clipped, is_array, is_object, shown, unknown

if TYPE_CHECKING:
    from cattrs import Converter

Hook = Callable[[Any, Any], Any]
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


@functools.cache
def strict_converter() -> "Converter":
    """Make the one converter of the process; cattrs is imported here."""
    from cattrs import Converter

    converter = Converter(forbid_extra_keys=True, detailed_validation=True, use_alias=True)
    # The last that fits wins.
    factories: list[tuple[Callable[[Any], bool], Callable[[Any, Converter], Hook]]] = [
        (lambda hint: hint is object, lambda hint, converter: converter.get_structure_hook(Any)),
        (is_class, _class_hook),
        (lambda hint: is_typed_dict(hint) or is_dataclass(hint), _keyed_hook),
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


def _inner_hook(hint: object, converter: "Converter") -> Hook:
    inner = unwrap(hint)[0]
    hook = converter.get_structure_hook(inner, cache_result=False)
    return lambda value, _: hook(value, inner)


def _scalar_hook(hint: type) -> Hook:
    kinds, build, expected = _SCALARS[hint]

    def structure(value: object, wanted: type) -> object:
        if wanted is not hint:  # an enum of strings or of ints, for which cattrs finds the hook of its base
            return _choice_hook(wanted, None)(value, wanted)
        if isinstance(value, kinds) and (hint is bool or not isinstance(value, bool)):
            try:
                return build(value) if build else value
            except ValueError:
                pass  # text, and not a date
        raise MismatchError(expected, value)

    return structure


def _by_form(hint: object) -> dict[tuple[type, object], object]:
    # With the type, because True equals 1.
    return {(type(value), value): member for value, member in choices(hint)}


def _chosen(members: Mapping[tuple[type, object], object], value: object) -> object:
    return attrs.NOTHING if is_array(value) or is_object(value) else members.get((type(value), value), attrs.NOTHING)


@functools.cache
def _choice_hook(hint: object, _: object) -> Hook:
    members = _by_form(hint)
    names = clipped(", ".join(shown(value) for _, value in members), 300)

    def structure(value: object, _: object) -> object:
        if (member := _chosen(members, value)) is attrs.NOTHING:
            raise MismatchError(names if len(members) == 1 else f"one of {names}", value)
        return member

    return structure


def _collection_hook(hint: Any, converter: "Converter") -> Hook:
    build, args = COLLECTIONS[get_origin(hint) or hint], get_args(hint) or (Any, ...)
    size = len(args) if build is tuple and args[-1] is not ... else None
    hooks = [(converter.get_structure_hook(arg, cache_result=False), arg) for arg in args if arg is not ...]

    def structure(value: object, _: object) -> object:
        if not is_array(value):
            raise MismatchError("an array", value)
        if size is not None and size != len(value):
            raise RefusedError(f"must have {size} items, not {len(value)}")
        places = zip(itertools.count(), itertools.cycle(hooks), value, strict=False)
        items = _each((index, hook, item, inner) for index, (hook, inner), item in places)
        try:
            return build(items)
        except TypeError:
            raise RefusedError("is a set, so each item must be a string, a number or another single value") from None

    return structure


def _mapping_hook(hint: Any, converter: "Converter") -> Hook:
    _, inner = get_args(hint) or (str, Any)
    hook = converter.get_structure_hook(inner, cache_result=False)

    def structure(value: object, _: object) -> object:
        if not is_object(value):
            raise MismatchError("an object", value)
        return dict(zip(value, _each((key, hook, item, inner) for key, item in value.items()), strict=True))

    return structure


def _each(jobs: Iterable[tuple[str | int, Hook, object, object]]) -> list[object]:
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
            if len(errors) > MOST_PROBLEMS:
                break
    if errors:
        raise IterableValidationError("items", errors, list)  # pyright: ignore[reportCallIssue] - it reads __init__
    return built


def field_hooks(fields: Mapping[str, Parameter], converter: "Converter") -> dict[str, Hook]:
    return {name: converter.get_structure_hook(field.hint, cache_result=False) for name, field in fields.items()}


def structured_fields(
    fields: Mapping[str, Parameter], hooks: Mapping[str, Hook], values: Mapping[str, object], what: str
) -> dict[str, object]:
    def jobs() -> Iterator[tuple[str, Hook, object, object]]:
        for name, field in fields.items():
            if field.required and name not in values:
                yield name, _refuse, "is required", None
        for name, value in values.items():
            if name in fields:
                yield name, hooks[name], value, fields[name].hint
            else:
                yield name, _refuse, unknown(name, fields, what), None

    return dict(zip(values, _each(jobs()), strict=True))


def _refuse(sentence: str, _: object) -> NoReturn:
    raise RefusedError(sentence)


def _keyed_hook(cls: type, converter: "Converter") -> Hook:
    # Not by cattrs, which takes a NotRequired for required where annotations are strings.
    fields = {field.name: attrs.evolve(field, hint=unwrap(field.hint)[0]) for field in read_fields(cls)[0]}
    hooks: dict[str, Hook] = {}
    what = "field" if is_dataclass(cls) else "key"

    def structure(value: object, _: object) -> object:
        if not is_object(value):
            raise MismatchError("an object", value)
        if not hooks:  # made late, because the class may contain itself
            hooks.update(field_hooks(fields, converter))
        values = structured_fields(fields, hooks, value, f"a {what} of {cls.__name__}")
        return cls(**values) if is_dataclass(cls) else values

    return structure


def _class_hook(cls: type, converter: "Converter") -> Hook:
    read_fields(cls)  # evaluates string annotations, also those that name the class itself
    build: Hook = converter.gen_structure_attrs_fromdict(cls)

    def structure(value: object, _: object) -> object:
        if not is_object(value):
            raise MismatchError("an object", value)
        return build(value, cls)

    return structure


def _union_hook(hint: Any, converter: "Converter") -> Hook:
    """Try the alternatives in their order; of the classes, only those whose keys and tags fit.

    Without that look ahead, a tree of tagged nodes would cost a power of its depth.
    """
    members = [(arg, converter.get_structure_hook(arg, cache_result=False), _misfit_of(arg)) for arg in get_args(hint)]

    def structure(value: object, _: object) -> object:
        expected, inner = list[str](), list[Exception]()
        unfit: list[tuple[tuple[int, int], int]] = []
        for index, (arg, hook, misfit) in enumerate(members):
            if misfit and is_object(value) and (score := misfit(value)) != (0, 0):
                unfit.append((score, index))
                continue
            try:
                return hook(value, arg)
            except MismatchError as error:
                expected.append(error.expected)
            except Exception as error:  # noqa: BLE001 - of the right kind, with something wrong inside
                inner.append(error)
        if inner:
            raise inner[0]
        if unfit:
            arg, hook, _ = members[min(unfit)[1]]
            return hook(value, arg)  # it raises, and says what is wrong with the closest
        raise MismatchError(" or ".join(dict.fromkeys(expected)), value)

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

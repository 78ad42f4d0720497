"""The hints a tool may use: how they are told apart, and what is inside of them."""

import dataclasses
import enum
import types
import typing
from collections import abc
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Required, TypeGuard, Union, get_args, get_origin

import attrs

UNIONS: Collection[object] = (Union, types.UnionType)
MAPPINGS: Collection[object] = (dict, abc.Mapping, abc.MutableMapping)
# What builds the value that a body gets for an array, by the origin of the hint.
COLLECTIONS: Mapping[object, Callable[[Iterable[object]], object]] = {
    **dict.fromkeys((list, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable), list),
    **dict.fromkeys((set, abc.MutableSet), set),
    **dict.fromkeys((frozenset, abc.Set), frozenset),
    tuple: tuple,
}
SCALARS: Mapping[object, Mapping[str, object]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    types.NoneType: {"type": "null"},
    datetime: {"type": "string", "format": "date-time"},
    date: {"type": "string", "format": "date"},
    Path: {"type": "string"},
    Any: {},
    object: {},
}


@attrs.frozen
class Parameter:
    """One argument a model can give, or one field of an object in it."""

    name: str
    """Its key."""
    hint: object = attrs.field(kw_only=True)
    """Its type, without `typing.Annotated`."""
    required: bool = attrs.field(kw_only=True)
    """Whether it must be given."""
    default: object = attrs.field(kw_only=True)
    """What the function or the class takes if it is not given; `attrs.NOTHING` if there is nothing."""


def unwrap(hint: object) -> tuple[object, str]:
    """Look through Annotated, NewType and type aliases; return the hint inside and the first text annotated to it."""
    note = ""
    while True:
        if hint is None:  # as in list[None]
            return types.NoneType, note
        if isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        elif get_origin(hint) is Annotated:
            hint, *extras = get_args(hint)
            note = note or next((extra for extra in extras if isinstance(extra, str)), "")
        elif get_origin(hint) in (Required, NotRequired):
            hint = get_args(hint)[0]
        elif type(hint).__name__ == "TypeAliasType":  # ``type X = ...`` of Python 3.12
            hint = getattr(hint, "__value__")  # noqa: B009 - Python 3.11 has no such class to name
        else:
            return hint, note


def is_choice(hint: object) -> bool:
    """Whether a hint is a Literal or an enum."""
    return get_origin(hint) is Literal or (isinstance(hint, type) and issubclass(hint, enum.Enum))


def choices(hint: Any) -> list[tuple[object, object]]:
    """Return the members of a Literal or an enum, each after its JSON form."""
    members: tuple[object, ...] = get_args(hint) or tuple(hint)
    return [(member.value if isinstance(member, enum.Enum) else member, member) for member in members]


def is_typed_dict(hint: Any) -> TypeGuard[type]:
    """Whether a hint is a TypedDict, of `typing` or of typing_extensions."""
    return isinstance(hint, type) and hasattr(hint, "__required_keys__")


def is_dataclass(hint: object) -> TypeGuard[type]:
    """Whether a hint is a dataclass of the standard library."""
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def is_class(hint: object) -> TypeGuard[type]:
    """Whether a hint is a class with fields: attrs, a dataclass or a TypedDict."""
    return isinstance(hint, type) and (attrs.has(hint) or is_dataclass(hint) or is_typed_dict(hint))


def read_fields(cls: type) -> tuple[list[Parameter], dict[str, str]]:
    """Return what a class with fields is made of, and the texts that describe it.

    String annotations of an attrs class are evaluated in place, as attrs and cattrs do it.
    """
    if is_typed_dict(cls):
        # Where annotations are strings, only the hint knows whether a key is required.
        marks: Mapping[object, bool] = {Required: True, NotRequired: False}
        known: Collection[str] = getattr(cls, "__required_keys__", ())
        hints = typing.get_type_hints(cls, include_extras=True).items()
        given = [(key, hint, marks.get(get_origin(hint), key in known)) for key, hint in hints]
        return [Parameter(key, hint=hint, required=must, default=attrs.NOTHING) for key, hint, must in given], {}
    if is_dataclass(cls):
        hints_of = typing.get_type_hints(cls, localns={cls.__name__: cls}, include_extras=True)
        members = [field for field in dataclasses.fields(cls) if field.init]
        return [
            Parameter(
                field.name,
                hint=hints_of[field.name],
                required=field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
                default=attrs.NOTHING if field.default is dataclasses.MISSING else field.default,
            )
            for field in members
        ], {field.name: field.metadata.get("description", "") for field in members}
    attrs.resolve_types(cls, localns={cls.__name__: cls})
    fields = [(field, field.alias or field.name) for field in attrs.fields(cls) if field.init]
    return [
        Parameter(
            key,
            hint=attrs.NOTHING if field.type is None else field.type,
            required=field.default is attrs.NOTHING,
            default=field.default,
        )
        for field, key in fields
    ], {key: field.metadata.get("description", "") for field, key in fields}

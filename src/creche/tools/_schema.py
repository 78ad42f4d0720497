"""From a typed function to what a model is shown: a name, a description and a JSON Schema.

The schema is JSON Schema 2020-12 with its keys in declared order, so a function gives the same bytes in
every process. A class that is used once is written in place; one that is used twice, or contains itself,
goes to ``$defs``. Which of the two holds is known at the end of the walk, so a function that mentions
classes is walked twice: first with every class as a reference, to count.

What has no JSON form is refused here, when the tool is declared, and never at a call.
"""

import enum
import inspect
import json
import types
import typing
from collections import Counter, abc
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Required, TypeGuard, Union, get_args, get_origin

import attrs

from ._result import json_text

UNIONS: Collection[object] = (Union, types.UnionType)
MAPPINGS: Collection[object] = (dict, abc.Mapping, abc.MutableMapping)
# What builds the value that a body gets for an array, by the origin of the hint.
COLLECTIONS: Mapping[object, Callable[[Iterable[object]], object]] = {
    **dict.fromkeys((list, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable), list),
    **dict.fromkeys((set, abc.MutableSet), set),
    **dict.fromkeys((frozenset, abc.Set), frozenset),
    tuple: tuple,
}
_SCALARS: Mapping[object, Mapping[str, object]] = {
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


@attrs.frozen
class FunctionShape:
    """What a model is shown of a function, and what its arguments are checked against."""

    name: str
    """The function's own name."""
    description: str = attrs.field(kw_only=True)
    """Summary and body of the docstring, without its sections; ``""`` if there is none."""
    parameters: dict[str, object] = attrs.field(kw_only=True)
    """A JSON Schema 2020-12 object."""
    fields: tuple[Parameter, ...] = attrs.field(kw_only=True)
    """What a model can give, in the order of the signature."""
    context_parameter: str | None = attrs.field(kw_only=True)
    """Name of the parameter that the dispatcher fills in and a model is not shown."""


class _UnsupportedError(TypeError):
    """A hint has no JSON form; each level that the error passes adds where."""


def describe_function(function: Callable[..., object], *, context_type: type | None = None) -> FunctionShape:
    """Read a function's name, docstring and signature.

    Decorators that set ``__wrapped__`` are seen through; annotations may be strings.

    Args:
      function: A function or a bound method.
      context_type: Class whose parameter the dispatcher fills in; it is left out of the schema.

    Raises:
      TypeError: a parameter has no annotation or one without a JSON form; the sentence says what to write instead.
    """
    target = inspect.unwrap(getattr(function, "__func__", function))
    if not inspect.isfunction(target):
        raise TypeError(f"{function!r} is not a function; wrap it in a def with typed parameters")
    owner = f"tool function {target.__name__!r}"
    description, notes = _read_docstring(owner, inspect.getdoc(function) or "")
    hints, bare = _parameter_hints(owner, target)
    fields, contexts = list[Parameter](), list[str]()
    for name, parameter in inspect.signature(function).parameters.items():
        _check_parameter(owner, parameter, hints)
        hint = unwrap(bare[name])[0]
        if context_type is not None and _names_context(hint, context_type):
            contexts.append(name)
        else:
            default = attrs.NOTHING if parameter.default is parameter.empty else parameter.default
            fields.append(Parameter(name, hint=hint, required=default is attrs.NOTHING, default=default))
    if len(contexts) > 1:
        raise TypeError(f"{owner} has two context parameters, {' and '.join(map(repr, contexts))}; keep one of them")
    members = [attrs.evolve(field, hint=hints[field.name]) for field in fields]
    return FunctionShape(
        target.__name__,
        description=description,
        parameters=_parameters_schema(owner, members, notes),
        fields=tuple(fields),
        context_parameter=contexts[0] if contexts else None,
    )


def _parameter_hints(owner: str, target: types.FunctionType) -> tuple[dict[str, object], dict[str, object]]:
    """Return the parameters' hints by name, with `typing.Annotated` and without it, at any depth."""
    try:
        # What the function returns may be a name for type checkers only, so a stand-in is asked.
        written = {name: hint for name, hint in target.__annotations__.items() if name != "return"}
        stand_in = types.SimpleNamespace(__annotations__=written)
        hints = typing.get_type_hints(stand_in, target.__globals__, include_extras=True)
        return hints, typing.get_type_hints(stand_in, target.__globals__)
    except NameError as error:
        raise TypeError(f"an annotation of {owner} {_missing_name(error)}") from None
    except (AttributeError, SyntaxError, TypeError) as error:
        raise TypeError(f"an annotation of {owner} cannot be read: {error}; write a type") from None


def _missing_name(error: NameError) -> str:
    return f"names {error.name!r}, which its module lacks at run time; define or import it there, not in TYPE_CHECKING"


def _check_parameter(owner: str, parameter: inspect.Parameter, hints: Mapping[str, object]) -> None:
    where = f"parameter {parameter.name!r} of {owner}"
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise TypeError(f"{where} takes any number of arguments; name each of them, a model must know what to give")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise TypeError(f"{where} is positional-only; remove the '/', a model gives arguments by name")
    if parameter.name not in hints:
        raise TypeError(f"{where} has no annotation; write its type, or object if anything goes")


def _names_context(hint: object, context_type: type) -> bool:
    candidates = get_args(hint) if get_origin(hint) in UNIONS else (hint,)
    return any(context_type in (candidate, get_origin(candidate)) for candidate in candidates)


def _read_docstring(owner: str, text: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into a description and a text for each parameter."""
    if not text:
        return "", {}
    from docstring_parser import ParseError
    from docstring_parser.google import GoogleParser, Section, SectionType

    # All but the first are left out; as plain text, because the parser is strict about lists.
    listed, plain = (
        ("Args", "Arguments", "Parameters"),
        ("Attributes", "Example", "Examples", "Raises", "Returns", "Yields"),
    )
    sections = [Section(title, "param", SectionType.MULTIPLE) for title in listed]
    sections += [Section(title, "meta", SectionType.SINGULAR) for title in plain]
    try:
        parsed = GoogleParser(sections).parse(text)
    except ParseError:
        raise TypeError(
            f"the Args section of {owner} cannot be read; write each parameter as 'name: text' and indent what "
            "continues on the next line"
        ) from None
    gap = "\n\n" if parsed.blank_after_short_description else "\n"
    description = gap.join(part for part in (parsed.short_description, parsed.long_description) if part)
    return description, {param.arg_name: " ".join((param.description or "").split()) for param in parsed.params}


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


def is_class(hint: object) -> TypeGuard[type]:
    """Whether a hint is a class with fields: attrs or TypedDict."""
    return isinstance(hint, type) and (attrs.has(hint) or is_typed_dict(hint))


def read_fields(cls: type) -> tuple[list[Parameter], dict[str, str]]:
    """Return what an attrs class or a TypedDict is made of, and the texts that describe it.

    String annotations of an attrs class are evaluated in place, as attrs and cattrs do it.
    """
    if is_typed_dict(cls):
        # Where annotations are strings, only the hint knows whether a key is required.
        marks: Mapping[object, bool] = {Required: True, NotRequired: False}
        known: Collection[str] = getattr(cls, "__required_keys__", ())
        hints = typing.get_type_hints(cls, include_extras=True).items()
        given = [(key, hint, marks.get(get_origin(hint), key in known)) for key, hint in hints]
        return [Parameter(key, hint=hint, required=must, default=attrs.NOTHING) for key, hint, must in given], {}
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


def _parameters_schema(owner: str, members: Sequence[Parameter], notes: Mapping[str, str]) -> dict[str, object]:
    draft = _Builder(None)
    try:
        schema = draft.object_schema("parameter", owner, members, notes)
    except _UnsupportedError as error:
        raise TypeError(str(error)) from None
    if not draft.uses:
        return schema
    final = _Builder([cls for cls, uses in draft.uses.items() if uses > 1])
    schema = final.object_schema("parameter", owner, members, notes)
    return schema | {"$defs": final.definitions} if final.definitions else schema


class _Builder:
    """One walk over the hints; collects definitions and counts the uses of each class."""

    def __init__(self, shared: Collection[type] | None) -> None:
        self.uses = Counter[type]()
        self.definitions: dict[str, object] = {}
        self._names: dict[type, str] = {}
        self._shared = shared  # the classes that go to $defs; None for all

    def object_schema(
        self, kind: str, owner: str, members: Sequence[Parameter], notes: Mapping[str, str]
    ) -> dict[str, object]:
        properties: dict[str, object] = {}
        for member in members:
            try:
                found = self.schema(member.hint)
            except RecursionError:
                raise _UnsupportedError(
                    f"{kind} {member.name!r} of {owner} has a type alias that contains itself; use an attrs class"
                ) from None
            except _UnsupportedError as error:
                raise _UnsupportedError(f"{kind} {member.name!r} of {owner}: {error}") from None
            if note := notes.get(member.name):
                found.setdefault("description", note)
            properties[member.name] = found | _default(member.default)
        required = [member.name for member in members if member.required]
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def schema(self, hint: object) -> dict[str, object]:
        bare, note = unwrap(hint)
        found = self._bare_schema(bare)
        return found | {"description": note} if note else found

    def _bare_schema(self, hint: object) -> dict[str, object]:
        origin, args = get_origin(hint) or hint, get_args(hint)
        if not isinstance(origin, abc.Hashable):  # such as [str] for list[str]
            raise _no_json_form(hint)
        if origin in _SCALARS:
            return dict(_SCALARS[origin])
        if is_choice(hint):
            return _choice_schema(hint)
        if origin in UNIONS:
            return {"anyOf": [self.schema(arg) for arg in args]}
        if origin in MAPPINGS and (not args or unwrap(args[0])[0] is str):
            return {"type": "object", "additionalProperties": self.schema(args[1]) if args else True}
        if origin in COLLECTIONS:
            return self._array(COLLECTIONS[origin], args)
        if is_class(hint):
            return self._class(hint)
        raise _no_json_form(hint)

    def _array(self, builder: object, args: tuple[object, ...]) -> dict[str, object]:
        found: dict[str, object] = {"type": "array"}
        if builder is tuple and args and args[-1] is not ...:
            items, size = [self.schema(arg) for arg in args], len(args)
            return found | {"prefixItems": items, "items": False, "minItems": size, "maxItems": size}
        if args:
            found["items"] = self.schema(args[0])
        if builder is set or builder is frozenset:
            found["uniqueItems"] = True
        return found

    def _class(self, cls: type) -> dict[str, object]:
        self.uses[cls] += 1
        if self._shared is not None and cls not in self._shared:
            return self._fields(cls)
        if cls not in self._names:
            same = sum(other.__name__ == cls.__name__ for other in self._names)
            name = self._names[cls] = f"{cls.__name__}_{same + 1}" if same else cls.__name__
            self.definitions[name] = None  # its place in the order; the class may contain itself
            self.definitions[name] = self._fields(cls)
        return {"$ref": f"#/$defs/{self._names[cls]}"}

    def _fields(self, cls: type) -> dict[str, object]:
        owner = f"class {cls.__name__!r}"
        try:
            members, notes = read_fields(cls)
            hash(tuple(member.hint for member in members))
        except NameError as error:
            raise _UnsupportedError(f"an annotation of {owner} {_missing_name(error)}") from None
        except TypeError:  # cattrs keeps its hooks in a dict by hint
            raise _UnsupportedError(
                f"an Annotated in {owner} holds what has no hash; write frozen values there"
            ) from None
        return self.object_schema("field", owner, members, notes)


def _choice_schema(hint: object) -> dict[str, object]:
    values = [value for value, _ in choices(hint)]
    kinds: list[Any] = list(dict.fromkeys(map(type, values)))
    if not kinds or any(kind not in (str, int, float, bool, types.NoneType) for kind in kinds):
        raise _no_json_form(hint)
    return (dict(_SCALARS[kinds[0]]) if len(kinds) == 1 else {}) | {"enum": values}


def _default(value: object) -> dict[str, object]:
    """Return the keyword that shows a default, if it has a JSON form."""
    try:
        return {} if value is attrs.NOTHING else {"default": json.loads(json_text(value))}
    except TypeError:
        return {}


def _no_json_form(hint: object) -> _UnsupportedError:
    if hint is attrs.NOTHING:
        return _UnsupportedError("it has no annotation; write its type, or object if anything goes")
    return _UnsupportedError(
        f"{inspect.formatannotation(hint)} has no JSON form; use str, int, float, bool, list, dict with text keys, "
        "Literal, an enum, a TypedDict or an attrs class"
    )

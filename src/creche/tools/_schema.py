"""From a typed function to what a model is shown: a name, a description and a JSON Schema.

The schema is JSON Schema 2020-12 with its keys in declared order, so the same function gives the same
bytes in every process. A class that is used once is written in place; one that is used twice, or that
contains itself, goes to ``$defs``. Which of the two holds is known only at the end of the walk, so a
function that mentions classes is walked twice: once with every class as a reference, to count.

What has no JSON form is refused here, when the tool is declared, and never at a call.
"""

import enum
import inspect
import math
import typing
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import date
from pathlib import PurePath
from types import SimpleNamespace
from typing import Literal, NotRequired, Required, get_args, get_origin

import attrs

from ._hints import COLLECTIONS, MAPPINGS, SCALARS, UNIONS, is_typed_dict, resolve_class, unwrap

_USE_INSTEAD = "use str, int, float, bool, list, dict, Literal, an enum, a TypedDict or an attrs class"


@attrs.frozen
class Parameter:
    """One argument a model can give."""

    name: str
    """Its key in the arguments."""
    hint: object = attrs.field(kw_only=True)
    """Its type, without `typing.Annotated`."""
    required: bool = attrs.field(kw_only=True)
    """Whether a call must give it."""
    default: object = attrs.field(kw_only=True)
    """The function's own default; `attrs.NOTHING` if the argument is required."""


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
    """Name of the parameter the dispatcher fills in, which a model is not shown."""


@attrs.frozen
class _Member:
    """One property of an object: a parameter, or a field of a class."""

    name: str
    hint: object
    default: object = attrs.NOTHING
    required: bool = True
    note: str = ""


class _UnsupportedError(TypeError):
    """A hint has no JSON form; each level the error passes says where."""


def describe_function(function: Callable[..., object], *, context_type: type | None = None) -> FunctionShape:
    """Read a function's name, docstring and signature.

    Decorators that set ``__wrapped__`` are seen through; annotations may be strings.

    Args:
      function: A function or a bound method.
      context_type: Class whose parameter the dispatcher fills in; it is left out of the schema.

    Returns:
      What a model is shown, with the types its arguments are checked against.

    Raises:
      TypeError: a parameter has no annotation or one without a JSON form; the sentence says what to write instead.
    """
    target = inspect.unwrap(getattr(function, "__func__", function))
    if not inspect.isfunction(target):
        raise TypeError(f"{function!r} is not a function; wrap it in a def with typed parameters")
    owner = f"tool function {target.__name__!r}"
    description, notes = _read_docstring(owner, inspect.getdoc(function) or "")
    hints = _parameter_hints(owner, target)
    members, fields, contexts = list[_Member](), list[Parameter](), list[str]()
    for parameter in inspect.signature(function).parameters.values():
        name = parameter.name
        hint, bare = _checked_hint(owner, parameter, hints)
        if context_type is not None and _names_context(bare, context_type):
            contexts.append(name)
            continue
        default = attrs.NOTHING if parameter.default is parameter.empty else parameter.default
        required = default is attrs.NOTHING
        members.append(_Member(name, hint, default, required, notes.get(name, "")))
        fields.append(Parameter(name, hint=bare, required=required, default=default))
    if len(contexts) > 1:
        raise TypeError(f"{owner} has two context parameters, {' and '.join(map(repr, contexts))}; keep one of them")
    return FunctionShape(
        target.__name__,
        description=description,
        parameters=_parameters_schema(owner, members),
        fields=tuple(fields),
        context_parameter=contexts[0] if contexts else None,
    )


# ---------------------------------------------------------------- the signature


def _parameter_hints(owner: str, target: Callable[..., object]) -> tuple[dict[str, object], dict[str, object]]:
    """Return the hints of the parameters by name, with `typing.Annotated` and without it, at any depth."""
    try:
        written = {name: hint for name, hint in target.__annotations__.items() if name != "return"}
        # A stand-in, because what the function returns may name what exists for type checkers only.
        stand_in = SimpleNamespace(__annotations__=written)
        names: dict[str, object] = getattr(target, "__globals__", {})
        full = typing.get_type_hints(stand_in, names, include_extras=True)
        return full, typing.get_type_hints(stand_in, names)
    except NameError as error:
        raise TypeError(
            f"an annotation of {owner} names {error.name!r}, which its module does not have at run time; "
            "import or define it at the top of the module, outside of TYPE_CHECKING"
        ) from None


def _checked_hint(
    owner: str, parameter: inspect.Parameter, hints: tuple[dict[str, object], dict[str, object]]
) -> tuple[object, object]:
    name = parameter.name
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        raise TypeError(f"{owner} takes {stars}{name}; name each argument, a model has to know what it can give")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise TypeError(f"parameter {name!r} of {owner} is positional-only; remove the '/', a model gives names")
    full, bare = hints
    if name not in full:
        raise TypeError(f"parameter {name!r} of {owner} has no annotation; write its type, or object if anything goes")
    return full[name], unwrap(bare[name])[0]


def _names_context(hint: object, context_type: type) -> bool:
    candidates = get_args(hint) if get_origin(hint) in UNIONS else (hint,)
    return any(context_type in (candidate, get_origin(candidate)) for candidate in candidates)


def _read_docstring(owner: str, text: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into the description and a text for each parameter."""
    if not text:
        return "", {}
    from docstring_parser import ParseError
    from docstring_parser.google import GoogleParser, Section, SectionType

    arguments = ("Args", "Arguments", "Parameters", "Params", "Keyword Args")
    # These are left out. As plain text, for the parser refuses some of what people write in them.
    others = ("Attributes", "Example", "Examples", "Raises", "Returns", "Yields")
    sections = [Section(title, "param", SectionType.MULTIPLE) for title in arguments]
    sections += [Section(title, "examples", SectionType.SINGULAR) for title in others]
    try:
        parsed = GoogleParser(sections).parse(text)
    except ParseError:
        raise TypeError(
            f"the Args section of the docstring of {owner} cannot be read; write each parameter as 'name: text', "
            "and indent what continues on the next line"
        ) from None
    gap = "\n\n" if parsed.blank_after_short_description else "\n"
    description = gap.join(part for part in (parsed.short_description, parsed.long_description) if part)
    return description, {param.arg_name: " ".join((param.description or "").split()) for param in parsed.params}


# ---------------------------------------------------------------- the schema


def _parameters_schema(owner: str, members: Iterable[_Member]) -> dict[str, object]:
    draft = _Builder(None)
    schema = draft.object(owner, "parameter", members)
    if not draft.uses:
        return schema
    final = _Builder({cls for cls, uses in draft.uses.items() if uses > 1})
    schema = final.object(owner, "parameter", members)
    return schema | {"$defs": final.definitions} if final.definitions else schema


class _Builder:
    """One walk over the hints; collects the definitions and counts the uses of each class."""

    def __init__(self, shared: Collection[type] | None) -> None:
        self.uses = Counter[type]()
        self.definitions: dict[str, object] = {}
        self._names: dict[type, str] = {}
        self._shared = shared  # the classes that go to $defs; None for all

    def object(self, owner: str, kind: str, members: Iterable[_Member]) -> dict[str, object]:
        properties: dict[str, object] = {}
        required: list[str] = []
        for member in members:
            try:
                found = self.hint(member.hint)
            except _UnsupportedError as error:
                raise _UnsupportedError(f"{kind} {member.name!r} of {owner}: {error}") from None
            except RecursionError:
                where = f"{kind} {member.name!r} of {owner}"
                raise _UnsupportedError(f"{where}: its type alias contains itself; use an attrs class") from None
            if member.note:
                found.setdefault("description", member.note)
            default = _json_default(member.default)
            if default is not attrs.NOTHING:
                found["default"] = default
            properties[member.name] = found
            if member.required:
                required.append(member.name)
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def hint(self, hint: object) -> dict[str, object]:
        bare, note = unwrap(hint)
        found = self._bare(bare)
        return found | {"description": note} if note else found

    def _bare(self, hint: object) -> dict[str, object]:
        if isinstance(hint, type) and hint in SCALARS:
            return dict(SCALARS[hint])
        origin, args = get_origin(hint) or hint, get_args(hint)
        if origin is Literal:
            return _choices(args)
        if origin in UNIONS:
            return {"anyOf": [self.hint(arg) for arg in args]}
        if origin in MAPPINGS:
            return self._mapping(args)
        if origin in COLLECTIONS:
            return self._collection(origin, args)
        if isinstance(hint, type):
            return self._class(hint)
        raise _UnsupportedError(f"{inspect.formatannotation(hint)} has no JSON form; {_USE_INSTEAD}")

    def _mapping(self, args: tuple[object, ...]) -> dict[str, object]:
        if not args:
            return {"type": "object"}
        key, value = args
        if unwrap(key)[0] is not str:
            shown = inspect.formatannotation(key)
            raise _UnsupportedError(f"a dict with keys of type {shown} has no JSON form; use str for the keys")
        return {"type": "object", "additionalProperties": self.hint(value)}

    def _collection(self, origin: object, args: tuple[object, ...]) -> dict[str, object]: ...

"""From a typed function to what a model is shown: a name, a description and a JSON Schema.

The schema is JSON Schema 2020-12 with its keys in declared order, so a function gives the same bytes in
every process. A class that is used once is written in place; one that is used twice, or contains itself,
goes to ``$defs``. Which of the two holds is known at the end of the walk, so a function that mentions
classes is walked twice: first with every class as a reference, to count.

What has no JSON form is refused here, when the tool is declared, and never at a call.
"""

import inspect
import json
import types
import typing
from collections import Counter, abc
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, get_args, get_origin

import attrs

from ._hints import COLLECTIONS, MAPPINGS, SCALARS, UNIONS, Parameter, choices, is_choice, is_class, read_fields, unwrap
from ._result import json_text


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


def describe_class(cls: type) -> dict[str, object]:
    """Return the JSON Schema of an attrs class, a dataclass or a TypedDict.

    Raises:
      TypeError: It is no such class, or one of its fields has no JSON form.
    """
    if not is_class(cls):
        raise TypeError(f"{cls!r} is not a class with fields; give an attrs class, a dataclass or a TypedDict")
    return _two_walks(lambda builder: builder.fields_schema(cls))


def describe_return(function: Callable[..., object], *, not_values: Collection[type]) -> dict[str, object] | None:
    """Return the JSON Schema of what a function returns, as its annotation has it.

    Args:
      function: A function or a bound method.
      not_values: Classes that are no values when they are returned, such as parts of a message.

    Returns:
      The schema; ``None`` if there is no annotation, or one that cannot be read here, or has no JSON form.
    """
    target = inspect.unwrap(getattr(function, "__func__", function))
    written = getattr(target, "__annotations__", {})
    if "return" not in written:
        return None
    stand_in = types.SimpleNamespace(__annotations__={"return": written["return"]})
    try:
        hint = typing.get_type_hints(stand_in, getattr(target, "__globals__", {}), include_extras=True)["return"]
        return _two_walks(lambda builder: builder.schema(hint), not_values)
    except (AttributeError, NameError, RecursionError, SyntaxError, TypeError):
        return None  # it may be a name for type checkers only; nothing but a stub depends on it


def _parameters_schema(owner: str, members: Sequence[Parameter], notes: Mapping[str, str]) -> dict[str, object]:
    return _two_walks(lambda builder: builder.object_schema("parameter", owner, members, notes))


def _two_walks(walk: "Callable[[_Builder], dict[str, object]]", not_values: Collection[type] = ()) -> dict[str, object]:
    draft = _Builder(None, not_values)
    try:
        schema = walk(draft)
    except _UnsupportedError as error:
        raise TypeError(str(error)) from None
    if not draft.uses:
        return schema
    final = _Builder([cls for cls, uses in draft.uses.items() if uses > 1], not_values)
    schema = walk(final)
    return schema | {"$defs": final.definitions} if final.definitions else schema


class _Builder:
    """One walk over the hints; collects definitions and counts the uses of each class."""

    def __init__(self, shared: Collection[type] | None, not_values: Collection[type] = ()) -> None:
        self.uses = Counter[type]()
        self.definitions: dict[str, object] = {}
        self._names: dict[type, str] = {}
        self._shared = shared  # the classes that go to $defs; None for all
        self._not_values = not_values

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
        if origin in SCALARS:
            return dict(SCALARS[origin])
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
        if cls in self._not_values:
            raise _no_json_form(cls)
        self.uses[cls] += 1
        if self._shared is not None and cls not in self._shared:
            return self.fields_schema(cls)
        if cls not in self._names:
            same = sum(other.__name__ == cls.__name__ for other in self._names)
            name = self._names[cls] = f"{cls.__name__}_{same + 1}" if same else cls.__name__
            self.definitions[name] = None  # its place in the order; the class may contain itself
            self.definitions[name] = self.fields_schema(cls)
        return {"$ref": f"#/$defs/{self._names[cls]}"}

    def fields_schema(self, cls: type) -> dict[str, object]:
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
    return (dict(SCALARS[kinds[0]]) if len(kinds) == 1 else {}) | {"enum": values}


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
        "Literal, an enum, a TypedDict, a dataclass or an attrs class"
    )

"""A session in lines of JSON, and back.

Rule 1: a line is a JSON object in UTF-8, ended by a newline. The first line of a file is the format's version
(`FORMAT_LINE`); each session has a line for its header, then one a record.
Rule 2: what is written reads back equal. So what is read is checked, never converted: a number in quotes or a
field that nobody knows is an error, a field that is absent has its default.
Rule 3: a record of an unknown kind cannot be read past, unless its line says ``"ignorable": true``; such a line
is skipped whole, so it has no sequence number of its own.
"""

import functools
import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, cast, get_args, get_origin

import attrs

from creche.errors import CorruptLogError
from creche.messages import AssistantPart, Part

from ._facts import Fact, Record, SessionHeader
from ._order import KINDS

if TYPE_CHECKING:
    import cattrs

T = TypeVar("T")

FORMAT_VERSION = 1
"""Version of the format that is written; what this version of creche reads."""
FORMAT_LINE = b'{"creche":%d}\n' % FORMAT_VERSION
"""The first line of a file."""


@attrs.frozen
class SessionRecord:
    """A record and whose it is: what one line of a journal says."""

    session_id: str
    """The session it belongs to."""
    record: Record = attrs.field(kw_only=True)
    """The record."""


# `canonical_json` without its search for cycles: what cattrs makes of our values has none.
_write_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")).encode


def encode_header(header: SessionHeader) -> bytes:
    """Return the line that begins a session.

    Raises:
      TypeError: A field holds a value of a wrong type.
      ValueError: A number is not finite.
    """
    return _to_bytes(f'{{"session":{_write_json(_unstructurer(SessionHeader)(header))}}}\n')


def encode_record(session_id: str, record: Record) -> bytes:
    """Return the line of one record.

    Args:
      session_id: The session it belongs to.
      record: The record.

    Raises:
      TypeError: A field holds a value of a wrong type.
      ValueError: A number is not finite.
    """
    fact: Any = type(record.data)
    data = _unstructurer(fact)(record.data)
    shadows = f',"shadows":[{",".join(map(str, record.shadows))}]' if record.shadows else ""
    # The envelope by hand: half of what the encoder would take for the whole.
    return _to_bytes(
        f'{{"s":{_write_json(session_id)},"seq":{record.seq},"kind":"{record.kind}","turn":{record.turn},'
        f'"step":{record.step},"time":{record.time!r}{shadows},"data":{_write_json(data) if data else "{}"}}}\n'
    )


def _to_bytes(line: str) -> bytes:
    # UTF-8 has no lone surrogates and JSON text has an escape for them, which is how Python's handler spells them.
    # They stand in strings only, so the line means the same.
    return line.encode("utf-8", "backslashreplace")


def decode_format(line: bytes) -> None:
    """Check the first line of a file.

    Raises:
      CorruptLogError: It is not `FORMAT_LINE`.
    """
    found = _read_json(line)
    if found.keys() != {"creche"}:
        raise CorruptLogError(f'expected the format version, such as {{"creche":{FORMAT_VERSION}}}')
    version = found["creche"]
    if type(version) is not int or version != FORMAT_VERSION:
        raise CorruptLogError(
            f"format version {version!r} cannot be read; this version of creche reads {FORMAT_VERSION}"
        )


def decode_line(line: bytes) -> SessionHeader | SessionRecord | None:
    """Return what one line says, ``None`` for a line of an unknown kind that may be ignored.

    Args:
      line: The line, with or without its newline.

    Raises:
      CorruptLogError: It says nothing that is known; the message says what was found and what was expected.
    """
    found = _read_json(line)
    if "session" in found:
        if len(found) > 1:
            raise CorruptLogError(f"a session's line has one key, found {', '.join(found)}")
        return _structure(found["session"], SessionHeader, "session")
    kind = found.get("kind")
    if isinstance(kind, str) and kind not in KINDS:
        if found.get("ignorable") is True:
            return None
        raise CorruptLogError(
            f"a record of the kind {kind!r} is not known to this version of creche and not marked ignorable; "
            f"the known kinds are {', '.join(sorted(KINDS))}"
        )
    envelope = _structure(found, _Envelope, "")
    fact: Fact = _structure(envelope.data, KINDS[envelope.kind].fact, "data")
    record = Record(
        envelope.seq,
        kind=envelope.kind,
        data=fact,
        turn=envelope.turn,
        step=envelope.step,
        time=envelope.time,
        shadows=envelope.shadows,
    )
    return SessionRecord(envelope.s, record=record)


@attrs.frozen(kw_only=True)
class _Envelope:
    """The line of a record before its data is looked into."""

    s: str
    seq: int
    kind: str
    turn: int
    step: int
    time: float
    data: Any
    shadows: tuple[int, ...] = ()
    ignorable: bool = False


def _read_json(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line.rstrip(b"\n").decode(), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise CorruptLogError(f"not UTF-8: {error.reason} at byte {error.start + 1}") from error
    except json.JSONDecodeError as error:
        raise CorruptLogError(f"not JSON: {error.msg} at character {error.pos + 1}") from error
    except (ValueError, RecursionError) as error:
        raise CorruptLogError(f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise CorruptLogError(str(_WrongValueError("an object", found)))
    return cast("dict[str, Any]", found)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _structure(value: object, cls: type[T], where: str) -> T:
    import cattrs

    try:
        return _converter().structure(value, cls)
    except (cattrs.BaseValidationError, _WrongValueError) as error:
        problems = [each.rpartition(" @ ") for each in cattrs.transform_error(error, where, _describe)]
        raise CorruptLogError(
            "; ".join([f"{path.lstrip('.') or 'the line'}: {what}" for what, _, path in problems])
        ) from error


def _describe(error: BaseException, field_type: type[Any] | None) -> str:
    import cattrs

    if isinstance(error, KeyError):
        return "is missing"
    if isinstance(error, cattrs.ForbiddenExtraKeysError):
        return f"unknown fields {', '.join(sorted(error.extra_fields))}"
    return str(error)


# ---------------------------------------------------------------- the converter


class _WrongValueError(ValueError):
    def __init__(self, expected: str, value: object) -> None:
        text = json.dumps(value)
        super().__init__(f"expected {expected}, found {text if len(text) < _SHOWN else text[:_SHOWN] + '...'}")


_SHOWN = 60


@functools.cache
def _unstructurer(cls: type[Any]) -> Callable[[Any], dict[str, Any]]:
    """Return the one function that takes a value of the class apart."""
    return _converter().get_unstructure_hook(cls)


@functools.cache
def _converter() -> "cattrs.Converter":
    """Return the converter; made on first use, because importing cattrs takes longer than all else of the room."""
    import cattrs
    from cattrs.cols import homogenous_tuple_structure_factory

    converter = cattrs.Converter(forbid_extra_keys=True)
    converter.register_structure_hook(str, _checked("a text", lambda value: type(value) is str))
    converter.register_structure_hook(int, _checked("a whole number", lambda value: type(value) is int))
    converter.register_structure_hook(bool, _checked("true or false", lambda value: type(value) is bool))
    converter.register_structure_hook(
        float, _checked("a finite number", lambda value: type(value) in (int, float) and math.isfinite(value))
    )
    converter.register_structure_hook_factory(_is_literal, _check_literal)
    objects = _in_container(dict, "an object", converter.gen_structure_attrs_fromdict)
    converter.register_structure_hook_factory(attrs.has, objects)
    lists = _in_container(list, "a list", lambda cls: homogenous_tuple_structure_factory(cls, converter))
    converter.register_structure_hook_factory(_is_tuple, lists)
    for union in (Part, AssistantPart):
        _tag_parts(converter, union)
    return converter


def _checked(expected: str, fits: Callable[[Any], bool]) -> Callable[[Any, Any], Any]:
    def structure(value: Any, _: Any) -> Any:
        if not fits(value):
            raise _WrongValueError(expected, value)
        return value

    return structure


def _is_literal(cls: Any) -> bool:
    return get_origin(cls) is Literal


def _check_literal(cls: Any) -> Callable[[Any, Any], Any]:
    values: tuple[object, ...] = get_args(cls)
    return _checked(f"one of {', '.join(map(repr, values))}", lambda value: type(value) is str and value in values)


def _is_tuple(cls: Any) -> bool:
    return get_origin(cls) is tuple


def _in_container(
    shape: type[Any], expected: str, make: Callable[[Any], Callable[[Any, Any], Any]]
) -> Callable[[Any], Callable[[Any, Any], Any]]:
    """Return a hook factory that looks at the container first: cattrs takes what iterates for a list."""

    def make_checked(cls: Any) -> Callable[[Any, Any], Any]:
        build = make(cls)

        def structure(value: Any, cls: Any) -> Any:
            if type(value) is not shape:
                raise _WrongValueError(expected, value)
            return build(value, cls)

        return structure

    return make_checked


def _tag_parts(converter: "cattrs.Converter", union: Any) -> None:
    """Let the parts of a message say what they are by their ``type``."""
    classes: dict[str, type[Any]] = {cls.type: cls for cls in get_args(union)}
    take_apart = {cls: converter.get_unstructure_hook(cls) for cls in classes.values()}
    build = {name: converter.get_structure_hook(cls) for name, cls in classes.items()}

    def unstructure(part: Any) -> dict[str, Any]:
        return {"type": part.type, **take_apart[type(part)](part)}

    def structure(fields: dict[str, Any], _: Any) -> Any:
        name = fields.get("type")
        if not isinstance(name, str) or name not in classes:
            raise _WrongValueError(f"a part of type {' or '.join(classes)}", name)
        return build[name]({key: value for key, value in fields.items() if key != "type"}, classes[name])

    converter.register_unstructure_hook(union, unstructure)
    converter.register_structure_hook(union, _in_container(dict, "an object", lambda _: structure)(union))

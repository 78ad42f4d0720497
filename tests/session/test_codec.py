import subprocess
import sys
from typing import get_args

import attrs
import pytest

from creche.errors import CorruptLogError
from creche.messages import TextPart, UserMessage
from creche.session import (
    FORMAT_LINE,
    FORMAT_VERSION,
    KINDS,
    Record,
    RetryPlanned,
    SessionHeader,
    SessionRecord,
    ToolCalled,
    TurnReason,
    UserSaid,
    decode_format,
    decode_line,
    encode_header,
    encode_record,
)

HEADER = SessionHeader("s1", path="lead/a", created=12.5, parent="s0", preset="team", cwd="/tmp", depth=1)


def record_of(kind, fact, **fields):
    return Record(3, kind=kind, data=fact, turn=1, step=2, time=1796006200.8607142, **fields)


# ---------------------------------------------------------------- what is written reads back


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_record_of_every_kind_reads_back_equal(kind, samples):
    """Rule: what is written reads back equal, every field of it."""
    record = record_of(kind, samples[kind])
    assert decode_line(encode_record("s1", record)) == SessionRecord("s1", record=record)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_samples_leave_no_field_at_its_default(kind, samples):
    fact = samples[kind]
    assert [field.name for field in attrs.fields(type(fact)) if field.default == getattr(fact, field.name)] == [], (
        "the test above would not notice a field that is not written"
    )


@pytest.mark.parametrize(
    "header", [HEADER, SessionHeader("s1", path="lead", created=0.0)], ids=["every field", "defaults"]
)
def test_a_header_reads_back_equal(header):
    assert decode_line(encode_header(header)) == header


def test_a_record_is_one_line_of_json():
    fact = UserSaid(UserMessage([TextPart("two\nlines, “quoted” \u2028")]), delivery="d1")
    assert encode_record("s1", record_of("user/message", fact, shadows=(7, 5))).decode() == (
        '{"s":"s1","seq":3,"kind":"user/message","turn":1,"step":2,"time":1796006200.8607142,"shadows":[7,5],'
        '"data":{"message":{"parts":[{"type":"text","text":"two\\nlines, “quoted” \u2028"}],"source":"user"},'
        '"delivery":"d1"}}\n'
    )


def test_a_header_is_one_line_of_json():
    assert encode_header(HEADER).decode() == (
        '{"session":{"id":"s1","path":"lead/a","created":12.5,"parent":"s0","preset":"team","cwd":"/tmp","depth":1}}\n'
    )


def test_what_a_record_shadows_is_left_out_when_it_is_nothing(samples):
    line = encode_record("s1", record_of("turn/start", samples["turn/start"]))
    assert line == b'{"s":"s1","seq":3,"kind":"turn/start","turn":1,"step":2,"time":1796006200.8607142,"data":{}}\n'


def test_a_lone_surrogate_reads_back_as_it_was():
    """Rule: a model's arguments are kept as it wrote them, and the file is UTF-8 all the same."""
    record = record_of("tool/call", ToolCalled("c1", name="look", arguments='{"at": "\\\ud800 🐢"}'))
    line = encode_record("s1", record)
    assert "\\\\\\ud800 🐢" in line.decode()
    assert decode_line(line).record == record


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [("delay", float("nan"), ValueError), ("delay", float("inf"), ValueError), ("attempt", b"1", TypeError)],
    ids=["not a number", "infinite", "bytes"],
)
def test_what_is_not_json_is_not_written(field, value, error):
    fact = RetryPlanned(1, delay=0.5)
    object.__setattr__(fact, field, value)  # which the fact itself refuses
    with pytest.raises(error):
        encode_record("s1", record_of("model/retry", fact))


def test_a_field_that_is_absent_has_its_default():
    """Rule: a version that adds a field with a default reads the lines of the versions before."""
    line = b'{"s":"s1","seq":0,"kind":"turn/end","turn":1,"step":0,"time":5,"data":{"reason":"completed"}}'
    said = decode_line(line)
    assert (said.record.data.detail, said.record.shadows, said.record.time) == ("", (), 5.0)


# ---------------------------------------------------------------- what does not read


GOOD = {
    "s": '"s1"',
    "seq": "0",
    "kind": '"turn/end"',
    "turn": "1",
    "step": "0",
    "time": "0.5",
    "data": '{"reason":"limit"}',
}


HEAD_WITH_A_BAD_TOOL = (
    '{"settings":{"provider":"p","model":"m"},"tools":[{"name":"x","description":"","parameters":"[]"}]}'
)


def line_with(**fields):
    return ("{" + ",".join(f'"{key}":{text}' for key, text in (GOOD | fields).items() if text) + "}").encode()


def message_line(message):
    return line_with(kind='"user/message"', data=f'{{"message":{message}}}')


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"", "not JSON: Expecting value at character 1"),
        (b'{"s"', "not JSON: Expecting ':' delimiter at character 5"),
        (b'{"s":"a\xff"}', "not UTF-8: invalid start byte at byte 8"),
        (b'{"s":"\xe2\x80', "not UTF-8: unexpected end of data at byte 7"),
        (b"[1]", "expected an object, found [1]"),
        (b'"text"', 'expected an object, found "text"'),
        (line_with(time="NaN"), "not JSON: NaN is not a JSON number"),
        (line_with(time="-Infinity"), "not JSON: -Infinity is not a JSON number"),
        (line_with(time="1e999"), "time: expected a finite number, found Infinity"),
        (line_with(seq=""), "seq: is missing"),
        (line_with(seq="true"), "seq: expected a whole number, found true"),
        (line_with(seq="0.0"), "seq: expected a whole number, found 0.0"),
        (line_with(seq='"0"'), 'seq: expected a whole number, found "0"'),
        (
            line_with(s="null", time="true"),
            "s: expected a text, found null; time: expected a finite number, found true",
        ),
        (line_with(shadows="3"), "shadows: expected a list, found 3"),
        (line_with(shadows="[3,null]"), "shadows[1]: expected a whole number, found null"),
        (line_with(ignorable="1"), "ignorable: expected true or false, found 1"),
        (line_with(kind="4"), "kind: expected a text, found 4"),
        (line_with(more="1", other="2"), "the line: unknown fields more, other"),
        (line_with(data='"limit"'), 'data: expected an object, found "limit"'),
        (line_with(data="{}"), "data.reason: is missing"),
        (line_with(data='{"reason":"limit","x":1}'), "data: unknown fields x"),
        (
            line_with(data='{"reason":"tired"}'),
            f'data.reason: expected one of {", ".join(map(repr, get_args(TurnReason)))}, found "tired"',
        ),
        (line_with(kind='"inbox/claimed"', data='{"ids":"d1"}'), 'data.ids: expected a list, found "d1"'),
        (message_line('"hello"'), 'data.message: expected an object, found "hello"'),
        (message_line('{"parts":{}}'), "data.message.parts: expected a list, found {}"),
        (message_line('{"parts":["x"]}'), 'data.message.parts[0]: expected an object, found "x"'),
        (
            message_line('{"parts":[{"text":"x"}]}'),
            "data.message.parts[0]: expected a part of type text or image, found null",
        ),
        (
            message_line('{"parts":[{"type":["text"]}]}'),
            'data.message.parts[0]: expected a part of type text or image, found ["text"]',
        ),
        (
            message_line('{"parts":[{"type":"tool-call","id":"c1"}]}'),
            'data.message.parts[0]: expected a part of type text or image, found "tool-call"',
        ),
        (message_line('{"parts":[{"type":"text"}]}'), "data.message.parts[0].text: is missing"),
        (message_line('{"parts":[{"type":"text","text":"x","a":1}]}'), "data.message.parts[0]: unknown fields a"),
        (
            message_line('{"parts":"' + "x" * 99 + '"}'),
            f'data.message.parts: expected a list, found "{"x" * 59}...',
        ),
        (
            line_with(kind='"request/header"', data=f'{{"reason":"initial","head":{HEAD_WITH_A_BAD_TOOL}}}'),
            "data.head.tools[0]: '[]' is not the JSON Schema of an object; give a dict, or its JSON text",
        ),
        (b'{"session":{"id":"s1","path":"lead"}}', "session.created: is missing"),
        (b'{"session":{"id":"s1","path":"lead","created":0},"s":1}', "a session's line has one key, found session, s"),
        (b'{"session":null}', "session: expected an object, found null"),
    ],
)
def test_a_line_that_says_nothing_known_says_why(line, problem):
    """Rule: what is read is checked, never converted; the message has what was found and what was expected."""
    with pytest.raises(CorruptLogError) as caught:
        decode_line(line)
    assert str(caught.value) == problem


@pytest.mark.parametrize("line", [b"[" * 100_000, b"1" * 5_000], ids=["too deep", "too long a number"])
def test_a_line_that_python_cannot_take_is_not_json(line):
    with pytest.raises(CorruptLogError, match=r"^not JSON: "):
        decode_line(line)


@pytest.mark.parametrize("ignorable", ["", "false", "1", '"true"'])
def test_a_kind_that_nobody_knows_is_refused_by_name(ignorable):
    """Rule: a record of an unknown kind cannot be read past, unless its line says exactly that it can."""
    with pytest.raises(CorruptLogError) as caught:
        decode_line(line_with(kind='"plan/mode"', ignorable=ignorable))
    assert str(caught.value) == (
        "a record of the kind 'plan/mode' is not known to this version of creche and not marked ignorable; "
        f"the known kinds are {', '.join(sorted(KINDS))}"
    )


def test_a_kind_that_nobody_knows_is_skipped_if_its_line_says_so():
    """Rule: such a line is skipped whole, whatever else is in it."""
    assert decode_line(b'{"kind":"plan/mode","ignorable":true,"anything":[]}') is None


def test_a_known_kind_is_read_even_if_it_might_be_ignored():
    assert decode_line(line_with(ignorable="true")).record.kind == "turn/end"


# ---------------------------------------------------------------- the first line


def test_the_first_line_is_the_version():
    assert FORMAT_LINE == b'{"creche":1}\n'
    decode_format(FORMAT_LINE)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"creche":2}', "format version 2 cannot be read; this version of creche reads 1"),
        (b'{"creche":true}', "format version True cannot be read; this version of creche reads 1"),
        (b'{"creche":"1"}', "format version '1' cannot be read; this version of creche reads 1"),
        (b'{"creche":1,"x":1}', 'expected the format version, such as {"creche":1}'),
        (line_with(), 'expected the format version, such as {"creche":1}'),
        (b"#!/bin/sh", "not JSON: Expecting value at character 1"),
    ],
    ids=["newer", "true", "text", "more than that", "a record", "something else"],
)
def test_another_first_line_is_refused(line, problem):
    with pytest.raises(CorruptLogError) as caught:
        decode_format(line)
    assert str(caught.value) == problem
    assert FORMAT_VERSION == 1


# ---------------------------------------------------------------- cost


def test_cattrs_is_imported_on_first_use():
    """Rule: importing the room does not import what only files need."""
    program = (
        "import sys, creche.session as s; before = 'cattrs' in sys.modules; "
        "s.encode_header(s.SessionHeader('s', path='p', created=0.0)); print(before, 'cattrs' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False True\n"

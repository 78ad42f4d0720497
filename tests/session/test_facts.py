"""What a fact refuses when it is made, so that nothing which the log takes can fail to be written or read."""

import math

import attrs
import pytest

from creche.messages import AssistantMessage, DeveloperMessage, ImagePart, TextPart, ToolMessage
from creche.models import ModelOptions, StreamRun, Usage
from creche.session import (
    KIND_OF,
    KINDS,
    AssistantSaid,
    AttemptFailed,
    HeaderWritten,
    MessageAccepted,
    MessagesClaimed,
    MessagesDropped,
    Record,
    RouteNoted,
    SessionHeader,
    SessionRecord,
    SubagentEnded,
    TurnEnded,
    decode_line,
    encode_header,
    encode_record,
)

# ---------------------------------------------------------------- every field of everything that a record holds


def held(value):
    """Yield a value and all the values of our classes in it."""
    if attrs.has(type(value)):
        yield value
        for field in attrs.fields(type(value)):
            yield from held(getattr(value, field.name))
    elif isinstance(value, tuple):
        for each in value:
            yield from held(each)


HEADER = SessionHeader("s", path="p", created=0.0, parent="q", preset="r", cwd="/", depth=1)


class OwnText(str):
    __slots__ = ()


WRONG = {
    "None": None,
    "bool": True,
    "int": 5,
    "long int": 10**5000,
    "nan": math.nan,
    "infinity": math.inf,
    "float": 1.5,
    "bytes": b"x",
    "odd text": "\0odd",
    "text of its own class": OwnText("own"),
    "object": object(),
    "texts": ("a", "b"),
    "bytes in a tuple": (b"x",),
    "mixed": ("a", 5),
    "objects": (object(),),
    "list": ["a"],
    "dict": {"a": object()},
    "set": {"a"},
    "class": TextPart,
    "fact": TurnEnded("completed"),
    "parts": (TextPart("a"), AttemptFailed("a", code="b")),
}


def rebuilt(value, changed, into):
    """Return the value with what is held in it exchanged."""
    if value is changed:
        return into
    if isinstance(value, tuple):
        return tuple([rebuilt(each, changed, into) for each in value])
    if attrs.has(type(value)):
        fields = attrs.fields(type(value))
        old = {field.alias: getattr(value, field.name) for field in fields}
        new = {name: rebuilt(each, changed, into) for name, each in old.items()}
        if any(new[name] is not old[name] and new[name] != old[name] for name in old):
            return type(value)(**new)
    return value


def check_that_it_reads_back(top):
    if isinstance(top, SessionHeader):
        assert decode_line(encode_header(top)) == top
    else:
        record = Record(0, kind=KIND_OF[type(top)].name, data=top)
        assert decode_line(encode_record("s", record)) == SessionRecord("s", record=record)


def fields_in(top):
    for value in held(top):
        for field in attrs.fields(type(value)):
            yield value, field.alias


@pytest.mark.parametrize("kind", [*KINDS, "the header"])
def test_what_a_field_takes_can_be_written_and_read(kind, samples):
    """Law: a value is refused when it is made, or every record that holds it reads back equal."""
    top = {**samples, "the header": HEADER}[kind]
    for value, name in fields_in(top):
        for wrong in WRONG.values():
            try:
                made = attrs.evolve(value, **{name: wrong})
            except (TypeError, ValueError, OverflowError):
                continue
            check_that_it_reads_back(rebuilt(top, value, made))


@pytest.mark.parametrize("wrong", [object(), b"x", {1: 1}], ids=["object", "bytes", "dict"])
@pytest.mark.parametrize("kind", [*KINDS, "the header"])
def test_no_field_takes_what_is_of_no_type_of_ours(kind, wrong, samples):
    for value, name in fields_in({**samples, "the header": HEADER}[kind]):
        if name in ("parameters", "output_schema") and isinstance(wrong, dict):
            continue  # a schema is given as a mapping
        if name == "data" and isinstance(wrong, bytes):
            continue  # a file is given as its bytes
        with pytest.raises((TypeError, ValueError)):
            attrs.evolve(value, **{name: wrong})


# ---------------------------------------------------------------- what it says


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: MessagesDropped(("d",), cause=5),
            TypeError,
            "MessagesDropped.cause is a text, not 5",
        ),
        (
            lambda: MessagesClaimed(["d"]),
            TypeError,
            "MessagesClaimed.ids is a tuple of texts, not ['d']",
        ),
        (
            lambda: MessagesClaimed(("d", 5)),
            TypeError,
            "MessagesClaimed.ids is a tuple of texts, not ('d', 5)",
        ),
        (
            lambda: RouteNoted("p", model="m", context_window=1.5),
            TypeError,
            "RouteNoted.context_window is a whole number or None, not 1.5",
        ),
        (
            lambda: SubagentEnded("s", outcome="lost"),
            ValueError,
            (
                "SubagentEnded.outcome is one of 'done', 'truncated', 'limit', 'refused', 'cancelled', 'failed', "
                "'unknown', not 'lost'"
            ),
        ),
        (
            lambda: SubagentEnded("s", outcome="done", usage=None),
            TypeError,
            "SubagentEnded.usage is Usage, not None",
        ),
        (
            lambda: MessageAccepted("d", lane="next-turn", message="hi"),
            TypeError,
            "MessageAccepted.message is UserMessage, not 'hi'",
        ),
        (
            lambda: HeaderWritten(None, reason="initial"),
            TypeError,
            "HeaderWritten.head is RequestHead, not None",
        ),
        (
            lambda: AssistantSaid(AssistantMessage(()), stream=(1,)),
            TypeError,
            "AssistantSaid.stream is a tuple of StreamRun, not (1,)",
        ),
        (
            lambda: SessionHeader("s", path="p", created=math.nan),
            ValueError,
            "SessionHeader.created is a finite number, not nan",
        ),
    ],
)
def test_a_fact_says_which_field_is_of_a_wrong_type(make, error, message):
    with pytest.raises(error) as caught:
        make()
    assert str(caught.value) == message


def test_what_a_log_cost_stops_at_the_largest_number(log_at):
    """Rule: a record is not lost because a provider says nonsense of what it cost."""
    log = log_at("step")
    for _ in range(2):
        log.append(AttemptFailed("lost", code="transport", usage=Usage(2**63 - 1)))
    assert log.usage == Usage(2**63 - 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ToolMessage("c", name="t", parts="x", is_error="yes"),
        lambda: DeveloperMessage("look"),
        lambda: ImagePart(5, media_type="image/png"),
        lambda: AssistantMessage("hi"),
        lambda: StreamRun("text", pieces="abc"),
        lambda: ModelOptions(b"high"),
    ],
)
def test_what_looks_like_a_field_and_is_none_is_refused(make):
    with pytest.raises(TypeError):
        make()

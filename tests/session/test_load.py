import itertools
import os
from pathlib import Path

import attrs
import pytest

from creche.errors import CorruptLogError, StoreError
from creche.session import (
    FORMAT_LINE,
    KINDS,
    HeaderWritten,
    JsonlStore,
    MessagesClaimed,
    Record,
    SessionForked,
    SessionHeader,
    StepEnded,
    StepStarted,
    TurnEnded,
    TurnStarted,
    encode_header,
    encode_record,
    load_sessions,
    rebuild_request,
)

ROOT = SessionHeader("s1", path="lead", created=0.0)
CHILD = SessionHeader("s2", path="lead/a", created=0.0, parent="s1")


@pytest.fixture
def turn(say):
    def facts(text):
        return [
            *[TurnStarted(), StepStarted(), say.system("Be kind."), say.user(text), say.answer("c1"), say.call("c1")],
            *[say.result("c1", "a long text"), StepEnded(), TurnEnded("completed")],
        ]

    return facts


@pytest.fixture
def log(say, turn):
    """A log with one completed turn, of nine records."""
    return say.extend(say.log(), *turn("hello 🐢"))


@pytest.fixture
def lines(log, journal_of):
    return journal_of(log)


@pytest.fixture
def write(tmp_path):
    """Write lines to a file and return its path."""

    def to_file(*lines):
        path = tmp_path / "journal.jsonl"
        path.write_bytes(b"".join(lines))
        return path

    return to_file


@pytest.fixture
def journal_of():
    """Return the lines that a journal has of some logs, one log after the other, forks with their own records."""

    def lines(*logs):
        return [
            FORMAT_LINE,
            *itertools.chain.from_iterable(
                [
                    encode_header(log.header),
                    *[encode_record(log.id, record) for record in list(log.records())[log.boundary :]],
                ]
                for log in logs
            ),
        ]

    return lines


@pytest.fixture
def refuses(write):
    """Load lines that must be refused, and return the line number and the rest of the message."""

    def load(*lines):
        path = write(*lines)
        with pytest.raises(CorruptLogError) as caught:
            load_sessions(path)
        where, _, problem = str(caught.value).removeprefix(f"{path}, line ").partition(": ")
        return int(where), problem

    return load


# ---------------------------------------------------------------- what was written


async def test_a_journal_loads_as_it_was_appended(tmp_path, say, turn, state):
    """Rule: what comes out is what was appended, in every session of the tree, with what is derived from it."""
    async with JsonlStore(tmp_path).open_journal(ROOT) as journal:
        root = say.extend(say.log(write=journal.write), *turn("hello"))
        early = root.fork(CHILD)
        say.extend(root, TurnStarted(), StepStarted())
        root.append(say.user("summary"), replace=(3, 6))
        root.append(say.system("Be brief."), replace=(2, 2))
        say.extend(root, say.answer(text="yes"), StepEnded(), TurnEnded("completed"))
        late = root.fork(attrs.evolve(CHILD, id="s3", path="lead/b"))
        say.extend(root, TurnStarted(), StepStarted(), say.answer("c7"), say.call("c7"))
        for child in (early, late):
            journal.begin(child.header)
            child.attach(publish=None, write=journal.write)
            say.extend(child, *turn(f"from {child.id}"))
        grandchild = late.fork(attrs.evolve(CHILD, id="s4", path="lead/b/c", parent="s3"))
        journal.begin(grandchild.header)
        grandchild.attach(publish=None, write=journal.write)
        journal.begin(attrs.evolve(CHILD, id="s5", path="lead/e"))
        await journal.checkpoint()
    loaded = load_sessions(journal.location)
    assert list(loaded) == ["s1", "s2", "s3", "s4", "s5"]
    for log in (root, early, late, grandchild):
        assert loaded[log.id].header == log.header
        assert state(loaded[log.id]) == state(log)
    assert (len(loaded["s5"]), loaded["s1"].unanswered) == (0, ("c7",))


def test_a_loaded_request_is_rebuilt_byte_for_byte(say, write, journal_of):
    log = say.extend(say.log(), TurnStarted(), StepStarted(), say.system("Be kind."), say.user("hello 🐢"))
    say.extend(log, HeaderWritten(say.head("look"), reason="initial"), say.answer(text="hi"))
    loaded = load_sessions(write(*journal_of(log)))["s1"]
    assert rebuild_request(loaded, 1).canonical_bytes() == rebuild_request(log, 1).canonical_bytes()


def test_a_loaded_fork_shares_with_its_parent(log, write, journal_of):
    """Rule: a shared prefix is shared in memory too, at any number of forks."""
    loaded = load_sessions(write(*journal_of(log, log.fork(CHILD))))
    assert loaded["s2"].boundary == 9
    assert loaded["s2"].records().first(9)._shelf is loaded["s1"].records()._shelf


def test_a_loaded_session_goes_on_where_it_ended(lines, write):
    """Rule: what was loaded is not written again."""
    loaded = load_sessions(write(*lines))["s1"]
    written = []
    loaded.attach(publish=None, write=lambda *line: written.append(line))
    record = loaded.append(TurnStarted())
    assert (record.seq, record.turn, written) == (9, 2, [("s1", record)])


def test_a_record_keeps_the_time_at_which_it_was_appended(say, write):
    path = write(
        FORMAT_LINE,
        encode_header(ROOT),
        encode_record("s1", Record(0, kind="turn/start", data=TurnStarted(), turn=1, time=7.25)),
    )
    assert [record.time for record in load_sessions(path)["s1"].records()] == [7.25]


def test_lines_that_may_be_ignored_are_skipped(lines, write):
    """Rule: such a line has no sequence number of its own."""
    ignorable = b'{"s":"s1","kind":"plan/mode","ignorable":true,"data":{}}\n'
    path = write(lines[0], *itertools.chain.from_iterable((line, ignorable) for line in lines[1:]))
    assert len(load_sessions(path)["s1"]) == 9


def test_a_journal_of_no_session_is_empty(write):
    assert load_sessions(write(FORMAT_LINE)) == {}


def test_a_path_may_be_text(write):
    assert load_sessions(os.fspath(write(FORMAT_LINE))) == {}


# ---------------------------------------------------------------- what was torn


def test_a_journal_cut_off_at_any_byte_is_never_read_wrong(log, write, journal_of):
    """Rule: a torn tail is an error that says so; between two lines nothing is torn, and what is before is there."""
    child = log.fork(CHILD)
    lines = journal_of(log, child)
    whole = b"".join(lines)
    ends = list(itertools.accumulate(map(len, lines)))
    path = write()
    for length in range(1, len(whole) + 1):
        path.write_bytes(whole[:length])
        number = sum(end <= length for end in ends)
        if length in ends:
            found = load_sessions(path)
            assert [list(each.records()) for each in found.values()] == expected_of(log, child, number)
        else:
            with pytest.raises(CorruptLogError) as caught:
                load_sessions(path)
            size = length - (ends[number - 1] if number else 0)
            assert str(caught.value) == (
                f"{path}, line {number + 1}: the line was cut off after {size} bytes; a line ends with a newline"
            )


def expected_of(log, child, number):
    """Return the records of each session after some lines: the format, s1 and 9 records, s2 and its fork."""
    records = list(log.records())
    whole = {1: [], 12: [records, []], 13: [records, list(child.records())]}
    return whole.get(number, [records[: number - 2]])


# ---------------------------------------------------------------- what does not read


def test_an_empty_file_is_no_journal(refuses):
    assert refuses() == (1, "expected the format version, found the end of the file")


def test_a_file_that_is_not_there_is_named(tmp_path):
    path = tmp_path / "nothing.jsonl"
    with pytest.raises(StoreError) as caught:
        load_sessions(path)
    assert str(caught.value) == f"journal {path} could not be read: [Errno 2] No such file or directory: '{path}'"


def test_another_version_is_refused(refuses):
    assert refuses(b'{"creche":2}\n') == (1, "format version 2 cannot be read; this version of creche reads 1")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"\n", "not JSON: Expecting value at character 1"),
        (b"{]\n", "not JSON: Expecting property name enclosed in double quotes at character 2"),
        (b'{"\xff\n', "not UTF-8: invalid start byte at byte 3"),
        (
            b'{"s":"s1","seq":0}\n',
            "kind: is missing; turn: is missing; step: is missing; time: is missing; data: is missing",
        ),
        (b'{"session":{"id":"s1","path":"lead","created":0}}\n', "session 's1' has begun already"),
    ],
    ids=["empty", "not JSON", "not UTF-8", "half a record", "a session twice"],
)
def test_a_line_that_does_not_read_is_named(line, problem, lines, refuses):
    """Rule: the message has the path, the line, what was found and what was expected."""
    assert refuses(*lines[:4], line, *lines[4:]) == (5, problem)


def test_a_kind_that_nobody_knows_is_refused_by_name(refuses):
    number, problem = refuses(FORMAT_LINE, encode_header(ROOT), b'{"s":"s1","seq":0,"kind":"plan/mode"}\n')
    assert (number, problem.partition(";")[0]) == (
        3,
        "a record of the kind 'plan/mode' is not known to this version of creche and not marked ignorable",
    )


@pytest.mark.parametrize("begun", [[], [ROOT, CHILD]], ids=["none", "two"])
def test_a_record_of_a_session_that_has_not_begun_is_refused(begun, refuses):
    line = encode_record("s9", Record(0, kind="turn/start", data=TurnStarted(), turn=1))
    known = ", ".join(header.id for header in begun) or "none"
    assert refuses(FORMAT_LINE, *map(encode_header, begun), line) == (
        len(begun) + 2,
        f"no line before begins session 's9'; begun are {known}",
    )


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"seq": 2}, "user/message is not the record that can stand here: seq is 2, expected 3"),
        ({"turn": 2}, "user/message is not the record that can stand here: turn is 2, expected 1"),
        ({"step": 0}, "user/message is not the record that can stand here: step is 0, expected 1"),
        ({"shadows": (2,)}, "the leading system prompt can be replaced only by a system prompt, alone"),
        ({"shadows": (1,)}, "record 1 is not on the surface, so nothing can take its place"),
        (
            {"kind": "inbox/claimed", "data": MessagesClaimed(("d1",))},
            "inbox/claimed cannot follow system/message in session 'lead' (phase 'step'); legal here: "
            + ", ".join(sorted(name for name, kind in KINDS.items() if "step" in kind.where)),
        ),
    ],
    ids=["number", "turn", "step", "a protected place", "no such place", "order"],
)
def test_a_record_that_append_would_not_have_made_is_refused(changes, problem, log, lines, refuses):
    """Rule: one set of rules; a stored record stands where it could have been appended, with the same numbers."""
    wrong = encode_record("s1", attrs.evolve(log.records()[3], **changes))
    assert refuses(*lines[:5], wrong, *lines[6:]) == (6, problem)


def test_a_replacement_cites_exactly_what_it_shadows(log, say, journal_of, refuses):
    log.append(TurnStarted())
    record = log.append(say.user("summary"), replace=(3, 6))
    lines = journal_of(log)
    assert refuses(*lines[:-1], encode_record("s1", attrs.evolve(record, shadows=(3, 6)))) == (
        13,
        "user/message is not the record that can stand here: shadows is (3, 6), expected (3, 4, 6)",
    )


@pytest.mark.parametrize("lost", range(2, 11))
def test_a_line_that_is_lost_is_missed(lost, log, journal_of, refuses):
    log.append(TurnStarted())
    lines = journal_of(log)
    number, _ = refuses(*lines[:lost], *lines[lost + 1 :])
    assert number == lost + 1


def test_two_lines_that_changed_places_are_noticed(lines, refuses):
    for place in range(2, len(lines) - 1):
        swapped = [*lines[:place], lines[place + 1], lines[place], *lines[place + 2 :]]
        assert refuses(*swapped)[0] == place + 1


# ---------------------------------------------------------------- forks that do not fit


def fork_line(parent, boundary, seq=None):
    return encode_record(
        "s2",
        Record(boundary if seq is None else seq, kind="session/fork", data=SessionForked(parent, boundary=boundary)),
    )


def test_a_fork_can_be_older_than_its_parents_last_turn(log, two_turns, write):
    """Rule: a fork is found by its boundary, however far its parent had gone when it was written."""
    path = write(*two_turns, encode_header(CHILD), fork_line("s1", 9))
    assert list(load_sessions(path)["s2"].records())[:9] == list(log.records())[:9]


@pytest.fixture
def two_turns(say, log, turn, journal_of):
    return journal_of(say.extend(log, *turn("two")))


@pytest.mark.parametrize(
    ("parent", "boundary", "where"),
    [
        ("s1", 8, "after 9, 18"),
        ("s1", 10, "after 9, 18"),
        ("s9", 9, "nowhere: that session has no completed turn in it"),
        ("s2", 0, "nowhere: that session has no completed turn in it"),
    ],
    ids=["in a turn", "between turns", "of a session elsewhere", "of itself"],
)
def test_a_fork_begins_where_a_turn_of_its_parent_ended(parent, boundary, where, two_turns, refuses):
    assert refuses(*two_turns, encode_header(CHILD), fork_line(parent, boundary)) == (
        22,
        f"the session was forked after {boundary} records of session {parent!r}; in this file it can be {where}",
    )


def test_a_fork_of_a_fork_that_has_done_nothing_is_found(log, write, journal_of):
    """Rule: a fork can itself be forked where it begins."""
    child = log.fork(CHILD)
    twin = child.fork(attrs.evolve(CHILD, id="s3", path="lead/a/b", parent="s2"))
    loaded = load_sessions(write(*journal_of(log, child, twin)))
    assert list(loaded["s3"].records()) == list(twin.records())


def test_a_fork_is_numbered_after_what_it_shares(lines, refuses):
    assert refuses(*lines, encode_header(CHILD), fork_line("s1", 9, seq=0)) == (
        13,
        "session/fork is not the record that can stand here: seq is 0, expected 9",
    )


def test_a_session_is_not_forked_later_on(log, say, turn, journal_of, refuses):
    child = say.extend(say.log("s2", "lead/a"), *turn("other"))
    assert refuses(*journal_of(log, child), fork_line("s1", 9)) == (
        22,
        "session/fork can only be the first record of a fork; `SessionLog.fork` appends it",
    )


def test_a_file_of_another_kind_is_refused():
    with pytest.raises(CorruptLogError, match="line 1: not JSON"):
        load_sessions(Path(__file__))

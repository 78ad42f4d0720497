"""The parts of a chat that need no terminal: what lines mean, how an answer is laid out, what is said about turns."""

import os
import stat

import pytest
from hypothesis import given, strategies as st

from creche.cli import _history
from creche.cli._ending import WrongUsage
from creche.cli._history import open_history
from creche.cli._inspect import agents_text, status_text
from creche.cli._tail import ANSWER, NOTE, Tail, wrap_words
from creche.cli._team import Team
from creche.cli._told import Sentences
from creche.cli._typed import Command, Message, read_line
from creche.messages import AssistantMessage, TextPart
from creche.models import Usage
from creche.session import (
    AssistantSaid,
    AttemptFailed,
    Record,
    RecordAppended,
    RetryPlanned,
    RouteNoted,
    TurnEnded,
    TurnStarted,
)


@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        ("", None),
        (" \n\t", None),
        ("Hello ", Message("Hello")),
        ("  two\n lines\n", Message("  two\n lines")),
        ("/help", Command("help")),
        ("/quit ", Command("quit")),
        ("//help", Message("/help")),
        ("//", Message("/")),
        (" /help", Message(" /help")),
        ("caf\udce9", Message("caf\ufffd")),
    ],
)
def test_a_line_is_a_message_or_a_command(line, meaning):
    assert read_line(line) == meaning


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("/", "'/'"),
        ("/quit now", "'/quit now'"),
        ("/help\nmore", "'/help...'"),
        ("/" + "x" * 100, "'/" + "x" * 39 + "...'"),
    ],
)
def test_what_is_no_command_is_named_with_those_that_are(line, shown):
    with pytest.raises(WrongUsage) as caught:
        read_line(line)
    assert str(caught.value) == (
        f"{shown} is no command; there are /help, /agents, /prompt, /cancel, /quit; to send it as it is, begin with //"
    )


# ---------------------------------------------------------------- the answer as it comes


def test_a_paragraph_goes_up_when_it_is_complete_and_lines_go_up_at_once():
    tail = Tail()
    assert tail.take((ANSWER, "One")) is None
    assert tail.take((NOTE, "note")) == (NOTE, "note\n")
    assert tail.take((ANSWER, " two\nthree\n\nfo")) == (ANSWER, "One two\nthree\n\n")
    assert tail.rows(10, 3) == ["fo"]
    assert tail.take_rest() == "fo\n"
    assert (bool(tail), tail.take_rest(), tail.rows(10, 3)) == (False, "", [])


@given(st.lists(st.text("ab麵\n", max_size=9)), st.integers(2, 7))
def test_nothing_of_an_answer_is_lost_and_no_row_is_too_wide(pieces, columns):
    tail = Tail()
    written = ""
    for piece in pieces:
        written += (tail.take((ANSWER, piece)) or ("", ""))[1]
        rows = tail.rows(columns, 3)
        assert len(rows) <= 3
        assert all(len(row) + row.count("麵") <= columns for row in rows)
    assert (written + tail.take_rest()).removesuffix("\n") == "".join(pieces).removesuffix("\n")


def test_notes_break_between_words_and_keep_their_indentation():
    assert wrap_words("  one two three\n\nfour " + "x" * 20, 10) == "  one two\n    three\n\nfour\n  " + "x" * 20


# ---------------------------------------------------------------- history


def test_what_cannot_be_kept_or_read_any_more_is_said_once(tmp_path):
    file, told = tmp_path / "state" / "chat-history", []
    history = open_history(file, told.append)
    history.append_string("one\ntwo")
    assert list(open_history(file, told.append).load_history_strings()) == ["one\ntwo"]
    assert told == []
    file.unlink()
    file.mkdir()
    assert list(history.load_history_strings()) == []
    history.append_string("three")
    assert history.get_strings() == ["one\ntwo", "three"]
    assert told == [f"what is typed is not kept in {str(file)!r}: Is a directory"]


def test_a_history_that_others_could_read_is_its_owners_alone_from_then_on(tmp_path):
    file = tmp_path / "chat-history"
    file.touch()
    file.chmod(0o644)
    open_history(file, pytest.fail)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_line_that_the_editor_would_take_seconds_over_is_not_kept(tmp_path, monkeypatch):
    file = tmp_path / "chat-history"
    before = open_history(file, pytest.fail)
    before.append_string("xxxx")
    monkeypatch.setattr(_history, "LONGEST", 3)
    history = open_history(file, pytest.fail)
    for line in ("one", "three"):
        history.append_string(line)
    assert (history.get_strings(), list(history.load_history_strings())) == (["one"], ["one"])


def test_of_a_long_history_the_newest_lines_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(_history, "MOST_LINES", 2)
    history = open_history(tmp_path / "chat-history", pytest.fail)
    for line in ("one", "two", "three"):
        history.append_string(line)
    assert list(open_history(tmp_path / "chat-history", pytest.fail).load_history_strings()) == ["three", "two"]


def test_what_is_no_file_is_neither_read_nor_written(tmp_path):
    """A pipe, and what never ends."""
    told = []
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    for name in ("pipe", "endless"):
        history = open_history(tmp_path / name, told.append)
        assert list(history.load_history_strings()) == []
    what = [str(tmp_path / name) for name in ("pipe", "endless")]
    assert told == [f"what is typed is not kept in {each!r}: it is no regular file" for each in what]


# ---------------------------------------------------------------- what is said about turns


def heard(fact, path="lead"):
    return RecordAppended(path, record=Record(0, kind="", data=fact))


def test_one_sentence_a_failure():
    said = Sentences("lead")
    take = lambda fact, path="lead": said.take(heard(fact, path))  # noqa: E731 - short for this test
    assert take(AttemptFailed("slow\ndown", code="rate-limit")) is None
    assert take(RetryPlanned(1, delay=2.0)) == "lead got no answer and asks again in 2.0 s: slow down"
    assert take(AttemptFailed("x" * 1000, code="rate-limit"), "lead/a") is None
    assert take(RetryPlanned(1, delay=0.0), "lead/a") == f"lead/a got no answer and asks again: {'x' * 360}..."
    assert take(TurnEnded("error", detail="wrong"), "lead/a") is None
    assert take(TurnEnded("limit", detail="too many")) == "no answer: too many"
    assert take(TurnEnded("completed")) is None
    assert take(TurnEnded("cancelled", detail="user")) == "the turn was cancelled"


def test_another_model_is_told():
    said = Sentences("lead")
    assert said.take(heard(RouteNoted("a", model="x"))) is None
    assert said.take(heard(RouteNoted("a", model="x"), "lead/sub")) is None
    assert said.take(heard(RouteNoted("b", model="y"))) == "lead asks b:y"


def test_the_status_is_what_is_done_or_what_it_cost(monkeypatch):
    team = Team()
    assert status_text(team, 0, 0.0) == "idle; /help"
    assert agents_text(team, 0.0) == "no agent has done anything yet"
    team.hear(heard(TurnStarted()), 1.0)
    assert status_text(team, 2, 4.0) == "2 lines not read yet | lead prepares its request 3 s"
    usage = Usage(1, input_tokens=1000, output_tokens=234, cached_tokens=900)
    team.hear(heard(AssistantSaid(AssistantMessage([TextPart("Hi.")]), usage=usage)), 5.0)
    team.hear(heard(TurnEnded("error", detail="long " * 20)), 6.0)
    assert status_text(team, 0, 9.0) == "idle; 1,234 tokens, 900 cached; /help"
    monkeypatch.setenv("COLUMNS", "80")
    head, lead, total = agents_text(team, 9.0).splitlines()
    assert head.split() == ["agent", "does", "in", "cached", "out", "time"]
    assert (lead.split()[:3], lead.split()[-4:]) == (["lead", "failed:", "long"], ["1.0k", "900", "234", "5.0s"])
    assert total.startswith("1 agent, 1 request ")

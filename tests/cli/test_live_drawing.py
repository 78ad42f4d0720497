"""The tree as lines: pure, so every size and every text can be tried."""

import pytest
from hypothesis import given, strategies as st
from inline_snapshot import snapshot
from rich.cells import cell_len

from creche.cli._live._below import Below
from creche.cli._live._cells import cut, fill, wrap
from creche.cli._live._style import ASCII, UNICODE, plain, styled
from creche.cli._live._table import amount, duration
from creche.cli._live._tree import draw
from creche.cli._live._unfinished import Unfinished
from creche.cli._rows import AgentRow, Doing, Totals
from creche.cli._text import one_line, printable
from creche.models import Usage

TEXTS = st.text(
    st.one_of(st.characters(codec="utf-8"), st.sampled_from("abc -日本語🍵👨👩👧\u200d\ufe0f\u0301\t\n\x1b\x9b\u202e")),
    max_size=60,
)
KINDS = ("prepares", "asks", "calls", "waits", "done", "failed", "cancelled")


def row(path, kind="asks", text="asks openai:gpt-5", *, since=0.0, ended=None, tokens=0):
    return AgentRow(
        path,
        parent=path.rpartition("/")[0] or None,
        depth=path.count("/"),
        doing=Doing(kind, text=text, since=since),
        usage=Usage(1, input_tokens=tokens, cached_tokens=tokens // 2, output_tokens=tokens // 10),
        began=0.0,
        ended=ended,
    )


def totals(rows):
    usage = sum([row.usage for row in rows], Usage())
    return Totals(len(rows), at_work=len(rows), usage=usage, began=0.0)


def lines(rows, now=2.0, *, width=79, height=20, glyphs=UNICODE):
    return [plain(line) for line in draw(rows, totals(rows), now, width=width, height=height, glyphs=glyphs)]


DEEP = [
    row("lead", "waits", "waits for 2 subagents", tokens=1000),
    row("lead/a-1", "waits", "waits for 1 subagent", tokens=20_000),
    row("lead/a-1/b-1", "calls", "calls grep pattern='x'", tokens=345_000),
    row("lead/a-1/b-1/c-1", "done", "done", ended=1.0),
    row("lead/a-2", "failed", "failed: the model failed", ended=75.0),
    row("other", "asks", "asks openai:gpt-5"),
]


def test_branches_show_who_started_whom():
    assert lines(DEEP) == snapshot(
        [
            "agent         does                                   in  cached     out    time",
            "lead          waits for 2 subagents                1.0k     500     100    2.0s",
            "├─ a-1        waits for 1 subagent                20.0k   10.0k    2.0k    2.0s",
            "│  └─ b-1     calls grep pattern='x'               345k    172k   34.5k    2.0s",
            "│     └─ c-1  done                                    0       0       0    1.0s",
            "└─ a-2        failed: the model failed                0       0       0   1m15s",
            "other         asks openai:gpt-5                       0       0       0    2.0s",
            "6 agents, 6 requests                               366k    183k   36.6k    2.0s",
        ]
    )
    assert lines(DEEP, width=24, height=7, glyphs=ASCII) == snapshot(
        [
            "lead          waits f...",
            "|- a-1        waits f...",
            "|  `- b-1     calls g...",
            "   `- c-1     done",
            "`- a-2        failed:...",
            "other         asks op...",
            "6 agents, 6 requests",
        ]
    )


def test_how_long_it_takes_is_told_when_it_is_long_and_there_is_room():
    rows = [row("lead", "calls", "calls bash command='make everything, and then some'", since=5.0)]
    assert [lines(rows, 14.9)[1], lines(rows, 17.0)[1], lines(rows, 130.0)[1]] == snapshot(
        [
            "lead   calls bash command='make everything, and then some'                  15s",
            "lead   calls bash command='make everything, and then some' for 12s          17s",
            "lead   calls bash command='make everything, and then some' for 2m05s      2m10s",
        ]
    )
    assert lines(rows, 17.0, width=40)[1] == snapshot("lead   calls bash comma… for 12s     17s")


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1.0k"),
        (99_949, "99.9k"),
        (99_951, "100k"),
        (999_499, "999k"),
        (999_500, "1.0M"),
        (1_000_000, "1.0M"),
        (10**15, "1000000G"),
    ],
)
def test_amounts_are_short(number, said):
    assert amount(number) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0.0s"), (9.94, "9.9s"), (9.96, "10s"), (59.6, "1m00s"), (125, "2m05s"), (3600, "1h00m"), (90_000, "25h00m")],
)
def test_durations_are_short(seconds, said):
    assert duration(seconds) == said


ROWS = st.lists(
    st.builds(
        row,
        st.lists(TEXTS.map(lambda name: name.replace("/", "") or "x"), min_size=1, max_size=6).map("/".join),
        st.sampled_from(KINDS),
        TEXTS,
        tokens=st.integers(0, 10**12),
        since=st.floats(-1e6, 1e6),
    ),
    max_size=30,
)


@given(ROWS, st.integers(1, 130), st.integers(-1, 40), st.sampled_from([UNICODE, ASCII]))
def test_no_line_is_wider_than_its_room_and_there_are_never_more_than_room_for_them(rows, width, height, glyphs):
    drawn = draw(rows, totals(rows), 100.0, width=width, height=height, glyphs=glyphs)
    assert len(drawn) <= max(height, 0)
    for line in drawn:
        assert cell_len(plain(line)) <= width
        assert not any(char in plain(line) for char in "\n\t\x1b\x9b\u202e")
        plain(line).encode("utf-8")


@given(TEXTS.map(one_line), st.integers(0, 70))
def test_what_is_cut_or_filled_fits(text, width):
    assert cell_len(cut(text, width)) <= width
    assert cell_len(fill(text, width)) == width


@given(TEXTS.map(lambda text: printable(text).replace("\n", "")), st.integers(2, 70))
def test_rows_of_a_line_are_the_line(text, width):
    rows = wrap(text, width)
    assert all(cell_len(row) <= width for row in rows)
    if "\t" not in text:
        assert "".join(rows) == text


@given(st.lists(st.text("ab 日🍵\u0301", max_size=9), max_size=20), st.integers(2, 30), st.integers(2, 30))
def test_a_line_that_grows_has_the_rows_of_what_it_is(pieces, width, other):
    line = Unfinished()
    for piece in pieces:
        line.add(piece)
        line.rows(width)
    whole = "".join(pieces)
    expected = wrap(whole, width) if whole else []
    assert line.rows(width) == expected
    line.rows(other)
    assert line.rows(width) == expected
    assert line.take() == whole
    assert (line.rows(width), bool(line)) == ([], False)


@given(TEXTS)
def test_nothing_is_left_that_a_terminal_obeys(text):
    shown = printable(text)
    assert not any((ord(char) < 32 and char not in "\n\t") or 127 <= ord(char) < 160 for char in shown)
    assert [char for char in shown if char.isalnum()] == [char for char in text if char.isalnum()]
    assert printable(shown) == shown


def test_a_line_is_styled_only_where_there_is_something_to_see():
    [head, lead, last] = draw([row("lead", "done", "")], totals([]), 0.0, width=30, height=8, glyphs=UNICODE)
    assert [styled(line) for line in (head, lead, last)] == snapshot(
        [
            "\x1b[2magent  does               time\x1b[0m",
            "\x1b[1mlead   \x1b[0m                   0.0s",
            "\x1b[1m0 agents, 0 requests  \x1b[0m\x1b[1m    0.0s\x1b[0m",
        ]
    )


# Rows as they are drawn: without wrap, cleared, and the terminal as it was.
A, B, C = (f"\x1b[?7l\x1b[K{row}\x1b[?7h" for row in "abc")


def test_what_has_not_changed_is_not_written_again():
    below, size = Below(), (80, 24)
    assert below.replace(["said"], ["a", "b"], size) == f"\r\x1b[Jsaid\n{A}\n{B}\r\x1b[1A"
    assert below.replace([], ["a", "b"], size) == ""
    assert below.replace([], ["a", "c"], size) == f"\r{A}\n{C}\r\x1b[1A"
    assert below.replace([], ["a", "c"], (70, 24)) == f"\r\x1b[J{A}\n{C}\r\x1b[1A"
    assert below.replace([], [], (70, 24)) == "\r\x1b[J"
    assert below.replace([], [], (60, 24)) == "", "what somebody types is left alone"
    assert below.replace([], ["a"], (60, 24), stay=True) == f"\r\x1b[J{A}\n"
    assert below.replace([], [], (60, 24)) == ""

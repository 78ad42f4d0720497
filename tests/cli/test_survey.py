import os
import re
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from creche.cli._survey import (
    TODO,
    Entry,
    Match,
    MatchPage,
    Page,
    human_size,
    parse_listing,
    parse_matches,
    summarise_kinds,
    summarise_longest,
    summarise_todos,
)
from creche.plugins.files._folder import Workspace
from creche.plugins.files._listing import list_entries
from creche.plugins.files._search import grep_lines
from creche.plugins.files._walk import SKIPPED

# ---------------------------------------------------------------- reading pages


def test_a_listing_is_read_line_by_line():
    page = parse_listing(
        '"a b\\n" file 12 bytes 3 lines\n'
        '"b" file 9 bytes binary\n'
        '"c" file 9 bytes unreadable\n'
        '"d" dir\n'
        '"d/" unreadable Permission denied\n'
        '"e" symlink\n'
        '"\\udcff" other\n'
        '[7 more; continue with after="\\udcff"]'
    )
    assert page == Page(
        (
            Entry("a b\n", kind="file", size=12, lines=3),
            Entry("b", kind="file", size=9),
            Entry("c", kind="file", size=9),
            Entry("d", kind="dir"),
            Entry("d/", kind="unreadable"),
            Entry("e", kind="symlink"),
            Entry("\udcff", kind="other"),
        ),
        after="\udcff",
    )


def test_matches_are_read_line_by_line_without_what_could_not_be_searched():
    page = parse_matches(
        '"a:1: b":12:   TODO: x: "y"\n"b":3: \n"c/" unreadable no: way\n[7 more; continue with after="c/:0"]'
    )
    assert page == MatchPage(
        (Match("a:1: b", line=12, text='  TODO: x: "y"'), Match("b", line=3, text="")), after="c/:0", more=7
    )


@pytest.mark.parametrize("text", ["[no entries]", "[no more entries]", "[no matches]"])
def test_a_page_of_nothing_is_empty(text):
    assert parse_listing(text) == Page((), after="")
    assert parse_matches(text) == MatchPage((), after="", more=0)


def test_a_count_that_is_not_exact_still_says_where_to_go_on():
    assert parse_listing('"a" dir\n[more than 10000 more; continue with after="a"]').after == "a"


@pytest.mark.parametrize("text", ["", '"gone" does not exist', "1\n2", '"open', '"a"', '"a" file x bytes 1 lines'])
def test_a_text_that_is_no_page_is_refused(text):
    for parse in (parse_listing, parse_matches):
        with pytest.raises(ValueError):  # noqa: PT011 - whichever is met first: no JSON, no number, no such line
            parse(text)


# ---------------------------------------------------------------- summaries


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (1549, "1.5 kB"),
        (9949, "9.9 kB"),
        (9999, "10 kB"),
        (20_311, "20 kB"),
        (999_400, "999 kB"),
        (999_900, "1.0 MB"),
        (2 * 10**9, "2.0 GB"),
        (3 * 10**12, "3.0 TB"),
        (4 * 10**16, "40000 TB"),
    ],
)
def test_a_size_is_said_to_people(size, text):
    assert human_size(size) == text


def test_an_empty_folder_has_a_right_summary():
    assert summarise_kinds([]) == "The folder is empty."
    assert summarise_longest([]) == "No text files."
    assert summarise_todos([]) == "No TODO lines."


def test_a_folder_without_files_has_a_right_summary():
    entries = [Entry("a", kind="dir"), Entry("a/b", kind="symlink"), Entry("c", kind="other"), Entry("d", kind="other")]
    assert summarise_kinds(entries) == "0 files, 0 B, 1 folder, 1 symlink, 2 special files."
    assert summarise_longest(entries) == "No text files."


def test_kinds_are_counted_by_suffix_and_the_largest_come_first():
    entries = [
        Entry("a", kind="dir"),
        Entry("a/x.py", kind="file", size=10, lines=1),
        Entry("a/y.PY", kind="file", size=20, lines=1),
        Entry("b.tar.gz", kind="file", size=4000),
        Entry(".gitignore", kind="file", size=1, lines=1),
        Entry("odd.\n", kind="file", size=0, lines=0),
        Entry("a/", kind="unreadable"),
    ]
    assert summarise_kinds(entries).split("\n") == [
        "5 files, 4.0 kB, 1 folder, 1 unreadable path:",
        "  .gz: 1 file, 4.0 kB",
        "  .py: 2 files, 30 B",
        "  no suffix: 1 file, 1 B",
        '  ".\\n": 1 file, 0 B',
    ]


def test_many_kinds_are_cut_and_the_rest_is_counted():
    entries = [Entry(f"x.{number:02}", kind="file", size=100 - number) for number in range(14)]
    lines = summarise_kinds(entries).split("\n")
    assert (len(lines), lines[1], lines[-1]) == (14, "  .00: 1 file, 100 B", "  2 other kinds: 2 files, 175 B")


def test_the_five_longest_text_files_are_named():
    entries = [Entry(f"f{number}", kind="file", size=1, lines=lines) for number, lines in enumerate((1, 7, 7, 3, 0, 2))]
    assert summarise_longest([*entries, Entry("b\n", kind="file", size=99)]) == (
        "The longest text files:\n  f1: 7 lines\n  f2: 7 lines\n  f3: 3 lines\n  f5: 2 lines\n  f0: 1 line"
    )
    assert summarise_longest(entries[:1]) == "The only text file:\n  f0: 1 line"


def test_the_first_twenty_todo_lines_are_named_and_the_rest_is_counted():
    matches = [Match("a", line=line, text=f"\t# TODO {line}\x1b[31m ") for line in range(30, 0, -1)]
    lines = summarise_todos(matches, 5).split("\n")
    assert (len(lines), lines[0], lines[1], lines[-1]) == (
        22,
        "35 TODO lines:",
        "  a:1: # TODO 1 [31m",
        "  and 15 more",
    )
    long = Match("a", line=1, text=f"# TODO {'x' * 300}")
    assert summarise_todos([long]).split("\n")[1] == f"  a:1: # TODO {'x' * 90}..."
    assert summarise_todos([Match("\udcff", line=3, text="TODO")]) == '1 TODO line:\n  "\\udcff":3: TODO'
    assert summarise_todos([Match("a", line=3, text="TODO")], more=0) == "1 TODO line:\n  a:3: TODO"


# ---------------------------------------------------------------- laws

NAMES = st.sampled_from(
    [
        "a",
        "a-b",
        "a0",
        "b.py",
        "c.PY",
        "d.tar.gz",
        ".e",
        "f g",
        "h\n\t",
        '"i"',
        "é",
        "\u2028",
        "\udcff.md",
        "node_modules",
    ]
)
CONTENTS = st.one_of(
    st.binary(max_size=40),
    st.lists(st.sampled_from(["# TODO", "x // TODO y", "TODO", "# TODOS", "", "caf\xe9", "x\r"]), max_size=8).map(
        lambda lines: "\n".join(lines).encode("latin-1")
    ),
)
TREES = st.recursive(
    st.dictionaries(NAMES, CONTENTS, max_size=4),
    lambda trees: st.dictionaries(NAMES, st.one_of(CONTENTS, trees), max_size=4),
    max_leaves=8,
)


def write(folder, tree):
    for name, content in tree.items():
        if isinstance(content, dict):
            (folder / name).mkdir()
            write(folder / name, content)
        else:
            (folder / name).write_bytes(content)


def walk_naively(root):
    """Give what is in a folder, by the shortest program that could be right: path to content, None for a folder."""
    contents = {}
    for where, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in SKIPPED]
        contents |= {os.path.relpath(os.path.join(where, name), root): None for name in folders}
        for name in names:
            path = Path(where, name)
            contents[os.path.relpath(path, root)] = path.read_bytes()
    return contents


def pages_of(function, parse, **options):
    """Read all pages, each with the argument the one before gives."""
    pages = [parse(function(**options))]
    while pages[-1].after:
        pages.append(parse(function(**options, after=pages[-1].after)))
    return pages


@settings(max_examples=80)
@given(tree=TREES)
def test_a_summary_has_the_numbers_of_a_naive_walk(tree):
    """Law: kinds, sizes, line counts and TODO lines are those of `os.walk` and reading every file whole."""
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), tree)
        contents = walk_naively(name)
        entries = [
            entry
            for page in pages_of(lambda **o: list_entries(Workspace(name), **o), parse_listing)
            for entry in page.entries
        ]
        found = parse_matches(grep_lines(Workspace(name), TODO))
    files = {path: content for path, content in contents.items() if content is not None}
    texts = {path: content for path, content in files.items() if b"\0" not in content}
    lines = {path: content.count(b"\n") + (content[-1:] not in (b"", b"\n")) for path, content in texts.items()}
    todos = [
        (path, number)
        for path in sorted(texts)
        for number, line in enumerate(texts[path].decode("utf-8", "replace").split("\n"), 1)
        if re.search(r"(#|/|\*|-) TODO\b", line)
    ]
    assert [entry.path for entry in entries] == sorted(contents)
    assert {entry.path: entry.size for entry in entries if entry.kind == "file"} == {
        p: len(c) for p, c in files.items()
    }
    assert {entry.path: entry.lines for entry in entries if entry.lines is not None} == lines
    assert [(match.path, match.line) for match in found.matches] == todos

    kinds = Counter(os.path.splitext(path)[1].lower() or "no suffix" for path in files)
    said = summarise_kinds(entries)
    for kind, count in kinds.items():
        size = sum(len(c) for path, c in files.items() if (os.path.splitext(path)[1].lower() or "no suffix") == kind)
        assert f"  {kind}: {count} file{'s' * (count > 1)}, {size} B" in said
    if contents:
        assert said.startswith(f"{len(files)} file{'s' * (len(files) != 1)}, {sum(map(len, files.values()))} B")
    longest = summarise_longest(entries).split("\n")[1:]
    assert [int(line.rsplit(" ", 2)[1]) for line in longest] == sorted(lines.values(), reverse=True)[:5]
    assert summarise_todos(found.matches, found.more).startswith(f"{len(todos) or 'No'} TODO line")


@settings(max_examples=40)
@given(tree=TREES)
def test_pages_of_any_size_are_the_one_page_cut(tree):
    """Law: following ``after`` gives every entry and every match once, in order, whatever the size of a page."""
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), tree)
        workspace = Workspace(name)
        whole = parse_listing(list_entries(workspace))
        matches = parse_matches(grep_lines(workspace, TODO))
        assert (whole.after, matches.after, matches.more) == ("", "", 0)
        for limit in range(1, len(whole.entries) + 2):
            pages = pages_of(lambda **o: list_entries(workspace, **o), parse_listing, limit=limit)
            assert [entry for page in pages for entry in page.entries] == list(whole.entries)
            assert all(len(page.entries) == limit for page in pages[:-1])
        for limit in range(1, len(matches.matches) + 2):
            parts = pages_of(lambda **o: grep_lines(workspace, TODO, **o), parse_matches, limit=limit)
            assert [match for part in parts for match in part.matches] == list(matches.matches)
            assert [part.more for part in parts] == [
                max(len(matches.matches) - limit * number, 0) for number in range(1, len(parts) + 1)
            ]

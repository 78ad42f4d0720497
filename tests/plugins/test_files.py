import contextlib
import json
import os
import socket
import tracemalloc

import pytest
import trio

from creche.errors import PluginError, ToolFailed
from creche.plugins.files import _page, _read, _text, _tools, files
from creche.plugins.files._folder import Workspace, quoted
from creche.plugins.files._glob import fits
from creche.plugins.files._listing import list_entries
from creche.plugins.files._read import read_lines
from creche.plugins.files._search import grep_lines
from creche.plugins.files._walk import SKIPPED
from creche.tools import Tool

BYTES_NAME = os.fsdecode(b"caf\xe9.txt")


def write(folder, tree):
    """Write a tree of files: text, bytes, or None for a folder, by path."""
    for path, content in tree.items():
        target = folder / path
        if content is None:
            target.mkdir(parents=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    return root


@pytest.fixture
def workspace(folder):
    return Workspace(folder)


def refusal(function, *args, **options):
    with pytest.raises(ToolFailed) as caught:
        function(*args, **options)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.encode()
    return sentence


DENIED = PermissionError(13, "Permission denied")


def deny(monkeypatch, function, real, error=DENIED):
    """Let a function of `os` fail for one path, as it does for everybody but root."""
    original = getattr(os, function)

    def denied(path, *args, **options):
        if os.fspath(path) == os.fspath(real):
            raise error
        return original(path, *args, **options)

    monkeypatch.setattr(os, function, denied)


# ---------------------------------------------------------------- what a path means


@pytest.mark.parametrize("path", ["../secret", "a/../../secret", "/etc/passwd", "..", "/", "../root-too/x"])
def test_a_path_that_leaves_the_folder_is_refused(workspace, folder, path):
    write(folder.parent, {"secret": "s", "root-too/x": "s", "root/a": None})
    assert refusal(read_lines, workspace, path) == (
        f'"{path}" is outside of the folder "{folder}"; give a path inside it'
    )
    assert refusal(list_entries, workspace, path) == refusal(grep_lines, workspace, "s", path)


def test_what_is_outside_is_refused_whether_it_exists_or_not(workspace):
    assert "is outside of the folder" in refusal(read_lines, workspace, "../no such file")


def test_a_symlink_that_leaves_the_folder_is_refused(workspace, folder):
    write(folder.parent, {"secret": "s", "private/x": "s"})
    (folder / "file").symlink_to("../secret")
    (folder / "dir").symlink_to("../private")
    for path in ("file", "dir/x"):
        assert refusal(read_lines, workspace, path) == (
            f'"{path}" is outside of the folder "{folder}"; give a path inside it'
        )
    assert "is outside" in refusal(list_entries, workspace, "dir")
    assert list_entries(workspace) == '"dir" symlink\n"file" symlink'
    assert grep_lines(workspace, "s") == "[no matches]"


def test_a_symlink_inside_the_folder_is_read_and_shown_resolved(workspace, folder):
    write(folder, {"real/x": "text\n"})
    (folder / "link").symlink_to("real")
    assert read_lines(workspace, "link/x") == "text"
    assert list_entries(workspace, "link") == '"real/x" file 5 bytes 1 lines'


def test_a_symlink_in_a_loop_and_one_to_nothing_are_one_sentence(workspace, folder):
    (folder / "loop").symlink_to("loop")
    (folder / "nothing").symlink_to("gone")
    assert refusal(read_lines, workspace, "loop") == '"loop" is not a regular file, and only those are opened'
    assert "cannot be read: Too many levels" in refusal(read_lines, workspace, "loop/x")
    assert refusal(read_lines, workspace, "nothing") == '"nothing" does not exist'
    assert list_entries(workspace) == '"loop" symlink\n"nothing" symlink'


def test_a_path_behind_a_symlink_in_a_loop_does_not_lead_out(workspace, folder):
    (folder.parent / "secret").write_text("secret")
    (folder / "loop").symlink_to("loop/..")
    (folder / "up").symlink_to("..")
    sentence = '"loop/up/secret" is not a path: a symlink in it leads back to itself'
    assert refusal(read_lines, workspace, "loop/up/secret") == sentence


def test_an_absolute_path_inside_the_folder_is_accepted(workspace, folder):
    write(folder, {"a/b": "text"})
    assert read_lines(workspace, f"{folder}/a/b") == "text"
    assert list_entries(workspace, str(folder)) == list_entries(workspace, "") == list_entries(workspace, "a/..")


def test_an_absolute_path_through_a_symlink_to_the_folder_is_accepted(folder):
    write(folder, {"a": "text"})
    (folder.parent / "alias").symlink_to(folder)
    assert read_lines(Workspace(folder.parent / "alias"), f"{folder.parent}/alias/a") == "text"


def test_the_root_of_the_file_system_can_be_the_folder(folder):
    write(folder, {"a": "text"})
    assert read_lines(Workspace("/"), f"{folder}/a") == read_lines(Workspace("/"), f"{folder}/a"[1:]) == "text"


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("gone", '"gone" does not exist'),
        ("sub", '"sub" is a folder; list shows what is in it'),
        ("file/x", '"file/x" does not exist: a part of it is not a folder'),
        ("a\0b", '"a\\u0000b" is not a path: it has a NUL character in it'),
        ("a\ud800b", '"a\\ud800b" is not a path: it has a character in it that no file name can have'),
        ("x" * 300, f'"{"x" * 200}"... cannot be read: File name too long'),
        ("x/" * 2100, f'"{"x/" * 100}"... is not a path: it has 4200 bytes, 4096 are the most'),
        ("no\nsuch", '"no\\nsuch" does not exist'),
    ],
)
def test_a_path_that_cannot_be_read_is_one_sentence(workspace, folder, path, sentence):
    write(folder, {"file": "", "sub": None})
    assert refusal(read_lines, workspace, path) == sentence


def test_a_file_without_permission_is_one_sentence(workspace, folder, monkeypatch):
    write(folder, {"a": "text"})
    deny(monkeypatch, "open", folder / "a")
    assert refusal(read_lines, workspace, "a") == '"a" cannot be read: Permission denied'


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_permissions_of_the_operating_system_hold(workspace, folder):  # pragma: no cover - the suite may run as root
    write(folder, {"a": "text", "sub/b": "text"})
    (folder / "a").chmod(0)
    (folder / "sub").chmod(0)
    try:
        assert refusal(read_lines, workspace, "a") == '"a" cannot be read: Permission denied'
        assert list_entries(workspace) == (
            '"a" file 4 bytes unreadable\n"sub" dir\n"sub/" unreadable Permission denied'
        )
    finally:
        (folder / "sub").chmod(0o700)


# ---------------------------------------------------------------- how a path is shown


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain.txt", '"plain.txt"'),
        ("Grüße 名前.md", '"Grüße 名前.md"'),
        ("tab\tnew\nline", '"tab\\tnew\\nline"'),
        ('quote"back\\slash', '"quote\\"back\\\\slash"'),
        (BYTES_NAME, '"caf\\udce9.txt"'),
        ("line\u2028sep\x85\x7f", '"line\\u2028sep\\u0085\\u007f"'),
        ("flag\U000e0041", '"flag\\udb40\\udc41"'),
    ],
)
def test_a_name_is_shown_on_one_line_and_can_be_given_back(workspace, folder, name, shown):
    write(folder, {name: "TODO\n"})
    listing = list_entries(workspace)
    assert listing == f"{shown} file 5 bytes 1 lines"
    assert listing.encode()
    assert len(listing.splitlines()) == 1
    assert grep_lines(workspace, "TODO") == f"{shown}:1: TODO"
    for given in (name, json.loads(shown), shown):
        assert read_lines(workspace, given) == "TODO"
        assert list_entries(workspace, after=given) == "[no more entries]"
        assert grep_lines(workspace, "TODO", after=f"{given}:1") == "[no more matches]"


def test_a_name_in_quotes_is_taken_as_it_is_if_it_exists(workspace, folder):
    write(folder, {'"a"': "quotes", "a": "none"})
    assert read_lines(workspace, '"a"') == "quotes"
    assert read_lines(workspace, '"\\"a\\""') == "quotes"
    assert list_entries(workspace, after='"a"') == '"a" file 4 bytes 1 lines'


@pytest.mark.parametrize("path", ['"gone"', '"gone', '"gone" too'])
def test_a_name_in_quotes_may_not_exist(workspace, path):
    assert "does not exist" in refusal(read_lines, workspace, path)


# ---------------------------------------------------------------- list


def test_entries_come_in_the_order_of_their_code_points(workspace, folder):
    names = ["a", "a-b", "a/b", "a/b.c", "a/b/c", "a/b0", "a0", "B", "é", "\ue000", BYTES_NAME, "\U0001f600"]
    write(folder, {name: "" for name in names if name not in ("a", "a/b")})
    listed = [json.JSONDecoder().raw_decode(line)[0] for line in list_entries(workspace).split("\n")]
    assert listed == sorted(names)


def test_a_line_has_kind_size_and_lines(workspace, folder):
    write(
        folder,
        {"dir/text": "a\nb", "binary": b"\0" * 9, "empty": "", "latin": b"caf\xe9\n", "late": b"x" * 8192 + b"\0"},
    )
    (folder / "link").symlink_to("dir")
    os.mkfifo(folder / "pipe")
    assert list_entries(workspace).split("\n") == [
        '"binary" file 9 bytes binary',
        '"dir" dir',
        '"dir/text" file 3 bytes 2 lines',
        '"empty" file 0 bytes 0 lines',
        '"late" file 8193 bytes 1 lines',
        '"latin" file 5 bytes 1 lines',
        '"link" symlink',
        '"pipe" other',
    ]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("", 0),
        ("\n", 1),
        ("a", 1),
        ("a\n", 1),
        ("a\nb", 2),
        ("\n\n", 2),
        ("a\r\nb\r\n", 2),
        ("a\rb", 1),
        ("a\u2028b", 1),
    ],
)
def test_lines_are_newlines_and_one_more_for_what_follows_the_last(workspace, folder, content, lines):
    write(folder, {"a": content})
    assert list_entries(workspace).endswith(f" {lines} lines")


def test_a_flat_list_shows_what_is_directly_there(workspace, folder):
    write(folder, {"a/b": "", ".git/config": "", "c": ""})
    assert list_entries(workspace, recursive=False) == '".git" dir\n"a" dir\n"c" file 0 bytes 0 lines'


def test_caches_and_version_control_are_left_out_unless_asked_for(workspace, folder):
    write(folder, {f"{name}/x": "TODO" for name in SKIPPED} | {"a/__pycache__/x": "TODO", "b/.git": "TODO"})
    assert list_entries(workspace) == '"a" dir\n"b" dir\n"b/.git" file 4 bytes 1 lines'
    assert grep_lines(workspace, "TODO") == '"b/.git":1: TODO'
    assert list_entries(workspace, ".venv") == '".venv/x" file 4 bytes 1 lines'


def test_a_virtual_environment_is_left_out_whatever_its_name_is(workspace, folder):
    """Rule: it is known by its pyvenv.cfg. A flat list shows it, and whoever names it sees what is in it."""
    write(
        folder, {"env/pyvenv.cfg": "", "env/lib/x": "TODO", "a/env/pyvenv.cfg": "", "a/env/x": "TODO", "lib/x": "TODO"}
    )
    assert list_entries(workspace) == '"a" dir\n"lib" dir\n"lib/x" file 4 bytes 1 lines'
    assert grep_lines(workspace, "TODO") == '"lib/x":1: TODO'
    assert list_entries(workspace, recursive=False) == '"a" dir\n"env" dir\n"lib" dir'
    assert grep_lines(workspace, "TODO", "env") == '"env/lib/x":1: TODO'


def test_a_file_is_listed_alone(workspace, folder):
    write(folder, {"a/b": "", "a/c": ""})
    os.mkfifo(folder / "pipe")
    assert list_entries(workspace, "a/b") == '"a/b" file 0 bytes 0 lines'
    assert list_entries(workspace, "pipe") == '"pipe" other'
    assert list_entries(workspace, "a/b", after="a/b") == "[no more entries]"


def test_an_empty_folder_has_no_entries(workspace):
    assert list_entries(workspace) == "[no entries]"
    assert grep_lines(workspace, "x") == "[no matches]"


def test_a_page_says_how_many_more_there_are_and_where_to_go_on(workspace, folder):
    write(folder, dict.fromkeys(("a", "b\nc", "d", "e"), ""))
    assert list_entries(workspace, limit=2).split("\n")[1:] == [
        '"b\\nc" file 0 bytes 0 lines',
        '[2 more; continue with after="b\\nc"]',
    ]
    assert list_entries(workspace, limit=2, after="b\nc") == '"d" file 0 bytes 0 lines\n"e" file 0 bytes 0 lines'
    assert list_entries(workspace, after="c is between b and d") == list_entries(workspace, after="b\nc")


def test_what_is_behind_a_page_is_counted_up_to_a_number(workspace, folder, monkeypatch):
    monkeypatch.setattr(_page, "MOST_COUNTED", 2)
    write(folder, dict.fromkeys("abcd", ""))
    assert list_entries(workspace, limit=2).endswith('\n[2 more; continue with after="b"]')
    assert list_entries(workspace, limit=1).endswith('\n[more than 2 more; continue with after="a"]')


def test_a_page_does_not_walk_what_comes_before_it(workspace, folder, monkeypatch):
    write(folder, {"a/x": "", "b/a/x": "", "b/b/x": "", "c/x": ""})
    entered = []
    scan = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: entered.append(os.path.relpath(path, folder)) or scan(path))
    list_entries(workspace, after="b/b")
    assert entered == [".", "b", "b/b", "c"]


def test_a_page_is_never_larger_than_the_most(workspace, folder, monkeypatch):
    monkeypatch.setattr(_page, "MAX_PAGE", 1)
    write(folder, dict.fromkeys("ab", "x"))
    assert list_entries(workspace, limit=10**9) == '"a" file 1 bytes 1 lines\n[1 more; continue with after="a"]'


@pytest.mark.parametrize(
    "function", [list_entries, read_lines, lambda *args, **options: grep_lines(args[0], *"xx", **options)]
)
def test_a_limit_below_one_is_refused(workspace, function):
    assert refusal(function, workspace, ".", limit=0) == "limit is 0, and 1 is the least"


def test_a_folder_that_cannot_be_read_is_a_line_of_its_own(workspace, folder, monkeypatch):
    write(folder, {"a-b": "", "a/x": "x", "b": "x"})
    deny(monkeypatch, "scandir", folder / "a")
    lines = ['"a" dir', '"a-b" file 0 bytes 0 lines', '"a/" unreadable Permission denied', '"b" file 1 bytes 1 lines']
    assert list_entries(workspace).split("\n") == lines
    assert list_entries(workspace, limit=3).split("\n")[-1] == '[1 more; continue with after="a/"]'
    assert list_entries(workspace, after="a/") == lines[-1]
    assert grep_lines(workspace, "x") == f'{lines[2]}\n"b":1: x'
    assert grep_lines(workspace, "x", glob="*b") == f'{lines[2]}\n"b":1: x'
    assert grep_lines(workspace, "x", limit=1) == f'{lines[2]}\n[1 more; continue with after="a/:0"]'
    assert grep_lines(workspace, "x", after="a/:0") == '"b":1: x'
    assert refusal(list_entries, workspace, "a/") == '"a" cannot be read: Permission denied'


def test_a_folder_too_deep_for_a_path_is_a_line_of_its_own(workspace, folder):
    name = "d" * 200
    outer = os.open(folder, os.O_RDONLY)
    for _ in range(25):
        os.mkdir(name, dir_fd=outer)
        inner = os.open(name, os.O_RDONLY, dir_fd=outer)
        os.close(outer)
        outer = inner
    os.close(outer)
    lines = list_entries(workspace).split("\n")
    assert lines[-1].endswith('/" unreadable File name too long')
    assert all(line.endswith('" dir') for line in lines[:-2])
    assert grep_lines(workspace, "x") == lines[-1]


def test_a_file_that_cannot_be_read_is_marked(workspace, folder, monkeypatch):
    write(folder, {"a": "xyz", "b": "xyz"})
    deny(monkeypatch, "open", folder / "a")
    assert list_entries(workspace) == '"a" file 3 bytes unreadable\n"b" file 3 bytes 1 lines'
    assert grep_lines(workspace, "y") == '"a" unreadable Permission denied\n"b":1: xyz'


def test_what_cannot_even_be_looked_at_is_marked(workspace, folder, monkeypatch):
    write(folder, {"a": "xyz"})
    deny(monkeypatch, "lstat", folder / "a", OSError(5, "Input/output error"))
    assert list_entries(workspace) == '"a" unreadable Input/output error'
    assert grep_lines(workspace, "y") == '"a" unreadable Input/output error'


def test_what_vanishes_during_the_walk_is_not_there(workspace, folder, monkeypatch):
    write(folder, {"a": "x", "b/x": "x", "c": "x"})
    gone = FileNotFoundError(2, "No such file or directory")
    deny(monkeypatch, "lstat", folder / "a", gone)
    deny(monkeypatch, "scandir", folder / "b", gone)
    assert list_entries(workspace) == '"b" dir\n"c" file 1 bytes 1 lines'
    assert grep_lines(workspace, "x") == '"c":1: x'


def test_what_becomes_a_fifo_before_it_is_opened_is_not_waited_for(workspace, folder, monkeypatch):
    write(folder, {"a": "x"})
    os.mkfifo(folder / "pipe")
    opened = os.open
    monkeypatch.setattr(os, "open", lambda path, flags: opened(os.fspath(path).replace("root/a", "root/pipe"), flags))
    assert list_entries(workspace, "a") == '"a" file 1 bytes unreadable'
    assert refusal(read_lines, workspace, "a") == '"a" is not a regular file, and only those are opened'
    assert grep_lines(workspace, "x") == "[no matches]"


def test_fifos_sockets_and_devices_are_never_opened(workspace, folder):
    os.mkfifo(folder / "pipe")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as listener, contextlib.chdir(folder):
        listener.bind("socket")
    for path in ("pipe", "socket"):
        sentence = f'"{path}" is not a regular file, and only those are opened'
        assert refusal(read_lines, workspace, path) == sentence
        assert refusal(grep_lines, workspace, "x", path) == sentence
    assert list_entries(workspace) == '"pipe" other\n"socket" other'
    assert grep_lines(workspace, "x") == "[no matches]"
    assert "not a regular file" in refusal(read_lines, Workspace("/dev"), "zero")


def test_an_entry_that_cannot_be_told_from_a_folder_is_not_entered(workspace, folder, monkeypatch):
    class Entry:
        name, path = "a", str(folder / "a")

        def is_dir(self, *, follow_symlinks):
            raise PermissionError(13, "Permission denied")

    write(folder, {"a/x": ""})
    monkeypatch.setattr(os, "scandir", lambda path: contextlib.nullcontext([Entry()]))
    assert list_entries(workspace) == '"a" dir'


# ---------------------------------------------------------------- read


def test_a_whole_text_is_read_without_a_line_in_brackets(workspace, folder):
    write(folder, {"a": "one\n\n  two\n", "b": "no end"})
    assert read_lines(workspace, "a") == "one\n\n  two"
    assert read_lines(workspace, "b") == "no end"


def test_carriage_returns_before_newlines_belong_to_the_line_end(workspace, folder):
    write(folder, {"a": "one\r\ntwo\rthree\r\n"})
    assert read_lines(workspace, "a") == "one\ntwo\rthree"
    assert grep_lines(workspace, "e$") == '"a":1: one\n"a":2: two\rthree'


@pytest.mark.parametrize(
    ("offset", "limit", "text"),
    [
        (1, 2, "1\n2\n[lines 1 to 2 of 5; continue with offset=3]"),
        (3, 2, "3\n4\n[lines 3 to 4 of 5; continue with offset=5]"),
        (4, 2, "4\n5"),
        (5, 1, "5"),
        (6, 1, "[the file has 5 lines; there is no line 6]"),
        (10**30, 1, f"[the file has 5 lines; there is no line {10**30}]"),
        (2, 10**30, "2\n3\n4\n5"),
    ],
)
def test_some_lines_are_read_and_the_rest_is_announced(workspace, folder, offset, limit, text):
    write(folder, {"a": "1\n2\n3\n4\n5", "b": "1\n2\n3\n4\n5\n"})
    assert read_lines(workspace, "a", offset=offset, limit=limit) == text
    assert read_lines(workspace, "b", offset=offset, limit=limit) == text


def test_an_offset_below_one_is_refused(workspace):
    assert refusal(read_lines, workspace, "a", offset=0) == "offset is 0, and 1 is the least"


def test_an_empty_file_is_said_to_be_empty(workspace, folder):
    write(folder, {"a": ""})
    assert read_lines(workspace, "a") == read_lines(workspace, "a", offset=7) == "[the file is empty]"


def test_a_binary_file_is_refused_with_its_size(workspace, folder):
    write(folder, {"a.png": b"\x89PNG\0" + b"x" * 20000})
    assert refusal(read_lines, workspace, "a.png") == '"a.png" is a binary file of 20005 bytes, and only text is shown'
    assert grep_lines(workspace, "x") == grep_lines(workspace, "x", "a.png") == "[no matches]"


def test_what_is_not_utf_8_is_replaced(workspace, folder):
    write(folder, {"a": b"caf\xe9\nna\xc3\xafve \xe2\x82\n"})
    assert read_lines(workspace, "a") == "caf\ufffd\nnaïve \ufffd"
    assert grep_lines(workspace, "na") == '"a":2: naïve \ufffd'


def test_an_answer_stops_before_the_line_that_does_not_fit(workspace, folder, monkeypatch):
    monkeypatch.setattr(_read, "MAX_BYTES", 10)
    write(folder, {"a": "1234\n56789\n0\n"})
    assert read_lines(workspace, "a") == "1234\n56789\n[lines 1 to 2 of 3; continue with offset=3]"
    assert read_lines(workspace, "a", offset=3) == "0"
    write(folder, {"a": "1234\n567890\n0\n"})
    assert read_lines(workspace, "a") == "1234\n[lines 1 to 1 of 3; continue with offset=2]"


@pytest.mark.parametrize(
    ("line", "shown"),
    [("1234567890", None), ("12345678901", "1234567890"), ("123456789é", "123456789"), ("x" * 99, "x" * 10)],
)
def test_a_line_longer_than_an_answer_is_cut(workspace, folder, monkeypatch, line, shown):
    monkeypatch.setattr(_read, "MAX_BYTES", 10)
    for end in ("\n", "\r\n"):
        write(folder, {"first": f"{line}{end}next", "last": f"a\n{line}", "ended": f"a\n{line}{end}"})
        if shown is None:
            assert read_lines(workspace, "first", limit=1) == f"{line}\n[lines 1 to 1 of 2; continue with offset=2]"
            assert read_lines(workspace, "last", offset=2) == read_lines(workspace, "ended", offset=2) == line
            continue
        assert read_lines(workspace, "first") == (
            f"{shown}\n[line 1 of 2 is longer than 10 bytes and cut; continue with offset=2]"
        )
        for path in ("last", "ended"):
            assert read_lines(workspace, path, offset=2) == f"{shown}\n[line 2 of 2 is longer than 10 bytes and cut]"


def test_replacing_never_makes_an_answer_longer_than_allowed(workspace, folder, monkeypatch):
    monkeypatch.setattr(_read, "MAX_BYTES", 10)
    write(folder, {"a": b"\xff" * 9 + b"\n" + b"\xff\xff\n\xff\n"})
    assert read_lines(workspace, "a").startswith("\ufffd\ufffd\ufffd\n[line 1 of 3 is longer than 10 bytes and cut;")
    assert read_lines(workspace, "a", offset=2) == "\ufffd\ufffd\n\ufffd"


def test_a_huge_file_is_never_in_memory_whole(workspace, folder, monkeypatch):
    size = 4 << 20
    monkeypatch.setattr(_text, "CHUNK", 1 << 16)
    monkeypatch.setattr(_text, "LONGEST", 1 << 18)
    write(folder, {"line": b"x" * size, "lines": b"0123456789abcde\n" * (size // 16)})
    tracemalloc.start()
    try:
        assert read_lines(workspace, "lines", offset=200_000, limit=1).startswith("0123456789abcde\n[lines 200000 to")
        assert read_lines(workspace, "line").endswith("x\n[line 1 of 1 is longer than 100000 bytes and cut]")
        assert list_entries(workspace).endswith(f'\n"lines" file {size} bytes {size // 16} lines')
        assert grep_lines(workspace, "y") == "[no matches]"
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < size / 2


def test_a_read_that_fails_is_one_sentence(folder):
    assert refusal(read_lines, Workspace("/proc/self"), "mem") == '"mem" cannot be read: Input/output error'


# ---------------------------------------------------------------- grep


def test_matches_come_by_path_and_line(workspace, folder):
    write(folder, {"b": "TODO one\nnone\n  TODO: two", "a/x": "TODONE\nTODO\n", "a-b": "a TODO\n"})
    assert grep_lines(workspace, r"\bTODO\b").split("\n") == [
        '"a-b":1: a TODO',
        '"a/x":2: TODO',
        '"b":1: TODO one',
        '"b":3:   TODO: two',
    ]
    assert grep_lines(workspace, "TODO", "a") == '"a/x":1: TODONE\n"a/x":2: TODO'
    assert grep_lines(workspace, "todo", "a-b") == "[no matches]"
    assert grep_lines(workspace, "todo", "a-b", ignore_case=True) == '"a-b":1: a TODO'


def test_a_pattern_is_searched_in_each_line_by_itself(workspace, folder):
    write(folder, {"a": "x\ny\n\nz"})
    assert grep_lines(workspace, r"\A[yz]\Z") == '"a":2: y\n"a":4: z'
    assert grep_lines(workspace, r"x\s+y") == "[no matches]"
    assert grep_lines(workspace, "^$") == '"a":3: '


def test_pages_of_matches_go_on_within_a_file(workspace, folder):
    write(folder, {"a": "1\n2\n3\n", "b:7": "1\n2\n"})
    assert grep_lines(workspace, ".", limit=2) == '"a":1: 1\n"a":2: 2\n[3 more; continue with after="a:2"]'
    assert grep_lines(workspace, ".", limit=2, after="a:2") == (
        '"a":3: 3\n"b:7":1: 1\n[1 more; continue with after="b:7:1"]'
    )
    assert grep_lines(workspace, ".", limit=2, after="b:7:1") == '"b:7":2: 2'
    assert grep_lines(workspace, ".", limit=2, after="b:7:2") == "[no more matches]"


def test_only_matches_are_counted_behind_a_page(workspace, folder, monkeypatch):
    write(folder, {"a": "x", "b/x": "x", "c": "x"})
    deny(monkeypatch, "scandir", folder / "b")
    assert grep_lines(workspace, "x", limit=1) == '"a":1: x\n[1 more; continue with after="a:1"]'


@pytest.mark.parametrize("after", ["a", "a:", "a:x", "a:-1"])
def test_a_place_to_go_on_that_is_none_is_refused(workspace, after):
    assert refusal(grep_lines, workspace, "x", after=after) == f'after is "{after}", which is not of the form path:line'


@pytest.mark.parametrize(
    ("pattern", "sentence"),
    [
        ("a(b", "the pattern is no regular expression: missing ), unterminated subpattern at position 1"),
        ("*", "the pattern is no regular expression: nothing to repeat at position 0"),
        ("a{99999999999}", "the pattern cannot be used: the repetition number is too large"),
        ("[[a]", "the pattern cannot be used: Possible nested set at position 1"),
    ],
)
def test_a_pattern_that_is_none_is_one_sentence(workspace, pattern, sentence):
    assert refusal(grep_lines, workspace, pattern) == sentence


def test_a_pattern_nested_too_deep_is_one_sentence(workspace):
    assert refusal(grep_lines, workspace, "(" * 5000 + ")" * 5000).startswith("the pattern cannot be used: ")


def test_a_shown_line_is_cut_around_the_match(workspace, folder):
    write(folder, {"a": "x" * 300, "b": "y" + "x" * 300, "c": "x" * 500 + "y" + "x" * 500, "d": "x" * 500 + "y"})
    shown = [line.partition(": ")[2] for line in grep_lines(workspace, "x$|y").split("\n")]
    assert shown == ["x" * 300, "y" + "x" * 298 + "…", "…" + "x" * 99 + "y" + "x" * 198 + "…", "…" + "x" * 298 + "y"]


def test_a_long_line_is_searched_as_far_as_promised_and_the_next_line_has_its_number(workspace, folder, monkeypatch):
    monkeypatch.setattr(_text, "CHUNK", 4)
    monkeypatch.setattr(_text, "LONGEST", 8)
    write(folder, {"a": "one\nx123456789012345678901234567890 late\ntwo\n", "b": "é" * 50 + "\nfour\r\nfive"})
    assert grep_lines(workspace, "late|[nwuv]") == '"a":1: one\n"a":3: two\n"b":2: four\n"b":3: five'
    assert grep_lines(workspace, "x1234567") == '"a":2: x12345678901'


def test_batches_end_at_lines(workspace, folder, monkeypatch):
    monkeypatch.setattr(_text, "CHUNK", 5)
    lines = [f"{number}é" * (number % 4) for number in range(50)]
    write(folder, {"a": "\n".join(lines)})
    assert grep_lines(workspace, "é") == "\n".join(
        f'"a":{number}: {line}' for number, line in enumerate(lines, 1) if line
    )


@pytest.mark.parametrize(
    ("glob", "path", "expected"),
    [
        ("", "a/b.py", True),
        ("*.py", "a/b.py", True),
        ("*.py", "a.py/b", False),
        ("*.PY", "b.py", False),
        ("a/*.py", "a/b.py", True),
        ("./a/*.py", "a/b.py", True),
        ("/a/*.py", "a/b.py", True),
        ("a/*.py", "a/c/b.py", False),
        ("a/**/*.py", "a/b.py", True),
        ("a/**/*.py", "a/c/d/b.py", True),
        ("**/b.py", "b.py", True),
        ("a/**", "a/b/c", True),
        ("a/**", "b/b/c", False),
        ("a/**/c/**", "b", False),
        ("a/?.[ch]", "a/x.h", True),
        ("a/b/c", "a/b", False),
        ("**/" * 50 + "x/**/y", "a/" * 100 + "b", False),
    ],
)
def test_a_glob_without_a_slash_is_about_the_name_and_one_with_a_slash_about_the_path(glob, path, expected):
    assert fits(path, glob) is expected


def test_a_search_can_be_limited_to_files_that_fit_a_glob(workspace, folder):
    write(folder, {"a.py": "x", "b.md": "x", "sub/c.py": "x"})
    assert grep_lines(workspace, "x", glob="*.py") == '"a.py":1: x\n"sub/c.py":1: x'
    assert grep_lines(workspace, "x", "sub", glob="sub/*") == '"sub/c.py":1: x'


# ---------------------------------------------------------------- the plugin


class StopError(Exception):
    pass


@pytest.mark.parametrize(
    "work",
    [list_entries, lambda workspace: grep_lines(workspace, "x"), lambda workspace: read_lines(workspace, "sub/a")],
)
def test_work_ends_when_nobody_waits_for_it(folder, work):
    """Rule: between folders, files and chunks the work asks whether to go on."""

    def stop():
        raise StopError

    write(folder, {"sub/a": "x" * 200_000})
    with pytest.raises(StopError):
        work(Workspace(folder, check_cancelled=stop))


async def test_cancelling_a_tool_ends_its_thread_at_the_next_folder(folder):
    write(folder, {"sub/a": "x"})
    went_on = False

    def work():
        nonlocal went_on
        trio.from_thread.run_sync(scope.cancel)
        list_entries(Workspace(folder, check_cancelled=_tools._check_cancelled))
        went_on = True

    with trio.CancelScope() as scope:
        await trio.to_thread.run_sync(work)
    assert scope.cancelled_caught
    assert not went_on


def test_a_tool_called_outside_of_trio_has_nobody_to_ask():
    _tools._check_cancelled()


def test_a_plugin_of_no_folder_is_an_error(folder):
    write(folder, {"a": ""})
    for root in (folder / "a", folder / "gone"):
        with pytest.raises(PluginError) as caught:
            files(root)
        assert str(caught.value) == f"files: {quoted(str(root))} is not a folder"


def test_the_plugin_brings_four_parallel_tools_that_read(folder):
    tools = {tool.name: tool for tool in files(folder).setup if isinstance(tool, Tool)}
    assert sorted(tools) == ["glob", "grep", "list", "read"]
    assert all(tool.parallel for tool in tools.values())
    assert all(name in tools["list"].description for name in SKIPPED)


def test_the_tools_are_called_with_what_a_model_writes(folder):
    def call(name, **arguments):
        tool = tools[name]
        return tool(**tool.binder.bind(arguments))

    write(folder, {"a.py": "x\nTODO\n", "sub/b": "TODO\n"})
    tools = {tool.name: tool for tool in files(folder).setup if isinstance(tool, Tool)}
    assert call("read", path="a.py", offset=2, limit=1) == "TODO"
    assert call("list", recursive=False, limit=1, after="a.py") == '"sub" dir'
    assert call("grep", pattern="todo", path=".", glob="*.py", ignore_case=True, limit=1, after="a.py:1") == (
        '"a.py":2: TODO'
    )
    assert refusal(call, "read", path="../a.py").startswith('"../a.py" is outside of the folder')

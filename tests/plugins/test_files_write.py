import contextlib
import errno
import gc
import io
import os
import stat
import threading

import pytest
import trio
from hypothesis import HealthCheck, example, given, settings, strategies as st

from creche import AgentSpec, FunctionModel, call as model_call, open_host, say
from creche.errors import ToolError, ToolFailed, ToolRetry
from creche.plugins.files import _edit, _places, _readings, _store, _tools, _write, files
from creche.plugins.files._edit import edit_text
from creche.plugins.files._folder import Workspace
from creche.plugins.files._lines import FileText
from creche.plugins.files._places import lines_named
from creche.plugins.files._readings import Readings, digest_of, digest_of_file
from creche.plugins.files._write import write_text
from creche.tools import Tool, ToolContext, restrict

MODEST = settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Agent:
    """All that is asked of an agent here: that it is one."""


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    return root


@pytest.fixture
def workspace(folder):
    return Workspace(folder)


def write(workspace, path, content, *, readings=None, agent=None):
    return write_text(workspace, path, content, readings=readings or Readings(), agent=agent)


def edit(workspace, path, old, new, *, readings=None, agent=None, **options):
    return edit_text(workspace, path, old, new, readings=readings or Readings(), agent=agent, **options)


def refusal(function, *args, **options):
    with pytest.raises(ToolError) as caught:
        function(*args, **options)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.encode()
    return sentence


def names(folder):
    """Give the paths of all that is in a folder, drafts included."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# ---------------------------------------------------------------- write


def test_a_file_is_made_with_the_folders_above_it(workspace, folder):
    assert write(workspace, "a/b/c.txt", "one\ntwo\n") == 'created "a/b/c.txt": 2 lines, 8 bytes'
    assert (folder / "a/b/c.txt").read_bytes() == b"one\ntwo\n"
    assert names(folder) == ["a", "a/b", "a/b/c.txt"]


@pytest.mark.parametrize(("content", "lines"), [("", 0), ("x", 1), ("x\ny", 2), ("\n", 1), ("\r\né", 2)])
def test_content_is_written_as_it_is(workspace, folder, content, lines):
    assert write(workspace, "a", content) == f'created "a": {lines} lines, {len(content.encode())} bytes'
    assert (folder / "a").read_bytes() == content.encode()


def test_a_new_file_has_the_mode_that_the_umask_leaves(workspace, folder):
    before = os.umask(0o027)
    try:
        write(workspace, "a", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((folder / "a").stat().st_mode) == 0o640


@pytest.mark.parametrize(("mode", "kept"), [(0o755, 0o755), (0o600, 0o600), (0o4711, 0o711)])
def test_a_file_keeps_its_mode_but_not_another_users_rights(workspace, folder, mode, kept):
    (folder / "a").write_text("x")
    (folder / "a").chmod(mode)
    assert write(workspace, "a", "yy") == 'wrote "a": 1 lines, 2 bytes'
    edit(workspace, "a", "yy", "z")
    assert stat.S_IMODE((folder / "a").stat().st_mode) == kept


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_keeps_its_owner(workspace, folder):
    (folder / "a").write_text("x")
    os.chown(folder / "a", 1234, 1235)
    write(workspace, "a", "y")
    assert ((folder / "a").stat().st_uid, (folder / "a").stat().st_gid) == (1234, 1235)


def test_a_file_whose_owner_cannot_be_kept_is_written_all_the_same(workspace, folder, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "chown", refuse)
    (folder / "a").write_text("x")
    write(workspace, "a", "y")
    assert (folder / "a").read_text() == "y"


def test_the_same_content_is_not_written_again(workspace, folder):
    (folder / "a").write_text("x")
    before = (folder / "a").stat()
    assert write(workspace, "a", "x", agent=Agent()) == '"a" has just this content already'
    assert (folder / "a").stat() == before


def test_a_symlink_inside_stays_one_and_its_target_is_written(workspace, folder):
    (folder / "real").write_text("x")
    (folder / "link").symlink_to("real")
    (folder / "nothing").symlink_to("sub/new")
    assert write(workspace, "link", "y") == 'wrote "real": 1 lines, 1 bytes'
    assert write(workspace, "nothing", "z") == 'created "sub/new": 1 lines, 1 bytes'
    assert (folder / "link").is_symlink()
    assert ((folder / "real").read_text(), (folder / "sub/new").read_text()) == ("y", "z")


@pytest.mark.parametrize(
    "path", ["../x", "up/x", "up/deep/er/x", "file", "gone", "a/../../x", "/etc/creche-x", "chain"]
)
def test_what_leads_outside_is_refused_for_writing_whether_it_exists_or_not(workspace, folder, path):
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s")
    (folder / "up").symlink_to("../outside")
    (folder / "file").symlink_to("../outside/secret")
    (folder / "gone").symlink_to("../outside/gone")
    (folder / "chain").symlink_to("gone")
    sentence = f'"{path}" is outside of the folder "{folder}"; give a path inside it'
    assert refusal(write, workspace, path, "x") == sentence
    assert refusal(edit, workspace, path, "s", "x") == sentence
    assert names(outside) == ["secret"]
    assert (outside / "secret").read_text() == "s"


@given(
    links=st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["..", "../out", "b", "a/..", "a/../..", "/", "c/x", "sub"]))
    ),
    parts=st.lists(st.sampled_from(["a", "b", "c", "sub", "..", ".", "x", ""]), min_size=1, max_size=6),
    absolute=st.booleans(),
)
@example(links=[("a", "a/.."), ("b", "..")], parts=["a", "b", "a"], absolute=False)
@MODEST
def test_no_path_writes_outside_of_the_folder(tmp_path_factory, links, parts, absolute):
    """Rule: whatever the symlinks and the path are, the outside stays as it was, and what is written is inside."""
    base = tmp_path_factory.mktemp("base")
    folder = base / "root"
    (folder / "sub").mkdir(parents=True)
    (base / "out").mkdir()
    (base / "out" / "x").write_text("outside")
    for name, target in links:
        with contextlib.suppress(FileExistsError):
            (folder / name).symlink_to(target)
    path = "/".join(parts)
    before = names(base / "out") + sorted(os.listdir(base))
    with contextlib.suppress(ToolError):
        write(Workspace(folder), f"{folder}/{path}" if absolute else path, "written")
        written = [path for path in folder.rglob("*") if path.is_file() and path.read_text() == "written"]
        assert written
    assert names(base / "out") + sorted(os.listdir(base)) == before
    assert (base / "out" / "x").read_text() == "outside"
    assert not os.path.lexists("/x")


def test_only_files_are_written(workspace, folder):
    (folder / "sub").mkdir()
    (folder / "file").write_text("x")
    os.mkfifo(folder / "fifo")
    (folder / "loop").symlink_to("loop")
    for path in ("sub", str(folder)):
        assert refusal(write, workspace, path, "x").endswith("is a folder")
    assert refusal(edit, workspace, "sub", "x", "y") == '"sub" is a folder'
    for path in ("fifo", "loop"):
        sentence = f'"{path}" is not a regular file, and only those are written'
        assert refusal(write, workspace, path, "x") == refusal(edit, workspace, path, "x", "y") == sentence
    assert refusal(write, workspace, "file/x", "x") == '"file/x" does not exist: a part of it is not a folder'
    assert refusal(edit, workspace, "gone", "x", "y") == '"gone" does not exist'
    assert names(folder) == ["fifo", "file", "loop", "sub"]


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("q/", "q/"),
        ('"q/"', "q/"),
        ("q/.", "q/."),
        ("q/./", "q/./"),
        ("q/..", "q/.."),
        ("q/r/..", "q/r/.."),
        ("file/.", "file/."),
        ("file/", "file/"),
        (".", "."),
        ("", ""),
    ],
)
def test_a_path_that_ends_as_those_of_folders_do_is_not_written(workspace, folder, path, shown):
    (folder / "file").write_text("old")
    sentence = f'"{shown}" means a folder; give the path of a file'
    assert refusal(write, workspace, path, "x") == sentence
    assert names(folder) == ["file"]
    assert (folder / "file").read_text() == "old"


def test_a_device_is_not_written():
    assert refusal(write, Workspace("/dev"), "null", "x") == '"null" is not a regular file, and only those are written'


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("a\0b", '"a\\u0000b" is not a path: it has a NUL character in it'),
        ("a\ud800", '"a\\ud800" is not a path: it has a character in it that no file name can have'),
        ("x/" * 2100 + "y", f'"{"x/" * 100}"... is not a path: it has 4201 bytes, 4096 are the most'),
        ("x" * 300, f'"{"x" * 200}"... cannot be read: File name too long'),
        ("gone/" + "x" * 300, f'"gone/{"x" * 300}" cannot be written: File name too long'),
    ],
)
def test_what_is_no_path_is_one_sentence(workspace, path, sentence):
    assert refusal(write, workspace, path, "x") == sentence


def test_a_path_may_be_given_as_it_is_shown(workspace, folder):
    write(workspace, '"a b"', "x")
    (folder / '"q"').write_text("x")
    write(workspace, '"q"', "y")
    edit(workspace, '"a b"', "x", "z")
    assert names(folder) == ['"q"', "a b"]
    assert ((folder / "a b").read_text(), (folder / '"q"').read_text()) == ("z", "y")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("one\ntw\0o", "has a NUL character in line 2, and only text is written"),
        ("\n\n\ud800", "has half of a surrogate pair in line 3, which is no character"),
        ("\udce9", "has half of a surrogate pair in line 1, which is no character"),
    ],
)
def test_what_is_no_text_is_not_written(workspace, folder, text, what):
    (folder / "a").write_text("x")
    assert refusal(write, workspace, "a", text) == f"content {what}"
    assert refusal(edit, workspace, "a", "x", text) == f"new {what}"
    assert refusal(edit, workspace, "a", text, "x") == f"old {what}"


def test_a_large_content_is_written_and_a_larger_one_refused(workspace, folder, monkeypatch):
    content = "0123456789abcde\n" * (5 << 16)
    assert write(workspace, "a", content) == 'created "a": 327680 lines, 5242880 bytes'
    assert (folder / "a").read_text() == content
    assert refusal(edit, workspace, "a", "e\n", "f\n").startswith('old occurs more than 100000 times in "a"; ')
    monkeypatch.setattr(_write, "LARGEST", 10)
    assert refusal(write, workspace, "b", "é" * 6) == "content has 12 bytes, and 10 are the most"


def test_a_larger_file_is_neither_edited_nor_written_over(workspace, folder, monkeypatch):
    monkeypatch.setattr(_store, "LARGEST", 3)
    monkeypatch.setattr(_edit, "LARGEST", 3)
    (folder / "a").write_text("abcd")
    (folder / "b").write_text("abc")
    sentence = '"a" has 4 bytes, and at most 3 can be rewritten'
    assert refusal(write, workspace, "a", "x") == refusal(edit, workspace, "a", "a", "b") == sentence
    assert refusal(edit, workspace, "b", "a", "xx") == '"b" would have 4 bytes, and 3 are the most'


def test_a_file_that_may_not_be_written_is_left_alone(workspace, folder, monkeypatch):
    (folder / "a").write_text("x")
    monkeypatch.setattr(os, "access", lambda _path, mode: mode != os.W_OK)
    sentence = '"a" cannot be written: Permission denied'
    assert refusal(write, workspace, "a", "y") == refusal(edit, workspace, "a", "x", "y") == sentence


@pytest.mark.parametrize("function", ["mkdir", "open", "replace"])
def test_what_the_system_refuses_is_one_sentence_and_leaves_nothing(workspace, folder, monkeypatch, function):
    def refuse(*_args, **_options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, function, refuse)
    assert refusal(write, workspace, "b/c/a", "x") == '"b/c/a" cannot be written: No space left on device'
    monkeypatch.undo()
    assert names(folder) == []


@pytest.mark.parametrize("path", [f"b/c/{'x' * 300}", f"b/{'x' * 300}/a"])
def test_a_name_that_is_too_long_leaves_no_folder(workspace, folder, path):
    assert refusal(write, workspace, path, "x").endswith(" cannot be written: File name too long")
    assert names(folder) == []


def test_a_folder_that_somebody_else_uses_by_now_stays(workspace, folder, monkeypatch):
    def refuse(*_):
        (folder / "b/theirs").write_text("")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    refusal(write, workspace, "b/c/a", "x")
    assert names(folder) == ["b", "b/theirs"]


@pytest.mark.parametrize("theirs", ["write_text", "mkdir"])
def test_a_folder_that_is_there_by_now_is_used_if_it_is_one(workspace, folder, monkeypatch, theirs):
    original = os.mkdir

    def late(path):
        monkeypatch.undo()
        getattr(folder / "sub", theirs)(*[""] * (theirs == "write_text"))
        original(path)

    monkeypatch.setattr(os, "mkdir", late)
    if theirs == "mkdir":
        assert write(workspace, "sub/a", "x") == 'created "sub/a": 1 lines, 1 bytes'
    else:
        sentence = '"sub/a" cannot be written: a part of its path is not a folder'
        assert refusal(write, workspace, "sub/a", "x") == sentence
        assert names(folder) == ["sub"]


def test_a_folder_of_all_that_is_gone_is_one_sentence(workspace, folder):
    folder.rmdir()
    assert refusal(write, workspace, "b/a", "x") == '"b/a" cannot be written: No such file or directory'


@pytest.mark.parametrize("work", [write, edit])
def test_a_file_that_cannot_be_read_is_one_sentence(workspace, folder, monkeypatch, work):
    (folder / "a").write_text("x")

    def refuse(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(_store, "open_regular", refuse)
    arguments = ("y",) if work is write else ("x", "y")
    assert refusal(work, workspace, "a", *arguments) == '"a" cannot be read: Input/output error'
    monkeypatch.setattr(_store, "open_regular", lambda _: io.BytesIO(b"x"))  # which is nothing that has a status
    assert refusal(work, workspace, "a", *arguments) == '"a" cannot be read: fileno'


# ---------------------------------------------------------------- what an agent knows


@pytest.fixture
def tools(folder):
    return {tool.name: tool for tool in files(folder, write=True).setup if isinstance(tool, Tool)}


def call(tool, agent, **arguments):
    context = ToolContext(agent, registry=None, call_id="c", name="", number=1)
    return tool(**tool.binder.bind(arguments), context=context)


def test_an_agent_writes_over_a_file_only_after_reading_it(tools, folder):
    one, other = Agent(), Agent()
    (folder / "a").write_text("x\n")
    unread = '"a" exists and you have not read it; read it before you write over it'
    assert refusal(call, tools["write"], one, path="a", content="y") == unread
    call(tools["read"], one, path="a")
    assert refusal(call, tools["write"], other, path="a", content="y") == unread
    assert call(tools["write"], one, path="a", content="y") == 'wrote "a": 1 lines, 1 bytes'
    assert call(tools["write"], one, path="a", content="z") == 'wrote "a": 1 lines, 1 bytes'


def test_a_file_that_changed_since_has_to_be_read_again(tools, folder):
    agent = Agent()
    (folder / "a").write_text("x")
    call(tools["read"], agent, path="a")
    (folder / "a").write_text("y")  # as long, and perhaps at the same time by the clock of the file system
    changed = '"a" has changed since you read it; read it again before you write over it'
    assert refusal(call, tools["write"], agent, path="a", content="z") == changed
    call(tools["read"], agent, path="a")
    os.utime(folder / "a", (0, 0))
    call(tools["write"], agent, path="a", content="z")
    assert (folder / "a").read_text() == "z"


def test_an_edit_needs_no_reading_and_gives_no_knowledge_of_the_rest(tools, folder):
    agent = Agent()
    (folder / "a").write_text("x\ny\n")
    call(tools["edit"], agent, path="a", old="x", new="z")
    assert "have not read it" in refusal(call, tools["write"], agent, path="a", content="")
    call(tools["read"], agent, path="a", limit=1)
    call(tools["edit"], agent, path="a", old="z", new="x")
    call(tools["write"], agent, path="a", content="")
    call(tools["write"], agent, path="new", content="1")
    call(tools["write"], agent, path="new", content="2")


def test_a_file_known_by_one_path_is_known_by_all(tools, folder):
    agent = Agent()
    (folder / "a").write_text("x")
    (folder / "link").symlink_to("a")
    call(tools["read"], agent, path="link")
    call(tools["write"], agent, path=str(folder / "a"), content="y")


def test_a_program_knows_what_it_does(tools, folder):
    (folder / "a").write_text("x")
    assert call(tools["read"], None, path="a") == "x"
    call(tools["write"], None, path="a", content="y")
    assert tools["write"](path="a", content="z") == 'wrote "a": 1 lines, 1 bytes'


def test_a_reading_that_failed_gives_no_knowledge(tools, folder):
    agent = Agent()
    (folder / "a").write_bytes(b"\0")
    refusal(call, tools["read"], agent, path="a")
    assert "have not read it" in refusal(call, tools["write"], agent, path="a", content="y")


def test_what_a_dead_agent_knew_is_forgotten():
    readings, agent = Readings(), Agent()
    readings.note(agent, "/a", b"1")
    assert readings.knows(agent, "/a", b"1")
    del agent
    gc.collect()
    assert len(readings._known) == 0


def test_the_first_of_too_many_files_is_forgotten(monkeypatch):
    monkeypatch.setattr(_readings, "MOST_KNOWN", 2)
    readings, agent = Readings(), Agent()
    for real in ("/a", "/b", "/a", "/c"):
        readings.note(agent, real, b"1")
    assert [readings.knows(agent, real, b"1") for real in ("/a", "/b", "/c")] == [True, False, True]
    readings.note(agent, "/d", None)
    assert readings.knows(agent, "/a", b"1")


def test_only_what_could_be_written_has_a_digest(folder, monkeypatch):
    monkeypatch.setattr(_readings, "LARGEST", 3)
    (folder / "a").write_text("abc")
    (folder / "b").write_text("abcd")
    assert digest_of_file(str(folder / "a"), lambda: None) == digest_of(b"abc")
    assert [digest_of_file(str(folder / name), lambda: None) for name in (".", "b", "gone")] == [None] * 3


# ---------------------------------------------------------------- edit


def test_a_text_is_replaced_where_it_stands_once(workspace, folder):
    (folder / "a").write_text("1\n2\n3\n4\nfive\n6\n7\n8\n9\n")
    assert edit(workspace, "a", "five", "5") == 'edited "a" at line 5\n3: 3\n4: 4\n5: 5\n6: 6\n7: 7'
    assert (folder / "a").read_text() == "1\n2\n3\n4\n5\n6\n7\n8\n9\n"
    assert names(folder) == ["a"]


@pytest.mark.parametrize(
    ("before", "old", "new", "shown"),
    [
        ("x", "x", "", ""),
        ("x\n", "x", "y", "\n1: y"),
        ("a\nx\n", "a\nx\n", "", ""),
        ("x" * 300, "x" * 300, "y" * 300, f"\n1: {'y' * 199}…"),
        ("a", "a", "\n".join("123456789"), "\n1: 1\n2: 2\n3: 3\n4: 4\n[1 more lines]\n6: 6\n7: 7\n8: 8\n9: 9"),
    ],
)
def test_the_answer_shows_the_lines_of_the_change(workspace, folder, *, before, old, new, shown):
    (folder / "a").write_text(before)
    assert edit(workspace, "a", old, new) == f'edited "a" at line 1{shown}'


def test_a_text_that_stands_more_than_once_is_said_with_its_lines(workspace, folder):
    (folder / "a").write_text("x\n\nx x\n")
    assert refusal(edit, workspace, "a", "x", "y") == (
        'old occurs 3 times in "a", at lines 1, 3 and 3; '
        "give more of the text around the one that is meant, or set replace_all"
    )
    assert edit(workspace, "a", "x", "yy", replace_all=True).startswith(
        'edited "a" 3 times, at lines 1, 3 and 3\n1: yy'
    )
    assert (folder / "a").read_text() == "yy\n\nyy yy\n"


def test_a_text_that_overlaps_itself_stands_more_than_once(workspace, folder):
    (folder / "a").write_text("aaa")
    assert refusal(edit, workspace, "a", "aa", "b").startswith('old occurs 2 times in "a", at lines 1 and 1;')
    edit(workspace, "a", "aa", "b", replace_all=True)
    assert (folder / "a").read_text() == "ba"


def test_too_many_places_are_refused(workspace, folder, monkeypatch):
    monkeypatch.setattr(_places, "MOST_PLACES", 2)
    monkeypatch.setattr(_edit, "MOST_PLACES", 2)
    (folder / "a").write_text("xxx")
    assert refusal(edit, workspace, "a", "x", "y", replace_all=True) == (
        'old occurs more than 2 times in "a"; give more of the text around it'
    )


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ([3], "line 3"),
        ([3, 5], "lines 3 and 5"),
        (list(range(1, 11)), "lines 1, 2, 3, 4, 5, 6, 7, 8, 9 and 10"),
        (list(range(1, 15)), "lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 4 more"),
    ],
)
def test_many_lines_are_named_in_a_short_sentence(lines, named):
    assert lines_named(lines) == named


@pytest.mark.parametrize(
    ("content", "old", "new", "hint"),
    [
        ("a\n\tif x:\n", "    if x:", "y", "line 2 would fit but for white space; copy it exactly"),
        ("a\n if  x:\n\n   y\nz", "if x:\n  y", "y", "lines 2 to 4 would fit but for white space; copy it exactly"),
        ("a\nb\n", "a \nb", "y", "lines 1 to 2 would fit but for white space; copy it exactly"),
        ("a\nnew\n", "old", "new", "the new text is there already, at line 2"),
        ("a\n  if x:\n", "    if x:", "  if x:", "the new text is there already, at line 2"),
        ("a\n\n  b\n", "a\nb\n", "a\n\n  b\n", "the new text is there already, at line 1"),
        ("a\nx\nb\nx\nc", "x\nd", "y", "its first line is there, at lines 2 and 4, and what follows differs"),
        (b"caf\xe9", "caf\ufffd", "y", "a replacement character stands for bytes that are not UTF-8, so choose a text"),
        ("a", "b", "c", "read the file and copy the text exactly"),
        ("a", "   ", "c", "read the file and copy the text exactly"),
        ("", "b\nc", "", "read the file and copy the text exactly"),
    ],
)
def test_where_a_missing_text_almost_stands_is_said(workspace, folder, *, content, old, new, hint):
    (folder / "a").write_bytes(content if isinstance(content, bytes) else content.encode())
    assert refusal(edit, workspace, "a", old, new).startswith(f'old does not occur in "a"; {hint}')


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("", "x", "old is empty; give the text that is replaced, or use write for a new file"),
        ("x", "x", "old and new are the same text; line ends are kept as they are in the file"),
        ("x\n", "x\r\n", "old and new are the same text; line ends are kept as they are in the file"),
        ("\ufeff", "x", "old is nothing but a byte order mark, which is kept as it is"),
    ],
)
def test_an_edit_of_nothing_is_refused(workspace, folder, old, new, sentence):
    (folder / "a").write_text("\ufeffx\n")
    assert refusal(edit, workspace, "a", old, new) == sentence


def test_a_binary_file_is_not_edited_but_written_over(workspace, folder):
    (folder / "a").write_bytes(b"x\0")
    assert refusal(edit, workspace, "a", "x", "y") == '"a" is a binary file, and only text is edited'
    assert write(workspace, "a", "y") == 'wrote "a": 1 lines, 1 bytes'


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc", "a\nb", "x\ny\nz", b"x\r\ny\r\nz\r\nc"),
        (b"a\r\nb\r\n", "a\r\nb\r\n", "x\r\n", b"x\r\n"),
        (b"a\nb\n", "a\r\nb", "x\r\ny", b"x\ny\n"),
        (b"a\r\nb\nc\n", "a\nb\nc", "x\ny\nz", b"x\r\ny\nz\n"),
        (b"a\r\nb\nc\n", "b", "x\ny", b"a\r\nx\ny\nc\n"),
        (b"a\r\nb\r\nc\n", "c", "x\ny", b"a\r\nb\r\nx\r\ny\n"),
        (b"a\r\nb\r\n", "\nb", "b", b"ab\r\n"),
        (b"a\r\r\nb\rc\r\n", "b", "x", b"a\r\r\nx\rc\r\n"),
        (b"\xef\xbb\xbfa\nb", "a\n", "", b"\xef\xbb\xbfb"),
        (b"\xef\xbb\xbfa\r\n", "\ufeffa", "\ufeffb", b"\xef\xbb\xbfb\r\n"),
        (b"\xff a \xfe\r\n\xfd", "a", "\u00e9", b"\xff \xc3\xa9 \xfe\r\n\xfd"),
        (b"a\r\nb\r", "b", "c", b"a\r\nc\r"),
        (b"a", "a", "b\r\nc", b"b\nc"),
    ],
)
def test_line_ends_and_bytes_are_kept(workspace, folder, *, before, old, new, after):
    (folder / "a").write_bytes(before)
    edit(workspace, "a", old, new)
    assert (folder / "a").read_bytes() == after


SHORT = st.text("ab \n", max_size=12)


@given(text=SHORT, old=SHORT.filter(bool), new=SHORT, replace_all=st.booleans(), end=st.sampled_from(["\n", "\r\n"]))
@example(text="aaa", old="aa", new="", replace_all=False, end="\n")
@MODEST
def test_an_edit_is_a_plain_replacement(tmp_path_factory, *, text, old, new, replace_all, end):
    """Rule: with one kind of line end, an edit does what `str.replace` does where the text stands once, or everywhere."""
    folder = tmp_path_factory.mktemp("edit")
    (folder / "a").write_bytes(text.replace("\n", end).encode())
    count = sum(text.startswith(old, place) for place in range(len(text)))
    if old != new and (count == 1 or (count > 1 and replace_all)):
        edit(Workspace(folder), "a", old.replace("\n", end), new, replace_all=replace_all)
        after = text.replace(old, new)
    else:
        refusal(edit, Workspace(folder), "a", old, new, replace_all=replace_all)
        after = text
    usual = end if "\n" in text else "\n"  # a file of one line has no line end that could be kept
    assert (folder / "a").read_bytes() == after.replace("\n", usual).encode()


@given(content=st.lists(st.sampled_from([b"a", b"b", b"\r", b"\n", b"\r\n", b"\xff", b"\xef\xbb\xbf", b"\xc3\xa9"])))
def test_a_text_comes_back_as_the_bytes_that_it_was(content):
    """Rule: what is not replaced is kept to the byte."""
    raw = b"".join(content)
    text = FileText.of(raw)
    assert text.content() == raw
    assert text.replaced("a", "a", [i for i, char in enumerate(text.text) if char == "a"]).content() == raw


@given(
    head=st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b"\xff"])),
    tail=st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b"\xff"])),
    old=st.text("b\n", min_size=1, max_size=4),
    new=st.text("c\n", max_size=4),
)
def test_what_is_around_a_replacement_is_kept_to_the_byte(head, tail, old, new):
    before, after = b"".join(head), b"".join(tail)
    text = FileText.of(before + b"<" + old.encode() + b">" + after)
    changed = text.replaced(f"<{old}>", f"<{new}>", [text.text.index("<")]).content()
    assert changed.startswith(before + b"<")
    assert changed.endswith(b">" + after)
    assert changed[len(before) :].replace(b"\r\n", b"\n").startswith(f"<{new}>".encode())


# ---------------------------------------------------------------- several at once, and cancelled


def test_a_file_that_changed_meanwhile_is_edited_anew(workspace, folder, monkeypatch):
    """Rule: an edit is made in what is there, never in what was there before."""
    (folder / "a").write_text("one two")
    original = _store._is_still

    def late(real, before):
        if (folder / "a").read_text() == "one two":
            (folder / "a").write_text("ONE two")
        return original(real, before)

    monkeypatch.setattr(_store, "_is_still", late)
    edit(workspace, "a", "two", "TWO")
    assert (folder / "a").read_text() == "ONE TWO"
    assert names(folder) == ["a"]


def test_a_file_that_came_or_went_meanwhile_is_seen(workspace, folder, monkeypatch):
    original, turns = _store._is_still, iter([lambda path: path.write_text("theirs"), lambda path: path.unlink()])

    def late(real, before):
        next(turns, lambda _: None)(folder / "a")
        return original(real, before)

    monkeypatch.setattr(_store, "_is_still", late)
    assert "have not read it" in refusal(write, workspace, "a", "mine", agent=Agent())
    assert (folder / "a").read_text() == "theirs"
    assert write(workspace, "a", "mine") == 'created "a": 1 lines, 4 bytes'


def test_a_file_that_never_rests_is_given_up(workspace, folder, monkeypatch):
    monkeypatch.setattr(_store, "_is_still", lambda *_: False)
    (folder / "a").write_text("x")
    sentence = '"a" was changed by others 20 times meanwhile; nothing was written, try again'
    assert refusal(write, workspace, "a", "y") == refusal(edit, workspace, "a", "x", "y") == sentence
    assert names(folder) == ["a"]


async def test_edits_of_many_agents_at_once_are_all_in_the_file(folder):
    """Rule: two agents never lose each other's work, and nobody sees half a file."""
    tools = {tool.name: tool for tool in files(folder, write=True).setup if isinstance(tool, Tool)}
    lines = [f"line {number} of a file" for number in range(24)]
    (folder / "a").write_text("\n".join(lines))
    seen = set()

    def watch():
        seen.add((folder / "a").read_text().count("\n"))

    async with trio.open_nursery() as nursery:
        for number in range(24):
            arguments = {"path": "a", "old": f"line {number} of", "new": f"LINE {number} of"}
            nursery.start_soon(_edit_stubbornly, tools["edit"], arguments)
            nursery.start_soon(trio.to_thread.run_sync, watch)
    assert (folder / "a").read_text() == "\n".join(lines).replace("line", "LINE")
    assert seen == {23}
    assert names(folder) == ["a"]


async def _edit_stubbornly(tool, arguments):
    while True:
        with contextlib.suppress(ToolRetry):
            await trio.to_thread.run_sync(lambda: call(tool, Agent(), **arguments))
            return


async def test_of_many_agents_that_make_one_file_one_makes_it(folder):
    tools = {tool.name: tool for tool in files(folder, write=True).setup if isinstance(tool, Tool)}
    made, start = [], threading.Barrier(8)

    def make(number):
        start.wait()
        with contextlib.suppress(ToolRetry):
            call(tools["write"], Agent(), path="sub/a", content=str(number))
            made.append(str(number))

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(trio.to_thread.run_sync, make, number)
    assert made == [(folder / "sub/a").read_text()]
    assert names(folder) == ["sub", "sub/a"]


class StopError(Exception):
    pass


@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("exists", [True, False])
def test_work_that_ends_at_any_moment_leaves_a_whole_file_and_nothing_else(folder, monkeypatch, at, exists):
    """Rule: before the last step the old file is there, after it the new one; a new folder comes with its file."""
    monkeypatch.setattr(_store, "CHUNK", 4)
    if exists:
        (folder / "b").mkdir()
        (folder / "b/a").write_text("old")
    moments = iter(range(6))

    def stop():
        if next(moments, at + 1) == at:
            raise StopError

    with contextlib.suppress(StopError):
        write(Workspace(folder, check_cancelled=stop), "b/a", "0123456789")
    stopped = at < 4  # three chunks, and before the last step
    assert names(folder) == (["b", "b/a"] if exists or not stopped else [])
    if exists or not stopped:
        assert (folder / "b/a").read_text() == ("old" if stopped else "0123456789")


async def test_a_cancelled_tool_leaves_the_old_file(folder):
    (folder / "a").write_text("old")

    def work():
        trio.from_thread.run_sync(scope.cancel)
        write(Workspace(folder, check_cancelled=_tools._check_cancelled), "a", "new")

    with trio.CancelScope() as scope:
        await trio.to_thread.run_sync(work)
    assert scope.cancelled_caught
    assert (folder / "a").read_text() == "old"
    assert names(folder) == ["a"]


# ---------------------------------------------------------------- the plugin


def test_tools_that_write_come_on_request_alone(folder):
    assert sorted(tool.name for tool in files(folder).setup if isinstance(tool, Tool)) == [
        "glob",
        "grep",
        "list",
        "read",
    ]
    tools = {tool.name: tool for tool in files(folder, write=True).setup if isinstance(tool, Tool)}
    assert sorted(tools) == ["edit", "glob", "grep", "list", "read", "write"]
    assert [name for name, tool in tools.items() if not tool.parallel] == ["write", "edit"]
    assert [name for name, tool in tools.items() if tool.guidance] == ["write", "edit"]
    assert all("context" not in tool.parameters for tool in tools.values())


def test_the_tools_are_called_with_what_a_model_writes(tools, folder):
    assert call(tools["write"], None, path="a.py", content="x\nx\n") == 'created "a.py": 2 lines, 4 bytes'
    assert call(tools["edit"], None, path="a.py", old="x", new="y", replace_all=True).startswith(
        'edited "a.py" 2 times'
    )
    with pytest.raises(ToolFailed):
        call(tools["write"], None, path="../a.py", content="x")
    assert (folder / "a.py").read_text() == "y\ny\n"


async def test_an_agent_is_told_to_read_first_and_has_the_habits_in_its_prompt(folder):
    """Rule: what one agent has read is nothing that its neighbour knows, through the whole pipeline."""
    (folder / "a").write_text("old")
    prompts = []

    def answer(request):
        prompts.append(request.messages[0].text if request.messages[0].role == "system" else "")
        steps = sum(message.role == "assistant" for message in request.messages)
        if request.agent_path == "reader" and steps == 0:
            return model_call("read", path="a")
        return model_call("write", path="a", content=request.agent_path) if steps < 2 else say("done")

    async with open_host(model=FunctionModel(answer), plugins=[files(folder, write=True)]) as host:
        for name, codes in (("other", ["retry", "retry"]), ("reader", ["", ""])):
            async with host.open_agent(AgentSpec(name)) as agent:
                await agent.ask("Go.")
                assert [record.data.code for record in agent.session.records("tool/result")] == codes
    assert (folder / "a").read_text() == "reader"
    assert all(_tools.WRITE_GUIDANCE in prompt and _tools.EDIT_GUIDANCE in prompt for prompt in prompts)


async def test_an_agent_that_only_reads_has_no_habits_of_writing(folder):
    prompts = []

    def answer(request):
        prompts.append(str(request.messages))
        return say("done")

    async with (
        open_host(model=FunctionModel(answer), plugins=[files(folder, write=True)]) as host,
        host.open_agent(AgentSpec("lead", setup=[restrict(deny=["write", "edit"])])) as agent,
    ):
        await agent.ask("Go.")
    assert "edit" not in prompts[0]

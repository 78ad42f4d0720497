import os

import pytest

from creche.errors import ToolFailed
from creche.plugins.files import _glob, files
from creche.plugins.files._find import find_files
from creche.plugins.files._folder import Workspace
from creche.plugins.files._glob import fits
from creche.tools import Tool


def write(folder, *paths):
    for path in paths:
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("")


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
    return str(caught.value)


def test_files_are_found_by_their_paths_and_sorted(workspace, folder):
    write(folder, "b.py", "a/x.py", "a-b.py", "a/deep/y.py", "a/notes.md", ".git/z.py", "node_modules/z.py")
    assert find_files(workspace, "*.py") == '"a-b.py"\n"a/deep/y.py"\n"a/x.py"\n"b.py"'
    assert find_files(workspace, "a/**/*.py") == '"a/deep/y.py"\n"a/x.py"'
    assert find_files(workspace, "*.rs") == "[no files]"


def test_a_glob_with_a_slash_starts_at_the_folder_that_is_looked_in(workspace, folder):
    write(folder, "src/app/x.py", "src/app/y/z.py", "app/x.py")
    assert find_files(workspace, "app/*.py", "src") == '"src/app/x.py"'
    assert find_files(workspace, "*.py", "src/app") == '"src/app/x.py"\n"src/app/y/z.py"'
    assert find_files(workspace, "./app/*.py") == '"app/x.py"'


def test_folders_are_not_found_and_symlinks_are_not_followed(workspace, folder):
    write(folder, "a.d/b", "c.d")
    (folder / "e.d").symlink_to("a.d")
    assert find_files(workspace, "*.d") == '"c.d"\n"e.d"'
    assert find_files(workspace, "*") == '"a.d/b"\n"c.d"\n"e.d"'


def test_pages_of_files_go_on_after_a_path(workspace, folder):
    write(folder, "a", "b", "c", "d")
    assert find_files(workspace, "[abd]", limit=1) == '"a"\n[2 more; continue with after="a"]'
    assert find_files(workspace, "[abd]", limit=1, after="a") == '"b"\n[1 more; continue with after="b"]'
    assert find_files(workspace, "[abd]", after='"b"') == '"d"'
    assert find_files(workspace, "[abd]", after="d") == "[no more files]"


def test_a_folder_that_cannot_be_read_is_said(workspace, folder, monkeypatch):
    write(folder, "a/x", "b")
    original = os.scandir

    def denied(path):
        if os.fspath(path) == str(folder / "a"):
            raise PermissionError(13, "Permission denied")
        return original(path)

    monkeypatch.setattr(os, "scandir", denied)
    assert find_files(workspace, "b") == '"a/" unreadable Permission denied\n"b"'


def test_what_is_no_folder_and_an_empty_pattern_are_refused(workspace, folder):
    write(folder, "a")
    assert refusal(find_files, workspace, "*", "a") == '"a" is not a folder, and glob looks in one'
    assert refusal(find_files, workspace, "*", "gone") == '"gone" does not exist'
    assert refusal(find_files, workspace, "") == "the pattern is empty; * finds every file"
    assert refusal(find_files, workspace, "*", limit=0) == "limit is 0, and 1 is the least"
    assert "is outside of the folder" in refusal(find_files, workspace, "*", "..")


@pytest.mark.parametrize(
    ("glob", "path", "expected"),
    [
        ("*.{c,h}", "a/x.h", True),
        ("*.{c,h}", "a/x.py", False),
        ("{src,tests}/**/*.{py,pyi}", "tests/a/b.pyi", True),
        ("{src,tests}/**/*.{py,pyi}", "docs/a.py", False),
        ("x{,.bak}", "x", True),
        ("{a,{b,c}}.py", "c.py", True),
        ("{a}.py", "{a}.py", True),
        ("{a}.py", "a.py", False),
        ("{a,b", "{a,b", True),
        ("a,b}", "a,b}", True),
        ("{a/b,c}/d", "a/b/d", True),
    ],
)
def test_braces_stand_for_one_of_several_texts(glob, path, expected):
    assert fits(path, glob) is expected


def test_a_glob_longer_than_any_path_is_refused():
    """Rule: what is read of a glob takes no longer than its length."""
    with pytest.raises(ToolFailed) as caught:
        fits("a", "{" + "," * 100_000)
    assert str(caught.value) == "the glob has 100001 characters, 4096 are the most"
    assert fits("{" + "," * 4095, "{" + "," * 4095)
    assert fits("{,{", "{,{")
    assert fits("{,b", "{,{a,b}")


def test_braces_that_stand_for_too_much_are_refused(monkeypatch):
    sentence = "the braces of the glob stand for more than 200 globs; write a plainer one"
    assert refusal(fits, "a", "{a,b}" * 60) == sentence
    assert fits("x", "{" + ",".join(map(str, range(199))) + ",x}")
    monkeypatch.setattr(_glob, "MOST_ALTERNATIVES", 1)
    assert "more than 1 globs" in refusal(fits, "a", "{q,r}")


def test_the_tool_is_called_with_what_a_model_writes(folder):
    write(folder, "a.py", "sub/b.py")
    (glob,) = [tool for tool in files(folder).setup if isinstance(tool, Tool) and tool.name == "glob"]
    arguments = glob.binder.bind({"pattern": "*.py", "path": ".", "limit": 1, "after": "a.py"})
    assert glob(**arguments) == '"sub/b.py"'

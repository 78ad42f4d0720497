"""Every code block of the README and of the docs is run, and prints what the text below it says.

What a block can ask for is in `docs/_make/doc_blocks.py`.
"""

import json
import os
import shutil
import stat
import sys
import tomllib
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from doc_blocks import REASONS, ROOT, Block, BlockError, commands, matches, plan, read_blocks
from doc_pages import DOCS, PAGES

import creche.testing
from creche import call, say
from creche.cli._app import app
from creche.testing import open_mock_provider

DRAWN = [DOCS / name for name in PAGES]
PAGES_WITH_BLOCKS = [
    page
    for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    if page not in DRAWN and "```" in page.read_text("utf-8")
]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
CUT = "--- the next block ---"


def by_path(page):
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES_WITH_BLOCKS, ids=by_path)
async def test_the_blocks_of_a_page_run_and_print_what_it_says(page, tmp_path):
    """Rule: nothing is skipped but what says why, and a new page is covered by being there."""
    await run_page(page, tmp_path)


async def run_page(page, tmp_path):
    blocks = read_blocks(page)
    runs = plan(blocks)
    folder, binaries = tmp_path / "page", tmp_path / "bin"
    folder.mkdir()
    stand_in_for_pip(binaries)
    for block in blocks:
        if earlier := block.needs.get("with"):
            shutil.copy(ROOT / earlier, folder)
        if name := block.needs.get("file"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with (folder / name).open("a", encoding="utf-8") as file:
                file.write(block.text)
    for run in runs:
        async with environment(run.blocks, tmp_path, binaries) as variables:
            printed = await result_of(run.blocks, tmp_path, folder, variables)
        for block, said, part in zip(run.blocks, run.said, printed.split(f"{CUT}\n"), strict=True):
            if said is not None and not matches(said, part):
                assert (str(block), part) == (str(block), said)


async def result_of(blocks, tmp_path, folder, variables):
    """Run blocks as one program, and return what it prints on stdout and stderr."""
    if blocks[0].language == "console":
        command = ["bash", "-euo", "pipefail", "-c", blocks[0].text]
    else:
        program = tmp_path / ("test_page.py" if "pytest" in blocks[0].needs else "program.py")
        program.write_text(f"\nprint({CUT!r})\n".join([block.text for block in blocks]), "utf-8")
        options = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "-o", "trio_mode=true"]
        command = [sys.executable, "-W", "error", *(options if "pytest" in blocks[0].needs else []), str(program)]
    with trio.fail_after(60):
        done = await trio.run_process(
            command, cwd=folder, env=variables, stdin=b"", capture_stdout=True, stderr=-2, check=False
        )
    printed = done.stdout.decode()
    ends = "well" if done.returncode == 0 else "with an error"
    assert (done.returncode != 0) == ("fails" in blocks[0].needs), f"{blocks[0]} ended {ends}:\n{printed}"
    return printed


@asynccontextmanager
async def environment(blocks, tmp_path, binaries):
    """Yield the variables of a user with no keys and no settings; with an endpoint, if a block needs one."""
    variables = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_BASE_URL"))}
    variables |= {
        "PATH": os.pathsep.join([str(binaries), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "HOME": str(tmp_path),
        "CRECHE_STATE": str(tmp_path / "state"),
        "COLUMNS": "100",
        "NO_COLOR": "1",
    }
    items = [block.needs["endpoint"] for block in blocks if "endpoint" in block.needs]
    if not items:
        yield variables
        return
    script = eval(items[0], vars(creche.testing) | {"say": say, "call": call})
    async with open_mock_provider(script) as mock:
        urls = {"OPENAI_BASE_URL": mock.openai_url, "ANTHROPIC_BASE_URL": mock.anthropic_url}
        yield variables | urls | {"OPENAI_API_KEY": "none", "ANTHROPIC_API_KEY": "none"}
    assert len(mock.requests) == len(script), f"{blocks[0]}: the script of the endpoint was not used up"


def stand_in_for_pip(binaries):
    """Put a `pip` that installs nothing where a shell finds it first; what it was to install is looked at below."""
    binaries.mkdir()
    (binaries / "pip").write_text("#!/bin/sh\n")
    (binaries / "pip").chmod(stat.S_IRWXU)


@pytest.mark.parametrize("page", PAGES_WITH_BLOCKS, ids=by_path)
def test_every_command_of_a_page_is_one(page):
    """Rule: what is not run exists all the same: options of `creche`, extras that are installed."""
    for block in read_blocks(page):
        for name, *words in commands(block.text) if block.language == "console" else ():
            if name == "creche":
                app.parse_args(words, exit_on_error=False, print_error=False)
            elif name == "pip":
                assert unknown_extras(words) == [], str(block)
        if block.language in ("json", "toml"):
            (json if block.language == "json" else tomllib).loads(block.text)


def unknown_extras(words):
    asked = [word.partition("[")[2].rstrip("]").split(",") for word in words if word.startswith((".[", "creche["))]
    return [extra for extras in asked for extra in extras if extra not in EXTRAS]


@pytest.mark.parametrize("page", PAGES_WITH_BLOCKS, ids=by_path)
def test_a_block_that_shows_a_file_of_the_repository_is_up_to_date(page):
    shown = [(block, block.needs["same as"]) for block in read_blocks(page) if "same as" in block.needs]
    assert [str(block) for block, path in shown if block.text not in (ROOT / path).read_text("utf-8")] == []


def test_every_reason_for_not_running_a_block_is_needed():
    given = {block.needs.get("not run") for page in PAGES_WITH_BLOCKS for block in read_blocks(page)}
    assert given - {None} == REASONS


@pytest.mark.parametrize("page", PAGES_WITH_BLOCKS, ids=by_path)
def test_every_file_that_a_page_makes_is_used_by_a_command_below(page):
    blocks = read_blocks(page)
    unused = [
        str(block)
        for number, block in enumerate(blocks)
        if "file" in block.needs
        and not any(block.needs["file"] in later.text for later in blocks[number:] if later.language == "console")
    ]
    assert unused == []


# ---------------------------------------------------------------- the reader of blocks itself


def written(tmp_path, text, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text(text, "utf-8")
    monkeypatch.setattr("doc_blocks.ROOT", tmp_path)
    return page


TEAM = """
<!-- docs: file team.py -->
```python
import trio

from creche import AgentSpec, open_host


async def main():
    async with open_host(model="openai:m") as host, host.open_agent(AgentSpec("lead")) as lead:
        print((await lead.ask("Hello?")).text)


trio.run(main)
```

<!-- docs: endpoint [say("Hello."), say("Who?")] -->
```console
python team.py && creche run "Go." --model openai:m
```

```text
Hello.
...Who?...
```

```python
print("one")
```

```text
one
```

<!-- docs: continues -->
```python
print("two", file=__import__("sys").stderr)
```

```text
two
```
"""


async def test_a_page_runs_in_a_folder_of_its_own_against_an_endpoint(tmp_path, monkeypatch):
    await run_page(written(tmp_path, TEAM, monkeypatch), tmp_path)


PIECES = """
<!-- docs: file second.py -->
```python
from desk_4_presets import DESK
```

<!-- docs: file second.py -->
```python
print(DESK.name)
```

<!-- docs: with examples/desk_4_presets.py -->
```console
python second.py
```

```text
desk
```
"""


async def test_a_file_in_pieces_runs_as_one_beside_a_file_of_an_earlier_page(tmp_path, monkeypatch):
    await run_page(written(tmp_path, PIECES, monkeypatch), tmp_path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("```python\nprint(1)\n```\n```text\n2\n```\n", r"'page.md:1', '1\\n'"),
        ("Text.\n```python\nraise SystemExit(1)\n```\n", "page.md:2 ended with an error:"),
        ("```console\nfalse | cat\n```\n", "page.md:1 ended with an error:"),
        ("<!-- docs: fails -->\n```console\ntrue\n```\n", "page.md:2 ended well:"),
        (
            '<!-- docs: endpoint [say("?")] -->\n```console\ntrue\n```\n',
            "page.md:2: the script of the endpoint was not",
        ),
    ],
)
async def test_a_page_that_says_what_does_not_happen_fails(text, sentence, tmp_path, monkeypatch):
    with pytest.raises(AssertionError, match=sentence):
        await run_page(written(tmp_path, text, monkeypatch), tmp_path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Text.\n\n    indented\n", "page.md:3: this is indented, and so not known to be code; put it between fences"),
        ("```ruby\nx\n```\n", "page.md:1: 'ruby' is not one of console, json, python, text, toml, typescript, yaml"),
        ("```\nx\n```\n", "page.md:1: '' is not one of console, json, python, text, toml, typescript, yaml"),
        ("```yaml\nx\n```\n", "page.md:1: nothing here runs yaml; say why it is not run"),
        ("<!-- docs: sometimes -->\n```python\nx\n```\n", "page.md:2: nobody knows what 'sometimes' means"),
        (
            "<!-- docs: not run: lazy -->\n\n```python\nx\n```\n",
            "page.md:3: 'lazy' is not one of the reasons for not running a block",
        ),
        (
            "<!-- docs: continues -->\n\nText.\n\n```python\nx\n```\n",
            "page.md: <!-- docs: continues --> does not stand directly above a block",
        ),
        ("```python\nif\n```\n", "page.md:1: invalid syntax (<unknown>, line 1)"),
    ],
)
def test_a_block_that_no_rule_fits_is_refused(text, sentence, tmp_path, monkeypatch):
    with pytest.raises(BlockError) as caught:
        read_blocks(written(tmp_path, text, monkeypatch))
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("```text\nx\n```\n", "page.md:1: nothing is run directly above it, so nothing prints this"),
        (
            "<!-- docs: not run: it asks a provider -->\n```python\nx\n```\n```text\nx\n```\n",
            "page.md:5: nothing is run directly above it, so nothing prints this",
        ),
        ("<!-- docs: continues -->\n```python\nx\n```\n", "page.md:2: there is no program that it could continue"),
    ],
)
def test_a_block_that_cannot_be_run_is_refused(text, sentence, tmp_path, monkeypatch):
    blocks = read_blocks(written(tmp_path, text, monkeypatch))
    with pytest.raises(BlockError) as caught:
        plan(blocks)
    assert str(caught.value) == sentence


def test_a_block_is_passed_over_where_its_package_is_not(tmp_path, monkeypatch):
    text = "<!-- docs: needs {} -->\n```python\nx\n```\n```text\ny\n```\n"
    assert plan(read_blocks(written(tmp_path, text.format("no_such_package"), monkeypatch))) == []
    (run,) = plan(read_blocks(written(tmp_path, text.format("creche"), monkeypatch)))
    assert run.said == ["y\n"]


def test_a_block_that_continues_another_is_run_with_it(tmp_path, monkeypatch):
    text = "```python\nx = 1\n```\n```text\na\n```\n<!-- docs: continues -->\n```python\ny\n```\n```text\nb\n```\n"
    (run,) = plan(read_blocks(written(tmp_path, text, monkeypatch)))
    assert ([block.text for block in run.blocks], run.said) == (["x = 1\n", "y\n"], ["a\n", "b\n"])


def test_commands_are_found_in_what_a_shell_runs():
    text = "KEY=1 creche run 'a | b' \\\n  --json | cat && pip install '.[x]' > log\n"
    assert list(commands(text)) == [
        ["creche", "run", "a | b", "--json"],
        ["cat"],
        ["pip", "install", ".[x]", ">", "log"],
    ]


def test_three_dots_stand_for_anything():
    assert matches("a ... c\n", "a b\nb c\n")
    assert not matches("a ... c\n", "a b\n")
    assert not matches("a.c\n", "abc\n")


def test_a_block_says_where_it_is():
    assert str(Block(page=ROOT / "README.md", line=3, language="text", text="")) == "README.md:3"

"""The code blocks of the docs: read from the pages, and run as a reader would.

Rule 1: what a page has is run, in order, in one folder of the page. A ``python`` block is a program of its own, a ``console``
block is given to a shell, and a ``text`` block is what the block above it prints, where ``...`` stands for anything.
Rule 2: what a block needs besides is said in a comment above it, which a reader does not see:

- ``<!-- docs: continues -->`` it is the rest of the program above it;
- ``<!-- docs: pytest -->`` it is a file of tests;
- ``<!-- docs: fails -->`` it ends with an error, as the page says;
- ``<!-- docs: file NAME -->`` it is the file NAME in the folder of the page, for the blocks below, which run it; several
  of them are one file, in order;
- ``<!-- docs: with PATH -->`` the file of that path in the repository is in the folder, for an earlier page has made it;
- ``<!-- docs: same as PATH -->`` it is the file of that path in the repository, whose own tests run it, or some of its lines;
- ``<!-- docs: endpoint [ITEMS] -->`` a mock provider, whose script is ITEMS, is where OpenAI and Anthropic are;
- ``<!-- docs: needs PACKAGE -->`` it is run where PACKAGE can be imported, and passed over elsewhere;
- ``<!-- docs: not run: REASON -->`` it is looked at and not run; the reasons are those of `REASONS`.

Rule 3: a block that none of this fits is an error.
"""

import ast
import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import attrs
from doc_pages import DOCS
from markdown_it import MarkdownIt

ROOT = DOCS.parent
LANGUAGES = {"python", "console", "text", "toml", "json", "typescript", "yaml"}
NEVER_RUN = {"typescript", "yaml"}
REASONS = {
    "it asks a provider",
    "it installs from a clone",
    "it is a measurement of one machine",
    "it runs in DeepSeek Harness",
    "its tests are the whole suite",
    "its own tests run it in a server or a notebook",
}
COMMENT = re.compile(r"<!-- docs: (.*?) -->", re.DOTALL)
NEEDS = re.compile(r"(continues|pytest|fails|file|with|same as|endpoint|needs|not run:)(?: (.*))?", re.DOTALL)


@attrs.frozen(kw_only=True)
class Block:
    """One code block."""

    page: Path
    """The page it stands on."""
    line: int
    """The line where it begins."""
    language: str
    """What the fence says it is."""
    text: str
    """What is in it."""
    needs: dict[str, str] = attrs.field(factory=dict)
    """What the comments above it say: a word, and what comes after it."""

    def __str__(self) -> str:
        """Return where it is, for messages."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


class BlockError(Exception):
    """A block is not as the rules have it."""


def read_blocks(page: Path) -> list[Block]:
    """Return the blocks of a page, in order.

    Raises:
      BlockError: Something in the page is neither run nor excused.
    """
    blocks, said = [], ""
    for token in MarkdownIt("commonmark").parse(page.read_text("utf-8")):
        if token.type == "html_block":
            said += token.content
        elif token.type in ("fence", "code_block"):
            line = token.map[0] + 1 if token.map else 0
            block = Block(
                page=page, line=line, language=token.info.strip(), text=token.content, needs=_needs(said, page, line)
            )
            if token.type == "code_block":
                raise BlockError(f"{block}: this is indented, and so not known to be code; put it between fences")
            _check(block)
            blocks.append(block)
            said = ""
        elif "docs:" in said and token.type.endswith("_open"):
            raise BlockError(f"{page.relative_to(ROOT)}: {said.strip()} does not stand directly above a block")
    return blocks


def _needs(said: str, page: Path, line: int) -> dict[str, str]:
    needs = {}
    for comment in COMMENT.findall(said):
        found = NEEDS.fullmatch(comment)
        if found is None:
            raise BlockError(f"{page.relative_to(ROOT)}:{line}: nobody knows what {comment!r} means")
        needs[found[1].removesuffix(":")] = found[2] or ""
    return needs


def _check(block: Block) -> None:
    if block.language not in LANGUAGES:
        raise BlockError(f"{block}: {block.language!r} is not one of {', '.join(sorted(LANGUAGES))}")
    if block.needs.get("not run", next(iter(REASONS))) not in REASONS:
        raise BlockError(f"{block}: {block.needs['not run']!r} is not one of the reasons for not running a block")
    if block.language in NEVER_RUN and "not run" not in block.needs:
        raise BlockError(f"{block}: nothing here runs {block.language}; say why it is not run")
    if block.language == "python":
        try:
            ast.parse(block.text)
        except SyntaxError as error:
            raise BlockError(f"{block}: {error}") from None


def commands(text: str) -> Iterator[list[str]]:
    """Yield the simple commands of a shell script, without their redirections and assignments."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        command: list[str] = []
        for word in [*lexer, ";"]:
            if word in ("&&", "||", "|", ";", "&"):
                if command:
                    yield command
                command = []
            elif command or not re.fullmatch(r"[A-Z_]+=.*", word):
                command.append(word)


# ---------------------------------------------------------------- what is run


@attrs.frozen(kw_only=True)
class Run:
    """Blocks that are run at once, and what each of them is to print."""

    blocks: list[Block]
    """One, or a program and what continues it."""
    said: list[str | None]
    """What the text below each says that it prints; ``None`` if nothing is said."""


def plan(blocks: list[Block]) -> list[Run]:
    """Return what is to be run of a page, in order.

    Raises:
      BlockError: A text is not what something prints, or something continues nothing.
    """
    runs: list[Run] = []
    before: Block | None = None
    for block in blocks:
        if block.language == "text":
            if "not run" not in block.needs:
                _say(block, before, runs)
        elif "continues" in block.needs:
            if before is None or not runs or runs[-1].blocks[-1].language != "python":
                raise BlockError(f"{block}: there is no program that it could continue")
            runs[-1].blocks.append(block)
            runs[-1].said.append(None)
        elif block.language in ("python", "console") and not {"not run", "same as", "file"} & block.needs.keys():
            runs.append(Run(blocks=[block], said=[None]))
        before = block
    return [run for run in runs if all(_is_there(block.needs.get("needs")) for block in run.blocks)]


def _say(block: Block, before: Block | None, runs: list[Run]) -> None:
    if before is None or not runs or runs[-1].blocks[-1] is not before:
        raise BlockError(f"{block}: nothing is run directly above it, so nothing prints this")
    runs[-1].said[-1] = block.text


def _is_there(package: str | None) -> bool:
    return package is None or importlib.util.find_spec(package) is not None


def matches(said: str, printed: str) -> bool:
    """Return whether something printed is what was said, where ``...`` stands for anything."""
    pattern = ".*".join([re.escape(part) for part in said.split("...")])
    return re.fullmatch(pattern, printed, flags=re.DOTALL) is not None

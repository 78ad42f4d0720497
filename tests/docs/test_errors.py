"""The page of errors and the code have the same messages, and each has a cause and a cure."""

import ast
import re
from collections import Counter

import pytest
from doc_errors import NEW, PAGE, TITLES, bring_up_to_date, key_of, read_page, title_of
from doc_messages import MAKERS, NOT_MET, SHOWN_AS, Message, Reader
from doc_names import HOMES, ROOMS
from doc_trees import name_of

READER = Reader()
MESSAGES = READER.messages()
TEXT = PAGE.read_text("utf-8")
GROUPS = read_page(TEXT)[1]
ENTRIES = [(key_of(group.room, template), raised) for group in GROUPS for template, raised in group.entries]


def test_every_message_of_the_code_is_explained():
    """Rule: ``python docs/_make/doc_errors.py`` writes what is missing, to be explained by hand."""
    explained = {key for key, _ in ENTRIES}
    missing = [m for m in MESSAGES if key_of(title_of(m.room), m.template) not in explained]
    assert [f"{message.place}: {message.template}" for message in missing] == []


def test_every_message_of_the_page_is_in_the_code():
    found = {key_of(title_of(message.room), message.template) for message in MESSAGES}
    assert [key for key, _ in ENTRIES if key not in found] == []


def test_the_page_says_how_each_message_is_met():
    met = {key_of(title_of(message.room), message.template): message.raised for message in MESSAGES}
    assert [(key, raised) for key, raised in ENTRIES if met.get(key, raised) != raised] == []


def test_a_message_stands_in_one_place():
    assert [key for key, number in Counter(key for key, _ in ENTRIES).items() if number > 1] == []


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: f"{group.room}: {group.title}")
def test_every_group_has_messages_a_cause_and_a_cure(group):
    text = "\n".join(group.text)
    assert group.entries
    assert group.title != NEW, "give it a title, a cause and a cure"
    assert re.search(r"^\*\*Cause\.\*\* \S", text, re.MULTILINE)
    assert re.search(r"^\*\*Cure\.\*\* \S", text, re.MULTILINE)


def test_a_heading_is_a_room():
    rooms = {title_of(message.room) for message in MESSAGES}
    assert {group.room for group in GROUPS} == rooms
    assert rooms - set(TITLES.values()) <= set(ROOMS)


def test_how_a_message_is_met_is_a_public_class_or_a_place():
    """Rule: an exception that does not leave its room is told as what becomes of it."""
    private = {name for name, cls in READER.errors.items() if cls is not None} - set(HOMES)
    assert {raised for _, raised in ENTRIES} & private == set()
    assert {name for name in SHOWN_AS if name not in READER.errors} == set()


def test_every_exception_to_the_rules_is_needed():
    assert NOT_MET.keys() - READER.left_out == set()


NOT_READ = {
    "IterableValidationError": "of cattrs; what is told are the errors in it",
    "kind": "of a program: an argument of a tool is no JSON",
    "": "the sentence of another validator, with 'or None' in it",
}
"""What is raised by a name that is no class, and so is not on the page."""


def test_everything_that_is_raised_is_read():
    raised = {
        name_of(node.exc.func)
        for module in READER.modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
    }
    assert raised - READER.errors.keys() - MAKERS.keys() - READER.functions.keys() == NOT_READ.keys()


UNREAD = {
    "cli/_app.py: the command line(f'{ended.sentence}. {progress.where}')": "of the error that ended it",
    "cli/_app.py: the command line(str(wrong))": "of a `WrongUsage`",
    "cli/_chat.py: the command line(str(wrong))": "of a `WrongUsage`",
    "cli/_editor.py: RuntimeError(str(context['message']))": "of asyncio",
    "cli/_lines.py: the command line(str(wrong))": "of a `WrongUsage`",
    "cli/_options.py: PermissionError(errno.EACCES)": "of the system, told in 'cannot keep a log'",
    "cli/_prompt.py: WrongUsage(str(error))": "of a `NotRegisteredError`",
    "cli/_prompt.py: the command line(' '.join(ended.sentence.split()))": "of the error that ended it",
    "cli/_run.py: the command line(str(wrong))": "of a `WrongUsage`",
    "cli/_users.py: UserCodeFailed('; '.join(map(_text, leaves)))": "of the errors of the host",
    "cli/_history.py: OSError(errno.EINVAL)": "of ours, in place of what the system says of a history; the page names it by hand",
    "codemode/_bubblewrap/_child.py: KeyError(str(error))": "of the `AttributeError` for the same name",
    "codemode/_bubblewrap/_child.py: ToolCallError(reply['error'])": "of the result of a call",
    "codemode/_bubblewrap/_program.py: the end of a program(clean_text(message)[:_LONGEST_MESSAGE])": (
        "of Python in the sandbox; of ours are 'is nested more than' and 'is no JSON'"
    ),
    "codemode/_bubblewrap/_serve.py: the end of a program(str(error))": "of a `PluginError`",
    "codemode/_monty/_serve.py: _NotStartedError(_killed("
    "'the process that ends the others is gone; serve the runtime again'))": "carries the end of a program, read there",
    "codemode/_monty/_serve.py: _NotStartedError(_killed(f'no process could be started: {error}'))": (
        "carries the end of a program, read there"
    ),
    "codemode/_run_code.py: ToolFailed(outcome.reason)": "of the result of a call",
    "codemode/_run_code.py: ToolFailed(reason)": "of an `AgentError`",
    "codemode/_run_code.py: ToolFailed(str(error))": "of a `StoreError`",
    "models/_items.py: ModelError(self.message)": "of the user: `fail(message)`",
    "models/adapters/_local_reader.py: ModelError(f'{text}{hint}')": "of llama.cpp",
    "scope/_dispatch.py: ModelError(owner.name)": "a line of a logger",
    "session/_codec.py: CorruptLogError('; '.join([f\"{path.lstrip('.') or 'the line'}: {what}\" "
    "for what, _, path in problems]))": "of the errors that cattrs collects",
    "session/_codec.py: CorruptLogError(str(_WrongValueError('an object', found)))": "of a `_WrongValueError`",
    "session/_jsonl.py: OSError(errno.EIO)": "as the next one",
    "session/_jsonl.py: FileNotFoundError(errno.ENOENT)": "of ours, in place of what the system says in a `StoreError`; the page names it by hand",
    "subagents/_settlement.py: ModelError(path)": "a line of a logger",
    "testing/_check_code_runtime.py: AssertionError(str(_first(wrong)))": "of a suite for tests",
    "testing/_code_bench.py: ToolError(str(arguments.get('text', 'no such luck')))": "of a program of a suite for tests",
    "tools/_body.py: the result of a call(str(refused))": "of a `_Refused`",
    "tools/_pipeline.py: the result of a call(accepted.feedback)": "of the user: `Block(feedback)`",
    "tools/_pipeline.py: the result of a call(decision.reason)": "of the user: `Deny(reason)`",
    "tools/_schema.py: TypeError(str(error))": "of an `_UnsupportedError`",
    "tools/_strict.py: RefusedError(sentence)": "of what the parameter is called with, in a table of jobs",
}
"""Sites whose sentence is not found where they are, and whose it is."""


def test_no_site_is_left_out_in_silence():
    assert READER.unread == UNREAD.keys()


# ---------------------------------------------------------------- the reader of sentences


def sentences(tmp_path, source):
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "_agent.py").write_text(source, "utf-8")
    return sorted((message.template, message.raised) for message in Reader(tmp_path).messages())


@pytest.mark.parametrize(
    ("source", "template"),
    [
        ("raise ValueError('a text')", "a text"),
        (
            "raise ValueError(f'a {kind!r} of {self.owner.name} at {place_name(scope)}')",
            "a {kind} of {name} at {scope}",
        ),
        ("raise ValueError(f'one of {SEP.join(map(repr, names))}')", "one of {names}"),
        ("raise ValueError('there is ' + 'none')", "there is none"),
        ("raise ValueError('there is ' + (f'a {x}' if x else 'none'))", "there is a {x}"),
        ("raise ValueError([('path', 'a sentence')])", "a sentence"),
        ("LIMIT = 'ten'\ndef f():\n    raise ValueError(f'at most {LIMIT}')", "at most ten"),
        ("def f():\n    why = f'no {x}'\n    raise ValueError(why)", "no {x}"),
        ("def f():\n    why = f'no {x}'\n    raise ValueError(f'it has {why}')", "it has no {x}"),
        ("def f():\n    all_ = []\n    all_.append(('', 'a sentence'))\n    raise ValueError(all_)", "a sentence"),
        ("def why():\n    yield 'a sentence'\nraise ValueError('; '.join(why()))", "a sentence"),
        ("def refuse(why):\n    raise ValueError(why)\nrefuse('a sentence')", "a sentence"),
        ("def cut(text, most):\n    return text\nraise ValueError(cut('a sentence', 3))", "a sentence"),
        (
            "def pair():\n    return 1, 'a sentence'\ndef f():\n    n, said = pair()\n    raise ValueError(said)",
            "a sentence",
        ),
        ("class Odd(ValueError):\n    def __init__(self, x):\n        super().__init__(f'odd: {x}')", "odd: {x}"),
        ("complain('a sentence', 1)", "a sentence"),
    ],
)
def test_a_sentence_is_found_from_where_it_is_written(source, template, tmp_path):
    assert template in [found for found, _ in sentences(tmp_path, source)]


@pytest.mark.parametrize(
    "source",
    ["raise ValueError(str(error))", "raise ValueError", "raise ValueError(f'{a}: {b}')", "assert x, 'a sentence'"],
)
def test_what_comes_from_elsewhere_is_no_sentence(source, tmp_path):
    assert sentences(tmp_path, source) == []


def test_a_site_without_a_sentence_is_told(tmp_path):
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "_agent.py").write_text("raise ValueError(error.args[0])\nraise KeyError('a text')", "utf-8")
    reader = Reader(tmp_path)
    assert [message.template for message in reader.messages()] == ["a text"]
    assert reader.unread == {"agent/_agent.py: ValueError(error.args[0])"}


PAGE_OF_TWO = """# Errors

Head.

## creche.agent

### One

- `first {name}` (ValueError)
- `gone` (ValueError)

**Cause.** Because.

**Cure.** Do.

## creche.tools

### Other

- `third` (TypeError)

**Cause.** Because.

**Cure.** Do.
"""


def test_bringing_the_page_up_to_date_keeps_what_is_written_by_hand():
    messages = [
        Message("agent", "first {path}", "ValueError", ""),
        Message("agent", "second `x`", "ValueError", ""),
        Message("tools", "third", "RuntimeError", ""),
    ]
    now = bring_up_to_date(PAGE_OF_TWO, messages)
    assert now == PAGE_OF_TWO.replace("- `gone` (ValueError)\n", "").replace("(TypeError)", "(RuntimeError)").replace(
        "## creche.tools",
        f"### {NEW}\n\n- `` second `x` `` (ValueError)\n\n**Cause.**\n\n**Cure.**\n\n## creche.tools",
    )
    assert bring_up_to_date(now, messages) == now

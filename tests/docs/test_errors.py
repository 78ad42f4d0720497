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

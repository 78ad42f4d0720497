"""From an assembly to text, strictly."""

import re
import time

import pytest

from creche.errors import PromptError
from creche.messages import SystemMessage
from creche.prompt import (
    CONTEXT_LEAD,
    Origin,
    Piece,
    PromptAssembly,
    RuntimeContext,
    Section,
    Variable,
    join_context_sections,
    render_context_sections,
    render_prompt,
)
from creche.scope import ScopeKey

VALUES = {"name": "Ada", "empty": "", "braces": "{{name}}", "absent": None, "pair": "\ude00"}


def piece(text, **options):
    return Piece(Origin("a", owner="host", **options), text)


def rendered(*texts, variables=VALUES, **options):
    return render_prompt(PromptAssembly([piece(text, **options) for text in texts], variables=variables))


def refusal(text, **options):
    with pytest.raises(PromptError) as caught:
        rendered(text, **options)
    return str(caught.value)


# ---------------------------------------------------------------- what is put in


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("plain", "plain"),
        ("{{name}}", "Ada"),
        ("Dear {{name}}, dear {{name}}.", "Dear Ada, dear Ada."),
        ("{{name}}{{name}}", "AdaAda"),
        ("a{{empty}}b", "ab"),
        ("100% of {{name}} %s %%", "100% of Ada %s %%"),
        ("{name} {0} {name!r} $name", "{name} {0} {name!r} $name"),
        ("line\n{{name}}\n\nline", "line\nAda\n\nline"),
        ("}} {{name}} }}", "}} Ada }}"),
        ("é {{name}} 😀", "é Ada 😀"),
    ],
)
def test_a_reference_is_replaced_by_the_value(text, expected):
    assert rendered(text) == expected


@pytest.mark.parametrize("text", ["{{", "a {{ b", "{{name", "}} {{", "{{name}", "{ {name}}", "{{{{{"])
def test_two_opening_braces_with_no_closing_ones_after_them_are_prose(text):
    assert rendered(text) == text


def test_what_is_put_in_is_not_scanned_again():
    assert rendered("{{braces}} {{name}}") == "{{name}} Ada"


def test_a_value_and_the_text_around_it_make_no_reference():
    assert rendered("{{brace}}{name}} {{braces}}}}", variables={**VALUES, "brace": "{"}) == "{{name}} {{name}}}}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{open}}", "{{"),
        ("{{open}}x}}", "{{x}}"),
        ("{{open}}name}} is {{name}}", "{{name}} is Ada"),
        ("{{open}}{{open}}", "{{{{"),
        ("{{open}}open}}", "{{open}}"),
    ],
)
def test_the_built_in_variable_writes_two_opening_braces(text, expected):
    assert rendered(text) == expected


def test_the_built_in_variable_needs_no_other():
    assert rendered("{{open}}x}}", variables={}) == "{{x}}"


@pytest.mark.parametrize("text", ["{{name}}", "{{nobody}}", "{{ }}", "{{open}}", "{{{x}}}"])
def test_a_literal_section_is_left_alone(text):
    assert rendered(text, interpolate=False) == text


def test_sections_are_joined_by_a_blank_line_and_empty_ones_dropped():
    assert rendered("", "one", "{{empty}}", " ", "two\n", "") == "one\n\n \n\ntwo\n"
    assert rendered("", "{{empty}}") == ""
    assert rendered() == ""


# ---------------------------------------------------------------- the four failures


@pytest.mark.parametrize("name", ["{x", "a{b", "{", "{{name", " {x} and "])
def test_a_reference_with_a_brace_in_it_is_malformed(name):
    assert refusal("{{" + name + "}}") == (
        f"malformed reference {'{{' + name + '}}'!r} in section 'a' of 'host' at the global layer; "
        "write {{open}} for two opening braces"
    )


def test_triple_braces_are_malformed_and_not_a_reference_in_braces():
    assert refusal("{{{name}}}").startswith("malformed reference '{{{name}}' in section 'a' ")


@pytest.mark.parametrize("name", ["", " ", " name", "name ", "Name", "0", "na-me", "na.me", "na me", "é", "__class__"])
def test_a_name_that_no_variable_can_have_is_illegal(name):
    assert refusal("{{" + name + "}}") == (
        f"illegal variable name in {'{{' + name + '}}'!r} in section 'a' of 'host' at the global layer; "
        "names are like [a-z][a-z0-9_]*; write {{open}} for two opening braces"
    )


@pytest.mark.parametrize("name", ["nobody", "constructor", "keys", "get", "opens"])
def test_an_unknown_variable_fails_and_lists_the_known_ones(name):
    """Rule: look-up is in one dict of registered names, never attributes."""
    assert refusal("{{" + name + "}}") == (
        f"unknown variable {{{{{name}}}}} in section 'a' of 'host' at the global layer; "
        "registered: absent, braces, empty, name, pair; "
        "register a Variable of that name, or write {{open}} for two opening braces"
    )


def test_an_unknown_variable_where_there_are_none():
    assert refusal("{{x}}", variables={}).endswith(
        " at the global layer; registered: (none); "
        "register a Variable of that name, or write {{open}} for two opening braces"
    )


def test_a_variable_without_a_value_this_time_fails():
    assert (
        refusal("{{absent}}")
        == "variable {{absent}} in section 'a' of 'host' at the global layer has no value this time"
    )


def test_an_unused_variable_without_a_value_does_no_harm():
    assert rendered("{{name}}") == "Ada"


def test_the_first_failure_of_a_text_comes_out():
    assert refusal("{{name}} {{absent}} {{nobody}} {{ }}").startswith("variable {{absent}} ")
    assert refusal("{{name}} {{ }} {{absent}}").startswith("illegal ")


def test_a_failure_names_kind_owner_and_scope():
    text = refusal("{{nobody}}", kind="runtime context", scope=ScopeKey("lead"))
    assert text.startswith("unknown variable {{nobody}} in runtime context 'a' of 'host' at scope 'lead'; ")


def test_a_long_reference_is_cut_in_the_message():
    assert refusal("{{ " + "x" * 10_000 + "}}") == (
        f"illegal variable name in '{{{{ {'x' * 77}...' in section 'a' of 'host' at the global layer; "
        "names are like [a-z][a-z0-9_]*; write {{open}} for two opening braces"
    )


@pytest.mark.parametrize("name", ["{{x}}", "", "a\nb", "%s"])
def test_a_section_of_any_name_is_named(name):
    with pytest.raises(PromptError, match=re.escape(f"in section {name!r} of ")):
        render_prompt(PromptAssembly([Piece(Origin(name), "{{nobody}}")]))


# ---------------------------------------------------------------- valid Unicode


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\ud800b", "a\ufffdb"),
        ("\udc00 {{name}}", "\ufffd Ada"),
        ("\ud83d\ude00", "😀"),
        ("\ud83d{{pair}}", "😀"),
        ("{{pair}}", "\ufffd"),
    ],
)
def test_what_is_rendered_is_valid_unicode(text, expected):
    """Rule: it is compared with what is logged, so it says what the log will say."""
    assert rendered(text) == expected == SystemMessage(rendered(text)).text


def test_rendered_contexts_are_valid_unicode_too():
    (context,) = render_context_sections(PromptAssembly(contexts=[piece("a\ud800")]))
    assert context.text == "a\ufffd"


# ---------------------------------------------------------------- contexts


def test_contexts_are_rendered_each_with_its_origin():
    given = [piece("It is {{name}}."), piece("{{empty}}"), piece("fixed"), piece("")]
    found = render_context_sections(PromptAssembly(contexts=given, variables=VALUES))
    assert [each.text for each in found] == ["It is Ada.", "fixed"]
    assert [each.origin for each in found] == [given[0].origin, given[2].origin]
    assert found[1] is given[2]


def test_a_failing_context_is_named():
    with pytest.raises(PromptError, match=r"^unknown variable \{\{x\}\} in runtime context 'a' of 'host' "):
        render_context_sections(PromptAssembly(contexts=[piece("{{x}}", kind="runtime context")]))


def test_a_snapshot_begins_with_a_line_that_supersedes_earlier_ones():
    assert join_context_sections([piece("one"), piece("two")]) == (
        "Runtime context as of now. It supersedes every earlier snapshot.\n\none\n\ntwo"
    )
    assert CONTEXT_LEAD in join_context_sections(iter([piece("one")]))


def test_there_is_no_snapshot_without_contexts():
    assert join_context_sections([]) == ""


async def test_sections_and_contexts_come_from_one_assembly(pen, prompt, contexts):
    pen.add(Variable("name", lambda _: "Ada"))
    pen.add(Section("a", order=0, text="I am {{name}}."))
    pen.add(RuntimeContext("b", order=0, text="{{name}} is here."))
    assert await prompt() == "I am Ada."
    assert await contexts() == {"b": "Ada is here."}


# ---------------------------------------------------------------- size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{" * 200_000, "{{" * 200_000),
        ("{{name}}" * 100_000, "Ada" * 100_000),
        ("{{open}}" * 100_000, "{{" * 100_000),
        ("}}" * 200_000 + "{{name}}", "}}" * 200_000 + "Ada"),
        ("x" * 5_000_000 + "{{name}}", "x" * 5_000_000 + "Ada"),
    ],
    ids=["unclosed", "references", "escapes", "closed", "prose"],
)
def test_a_huge_text_takes_no_more_than_its_length(text, expected):
    """Rule: rendering is linear in the text. What is quadratic would take minutes here."""
    started = time.perf_counter()
    assert rendered(text) == expected
    assert time.perf_counter() - started < 5


def test_huge_texts_are_not_kept():
    """Rule: a text that is another one at each step must not stay in memory for good."""
    from creche.prompt import _render

    _render._parse_once.cache_clear()
    for number in range(3):
        rendered("{{name}}" + "x" * 5000 + str(number))
    assert _render._parse_once.cache_info().currsize == 0
    rendered("{{name}} is short")
    assert _render._parse_once.cache_info().currsize == 1

"""The report as text and as JSON, and what a text costs."""

import json
import sys
import textwrap

import attrs
import pytest
from hypothesis import given, strategies as st
from inline_snapshot import snapshot
from rich.cells import cell_len

from creche.agent import AgentSpec
from creche.codemode import code_mode
from creche.explain import estimate_tokens, explain_prompt, render_report, report_as_json
from creche.explain._wrap import wrap
from creche.host import open_host
from creche.models import ScriptedModel
from creche.presets import Preset
from creche.prompt import AssembleContext, AssemblePrompt, RuntimeContext, Section, SuppressRuntimeContext, Variable
from creche.tools import Guard, Tool, present_as, restrict


def named(name):
    return Tool(name, description="", parameters={}, run=print)


@pytest.fixture
def full(pens, scopes):
    """Something of everything."""

    async def wrapper(event, go_on):
        return await go_on()

    pens.host.add(Section("persona", order=0, text="Nobody."))
    pens.host.add(Section("empty", order=50, text=""))
    pens.host.add(Section("braces", order=300, text="{{x}}\tand\x1b[1m", interpolate=False))
    pens.host.add(RuntimeContext("clock", order=1, text="noon"))
    pens.host.add(Variable("who", lambda _: "Ada"))
    pens.host.add(Variable("what", lambda _: None))
    pens.host.add(named("read"))
    pens.host.add(named("write"))
    pens.team.add(Section("who", order=200, text="You are {{who}}.\n\nYou do {{what}}."))
    pens.ada.add(Section("persona", order=0, text="You review what others have written, and you are kind to them."))
    pens.team.add(restrict(deny=["write"]))
    pens.team.add(Guard(lambda execution: None, lets_through=lambda name: False))
    pens.team.add(SuppressRuntimeContext())
    pens.team.add(present_as("native"))
    pens.team.wrap(AssemblePrompt, wrapper)


async def test_a_report_at_80_columns(full, explain, scopes):
    assert render_report(await explain(scopes.ada)) == snapshot("""\
The prompt at scope 'ada', without an agent; above it: scope 'team', scope
'org', the global layer.
About 32 tokens, estimated as a quarter of the bytes: 20 in 2 sections, 0 in 0
runtime contexts, 12 in 1 tool.

What is wrong:
- variable {{what}} in section 'who' of 'team' at scope 'team' has no value this
  time

At the global layer, and perhaps meant for one agent:
- Section 'persona' of 'host' at the global layer has the order of the persona,
  0, and is told to all agents; what is for one agent is registered at its
  scope: in setup=, or with registrar.at(agent.scope)

Sections:
- persona (order 0, about 16 tokens)
  of 'ada' at scope 'ada'
  hides that of 'host' at the global layer
  | You review what others have written, and you are kind to them.
- empty (order 50, empty)
  of 'host' at the global layer
- who (order 200, failed)
  of 'team' at scope 'team'
  variable {{what}} in section 'who' of 'team' at scope 'team' has no value this
    time
  | You are {{who}}.
  |
  | You do {{what}}.
- braces (order 300, about 4 tokens)
  of 'host' at the global layer
  literal: no variables are put in
  | {{x}}   and\\x1b[1m

Runtime contexts:
- clock (order 1, suppressed)
  of 'host' at the global layer
  suppressed by 'team' at scope 'team'

Variables:
- what: no value
  of 'host' at the global layer
- who = 'Ada'
  of 'host' at the global layer

Tools, presented as native by 'team' at scope 'team':
- read (about 12 tokens)
  of 'host' at the global layer
  its calls are refused by a guard of 'team' at scope 'team'
- write (hidden)
  of 'host' at the global layer
  hidden by deny=write of 'team' at scope 'team'
  its calls are refused by a guard of 'team' at scope 'team'

Wrappers:
- 'team' at scope 'team'
""")


async def test_a_report_at_40_columns(full, explain, scopes):
    assert render_report(await explain(scopes.team), width=40) == snapshot("""\
The prompt at scope 'team', without an
agent; above it: scope 'org', the global
layer.
About 18 tokens, estimated as a quarter
of the bytes: 6 in 2 sections, 0 in 0
runtime contexts, 12 in 1 tool.

What is wrong:
- variable {{what}} in section 'who' of
  'team' at scope 'team' has no value
  this time

At the global layer, and perhaps meant
for one agent:
- Section 'persona' of 'host' at the
  global layer has the order of the
  persona, 0, and is told to all agents;
  what is for one agent is registered at
  its scope: in setup=, or with
  registrar.at(agent.scope)

Sections:
- persona (order 0, about 2 tokens)
  of 'host' at the global layer
  | Nobody.
- empty (order 50, empty)
  of 'host' at the global layer
- who (order 200, failed)
  of 'team' at scope 'team'
  variable {{what}} in section 'who' of
    'team' at scope 'team' has no value
    this time
  | You are {{who}}.
  |
  | You do {{what}}.
- braces (order 300, about 4 tokens)
  of 'host' at the global layer
  literal: no variables are put in
  | {{x}}   and\\x1b[1m

Runtime contexts:
- clock (order 1, suppressed)
  of 'host' at the global layer
  suppressed by 'team' at scope 'team'

Variables:
- what: no value
  of 'host' at the global layer
- who = 'Ada'
  of 'host' at the global layer

Tools, presented as native by 'team' at
scope 'team':
- read (about 12 tokens)
  of 'host' at the global layer
  its calls are refused by a guard of
    'team' at scope 'team'
- write (hidden)
  of 'host' at the global layer
  hidden by deny=write of 'team' at
    scope 'team'
  its calls are refused by a guard of
    'team' at scope 'team'

Wrappers:
- 'team' at scope 'team'
""")


async def test_no_line_is_wider_than_asked_for(full, explain, scopes):
    report = await explain(scopes.ada)
    for width in (20, 40, 80, 200):
        rows = render_report(report, width=width).splitlines()
        assert max(map(len, rows)) <= width
        assert all(row == row.rstrip() for row in rows)
    assert render_report(report, width=1) == render_report(report, width=20)


async def test_an_agent_and_what_wrappers_did_are_told():
    async def wrapper(event, go_on):
        found = await go_on()
        return attrs.evolve(found, sections=found.sections[1:])

    presets = [Preset("team", tools=[named("read")], present_as="code", persona="You {{open}}read}}.")]
    async with (
        open_host(model=ScriptedModel({}), plugins=[code_mode()], presets=presets) as host,
        host.open_agent(AgentSpec("ada", cwd="/tmp"), preset="team") as ada,
    ):
        host.registrar.at(ada.scope).wrap(AssemblePrompt, wrapper)
        host.registrar.add(Section("ada:all", order=7, text="Be brief.", complete=True))
        report = await explain_prompt(host.registry, AssembleContext.of(ada))
    assert render_report(report) == snapshot("""\
The prompt at scope 'ada', agent 'ada'; above it: scope 'preset team', the
global layer.
About 368 tokens, estimated as a quarter of the bytes: 3 in 1 section, 0 in 0
runtime contexts, 365 in 1 tool.

At the global layer, and perhaps meant for one agent:
- Section 'ada:all' of 'host' at the global layer has the name of agent 'ada',
  and is told to all; what is for one agent is registered at its scope: in
  setup=, or with registrar.at(agent.scope)

Sections:
- harness:identity (order -100, left-out)
  of 'host' at the global layer
  section 'ada:all' is the whole prompt
  | You are an agent run by creche, a nursery in which several agents work in
    one program.
- deployment:persona (order 0, left-out)
  of 'preset team' at scope 'preset team'
  hides that of 'host' at the global layer
  section 'ada:all' is the whole prompt
  | You {{open}}read}}.
- ada:all (order 7, about 3 tokens)
  of 'host' at the global layer
  complete: no other section is shown
  | Be brief.
- tools:code-only (order 99, left-out)
  of 'code_mode' at the global layer
  section 'ada:all' is the whole prompt
  literal: no variables are put in
  | You call one tool directly: run_code. Everything else is a function that the
    programs you give it can await; what is said below about tools is about
    these functions.
- tools:sdk (order 190, left-out)
  of 'code_mode' at the global layer
  section 'ada:all' is the whole prompt
  literal: no variables are put in
  | # The tools, to be called as `await tools.name(key=value)`. Where it says
    Any, a text is a str and anything else a JSON
  | # value. At run time there are only `tools` and `ToolCallError`, which a
    failed call raises; the types are for reading.
  |
  | class Tools(Protocol):
  |     async def read(self, **others: Any) -> Any: ...
  |
  | tools: Tools

Runtime contexts:
- subagent:delegation (order 120, empty)
  of 'host' at the global layer

Variables:
- cwd = '/tmp'
  of 'host' at the global layer
- model = 'scripted'
  of 'host' at the global layer
- provider = 'scripted'
  of 'host' at the global layer

Tools, presented as code by 'preset team' at scope 'preset team':
- run_code (about 365 tokens)
  of 'code_mode' at the global layer
- read (in-programs)
  of 'preset team' at scope 'preset team'

Wrappers:
- 'host' at scope 'ada'
""")


async def test_where_nothing_is_registered_there_is_little_to_tell(explain):
    assert render_report(await explain()) == (
        "The prompt at the global layer, without an agent.\n"
        "About 0 tokens, estimated as a quarter of the bytes: 0 in 0 sections, 0 in 0\nruntime contexts, 0 in 0 tools.\n"
    )


async def test_wrappers_that_were_not_run_are_told(pens, explain):
    async def wrapper(event, go_on):
        raise RuntimeError("broken")

    pens.host.wrap(AssemblePrompt, wrapper)
    assert render_report(await explain()).endswith(
        "\nWrappers, whose changes are not shown, for something failed:\n- 'host' at the global layer\n"
    )


async def test_what_a_terminal_obeys_is_shown_as_text(pens, explain):
    pens.host.add(Section("a\nb", order=10**5000, text="\ta\x1b]0;x\x07 \u202e"))
    pens.host.add(Section("c", order=-(10**400), text="d\n\n  e"))
    rows = render_report(await explain()).splitlines()
    assert rows[5:] == [
        "- c (order very low, about 2 tokens)",
        "  of 'host' at the global layer",
        "  | d",
        "  |",
        "  |   e",
        "- a\\nb (order very high, about 3 tokens)",
        "  of 'host' at the global layer",
        "  |     a\\x1b]0;x\\x07 \\u202e",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "日本語のテキストは、空白なしで書かれる。" * 20,
        "日本 " * 100,
        "e\u0301" * 300,
        "\u2764\ufe0f" * 100,
        "a" * 77 + "日" * 9,
    ],
    ids=["long", "words", "combining", "emoji", "mixed"],
)
@pytest.mark.parametrize("width", [20, 41, 80])
async def test_wide_characters_count_as_the_cells_they_take(pens, explain, text, width):
    pens.host.add(Section("a", order=1, text=text))
    rows = render_report(await explain(), width=width).splitlines()
    told = rows[rows.index("  of 'host' at the" if width == 20 else "  of 'host' at the global layer") + 1 :]
    told = [row for row in told if row != "    global layer"]
    assert width - 8 <= max(map(cell_len, told)) <= width
    assert "".join([row[4:] for row in told]).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize("char", ["x", "日"])
async def test_a_word_of_any_length_is_wrapped_in_a_time_that_grows_with_it(pens, explain, char):
    """Rule: it takes time in proportion. A quadratic one would not end here."""
    pens.host.add(Section("a", order=1, text=char * 1_000_000))
    rows = render_report(await explain()).splitlines()
    assert sum(row.count(char) for row in rows[7:]) == 1_000_000


@given(st.text("ab -", max_size=120), st.integers(20, 50))
def test_it_is_wrapped_as_the_standard_library_does_it(text, width):
    expected = textwrap.wrap(text, width, initial_indent="- ", subsequent_indent="    ", break_on_hyphens=False)
    assert wrap(text, width, "- ", "    ") == ([row.rstrip() for row in expected] or ["-"])


# ---------------------------------------------------------------- JSON


async def test_a_report_as_json(full, explain, scopes):
    """Rule: the keys are always the same, in this order."""
    report = json.loads(json.dumps(report_as_json(await explain(scopes.ada))))
    assert list(report) == snapshot(
        [
            "scope",
            "chain",
            "agent",
            "tokens",
            "text",
            "snapshot",
            "sections",
            "contexts",
            "variables",
            "tools",
            "presentation",
            "suppressed_by",
            "wrappers",
            "wrapped",
            "problems",
            "findings",
        ]
    )
    assert (report["scope"], report["chain"], report["agent"], report["text"]) == (
        "ada",
        ["ada", "team", "org"],
        None,
        None,
    )
    assert report["sections"][0] == snapshot(
        {
            "name": "persona",
            "owner": "ada",
            "scope": "ada",
            "shadows": [{"owner": "host", "scope": None}],
            "note": "",
            "order": 0,
            "state": "shown",
            "tokens": 16,
            "text": "You review what others have written, and you are kind to them.",
            "interpolate": True,
            "complete": False,
            "problem": "",
        }
    )
    assert report["contexts"][0] == snapshot(
        {
            "name": "clock",
            "owner": "host",
            "scope": None,
            "shadows": [],
            "note": "suppressed by 'team' at scope 'team'",
            "order": 1,
            "state": "suppressed",
            "tokens": 0,
            "text": "",
            "interpolate": True,
            "complete": False,
            "problem": "",
        }
    )
    assert report["variables"][1] == snapshot(
        {"name": "who", "owner": "host", "scope": None, "shadows": [], "note": "", "value": "Ada", "problem": ""}
    )
    assert report["tools"] == snapshot(
        [
            {
                "name": "read",
                "owner": "host",
                "scope": None,
                "shadows": [],
                "note": "",
                "state": "direct",
                "tokens": 12,
                "schema": {"name": "read", "description": "", "parameters": {}},
                "hidden_by": [],
                "refused_by": [{"kind": "guard", "names": [], "owner": "team", "scope": "team"}],
            },
            {
                "name": "write",
                "owner": "host",
                "scope": None,
                "shadows": [],
                "note": "",
                "state": "hidden",
                "tokens": 0,
                "schema": None,
                "hidden_by": [{"kind": "deny", "names": ["write"], "owner": "team", "scope": "team"}],
                "refused_by": [{"kind": "guard", "names": [], "owner": "team", "scope": "team"}],
            },
        ]
    )
    assert report["presentation"] == snapshot({"mode": "native", "owner": "team", "scope": "team"})
    assert report["wrappers"] == snapshot([{"owner": "team", "scope": "team"}])
    assert report["suppressed_by"] == snapshot([{"owner": "team", "scope": "team"}])
    assert report["findings"] == snapshot(
        [
            {
                "check": "persona-order",
                "kind": "Section",
                "name": "persona",
                "owner": "host",
                "sentence": "Section 'persona' of 'host' at the global layer has the order of the persona, 0, and is told to all agents; what is for one agent is registered at its scope: in setup=, or with registrar.at(agent.scope)",
            }
        ]
    )


async def test_an_order_of_any_length_goes_into_json(pens, explain):
    pens.host.add(Section("a", order=10**5000, text="text"))
    (section,) = json.loads(json.dumps(report_as_json(await explain())))["sections"]
    assert section["order"] == sys.float_info.max


async def test_a_report_of_the_global_layer_as_json(explain):
    report = report_as_json(await explain())
    assert (report["scope"], report["chain"], report["presentation"]) == (
        None,
        [],
        {"mode": "native", "owner": None, "scope": None},
    )


# ---------------------------------------------------------------- the estimate


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("日本", 2), ("\ud800", 1)])
def test_a_token_is_taken_for_four_bytes(text, tokens):
    assert estimate_tokens(text) == tokens

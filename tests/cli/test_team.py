"""What each agent does now, folded from what listeners hear."""

from contextlib import asynccontextmanager, suppress

import pytest
import trio
from inline_snapshot import snapshot

from creche.agent import AgentSpec
from creche.cli._team import Team
from creche.cli._text import short_arguments
from creche.errors import CrecheError
from creche.host import open_host
from creche.messages import AssistantMessage, SystemMessage, ToolMessage
from creche.models import FunctionModel, RetryPolicy, Usage, call, fail, say
from creche.plugins.approvals import ask_before
from creche.scope import Plugin
from creche.session import (
    KIND_OF,
    ApprovalDecided,
    ApprovalRequested,
    AssistantSaid,
    AttemptFailed,
    CodeCalled,
    CodeReturned,
    Record,
    RecordAppended,
    StepStarted,
    SubagentEnded,
    SubagentStarted,
    SystemSaid,
    ToolCalled,
    TurnStarted,
)
from creche.subagents import delegation, fork
from creche.tools import Allow, Approver, ToolContext, ToolProgressed, tool

TWO = [call("subagent", description=word, prompt=word) for word in ("a", "b")]


@tool(parallel=True)
async def wait(seconds: float, context: ToolContext) -> str:
    """Wait."""
    if seconds > 3:
        context.progress("halfway", done=seconds / 2, total=seconds)
        await trio.sleep(seconds / 2)
        context.progress("on", done=2.5)
        await trio.sleep(1)
        context.progress("nearly there")
        await trio.sleep(seconds / 2 - 1)
    else:
        await trio.sleep(seconds)
    return "waited"


def slow(script, **options):
    """Return a model that takes a second for each answer of a script of paths."""
    left = {path: list(answers) for path, answers in script.items()}

    async def answer(request):
        await trio.sleep(1)
        return left[request.agent_path].pop(0)

    return FunctionModel(answer, provider="slow", model="one", **options)


@asynccontextmanager
async def followed(model, **options):
    """Open a lead; what is yielded with it is its team."""
    team = Team()
    async with open_host(model=model, **options) as host, host.open_agent(AgentSpec("lead", tools=[wait])) as lead:
        team.follow(host.registrar, trio.current_time)
        yield lead, team


def says(team, now=0.0):
    """Return the rows as lines."""
    return [f"{'  ' * row.depth}{row.name} {row.doing.says(now)}" for row in team.rows()]


async def look(team, work, *arguments):
    """Let something work, and return what the rows say in the middle of each second, where it is news, and at the end."""
    seen = []

    async def see():
        await trio.sleep(0.5)
        while True:
            now = says(team, trio.current_time())
            if not seen or seen[-1] != now:
                seen.append(now)
            await trio.sleep(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(see)
        with suppress(CrecheError):
            await work(*arguments)
        nursery.cancel_scope.cancel()
    return [*seen, says(team, trio.current_time())]


# ---------------------------------------------------------------- what an agent does


async def test_requests_calls_and_subagents_are_told_while_they_last(autojump_clock):
    script = {
        "lead": [TWO, [call("wait", seconds=2)], say("Done.")],
        "lead/subagent-1": [say("a")],
        "lead/subagent-2": [[call("wait", seconds=1)], say("b")],
    }
    async with followed(slow(script), plugins=[delegation()]) as (lead, team):
        assert (says(team), team.totals().began, team.totals().seconds(7.0)) == ([], None, 0.0)
        assert await look(team, lead.ask, "Go.") == snapshot(
            [
                ["lead asks slow:one"],
                ["lead waits for 2 subagents", "  subagent-1 asks slow:one", "  subagent-2 asks slow:one"],
                ["lead waits for 1 subagent", "  subagent-1 done", "  subagent-2 calls wait seconds=1"],
                ["lead waits for 1 subagent", "  subagent-1 done", "  subagent-2 asks slow:one"],
                ["lead asks slow:one", "  subagent-1 done", "  subagent-2 done"],
                ["lead calls wait seconds=2", "  subagent-1 done", "  subagent-2 done"],
                ["lead asks slow:one", "  subagent-1 done", "  subagent-2 done"],
                ["lead done", "  subagent-1 done", "  subagent-2 done"],
            ]
        )


async def test_of_several_calls_the_newest_is_told_and_how_many_more_there_are(autojump_clock):
    script = {"lead": [[call("wait", seconds=1), call("wait", seconds=2)], say("Done.")]}
    async with followed(slow(script)) as (lead, team):
        assert await look(team, lead.ask, "Go.") == snapshot(
            [
                ["lead asks slow:one"],
                ["lead calls wait seconds=2 and 1 more"],
                ["lead calls wait seconds=2"],
                ["lead asks slow:one"],
                ["lead done"],
            ]
        )


async def test_how_far_a_call_is_is_told(autojump_clock):
    async with followed(slow({"lead": [call("wait", seconds=6), say("Done.")]})) as (lead, team):
        assert await look(team, lead.ask, "Go.") == snapshot(
            [
                ["lead asks slow:one"],
                ["lead calls wait: halfway (3 of 6)"],
                ["lead calls wait: on (2.5)"],
                ["lead calls wait: nearly there"],
                ["lead asks slow:one"],
                ["lead done"],
            ]
        )


async def test_a_request_that_waits_for_the_limit_says_so_until_it_is_under_way(autojump_clock):
    script = {"lead": [TWO, say("Done.")], "lead/subagent-1": [say("a")], "lead/subagent-2": [say("b")]}
    async with followed(slow(script, limit=1), plugins=[delegation()]) as (lead, team):
        waiting, working = (await look(team, lead.ask, "Go."))[1:3]
    ends = [{line.partition(" ")[2] for line in map(str.strip, seen[1:])} for seen in (waiting, working)]
    assert ends == [{"asks slow:one", "waits for the model's limit"}, {"asks slow:one", "done"}]


async def test_a_retry_counts_down_and_then_it_asks(autojump_clock):
    script = {"lead": [fail(retry_after=2.0), say("Done.")]}
    async with followed(slow(script, retry=RetryPolicy(1))) as (lead, team):
        assert await look(team, lead.ask, "Go.") == snapshot(
            [
                ["lead asks slow:one"],
                ["lead asks again in 1.5 s"],
                ["lead asks again in 0.5 s"],
                ["lead asks slow:one"],
                ["lead done"],
            ]
        )
    [row] = team.rows()
    assert row.usage.requests == team.totals().usage.requests == 2


async def test_who_needs_an_approval_says_for_what(autojump_clock):
    async def allow(request):
        await trio.sleep(1)
        return Allow()

    script = {"lead": [call("wait", seconds=2), say("Done.")]}
    async with followed(slow(script), plugins=[ask_before("wait"), Plugin("me", setup=[Approver(allow)])]) as opened:
        lead, team = opened
        assert await look(team, lead.ask, "Go.") == snapshot(
            [
                ["lead asks slow:one"],
                ["lead waits for an approval to call wait"],
                ["lead calls wait seconds=2"],
                ["lead asks slow:one"],
                ["lead done"],
            ]
        )


async def test_a_fork_asks_what_its_parent_asks(autojump_clock):
    script = {"lead": [say("Done.")], "lead/fork-1": [say("Done.")]}
    async with followed(slow(script)) as (lead, team):
        await lead.ask("Go.")
        assert await look(team, fork, lead, "Go.") == snapshot(
            [["lead done", "  fork-1 asks slow:one"], ["lead done", "  fork-1 done"]]
        )


def test_calls_of_programs_are_told_in_place_of_the_program(tell):
    tell(ToolCalled("c", name="run_code", arguments="{}"))
    assert says(tell.team) == ["lead calls run_code"]
    tell(CodeCalled("c:code:1", parent="c", name="wait", arguments='{"seconds": 1}'))
    assert says(tell.team) == ["lead calls wait seconds=1 in a program"]
    tell(CodeCalled("c:code:2", parent="c", name="grep", arguments='{"pattern": "x"}'))
    assert says(tell.team) == ["lead calls grep pattern='x' in a program and 1 more"]
    tell(CodeReturned(ToolMessage("c:code:2", name="grep", parts=()), parent="c"))
    tell(CodeReturned(ToolMessage("c:code:1", name="wait", parts=()), parent="c"))
    assert says(tell.team) == ["lead calls run_code"]


def test_calls_that_wait_for_approvals_are_counted(tell):
    for call_id in ("a", "b"):
        tell(ApprovalRequested(call_id, tool="bash", subject="ls", reason="it is to be asked for"))
    assert says(tell.team) == ["lead waits for an approval to call bash and 1 more"]
    tell(ApprovalDecided("a", tool="bash", subject="ls", decision="allowed"))
    assert says(tell.team) == ["lead waits for an approval to call bash"]


# ---------------------------------------------------------------- how it ends


@pytest.mark.parametrize(
    ("answers", "last"),
    [
        ([say("Done.")], "done"),
        ([say("Do", finish="max-tokens")], "done, but an answer was cut off"),
        ([fail(code="quota")], "failed: the model failed"),
    ],
)
async def test_a_turn_that_is_over_says_how(answers, last, autojump_clock):
    async with followed(slow({"lead": answers})) as (lead, team):
        assert (await look(team, lead.ask, "Go."))[-1] == [f"lead {last}"]
        assert (team.totals().agents, team.totals().at_work) == (1, 0)


async def test_a_turn_that_is_cancelled_says_so_and_another_one_begins_anew(autojump_clock):
    async with followed(slow({"lead": [call("wait", seconds=9), say("Done.")]})) as (lead, team):
        with trio.move_on_after(3):
            await lead.ask("Go.")
        [row] = team.rows()
        assert (says(team), row.began, row.ended, row.seconds(99.0)) == (["lead cancelled"], 0.0, 3.0, 3.0)
        assert team.totals().seconds(99.0) == 3.0
        assert await look(team, lead.ask, "Go on.") == [["lead asks slow:one"], ["lead done"]]


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        ("done", "done"),
        ("truncated", "done, but an answer was cut off"),
        ("refused", "refused: why"),
        ("limit", "failed: why"),
        ("failed", "failed: why"),
        ("unknown", "failed: why"),
        ("cancelled", "cancelled"),
    ],
)
def test_a_settlement_says_how_a_subagent_ended(outcome, text, tell):
    tell(SubagentStarted("a", session_id="s", provider="spawn"))
    tell(SubagentEnded("s", outcome=outcome, diagnostic="why", text="\nWhat I found:\na cake"))
    tell(SubagentEnded("unheard", outcome=outcome))
    assert says(tell.team)[1:] == [f"  a {text}"]
    assert (tell.team.rows()[1].ended, tell.team.rows()[1].report) == (0.0, "What I found:")
    tell(TurnStarted(), "lead/a")
    assert (tell.team.rows()[1].ended, tell.team.rows()[1].report) == (None, "")


# ---------------------------------------------------------------- the tree


@pytest.fixture
def tell():
    """Let a team hear that something was appended to an agent's log."""

    class Tell:
        team = Team()

        def __call__(self, fact, path="lead"):
            record = Record(0, kind=KIND_OF[type(fact)], data=fact)
            self.team.hear(RecordAppended(path, record=record), 0.0)

    tell = Tell()
    tell(StepStarted())
    return tell


def test_rows_stand_in_the_order_of_the_tree_however_they_came(tell):
    for path in ("lead/a", "lead/b/x/y", "other", "lead/a/z", "lead/b/w-10", "lead/b/w-9"):
        tell(TurnStarted(), path)
    rows = tell.team.rows()
    assert [row.path for row in rows] == snapshot(
        ["lead", "lead/a", "lead/a/z", "lead/b", "lead/b/w-9", "lead/b/w-10", "lead/b/x", "lead/b/x/y", "other"]
    )
    assert [(row.name, row.depth, row.parent) for row in rows[3:5]] == snapshot(
        [("b", 1, "lead"), ("w-9", 2, "lead/b")]
    )
    assert (tell.team.totals().agents, tell.team.totals().at_work) == (9, 9)


def test_what_a_row_does_not_say_changes_nothing(tell):
    [row] = tell.team.rows()
    tell(SystemSaid(SystemMessage("You are.")))
    for path in ("lead", "unheard"):
        tell.team.hear(ToolProgressed(path, call_id="c", name="wait", text="?"), 0.0)
    assert tell.team.rows() == [row]
    assert tell.team.rows()[0] is row


def test_what_agents_cost_is_counted_for_each_and_together(tell):
    for path, tokens in (("lead", 10), ("lead/a", 5)):
        usage = Usage(1, input_tokens=tokens, cached_tokens=3, output_tokens=2)
        tell(AssistantSaid(AssistantMessage(()), usage=usage), path)
    tell(AttemptFailed("no", code="server"), "lead/a")
    assert [row.usage.input_tokens for row in tell.team.rows()] == [10, 5]
    assert [row.usage.requests for row in tell.team.rows()] == [1, 2]
    assert tell.team.totals().usage == Usage(3, input_tokens=15, cached_tokens=6, output_tokens=4)


def test_looking_at_a_thousand_agents_makes_only_the_rows_that_changed(tell):
    for number in range(1000):
        tell(SubagentStarted(f"spawn-{number}", session_id=str(number), provider="spawn"))
        tell(StepStarted(), f"lead/spawn-{number}")
    before = tell.team.rows()
    tell(ToolCalled("c", name="wait", arguments="{}"), "lead/spawn-500")
    after = tell.team.rows()
    assert len(after) == 1001
    assert [row.path for row, old in zip(after, before, strict=True) if row is not old] == ["lead", "lead/spawn-500"]


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [('{"a": "b", "c": 1}', "a='b', c=1"), ("[1]", "[1]"), ("{", "{"), ("x" * 9999, "x" * 2000)],
)
def test_arguments_are_shown_as_names_and_values(arguments, shown):
    assert short_arguments(arguments) == shown

"""The tables of decisions, row by row; the sections are those of the reference on prompts in the log."""

import attrs
import pytest

from creche.messages import DeveloperMessage, UserMessage
from creche.session import (
    CONTEXT_SOURCE,
    NO_CONTEXT,
    HeaderWritten,
    RouteNoted,
    SnapshotState,
    StepEnded,
    StepStarted,
    ToolsChanged,
    TurnEnded,
    TurnStarted,
    project_header,
    project_route,
    project_snapshot,
    project_system_prompt,
    project_tools,
)

ROW = pytest.param


def with_prompts(say, *texts):
    """Return a log with these system prompts on the surface, a user message after each; numbers 2, 4, 6."""
    log = say.extend(say.log(), TurnStarted(), StepStarted())
    for text in texts:
        say.extend(log, say.system(text), say.user("hello"))
    return log


def project(log, rendered, *, capable=False, series=False):
    """Return the updates as pairs of what is replaced and the text, having appended them."""
    updates = project_system_prompt(log.system_nodes, rendered, in_history=capable, starts_series=series)
    for update in updates:
        log.append(update.fact, replace=update.replace)
    return [(update.replace and update.replace[0], update.fact.message.text) for update in updates]


# ---------------------------------------------------------------- 2.3, the algorithm


@pytest.mark.parametrize(
    ("texts", "rendered", "call", "expected"),
    [
        # 1. No node: append one, also an empty one.
        ROW([], "A", "", [(None, "A")], id="no node: append"),
        ROW([], "A", "capable", [(None, "A")], id="no node, capable: append"),
        ROW([], "A", "capable series", [(None, "A")], id="no node, series: append"),
        ROW([], "", "", [(None, "")], id="no node, empty: append, which reserves the place"),
        ROW([], "", "capable series", [(None, "")], id="no node, empty, capable, series: append"),
        # 2. Not capable, or a series starts, or empty: everything is said by the first node.
        ROW(["A"], "A", "", [], id="incapable, unchanged: nothing"),
        ROW(["A"], "B", "", [(2, "B")], id="incapable, changed: replace the head"),
        ROW([""], "A", "", [(2, "A")], id="incapable, from empty: replace the head"),
        ROW(["A"], "", "", [(2, "")], id="incapable, to empty: empty the head"),
        ROW(["A", "B"], "B", "", [(4, ""), (2, "B")], id="incapable, unchanged text: consolidate"),
        ROW(["A", "B"], "A", "", [(4, "")], id="incapable, head has the text: clear the later node"),
        ROW(["A", "B", "C"], "D", "", [(4, ""), (6, ""), (2, "D")], id="incapable: clear all, then the head"),
        ROW(["A", "", "C"], "D", "", [(6, ""), (2, "D")], id="incapable: a dormant node causes nothing"),
        ROW(["A", ""], "A", "", [], id="incapable, unchanged, dormant tail: nothing"),
        ROW(["A"], "A", "capable series", [], id="capable, series, unchanged: nothing"),
        ROW(["A"], "B", "capable series", [(2, "B")], id="capable, series, changed: replace the head"),
        ROW(["A", "B"], "B", "capable series", [(4, ""), (2, "B")], id="capable, series, unchanged text: consolidate"),
        ROW(["A", "B"], "C", "capable series", [(4, ""), (2, "C")], id="capable, series, changed: consolidate"),
        ROW(["A"], "", "capable", [(2, "")], id="capable, to empty: empty the head"),
        ROW(["A", "B"], "", "capable", [(4, ""), (2, "")], id="capable, to empty: empty every node"),
        ROW(["", ""], "", "capable", [], id="capable, still empty: nothing"),
        # 3. Capable, the series goes on, there is text: say it after the cached history.
        ROW(["A"], "A", "capable", [], id="capable, unchanged: nothing"),
        ROW(["A"], "B", "capable", [(None, "B")], id="capable, changed: append"),
        ROW(["A", "B"], "B", "capable", [], id="capable, the latest has the text: nothing"),
        ROW(["A", "B"], "A", "capable", [(None, "A")], id="capable, back to the first text: append"),
        ROW(["A", "B", ""], "B", "capable", [], id="capable: a dormant node is not the latest"),
        ROW(["A", "B", ""], "C", "capable", [(None, "C")], id="capable, changed, dormant tail: append"),
        ROW([""], "A", "capable", [(None, "A")], id="capable, from empty: append"),
        ROW(["", ""], "A", "capable", [(None, "A")], id="capable, all dormant: the head counts, append"),
    ],
)
def test_the_rendered_prompt_reaches_the_log(texts, rendered, call, expected, say):
    log = with_prompts(say, *texts)
    capable = "capable" in call
    assert project(log, rendered, capable=capable, series="series" in call) == expected
    # Whatever was decided, the log says it now: the same again is nothing to do.
    assert project(log, rendered, capable=capable) == []


# ---------------------------------------------------------------- 2.5, the interactions


def test_the_first_step_appends_once_and_is_an_initial_header_without_a_series(say):
    log = with_prompts(say)
    assert project(log, "A") == [(None, "A")]
    assert log.generation == 0
    assert header_for(say.head(), first=True) == ("initial", False)


def test_a_changed_text_on_an_incapable_route_starts_a_series(say):
    log = with_prompts(say, "A")
    seen = log.generation
    assert project(log, "B") == [(2, "B")]
    assert log.generation != seen
    last = HeaderWritten(say.head(), reason="initial")
    assert header_for(say.head(), last=last, cause=log.generation != seen) == ("series", False)
    assert header_for(say.head("look"), last=last, cause=log.generation != seen) == ("change", True)
    assert header_for(say.head(), last=last, first=True, cause=log.generation != seen) == ("resume", True)


def test_a_changed_text_on_a_capable_route_needs_no_header(say):
    log = with_prompts(say, "A")
    seen = log.generation
    assert project(log, "B", capable=True) == [(None, "B")]
    assert log.generation == seen
    assert header_for(say.head(), last=HeaderWritten(say.head(), reason="initial")) is None


def test_a_replacement_since_the_last_request_consolidates(say):
    log = with_prompts(say, "A", "B")
    seen = log.generation
    log.append(say.user("short"), replace=(3, 3))
    assert project(log, "B", capable=True, series=log.generation != seen) == [(4, ""), (2, "B")]


@pytest.mark.parametrize(("texts", "really"), [(["A"], False), (["A", "B"], True)], ids=["one prompt", "two prompts"])
def test_changed_tools_consolidate_and_start_a_series_if_that_replaced_something(texts, really, say):
    """Rule: a route without tool updates takes changed tools as a reason to consolidate, which is not yet a series."""
    log = with_prompts(say, *texts)
    seen = log.generation
    assert bool(project(log, texts[-1], capable=True, series=True)) == really
    last = HeaderWritten(say.head("look"), reason="initial")
    assert header_for(say.head("see"), last=last, cause=log.generation != seen) == ("change", really)


def test_changed_tools_are_announced_on_a_route_with_tool_updates(say):
    log = with_prompts(say, "A", "B")
    assert project(log, "B", capable=True) == []
    last = HeaderWritten(say.head("look"), reason="initial")
    header = project_header(last, say.head("look", "see"), first_request=False, series_cause=False)
    assert (header.reason, header.starts_series) == ("change", False)
    assert project_tools(last, header, 6) == ToolsChanged(DeveloperMessage(("see",)), header=6)


@pytest.mark.parametrize(("capable", "expected"), [(True, []), (False, [(4, ""), (2, "B")])])
def test_another_model_is_no_series_and_its_capability_decides(capable, expected, say):
    log = with_prompts(say, "A", "B")
    assert project(log, "B", capable=capable) == expected
    last = HeaderWritten(say.head(), reason="initial")
    assert header_for(say.head(model="n"), last=last) == ("change", False)


def test_a_series_is_consolidated_on_the_first_attempt_only(say):
    log = with_prompts(say, "A", "B")
    assert project(log, "B", capable=True, series=True) == [(4, ""), (2, "B")]
    assert project(log, "B", capable=True) == []


def test_repeated_empty_prompts_add_nothing(say):
    log = with_prompts(say, "A", "B", "C")
    assert project(log, "", capable=True) == [(4, ""), (6, ""), (2, "")]
    for capable in (True, False):
        assert project(log, "", capable=capable) == []
        assert project(log, "", capable=capable, series=True) == []


@pytest.mark.parametrize(("capable", "expected"), [(True, [(None, "A")]), (False, [(2, "A")])])
def test_a_prompt_is_restored_after_clearing(capable, expected, say):
    log = with_prompts(say, "A")
    project(log, "", capable=capable)
    cleared = log.system_nodes[0].seq
    assert project(log, "A", capable=capable) == [(where and cleared, text) for where, text in expected]


def test_compaction_may_shadow_later_prompts_and_the_next_request_consolidates_at_the_head(say):
    log = with_prompts(say, "A", "B", "C")
    seen = log.generation
    log.append(say.user("summary"), replace=(3, 5))
    assert project(log, "C", capable=True, series=log.generation != seen) == [(6, ""), (2, "C")]
    assert [message.text for message in log.derive_messages()] == ["C", "summary", "hello"]


def test_a_fork_projects_on_the_prompts_it_got(say):
    log = with_prompts(say, "A", "B")
    say.extend(log, say.answer(text="yes"), StepEnded(), TurnEnded("completed"))
    child = log.fork(attrs.evolve(log.header, id="s2", path="lead/child"))
    say.extend(child, TurnStarted(), StepStarted())
    assert project(child, "B", capable=True) == []
    assert project(child, "B") == [(4, ""), (2, "B")]


def test_a_resumed_log_starts_no_series_by_itself(say):
    log = with_prompts(say, "A", "B")
    remembered = log.generation
    assert project(log, "B", capable=True, series=log.generation != remembered) == []
    assert header_for(say.head(), last=HeaderWritten(say.head(), reason="initial"), first=True) == (
        "resume",
        False,
    )


# ---------------------------------------------------------------- 3.1, the header


def header_for(wanted, *, last=None, first=False, cause=False):
    header = project_header(last, wanted, first_request=first, series_cause=cause)
    return header and (header.reason, header.starts_series)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ROW("first", ("initial", False), id="first request, no header yet: initial"),
        ROW("first series", ("initial", True), id="first request, no header yet, series: initial"),
        ROW("first earlier", ("resume", False), id="first request, equal header: resume"),
        ROW("first earlier differs", ("resume", False), id="first request, other header: resume"),
        ROW("first earlier series", ("resume", True), id="first request, equal header, series: resume"),
        ROW("first earlier differs series", ("resume", True), id="first request, other header, series: resume"),
        ROW("earlier differs", ("change", False), id="differs: change"),
        ROW("earlier differs series", ("change", True), id="differs, series: change"),
        ROW("earlier series", ("series", False), id="equal, series: series, which needs no mark"),
        ROW("earlier", None, id="equal, no cause: nothing"),
    ],
)
def test_a_header_is_written_when_it_is_due(case, expected, say):
    last = HeaderWritten(say.head("look"), reason="initial") if "earlier" in case else None
    wanted = say.head("see" if "differs" in case else "look")
    assert header_for(wanted, last=last, first="first" in case, cause="series" in case) == expected


@pytest.mark.parametrize(
    "change",
    [
        ROW(lambda head: attrs.evolve(head, settings=attrs.evolve(head.settings, model="n")), id="model"),
        ROW(lambda head: attrs.evolve(head, settings=attrs.evolve(head.settings, provider="q")), id="provider"),
        ROW(
            lambda head: attrs.evolve(
                head, settings=attrs.evolve(head.settings, options=attrs.evolve(head.settings.options, seed=1))
            ),
            id="option",
        ),
        ROW(lambda head: attrs.evolve(head, defaults=["max_tokens"]), id="options the adapter filled in"),
        ROW(lambda head: attrs.evolve(head, tools=head.tools[::-1]), id="order of tools"),
        ROW(lambda head: attrs.evolve(head, tools=head.tools[:1]), id="number of tools"),
        ROW(
            lambda head: attrs.evolve(head, tools=[attrs.evolve(each, description="Other.") for each in head.tools]),
            id="description of a tool",
        ),
        ROW(
            lambda head: attrs.evolve(
                head,
                tools=[attrs.evolve(each, parameters={"title": each.name, "type": "object"}) for each in head.tools],
            ),
            id="order of keys in a schema",
        ),
    ],
)
def test_headers_are_compared_in_all_that_they_hold(change, say):
    """Rule: equality is settings, filled-in options and ordered tools, schemas as JSON text."""
    head = say.head("look", "see")
    last = HeaderWritten(head, reason="initial")
    assert header_for(change(head), last=last) == ("change", False)
    assert header_for(attrs.evolve(head), last=last) is None


def test_a_series_header_keeps_the_value_of_the_last(say):
    """Rule: settings and tools stay one value for as long as they do not change, so their bytes are encoded once."""
    last = HeaderWritten(say.head("look"), reason="initial")
    written = project_header(last, say.head("look"), first_request=False, series_cause=True)
    assert written.head is last.head


# ---------------------------------------------------------------- 3.2, the route

ROUTE = RouteNoted("p", model="m", context_window=100, system_prompt_update="in-history")


@pytest.mark.parametrize(
    ("last", "due"),
    [
        ROW(None, True, id="first: noted"),
        ROW(attrs.evolve(ROUTE), False, id="equal: nothing"),
        ROW(attrs.evolve(ROUTE, provider="q"), True, id="provider differs: noted"),
        ROW(attrs.evolve(ROUTE, model="n"), True, id="model differs: noted"),
        ROW(attrs.evolve(ROUTE, context_window=None), True, id="window differs: noted"),
        ROW(attrs.evolve(ROUTE, system_prompt_update=None), True, id="prompt update differs: noted"),
    ],
)
def test_a_route_is_noted_when_it_differs(last, due):
    noted = project_route(last, **attrs.asdict(ROUTE))
    assert noted == (ROUTE if due else None)


# ---------------------------------------------------------------- 3.3, tools that came and went


@pytest.mark.parametrize(
    ("before", "reason", "after", "expected"),
    [
        ROW(None, "initial", "a b", None, id="no header before: nothing"),
        ROW("a", "initial", "a b", None, id="initial: nothing"),
        ROW("a", "series", "a", None, id="series: nothing"),
        ROW("a b", "change", "a b", None, id="same names: nothing"),
        ROW("a b", "change", "b a", None, id="another order: nothing"),
        ROW("a", "change", "a c b", (("c", "b"), ()), id="added: in the new order, with the header"),
        ROW("a c b", "change", "a", ((), ("c", "b")), id="removed: in the old order, without a header"),
        ROW("a b", "change", "b c", (("c",), ("a",)), id="both: additions, then removals"),
        ROW("a", "resume", "b", (("b",), ("a",)), id="resume: as a change"),
        ROW("", "change", "a", (("a",), ()), id="first tool: added"),
        ROW("a", "change", "", ((), ("a",)), id="last tool: removed"),
    ],
)
def test_tools_that_came_and_went_are_announced(before, reason, after, expected, say):
    last = None if before is None else HeaderWritten(say.head(*before.split()), reason="initial")
    announced = project_tools(last, HeaderWritten(say.head(*after.split()), reason=reason), 9)
    if expected is None:
        assert announced is None
    else:
        additions, removals = expected
        message = DeveloperMessage(additions, removals=removals)
        assert announced == ToolsChanged(message, header=9 if additions else None)


def test_a_tool_that_is_only_redefined_is_not_announced(say):
    head = say.head("a")
    other = attrs.evolve(head, tools=[attrs.evolve(head.tools[0], description="Other.")])
    assert project_tools(HeaderWritten(head, reason="initial"), HeaderWritten(other, reason="change"), 9) is None


# ---------------------------------------------------------------- 7, the snapshot of runtime contexts

RETAINED = SnapshotState(existed=True, seq=4, text="It is May.")
MARKED = SnapshotState(existed=True, seq=4, text=NO_CONTEXT)
SHADOWED = SnapshotState(existed=True)


@pytest.mark.parametrize(
    ("before", "rendered", "expected"),
    [
        ROW(SnapshotState(), "", None, id="never any, none now: nothing"),
        ROW(SnapshotState(), "It is May.", "It is May.", id="never any, some now: written"),
        ROW(RETAINED, "It is May.", None, id="retained, equal: nothing"),
        ROW(RETAINED, "It is June.", "It is June.", id="retained, differs: written"),
        ROW(RETAINED, "", NO_CONTEXT, id="retained, none now: the marker"),
        ROW(MARKED, "", None, id="marker retained, none now: nothing"),
        ROW(MARKED, "It is May.", "It is May.", id="marker retained, some now: written"),
        ROW(SHADOWED, "It is May.", "It is May.", id="not retained, some now: written again"),
        ROW(SHADOWED, "", NO_CONTEXT, id="not retained, none now: the marker, also again"),
    ],
)
def test_a_snapshot_is_written_when_it_is_due(before, rendered, expected):
    expected_message = None if expected is None else UserMessage(expected, source=CONTEXT_SOURCE)
    assert project_snapshot(before, rendered) == expected_message


def test_a_snapshot_is_written_again_after_something_took_its_place(say):
    log = say.extend(say.log(), TurnStarted(), StepStarted(), say.user("It is May.", source=CONTEXT_SOURCE))
    assert project_snapshot(log.snapshot, "It is May.") is None
    log.append(say.user("summary"), replace=(2, 2))
    assert project_snapshot(log.snapshot, "It is May.") == UserMessage("It is May.", source=CONTEXT_SOURCE)

from types import SimpleNamespace

import attrs
import pytest
import trio
import trio.testing

from creche import AgentSpec, open_host, tool
from creche.agent import BuildRequest
from creche.errors import TurnCancelled
from creche.messages import AssistantMessage, SystemMessage, TextPart, ToolCall, ToolMessage, UserMessage
from creche.models import FunctionModel, ModelRequest, RequestHead, ScriptedModel, Settings, call, fail, say
from creche.prompt import Section
from creche.scope import ScopeKey
from creche.session import (
    AssistantSaid,
    Fact,
    HeaderWritten,
    MessageAccepted,
    MessagesClaimed,
    MessagesDropped,
    Record,
    SessionHeader,
    SessionLog,
    StepEnded,
    StepStarted,
    SubagentEnded,
    SubagentStarted,
    SystemSaid,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnStarted,
    UserSaid,
    fold_surface,
)
from creche.subagents import delegation, fork
from creche.testing import RecordingModel, assert_no_leaks, check_log, check_requests, system_texts


@tool(inline=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def new_log() -> SessionLog:
    return SessionLog(SessionHeader("s1", path="lead", created=0.0))


def result(call_id: str, *, is_error: bool = False) -> ToolReturned:
    return ToolReturned(ToolMessage(call_id, name="look", parts="seen", is_error=is_error))


def called(call_id: str) -> ToolCalled:
    return ToolCalled(call_id, name="look", arguments="{}")


FACTS: tuple[Fact, ...] = (
    MessageAccepted("d1", lane="next-turn", message=UserMessage("hello")),  # 0
    TurnStarted(),  # 1
    MessagesClaimed(("d1",)),  # 2
    StepStarted(),  # 3
    UserSaid(UserMessage("hello"), delivery="d1"),  # 4
    AssistantSaid(  # 5
        AssistantMessage([ToolCall("c1", name="look", arguments="{}"), ToolCall("c2", name="look", arguments="{}")])
    ),
    called("c1"),  # 6
    result("c1"),  # 7
    called("c2"),  # 8
    result("c2"),  # 9
    StepEnded(),  # 10
    TurnEnded("completed"),  # 11
    SubagentStarted("helper", session_id="s2", provider="spawn"),  # 12
    SubagentEnded("s2", outcome="done"),  # 13
    MessageAccepted("d2", lane="next-step", message=UserMessage("later")),  # 14
)


def sound() -> SessionLog:
    log = new_log()
    for fact in FACTS:
        log.append(fact)
    return log


def damaged(records: list[Record], **instead: object) -> SimpleNamespace:
    """Return what a log with these records would show, which no real one can hold."""
    surface, _ = fold_surface(records)
    shown: dict[str, object] = {
        "header": SessionHeader("s1", path="lead", created=0.0),
        "records": lambda: records,
        "phase": "idle",
        "boundary": 0,
        "surface": lambda: surface.nodes,
        "derive_messages": lambda: surface.messages,
    }
    return SimpleNamespace(**(shown | instead))


def with_fact(place: int, fact: Fact) -> list[Record]:
    """Return the sound records with another fact in one place."""
    records = list(sound().records())
    records[place] = attrs.evolve(records[place], data=fact)
    return records


def inserted(place: int, fact: Fact, *, turn: int = 1, step: int = 1) -> list[Record]:
    """Return the sound records with one more among them."""
    records = list(sound().records())
    records.insert(place, Record(0, kind="inserted", data=fact, turn=turn, step=step))
    return [attrs.evolve(record, seq=seq) for seq, record in enumerate(records)]


def without(*places: int) -> list[Record]:
    """Return the sound records without some, numbered again."""
    records = [record for record in sound().records() if record.seq not in places]
    return [attrs.evolve(record, seq=seq) for seq, record in enumerate(records)]


# ---------------------------------------------------------------- check_log


def test_a_sound_log_passes():
    check_log(sound())
    check_log(damaged(list(sound().records())))
    check_log(new_log())


def test_an_open_turn_is_found():
    log = new_log()
    log.append(TurnStarted())
    with pytest.raises(AssertionError, match=r"^session 'lead': a turn is open \(turn\)$"):
        check_log(log)


def _numbered(place: int, **numbers: int) -> list[Record]:
    records = list(sound().records())
    records[place] = attrs.evolve(records[place], **numbers)
    return records


DAMAGE: dict[str, tuple[list[Record], str]] = {
    "a gap in the numbers": (
        [record for record in sound().records() if record.seq != 4],
        "record 5 (assistant/message) stands at place 4",
    ),
    "a number twice": (_numbered(4, seq=3), "record 3 (user/message) stands at place 4"),
    "a turn that is not closed": (without(11), "record 11 (subagent/start) says turn 0 step 0 in turn 1 step 0"),
    "the last turn is not closed": (without(11, 12, 13, 14), "turn 1 is not closed"),
    "a turn in a turn": (inserted(2, TurnStarted(), step=0), "record 2 (inserted) stands in open turn 1"),
    "a turn that ends twice": (inserted(12, TurnEnded("completed")), "record 12 (inserted) closes no turn"),
    "a turn that ends in a step": (without(10), "record 10 (turn/end) leaves step 1 open"),
    "a step without a turn": (without(1, 2, 11), "record 1 (step/start) stands in no turn"),
    "a step in a step": (inserted(4, StepStarted()), "record 4 (inserted) stands in open step 1"),
    "a step that ends twice": (inserted(11, StepEnded(), step=0), "record 11 (inserted) closes no step"),
    "another turn's number": (
        _numbered(4, turn=2),
        "record 4 (user/message) says turn 2 step 1 in turn 1 step 1",
    ),
    "another step's number": (
        _numbered(4, step=2),
        "record 4 (user/message) says turn 1 step 2 in turn 1 step 1",
    ),
    "a number outside of turns": (
        _numbered(12, turn=1),
        "record 12 (subagent/start) says turn 1 step 0 in turn 0 step 0",
    ),
    "a call without a result": (without(9), "record 9 (step/end) leaves calls without a result: 'c2'"),
    "a call with two results": (
        inserted(8, result("c1")),
        "record 8 (inserted) is the result of call 'c1'; that of 'c2' is due",
    ),
    "a result that nothing asked for": (
        inserted(10, result("c3")),
        "record 10 (inserted) is the result of call 'c3'; that of None is due",
    ),
    "results in another order": (
        [
            *sound().records()[:7],
            attrs.evolve(sound().records()[7], data=result("c2")),
            sound().records()[8],
            attrs.evolve(sound().records()[9], data=result("c1")),
            *sound().records()[10:],
        ],
        "record 7 (tool/result) is the result of call 'c2'; that of 'c1' is due",
    ),
    "a call that no answer made": (
        with_fact(6, called("c9")),
        "record 6 (tool/call) is of no call that waits to be started: 'c9'",
    ),
    "a call that starts twice": (
        inserted(7, called("c1")),
        "record 7 (inserted) is of no call that waits to be started: 'c1'",
    ),
    "a call that starts after its result": (
        inserted(8, called("c1")),
        "record 8 (inserted) is of no call that waits to be started: 'c1'",
    ),
    "a success of a call that was not started": (
        without(8),
        "record 8 (tool/result) is a success of a call that was not started",
    ),
    "a message that is accepted twice": (
        inserted(1, FACTS[0], turn=0, step=0),
        "record 1 (inserted) accepts message 'd1' once more",
    ),
    "a message that is claimed twice": (
        inserted(3, MessagesClaimed(("d1",)), step=0),
        "record 3 (inserted) takes message 'd1', which does not wait",
    ),
    "a message that is claimed and dropped": (
        inserted(3, MessagesDropped(("d1",), cause="user"), step=0),
        "record 3 (inserted) takes message 'd1', which does not wait",
    ),
    "a message that was never accepted": (
        without(0),
        "record 1 (inbox/claimed) takes message 'd1', which does not wait",
    ),
    "a subagent that never settled": (without(13), "subagents have not settled: 'helper'"),
    "a subagent that never started": (without(12), "record 12 (subagent/end) settles session 's2', which does not run"),
    "a subagent that settled twice": (
        inserted(14, FACTS[13], turn=0, step=0),
        "record 14 (inserted) settles session 's2', which does not run",
    ),
    "a subagent that started twice": (
        inserted(13, FACTS[12], turn=0, step=0),
        "record 13 (inserted) starts session 's2', which runs",
    ),
}


@pytest.mark.parametrize(("records", "message"), DAMAGE.values(), ids=DAMAGE)
def test_each_kind_of_damage_is_found(records, message):
    with pytest.raises(AssertionError) as caught:
        check_log(damaged(records))
    assert str(caught.value) == f"session 'lead': {message}"


def test_a_call_that_failed_before_it_started_needs_no_record_of_a_start():
    records = [record for record in sound().records() if record.seq != 8]
    records[8] = attrs.evolve(records[8], data=result("c2", is_error=True))
    check_log(damaged([attrs.evolve(record, seq=seq) for seq, record in enumerate(records)]))


def test_a_result_that_takes_the_place_of_another_answers_no_call():
    log = sound()
    log.append(TurnStarted())
    log.append(result("c1"), replace=(7, 7))
    log.append(TurnEnded("completed"))
    check_log(log)


def test_a_surface_that_is_not_the_fold_is_found():
    records = list(sound().records())
    for instead, what in (
        ({"surface": lambda: records[4:5]}, "the surface differs from a fold of the records"),
        ({"derive_messages": list}, "the messages differ from a fold"),
    ):
        with pytest.raises(AssertionError) as caught:
            check_log(damaged(records, **instead))
        assert str(caught.value) == f"session 'lead': {what}"


async def test_the_logs_of_a_tree_of_agents_pass():
    model = ScriptedModel(
        {
            "lead": [
                [call("subagent", description="d", prompt="p"), call("add", a=1, b=2)],
                say("Done."),
                say("Again."),
            ],
            "lead/subagent-1": [[call("add", a=1, b="x")], say("Three.")],
            "lead/fork-1": [say("Forked.")],
        }
    )
    async with open_host(model=model, plugins=[delegation()]) as host, host.open_agent(AgentSpec("lead")) as lead:
        host.registrar.add(add)
        await lead.ask("Go.")
        forked = await fork(lead, "And?")
        assert forked.text == "Forked."
        lead.inject("by the way")
        check_log(lead.session)


def test_what_a_fork_shares_with_its_parent_is_not_its_own_to_answer_for():
    """Rule: a fork begins with completed turns; calls, messages and children in them are the parent's."""
    parent = new_log()
    for fact in (TurnStarted(), FACTS[12], StepStarted(), StepEnded(), TurnEnded("completed"), FACTS[13]):
        parent.append(fact)
    check_log(parent)
    check_log(parent.fork(SessionHeader("s3", path="lead/fork-1", created=0.0)))


# ---------------------------------------------------------------- check_requests


async def ran(model: RecordingModel, *asked: str) -> SessionLog:
    async with open_host(model=model) as host, host.open_agent(AgentSpec("lead")) as lead:
        host.registrar.add(add)
        for text in asked:
            await lead.ask(text)
        return lead.session


def two_turns() -> RecordingModel:
    return RecordingModel(ScriptedModel({"lead": [[call("add", a=1, b=2)], say("Three."), say("Yes.")]}))


async def test_requests_that_the_log_explains_pass():
    model = two_turns()
    log = await ran(model, "1 + 2?", "Sure?")
    assert len(model.sent) == 3
    check_requests(log, model.sent_by(log.id))


async def test_a_retried_request_passes():
    model = RecordingModel(ScriptedModel({"lead": [fail("busy", retry_after=0), say("Yes.")]}))
    log = await ran(model, "Sure?")
    assert len(model.sent) == 2
    check_requests(log, model.sent_by(log.id))


async def test_a_prompt_or_tools_that_changed_are_explained_by_a_record():
    model = RecordingModel(ScriptedModel({"lead": [say("One."), say("Two."), say("Three.")]}))
    async with open_host(model=model) as host, host.open_agent(AgentSpec("lead")) as lead:
        await lead.ask("1")
        host.registrar.add(Section("rules", order=200, text="Be brief."))
        await lead.ask("2")
        host.registrar.add(add)
        await lead.ask("3")
        sent = model.sent_by(lead.id)
        assert not sent[1].startswith(sent[0])
        assert not sent[2].startswith(sent[1])
        check_requests(lead.session, sent)


async def test_a_request_that_differs_from_its_rebuild_is_found():
    model = two_turns()
    log = await ran(model, "1 + 2?", "Sure?")
    sent = model.sent_by(log.id)
    with pytest.raises(AssertionError) as caught:
        check_requests(log, [sent[0], sent[1] + b" ", sent[2]])
    assert str(caught.value) == "session 'lead': turn 1 step 2 attempt 0 is not as it was sent"


async def test_a_request_that_was_not_sent_is_found():
    model = two_turns()
    log = await ran(model, "1 + 2?", "Sure?")
    with pytest.raises(AssertionError) as caught:
        check_requests(log, model.sent_by(log.id)[:2])
    assert str(caught.value) == "session 'lead': turn 2 step 1 attempt 0 was not sent"


async def test_a_request_that_is_not_logged_is_found():
    model = two_turns()
    log = await ran(model, "1 + 2?", "Sure?")
    sent = model.sent_by(log.id)
    with pytest.raises(AssertionError) as caught:
        check_requests(log, [*sent, sent[-1]])
    assert str(caught.value) == "session 'lead': 4 requests were sent and 3 of them are logged"


@pytest.fixture
def rebuilds(monkeypatch):
    """Have every request of a log rebuilt to what the test says, for a real log explains each of its changes."""

    def rebuild(*requests: bytes) -> list[bytes]:
        rest = iter(requests)
        monkeypatch.setattr(
            "creche.testing._invariants.rebuild_request",
            lambda *place, **where: SimpleNamespace(canonical_bytes=lambda: next(rest)),
        )
        return list(requests)

    return rebuild


def asked_twice(*between: Fact, replace: tuple[int, int] | None = None) -> SessionLog:
    """Return a log of two requests with a record between them."""
    log = new_log()
    for fact in (
        TurnStarted(),
        StepStarted(),
        SystemSaid(SystemMessage("")),
        HEADER,
        ANSWER,
        StepEnded(),
        StepStarted(),
    ):
        log.append(fact)
    for fact in between:
        log.append(fact, replace=replace)
    for fact in (ANSWER, StepEnded(), TurnEnded("completed")):
        log.append(fact)
    return log


HEADER = HeaderWritten(RequestHead(Settings("p", model="m")), reason="initial")
ANSWER = AssistantSaid(AssistantMessage([TextPart("Yes.")]))


def test_a_request_that_does_not_begin_with_the_one_before_it_needs_a_record_that_says_why(rebuilds):
    with pytest.raises(AssertionError) as caught:
        check_requests(asked_twice(UserSaid(UserMessage("a"))), rebuilds(b"one", b"two"))
    assert str(caught.value) == (
        "session 'lead': turn 1 step 2 attempt 0 does not begin with the request before it, and no record says why"
    )


def test_another_header_or_a_replaced_record_says_why(rebuilds):
    check_requests(asked_twice(HEADER), rebuilds(b"one", b"two"))
    check_requests(asked_twice(SystemSaid(SystemMessage("Be brief.")), replace=(2, 2)), rebuilds(b"one", b"two"))


async def test_each_attempt_is_compared_with_its_own_request():
    """Rule: attempts of one step may differ, where a wrapper changes their settings."""

    async def cooler(event, go_on):
        settings = await go_on()
        return attrs.evolve(settings, options=attrs.evolve(settings.options, temperature=1 / event.attempt))

    model = RecordingModel(ScriptedModel({"lead": [fail("busy", retry_after=0), say("Yes.")]}))
    async with open_host(model=model) as host, host.open_agent(AgentSpec("lead")) as lead:
        host.registrar.wrap(BuildRequest, cooler)
        await lead.ask("Sure?")
        first, second = model.sent_by(lead.id)
        assert first != second
        check_requests(lead.session, [first, second])
        with pytest.raises(AssertionError) as caught:
            check_requests(lead.session, [second, first])
        assert str(caught.value) == "session 'lead': turn 1 step 1 attempt 0 is not as it was sent"


async def test_a_request_that_was_cancelled_in_the_queue_was_neither_sent_nor_logged():
    inside = trio.Event()

    async def slow(request: ModelRequest) -> object:
        inside.set()
        await trio.sleep_forever()

    model = RecordingModel(FunctionModel(slow, limit=1))
    async with (
        open_host(model=model) as host,
        host.open_agent(AgentSpec("one")) as one,
        host.open_agent(AgentSpec("two")) as two,
    ):
        first = one.send("Go.")
        await inside.wait()
        second = two.send("Go.")
        await trio.testing.wait_all_tasks_blocked()
        for agent, delivery in ((two, second), (one, first)):
            agent.cancel("user")
            with pytest.raises(TurnCancelled):
                await delivery.reply()
        assert [len(model.sent_by(agent.id)) for agent in (one, two)] == [1, 0]
        for agent in (one, two):
            check_log(agent.session)
            check_requests(agent.session, model.sent_by(agent.id))


def test_the_system_prompts_of_a_surface_are_its_texts_in_order():
    log = new_log()
    for fact in (TurnStarted(), StepStarted(), SystemSaid(SystemMessage("Be brief."))):
        log.append(fact)
    assert system_texts(log) == ["Be brief."]
    assert system_texts(new_log()) == []


# ---------------------------------------------------------------- assert_no_leaks


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel({"**": [say("Yes.")]})


async def test_a_block_that_leaves_nothing_passes(model):
    async with open_host(model=model) as host, host.open_agent(AgentSpec("before")):
        with assert_no_leaks(host):
            async with host.open_agent(AgentSpec("lead", persona="You help.")) as lead:
                await lead.ask("Sure?")


async def test_an_agent_that_is_still_live_is_found(model):
    async with open_host(model=model) as host:
        with pytest.raises(AssertionError) as caught, assert_no_leaks(host):  # noqa: PT012 - the block is under test
            await host.start_agent(AgentSpec("b"))
            await host.start_agent(AgentSpec("a"))
        assert str(caught.value) == "agents are still live: a, b"


async def test_a_scope_that_still_declares_something_is_found(model):
    async with open_host(model=model) as host:
        key = ScopeKey("somewhere")
        with pytest.raises(AssertionError) as caught, assert_no_leaks(host):
            registration = host.registrar.at(key).add(add)
        assert str(caught.value) == "scopes still declare something: somewhere"
        with assert_no_leaks(host):
            registration.undo()


async def test_a_task_that_is_still_running_is_found_and_named(model):
    async with open_host(model=model) as host, trio.open_nursery() as nursery:
        with pytest.raises(AssertionError) as caught, assert_no_leaks(host):
            nursery.start_soon(trio.sleep_forever, name="a task of mine")
        assert str(caught.value) == "tasks are still running: a task of mine"
        nursery.cancel_scope.cancel()


async def test_a_task_that_took_the_place_of_another_is_found(model):
    """Rule: tasks are compared one by one, not counted."""
    async with open_host(model=model) as host, trio.open_nursery() as nursery:
        going = trio.CancelScope()

        async def old() -> None:
            with going:
                await trio.sleep_forever()

        nursery.start_soon(old)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(AssertionError) as caught, assert_no_leaks(host):  # noqa: PT012 - the block is under test
            nursery.start_soon(trio.sleep_forever, name="new")
            going.cancel()
            await trio.testing.wait_all_tasks_blocked()
        assert str(caught.value) == "tasks are still running: new"
        nursery.cancel_scope.cancel()


async def test_the_error_of_a_block_is_what_is_seen(model):
    async with open_host(model=model) as host:
        with pytest.raises(ValueError, match=r"^mine$"), assert_no_leaks(host):  # noqa: PT012 - the block is under test
            await host.start_agent(AgentSpec("a"))
            raise ValueError("mine")

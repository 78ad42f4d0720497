"""Approvals: who is asked, what is logged, how long an answer holds."""

import pytest
import trio
import trio.testing

from creche.messages import ToolCall
from creche.scope import ScopeKey, bind_scope_parent
from creche.session import ToolCalled
from creche.tools import (
    Allow,
    ApprovalRequest,
    Approver,
    Deny,
    Execute,
    Guard,
    PreExecute,
    Proceed,
    Refuse,
    RequestApproval,
    Tool,
    ToolContext,
    execute_call,
    restrict,
    tool,
)

UNANSWERED = (
    "Error: 'push' needs an approval, and nobody is there who could give it; do not call it again, find another way"
)


@pytest.fixture
def ran() -> list[str]:
    return []


@pytest.fixture
def bench(bench, ran):
    @tool(parallel=True)
    async def push(branch: str) -> str:
        """Push."""
        ran.append(branch)
        return "pushed"

    async def ask_first(event, go_on):
        decision = await go_on()
        arguments = decision.arguments if isinstance(decision, Proceed) else None
        branch = (arguments or event.execution.arguments)["branch"]
        return RequestApproval("It is public.", subject=f"push {branch}", arguments=arguments)

    bench.pen.add(push)
    bench.pen.wrap(PreExecute, ask_first)
    return bench


def approver(answer, asked=None):
    async def answer_it(request: ApprovalRequest):
        if asked is not None:
            asked.append(request)
        return answer

    return Approver(answer_it)


def logged(bench):
    """Return what the log says of approvals."""
    return [
        (record.data.subject, getattr(record.data, "decision", "requested"))
        for record in bench.agent.session.records()
        if record.kind.startswith("approval/")
    ]


async def test_a_call_that_nobody_can_allow_is_refused(bench, ran):
    """Rule: headless means no, with a code of its own."""
    assert await bench.run(("push", {"branch": "main"})) == [("c1", "approval-unanswered", UNANSWERED)]
    assert ran == []
    assert logged(bench) == [("push main", "requested"), ("push main", "unanswered")]


async def test_an_approver_sees_the_call_and_who_makes_it(bench, ran):
    asked: list[ApprovalRequest] = []
    bench.preset.add(approver(Allow(), asked))
    assert await bench.run(("push", {"branch": "main"})) == [("c1", "", "pushed")]
    [request] = asked
    assert (request.agent.path, request.tool, dict(request.arguments)) == ("lead", "push", {"branch": "main"})
    assert (request.reason, request.subject) == ("It is public.", "push main")
    [decided] = bench.agent.session.records("approval/decided")
    assert (decided.data.decision, decided.data.lasting, decided.data.by) == ("allowed", "once", "test")


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("", "Error: 'test' refused the call of 'push'; do not make it again as it was"),
        ("It is Friday.", "Error: 'test' refused the call of 'push': It is Friday.; do not make it again as it was"),
    ],
)
async def test_a_refusal_is_told_once_and_nothing_runs(bench, ran, reason, text):
    asked: list[ApprovalRequest] = []
    bench.pen.add(approver(Refuse(reason), asked))
    assert await bench.run(("push", {"branch": "main"})) == [("c1", "approval-refused", text)]
    assert (ran, len(asked)) == ([], 1)
    assert logged(bench) == [("push main", "requested"), ("push main", "refused")]


async def test_a_request_goes_up_the_chain_until_somebody_decides(bench, ran):
    """Rule: nearest first; ``None`` passes it on; who is asked after a decision is nobody."""
    order: list[str] = []

    def noting(name, answer):
        async def answer_it(request):
            order.append(name)
            return answer

        return Approver(answer_it)

    bench.pen.add(noting("global", Refuse("never asked")))
    bench.preset.add(noting("preset", Allow()))
    bench.own.add(noting("own", None))
    assert await bench.run(("push", {"branch": "main"})) == [("c1", "", "pushed")]
    assert order == ["own", "preset"]


async def test_a_sibling_and_a_scope_below_are_not_asked(bench, ran):
    sibling, below = ScopeKey("sibling"), ScopeKey("below")
    bind_scope_parent(sibling, bench.preset.scope)
    bind_scope_parent(below, bench.agent.scope)
    for scope in (sibling, below):
        bench.pen.at(scope).add(approver(Allow()))
    assert [code for _, code, _ in await bench.run(("push", {"branch": "main"}))] == ["approval-unanswered"]


@pytest.mark.parametrize("answer", [True, "yes", Allow])
async def test_an_approver_that_answers_anything_else_refuses(bench, ran, answer):
    bench.pen.add(approver(answer))
    [(_, code, text)] = await bench.run(("push", {"branch": "main"}))
    assert (code, ran) == ("approval-refused", [])
    assert text == "Error: nobody could say whether 'push' may be called: 'test' failed"
    [fault] = bench.faults
    assert fault.what == "answering a request to run tool 'push'"
    assert str(fault.error) == f"an approver returns Allow(), Refuse() or None, not {answer!r}"


async def test_an_approver_that_raises_refuses_whoever_is_above_it(bench, ran):
    async def broken(request):
        raise ValueError("a bug")

    bench.pen.add(approver(Allow()))
    bench.own.add(Approver(broken))
    [(_, code, _)] = await bench.run(("push", {"branch": "main"}))
    assert (code, ran) == ("approval-refused", [])
    assert [fault.owner for fault in bench.faults] == ["test"]


async def test_what_is_allowed_for_the_agent_is_not_asked_again(bench, ran):
    """Rule: it holds for its subject and no other."""
    asked: list[ApprovalRequest] = []
    bench.pen.add(approver(Allow("agent"), asked))
    for branch in ("main", "main", "other"):
        await bench.run(("push", {"branch": branch}))
    assert [request.subject for request in asked] == ["push main", "push other"]
    assert ran == ["main", "main", "other"]


async def test_what_is_allowed_once_is_asked_again(bench, ran):
    asked: list[ApprovalRequest] = []
    bench.pen.add(approver(Allow(), asked))
    await bench.run(("push", {"branch": "main"}), ("push", {"branch": "main"}))
    assert len(asked) == 2


async def test_requests_of_parallel_calls_wait_side_by_side(bench, ran, autojump_clock):
    """Rule: one that waits holds up nobody else."""
    doors = {"slow": trio.Event(), "quick": trio.Event()}

    async def answer(request):
        await doors[request.arguments["branch"]].wait()
        return Allow()

    bench.pen.add(Approver(answer))
    calls = bench.answer(("push", {"branch": "slow"}), ("push", {"branch": "quick"}))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run_calls, calls)
        await trio.testing.wait_all_tasks_blocked()
        doors["quick"].set()
        await trio.testing.wait_all_tasks_blocked()
        assert ran == ["quick"]
        doors["slow"].set()
    bench.close()
    assert bench.results() == [("c1", "", "pushed"), ("c2", "", "pushed")]


class Desk:
    """An approver that takes one request after the other, each when it is told to."""

    def __init__(self, *answers) -> None:
        self.asked: list[str] = []
        self.waiting: list[trio.Event] = []
        self.answers = list(answers)

    async def answer(self, request):
        self.asked.append(request.execution.context.call_id)
        answer = self.answers[len(self.waiting)]
        self.waiting.append(trio.Event())
        await self.waiting[-1].wait()
        return answer


@pytest.mark.parametrize("lasting", ["agent", "project"])
async def test_what_a_call_is_allowed_for_longer_is_not_asked_for_the_one_that_waits_behind_it(bench, ran, lasting):
    """Rule: of the calls of one agent for one tool and subject, one at a time is asked for."""
    desk = Desk(Allow(lasting))
    bench.pen.add(Approver(desk.answer))
    calls = bench.answer(*[("push", {"branch": "main"})] * 3)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run_calls, calls)
        await trio.testing.wait_all_tasks_blocked()
        [waiting] = desk.waiting
        waiting.set()
    bench.close()
    assert bench.results() == [(f"c{number}", "", "pushed") for number in (1, 2, 3)]
    assert logged(bench) == [("push main", "requested"), ("push main", "allowed")]
    assert len(ran) == 3


async def test_an_approver_that_makes_the_call_it_is_asked_for_fails(bench, ran):
    """Rule: nobody waits for itself."""

    async def answer(request):
        outcome = await bench.call("push", branch="main")
        return Refuse(outcome.code)

    bench.pen.add(Approver(answer))
    [(_, code, text)] = await bench.run(("push", {"branch": "main"}))
    assert (code, ran) == ("approval-refused", [])
    assert text == "Error: 'test' refused the call of 'push': internal; do not make it again as it was"
    assert len(bench.faults) == 1


@pytest.mark.parametrize(("answer", "codes"), [(Allow(), ["", ""]), (Refuse(), ["", "approval-refused"])])
async def test_an_answer_for_once_is_none_for_the_call_that_waits_behind(bench, answer, codes):
    desk = Desk(answer, Allow())
    bench.pen.add(Approver(desk.answer))
    calls = bench.answer(*[("push", {"branch": "main"})] * 2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run_calls, calls)
        for number in (0, 1):
            await trio.testing.wait_all_tasks_blocked()
            assert len(desk.waiting) == number + 1
            desk.waiting[number].set()
    bench.close()
    assert sorted(code for _, code, _ in bench.results()) == codes


async def test_who_waits_behind_a_call_that_is_cancelled_is_asked_for(bench, ran):
    """Rule: and of one that is cancelled while it waits behind another, nothing is logged."""
    desk = Desk(Allow(), Allow())
    bench.pen.add(Approver(desk.answer))
    calls = bench.answer(*[("push", {"branch": "main"})] * 3)
    contexts = [bench.context(call.id) for call in calls]
    scopes = [trio.CancelScope() for _ in calls]

    async def run(call, context, scope):
        with scope:
            await execute_call(bench.registry, bench.agent.scope, call, context)

    for call in calls:
        bench.agent.session.append(ToolCalled(call.id, name=call.name, arguments=call.arguments))
    async with trio.open_nursery() as nursery:
        for each in zip(calls, contexts, scopes, strict=True):
            nursery.start_soon(run, *each)
            await trio.testing.wait_all_tasks_blocked()
        assert desk.asked == ["c1"]
        scopes[1].cancel()
        scopes[0].cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert desk.asked == ["c1", "c3"]
        desk.waiting[1].set()
    assert ran == ["main"]
    assert [context.began for context in contexts] == [False, False, True]
    assert logged(bench) == [("push main", word) for word in ("requested", "cancelled", "requested", "allowed")]


async def test_a_call_that_is_cancelled_when_its_turn_comes_asks_no_more(bench):
    desk = Desk(Allow(), Allow())
    bench.pen.add(Approver(desk.answer))
    scope = trio.CancelScope()
    calls = bench.answer(*[("push", {"branch": "main"})] * 2)

    async def run(call, scope):
        with scope:
            await execute_call(bench.registry, bench.agent.scope, call, bench.context(call.id))

    for call in calls:
        bench.agent.session.append(ToolCalled(call.id, name=call.name, arguments=call.arguments))

    async def end_both(event, go_on):
        scope.cancel()  # the one that waits has been woken
        return await go_on()

    bench.pen.wrap(Execute, end_both)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, calls[0], trio.CancelScope())
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(run, calls[1], scope)
        await trio.testing.wait_all_tasks_blocked()
        desk.waiting[0].set()
    assert desk.asked == ["c1"]
    assert logged(bench) == [("push main", "requested"), ("push main", "allowed")]


async def test_the_time_behind_another_call_does_not_count(bench, ran, autojump_clock):
    desk = Desk(Allow("agent"))
    bench.pen.add(Approver(desk.answer))
    calls = bench.answer(*[("push", {"branch": "main"})] * 2)
    contexts = [bench.context(call.id) for call in calls]

    async def run(call, context):
        with context.time_limit(1) as limit:
            await execute_call(bench.registry, bench.agent.scope, call, context)
        assert not limit.cancelled_caught

    for call in calls:
        bench.agent.session.append(ToolCalled(call.id, name=call.name, arguments=call.arguments))
    async with trio.open_nursery() as nursery:
        for each in zip(calls, contexts, strict=True):
            nursery.start_soon(run, *each)
        await trio.sleep(10)
        desk.waiting[0].set()
    assert ran == ["main", "main"]


async def test_a_call_that_is_cancelled_while_it_waits_was_not_started(bench, ran):
    """Rule: requested and decided, whatever happens in between."""

    async def never(request):
        await trio.sleep_forever()

    bench.pen.add(Approver(never))
    calls = bench.answer(("push", {"branch": "main"}))
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.run_calls, calls)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    bench.close()
    assert [code for _, code, _ in bench.results()] == ["not-started"]
    assert logged(bench) == [("push main", "requested"), ("push main", "cancelled")]
    assert ran == []


async def test_nobody_is_asked_for_what_a_guard_refuses(bench, ran):
    asked: list[ApprovalRequest] = []
    bench.pen.add(approver(Allow(), asked))
    bench.pen.add(Guard(lambda execution: "not today"))
    assert await bench.run(("push", {"branch": "main"})) == [("c1", "denied", "Error: not today")]
    assert (asked, ran) == ([], [])


async def test_a_guard_that_comes_during_the_wait_refuses_what_was_allowed(bench, ran):
    """Rule: nobody can allow what a guard refuses, at the moment when the body would begin."""

    async def answer(request):
        bench.pen.add(Guard(lambda execution: "too late"))
        return Allow()

    bench.pen.add(Approver(answer))
    assert await bench.run(("push", {"branch": "main"})) == [("c1", "denied", "Error: too late")]
    assert ran == []


async def test_a_tool_that_is_hidden_during_the_wait_does_not_run(bench, ran):
    async def answer(request):
        bench.own.add(restrict(deny=["push"]))
        return Allow()

    bench.pen.add(Approver(answer))
    [(_, code, _)] = await bench.run(("push", {"branch": "main"}))
    assert (code, ran) == ("unknown-tool", [])


async def test_arguments_that_were_changed_are_what_is_asked_for_and_what_runs(bench, ran):
    async def rename(event, go_on):
        return Proceed({"branch": "draft"})

    asked: list[ApprovalRequest] = []
    bench.own.wrap(PreExecute, rename)
    bench.pen.add(approver(Allow(), asked))
    await bench.run(("push", {"branch": "main"}))
    assert ([dict(request.arguments) for request in asked], ran) == ([{"branch": "draft"}], ["draft"])
    assert asked[0].subject == "push draft"


async def test_a_call_without_an_agent_is_asked_for_too_each_time(bench, ran):
    asked: list[ApprovalRequest] = []
    bench.pen.add(approver(Allow("agent"), asked))
    call = ToolCall("c1", name="push", arguments='{"branch": "main"}')
    for _ in range(2):
        context = ToolContext(None, registry=bench.registry, call_id="c1", name="", number=1)
        outcome = await execute_call(bench.registry, None, call, context)
        assert outcome.text == "pushed"
    assert [request.agent_path for request in asked] == ["", ""]


@pytest.mark.parametrize("answer", [lambda request: Allow(), Allow, None])
def test_an_approver_that_is_not_async_is_refused_when_it_is_made(answer):
    with pytest.raises(TypeError, match=r"^an approver is an async function of the request"):
        Approver(answer)


@pytest.mark.parametrize(("kind", "wrong"), [(Allow, "forever"), (Allow, 3), (Refuse, 42), (Refuse, None)])
def test_an_answer_that_could_not_be_logged_cannot_be_made(kind, wrong):
    with pytest.raises((TypeError, ValueError)):
        kind(wrong)


async def test_an_approver_whose_answer_cannot_be_made_refuses(bench, ran):
    async def answer(request):
        return Allow("forever")

    bench.pen.add(Approver(answer))
    [(_, code, _)] = await bench.run(("push", {"branch": "main"}))
    assert (code, ran, logged(bench)[-1]) == ("approval-refused", [], ("push main", "refused"))


async def test_those_who_remember_are_asked_before_those_who_decide(bench, ran):
    order: list[str] = []

    def noting(name, answer, **options):
        async def answer_it(request):
            order.append(name)
            return answer

        return Approver(answer_it, **options)

    bench.own.add(noting("own", Allow()))
    bench.pen.add(noting("memory", None, remembers=True))
    await bench.run(("push", {"branch": "main"}))
    assert order == ["memory", "own"]


async def test_what_is_allowed_for_one_tool_is_not_allowed_for_another(bench, ran):
    """Rule: it holds for tool and subject."""
    asked: list[ApprovalRequest] = []

    @tool
    async def delete(branch: str) -> str:
        """Delete."""
        return "deleted"

    bench.pen.add(delete)
    bench.pen.add(approver(Allow("agent"), asked))
    await bench.run(("push", {"branch": "main"}))
    await bench.run(("delete", {"branch": "main"}))
    assert [(request.tool, request.subject) for request in asked] == [("push", "push main"), ("delete", "push main")]


async def test_a_denial_has_a_code_of_its_own_if_it_says_so(bench, ran, make_bench):
    bench = make_bench()

    async def deny(event, go_on):
        return Deny("Plan first.", code="plan-mode")

    bench.pen.add(Tool("push", description="", parameters={}, run=lambda: "", inline=True))
    bench.own.wrap(PreExecute, deny)
    assert await bench.run("push") == [("c1", "plan-mode", "Error: Plan first.")]


def test_a_denial_without_a_code_would_be_a_success():
    with pytest.raises(ValueError, match=r"^a refusal has a code"):
        Deny("no", code="")

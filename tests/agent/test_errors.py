"""What goes wrong in a turn comes out of `ask` as itself, is in the log, and the agent lives."""

import pytest
import trio
import trio.testing

from creche import AgentSpec, FunctionModel, call, open_host, say, tool
from creche.agent import BuildRequest, DeltaStreamed, PreStep, TurnStopping
from creche.errors import (
    ContextOverflowError,
    InternalError,
    LimitReachedError,
    ModelError,
    PromptError,
    StoreError,
    TurnCancelled,
    TurnRefused,
)
from creche.models import fail
from creche.prompt import AssemblePrompt, RuntimeContext, Section
from creche.scope import Fault
from creche.session import RecordAppended
from creche.testing import check_log, record_events


@tool
async def look() -> str:
    """Look around."""
    return "a tree"


def hello(request):
    return [say("hi")]


def once(wrong):
    """Return a model function that goes wrong in one way at its first request, and answers from then on."""
    left = [wrong]

    def answer(request):
        if not left:
            return [say("hi")]
        how = left.pop()
        if isinstance(how, BaseException):
            raise how
        return how

    return answer


async def check_lives(opened, ends, reason, sentence):
    """Check how the log says that the first turn ended, and that the agent answers."""
    assert not opened.agent.is_busy
    assert ends(opened.agent.session) == [(reason, sentence)]
    assert (await opened.agent.ask("again")).text == "hi"


# ---------------------------------------------------------------- the model


@pytest.mark.parametrize(
    ("code", "error_type"),
    [("credential", ModelError), ("context-overflow", ContextOverflowError), ("unknown-model", ModelError)],
)
async def test_a_model_error_comes_out_as_itself(lead, ends, code, error_type):
    async with lead(once(fail("it said no", code=code))) as opened:
        with pytest.raises(ModelError) as caught:
            await opened.agent.ask("hello")
        assert (type(caught.value), str(caught.value), caught.value.code) == (error_type, "it said no", code)
        (attempt,) = opened.agent.session.records("assistant/attempt")
        assert (attempt.data.error, attempt.data.code) == ("it said no", code)
        await check_lives(opened, ends, "error", "it said no")


async def test_a_bug_in_a_model_is_an_internal_error_from_its_cause(lead, ends):
    """Rule: what is neither a `CrecheError` nor cancellation is a bug, and is never told as a cancellation."""
    bug = ZeroDivisionError("division by zero")
    async with lead(once(bug)) as opened:
        with pytest.raises(InternalError) as caught:
            await opened.agent.ask("hello")
        sentence = "turn 1 of agent 'lead' hit a bug: ZeroDivisionError('division by zero')"
        assert (str(caught.value), caught.value.__cause__) == (sentence, bug)
        (attempt,) = opened.agent.session.records("assistant/attempt")
        assert (attempt.data.error, attempt.data.code) == ("ZeroDivisionError('division by zero')", "unknown")
        await check_lives(opened, ends, "error", sentence)


@pytest.mark.parametrize("where", ["prepare", "stream", "enter", "iterate", "exit"])
async def test_a_bug_anywhere_in_an_adapter_is_contained_in_the_turn(ends, lead, where):
    class Buggy:
        provider = model = "function"
        limiter = None
        _inner = FunctionModel(hello)
        bug = ValueError("mine")

        def _go_wrong(self, here):
            if here == where and self.bug is not None:
                bug, self.bug = self.bug, None
                raise bug

        async def prepare(self, settings, /):
            self._go_wrong("prepare")
            return await self._inner.prepare(settings)

        def stream(self, request, /):
            self._go_wrong("stream")
            self._answer = self._inner.stream(request)
            return self

        async def __aenter__(self):
            self._go_wrong("enter")
            await self._answer.__aenter__()
            return self

        def __aiter__(self):
            return self

        async def __anext__(self):
            self._go_wrong("iterate")
            return await self._answer.__anext__()

        async def __aexit__(self, *error):
            await self._answer.__aexit__(*error)
            self._go_wrong("exit")

    async with lead(Buggy()) as opened:
        with pytest.raises(InternalError) as caught:
            await opened.agent.ask("hello")
        assert str(caught.value.__cause__) == "mine"
        assert len(opened.agent.session.records("assistant/attempt")) == (0 if where == "prepare" else 1)
        await check_lives(opened, ends, "error", "turn 1 of agent 'lead' hit a bug: ValueError('mine')")


async def test_a_group_with_one_error_in_it_is_that_error(lead, ends):
    """Rule: the concurrency inside an adapter, a wrapper or a tool is an implementation detail."""
    refused = TurnRefused("not in this house", reason="house rules")

    async def wrong(event, following):
        async def refuse():
            raise refused

        async with trio.open_nursery() as outer:
            outer.start_soon(trio.sleep_forever)
            async with trio.open_nursery() as inner:
                inner.start_soon(trio.sleep_forever)
                inner.start_soon(refuse)
        return await following()

    async with lead(hello) as opened:
        with opened.pen.wrap(PreStep, wrong), pytest.raises(TurnRefused) as caught:
            await opened.agent.ask("hello")
        assert caught.value is refused
        await check_lives(opened, ends, "blocked", "not in this house")


async def test_a_group_with_several_errors_is_a_bug_with_the_group_as_its_cause(lead):
    async def wrong(event, following):
        raise ExceptionGroup("two things", [ModelError("one"), ValueError("two")])

    async with lead(hello) as opened:
        with opened.pen.wrap(PreStep, wrong), pytest.raises(InternalError) as caught:
            await opened.agent.ask("hello")
        assert [str(error) for error in caught.value.__cause__.exceptions] == ["one", "two"]
        assert (await opened.agent.ask("again")).text == "hi"


async def test_what_goes_wrong_beside_a_cancellation_is_told_and_not_the_cancellation(lead, ends):
    started = trio.Event()

    async def wrong(event, following):
        async def fail_on_the_way_out():
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("mine")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail_on_the_way_out)
            started.set()
            await trio.sleep_forever()

    async with lead(hello) as opened:
        with opened.pen.wrap(PreStep, wrong):
            delivery = opened.agent.send("hello")
            await started.wait()
            opened.agent.cancel()
            with pytest.raises(InternalError) as caught:
                await delivery.reply()
            assert str(caught.value.__cause__) == "mine"
        await check_lives(opened, ends, "error", "turn 1 of agent 'lead' hit a bug: ValueError('mine')")


async def test_and_also_when_the_whole_agent_is_cancelled(lead, ends):
    started = trio.Event()

    async def wrong(event, following):
        async def fail_on_the_way_out():
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("mine")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail_on_the_way_out)
            started.set()
            await trio.sleep_forever()

    async with lead(hello) as opened:
        opened.pen.wrap(PreStep, wrong)
        delivery = opened.agent.send("hello")
        await started.wait()
    with pytest.raises(InternalError):
        delivery.reply_nowait()
    assert ends(opened.agent.session) == [("error", "turn 1 of agent 'lead' hit a bug: ValueError('mine')")]


# ---------------------------------------------------------------- the prompt


async def test_a_prompt_with_an_unknown_variable_ends_the_turn_before_its_step(lead, kinds, ends):
    async with lead(hello) as opened:
        broken = Section("broken", order=300, text="You are in {{nowhere}}.")
        with opened.pen.add(broken), pytest.raises(PromptError) as caught:
            await opened.agent.ask("hello")
        sentence = str(caught.value)
        assert "'broken'" in sentence
        assert "nowhere" in sentence
        assert kinds(opened.agent.session) == ["inbox/accepted", "turn/start", "inbox/claimed", "turn/end"]
        await check_lives(opened, ends, "error", sentence)


async def test_a_context_that_raises_is_a_prompt_error_that_names_it(lead, ends):
    def wrong(context):
        raise ValueError("mine")

    async with lead(hello) as opened:
        broken = RuntimeContext("broken", order=300, text=wrong)
        with opened.pen.add(broken), pytest.raises(PromptError, match="'broken'") as caught:
            await opened.agent.ask("hello")
        assert str(caught.value.__cause__) == "mine"
        await check_lives(opened, ends, "error", str(caught.value))


async def test_messages_queued_behind_a_turn_that_fails_are_worked_on_all_the_same(lead, ends):
    async with lead(once(fail("it said no", code="credential"))) as opened:
        first, second = opened.agent.send("one"), opened.agent.send("two")
        with pytest.raises(ModelError):
            await first.reply()
        assert (await second.reply()).text == "hi"
        assert [reason for reason, _ in ends(opened.agent.session)] == ["error", "completed"]


# ---------------------------------------------------------------- wrappers and listeners


@pytest.mark.parametrize("operation", [AssemblePrompt, PreStep, BuildRequest, TurnStopping])
async def test_a_wrapper_that_returns_nothing_is_blamed_by_name(lead, ends, operation):
    async def forgets(event, following):
        await following()

    async with lead(hello) as opened:
        with opened.pen.wrap(operation, forgets), pytest.raises(InternalError) as caught:
            await opened.agent.ask("hello")
        sentence = str(caught.value)
        assert sentence.startswith(
            f"the wrapper of 'host' at scope 'lead' around {operation.wire_name} returned None where "
        )
        await check_lives(opened, ends, "error", sentence)


@pytest.mark.parametrize("operation", [AssemblePrompt, PreStep, BuildRequest, TurnStopping])
async def test_a_wrapper_that_raises_ends_the_turn_with_a_bug(lead, ends, operation):
    async def wrong(event, following):
        raise KeyError("mine")

    async with lead(hello) as opened:
        with opened.pen.wrap(operation, wrong), pytest.raises(InternalError) as caught:
            await opened.agent.ask("hello")
        assert caught.value.__cause__.__notes__ == [
            f"raised by the wrapper of 'host' at scope 'lead' around {operation.wire_name}"
        ]
        await check_lives(opened, ends, "error", "turn 1 of agent 'lead' hit a bug: KeyError('mine')")


async def test_a_limit_ends_the_turn_as_one(lead, ends):
    async def limit(event, following):
        raise LimitReachedError("no more than one step", code="requests")

    async with lead(hello) as opened:
        with opened.pen.wrap(PreStep, limit), pytest.raises(LimitReachedError) as caught:
            await opened.agent.ask("hello")
        assert (str(caught.value), caught.value.code) == ("no more than one step", "requests")
        await check_lives(opened, ends, "limit", "no more than one step")


async def test_listeners_that_fail_are_reported_and_hurt_no_turn(lead):
    def wrong(event):
        raise ValueError("mine")

    async with lead(hello) as opened:
        with (
            record_events(opened.host.registrar, Fault) as faults,
            opened.pen.on(RecordAppended, wrong),
            opened.pen.on(DeltaStreamed, wrong),
        ):
            assert (await opened.agent.ask("hello")).text == "hi"
        assert {fault.what for fault in faults} == {"hearing session/record-appended", "hearing agent/delta-streamed"}


# ---------------------------------------------------------------- the disk


async def test_a_checkpoint_that_fails_blocks_the_request_and_the_agent_lives(lead, slow_store, ends, autojump_clock):
    store = slow_store()
    async with lead(hello, store=store) as opened:
        store.error = StoreError("disk full")
        with record_events(opened.host.registrar, Fault) as faults:
            with pytest.raises(StoreError, match=r"^disk full$"):
                await opened.agent.ask("hello")
            await trio.testing.wait_all_tasks_blocked()
        assert opened.sent() == []
        assert [(fault.owner, fault.what, str(fault.error)) for fault in faults] == [
            ("lead", "making its closing records durable", "disk full")
        ]
        store.error = None
        await check_lives(opened, ends, "error", "disk full")
        # The message of the turn that failed is history: it was admitted before.
        assert [message.role for message in opened.agent.session.derive_messages()] == [
            "system",
            "user",
            "user",
            "assistant",
        ]


async def test_a_checkpoint_that_fails_before_a_body_leaves_no_call_without_a_result(
    lead, slow_store, ends, autojump_clock
):
    store = slow_store()

    def answer(request):
        if request.last_user_text != "go":
            return [say("hi")]
        store.error = StoreError("disk full")
        return [call("touch"), call("touch")]

    @tool
    async def touch() -> None:
        """Have an effect."""
        raise AssertionError("it ran")

    async with lead(answer, tools=[touch], store=store) as opened:
        with pytest.raises(StoreError, match=r"^disk full$"):
            await opened.agent.ask("go")
        codes = [record.data.code for record in opened.agent.session.records("tool/result")]
        assert codes == ["not-started", "not-started"]
        store.error = None
        await check_lives(opened, ends, "error", "disk full")


async def test_a_store_with_a_bug_in_its_closing_flush_is_reported_and_the_agent_lives(
    lead, slow_store, autojump_clock
):
    store = slow_store()

    async def break_store(event, following):
        store.error = OSError("mine")
        return await following()

    async with lead(hello, store=store) as opened:
        with record_events(opened.host.registrar, Fault) as faults:
            with opened.pen.wrap(TurnStopping, break_store):
                assert (await opened.agent.ask("hello")).text == "hi"
            await trio.testing.wait_all_tasks_blocked()
        assert [(fault.what, str(fault.error)) for fault in faults] == [("making its closing records durable", "mine")]
        store.error = None
        assert (await opened.agent.ask("again")).text == "hi"


# ---------------------------------------------------------------- the way out


def test_an_interrupt_in_a_turn_comes_out_of_the_program_and_leaves_a_whole_log():
    agents = []

    def answer(request):
        raise KeyboardInterrupt

    async def program():
        async with open_host(model=FunctionModel(answer)) as host, host.open_agent(AgentSpec("lead")) as agent:
            agents.append(agent)
            await agent.ask("hello")

    with pytest.raises(KeyboardInterrupt):
        trio.run(program)
    check_log(agents[0].session)
    assert agents[0].session.records("turn/end")[0].data.reason == "cancelled"


async def test_an_error_of_the_users_block_comes_out_as_itself_while_a_turn_is_open(lead, gate):
    opened = delivery = None

    async def fail_in_the_block():
        nonlocal opened, delivery
        async with lead(gate) as opened:
            delivery = opened.agent.send("hello")
            await gate.reached.wait()
            raise ValueError("mine")

    with pytest.raises(ValueError, match=r"^mine$") as caught:
        await fail_in_the_block()
    assert type(caught.value) is ValueError
    with pytest.raises(TurnCancelled, match=r"^turn 1 of agent 'lead' was cancelled \(closed\)$"):
        delivery.reply_nowait()
    check_log(opened.agent.session)


async def test_an_error_of_a_reply_ends_the_block_as_itself_if_nobody_catches_it(lead):
    with pytest.raises(ModelError, match=r"^it said no$") as caught:
        async with lead(lambda request: fail("it said no", code="credential")) as opened:
            await opened.agent.ask("hello")
    assert type(caught.value) is ModelError
    assert caught.value.__cause__ is None


# ---------------------------------------------------------------- a cancellation that was kept


async def keep_cancelled():
    """Return a `trio.Cancelled` whose scope has ended."""
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            return error
    raise AssertionError


async def test_a_tool_that_raises_a_cancellation_it_has_kept_fails_alone(lead, caplog):
    """Rule: no scope takes it, so it would end every task up to the host; a call's failure never touches its siblings."""

    @tool(parallel=True)
    async def stray() -> None:
        """Raise what was cancelled before."""
        raise await keep_cancelled()

    @tool(parallel=True)
    async def fine() -> str:
        """Take a moment."""
        await trio.testing.wait_all_tasks_blocked()
        return "fine"

    def answer(request):
        return [say("done")] if request.last_tool_text else [call("stray"), call("fine"), call("stray")]

    async with lead(answer, tools=[stray, fine]) as opened:
        assert (await opened.agent.ask("go")).text == "done"
        results = [(each.data.code, each.data.message.text) for each in opened.agent.session.records("tool/result")]
    sentence = "Error: RuntimeError: it raised a trio.Cancelled that it had kept, and nothing cancels it now"
    assert results == [("exception", sentence), ("", "fine"), ("exception", sentence)]


async def test_so_does_a_wrapper_around_a_turn(lead):
    """Rule: it is a bug like another; the agent lives."""

    async def wrong(event, following):
        raise await keep_cancelled()

    async with lead(hello) as opened:
        with opened.pen.wrap(PreStep, wrong), pytest.raises(InternalError) as caught:
            await opened.agent.ask("hello")
        assert str(caught.value).startswith("turn 1 of agent 'lead' hit a bug: ")
        assert isinstance(caught.value.__cause__, trio.Cancelled)
        assert (await opened.agent.ask("hello")).text == "hi"

"""One step's request: settings, attempts, the adapter's limit, and what stands in the log when."""

import attrs
import pytest
import trio
import trio.testing

from creche import AgentSpec, FunctionModel, call, open_host, say, tool
from creche.agent import (
    Again,
    BuildRequest,
    DeltaStreamed,
    Enter,
    GiveUp,
    LimiterAcquired,
    LimiterWaited,
    PreStep,
    RecoverRequest,
)
from creche.errors import ModelError, NotRegisteredError
from creche.models import (
    Finished,
    ModelOptions,
    ModelProvider,
    ReasoningDelta,
    RetryPolicy,
    Settings,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageReported,
    expand_stream,
    fail,
)
from creche.prompt import AssemblePrompt, Section
from creche.session import AttemptFailed, RecordAppended, RetryPlanned
from creche.testing import RecordingModel, record_events


@tool
async def look() -> str:
    """Look around."""
    return "a tree"


def hello(request):
    return [say("hi")]


# ---------------------------------------------------------------- settings


async def test_a_request_proposes_the_agents_options(lead):
    options = ModelOptions("high", max_tokens=100, temperature=0.5)
    seen = []

    def answer(request):
        seen.append(request.settings)
        return [say("hi")]

    async with lead(answer, options=options) as opened:
        assert opened.agent.options is options
        await opened.agent.ask("hello")
        assert seen == [Settings("function", model="function", options=options)]
        assert opened.agent.session.last_header.head.settings == seen[0]


async def test_what_a_wrapper_of_the_request_changes_holds_for_that_attempt_and_is_logged(lead):
    async def hurry(event, following):
        settings = await following()
        if len(opened.sent()) == 0:
            return attrs.evolve(settings, options=ModelOptions("low"))
        return settings

    efforts = []

    def answer(request):
        efforts.append(request.settings.options.effort)
        return [say("hi")]

    async with lead(answer, options=ModelOptions("high")) as opened:
        opened.pen.wrap(BuildRequest, hurry)
        await opened.agent.ask("hello")
        await opened.agent.ask("again")
        assert efforts == ["low", "high"]
        headers = [record.data for record in opened.agent.session.records("request/header")]
        assert [(header.reason, header.head.settings.options.effort) for header in headers] == [
            ("initial", "low"),
            ("change", "high"),
        ]


async def test_settings_of_another_provider_go_to_its_adapter_and_its_capabilities_count(lead):
    async def switch(event, following):
        return Settings("other", model="big")

    other = RecordingModel(FunctionModel(lambda request: [say(f"{request.settings.model} answers")], provider="other"))
    async with lead(hello) as opened:
        other.sent = opened.model.sent
        opened.host.registrar.add(ModelProvider("other", model=other))
        await opened.agent.ask("hello")
        with opened.pen.wrap(BuildRequest, switch):
            assert (await opened.agent.ask("hello")).text == "big answers"
        assert (await opened.agent.ask("hello")).text == "hi"
        routes = [
            (record.data.provider, record.data.model) for record in opened.agent.session.records("request/context")
        ]
        assert routes == [("function", "function"), ("other", "big"), ("function", "function")]


async def test_a_provider_that_nobody_registered_ends_the_turn_and_not_the_agent(lead, ends):
    async def switch(event, following):
        return Settings("nobody", model="big")

    async with lead(hello) as opened:
        sentence = r"^no model provider 'nobody' is registered"
        with opened.pen.wrap(BuildRequest, switch), pytest.raises(NotRegisteredError, match=sentence):
            await opened.agent.ask("hello")
        assert (await opened.agent.ask("again")).text == "hi"
        assert [reason for reason, _ in ends(opened.agent.session)] == ["error", "completed"]


async def test_what_is_said_while_a_request_is_built_joins_the_next_one(lead):
    async def note(event, following):
        if not opened.sent():
            opened.agent.inject("by the way")
        return await following()

    heard = []

    def answer(request):
        heard.append(request.user_texts)
        return [say("hi")]

    async with lead(answer) as opened:
        opened.pen.wrap(BuildRequest, note)
        await opened.agent.ask("hello")
        assert heard == [["hello"], ["hello", "by the way"]]


# ---------------------------------------------------------------- attempts


async def test_a_retry_asks_the_same_again_after_a_delay(lead, kinds, autojump_clock):
    """Rule: inside the step, the same prompt, users once, each attempt and each delay a record, on exact time."""
    attempts, assembled, stepped, built = [], [], [], []

    async def note_assembly(event, following):
        assembled.append(1)
        return await following()

    async def note_step(event, following):
        stepped.append(1)
        return await following()

    async def note_request(event, following):
        built.append(event.attempt)
        return await following()

    def answer(request):
        attempts.append((trio.current_time() - begun, request.canonical_bytes()))
        return [say("hi")] if len(attempts) == 4 else fail(f"failure {len(attempts)}", code="overloaded")

    model = FunctionModel(answer, retry=RetryPolicy(5, first_delay=0.5, jitter=0))
    async with lead(model) as opened:
        opened.pen.wrap(AssemblePrompt, note_assembly)
        opened.pen.wrap(PreStep, note_step)
        opened.pen.wrap(BuildRequest, note_request)
        opened.pen.add(Section("count", order=300, text=lambda context: f"Attempt {len(attempts)}."))
        begun = trio.current_time()
        reply = await opened.agent.ask("hello")
        assert [at for at, _ in attempts] == [0, 0.5, 1.5, 3.5]
        assert len({request for _, request in attempts}) == 1
        assert (len(assembled), len(stepped), built) == (1, 1, [1, 2, 3, 4])
        assert reply.usage == Usage(4)
        log = opened.agent.session
        assert [record.data for record in log.records("model/retry")] == [
            RetryPlanned(1, delay=0.5),
            RetryPlanned(2, delay=1.0),
            RetryPlanned(3, delay=2.0),
        ]
        assert [record.data for record in log.records("assistant/attempt")] == [
            AttemptFailed(f"failure {number}", code="overloaded") for number in (1, 2, 3)
        ]
        assert kinds(log, start=6) == [
            "request/header",
            "request/context",
            *["assistant/attempt", "model/retry"] * 3,
            "assistant/message",
            "step/end",
            "turn/end",
        ]


async def test_a_provider_that_asks_for_a_longer_wait_gets_it(lead, autojump_clock):
    times = []

    def answer(request):
        times.append(trio.current_time())
        return [say("hi")] if len(times) == 2 else fail("slow down", code="rate-limit", retry_after=42.0)

    async with lead(answer) as opened:
        await opened.agent.ask("hello")
        assert times[1] - times[0] == 42


async def test_retries_end_and_the_last_failure_is_what_the_asker_gets(lead, ends, autojump_clock):
    model = FunctionModel(lambda request: fail("still down"), retry=RetryPolicy(2, jitter=0))
    async with lead(model) as opened:
        with pytest.raises(ModelError) as caught:
            await opened.agent.ask("hello")
        assert (str(caught.value), caught.value.code) == ("still down", "server")
        assert opened.agent.usage == Usage(3)
        assert ends(opened.agent.session) == [("error", "still down")]


async def test_a_failure_that_no_retry_mends_is_not_tried_again(lead):
    async with lead(lambda request: fail("no such key", code="credential")) as opened:
        with pytest.raises(ModelError, match=r"^no such key$"):
            await opened.agent.ask("hello")
        assert len(opened.sent()) == 1


async def test_each_attempt_is_prepared_anew(lead, autojump_clock):
    prepared = []

    class Changing:
        provider = model = "function"
        limiter = None
        _inner = FunctionModel(
            lambda request: [say("hi")] if len(prepared) > 1 else fail(), retry=RetryPolicy(1, jitter=0)
        )

        async def prepare(self, settings, /):
            prepared.append(settings)
            call = await self._inner.prepare(settings)
            return attrs.evolve(call, context_window=1000 * len(prepared))

        def stream(self, request, /):
            return self._inner.stream(request)

    async with lead(Changing()) as opened:
        await opened.agent.ask("hello")
        windows = [record.data.context_window for record in opened.agent.session.records("request/context")]
        assert windows == [1000, 2000]


async def test_a_series_that_a_wrapper_asked_for_begins_once_and_not_again_at_the_retry(lead, autojump_clock):
    async def fresh(event, following):
        return Enter((await following()).messages, starts_series=True)

    answers = [fail(), [say("hi")], [say("again")]]
    model = FunctionModel(lambda request: answers.pop(0), retry=RetryPolicy(1, jitter=0))
    async with lead(model) as opened:
        with opened.pen.wrap(PreStep, fresh):
            await opened.agent.ask("hello")
        await opened.agent.ask("hello")
        headers = [record.data for record in opened.agent.session.records("request/header")]
        assert [(header.reason, header.starts_series) for header in headers] == [("initial", True)]


# ---------------------------------------------------------------- recovery


async def test_what_is_done_about_a_failed_attempt_can_be_wrapped(lead):
    """Rule: the attempt is in the log before it is asked what to do, and innermost is the adapter's policy."""
    seen = []

    async def once_more(event, following):
        decision = await following()
        seen.append(
            (
                str(event.error),
                event.attempt,
                event.in_a_row,
                decision,
                len(event.agent.session.records("assistant/attempt")),
            )
        )
        return Again() if event.attempt == 1 else decision

    answers = [fail("no such key", code="credential"), say("hi")]
    async with lead(lambda request: answers.pop(0)) as opened:
        opened.pen.wrap(RecoverRequest, once_more)
        assert (await opened.agent.ask("hello")).text == "hi"
        assert [record.data for record in opened.agent.session.records("model/retry")] == [RetryPlanned(1, delay=0.0)]
    assert seen == [("no such key", 1, 1, GiveUp(), 1)]


async def test_a_retry_can_be_refused(lead):
    async def never(event, following):
        return GiveUp()

    async with lead(lambda request: fail("busy", code="overloaded")) as opened:
        opened.pen.wrap(RecoverRequest, never)
        with pytest.raises(ModelError, match=r"^busy$"):
            await opened.agent.ask("hello")
        assert opened.agent.session.records("model/retry") == ()


async def test_each_route_has_retries_of_its_own(autojump_clock):
    asked = []
    policy = RetryPolicy(1, jitter=0)
    other = FunctionModel(lambda request: fail("other"), provider="other", retry=policy)

    async def recover(event, following):
        decision = await following()
        asked.append((event.settings.provider, event.in_a_row, type(decision)))
        return Again() if len(asked) == 2 else decision

    async def elsewhere(event, following):
        settings = await following()
        return Settings("other", model="m") if len(asked) >= 2 else settings

    model = FunctionModel(lambda request: fail("first"), retry=policy)
    async with open_host(model=model) as host, host.open_agent(AgentSpec("lead")) as agent:
        host.registrar.add(ModelProvider("other", model=other))
        host.registrar.wrap(RecoverRequest, recover)
        host.registrar.wrap(BuildRequest, elsewhere)
        with pytest.raises(ModelError, match=r"^other$"):
            await agent.ask("hello")
    assert asked == [("function", 1, Again), ("function", 2, GiveUp), ("other", 1, Again), ("other", 2, GiveUp)]


async def test_a_cancelled_recovery_leaves_one_record_an_attempt(lead, kinds):
    async def wait(event, following):
        waiting.set()
        await trio.sleep_forever()

    waiting = trio.Event()
    async with lead(lambda request: fail("busy", code="overloaded")) as opened:
        opened.pen.wrap(RecoverRequest, wait)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(opened.agent.ask, "hello")
            await waiting.wait()
            nursery.cancel_scope.cancel()
        assert kinds(opened.agent.session)[-3:] == ["assistant/attempt", "step/end", "turn/end"]


async def test_what_a_cut_answer_cost_so_far_is_counted(lead, chunk_model, autojump_clock):
    first = [UsageReported(Usage(1, input_tokens=90)), TextDelta("half")]
    second = [
        UsageReported(Usage(1, input_tokens=90)),
        TextDelta("hi"),
        Finished(usage=Usage(1, input_tokens=90, output_tokens=5)),
    ]
    async with lead(chunk_model(first, second, retries=1)) as opened:
        reply = await opened.agent.ask("hello")
        assert reply.usage == Usage(2, input_tokens=180, output_tokens=5)
        assert opened.agent.session.records("assistant/attempt")[0].data.usage == Usage(1, input_tokens=90)


async def test_reports_of_usage_are_no_deltas(lead, chunk_model):
    chunks = [UsageReported(Usage(1, input_tokens=9)), TextDelta("hi"), Finished()]
    async with lead(chunk_model(chunks)) as opened, opened.agent.stream("hello") as deltas:
        assert [delta async for delta in deltas] == [TextDelta("hi")]


# ---------------------------------------------------------------- what is no answer


NOTHING = "the model answered nothing"
CUT = "the answer ended before it was complete"
MORE = "the model streamed on after it had finished"


@pytest.mark.parametrize(
    ("chunks", "code", "sentence"),
    [
        ([Finished()], "empty-response", NOTHING),
        ([Finished("tool-calls")], "empty-response", NOTHING),
        ([ReasoningDelta("hm"), Finished()], "empty-response", NOTHING),
        ([], "stream-cut", CUT),
        ([TextDelta("half an ans")], "stream-cut", CUT),
        ([ToolCallDelta(0, id="c1", name="look", arguments="{}")], "stream-cut", CUT),
        ([TextDelta("done"), Finished(usage=Usage(1, output_tokens=7)), TextDelta("more")], "malformed", MORE),
        ([TextDelta("done"), Finished(usage=Usage(1, output_tokens=7)), Finished()], "malformed", MORE),
    ],
)
async def test_what_is_no_answer_is_a_failed_attempt_with_its_stream(
    *, lead, kinds, chunk_model, autojump_clock, chunks, code, sentence
):
    """Rule: such an attempt is never taken for an answer, is tried again, and nothing of it becomes history."""
    model = chunk_model(chunks, [TextDelta("hi"), Finished()], retries=1)
    async with lead(model, tools=[look]) as opened:
        assert (await opened.agent.ask("hello")).text == "hi"
        log = opened.agent.session
        (record,) = log.records("assistant/attempt")
        assert (record.data.code, record.data.error) == (code, sentence)
        deltas = [chunk for chunk in chunks if not isinstance(chunk, Finished)]
        assert list(expand_stream(record.data.stream)) == (deltas[:1] if code == "malformed" else deltas)
        assert record.data.usage == (Usage(1, output_tokens=7) if code == "malformed" else Usage(1))
        assert log.records("tool/call") == ()
        assert kinds(log)[-5:] == ["assistant/attempt", "model/retry", "assistant/message", "step/end", "turn/end"]


async def test_reasoning_beside_an_answer_is_kept(lead, chunk_model):
    chunks = [ReasoningDelta("hm", signature="s"), TextDelta("hi"), Finished()]
    async with lead(chunk_model(chunks)) as opened:
        reply = await opened.agent.ask("hello")
        assert (reply.text, [part.type for part in reply.parts]) == ("hi", ["reasoning", "text"])


# ---------------------------------------------------------------- the adapter's limit


async def test_an_adapters_limit_holds_for_all_agents_together_and_waiting_is_shown(lead, autojump_clock):
    running, most = 0, 0

    async def answer(request):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await trio.sleep(1)
        running -= 1
        return [say("hi")]

    async with lead(answer, limit=2) as opened:
        with (
            record_events(opened.host.registrar, LimiterWaited) as waited,
            record_events(opened.host.registrar, LimiterAcquired) as acquired,
        ):
            begun = trio.current_time()
            async with trio.open_nursery() as nursery:
                for number in range(20):
                    agent = await opened.host.start_agent(AgentSpec(f"a{number}"))
                    nursery.start_soon(agent.ask, "hello")
            assert (trio.current_time() - begun, most) == (10, 2)
        assert len(waited) == 18
        assert {event.limit for event in waited} == {2}
        assert len({event.agent_path for event in waited}) == 18
        assert {event.agent_path for event in acquired} == {event.agent_path for event in waited}
        for agent in opened.agents[1:]:
            await agent.aclose()


async def test_an_attempt_cancelled_while_it_waits_for_the_limit_was_none(lead, kinds, ends, autojump_clock):
    """Rule: what was never sent is no attempt and costs no request; the message was said and stays in the history."""

    async def answer(request):
        await trio.sleep(10)
        return [say("hi")]

    async with lead(answer, limit=1) as opened:
        agent = opened.agent
        other = await opened.host.start_agent(AgentSpec("other"))
        holding = other.send("hello")
        await trio.sleep(1)
        with trio.move_on_after(1):
            await agent.ask("hello")
        assert kinds(agent.session)[-3:] == ["request/context", "step/end", "turn/end"]
        assert ends(agent.session) == [("cancelled", "user")]
        assert (opened.sent(), agent.usage) == ([], Usage())
        assert opened.model.limiter.borrowed_tokens == 1
        await holding.reply()
        assert opened.model.limiter.borrowed_tokens == 0
        await other.aclose()


async def test_an_attempt_that_fails_gives_its_place_back_before_it_waits(lead, autojump_clock):
    finished = []

    def answer(request):
        if request.agent_path == "lead" and not finished:
            return fail(code="rate-limit", retry_after=100.0)
        finished.append((request.agent_path, trio.current_time() - begun))
        return [say("hi")]

    async with lead(answer, limit=1) as opened, opened.host.open_agent(AgentSpec("other")) as other:
        begun = trio.current_time()
        first = opened.agent.send("hello")
        await trio.sleep(1)
        await other.ask("hello")
        await first.reply()
        assert finished == [("other", 1), ("lead", 100)]


# ---------------------------------------------------------------- what stands in the log when


async def test_nothing_is_sent_before_the_log_is_durable_and_no_body_begins_before_its_call_is(
    lead, slow_store, autojump_clock
):
    store = slow_store()
    durable = []

    def last_durable():
        durable.append([line if isinstance(line, str) else line.kind for line in store.durable][-1])

    def answer(request):
        last_durable()
        return [say("done")] if request.last_tool_text else [call("touch")]

    @tool
    async def touch() -> None:
        """Note what is durable."""
        last_durable()

    async with lead(answer, tools=[touch], store=store) as opened:
        await opened.agent.ask("go")
        await opened.agent.wait_idle()
        await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(1)
        assert durable == ["request/context", "tool/call", "step/start"]
        assert store.durable == store.noted


async def test_an_unchanged_request_logs_nothing_but_what_is_said(lead, kinds):
    async with lead(hello) as opened:
        await opened.agent.ask("hello")
        start = len(opened.agent.session)
        await opened.agent.ask("hello")
        assert kinds(opened.agent.session, start) == [
            "inbox/accepted",
            "turn/start",
            "inbox/claimed",
            "step/start",
            "user/message",
            "assistant/message",
            "step/end",
            "turn/end",
        ]


async def test_what_a_model_still_says_after_a_cancellation_comes_before_its_settlement(lead, ends, autojump_clock):
    """Rule: nothing of an attempt comes after its record."""

    class Stubborn:
        provider = model = "function"
        limiter = None
        prepare = FunctionModel(hello).prepare

        def __init__(self):
            self.words = ["late ", "early "]

        def stream(self, request, /):
            return self

        async def __aenter__(self):
            return self

        def __aiter__(self):
            return self

        async def __anext__(self):
            if len(self.words) == 1:
                with trio.CancelScope(shield=True):
                    await trio.sleep(2)
            if not self.words:
                await trio.sleep_forever()
            return TextDelta(self.words.pop())

        async def __aexit__(self, *error):
            with trio.CancelScope(shield=True):
                await trio.sleep(1)

    order = []
    async with lead(Stubborn()) as opened:
        opened.pen.on(DeltaStreamed, lambda event: order.append(event.delta.text))
        opened.pen.on(RecordAppended, lambda event: order.append(event.record.kind))
        with trio.move_on_after(1):
            await opened.agent.ask("hello")
        await trio.sleep(10)
        assert order[-5:] == ["early ", "late ", "assistant/message", "step/end", "turn/end"]
        assert ends(opened.agent.session) == [("cancelled", "user")]
        assert opened.agent.session.records("assistant/message")[0].data.message.text == "early late "

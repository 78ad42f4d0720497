"""What other frameworks get wrong, each as a small test of what this one does.

The probes are those of `reference/peers.md`: the measured ones (2.1 to 2.5) and those of the first thirty
that this version is about. A docstring names the threads in which users asked for it.
"""

import threading
from functools import partial

import attrs
import pytest
import trio
import trio.testing

from creche import AgentSpec, ModelOptions, Plugin, RuntimeContext, Section, Usage, fork, open_host, say, spawn, tool
from creche.agent import BuildRequest, DeltaStreamed
from creche.errors import AgentError, PromptError, TurnCancelled
from creche.host import AgentOpened
from creche.models import FunctionModel, TextDelta, ToolCallDelta, call
from creche.session import RecordAppended, load_sessions
from creche.subagents import delegation
from creche.testing import RecordingModel, assert_no_leaks, check_log, check_requests, record_events
from creche.tools import ToolContext


def once(*calls):
    """Return a model function that makes these calls in its first step and says what came of the last."""

    def answer(request):
        return [say(request.last_tool_text or "nothing")] if request.messages[-1].role == "tool" else list(calls)

    return answer


def results(agent):
    return [(record.data.message.text, record.data.code) for record in agent.session.records("tool/result")]


async def sleep_then_note(effects, seconds):
    await trio.sleep(seconds)
    effects.append(seconds)
    return f"slept {seconds}"


# ---------------------------------------------------------------- parallel calls


async def test_a_call_that_fails_is_its_own_error_and_its_siblings_finish(autojump_clock):
    """1 and 20, measured in 2.1: pydantic-ai, openai-agents, ADK, LangGraph and inspect_ai cancel the sibling."""

    @tool(parallel=True)
    async def work(seconds: int) -> str:
        """Work."""
        if seconds == 2:
            raise ZeroDivisionError("division by zero")
        return await sleep_then_note(effects, seconds)

    effects = []
    model = FunctionModel(once(*[call("work", seconds=seconds) for seconds in (3, 2, 1)]))
    async with open_host(model=model) as host, host.open_agent(AgentSpec("lead")) as lead:
        host.registrar.add(work)
        await lead.ask("Go.")
        assert trio.current_time() == 3
        assert effects == [1, 3]
        assert results(lead) == [
            ("slept 3", ""),
            ("Error: ZeroDivisionError: division by zero", "exception"),
            ("slept 1", ""),
        ]
        check_log(lead.session)


async def test_a_call_of_an_unknown_tool_in_a_batch_hurts_no_other():
    """2."""

    @tool(inline=True)
    def known(text: str) -> str:
        """Echo."""
        return text

    calls = [call("known", text="a"), call("unknown", text="b"), call("known", text="c")]
    async with open_host(model=FunctionModel(once(*calls))) as host, host.open_agent(AgentSpec("lead")) as lead:
        host.registrar.add(known)
        assert (await lead.ask("Go.")).text == "c"
        assert [code for _, code in results(lead)] == ["", "unknown-tool", ""]


async def test_a_child_that_cancels_itself_is_a_failure_of_that_child_only(autojump_clock):
    """google/adk-python#7172: a child's own cancellation left its sibling alive."""

    async def answer(request):
        if request.agent_path == "lead":
            return once(*[call("subagent", description="d", prompt=name) for name in ("a", "b")])(request)
        if request.last_user_text == "a":
            next(agent for agent in agents if agent.path == request.agent_path).cancel("itself")
            await trio.sleep_forever()
        await trio.sleep(1)
        return [say("b is done")]

    agents = []
    async with open_host(model=FunctionModel(answer), plugins=[delegation()]) as host:
        host.registrar.on(AgentOpened, lambda event: agents.append(event.agent))
        async with host.open_agent(AgentSpec("lead")) as lead:
            await lead.ask("Go.")
            assert [code for _, code in results(lead)] == ["subagent-cancelled", ""]


# ---------------------------------------------------------------- cancellation


async def test_no_effect_of_an_async_tool_comes_after_its_parent_was_cancelled(autojump_clock):
    """4, measured in 2.2: in an Agno team the tool went on and its side effect fired after the cancel."""

    @tool
    async def work() -> str:
        """Work."""
        return await sleep_then_note(effects, 0.6)

    def answer(request):
        deeper = request.agent_path.count("/") < 3
        return [call("subagent", description="d", prompt="Go.") if deeper else call("work")]

    effects, agents = [], []
    async with open_host(model=FunctionModel(answer), plugins=[delegation()]) as host:
        host.registrar.add(work)
        host.registrar.on(AgentOpened, lambda event: agents.append(event.agent))
        async with host.open_agent(AgentSpec("lead")) as lead:
            with assert_no_leaks(host):
                with trio.move_on_after(0.2):
                    await lead.ask("Go.")
                assert trio.current_time() == 0.2
            await trio.sleep(10)
        assert effects == []
        assert [agent.depth for agent in agents] == [0, 1, 2, 3]
        for agent in agents:
            check_log(agent.session)
            assert [code for _, code in results(agent)] == ["cancelled"]


async def test_a_sync_tool_is_waited_for_so_its_effect_does_not_come_after_the_cancel():
    """4, measured in 2.2: in five of six frameworks the effect of a sync tool fired after the cancel had returned."""

    @tool
    def work() -> str:
        """Work in a thread."""
        begun.set()
        go_on.wait(10)
        effects.append("done")
        return "worked"

    begun, go_on = threading.Event(), threading.Event()
    effects, agents = [], []

    def answer(request):
        return [call("work") if "/" in request.agent_path else call("subagent", description="d", prompt="Go.")]

    async with open_host(model=FunctionModel(answer), plugins=[delegation()]) as host:
        host.registrar.add(work)
        host.registrar.on(AgentOpened, lambda event: agents.append(event.agent))
        async with host.open_agent(AgentSpec("lead")) as lead, trio.open_nursery() as nursery:
            delivery = lead.send("Go.")
            await trio.to_thread.run_sync(begun.wait, 10)
            lead.cancel("user")
            nursery.start_soon(trio.to_thread.run_sync, go_on.set)
            with pytest.raises(TurnCancelled):
                await delivery.reply()
            assert effects == ["done"], "it had ended by the time the cancel was answered"
        for agent in agents:
            check_log(agent.session)
        lead, child = agents
        assert results(child) == [("worked", "")], "what has ended well is logged as that"
        assert [code for _, code in results(lead)] == ["cancelled"]


async def test_a_spawn_after_the_cancel_starts_nothing(autojump_clock):
    """5. hermes-agent#110505: grandchildren that were attached late missed the stop."""

    @tool
    async def late() -> str:
        """Spawn from the clean-up of a cancelled call."""
        try:
            await trio.sleep_forever()
        finally:
            await spawn(lead, "Too late.", name="late")

    async with open_host(model=FunctionModel(once(call("late")))) as host:
        host.registrar.add(late)
        async with host.open_agent(AgentSpec("lead")) as lead:
            with trio.move_on_after(1):
                await lead.ask("Go.")
            (ended,) = lead.session.records("subagent/end")
            assert (ended.data.outcome, ended.data.usage.requests) == ("cancelled", 0)
            assert dict(host.agents) == {lead.id: lead}
            check_log(lead.session)


@pytest.mark.parametrize("leave_at", [TextDelta, ToolCallDelta, "tool/call", "subagent/start", "end"])
async def test_leaving_a_stream_at_any_event_has_no_further_effect(autojump_clock, leave_at):
    """6. openai-agents-python#574: the tool then started, its effect fired, and a second model call was made."""

    @tool
    async def work() -> str:
        """Work."""
        return await sleep_then_note(effects, 1)

    def answer(request):
        if "/" in request.agent_path:
            return once(say("I work."), call("work"))(request)
        return once(say("I delegate."), call("subagent", description="d", prompt="Go."))(request)

    effects, reached = [], trio.Event()
    model = RecordingModel(FunctionModel(answer))
    async with open_host(model=model, plugins=[delegation()]) as host:
        host.registrar.add(work)
        host.registrar.on(RecordAppended, lambda event: reached.set() if event.record.kind == leave_at else None)
        async with host.open_agent(AgentSpec("lead")) as lead:
            async with lead.stream("Go.") as deltas:
                if isinstance(leave_at, str) and leave_at != "end":
                    await reached.wait()
                else:
                    async for delta in deltas:
                        if leave_at != "end" and isinstance(delta, leave_at):
                            break
            requests = len(model.sent)
            await trio.sleep(10)
            assert len(model.sent) == requests
            assert effects == ([1] if leave_at == "end" else [])
            assert dict(host.agents) == {lead.id: lead}
            check_log(lead.session)


async def test_cancelling_twice_and_after_the_end_is_fine(autojump_clock):
    """agno#4786: the cancel call answered 500 because the run was already gone."""

    async def answer(request):
        await trio.sleep(1)
        return [say("done")]

    async with open_host(model=FunctionModel(answer)) as host, host.open_agent(AgentSpec("lead")) as lead:
        delivery = lead.send("Go.")
        await trio.testing.wait_all_tasks_blocked()
        lead.cancel("first")
        lead.cancel("second")
        with pytest.raises(TurnCancelled, match=r"\(first\)$"):
            await delivery.reply()
        lead.cancel("third")
        assert (await lead.ask("Still there?")).text == "done"
        check_log(lead.session)
    lead.cancel("fourth")


# ---------------------------------------------------------------- re-entry


async def test_an_agent_that_asks_itself_from_a_tool_is_refused_and_does_not_hang():
    """7. strands harness-sdk#1176: two calls on one agent corrupted its messages for good."""

    @tool
    async def ask_self() -> str:
        """Ask the agent that calls."""
        return (await lead.ask("Wait for yourself.")).text

    @tool
    def ask_self_from_a_thread() -> str:
        """The same, as sync code would."""
        return trio.from_thread.run(lead.ask, "Wait for yourself.").text

    calls = [call("ask_self"), call("ask_self_from_a_thread")]
    async with open_host(model=FunctionModel(once(*calls))) as host:
        host.registrar.add(ask_self)
        host.registrar.add(ask_self_from_a_thread)
        async with host.open_agent(AgentSpec("lead")) as lead:
            with trio.fail_after(20):
                await lead.ask("Go.")
            refusal = (
                "Error: agent 'lead' was asked from within its own turn, which would wait for itself; "
                "use steer() or send(), or ask a subagent"
            )
            assert results(lead) == [(refusal, "failed")] * 2
            assert (await lead.ask("Still there?")).outcome == "done"


# ---------------------------------------------------------------- the log


async def test_the_disk_says_of_each_call_that_it_has_begun_before_it_has(tmp_path):
    """9: after a kill inside of a tool, the call is there and its result is not; its sibling has not begun."""
    seen = []

    @tool
    async def look(context: ToolContext) -> str:
        """Read the log of the agent that calls, as another process would after a crash."""
        (file,) = tmp_path.iterdir()
        (log,) = load_sessions(file).values()
        seen.append(([record.data.call_id for record in log.records("tool/call")], len(log.tool_results())))
        return context.call_id

    async with open_host(model=FunctionModel(once(call("look"), call("look"))), store=tmp_path) as host:
        host.registrar.add(look)
        async with host.open_agent(AgentSpec("lead")) as lead:
            await lead.ask("Go.")
            first, second = [result.call_id for result in lead.session.tool_results()]
    assert seen == [([first], 0), ([first, second], 1)]


async def test_no_clock_no_id_and_no_path_stands_in_a_prompt():
    """19: the same program sends the same bytes in every run, so that a provider's cache holds across runs."""

    async def run():
        model = RecordingModel(
            FunctionModel(
                lambda request: [say(f"{len(request.messages)}")] if "/" in request.agent_path else lead_answer(request)
            )
        )
        async with open_host(model=model, plugins=[delegation()], persona="You help.") as host:
            host.registrar.add(RuntimeContext("weather", order=300, text="It rains."))
            async with host.open_agent(AgentSpec("lead")) as lead:
                await lead.ask("Go.")
                await spawn(lead, "A task.")
                await fork(lead, "A task.")
        return [(sent.agent_path, sent.canonical) for sent in model.sent]

    lead_answer = once(call("subagent", description="d", prompt="Go."))
    assert await run() == await run()


# ---------------------------------------------------------------- children


async def test_parallel_calls_of_one_definition_share_nothing(autojump_clock):
    """22. smolagents#1781: call A later reads call B's task. agno#5847: all members end up with one id."""

    async def answer(request):
        if request.agent_path == "lead":
            return once(*[call("subagent", description="d", prompt=f"task {number}") for number in range(20)])(request)
        if not request.last_tool_text:
            return [say(f"I begin {request.last_user_text}."), call("wait", seconds=len(request.last_user_text))]
        return [say(" | ".join(request.user_texts))]

    @tool(parallel=True)
    async def wait(seconds: int) -> str:
        """Wait."""
        await trio.sleep(seconds)
        return "waited"

    agents = []
    async with open_host(model=FunctionModel(answer), plugins=[delegation()]) as host:
        host.registrar.add(wait)
        host.registrar.on(AgentOpened, lambda event: agents.append(event.agent))
        async with host.open_agent(AgentSpec("lead")) as lead:
            await lead.ask("Go.")
        assert [text for text, _ in results(lead)] == [f"task {number}" for number in range(20)]
        children = [agent for agent in agents if agent is not lead]
        assert len({agent.id for agent in children}) == len({agent.path for agent in children}) == 20
        assert len({agent.scope for agent in children}) == 20


async def test_forks_at_once_have_the_same_head_and_do_not_see_each_other():
    """17, measured in 2.5: Strands copies messages under another prompt and other tools, so no cache matches."""
    model = RecordingModel(FunctionModel(lambda request: [say(f"answer {len(request.user_texts)}")]))
    async with open_host(model=model, plugins=[delegation()]) as host, host.open_agent(AgentSpec("lead")) as lead:
        await lead.ask("first")
        await lead.ask("second")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(fork, lead, "fork A", name="a"))
            nursery.start_soon(partial(fork, lead, "fork B", name="b"))
        last = model.sent_by(lead.id)[-1]
        first, second = [sent.canonical for sent in model.sent[-2:]]
        assert first.startswith(last)
        assert second.startswith(last)
        assert (b"fork A" in first, b"fork B" in first) != (b"fork A" in second, b"fork B" in second)
        assert not (b"fork A" in first and b"fork B" in first)


async def test_what_a_child_costs_shows_at_its_parent():
    """15, measured in 2.3: seven of nine frameworks show 22 of 44 tokens."""

    tokens = Usage(1, input_tokens=10, output_tokens=1)

    def answer(request):
        if "/" in request.agent_path:
            return [say("done", usage=tokens)]
        return [
            say("Go.", usage=tokens),
            *([] if request.last_tool_text else [call("subagent", description="d", prompt="Go.")]),
        ]

    async with (
        open_host(model=FunctionModel(answer), plugins=[delegation()]) as host,
        host.open_agent(AgentSpec("lead")) as lead,
    ):
        reply = await lead.ask("Go.")
        assert (reply.usage.total_tokens, reply.usage_tree.total_tokens, lead.usage.total_tokens) == (22, 33, 33)


async def test_a_child_streams_to_its_parent_under_its_own_path():
    """openai-agents-python#864, deepagents in 2.5: a child is invisible, or its events do not say whose they are."""

    def answer(request):
        if "/" in request.agent_path:
            return [say("from", " below")]
        return once(call("subagent", description="d", prompt="Go."))(request)

    async with (
        open_host(model=FunctionModel(answer), plugins=[delegation()]) as host,
        host.open_agent(AgentSpec("lead")) as lead,
    ):
        with record_events(host.registrar.at(lead.scope), DeltaStreamed) as heard:
            await lead.ask("Go.")
    said = [(event.agent_path, event.delta.text) for event in heard if isinstance(event.delta, TextDelta)]
    assert said == [("lead/subagent-1", "from"), ("lead/subagent-1", " below"), ("lead", "from below")]


async def test_a_message_to_a_child_that_waits_for_its_own_child_is_read(autojump_clock):
    """27."""

    async def answer(request):
        if request.agent_path.count("/") == 2:
            await trio.sleep(10)
            return [say("done")]
        if request.last_tool_text:
            return [say(" | ".join(request.user_texts))]
        return [call("subagent", description="d", prompt="Go on.")]

    async with (
        open_host(model=FunctionModel(answer), plugins=[delegation()]) as host,
        host.open_agent(AgentSpec("lead")) as lead,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(lead.ask, "Go.")
        await trio.sleep(5)
        (child,) = lead.children
        child.steer("Be quick.")
        await lead.wait_idle()
        assert results(lead) == [("Go on. | Be quick.", "")]


async def test_a_nested_call_returns_when_its_parent_is_cancelled(autojump_clock):
    """upstream #8827: a workflow's call never returned."""

    @tool
    async def workflow() -> str:
        """Run two children, one after the other, as a program would."""
        for name in ("one", "two"):
            await spawn(lead, "Wait.", name=name)
        return "done"

    async def answer(request):
        if "/" in request.agent_path:
            await trio.sleep_forever()
        return [call("workflow")]

    async with open_host(model=FunctionModel(answer)) as host:
        host.registrar.add(workflow)
        async with host.open_agent(AgentSpec("lead")) as lead:
            with trio.fail_after(5), trio.move_on_after(2):
                await lead.ask("Go.")
            assert [record.data.name for record in lead.session.records("subagent/start")] == ["one"]
            check_log(lead.session)


# ---------------------------------------------------------------- one registry, many views


async def test_two_runs_and_two_listeners_have_no_crossed_event():
    """21. crewAI#2991: a global event bus mixed the streams of different users."""
    async with (
        open_host(model=FunctionModel(lambda request: [say(request.agent_path)])) as host,
        host.open_agent(AgentSpec("ann")) as ann,
        host.open_agent(AgentSpec("bob")) as bob,
    ):
        with (
            record_events(host.registrar.at(ann.scope), RecordAppended, DeltaStreamed) as at_ann,
            record_events(host.registrar.at(bob.scope), RecordAppended, DeltaStreamed) as at_bob,
        ):
            async with trio.open_nursery() as nursery:
                for agent in (ann, bob) * 5:
                    nursery.start_soon(agent.ask, "Go.")
    assert {event.agent_path for event in at_ann} == {"ann"}
    assert {event.agent_path for event in at_bob} == {"bob"}
    assert len(at_ann) == len(at_bob) > 0


async def test_one_name_in_two_scopes_is_two_tools_and_each_agent_calls_its_own():
    """23. google/adk-python#5462: parallel agents overwrote one dict of tools, and calls went to the wrong agent."""

    def where(place):
        def tell(context: ToolContext) -> str:
            """Tell where."""
            return f"{place}, called by {context.agent.path}"

        return tool(name="where", inline=True, parallel=True)(tell)

    async with open_host(model=FunctionModel(once(call("where"), call("where")))) as host:
        host.registrar.add(where("global"))
        async with (
            host.open_agent(AgentSpec("ann", tools=[where("ann's")])) as ann,
            host.open_agent(AgentSpec("bob", tools=[where("bob's")])) as bob,
            host.open_agent(AgentSpec("eve")) as eve,
        ):
            async with trio.open_nursery() as nursery:
                for agent in (ann, bob, eve):
                    nursery.start_soon(agent.ask, "Go.")
                    nursery.start_soon(spawn, agent, "Go.")
            for agent, place in ((ann, "ann's"), (bob, "bob's"), (eve, "global")):
                assert [text for text, _ in results(agent)] == [f"{place}, called by {agent.path}"] * 2
                (ended,) = agent.session.records("subagent/end")
                assert ended.data.text == f"{place}, called by {agent.path}/spawn-1"


async def test_a_reader_that_stalls_is_cut_and_goes_on_from_the_log():
    """28: memory is bounded, and nothing is lost that the log has."""

    @tool(inline=True)
    def tick() -> str:
        """Do next to nothing."""
        return "ticked"

    def answer(request):
        return [say("done")] if len(request.messages) > 600 else [call("tick")]

    async with open_host(model=FunctionModel(answer)) as host:
        host.registrar.add(tick)
        async with host.open_agent(AgentSpec("lead")) as lead:
            read = []

            async def read_on(after):
                with lead.watch(after=after) as watch:
                    if not read:
                        await lead.ask("Go.")
                    async for event in watch:
                        read.append(event.record.seq)
                        if event.record.seq == len(lead.session) - 1:
                            break

            with pytest.raises(AgentError, match="was cut"):
                await read_on(-1)
            assert 0 < len(read) < len(lead.session)
            await read_on(read[-1])
            assert read == list(range(len(lead.session)))


async def test_braces_json_and_code_in_a_prompt_stay_as_they_are_and_a_missing_name_says_where():
    """29. ADK: an instruction with `{a}` is a KeyError."""
    literal = 'Use {a} and {"json": [1, {}]} and f"{x!r}" and a lone {{.'
    async with (
        open_host(model=FunctionModel(lambda request: [say(request.system)]), identity=False) as host,
        host.open_agent(AgentSpec("lead", persona=literal)) as lead,
    ):
        assert (await lead.ask("Go.")).text == literal
        rules = Section("rules", order=200, text="Ask {{nobody}}.")
        with host.registrar.at(lead.scope).add(rules), pytest.raises(PromptError) as caught:
            await lead.ask("Go.")
        assert str(caught.value) == (
            "unknown variable {{nobody}} in section 'rules' of 'host' at scope 'lead'; registered: cwd, model, provider; "
            "register a Variable of that name, or write {{open}} for two opening braces"
        )
        assert (await lead.ask("Go.")).text == literal


async def test_a_plugin_that_fails_to_mount_leaves_what_was_there_serving():
    """30, as far as there is no reload yet. carapace#412: a reload applied half of the configuration."""

    def half(registrar):
        registrar.add(Section("new", order=200, text="New."))
        raise ZeroDivisionError

    old = Plugin("p", setup=[Section("old", order=200, text="Old.")])
    async with (
        open_host(model=FunctionModel(lambda request: [say(request.system)]), identity=False, plugins=[old]) as host,
        host.open_agent(AgentSpec("lead")) as lead,
    ):
        with pytest.raises(Exception, match="setup of plugin 'p' failed"):
            await host.mount(Plugin("p", setup=[half]))
        assert (await lead.ask("Go.")).text == "Old."


async def test_a_child_follows_its_parents_route_and_effort():
    """upstream #455, #4077, #5266, #4666: a child kept the model of its creation, and lost the effort."""

    async def switch(event, next_):
        settings = await next_()
        return attrs.evolve(settings, model="new", options=ModelOptions(effort="high"))

    model = RecordingModel(FunctionModel(lambda request: [say(request.settings.model)]))
    async with open_host(model=model) as host, host.open_agent(AgentSpec("lead")) as lead:
        await lead.ask("before")
        with host.registrar.at(lead.scope).wrap(BuildRequest, switch, here_only=True):
            await lead.ask("after")
            opened = []
            host.registrar.on(AgentOpened, lambda event: opened.append(event.agent))
            assert (await spawn(lead, "A task.")).text == "new"
        (header,) = opened[0].session.records("request/header")
        assert (header.data.head.settings.model, header.data.head.settings.options.effort) == ("new", "high")
    check_requests(lead.session, model.sent_by(lead.id))

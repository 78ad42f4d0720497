"""What tools say besides their results, in the turns of an agent."""

import pytest
import trio
import trio.testing

from creche import AgentSpec, ScriptedModel, ToolContext, call, open_host, say, tool
from creche.subagents import spawn
from creche.testing import RecordingModel, check_log, check_requests
from creche.tools import ToolThreads


@tool
async def look(context: ToolContext) -> str:
    """Look."""
    context.defer("Mind the step.")
    return "seen"


@tool
async def finish(context: ToolContext) -> str:
    """Finish."""
    context.conclude()
    return "finished"


@tool
async def look_and_finish(context: ToolContext) -> str:
    """Look and finish."""
    context.defer("Mind the step.")
    context.conclude()
    return "finished"


def history(log):
    """Return role and text of what the model sees, without the system prompt."""
    return [(message.role, message.text) for message in log.derive_messages() if message.role in ("user", "tool")]


async def test_what_is_deferred_is_in_the_next_request_after_the_results():
    model = RecordingModel(ScriptedModel({"lead": [[call("look"), call("look")], say("done")]}))
    async with open_host(model=model) as host, host.open_agent(AgentSpec("lead", tools=[look])) as lead:
        assert (await lead.ask("Go.")).text == "done"
    assert history(lead.session) == [
        ("user", "Go."),
        ("tool", "seen"),
        ("tool", "seen"),
        ("user", "Mind the step."),
        ("user", "Mind the step."),
    ]
    check_log(lead.session)
    check_requests(lead.session, model.sent_by(lead.id))


async def test_a_turn_that_is_concluded_answers_what_was_deferred_first():
    """Rule: what is to join the next step is still answered, also by a conclusion."""
    model = ScriptedModel({"lead": [[call("look_and_finish")], say("I mind it.")]})
    async with open_host(model=model) as host, host.open_agent(AgentSpec("lead", tools=[look_and_finish])) as lead:
        assert (await lead.ask("Go.")).text == "I mind it."


async def test_a_concluded_turn_ends_with_its_step():
    """Rule: no request follows; the reply is the last message of the model."""
    model = ScriptedModel({"lead": [[say("Bye."), call("finish")]]})
    async with open_host(model=model) as host, host.open_agent(AgentSpec("lead", tools=[finish])) as lead:
        reply = await lead.ask("Go.")
    assert (reply.text, reply.usage.requests) == ("Bye.", 1)


async def test_what_a_cancelled_turn_deferred_waits_for_the_next(autojump_clock):
    @tool
    async def hang(context: ToolContext) -> str:
        """Hang."""
        context.defer("I was here.")
        await trio.sleep_forever()
        return ""

    model = ScriptedModel({"lead": [[call("hang")], say("ok")]})
    async with open_host(model=model) as host, host.open_agent(AgentSpec("lead", tools=[hang])) as lead:
        with trio.move_on_after(1):
            await lead.ask("Go.")
        assert (await lead.ask("And?")).text == "ok"
    assert [text for role, text in history(lead.session) if role == "user"] == ["Go.", "I was here.", "And?"]
    check_log(lead.session)


async def test_what_is_deferred_while_the_agent_closes_is_dropped(autojump_clock):
    @tool
    async def hang(context: ToolContext) -> str:
        """Hang."""
        try:
            await trio.sleep_forever()
        finally:
            context.defer("Too late.")
        return ""

    model = ScriptedModel({"lead": [[call("hang")]]})
    async with open_host(model=model) as host, host.open_agent(AgentSpec("lead", tools=[hang])) as lead:
        lead.send("Go.")
        await trio.sleep(1)
    check_log(lead.session)
    assert [record.data.message.text for record in lead.session.records("inbox/accepted")] == ["Go."]


# ---------------------------------------------------------------- calls that are made for calls


async def test_sync_bodies_that_wait_for_subagents_leave_them_threads(lead):
    """Rule: however many wait, what they wait for has threads; and no more run at once on any level."""

    @tool(parallel=True)
    def delegate(context: ToolContext) -> str:
        """Have a subagent do it."""
        return trio.from_thread.run(spawn, context.agent, "go").text

    @tool
    def work() -> str:
        """Do it."""
        return "done"

    def answer(request):
        if request.last_tool_text:
            return [say(request.last_tool_text)]
        depth = request.agent_path.count("/")
        return [call("work")] if depth == 2 else [call("delegate") for _ in range(2)]

    async with lead(answer, tools=[delegate, work]) as opened:
        opened.pen.provide(ToolThreads(trio.CapacityLimiter(2)))
        with trio.fail_after(10):
            assert (await opened.agent.ask("go")).text == "done"
    assert len(opened.agents) == 7


@pytest.mark.parametrize("at_once", [1, 2])
async def test_a_call_that_only_those_hold_up_that_wait_for_it_fails(lead, at_once):
    """Rule: as for asking in a circle, it is an error and no deadlock; whoever calls has it back in the end."""

    @tool(at_once=at_once)
    async def study(context: ToolContext) -> str:
        """Have a subagent study it."""
        return (await spawn(context.agent, "go")).text

    def answer(request):
        return [say(request.last_tool_text)] if request.messages[-1].role == "tool" else [call("study")]

    async with lead(answer, tools=[study]) as opened:
        for _ in range(2):
            with trio.fail_after(5):
                reply = await opened.agent.ask("go")
            assert reply.text == (
                f"Error: tool 'study' runs {at_once} at once at most, and the calls that run wait for this one, "
                "which would wait for them; do without it here"
            )
    assert len(opened.agents) == 1 + 2 * at_once


@pytest.mark.parametrize(("names", "at_once"), [(["study", "study"], 2), (["study", "check"], 1)])
async def test_calls_that_hold_each_other_up_are_a_circle_too(lead, names, at_once):
    """Rule: a place is lost as well to one whose own call waits for a place. The last that would wait fails."""
    begun, together = [], trio.Event()

    async def have_done(context: ToolContext, task: str) -> str:
        if "/" in context.agent.path:
            return "done"
        begun.append(task)
        if len(begun) == 2:
            together.set()
        await together.wait()
        return (await spawn(context.agent, task)).text

    @tool(at_once=at_once, parallel=True)
    async def study(context: ToolContext) -> str:
        """Have a subagent do the other task."""
        return await have_done(context, names[1])

    @tool(at_once=at_once, parallel=True)
    async def check(context: ToolContext) -> str:
        """Have a subagent do the other task."""
        return await have_done(context, names[0])

    def answer(request):
        if request.last_tool_text:
            return [say(request.last_tool_text)]
        return [call(name) for name in names] if "/" not in request.agent_path else [call(request.last_user_text)]

    async with lead(answer, tools=[study, check]) as opened:
        with trio.fail_after(5):
            await opened.agent.ask("go")
        said = [record.data.message.text for record in opened.agent.session.records("tool/result")]
    failed, done = sorted(said)
    assert done == "done"
    assert f"runs {at_once} at once at most, and the calls that run wait for this one" in failed


async def test_an_agent_that_is_started_meanwhile_waits_for_its_turn(lead):
    """Rule: nobody waits for it, so it can wait for the call that has started it."""
    started = []

    @tool(at_once=1)
    async def study(context: ToolContext) -> str:
        """Start another agent that studies, the first time."""
        if not started:
            started.append(await opened.host.start_agent(AgentSpec("other", tools=[study])))
            started[0].send("go")
            await trio.testing.wait_all_tasks_blocked()
        return f"studied by {context.agent.name}"

    def answer(request):
        return [say(request.last_tool_text)] if request.last_tool_text else [call("study")]

    async with lead(answer, tools=[study]) as opened:
        assert (await opened.agent.ask("go")).text == "studied by lead"
        await started[0].wait_idle()
        (result,) = started[0].session.tool_results()
        assert result.text == "studied by other"
        await started[0].aclose()

"""Four walks through all rooms, each from where something begins to where it arrives.

They are the first thing to read about how the rooms fit together, and they pin what crosses each wall.
"""

from typing import ClassVar

import attrs

from creche import AgentSpec, Preset, Section, Variable, open_host, say, tool
from creche.models import FunctionModel, ScriptedModel, call
from creche.prompt import AssembleContext, assemble, render_prompt
from creche.scope import Notification, scope_chain_of
from creche.session import rebuild_request
from creche.subagents import delegation
from creche.testing import RecordingModel, assert_no_leaks, check_log, check_requests
from creche.tools import ToolContext


async def test_a_section_walks_to_a_request():
    """From `registrar.add(Section(...))`: registry, view of a scope, assembly, text, log, message, bytes."""
    model = RecordingModel(FunctionModel(lambda request: [say("ok")]))
    rules = Section("team:rules", order=200, text="Cite {{what}}.")
    team = Preset("team", persona="You review.", setup=[rules, Variable("what", lambda context: "sources")])
    async with open_host(model=model, presets=[team], identity=False) as host:
        with assert_no_leaks(host):
            async with host.open_agent(AgentSpec("lead"), preset="team") as lead:
                # The registry: the scope of the agent sees what the scope of its preset declares.
                assert host.registry.merge(Section, lead.scope)["team:rules"] is rules
                assert host.registry.peek(Section, lead.scope) == {}

                # The prompt: every piece knows where it comes from, and is filled in when it is rendered.
                assembly = await assemble(host.registry, AssembleContext.of(lead))
                piece = next(piece for piece in assembly.sections if piece.name == "team:rules")
                assert (piece.text, piece.origin.owner) == ("Cite {{what}}.", "preset team")
                assert render_prompt(assembly) == "You review.\n\nCite sources."

                await lead.ask("Go.")

        # The log: the prompt is the first record of the history.
        (said,) = lead.session.records("system/message")
        assert lead.session.surface()[0] is said
        assert said.data.message.text == "You review.\n\nCite sources."

        # The request: its first message is that record's, and so are the bytes that were sent.
        (sent,) = model.sent_by(lead.id)
        assert sent.splitlines()[2] == b'{"role":"system","text":"You review.\\n\\nCite sources."}'
        assert rebuild_request(lead.session, 1, turn=1).canonical_bytes() == sent


async def test_a_message_walks_to_its_reply():
    """From `agent.send`: inbox, claim, turn, step, request, stream, answer, reply, and all of it in the log."""
    model = RecordingModel(ScriptedModel({"lead": [say("Hel", "lo.")]}))
    async with open_host(model=model, identity=False) as host, host.open_agent(AgentSpec("lead")) as lead:
        # Sending is synchronous, and accepted means in the log.
        delivery = lead.send("Good morning.")
        (accepted,) = lead.session.records()
        assert (accepted.kind, accepted.data.id, accepted.data.message.text) == (
            "inbox/accepted",
            delivery.id,
            "Good morning.",
        )
        assert (delivery.claimed, delivery.result, lead.is_busy) == (False, None, False)

        reply = await delivery.reply()
        assert (reply.text, reply.outcome, reply.turn, reply.usage.requests) == ("Hello.", "done", 1, 1)
        await lead.wait_idle()

        # The log: where each record stands is its turn and step.
        assert [(record.kind, record.turn, record.step) for record in lead.session.records()] == [
            ("inbox/accepted", 0, 0),
            ("turn/start", 1, 0),
            ("inbox/claimed", 1, 0),
            ("step/start", 1, 1),
            ("system/message", 1, 1),
            ("user/message", 1, 1),
            ("request/header", 1, 1),
            ("request/context", 1, 1),
            ("assistant/message", 1, 1),
            ("step/end", 1, 1),
            ("turn/end", 1, 0),
        ]
        # The answer: one record, with its stream in it.
        (answer,) = lead.session.records("assistant/message")
        assert answer.data.message.text == "Hello."
        assert [run.pieces for run in answer.data.stream] == [("Hel", "lo.")]
        # What the model was shown is what the log derives, up to its answer.
        shown = [message.role for message in lead.session.derive_messages()]
        assert shown == ["user", "assistant"]
        assert len(model.sent_by(lead.id)[0].splitlines()) == 2 + 1
    check_log(lead.session)
    check_requests(lead.session, model.sent_by(lead.id))


async def test_a_spawn_walks_to_its_result():
    """From a model's call: tool, provider, composition, a child's turn, settlement, tool result, reply."""
    model = RecordingModel(
        ScriptedModel(
            {
                "lead": [[call("subagent", description="count", prompt="Count to two.")], say("It counted.")],
                "lead/*": [say("One, two.")],
            }
        )
    )
    watched = []
    async with open_host(model=model, plugins=[delegation()]) as host:
        with assert_no_leaks(host):
            async with host.open_agent(AgentSpec("lead")) as lead:

                @tool(inline=True)
                def note(context: ToolContext) -> str:
                    """Not called: that a child sees it is what counts."""
                    return context.call_id

                host.registrar.at(lead.scope).add(note)
                with lead.watch(subtree=True) as watch:
                    reply = await lead.ask("Let somebody count.")
                    await lead.wait_idle()
                watched += [event async for event in watch]
        assert (reply.text, reply.usage.requests, reply.usage_tree.requests) == ("It counted.", 2, 3)

    # The order of it, over both logs: the child's whole turn stands between its start and its settlement.
    order = [(event.agent_path, event.record.kind) for event in watched]
    begin, end = order.index(("lead", "tool/call")), order.index(("lead", "tool/result"))
    assert order[begin : end + 1] == [
        ("lead", "tool/call"),
        ("lead", "subagent/start"),
        ("lead/subagent-1", "inbox/accepted"),
        ("lead/subagent-1", "turn/start"),
        ("lead/subagent-1", "inbox/claimed"),
        ("lead/subagent-1", "step/start"),
        ("lead/subagent-1", "system/message"),
        ("lead/subagent-1", "user/message"),
        ("lead/subagent-1", "user/message"),
        ("lead/subagent-1", "request/header"),
        ("lead/subagent-1", "request/context"),
        ("lead/subagent-1", "assistant/message"),
        ("lead/subagent-1", "step/end"),
        ("lead/subagent-1", "turn/end"),
        ("lead", "subagent/end"),
        ("lead", "tool/result"),
    ]
    # One session each, tied together by ids.
    (started,), (ended,) = lead.session.records("subagent/start"), lead.session.records("subagent/end")
    (child_request,) = [sent for sent in model.sent if sent.agent_path == "lead/subagent-1"]
    assert started.data.session_id == ended.data.session_id == child_request.session_id
    assert b'"name":"note"' in child_request.canonical, "the child sees its parent's own tools"
    # What comes back is the child's last message, as a value, a record and a tool result.
    assert (ended.data.outcome, ended.data.text) == ("done", "One, two.")
    assert [result.text for result in lead.session.tool_results()] == ["One, two."]
    check_log(lead.session)
    check_requests(lead.session, model.sent_by(lead.id))


@attrs.frozen
class Found(Notification):
    """Somebody found something."""

    wire_name: ClassVar[str] = "test/found"
    what: str
    """What it was."""


async def test_a_childs_event_walks_to_the_listener_of_an_ancestor():
    """From `registry.emit` at a grandchild: its chain, root first; no sibling, nothing below, no other preset."""

    @tool(inline=True)
    def find(context: ToolContext) -> str:
        """Find something and tell."""
        chains.append([key.label for key in scope_chain_of(context.agent.scope)])
        context.registry.emit(Found("a bug"), at=context.agent.scope)
        return "found"

    def answer(request):
        if request.agent_path.count("/") < 2 and not request.last_tool_text:
            return [call("subagent", description="d", prompt="Look further down.")]
        if not request.last_tool_text:
            return [call("find")]
        return [say("done")]

    heard, chains = [], []

    def listen(name):
        def setup(registrar):
            registrar.on(Found, lambda event: heard.append((name, event.what)))

        return setup

    presets = [Preset("team", tools=[find], setup=[listen("team")]), Preset("other", setup=[listen("other")])]
    async with open_host(model=FunctionModel(answer), plugins=[delegation()], presets=presets) as host:
        listen("host")(host.registrar)
        with assert_no_leaks(host):
            async with (
                host.open_agent(AgentSpec("lead", setup=[listen("lead")]), preset="team") as lead,
                host.open_agent(AgentSpec("sibling", setup=[listen("sibling")]), preset="team"),
                host.open_agent(AgentSpec("stranger", setup=[listen("stranger")]), preset="other"),
            ):
                await lead.ask("Go.")
                # The chain of the grandchild's scope is who heard it, from the far end.
                assert chains == [["lead/subagent-1/subagent-1", "lead/subagent-1", "lead", "preset team"]]
                assert heard == [("host", "a bug"), ("team", "a bug"), ("lead", "a bug")]

                # Further up, fewer hear it: events never flow down.
                heard.clear()
                host.registry.emit(Found("at the preset"), at=scope_chain_of(lead.scope)[1])
                host.registry.emit(Found("at the host"), at=None)
                assert heard == [("host", "at the preset"), ("team", "at the preset"), ("host", "at the host")]
    check_log(lead.session)

"""The seam: providers that come and go, what is refused before their code runs, what they are given."""

import pytest

from creche import AgentSpec, Budget, Preset, fork, open_host, say, spawn
from creche.errors import DuplicateNameError, NotRegisteredError, UnsupportedCapabilityError
from creche.models import FunctionModel
from creche.scope import Fault
from creche.subagents import (
    ProviderAdded,
    ProviderRemoved,
    SubagentCapabilities,
    SubagentProvider,
    SubagentRequest,
    SubagentResult,
    fork_provider,
    run_subagent,
    spawn_provider,
)
from creche.testing import record_events


def hello(request):
    return [say("hi")]


class Recorder:
    """A provider's run that notes what it was given."""

    def __init__(self):
        self.requests = []

    async def __call__(self, request):
        self.requests.append(request)
        return SubagentResult("done", text="done elsewhere")


async def test_a_provider_is_told_of_when_it_comes_and_when_it_is_gone(checked_host):
    """Rule: dispatched where it was registered, so those below hear nothing and those above do."""
    async with (
        checked_host(FunctionModel(hello), presets=[Preset("team")]) as checked,
        checked.host.open_agent(AgentSpec("lead"), preset="team") as lead,
    ):
        host = checked.host
        at_lead = host.registrar.at(lead.scope)
        with (
            record_events(host.registrar, ProviderAdded, ProviderRemoved) as above,
            record_events(at_lead, ProviderAdded, ProviderRemoved) as there,
        ):
            host.registrar.add(SubagentProvider("global", run=Recorder())).undo()
            seen = []
            listening = host.registrar.on(
                ProviderRemoved, lambda event: seen.append(event.name in host.registry.merge(SubagentProvider, None))
            )
            at_lead.add(SubagentProvider("own", run=Recorder())).undo()
            listening.undo()
        assert above == [
            ProviderAdded("global"),
            ProviderRemoved("global"),
            ProviderAdded("own"),
            ProviderRemoved("own"),
        ]
        assert there == [ProviderAdded("own"), ProviderRemoved("own")]
        assert seen == [False]


async def test_a_listener_that_raises_does_not_keep_a_provider_out(checked_host):
    def fails(event):
        raise ZeroDivisionError

    async with checked_host(FunctionModel(hello)) as checked:
        host = checked.host
        with (
            record_events(host.registrar, Fault) as faults,
            host.registrar.on(ProviderAdded, fails),
            host.registrar.add(SubagentProvider("own", run=Recorder())),
        ):
            assert "own" in host.registry.merge(SubagentProvider, None)
        assert [type(fault.error) for fault in faults] == [ZeroDivisionError]


async def test_a_name_is_taken_once_in_a_scope_and_the_nearest_wins(checked_host):
    async with checked_host(FunctionModel(hello)) as checked:
        host = checked.host
        with record_events(host.registrar, ProviderAdded) as heard, pytest.raises(DuplicateNameError):
            host.registrar.add(SubagentProvider("spawn", run=Recorder()))
        assert heard == []
        async with host.open_agent(AgentSpec("lead")) as lead, host.open_agent(AgentSpec("other")) as other:
            run = Recorder()
            with host.registrar.at(lead.scope).add(SubagentProvider("spawn", run=run)):
                assert (await spawn(lead, "A task.")).text == "done elsewhere"
                assert (await spawn(other, "A task.")).text == "hi"
            assert (await spawn(lead, "A task.")).text == "hi"
            (request,) = run.requests
            assert (request.parent, request.prompt, request.name) == (lead, "A task.", "spawn-1")


async def test_an_unknown_provider_is_refused_with_those_that_are_visible(checked_host):
    async with checked_host(FunctionModel(hello)) as checked, checked.host.open_agent(AgentSpec("lead")) as lead:
        with pytest.raises(NotRegisteredError) as caught:
            await run_subagent("remote", SubagentRequest(lead, prompt="A task.", name="child"))
        assert str(caught.value) == ("no subagent provider 'remote' is visible to agent 'lead'; visible: fork, spawn")


CAPABILITIES = {
    "output": ({"output": int}, "output"),
    "depth": ({"budget": Budget(depth=1)}, "budget"),
    "tool_filter": ({"deny": ["read"]}, "allow/deny"),
    "persona": ({"persona": "You."}, "persona"),
}


@pytest.mark.parametrize("missing", CAPABILITIES)
async def test_what_a_provider_lacks_is_refused_before_any_code_of_it_runs(checked_host, missing):
    options, named = CAPABILITIES[missing]
    run = Recorder()
    has = SubagentCapabilities(**{name: name != missing for name in CAPABILITIES})
    own = SubagentProvider("remote", run=run, capabilities=has)
    async with checked_host(FunctionModel(hello)) as checked, checked.host.open_agent(AgentSpec("lead")) as lead:
        checked.host.registrar.at(lead.scope).add(own)
        request = SubagentRequest(lead, prompt="A task.", name="child", **options)
        with pytest.raises(UnsupportedCapabilityError) as caught:
            await run_subagent("remote", request)
        assert (
            str(caught.value)
            == f"subagent provider 'remote' does not offer {named}=; leave it out, or name another provider"
        )
        assert run.requests == []
        for other, (accepted, _) in CAPABILITIES.items():
            if other != missing:
                request = SubagentRequest(lead, prompt="A task.", name="child", **accepted)
                assert (await run_subagent("remote", request)).text == "done elsewhere"
        assert len(lead.session) == 0, "what is not run in this process keeps its own records"


async def test_a_request_says_what_was_asked_for_and_nothing_else(checked_host):
    run = Recorder()
    everything = SubagentCapabilities(output=True, depth=True, tool_filter=True, persona=True)
    async with checked_host(FunctionModel(hello)) as checked, checked.host.open_agent(AgentSpec("lead")) as lead:
        pen = checked.host.registrar.at(lead.scope)
        pen.add(SubagentProvider("spawn", run=run, capabilities=everything))
        pen.add(SubagentProvider("fork", run=run, capabilities=everything))
        budget = Budget(depth=1)
        await spawn(
            lead,
            "A task.",
            name="n",
            persona="You.",
            allow=iter(["a"]),
            deny={"b"},
            preset="p",
            output=int,
            model="m:x",
            budget=budget,
        )
        await fork(lead, "A task.", allow=["a"])
        full, bare = run.requests
        assert (full.allow, full.deny, full.has_filter) == (("a",), ("b",), True)
        assert (full.persona, full.preset, full.output, full.model, full.budget) == ("You.", "p", int, "m:x", budget)
        assert (bare.name, bare.allow, bare.deny, bare.has_filter) == ("fork-1", ("a",), (), True)
        assert (bare.persona, bare.preset, bare.output, bare.model, bare.budget) == (None, None, None, None, None)
        assert not SubagentRequest(lead, prompt="p", name="n").has_filter
        for option in ("allow", "deny"):
            with pytest.raises(TypeError) as caught:
                SubagentRequest(lead, prompt="p", name="n", **{option: "read"})
            assert str(caught.value) == f"{option}= takes a list, not 'read'; write {option}=[...]"


async def test_a_provider_that_goes_lets_the_children_it_started_run_on(checked_host):
    async with checked_host(FunctionModel(hello)) as checked, checked.host.open_agent(AgentSpec("lead")) as lead:

        async def model(request):
            registration.undo()
            assert "own" not in checked.host.registry.merge(SubagentProvider, lead.scope)
            return [say("still here")]

        own = spawn_provider()
        registration = checked.host.registrar.at(lead.scope).add(SubagentProvider("own", run=own.run))
        request = SubagentRequest(lead, prompt="A task.", name="child", model=FunctionModel(model, provider="p"))
        assert (await run_subagent("own", request)).text == "still here"
        checked.agents.remove(checked.agent("lead/child"))  # it asked a model of its own


def test_what_is_built_in_says_what_it_can_do():
    fresh, forked = spawn_provider(), fork_provider()
    assert fresh.capabilities == SubagentCapabilities(output=True, depth=True, tool_filter=True, persona=True)
    assert forked.capabilities == SubagentCapabilities(depth=True, tool_filter=True)
    assert (fresh.inherits_parent_context, forked.inherits_parent_context) == (False, True)


async def test_every_host_has_both_of_its_own():
    async with open_host() as host:
        assert list(host.registry.merge(SubagentProvider, None)) == ["spawn", "fork"]

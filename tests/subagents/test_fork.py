"""Fork: what the first request of a child that starts from completed turns shares with its parent, and what not."""

import attrs
import pytest
import trio

from creche import (
    AgentSpec,
    ModelOptions,
    Preset,
    RuntimeContext,
    Section,
    Variable,
    fork,
    open_host,
    say,
    spawn,
    tool,
)
from creche.agent import BuildRequest
from creche.errors import RegistryError, UnsupportedCapabilityError
from creche.models import Capabilities, FunctionModel, PreparedCall, call
from creche.prompt import PERSONA_ORDER, PERSONA_SECTION
from creche.session import fold_surface
from creche.subagents import (
    SubagentCapabilities,
    SubagentProvider,
    SubagentRequest,
    delegation,
    fork_provider,
    run_subagent,
)
from creche.tools import Guard, ToolContext


@tool(inline=True)
def read(path: str) -> str:
    """Read a file."""
    return f"contents of {path}"


@tool(inline=True)
def write(path: str) -> str:
    """Write a file."""
    return f"wrote {path}"


def answer(request):
    """Say how many messages of others there are; in a task that says so, read a file first."""
    if request.last_user_text.startswith("read") and not request.last_tool_text:
        return [say("I will read it."), call("read", path="a.txt")]
    return [say(f"heard {len(request.user_texts)}")]


def shared_prefix(agent) -> list[bytes]:
    """Return what a fork must begin with: settings, tools, and the messages of the completed turns as they stand."""
    log = agent.session
    ends = [record.seq for record in log.records("turn/end")]
    settled, _ = fold_surface(list(log.records())[: ends[-1] + 1]) if ends else (None, None)
    head = log.last_header.head
    lines = [head.settings_line, head.tools_line]
    lines += [message.encoded for message in settled.messages] if settled is not None else []
    return [line.encode() for line in lines]


def assert_begins_like(fork_request: bytes, agent) -> None:
    prefix = shared_prefix(agent)
    assert fork_request.splitlines()[: len(prefix)] == prefix


async def test_a_fork_begins_with_every_byte_of_its_parents_completed_turns(checked_host):
    """Rule: settings, tools and the messages of completed turns are the same bytes, and only then its own task."""
    async with checked_host(FunctionModel(answer)) as checked:
        checked.host.registrar.add(read)
        async with checked.host.open_agent(AgentSpec("lead", persona="You lead.")) as lead:
            await lead.ask("read the file")
            await lead.ask("and now?")
            result = await fork(lead, "A task.")
            (request,) = checked.sent(checked.agent("lead/fork-1"))
            assert_begins_like(request, lead)
            assert request.startswith(checked.sent(lead)[-1])
            assert result.text == "heard 3"


@pytest.mark.parametrize("in_history", [False, True])
async def test_a_fork_in_the_middle_of_a_turn_sees_nothing_of_it(checked_host, in_history):
    """Rule: neither the turn in flight nor the inbox goes with a fork; the settings and tools of the turn do."""
    results = []

    @tool
    async def split(task: str) -> str:
        """Fork."""
        lead.send("queued while it works")
        lead.inject("noted while it works")
        results.append(await fork(lead, task))
        return "done"

    def model(request):
        if request.last_user_text == "split up" and not request.last_tool_text:
            return [call("split", task="T fork")]
        return [say(" | ".join(request.user_texts))]

    capabilities = Capabilities(system_prompt_update="in-history" if in_history else None)
    rules = ["Old rules."]
    async with checked_host(FunctionModel(model, capabilities=capabilities)) as checked:
        checked.host.registrar.add(split)
        checked.host.registrar.add(Section("rules", order=300, text=lambda context: rules[0]))
        async with checked.host.open_agent(AgentSpec("lead")) as lead:
            await lead.ask("first")
            rules[0] = "New rules."
            await lead.ask("split up")
            await lead.wait_idle()
        child = checked.agent("lead/fork-1")
        assert results[0].text == "first | T fork"
        assert child.session.records()[child.session.boundary].kind == "session/fork"
        assert [record.kind for record in child.session.records()[child.session.boundary :]].count(
            "inbox/accepted"
        ) == 1
        (request,) = checked.sent(child)
        in_flight = checked.sent(lead)[1]
        # The prompt changed in the turn in flight: in place, or after the history that both share.
        shared = 2 + (3 if in_history else 1)
        assert request.splitlines()[:shared] == in_flight.splitlines()[:shared]
        assert b"New rules." in request
        assert b"split up" not in request
        assert b"while it works" not in request


async def test_a_fork_shares_the_bytes_with_contexts_own_tools_a_persona_and_a_replaced_prompt(checked_host):
    async with checked_host(FunctionModel(answer)) as checked:
        host = checked.host
        host.registrar.add(read)
        host.registrar.add(RuntimeContext("weather", order=300, text="It rains."))
        host.registrar.add(RuntimeContext("who", order=301, text=lambda context: context.agent.path))
        host.registrar.add(Section("where", order=400, text="You ask {{model}} of {{provider}} in {{cwd}}."))
        rules = host.registrar.add(Section("rules", order=300, text="Old rules."))
        spec = AgentSpec("lead", persona="You lead.", tools=[write], cwd="/work")
        async with host.open_agent(spec) as lead:
            await lead.ask("read the file")
            rules.undo()
            host.registrar.add(Section("rules", order=300, text="New rules."))
            await lead.ask("again")
            await fork(lead, "A task.")
            (request,) = checked.sent(checked.agent("lead/fork-1"))
        assert_begins_like(request, lead)
        assert request.startswith(checked.sent(lead)[-1])
        assert request.splitlines()[1].count(b'"name"') == 2
        rest = request.splitlines()[len(checked.sent(lead)[-1].splitlines()) :]
        assert rest[0].startswith(b'{"role":"assistant"')
        assert b"A task." in rest[1]
        # What is its own comes last: the snapshot in which another path stands, and whom it works for.
        assert b"lead/fork-1" in rest[2]
        assert b"You are a subagent of 'lead'." in rest[2]
        assert len(rest) == 3


@pytest.mark.parametrize("here_only", [False, True])
async def test_a_fork_asks_what_wrappers_made_its_parent_ask(checked_host, here_only):
    """Rule: the settings that were sent count, and the prompt that names the model stays as its parent has it."""

    async def reroute(event, next_):
        settings = await next_()
        return attrs.evolve(settings, model="large", options=attrs.evolve(settings.options, effort="high"))

    async with checked_host(FunctionModel(answer)) as checked:
        host = checked.host
        host.registrar.add(Section("model", order=300, text="You are {{model}}."))
        async with host.open_agent(AgentSpec("lead", options=ModelOptions(max_tokens=100))) as lead:
            host.registrar.at(lead.scope).wrap(BuildRequest, reroute, here_only=here_only)
            await lead.ask("first")
            await fork(lead, "A task.")
        (request,) = checked.sent(checked.agent("lead/fork-1"))
        assert request.startswith(checked.sent(lead)[-1])
        assert b'"model":"large"' in request.splitlines()[0]
        assert b'"effort":"high","max_tokens":100' in request.splitlines()[0]


async def test_what_an_adapter_filled_in_is_filled_in_again_for_a_fork(checked_host):
    class WithDefaults:
        provider, model, limiter = "own", "m", None

        def __init__(self):
            self.stream = FunctionModel(answer).stream
            self.proposed = []

        async def prepare(self, settings):
            self.proposed.append(settings.options.effort)
            return PreparedCall(attrs.evolve(settings, options=ModelOptions("high")), defaults=("effort",))

    model = WithDefaults()
    async with checked_host(model) as checked, checked.host.open_agent(AgentSpec("lead")) as lead:
        await lead.ask("first")
        await fork(lead, "A task.")
        (request,) = checked.sent(checked.agent("lead/fork-1"))
        assert request.startswith(checked.sent(lead)[-1])
    assert model.proposed == [None, None]


async def test_a_fork_with_no_completed_turn_is_fresh(checked_host):
    async with checked_host(FunctionModel(answer)) as checked, checked.host.open_agent(AgentSpec("lead")) as lead:
        result = await fork(lead, "A task.")
        child = checked.agent("lead/fork-1")
        assert (result.text, child.session.boundary) == ("heard 1", 0)
        assert child.session.header.parent == lead.id
        assert child.session.records("session/fork") == ()


async def test_a_fork_answers_for_itself_and_not_with_what_it_inherited(checked_host):
    """Rule: what came with the fork was said by another, also in a result that has no text of its own."""

    def model(request):
        if request.agent_path == "lead":
            return [say("The parent's answer.")]
        raise ZeroDivisionError

    async with checked_host(FunctionModel(model)) as checked, checked.host.open_agent(AgentSpec("lead")) as lead:
        await lead.ask("first")
        result = await fork(lead, "A task.")
        assert (result.outcome, result.text, result.parts) == ("failed", "", ())
        assert (result.usage.requests, lead.usage.requests) == (1, 2)


async def test_forks_at_once_share_their_parents_turns_and_nothing_else(checked_host):
    """Rule: siblings see nothing of each other."""
    texts = {}

    async def start(name):
        texts[name] = (await fork(lead, f"T {name}", name=name)).text

    def model(request):
        return [say(" | ".join(request.user_texts))]

    async with checked_host(FunctionModel(model)) as checked, checked.host.open_agent(AgentSpec("lead")) as lead:
        await lead.ask("first")
        async with trio.open_nursery() as nursery:
            for name in ("a", "b", "c"):
                nursery.start_soon(start, name)
        assert texts == {name: f"first | T {name}" for name in ("a", "b", "c")}
        requests = [checked.sent(checked.agent(f"lead/{name}"))[0] for name in ("a", "b", "c")]
        assert (
            len({request.replace(b"T a", b"T").replace(b"T b", b"T").replace(b"T c", b"T") for request in requests})
            == 1
        )


async def test_a_fork_of_a_fork_has_both_histories(checked_host):
    async with checked_host(FunctionModel(answer)) as checked, checked.host.open_agent(AgentSpec("lead")) as lead:
        await lead.ask("first")
        async with lead.composer.compose(
            AgentSpec("middle"), parent=lead, session=lead.session.fork(header_of(lead, "middle"))
        ) as middle:
            delivery = middle.send("second")
            await middle.run_until_read()
            assert delivery.reply_nowait().text == "heard 2"
        assert (await fork(lead, "T")).text == "heard 2"


def header_of(parent, name):
    return attrs.evolve(parent.session.header, id=f"{parent.id}-{name}", path=f"{parent.path}/{name}", depth=1)


async def test_a_filter_on_a_fork_refuses_the_call_and_shows_the_tool_all_the_same(checked_host):
    """Rule: the tools of the request stay the same bytes, so what a fork may not do is stopped by a guard."""

    def model(request):
        if request.agent_path == "lead" or request.last_tool_text:
            return [say(request.last_tool_text or "hello")]
        return [call("write", path="x")]

    async with checked_host(FunctionModel(model)) as checked:
        checked.host.registrar.add(read)
        checked.host.registrar.add(write)
        async with checked.host.open_agent(AgentSpec("lead")) as lead:
            await lead.ask("first")
            for options in ({"deny": ["write"]}, {"allow": ["read"]}):
                result = await fork(lead, "Write.", **options)
                assert result.text == "Error: this subagent may not call 'write'"
                request = checked.sent(checked.agents[-1])[0]
                assert request.startswith(checked.sent(lead)[-1])
            assert (await fork(lead, "Write.", deny=["read"])).text == "wrote x"


async def test_the_guard_of_a_fork_holds_for_the_children_of_the_fork(checked_host):
    def model(request):
        if request.agent_path == "lead":
            return [say("hello")]
        if request.agent_path == "lead/fork-1" and not request.last_tool_text:
            return [call("subagent", description="d", prompt="Write.")]
        if request.agent_path == "lead/fork-1/subagent-1" and not request.last_tool_text:
            return [call("write", path="x")]
        return [say(request.last_tool_text)]

    async with checked_host(FunctionModel(model), plugins=[delegation()]) as checked:
        checked.host.registrar.add(write)
        async with checked.host.open_agent(AgentSpec("lead")) as lead:
            await lead.ask("first")
            result = await fork(lead, "Delegate.", deny=["write"])
            assert result.text == "Error: this subagent may not call 'write'"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"deny": ["wriet"]},
            "restriction at scope 'lead/fork-1' names 'wriet', which it does not inherit; inherited: read",
        ),
        ({"allow": ()}, None),
        ({"allow": "read"}, "allow= takes a list, not 'read'; write allow=[...]"),
        ({"deny": ["run_code"]}, None),
    ],
)
async def test_a_filter_that_would_not_do_what_it_says_is_refused_before_the_fork_starts(
    checked_host, options, sentence
):
    async with checked_host(FunctionModel(answer)) as checked:
        checked.host.registrar.add(read)
        async with checked.host.open_agent(AgentSpec("lead")) as lead:
            before = len(lead.session)
            with pytest.raises((RegistryError, TypeError)) as caught:
                await fork(lead, "A task.", **options)
            if sentence is not None:
                assert str(caught.value) == sentence
            assert len(lead.session) == before
            assert [agent.path for agent in checked.agents] == ["lead"]


@pytest.mark.parametrize(("option", "value"), [("preset", "team"), ("model", "function:other")])
async def test_a_fork_under_a_preset_or_with_a_model_of_its_own_is_refused(checked_host, option, value):
    async with (
        checked_host(FunctionModel(answer), presets=[Preset("team")]) as checked,
        checked.host.open_agent(AgentSpec("lead")) as lead,
    ):
        request = SubagentRequest(lead, prompt="A task.", name="f", **{option: value})
        with pytest.raises(UnsupportedCapabilityError) as caught:
            await run_subagent("fork", request)
        assert str(caught.value) == (
            f"subagent provider 'fork' does not offer {option}=: a fork shares its parent's requests byte for byte"
        )
        assert len(lead.session) == 0


async def test_a_fork_lives_where_its_parent_lives(checked_host):
    """Rule: preset, folder and depth are its parent's, and the header says so."""
    async with (
        checked_host(FunctionModel(answer), presets=[Preset("team")]) as checked,
        checked.host.open_agent(AgentSpec("lead", cwd="/work"), preset="team") as lead,
    ):
        await lead.ask("first")
        await fork(lead, "A task.")
        child = checked.agent("lead/fork-1")
        header = child.session.header
        assert (header.preset, header.cwd, header.depth, header.parent) == ("team", "/work", 1, lead.id)
        assert (child.preset, child.cwd, child.depth) == ("team", "/work", 1)


async def test_a_persona_that_stands_above_is_the_forks_too(checked_host):
    """Rule: a fork has no persona of its own, it says what its parent says."""
    async with (
        checked_host(FunctionModel(lambda request: [say(request.system)]), identity=False) as checked,
        checked.host.open_agent(AgentSpec("lead", persona="You lead.")) as lead,
    ):
        await lead.ask("first")
        assert (await fork(lead, "A task.")).text == "You lead."
        assert (await spawn(lead, "A task.")).text == "You lead."


def test_the_provider_of_forks_says_what_it_is():
    provider = fork_provider()
    assert provider.inherits_parent_context
    assert provider.capabilities == SubagentCapabilities(depth=True, tool_filter=True)
    assert isinstance(provider, SubagentProvider)


async def test_a_variable_of_the_parents_scope_counts_in_a_fork(checked_host):
    async with checked_host(FunctionModel(lambda request: [say(request.system)]), identity=False) as checked:
        spec = AgentSpec(
            "lead",
            setup=[
                Variable("who", lambda context: "Ann"),
                Section(PERSONA_SECTION, order=PERSONA_ORDER, text="You help {{who}}."),
                Guard(lambda execution: None),
            ],
        )
        async with checked.host.open_agent(spec) as lead:
            await lead.ask("first")
            assert (await fork(lead, "A task.")).text == "You help Ann."


async def test_what_a_fork_may_not_call_its_child_under_a_preset_may_not_call_either():
    """Rule: a child's authority is never wider without a grant, however the parent's was narrowed."""

    @tool
    async def escape(context: ToolContext) -> str:
        """Start a child under a preset."""
        return (await spawn(context.agent, "Go.", preset="any")).outcome

    @tool
    def wipe() -> str:
        """Delete everything."""
        raise AssertionError("nobody may call it")

    model = FunctionModel(lambda request: [say(request.last_tool_text)] if request.last_tool_text else [call("escape")])
    async with (
        open_host(model=model, presets=[Preset("any")]) as host,
        host.open_agent(AgentSpec("lead")) as lead,
    ):
        host.registrar.add(escape)
        host.registrar.add(wipe)
        result = await fork(lead, "Go.", deny=["wipe"])
        assert result.text == (
            "Error: agent 'lead/fork-1/spawn-1' could call 'wipe' under preset 'any', which 'lead/fork-1' cannot; "
            "add them to grants= of preset 'any', or leave them out of it"
        )

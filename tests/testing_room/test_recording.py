import trio

from creche import AgentSpec, open_host, tool
from creche.models import FunctionModel, Model, ModelRequest, ScriptedModel, Settings, call, say
from creche.testing import RecordingModel, check_requests


@tool(inline=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def script() -> ScriptedModel:
    return ScriptedModel({"*": [[say("Let me see."), call("add", a=1, b=2)], say("Three.")]}, limit=3)


async def test_every_request_is_kept_as_it_was_when_it_was_sent():
    seen: list[ModelRequest] = []
    inner = script()

    class Watching:
        provider, model, limiter, prepare = inner.provider, inner.model, inner.limiter, inner.prepare

        def stream(self, request: ModelRequest, /) -> object:
            seen.append(request)
            return inner.stream(request)

    model = RecordingModel(Watching())
    async with open_host(model=model) as host, host.open_agent(AgentSpec("lead")) as lead:
        host.registrar.add(add)
        await lead.ask("Go.")
        assert [each.agent_path for each in model.sent] == ["lead", "lead"]
        assert [each.session_id for each in model.sent] == [lead.id, lead.id]
        assert [each.canonical for each in model.sent] == [each.canonical_bytes() for each in seen]
        assert model.sent[1].canonical.startswith(model.sent[0].canonical)
        check_requests(lead.session, model.sent_by(lead.id))


async def test_the_requests_of_agents_are_told_apart():
    model = RecordingModel(script())
    async with open_host(model=model) as host:
        host.registrar.add(add)
        async with host.open_agent(AgentSpec("one")) as one, host.open_agent(AgentSpec("two")) as two:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one.ask, "Go.")
                nursery.start_soon(two.ask, "Go, too.")
            assert len(model.sent) == 4
            for agent in (one, two):
                assert len(model.sent_by(agent.id)) == 2
                check_requests(agent.session, model.sent_by(agent.id))
            assert model.sent_by("somebody else") == []


async def test_it_stands_for_the_model_behind_it():
    inner = script()
    model: Model = RecordingModel(inner)
    assert (model.provider, model.model, model.limiter) == (inner.provider, inner.model, inner.limiter)
    settings = Settings("scripted", model="scripted")
    assert await model.prepare(settings) is await inner.prepare(settings)


async def test_a_request_is_kept_also_when_the_model_fails():
    def broken(request: ModelRequest) -> object:
        raise ZeroDivisionError

    model = RecordingModel(FunctionModel(broken))
    async with open_host(model=model) as host, host.open_agent(AgentSpec("lead")) as lead:
        delivery = lead.send("Go.")
        await lead.wait_idle()
        assert delivery.result is not None
        check_requests(lead.session, model.sent_by(lead.id))
    assert len(model.sent) == 1


def test_a_kept_request_shows_whose_it_is_and_not_its_bytes():
    from creche.testing import SentRequest

    sent = SentRequest("lead", session_id="s1", canonical=b"secret")
    assert repr(sent) == "SentRequest(agent_path='lead', session_id='s1')"

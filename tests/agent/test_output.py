"""Structured answers: a class, the schema a model is held to, and the value that comes back."""

import json
from typing import NotRequired, TypedDict

import attrs
import pytest

from creche import AgentSpec, FunctionModel, ScriptedModel, call, open_host, say, tool
from creche.errors import ModelError, UnsupportedCapabilityError
from creche.models import Capabilities, Usage
from creche.testing import check_log


@attrs.frozen
class Finding:
    line: int
    text: str = ""


@attrs.frozen
class Review:
    ok: bool
    findings: list[Finding]


class Place(TypedDict):
    city: str
    country: NotRequired[str]


REVIEW = '{"ok": false, "findings": [{"line": 3, "text": "unused"}]}'


@tool(inline=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def scripted(*items):
    return ScriptedModel({"lead": items})


async def test_a_reply_has_the_value(lead):
    async with lead(scripted(say(REVIEW))) as opened:
        reply = await opened.agent.ask("Review it.", output=Review)
        assert reply.output == Review(ok=False, findings=[Finding(3, "unused")])
        assert reply.text == REVIEW


async def test_a_typed_dict_will_do(lead):
    async with lead(scripted(say('{"city": "Rome"}'))) as opened:
        assert (await opened.agent.ask("Where?", output=Place)).output == {"city": "Rome"}


async def test_a_fence_around_the_answer_is_looked_through(lead):
    async with lead(scripted(say(f"```json\n{REVIEW}\n```"))) as opened:
        assert (await opened.agent.ask("Review it.", output=Review)).output is not None


async def test_the_model_is_held_to_the_schema_for_that_turn_alone(lead):
    seen = []

    def answer(request):
        seen.append(request.settings.options.output_schema)
        return [call("add", a=1, b=2)] if len(seen) == 1 else [say('{"city": "Rome"}')]

    async with lead(FunctionModel(answer), tools=[add]) as opened:
        await opened.agent.ask("Where?", output=Place)
        await opened.agent.ask("And now?")
        check_log(opened.agent.session)
    assert [json.loads(schema)["required"] if schema else None for schema in seen] == [["city"], ["city"], None]


async def test_an_answer_that_does_not_fit_is_sent_back_once_with_every_problem(lead):
    async with lead(
        scripted(say('{"ok": "no", "findings": [{}]}', usage=Usage(1, output_tokens=5)), say(REVIEW))
    ) as opened:
        reply = await opened.agent.ask("Review it.", output=Review)
        told = [fact.data.message for fact in opened.agent.session.records("user/message")][-1]
        assert reply.output == Review(ok=False, findings=[Finding(3, "unused")])
        assert reply.usage.requests == 2
        assert told.source == "structured-output"
        assert told.text == (
            'Your answer does not fit its schema: ok: must be true or false, not "no"; findings[0].line: is required. '
            "Answer again, with one JSON object and nothing else."
        )


async def test_one_that_does_not_fit_twice_is_an_error(lead):
    async with lead(scripted(say("no"), say("[1]"), say("on"))) as opened:
        with pytest.raises(ModelError) as caught:
            await opened.agent.ask("Review it.", output=Review)
        assert caught.value.code == "malformed"
        assert str(caught.value).startswith("the answer does not fit Review: ")
        assert (await opened.agent.ask("Go on.")).text == "on"
        check_log(opened.agent.session)


@pytest.mark.parametrize("finish", ["max-tokens", "refusal"])
async def test_an_answer_that_is_not_done_has_no_value(finish, lead):
    async with lead(scripted(say("{", finish=finish))) as opened:
        reply = await opened.agent.ask("Review it.", output=Review)
        assert reply.output is None
        assert reply.outcome != "done"


async def test_a_model_that_cannot_be_held_to_a_schema_is_not_asked(lead):
    model = FunctionModel(lambda request: [say(REVIEW)], capabilities=Capabilities())
    async with lead(model) as opened:
        with pytest.raises(UnsupportedCapabilityError) as caught:
            await opened.agent.ask("Review it.", output=Review)
        assert str(caught.value) == (
            "model 'function' of 'function' is not known to hold its answer to a schema; "
            "ask for text, or say that it can with a ModelCard"
        )
        assert (await opened.agent.ask("Review it.")).text == REVIEW


@pytest.mark.parametrize("wrong", [int, list[int], object])
async def test_a_class_without_fields_is_refused_at_once(wrong, lead):
    async with lead(scripted(say("x"))) as opened:
        with pytest.raises(TypeError) as caught:
            await opened.agent.ask("hi", output=wrong)
        assert (
            str(caught.value)
            == f"{wrong!r} is not a class with fields; give an attrs class, a dataclass or a TypedDict"
        )
        assert len(opened.agent.session) == 0


async def test_a_stream_has_the_value_too():
    async with (
        open_host(model=scripted(say('{"city": ', '"Rome"}'))) as host,
        host.open_agent(AgentSpec("lead")) as lead,
        lead.stream("Where?", output=Place) as deltas,
    ):
        assert len([delta async for delta in deltas]) == 2
        assert deltas.reply.output == {"city": "Rome"}

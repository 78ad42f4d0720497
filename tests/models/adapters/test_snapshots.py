"""What goes over the wire in a whole session, body by body: tools, images, a fork, a system prompt that changes.

The bodies are kept in ``snapshots/``, one file a wire and a way of changing the prompt. When one is to change, look at
the difference and write them anew:

    python tests/models/adapters/test_snapshots.py
"""

import json
from pathlib import Path

import pytest
import trio

from creche import AgentSpec, Section, call, fork, open_host, say, tool
from creche.messages import ImagePart, TextPart
from creche.models import ModelOptions
from creche.models.adapters import AnthropicModel, OpenAIModel
from creche.testing import open_mock_provider, think

SNAPSHOTS = Path(__file__).parent / "snapshots"
PIXEL = ImagePart("iVBORw0KGgo=", media_type="image/png")
MODELS = {
    ("openai", "in-place"): "o3",
    ("openai", "in-history"): "gpt-5",
    ("anthropic", "in-place"): "claude-haiku-4-5",
    ("anthropic", "in-history"): "claude-opus-5-5",
}
CASES = [pytest.param(*case, id="-".join(case)) for case in MODELS]


@tool(inline=True)
def look(path: str) -> list[TextPart | ImagePart]:
    """Look at a picture.

    Args:
      path: Where it is.
    """
    return [TextPart(f"This is {path}:"), PIXEL]


SCRIPT = [
    [think("A cat?", signature="c2ln"), say("Let me look."), call("look", path="a.png"), call("look", path="b.png")],
    [say("Two cats.")],
    [say("A third cat.")],
    [say("Still cats.")],
]


async def session(wire, way):
    """Run the session and return the bodies of its requests."""
    rules = ["Answer in a sentence."]
    async with open_mock_provider(SCRIPT) as mock:
        if wire == "openai":
            model = OpenAIModel(MODELS[wire, way], base_url=mock.openai_url)
        else:
            model = AnthropicModel(MODELS[wire, way], base_url=mock.anthropic_url, api_key="none")
        spec = AgentSpec("lead", tools=[look], options=ModelOptions("low", max_tokens=4000, tool_choice="auto"))
        async with open_host(model=model, identity=False) as host, host.open_agent(spec) as lead:
            host.registrar.add(Section("rules", order=200, text=lambda context: rules[0]))
            await lead.ask([TextPart("What do you see?"), PIXEL])
            await fork(lead, "Is there a third one?")
            rules[0] = "Answer in a word."
            await lead.ask("And now?")
        return [request.body for request in mock.requests]


def shown(bodies):
    """Return bodies as a page of JSON."""
    return json.dumps([json.loads(body) for body in bodies], indent=1, ensure_ascii=False) + "\n"


def shared(one, other):
    """Return how many bytes two bodies have in common at their beginning."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def end_of_history(body):
    """Return the length of a body without what closes its history."""
    return len(body) - len(b"]}")


@pytest.mark.parametrize(("wire", "way"), CASES)
async def test_the_bodies_are_those_of_the_snapshot(wire, way):
    path = SNAPSHOTS / f"{wire}-{way}.json"
    assert shown(await session(wire, way)) == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(("wire", "way"), CASES)
async def test_a_body_begins_with_the_one_before_unless_the_prompt_changed_in_place(wire, way):
    first, second, forked, last = await session(wire, way)
    assert shared(first, second) == end_of_history(first)
    assert shared(second, forked) >= end_of_history(second)
    if way == "in-history":
        assert shared(second, last) >= end_of_history(second)
    else:
        assert first.index(b"Answer in a ") < shared(second, last) < first.index(b"What do you see?")


if __name__ == "__main__":
    SNAPSHOTS.mkdir(exist_ok=True)
    for key in MODELS:
        page = shown(trio.run(session, *key))
        (SNAPSHOTS / f"{'-'.join(key)}.json").write_text(page, encoding="utf-8")

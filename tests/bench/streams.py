"""What a delta costs over HTTP: our adapters beside the streams of the official SDKs, in one process and one run.

    python tests/bench/streams.py [DELTAS]

A mock provider in the same process sends the deltas; what it costs is in both figures of a wire, so their difference is
what an adapter adds to the SDK's own work or saves. One JSON line a wire, in microseconds of processor time a delta.
"""

import json
import sys
import time
from collections.abc import Awaitable, Callable

import anthropic
import openai
import trio

from creche import AgentSpec, open_host, say
from creche.messages import UserMessage
from creche.models import ModelRequest, RequestHead, Settings
from creche.models.adapters import AnthropicModel, OpenAIModel
from creche.testing import MockProvider, open_mock_provider

ROUNDS = 3


async def sdk_openai(mock: MockProvider) -> int:
    """Read an answer with the SDK of OpenAI."""
    async with openai.AsyncOpenAI(base_url=mock.openai_url, api_key="none") as client:
        stream = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        return sum([len(chunk.choices) async for chunk in stream])


async def sdk_anthropic(mock: MockProvider) -> int:
    """Read an answer with the SDK of Anthropic."""
    async with anthropic.AsyncAnthropic(base_url=mock.anthropic_url, api_key="none") as client:
        stream = await client.messages.create(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}], stream=True
        )
        return sum([event.type == "content_block_delta" async for event in stream])


def adapter(wire: str, mock: MockProvider) -> OpenAIModel | AnthropicModel:
    """Return our adapter for a wire."""
    if wire == "openai":
        return OpenAIModel("m", base_url=mock.openai_url, api_key="none")
    return AnthropicModel("m", base_url=mock.anthropic_url, api_key="none")


async def ours(wire: str, mock: MockProvider) -> int:
    """Read an answer with our adapter."""
    request = ModelRequest(RequestHead(Settings("p", model="m")), messages=[UserMessage("hi")])
    async with adapter(wire, mock).stream(request) as chunks:
        return len([chunk async for chunk in chunks])


async def agent(wire: str, mock: MockProvider) -> int:
    """Read an answer through an agent: assembled, logged, streamed to who asked."""
    async with (
        open_host(model=adapter(wire, mock)) as host,
        host.open_agent(AgentSpec("lead")) as lead,
        lead.stream("hi") as deltas,
    ):
        return len([delta async for delta in deltas])


async def micros(read: Callable[[], Awaitable[int]], deltas: int) -> float:
    """Return the least processor time a delta of a few rounds, in microseconds."""
    times: list[float] = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        count = await read()
        times.append(time.process_time() - begun)
        assert count >= deltas, count
    return min(times) / deltas * 1e6


async def measure(deltas: int) -> list[dict[str, object]]:
    """Return one line a wire."""
    pieces = [f"word{number} " for number in range(deltas)]
    lines: list[dict[str, object]] = []
    async with open_mock_provider(lambda _: say(*pieces)) as mock:
        for wire, sdk in (("openai", sdk_openai), ("anthropic", sdk_anthropic)):
            reads: dict[str, Callable[[], Awaitable[int]]] = {
                "sdk": lambda sdk=sdk: sdk(mock),  # type: ignore[misc]
                "adapter": lambda wire=wire: ours(wire, mock),  # type: ignore[misc]
                "agent": lambda wire=wire: agent(wire, mock),  # type: ignore[misc]
            }
            taken = {name: round(await micros(read, deltas), 1) for name, read in reads.items()}
            lines.append({"workload": f"stream {wire}", "deltas": deltas, "unit": "µs a delta", **taken})
    return lines


if __name__ == "__main__":
    for line in trio.run(measure, int(sys.argv[1]) if len(sys.argv) > 1 else 10_000):
        sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")

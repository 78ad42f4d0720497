"""One agent with one tool. The model is a function, so this runs without a key."""

import trio

from creche import AgentSpec, FunctionModel, call, open_host, say, tool


@tool
def count_lines(path: str) -> int:
    """Count the lines of a text file.

    Args:
      path: The file.
    """
    with open(path, encoding="utf-8") as file:
        return sum(1 for _ in file)


def answer(request):
    """Stand in for a model: call the tool first, then report what it said."""
    if not request.last_tool_text:
        return [call("count_lines", path=__file__)]
    return [say(f"This file has {request.last_tool_text} lines.")]


async def main():
    async with (
        open_host(model=FunctionModel(answer)) as host,
        host.open_agent(AgentSpec("clerk", tools=[count_lines])) as clerk,
    ):
        reply = await clerk.ask("How long is this file?")
        print(reply.text)
        print(f"{reply.usage.requests} requests; the log says:")
        for record in clerk.session.records():
            print(f"  {record.seq:>2} turn {record.turn} step {record.step} {record.kind}")


trio.run(main)

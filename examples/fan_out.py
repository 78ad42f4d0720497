"""A lead asks two fresh subagents and one that knows its conversation, all at once, from a program."""

import trio

from creche import AgentSpec, FunctionModel, RuntimeContext, fork, open_host, say, spawn
from creche.session import RecordAppended


def answer(request):
    """Stand in for a model: say who is asked, and what it has been told."""
    return [say(f"{request.agent_path} was told {request.user_texts}")]


async def main():
    async with open_host(model=FunctionModel(answer)) as host, host.open_agent(AgentSpec("lead")) as lead:
        # Everybody below the host sees this; it goes to the tail of the history, not into the prompt.
        host.registrar.add(RuntimeContext("weather", order=300, text="It rains."))
        await lead.ask("The password is swordfish.")

        # The lead hears its children; they do not hear each other.
        ended = []
        hear = host.registrar.at(lead.scope).on
        hear(RecordAppended, lambda event: ended.append(event.agent_path) if event.record.kind == "turn/end" else None)

        async def child(start, prompt, **options):
            result = await start(lead, prompt, **options)
            print(f"{result.outcome}: {result.text}")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(child, spawn, "What is the password?")
            nursery.start_soon(lambda: child(spawn, "And the weather?", persona="You are a forecaster."))
            nursery.start_soon(child, fork, "What is the password?")
        print(f"the lead heard the turns of {sorted(ended)} end")
        print(f"the whole tree made {lead.usage.requests} requests")


trio.run(main)

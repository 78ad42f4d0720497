"""A lead has three subagents read reviews at the same time; then the program asks a fresh one and a fork."""

import trio

from creche import AgentSpec, ScriptedModel, call, delegation, fork, open_host, say, spawn, tool

REVIEWS = {
    "bagel": ["Best in town. (Ada)", "Still warm at noon. (Ben)"],
    "rye": ["A crust like a dream. (Cleo)"],
    "scone": ["Dry. (Dan)", "Dry, but the jam saves it. (Eve)"],
}


@tool
async def reviews(product: str) -> list[str]:
    """Look up what customers wrote about a product."""
    await trio.sleep(0.1)  # as slow as a database
    return REVIEWS[product]


MODEL = ScriptedModel(
    {
        "lead": [
            [call("subagent", description=f"read {each}", prompt=f"Read about: {each}") for each in REVIEWS],
            say("The scone needs work."),
        ],
        "lead/*": [
            lambda request: [call("reviews", product=request.last_user_text.split()[-1])],
            lambda request: [say(f"They wrote {request.last_tool_text}")],
        ],
        "lead/spawn-1": [lambda request: [say(f"I was told {request.user_texts}")]],
        "lead/fork-1": [lambda request: [say(f"I was told {request.user_texts}")]],
    }
)


async def main():
    async with (
        open_host(model=MODEL, plugins=[delegation()]) as host,
        host.open_agent(AgentSpec("lead", tools=[reviews])) as lead,
    ):
        reply = await lead.ask("What needs work?")
        for result in lead.session.tool_results():
            print(f"{result.name}: {result.text}")
        print(f"lead: {reply.text}")
        print(f"{reply.usage.requests} requests by the lead, {reply.usage_tree.requests} by the tree")
        print(*[record.kind for record in lead.session.records() if record.kind.startswith("subagent/")])

        reports = {}

        async def ask(start):
            reports[start.__name__] = await start(lead, "And why?")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, spawn)
            nursery.start_soon(ask, fork)
        print("spawn:", reports["spawn"].text)
        print("fork:", reports["fork"].text)


trio.run(main)

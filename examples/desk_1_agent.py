"""A clerk answers a question about a bakery's reviews, with a tool."""

import trio

from creche import AgentSpec, ScriptedModel, ToolFailed, call, open_host, say, tool

REVIEWS = {
    "bagel": ["Best in town. (Ada)", "Still warm at noon. (Ben)"],
    "rye": ["A crust like a dream. (Cleo)"],
    "scone": ["Dry. (Dan)", "Dry, but the jam saves it. (Eve)"],
}


@tool
def reviews(product: str) -> list[str]:
    """Look up what customers wrote about a product.

    Args:
      product: Its name, such as rye.
    """
    if product not in REVIEWS:
        raise ToolFailed(f"there is no {product!r}; there are {', '.join(REVIEWS)}")
    return REVIEWS[product]


MODEL = ScriptedModel(
    {
        "clerk": [
            [call("reviews", product="scones")],
            [call("reviews", product="scone")],
            say("Two customers wrote about the scone, and both found it dry."),
        ]
    }
)


async def main():
    async with (
        open_host(model=MODEL) as host,
        host.open_agent(AgentSpec("clerk", tools=[reviews])) as clerk,
    ):
        reply = await clerk.ask("How do customers like the scones?")
        for result in clerk.session.tool_results():
            print(f"{result.name}: {result.text}")
        print(f"clerk: {reply.text}")
        print(f"{reply.usage.requests} requests")


trio.run(main)

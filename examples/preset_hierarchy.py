"""Presets nest: an organisation, a team that may not write, an agent with a wish of its own; siblings share nothing."""

import trio

from creche import AgentSpec, FunctionModel, Preset, Section, open_host, restrict, say, tool
from creche.prompt import AssembleContext, assemble


@tool
def read(path: str) -> str:
    """Read a file."""
    return path


@tool
def write(path: str, text: str) -> None:
    """Write a file."""


PRESETS = [
    Preset("company", tools=[read, write], setup=[Section("company:rules", order=200, text="Be brief.")]),
    Preset("reviewers", extends="company", persona="You review.", setup=[restrict(deny=["write"])]),
    Preset("authors", extends="company", persona="You write."),
]


async def show(host, agent):
    """Print what an agent's prompt is made of, and who contributed it."""
    assembly = await assemble(host.registry, AssembleContext.of(agent))
    print(f"{agent.path} ({agent.preset})")
    for piece in assembly.sections:
        if piece.text:
            print(f"  {piece.name:<20} {piece.text:<50.50} by {piece.origin.owner}")
    print(f"  tools: {', '.join(schema.name for schema in assembly.tools)}")


async def main():
    model = FunctionModel(lambda request: [say("Done.")])
    async with (
        open_host(model=model, presets=PRESETS) as host,
        host.open_agent(AgentSpec("ann"), preset="reviewers") as ann,
        host.open_agent(AgentSpec("bob"), preset="authors") as bob,
    ):
        host.registrar.at(ann.scope).add(Section("ann:wish", order=300, text="Cite line numbers."))
        await show(host, ann)
        await show(host, bob)


trio.run(main)

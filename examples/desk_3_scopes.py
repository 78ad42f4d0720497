"""Two readers under one registry: what each of them sees, and that neither sees or hears the other."""

import trio

from creche import AgentSpec, FunctionModel, RuntimeContext, Section, Variable, open_host, say
from creche.session import RecordAppended, rebuild_request

MODEL = FunctionModel(lambda request: [say("Noted.")])
sold_out = ["rye"]


def register(everywhere, at_ann):
    everywhere.add(Section("desk:tone", order=200, text="Be brief."))
    everywhere.add(Variable("place", lambda context: "at the market"))
    everywhere.add(RuntimeContext("sold-out", order=300, text=lambda context: f"Sold out: {', '.join(sold_out)}."))

    at_ann.add(Variable("place", lambda context: "in the station"))
    at_ann.add(Section("ann:trains", order=300, text="Your customers run for trains."))


async def show_prompts(*agents):
    for agent in agents:
        await agent.ask("What do they want?")
        print(f"--- {agent.name}")
        print(rebuild_request(agent.session, step=1).system)


async def show_what_changes(ann):
    first = rebuild_request(ann.session, step=1)
    sold_out.append("bagel")
    await ann.ask("And now?")
    second = rebuild_request(ann.session, step=1)
    print("--- what ann's second request adds")
    for message in second.messages[len(first.messages) :]:
        print(f"{message.role}: {message.text}")
    print("it begins as the first did:", second.canonical_bytes().startswith(first.canonical_bytes()))


async def show_who_hears(host, ann, bob):
    heard = {"host": [], "ann": [], "bob": []}
    host.registrar.on(RecordAppended, heard["host"].append)
    host.registrar.at(ann.scope).on(RecordAppended, heard["ann"].append)
    host.registrar.at(bob.scope).on(RecordAppended, heard["bob"].append)
    await ann.ask("Anything else?")
    print("--- who hears ann")
    for name, events in heard.items():
        print(f"{name}: {len(events)} records")


async def main():
    async with (
        open_host(model=MODEL, persona="You read reviews of the shop {{place}}.") as host,
        host.open_agent(AgentSpec("ann")) as ann,
        host.open_agent(AgentSpec("bob")) as bob,
    ):
        register(host.registrar, host.registrar.at(ann.scope))
        await show_prompts(ann, bob)
        await show_what_changes(ann)
        await show_who_hears(host, ann, bob)


trio.run(main)

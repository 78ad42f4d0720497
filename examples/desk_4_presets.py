"""A team under two presets: readers cannot write to customers; writers can, within limits, if the baker says yes."""

import trio

from creche import AgentSpec, Plugin, Preset, ScriptedModel, ToolContext, call, delegation, open_host, say, spawn, tool
from creche.plugins.approvals import ask_before
from creche.session import RecordAppended
from creche.tools import Allow, Approver, Guard, Refuse, restrict

outbox = []


@tool
async def reviews(product: str) -> list[str]:
    """Look up what customers wrote about a product."""
    return {"rye": ["A crust like a dream. (Cleo)"], "scone": ["Dry. (Dan)"]}.get(product, [])


@tool
async def answer(customer: str, text: str, voucher: int = 0) -> str:
    """Send a customer an answer, with a voucher of some euros."""
    outbox.append(f"{customer}: {text} ({voucher} euros)")
    return "sent"


@tool
async def ask_writer(task: str, context: ToolContext) -> str:
    """Have a writer answer a customer."""
    result = await spawn(context.agent, task, name=f"writer-{context.number}", preset="writers")
    return result.text or result.diagnostic


def at_most_20(execution):
    if execution.tool.name == "answer" and execution.arguments.get("voucher", 0) > 20:
        return "no voucher is over 20 euros"
    return None


DESK = Preset("desk", tools=[reviews, answer], setup=[Guard(at_most_20)])
READERS = Preset(
    "readers",
    extends="desk",
    persona="You read reviews and find what is wrong.",
    tools=[ask_writer],
    setup=[restrict(deny=["answer"])],
)
WRITERS = Preset(
    "writers",
    extends="desk",
    persona="You answer customers, and you are kind.",
    setup=[ask_before("answer")],
    grants=["answer"],
)


async def baker(request):
    voucher = request.arguments.get("voucher", 0)
    print(f"{request.agent_path} asks the baker for {voucher} euros")
    return Allow() if voucher <= 10 else Refuse("10 euros are enough")


PRESETS = [DESK, READERS, WRITERS]
PLUGINS = [delegation("spawn"), Plugin("baker", setup=[Approver(baker)])]


def sorry(voucher):
    return [call("answer", customer="Dan", text="We are sorry.", voucher=voucher)]


MODEL = ScriptedModel(
    {
        "lead": [
            [call("subagent", description="read", prompt="What do they write about the scone?")],
            [call("ask_writer", task="Dan found the scone dry. Say sorry.")],
            say("Dan has an answer."),
        ],
        "lead/subagent-1": [sorry(5), [call("reviews", product="scone")], say("Dan calls it dry.")],
        "lead/writer-1": [sorry(50), sorry(15), sorry(5), say("Dan has 5 euros.")],
    }
)


def show(event):
    if event.record.kind == "tool/result":
        message = event.record.data.message
        print(f"{event.agent_path} called {message.name}: {message.text}")


async def main():
    async with (
        open_host(model=MODEL, presets=PRESETS, plugins=PLUGINS) as host,
        host.open_agent(AgentSpec("lead"), preset="readers") as lead,
    ):
        host.registrar.on(RecordAppended, show)
        print((await lead.ask("Is anybody unhappy?")).text)
        print(outbox)


if __name__ == "__main__":
    trio.run(main)

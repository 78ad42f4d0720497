# Needs: pydantic-ai (requirements.txt beside this file). A program, not a test; it stays as it was given.
"""pydantic-ai on the common workloads: python pydantic_ai_bench.py WORKLOAD N -> JSON line."""
import asyncio, json, resource, sys, time
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel, AgentInfo
from pydantic_ai.usage import UsageLimits

LATENCY = 0.05

def make(steps, latency=0.0):
    async def model(messages, info: AgentInfo):
        if latency:
            await asyncio.sleep(latency)
        n = sum(isinstance(p, ToolReturnPart) for m in messages for p in m.parts) if steps < 5 else state["n"]
        state["n"] += 1
        if n < steps:
            return ModelResponse(parts=[ToolCallPart("tool_0", {"a": n, "b": 1})])
        return ModelResponse(parts=[TextPart("done")])
    state = {"n": 0}
    agent = Agent(FunctionModel(model), system_prompt=[f"Section {i}." for i in range(20)])
    for i in range(10):
        def tool(a: int, b: int) -> int:
            "Add two numbers."
            return a + b
        tool.__name__ = f"tool_{i}"
        agent.tool_plain(tool)
    return agent, state

async def overhead(n):
    agent, st = make(1)
    for _ in range(20):
        st["n"] = 0; await agent.run("hi")
    t = time.perf_counter()
    for _ in range(n):
        st["n"] = 0; await agent.run("hi")
    return (time.perf_counter() - t) / n * 1e6

async def long(n):
    agent, st = make(n)
    t = time.perf_counter()
    await agent.run("hi", usage_limits=UsageLimits(request_limit=None))
    return (time.perf_counter() - t) / n * 1e6

async def fanout(n):
    async def model(messages, info):
        await asyncio.sleep(LATENCY)
        if any(isinstance(p, ToolReturnPart) for m in messages for p in m.parts):
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart("tool_0", {"a": 1, "b": 1})])
    child = Agent(FunctionModel(model), system_prompt=[f"Section {i}." for i in range(20)])
    for i in range(10):
        def tool(a: int, b: int) -> int:
            "Add two numbers."
            return a + b
        tool.__name__ = f"tool_{i}"
        child.tool_plain(tool)
    async def pmodel(messages, info):
        if any(isinstance(p, ToolReturnPart) for m in messages for p in m.parts):
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart("delegate", {"task": f"t{i}"}) for i in range(n)])
    parent = Agent(FunctionModel(pmodel))
    @parent.tool_plain
    async def delegate(task: str) -> str:
        "Delegate."
        return (await child.run(task)).output
    t = time.perf_counter()
    r = await parent.run("go", usage_limits=UsageLimits(request_limit=None))
    return time.perf_counter() - t

w, n = sys.argv[1], int(sys.argv[2])
v = asyncio.run({"overhead": overhead, "long": long, "fanout": fanout}[w](n))
print(json.dumps({"peer": "pydantic-ai", "workload": w, "n": n, "value": v, "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))

# Needs: agno (requirements.txt beside this file). A program, not a test; it stays as it was given.
"""agno on the common workloads -> JSON line. 'create' is agno's own headline: instantiate an agent with one tool."""
import asyncio, json, os, resource, sys, time, tracemalloc
os.environ["AGNO_TELEMETRY"] = "false"
from agno.agent import Agent
from agno.models.base import Model
from agno.models.response import ModelResponse
LATENCY = 0.05
from dataclasses import dataclass

def tool_fn(i):
    def tool(a: int, b: int) -> int:
        "Add two numbers."
        return a + b
    tool.__name__ = f"tool_{i}"
    return tool

@dataclass
class Fake(Model):
    id: str = "fake"
    fn: object = None
    def invoke(self, *a, **k): raise NotImplementedError
    async def ainvoke(self, messages=None, *a, **k): return await self.fn(messages)
    def invoke_stream(self, *a, **k): raise NotImplementedError
    async def ainvoke_stream(self, *a, **k): raise NotImplementedError
    def _parse_provider_response(self, r, **k): return r
    def _parse_provider_response_delta(self, r): return r

def call(i, name, args): return {"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}

async def overhead(n):
    st = {"n": 0}
    async def fn(m):
        st["n"] += 1
        return ModelResponse(role="assistant", tool_calls=[call(0, "tool_0", {"a": 1, "b": 1})]) if st["n"] == 1 else ModelResponse(role="assistant", content="done")
    a = Agent(model=Fake(fn=fn), tools=[tool_fn(i) for i in range(10)], instructions=[f"Section {i}." for i in range(20)], telemetry=False)
    for _ in range(10):
        st["n"] = 0; await a.arun("hi")
    t = time.perf_counter()
    for _ in range(n):
        st["n"] = 0; await a.arun("hi")
    assert st["n"] == 2, st
    return (time.perf_counter() - t) / n * 1e6

async def create(n):
    t = tool_fn(0)
    keep = []
    t0 = time.perf_counter()
    for _ in range(n):
        keep.append(Agent(tools=[t]))
    return (time.perf_counter() - t0) / n * 1e6

async def fanout(n):
    async def fn(m):
        await asyncio.sleep(LATENCY)
        done = any(getattr(x, "role", "") == "tool" for x in m)
        return ModelResponse(role="assistant", content="done") if done else ModelResponse(role="assistant", tool_calls=[call(0, "tool_0", {"a": 1, "b": 1})])
    child = Agent(model=Fake(fn=fn), tools=[tool_fn(i) for i in range(10)], instructions=[f"Section {i}." for i in range(20)], telemetry=False)
    async def delegate(task: str) -> str:
        "Delegate."
        return (await child.arun(task)).content
    st = {"n": 0}
    async def pfn(m):
        st["n"] += 1
        return ModelResponse(role="assistant", tool_calls=[call(i, "delegate", {"task": f"t{i}"}) for i in range(n)]) if st["n"] == 1 else ModelResponse(role="assistant", content="done")
    parent = Agent(model=Fake(fn=pfn), tools=[delegate], telemetry=False)
    t = time.perf_counter()
    await parent.arun("go")
    return time.perf_counter() - t

async def long(n):
    st = {"n": 0}
    async def fn(m):
        st["n"] += 1
        return ModelResponse(role="assistant", tool_calls=[call(st["n"], "tool_0", {"a": 1, "b": 1})]) if st["n"] <= n else ModelResponse(role="assistant", content="done")
    a = Agent(model=Fake(fn=fn), tools=[tool_fn(i) for i in range(10)], instructions=[f"Section {i}." for i in range(20)], telemetry=False)
    t = time.perf_counter()
    await a.arun("hi")
    assert st["n"] == n + 1, st
    return (time.perf_counter() - t) / n * 1e6

w, n = sys.argv[1], int(sys.argv[2])
v = asyncio.run({"overhead": overhead, "create": create, "fanout": fanout, "long": long}[w](n))
print(json.dumps({"peer": "agno", "workload": w, "n": n, "value": v, "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))

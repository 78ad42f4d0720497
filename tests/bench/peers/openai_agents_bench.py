# Needs: openai-agents (requirements.txt beside this file). A program, not a test; it stays as it was given.
"""openai-agents on the common workloads: python openai_agents_bench.py WORKLOAD N -> JSON line."""
import asyncio, json, os, resource, sys, time
os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
from agents import Agent, Runner, function_tool, ModelResponse, Usage, RunConfig, set_tracing_disabled
from agents.models.interface import Model
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
set_tracing_disabled(True)
LATENCY = 0.05

def text(s):
    return ResponseOutputMessage(id="1", type="message", role="assistant", status="completed", content=[ResponseOutputText(text=s, type="output_text", annotations=[])])
def call(i, name, args):
    return ResponseFunctionToolCall(id=f"f{i}", call_id=f"c{i}", type="function_call", name=name, arguments=json.dumps(args))

class Fake(Model):
    def __init__(self, fn): self.fn = fn
    async def get_response(self, system_instructions, input, *a, **k):
        out = await self.fn(input)
        return ModelResponse(output=out, usage=Usage(), response_id=None)
    def stream_response(self, *a, **k): raise NotImplementedError

def tools(k=10):
    out = []
    for i in range(k):
        def tool(a: int, b: int) -> int:
            "Add two numbers."
            return a + b
        tool.__name__ = f"tool_{i}"
        out.append(function_tool(tool))
    return out

async def loop(steps):
    st = {"n": 0}
    async def fn(inp):
        st["n"] += 1
        return [call(st["n"], "tool_0", {"a": 1, "b": 1})] if st["n"] <= steps else [text("done")]
    return Agent("x", instructions="\n\n".join(f"Section {i}." for i in range(20)), tools=tools(), model=Fake(fn)), st

async def overhead(n):
    a, st = await loop(1)
    for _ in range(20):
        st["n"] = 0; await Runner.run(a, "hi")
    t = time.perf_counter()
    for _ in range(n):
        st["n"] = 0; await Runner.run(a, "hi")
    return (time.perf_counter() - t) / n * 1e6

async def long(n):
    a, st = await loop(n)
    t = time.perf_counter()
    await Runner.run(a, "hi", max_turns=n + 10)
    return (time.perf_counter() - t) / n * 1e6

async def fanout(n):
    async def fn(inp):
        await asyncio.sleep(LATENCY)
        if isinstance(inp, list) and any((i.get("type") if isinstance(i, dict) else getattr(i, "type", "")) == "function_call_output" for i in inp):
            return [text("done")]
        return [call(0, "tool_0", {"a": 1, "b": 1})]
    child = Agent("child", instructions="\n\n".join(f"Section {i}." for i in range(20)), tools=tools(), model=Fake(fn))
    @function_tool
    async def delegate(task: str) -> str:
        "Delegate."
        return (await Runner.run(child, task)).final_output
    done = {"n": 0}
    async def pfn(inp):
        done["n"] += 1
        return [call(i, "delegate", {"task": f"t{i}"}) for i in range(n)] if done["n"] == 1 else [text("done")]
    parent = Agent("parent", tools=[delegate], model=Fake(pfn))
    t = time.perf_counter()
    await Runner.run(parent, "go")
    return time.perf_counter() - t

w, n = sys.argv[1], int(sys.argv[2])
v = asyncio.run({"overhead": overhead, "long": long, "fanout": fanout}[w](n))
print(json.dumps({"peer": "openai-agents", "workload": w, "n": n, "value": v, "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))

# Needs: langgraph, langchain (requirements.txt beside this file). A program, not a test; it stays as it was given.
"""langgraph prebuilt ReAct agent on the common workloads -> JSON line."""
import asyncio, json, resource, sys, time, warnings
warnings.filterwarnings("ignore")
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool as lctool, StructuredTool
from langgraph.prebuilt import create_react_agent
LATENCY = 0.05

class Fake(BaseChatModel):
    fn: object = None
    @property
    def _llm_type(self): return "fake"
    def bind_tools(self, tools, **k): return self
    def _generate(self, *a, **k): raise NotImplementedError
    async def _agenerate(self, messages, stop=None, run_manager=None, **k):
        return ChatResult(generations=[ChatGeneration(message=await self.fn(messages))])

def tools(k=10):
    out = []
    for i in range(k):
        def tool(a: int, b: int) -> int:
            "Add two numbers."
            return a + b
        out.append(StructuredTool.from_function(tool, name=f"tool_{i}"))
    return out

def call(i, name, args): return {"name": name, "args": args, "id": f"c{i}", "type": "tool_call"}

async def loop(steps):
    st = {"n": 0}
    async def fn(m):
        st["n"] += 1
        return AIMessage("", tool_calls=[call(st["n"], "tool_0", {"a": 1, "b": 1})]) if st["n"] <= steps else AIMessage("done")
    return create_react_agent(Fake(fn=fn), tools(), prompt="\n\n".join(f"Section {i}." for i in range(20))), st

async def overhead(n):
    a, st = await loop(1)
    for _ in range(10):
        st["n"] = 0; await a.ainvoke({"messages": [("user", "hi")]})
    t = time.perf_counter()
    for _ in range(n):
        st["n"] = 0; await a.ainvoke({"messages": [("user", "hi")]})
    return (time.perf_counter() - t) / n * 1e6

async def long(n):
    a, st = await loop(n)
    t = time.perf_counter()
    await a.ainvoke({"messages": [("user", "hi")]}, {"recursion_limit": 3 * n + 10})
    return (time.perf_counter() - t) / n * 1e6

async def fanout(n):
    async def fn(m):
        await asyncio.sleep(LATENCY)
        return AIMessage("done") if any(isinstance(x, ToolMessage) for x in m) else AIMessage("", tool_calls=[call(0, "tool_0", {"a": 1, "b": 1})])
    child = create_react_agent(Fake(fn=fn), tools(), prompt="\n\n".join(f"Section {i}." for i in range(20)))
    async def delegate(task: str) -> str:
        "Delegate."
        return (await child.ainvoke({"messages": [("user", task)]}))["messages"][-1].content
    st = {"n": 0}
    async def pfn(m):
        st["n"] += 1
        return AIMessage("", tool_calls=[call(i, "delegate", {"task": f"t{i}"}) for i in range(n)]) if st["n"] == 1 else AIMessage("done")
    parent = create_react_agent(Fake(fn=pfn), [StructuredTool.from_function(coroutine=delegate, name="delegate", description="Delegate.")])
    t = time.perf_counter()
    await parent.ainvoke({"messages": [("user", "go")]})
    return time.perf_counter() - t

w, n = sys.argv[1], int(sys.argv[2])
v = asyncio.run({"overhead": overhead, "long": long, "fanout": fanout}[w](n))
print(json.dumps({"peer": "langgraph", "workload": w, "n": n, "value": v, "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))

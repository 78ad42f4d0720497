"""Checked by mypy and pyright, never run: what the room of tools looks like to them."""

from collections.abc import Callable, Mapping
from typing import Literal, assert_type

from creche.messages import Part, TextPart
from creche.scope import Operation, Registrar, Registration, Registry, ScopeKey
from creche.tools import (
    Deny,
    Execute,
    Execution,
    Guard,
    PreExecute,
    Presentation,
    Proceed,
    Restriction,
    Tool,
    ToolContext,
    ToolOutcome,
    present_as,
    restrict,
    tool,
    visible,
)


@tool
def bare(path: str) -> str:
    """Read."""
    return path


@tool(parallel=True, name="other")
async def with_options(path: str, context: ToolContext) -> None:
    """Read."""
    assert_type(context.number, int)


assert_type(bare, Tool)
assert_type(with_options, Tool)
assert_type(tool(parallel=True), Callable[[Callable[..., object]], Tool])
assert_type(tool(lambda: None), Tool)
assert_type(bare.name, str)
assert_type(bare.parameters, str)
assert_type(bare("a.txt"), object)

tool("read")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
tool(bare.run, parallel=True)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
Tool("raw", description="", parameters={"type": "object"}, run=print)
Tool("raw", description="", parameters="{}", run=print)
Tool("raw")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def views(registry: Registry, scope: ScopeKey | None) -> None:
    assert_type(visible(registry, scope), Mapping[str, Tool])
    assert_type(registry.merge(Tool, scope), Mapping[str, Tool])
    assert_type(registry.merge(Presentation, scope), Mapping[str, Presentation])
    assert_type(registry.collect(Restriction, scope), tuple[Restriction, ...])
    assert_type(registry.collect(Guard, scope), tuple[Guard, ...])


assert_type(restrict(allow=["read"], deny=("write",)), Restriction)
restrict(["read"])  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
restrict(deny=[bare])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
assert_type(present_as("native"), Presentation)
assert_type(present_as("native").mode, Literal["native", "code", "hybrid"])
present_as("both")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def check(execution: Execution) -> str | None:
    return None if execution.agent is None else execution.agent.path


async def decide(event: PreExecute, go_on: Callable[..., object]) -> Proceed | Deny:
    return Proceed({"path": event.execution.arguments["path"]})


def registrations(registrar: Registrar) -> None:
    assert_type(registrar.add(bare), Registration)
    assert_type(registrar.add(restrict(deny=["read"])), Registration)
    assert_type(registrar.add(present_as("native")), Registration)
    assert_type(registrar.add(Guard(check)), Registration)
    registrar.wrap(PreExecute, decide)
    registrar.add(check)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Guard(len)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


operation: Operation[ToolOutcome] = Execute.__new__(Execute)
assert_type(ToolOutcome("text").parts, tuple[Part, ...])
ToolOutcome([TextPart("text")], code="partial")
ToolOutcome(["text"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]

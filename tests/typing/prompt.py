"""Checked by mypy and pyright, never run: how contributions to a prompt, and models, look to them."""

from collections.abc import Mapping
from typing import assert_type

import attrs

from creche.messages import TextPart, ToolSchema, UserMessage
from creche.models import FunctionModel, Model, ModelOptions, ModelRequest, RequestHead, ScriptedModel, Settings, say
from creche.prompt import (
    AssembleContext,
    AssemblePrompt,
    Piece,
    PromptAssembly,
    RuntimeContext,
    Section,
    SuppressRuntimeContext,
    ToolOrder,
    ToolProvider,
    ToolSchemas,
    Variable,
    assemble,
    render_prompt,
    tool_order,
)
from creche.scope import Next, Registrar


def clock(context: AssembleContext) -> str:
    """A source function."""
    return "" if context.agent is None else context.agent.path


async def waits(context: AssembleContext) -> str:
    """No source function: it waits."""
    return str(context)


async def bind_model(event: AssemblePrompt, next: Next[PromptAssembly]) -> PromptAssembly:  # noqa: A002 - as documented
    """A wrapper."""
    assembly = await next()
    return attrs.evolve(assembly, variables={**assembly.variables, "model": "m"}, sections=[*assembly.sections])


async def forgets(event: AssemblePrompt, next: Next[PromptAssembly]) -> None:  # noqa: A002 - as documented
    """No wrapper: it gives nothing."""
    await next()


async def contribute(registrar: Registrar) -> None:
    """Every entry, as a contributor writes it."""
    registrar.add(Section("a", order=1, text="text"))
    registrar.add(Section("b", order=1.5, text=clock, interpolate=False, complete=True))
    registrar.add(RuntimeContext("c", order=1, text=lambda context: context.agent.path if context.agent else ""))
    registrar.add(Variable("d", lambda context: None))
    registrar.add(ToolProvider(lambda context: ToolSchemas([], known_names=["x"])))
    registrar.add(SuppressRuntimeContext())
    registrar.add(tool_order(["x", "<unlisted-tools>"]))
    registrar.wrap(AssemblePrompt, bind_model)

    Section("a", order="1", text="text")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Section("a", order=1, text=waits)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Section("a", 1, "text")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Variable("a", waits)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    registrar.wrap(AssemblePrompt, forgets)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def read(registrar: Registrar) -> None:
    """What comes back."""
    registry = registrar.registry
    assert_type(registry.merge(Section, None), Mapping[str, Section])
    assert_type(registry.merge(ToolOrder, None), Mapping[str, ToolOrder])
    assert_type(registry.collect(ToolProvider, None), tuple[ToolProvider, ...])
    assembly = await assemble(registry, AssembleContext())
    assert_type(assembly, PromptAssembly)
    assert_type(assembly.sections, tuple[Piece, ...])
    assert_type(assembly.tools, tuple[ToolSchema, ...])
    assert_type(assembly.variables, Mapping[str, str | None])
    assert_type(render_prompt(assembly), str)


def ask(request: ModelRequest) -> object:
    """A model function."""
    assert_type(request.tools, tuple[ToolSchema, ...])
    return [say(request.last_user_text)]


models: list[Model] = [FunctionModel(ask), ScriptedModel({"**": [say("a"), ask]})]
"""Both are models to a type checker."""

# Lists are taken where tuples are kept.
UserMessage([TextPart("a")])
RequestHead(Settings("p", model="m", options=ModelOptions(stop=["END"])), tools=[])

"""The plugin of code mode: a runtime that is served for as long as it is mounted, ``run_code``, and what the prompt says."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from creche.errors import PluginError
from creche.prompt import AssembleContext, Section, section_order
from creche.scope import Derivation, Level, Plugin, Registrar, Registry
from creche.tools import VISIBLE, CodeTool

from ._monty import MontyRuntime
from ._run_code import Timeouts, make_run_code
from ._runtime import CodeLimits, CodeRuntime
from ._stubs import render_stubs

_NOTICE = (
    "You call one tool directly: run_code. Everything else is a function that the programs you give it can await; "
    "what is said below about tools is about these functions."
)


def code_mode(
    runtime: CodeRuntime | None = None,
    *,
    limits: CodeLimits | None = None,
    timeout: float = 120.0,
    longest_timeout: float = 600.0,
) -> Plugin:
    """Let models call their tools from programs, wherever ``present_as`` says ``"code"`` or ``"hybrid"``.

    A program runs in a process of its own, confined and killable. What it may do is what the agent may do: its calls
    go through the same pipeline as those of the model.

    Args:
      runtime: The kind of sandbox; `MontyRuntime` if absent.
      limits: What one program may use.
      timeout: Seconds that a program may take if the model does not say.
      longest_timeout: Seconds that the model can ask for at most.

    Raises:
      PluginError: A timeout is not above 0, or the usual one above the longest.
    """
    if not 0 < timeout <= longest_timeout:
        raise PluginError(
            f"code_mode: 0 < timeout <= longest_timeout has to hold, not {timeout!r} and {longest_timeout!r}"
        )
    chosen = MontyRuntime() if runtime is None else runtime
    timeouts = Timeouts(timeout, longest=longest_timeout)

    @asynccontextmanager
    async def serve(registrar: Registrar) -> AsyncIterator[None]:
        async with chosen.serve() as run:
            registrar.add(CodeTool(make_run_code(chosen, run, limits=limits or CodeLimits(), timeouts=timeouts)))
            yield

    def describe(registrar: Registrar) -> None:
        for name, text in (("tools:code-only", _notice(registrar.registry)), ("tools:sdk", _sdk(registrar.registry))):
            registrar.add(Section(name, order=section_order(name), text=text, interpolate=False))

    return Plugin("code_mode", setup=[serve, describe])


def _notice(registry: Registry) -> Callable[[AssembleContext], str]:
    def text(context: AssembleContext) -> str:
        return _NOTICE if registry.read(VISIBLE, context.scope).mode == "code" else ""

    return text


def _sdk(registry: Registry) -> Callable[[AssembleContext], str]:
    def text(context: AssembleContext) -> str:
        return registry.read(_STUBS, context.scope)

    return text


def _derive_stubs(levels: tuple[Level, ...]) -> str:
    seen = VISIBLE.derive(levels)
    if seen.mode == "native":
        return ""
    tools = seen.tools.values()
    return render_stubs([each.schema for each in tools], {each.name: each.returns for each in tools})


_STUBS: Derivation[str] = Derivation(VISIBLE.kinds, derive=_derive_stubs)
"""The stubs of the tools that a scope sees; right for as long as these are."""

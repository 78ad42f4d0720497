"""A tool: what the model is told about it, and the body that does the work."""

import functools
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Literal, Protocol, cast, overload

import attrs
import trio

from creche._util import as_all, canonical_json, final
from creche.errors import RegistryError
from creche.messages import ImagePart, TextPart, ToolSchema
from creche.prompt import SECTION_ORDERS, AssembleContext, Section
from creche.scope import Registration, Registry, ScopeKey

from ._arguments import ArgumentBinder, SchemaBinder
from ._context import ToolContext
from ._cut import LONGEST_RESULT
from ._schema import FunctionShape, describe_function, describe_return

_A_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

RUN_CODE = "run_code"
"""The one tool name that nobody can register: code mode's presentation adds it to the wire."""
GUIDANCE_ORDER = 189
"""Where the guidance of a tool stands that has no place of its own in `creche.prompt.SECTION_ORDERS`."""


@attrs.frozen
class ToolThreads:
    """The service that sync bodies take their threads from; the host provides one."""

    limiter: trio.CapacityLimiter
    """How many sync bodies may run at once in this host. Those that are called for one that runs do not count: there may be
    as many of them again, and so on for those that are called for these."""


class Binder(Protocol):
    """What checks the arguments of a call."""

    def bind(self, values: Mapping[str, object], /) -> dict[str, object]:
        """Return the keyword arguments of the body.

        Raises:
          InvalidArgumentsError: With every problem.
        """
        ...


def _check_timeout(tool: "Tool", _attribute: object, timeout: float | None) -> None:
    if timeout is not None and not (math.isfinite(timeout) and timeout > 0):
        raise ValueError(f"tool {tool.name!r}: timeout is a number of seconds above 0, not {timeout!r}")


def _check_count(tool: "Tool", attribute: "attrs.Attribute[Any]", count: int | None) -> None:
    if count is not None and count < 1:
        raise ValueError(f"tool {tool.name!r}: {attribute.name} is 1 or more, not {count!r}")


def _schema_text(parameters: str | Mapping[str, object]) -> str:
    return ToolSchema("", description="", parameters=parameters).parameters


@final
@attrs.frozen(eq=False)
class Tool:
    """An entry: something a model may call.

    Made by `tool` from a typed function, or by hand with a raw JSON Schema, in which case the body is given
    the arguments as they are, checked against the schema.

    Raises:
      TypeError: ``inline`` and ``abandon`` contradict each other or the body.
      ValueError: The parameters are not a JSON object, or no provider takes the name.
    """

    name: str
    """What the model calls it: letters, digits, ``_`` and ``-``, at most 64 of them."""
    description: str = attrs.field(kw_only=True)
    """What it does and when to use it, for the model."""
    parameters: str = attrs.field(converter=_schema_text, kw_only=True, repr=False)
    """JSON Schema of the arguments, an object, as canonical JSON text; given as text or as a mapping."""
    run: Callable[..., object] = attrs.field(kw_only=True, repr=False)
    """The body. Contract: async, or sync and then run in a thread; given keyword arguments; raises `ToolFailed` or
    `ToolRetry` to tell the model what went wrong. Any other exception is told too, by its class and text."""
    parallel: bool = attrs.field(default=False, kw_only=True)
    """Whether its calls may overlap with those of other parallel tools."""
    inline: bool = attrs.field(default=False, kw_only=True)
    """Whether a sync body is quick and pure enough to run in the loop, without a thread."""
    abandon: bool = attrs.field(default=False, kw_only=True)
    """Whether a cancelled block may end while a sync body still runs in its thread; a `Fault` names it then."""
    timeout: float | None = attrs.field(default=None, validator=_check_timeout, kw_only=True)
    """Seconds after which a body is cancelled and its call fails, without the time for which it waited to begin or for an
    approval. A sync body ends then if it is to be abandoned, or asks `trio.from_thread.check_cancelled` itself."""
    at_once: int | None = attrs.field(default=None, validator=_check_count, kw_only=True)
    """How many of its bodies may run at once, whoever calls them, in one process; ``None`` sets no limit. A body that has
    the same tool called, by itself or by a subagent, holds its own place while it waits for another. A call that could
    only wait for those that wait for it fails."""
    longest_result: int = attrs.field(default=LONGEST_RESULT, validator=_check_count, kw_only=True)
    """Characters of text that the model is shown of a result; all of a longer one is kept in a file, if the agent has
    tools that read it."""
    guidance: str = attrs.field(default="", kw_only=True)
    """Habits that its description cannot tell, such as when another tool is better: a section ``tool:<name>`` of the
    prompt, wherever the tool is visible. Braces in it stay as they are."""
    _shape: FunctionShape | None = attrs.field(default=None, kw_only=True, repr=False, alias="shape")
    entry_shape: ClassVar[Literal["named"]] = "named"

    def __attrs_post_init__(self) -> None:
        if not _A_NAME.fullmatch(self.name):
            raise ValueError(
                f"{self.name!r} cannot be the name of a tool: providers take letters, digits, '_' and '-', at most 64"
            )
        if self.inline and self.abandon:
            raise TypeError(f"tool {self.name!r}: an inline body runs in the loop, so there is no thread to abandon")
        if (self.inline or self.abandon) and self.waits:
            option = "inline" if self.inline else "abandon"
            raise TypeError(f"tool {self.name!r}: {option}=True is for sync bodies, and this one is async")

    @functools.cached_property
    def limiter(self) -> trio.CapacityLimiter | None:
        """What `at_once` stands for."""
        return None if self.at_once is None else trio.CapacityLimiter(self.at_once)

    @functools.cached_property
    def schema(self) -> ToolSchema:
        """What the model is told."""
        return ToolSchema(self.name, description=self.description, parameters=self.parameters)

    @functools.cached_property
    def returns(self) -> str:
        """JSON Schema of the value that a program is given, as canonical JSON text; ``""`` if that is not known."""
        found = None if self._shape is None else describe_return(self.run, not_values=(TextPart, ImagePart))
        return "" if found is None else canonical_json(found)

    @functools.cached_property
    def binder(self) -> Binder:
        """What checks arguments; made at the first call, for that costs more than a call."""
        return SchemaBinder(self.parameters) if self._shape is None else ArgumentBinder(self._shape.fields)

    @functools.cached_property
    def waits(self) -> bool:
        """Whether the body is async, as far as its code tells."""
        return is_async(self.run)

    @property
    def context_parameter(self) -> str | None:
        """Name of the parameter that takes the `ToolContext`, if the body has one."""
        return None if self._shape is None else self._shape.context_parameter

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Call the body directly, as the plain function it was: unchecked, in the caller's thread."""
        return self.run(*args, **kwargs)

    def check_registration(self, registry: Registry, scope: ScopeKey | None) -> None:
        """Refuse the reserved name, and a raw schema that arguments cannot be checked against.

        Raises:
          RegistryError: It is one of the two.
        """
        if self.name == RUN_CODE:
            raise RegistryError(f"{RUN_CODE!r} is reserved for code mode; give the tool another name")
        if isinstance(self.binder, SchemaBinder):
            try:
                self.binder.compile()
            except ValueError as error:
                raise RegistryError(f"tool {self.name!r} cannot be called: {error}") from error

    def on_registered(self, registry: Registry, registration: Registration) -> None:
        """Register the guidance beside the tool, for as long as that stands."""
        if self.guidance:
            section = guidance_of(self, registry)
            beside = registry.insert(section, registration.scope, registration.owner)
            registration.after_undo = lambda _: beside.undo()


def guidance_of(tool: Tool, registry: Registry) -> Section:
    """Return the section with the guidance of a tool, empty where the tool is not visible."""
    from ._visible import VISIBLE

    def text(context: AssembleContext) -> str:
        return tool.guidance if registry.read(VISIBLE, context.scope).tools.get(tool.name) is tool else ""

    name = f"tool:{tool.name}"
    return Section(name, order=SECTION_ORDERS.get(name, GUIDANCE_ORDER), text=text, interpolate=False)


def is_async(body: Callable[..., object]) -> bool:
    """Tell whether a callable is a coroutine function under its decorators, or an object that is called like one."""
    while isinstance(body, functools.partial):
        body = cast("functools.partial[object]", body).func
    call = body if inspect.isroutine(body) else cast("Callable[..., object]", type(body).__call__)
    return any(map(inspect.iscoroutinefunction, (body, call, inspect.unwrap(call))))


@overload
def tool(function: Callable[..., object], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    parallel: bool = False,
    inline: bool = False,
    abandon: bool = False,
    timeout: float | None = None,
    at_once: int | None = None,
    longest_result: int = LONGEST_RESULT,
    guidance: str = "",
) -> Callable[[Callable[..., object]], Tool]: ...
def tool(
    function: Callable[..., object] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    parallel: bool = False,
    inline: bool = False,
    abandon: bool = False,
    timeout: float | None = None,
    at_once: int | None = None,
    longest_result: int = LONGEST_RESULT,
    guidance: str = "",
) -> Tool | Callable[[Callable[..., object]], Tool]:
    """Make a tool of a typed function: its name, its docstring and its signature are what the model sees.

    Used bare (``@tool``) or with options (``@tool(parallel=True)``).

    Args:
      function: The body. Every parameter has a type; one annotated `ToolContext` is injected. It returns a
        text, message parts, None ("done") or any value, which becomes canonical JSON.
      name: What the model calls it; the function's name if absent.
      description: What it does; the docstring without its ``Args:`` if absent.
      parallel: Whether its calls may overlap with those of other parallel tools.
      inline: Run a sync body in the loop: for what is quick and pure. It cannot be cancelled.
      abandon: Let a cancelled block end while a sync body still runs in its thread.
      timeout: Seconds after which a body is cancelled and its call fails.
      at_once: How many of its bodies may run at once in one program, whoever calls them.
      longest_result: Characters of text that the model is shown of a result.
      guidance: A section of the prompt wherever the tool is visible.

    Raises:
      ValueError: The name is one that no provider takes.
      TypeError: A parameter has no type, or one that has no JSON Schema, or the function yields, or the
        options do not fit it; the message names it.

    Example:
      A tool that waits, and may do so while others run::

          @tool(parallel=True)
          async def fetch(url: str) -> str:
              '''Fetch the page at an address.'''
    """

    def make(body: Callable[..., object]) -> Tool:
        shape = describe_function(body, context_type=ToolContext)
        if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
            raise TypeError(f"tool function {shape.name!r} yields; a body returns its result, all at once")
        return Tool(
            name or shape.name,
            description=shape.description if description is None else description,
            parameters=shape.parameters,
            run=body,
            parallel=parallel,
            inline=inline,
            abandon=abandon,
            timeout=timeout,
            at_once=at_once,
            longest_result=longest_result,
            guidance=guidance,
            shape=shape,
        )

    return make if function is None else make(function)


def as_tools(tools: Iterable[Tool]) -> tuple[Tool, ...]:
    """Return tools as a tuple, for what takes ``tools=``.

    Raises:
      TypeError: It is not a list of tools; the sentence says what to write instead.
    """
    return as_all(Tool, tools, "tools=", "decorate a function with @tool, and give what is no tool in setup=")

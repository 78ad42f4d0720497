"""The tool ``run_code``: one program, the calls it makes, and what the model is told of it.

Rule 1: the model is told what the program printed, then what it returned: a text as it is, anything else as JSON.
Nothing else of the program enters the history; what its calls returned is in the log.
Rule 2: what it printed is told however it ends.
Rule 3: the time that its calls wait for an approval does not count towards its timeout.
Rule 4: a program that is too long is refused here, and a result that is nested too deeply for a program: for every
runtime alike.
"""

import json
import re
from collections.abc import Awaitable

import attrs

from creche._util import canonical_json, clean_text
from creche.errors import AgentError, CodeError, StoreError, ToolFailed, ToolRetry
from creche.messages import ImagePart
from creche.tools import RUN_CODE, Tool, ToolContext, ToolOutcome, begin_call, tool, visible

from ._json import DEEPEST, depth_of
from ._runtime import LONGEST_SOURCE, CodeLimits, CodeRuntime, Program, RunProgram

_DESCRIPTION = """Run a Python program that calls tools, and see what it prints and returns.

The program is the body of an async function: use `await` and `return` at its top level. The tools are async
functions of `tools`, which the system prompt lists; call them with keyword arguments, several at once with
`asyncio.gather`. A call that fails raises ToolCallError. Only what the program prints and returns is shown to you, so
print little: select, count and combine in the program. It starts fresh each time.{notes}

Args:
  code: The program.
  description: What it does, in three to five words, for people who watch.
  timeout: Seconds that it may take, {timeout:g} if absent, at most {longest:g}.
"""

_MISUSE = re.compile(r"(?:Type|Attribute)Error: .*(?<!a )coroutine")
"""What Python and Monty say where a call is used instead of its result; not where they ask for "a coroutine"."""
_HINT = "; did you forget `await`?"


@attrs.frozen
class Timeouts:
    """How long a program may take, in seconds."""

    usual: float
    """When the model does not say."""
    longest: float
    """Whatever the model says."""


def make_run_code(runtime: CodeRuntime, run: RunProgram, *, limits: CodeLimits, timeouts: Timeouts) -> Tool:
    """Return the tool ``run_code`` for a runtime that is being served."""

    async def run_code(
        code: str,
        description: str,
        context: ToolContext,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - what the model asks for
    ) -> ToolOutcome:
        if not description.strip():
            raise ToolRetry("the description is empty; say in a few words what the program does")
        seconds = timeouts.usual if timeout is None else timeout
        if not 0 < seconds <= timeouts.longest:
            raise ToolRetry(f"timeout is {seconds:g}, and it can be above 0 and at most {timeouts.longest:g} seconds")
        if len(code) > LONGEST_SOURCE:
            raise ToolRetry(f"the program has {len(code)} characters, and it can have at most {LONGEST_SOURCE}")
        context.progress(description)
        # While a call waits for an approval the deadline stands still, and what computes meanwhile is bounded all the same.
        running = _Running(context, attrs.evolve(limits, seconds=min(limits.seconds, seconds)))
        try:
            with context.time_limit(seconds) as limit:
                end = await run(running.program(code))
        finally:
            context.said = running.printed
        if limit.cancelled_caught:
            raise running.failed("timeout", f"it took longer than {seconds:g} seconds and was ended")
        if end.failure is not None:
            raise running.failed(end.failure, end.message)
        return ToolOutcome(_told(running.printed, end.value))

    notes = f" {runtime.notes.strip()}" if runtime.notes.strip() else ""
    text = _DESCRIPTION.format(
        notes=notes,
        timeout=timeouts.usual,
        longest=timeouts.longest,
    )
    run_code.__doc__ = text
    return tool(name=RUN_CODE)(run_code)


@attrs.define(eq=False)
class _Running:
    """One program while it runs."""

    context: ToolContext
    limits: CodeLimits
    _pieces: list[str] = attrs.field(factory=list[str], init=False)

    @property
    def printed(self) -> str:
        """What it has printed until now."""
        return "".join(self._pieces)

    def program(self, source: str) -> Program:
        """Return the program, with the tools that the prompt of its step described and that are visible still."""
        step, context = self.context.step, self.context
        names = frozenset(visible(context.registry, context.scope))
        if step is not None and step.inside is not None:
            names &= frozenset(step.inside)
        return Program(source=source, tools=names, call=self.call, emit=self._pieces.append, limits=self.limits)

    def call(self, name: str, arguments: str) -> Awaitable[str]:
        """Call a tool for the program."""
        try:
            pending = begin_call(self.context, name, arguments)
        except AgentError as error:
            return _refused(str(error))
        return self._call(name, pending)

    async def _call(self, name: str, pending: Awaitable[ToolOutcome]) -> str:
        try:
            outcome = await pending
        except StoreError as error:  # the next request will meet it, too, and end the turn
            raise ToolFailed(str(error)) from error
        if outcome.is_error:
            raise ToolFailed(outcome.reason)
        if outcome.json_text is not None:
            if _is_too_deep(outcome.json_text):
                raise ToolFailed(f"the result of {name!r} is nested too deeply for a program")
            return outcome.json_text
        images = sum([isinstance(part, ImagePart) for part in outcome.parts])
        if not images:
            return canonical_json(outcome.text)
        count = "1 image" if images == 1 else f"{images} images"
        return canonical_json(f"{outcome.text}[{count}, shown to you when the program has ended]")

    def failed(self, kind: str, message: str) -> CodeError:
        """Return how it failed, with what it had printed."""
        is_misuse = _MISUSE.match(message) or (kind == "invalid_output" and "coroutine" in message)
        if is_misuse and _HINT not in message:  # a runtime may say so itself
            message += _HINT
        printed = f"\nIt had printed:\n{self.printed}" if self.printed else ""
        return CodeError(f"the program failed ({kind}): {message}{printed}", kind=kind)


async def _refused(reason: str) -> str:
    raise ToolFailed(reason)


def _is_too_deep(text: str) -> bool:
    """Whether JSON text is nested more than `DEEPEST` deep. How much there is in it does not matter: a tool gave it."""
    if text.count("[") + text.count("{") <= DEEPEST:
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return True  # a tool may give any text for JSON, and nobody gets to the end of this one
    return depth_of(text) > DEEPEST


def _told(printed: str, value: str | None) -> str:
    returned: object = None if value is None else json.loads(value)
    text = "" if returned is None else returned if isinstance(returned, str) else canonical_json(returned)
    between = "\n" if printed and text and not printed.endswith("\n") else ""
    return clean_text(f"{printed}{between}{text}") or "The program ended; it printed nothing and returned nothing."

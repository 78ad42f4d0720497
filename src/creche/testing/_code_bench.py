"""What the checks of a code runtime share: a program with tools that are functions, and how it came out."""

import json
import textwrap
from collections.abc import Awaitable, Callable, Mapping
from typing import NoReturn, cast

import attrs
import trio

from creche._util import clean_text
from creche.codemode import CodeLimits, Program, ProgramEnd, ProgramFailure, RunProgram
from creche.errors import ToolError

LONGEST = 64 * 1024
"""Characters of the longest message of a failure."""

Arguments = dict[str, object]
ToolFunction = Callable[[Arguments], Awaitable[object]]


@attrs.define(eq=False)
class Tools:
    """Tools that the programs of the checks call, and what came of it."""

    asked: list[tuple[str, Arguments]] = attrs.field(factory=list[tuple[str, Arguments]])
    """Every call, in order."""
    hanging: int = 0
    """Calls of ``hang`` that wait."""
    met: list[trio.Event] = attrs.field(factory=list[trio.Event])
    """Calls of ``meet`` that wait."""
    extra: Mapping[str, ToolFunction] = attrs.field(factory=dict[str, ToolFunction])
    """More of them, by name."""

    @property
    def names(self) -> frozenset[str]:
        """The names of all."""
        return frozenset({"echo", "fail", "hang", "meet", *self.extra})

    def call(self, name: str, arguments: str, /) -> Awaitable[str]:
        """Answer a call as `creche.codemode.Program` wants it."""
        check_text(arguments)
        read = loads(arguments)
        assert isinstance(read, dict), f"the arguments of a call are an object, not {arguments!r:.200}"
        given = cast("Arguments", read)
        self.asked.append((name, given))
        own = {"echo": self.echo, "fail": self.fail, "hang": self.hang, "meet": self.meet}
        return self._answer({**own, **self.extra}[name], given)

    async def _answer(self, function: ToolFunction, arguments: Arguments) -> str:
        return json.dumps(await function(arguments))

    async def echo(self, arguments: Arguments) -> object:
        """Return the arguments."""
        await trio.lowlevel.checkpoint()
        return arguments

    async def fail(self, arguments: Arguments) -> NoReturn:
        """Fail with a text."""
        await trio.lowlevel.checkpoint()
        raise ToolError(str(arguments.get("text", "no such luck")))

    async def hang(self, arguments: Arguments) -> NoReturn:
        """Never return."""
        self.hanging += 1
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):  # whoever runs the program waits for this, too
                await trio.lowlevel.checkpoint()
            self.hanging -= 1

    async def meet(self, arguments: Arguments) -> object:
        """Return when as many calls wait here as ``count`` says."""
        came = trio.Event()
        self.met.append(came)
        if len(self.met) == arguments["count"]:
            for waiting in self.met:
                waiting.set()
            self.met.clear()
        await came.wait()
        return arguments.get("value")


@attrs.frozen(kw_only=True)
class Outcome:
    """How a program came out."""

    source: str
    end: ProgramEnd
    printed: str

    @property
    def value(self) -> object:
        """What it returned."""
        assert self.end.failure is None, f"this program does not fail:\n{self}"
        return None if self.end.value is None else loads(self.end.value)

    def failed(self, *failures: ProgramFailure, words: tuple[str, ...] = ()) -> None:
        """Check that it failed in one of these ways, with these words in its message."""
        assert self.end.failure in failures, f"this program fails with {' or '.join(failures)}:\n{self}"
        assert self.end.value is None, f"a program that failed has no value:\n{self}"
        assert 0 < len(self.end.message) <= LONGEST, f"a failure has a message, which is not long:\n{self}"
        for word in words:
            assert word in self.end.message, f"its message has {word!r}:\n{self}"

    def __str__(self) -> str:
        return f"{textwrap.indent(self.source, '    ')}\nend: {self.end!r:.2000}\nprinted: {self.printed!r:.2000}"


@attrs.frozen
class Bench:
    """Runs the programs of the checks."""

    run: RunProgram

    async def __call__(
        self,
        source: str,
        *,
        tools: Tools | None = None,
        limits: CodeLimits | None = None,
        on_print: Callable[[str], None] | None = None,
    ) -> Outcome:
        """Run a program, and after one that failed another to see that the runtime still works."""
        tools = tools or Tools()
        outcome = await self.once(source, tools=tools, limits=limits or CodeLimits(), on_print=on_print)
        assert not tools.hanging, f"no call is under way when the program is over:\n{outcome}"
        if outcome.end.failure is not None:
            after = await self.once("return 1", tools=tools, limits=CodeLimits(), on_print=None)
            assert after.end == ProgramEnd(value="1"), (
                f"the next program runs after one that failed:\n{outcome}\n{after}"
            )
        return outcome

    async def once(
        self, source: str, *, tools: Tools, limits: CodeLimits, on_print: Callable[[str], None] | None
    ) -> Outcome:
        """Run a program and look at the form of what comes."""
        printed: list[str] = []

        def emit(text: str) -> None:
            check_text(text)
            printed.append(text)
            if on_print is not None:
                on_print(text)

        source = textwrap.dedent(source)
        program = Program(source=source, tools=tools.names, call=tools.call, emit=emit, limits=limits)
        with trio.move_on_after(60) as scope:
            try:
                end = await self.run(program)
            except Exception as error:
                raise AssertionError(f"running a program raises nothing but cancellation:\n{source}") from error
            outcome = Outcome(source=source, end=end, printed="".join(printed))
            assert isinstance(end, ProgramEnd), f"running a program returns a ProgramEnd, not {end!r}"
            check_text(end.message)
            if end.value is not None:
                check_text(end.value)
                loads(end.value)
            return outcome
        assert not scope.cancelled_caught, f"this program ends within a minute:\n{source}"
        raise AssertionError


def check_text(text: str) -> None:
    """Check that a text is one, and valid UTF-8."""
    assert isinstance(text, str), f"this is a text: {text!r:.200}"
    assert clean_text(text) == text, f"a text has no lone surrogates: {text!r:.200}"


def loads(text: str) -> object:
    """Read JSON, and what is none is an `AssertionError`."""

    def refuse(constant: str) -> NoReturn:
        raise AssertionError(f"{constant} is no JSON: {text!r:.200}")

    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise AssertionError(f"this is no JSON that can be read: {text!r:.200}") from error


def same(one: object, other: object) -> bool:
    """Whether two values are the same in JSON, where ``1`` and ``1.0`` are not."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)

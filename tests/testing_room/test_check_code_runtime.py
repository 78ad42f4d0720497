"""The check of a code runtime refuses a runtime that breaks its contract."""

from contextlib import asynccontextmanager

import attrs
import pytest
import trio

from creche.codemode import MontyRuntime, Program, ProgramEnd
from creche.testing import check_code_runtime

pytest.importorskip("pydantic_monty")


async def _forgets_null(run, program):
    end = await run(program)
    return attrs.evolve(end, value=None) if end.value == "null" else end


async def _prints_late(run, program):
    printed = []
    end = await run(attrs.evolve(program, emit=printed.append))
    program.emit("".join(printed))
    return end


async def _raises(run, program):
    end = await run(program)
    if end.failure == "exception":
        raise ValueError(end.message)
    return end


async def _says_no_line(run, program):
    end = await run(program)
    return attrs.evolve(end, message=end.message.partition(" (line")[0])


async def _calls_one_by_one(run, program):
    lock = trio.Lock()

    async def call(name, arguments):
        async with lock:
            with trio.move_on_after(0.2):
                return await program.call(name, arguments)
            return "null"

    return await run(attrs.evolve(program, call=call))


async def _calls_out_of_order(run, program):
    made = []

    async def call(name, arguments):
        made.append(name)
        for _ in range(20 - len(made)):  # the later a call, the sooner it is passed on
            await trio.lowlevel.checkpoint()
        return await program.call(name, arguments)

    return await run(attrs.evolve(program, call=call))


async def _has_no_limit_of_output(run, program):
    limits = attrs.evolve(program.limits, output=1_000_000)
    return await run(attrs.evolve(program, limits=limits))


async def _has_no_limit_of_calls(run, program):
    limits = attrs.evolve(program.limits, calls=1_000_000)
    return await run(attrs.evolve(program, limits=limits))


async def _ends_late(run, program):
    try:
        return await run(program)
    except trio.Cancelled:
        with trio.CancelScope(shield=True):
            await trio.sleep(0.2)
        raise


async def _swallows_cancellation(run, program):
    with trio.CancelScope(shield=True), trio.move_on_after(1.5):
        return await run(program)
    return ProgramEnd(failure="killed", message="it took too long")


async def _gives_surrogates(run, program):
    end = await run(program)
    return attrs.evolve(end, value='"\ud800"') if end.value == '"\ufffd"' else end


async def _takes_refused_arguments_for_sent(run, program):
    return await run(
        attrs.evolve(program, source=program.source.replace("sizes.append(str(error))", "sizes.append(size)"))
    )


async def _ends_well_when_it_is_not_served(run, program):
    end = await run(program)
    return ProgramEnd() if "not served" in end.message else end


async def _chokes_on_the_highest_limits(run, program):
    if program.limits.memory == 2**40:
        raise OverflowError("int too big to convert")
    return await run(program)


WRONG = {
    _forgets_null: "null is a value, nothing is none",
    _prints_late: "what is printed before a call is emitted before it",
    _raises: "running a program raises nothing but cancellation",
    _says_no_line: "its message has 'line 5'",
    _calls_one_by_one: "calls that are gathered run at the same time",
    _calls_out_of_order: "calls are passed on in the order in which they are made",
    _has_no_limit_of_output: "its message has '9999'",
    _has_no_limit_of_calls: "a call over the limit raises in the program",
    _ends_late: "a program that is cancelled ends in 0.1 s",
    _swallows_cancellation: "a program that is cancelled raises trio.Cancelled",
    _takes_refused_arguments_for_sent: "arguments of 5 MB raise a ToolCallError in the program",
    _ends_well_when_it_is_not_served: "this program fails with killed",
    _chokes_on_the_highest_limits: "running a program raises nothing but cancellation",
    _gives_surrogates: "a text has no lone surrogates",
}


@attrs.frozen
class Wrong:
    change: object
    name: str = "wrong"
    notes: str = "It does something wrong."

    @asynccontextmanager
    async def serve(self):
        async with MontyRuntime().serve() as right:

            async def run(program: Program, /) -> ProgramEnd:
                return await self.change(right, program)

            yield run


@pytest.mark.parametrize("change", WRONG, ids=lambda change: change.__name__.strip("_"))
async def test_a_runtime_that_breaks_its_contract_is_refused(change):
    with pytest.raises(AssertionError, match=WRONG[change]):
        await check_code_runtime(Wrong(change))

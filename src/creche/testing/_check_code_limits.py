"""The checks of a code runtime that are about limits and cancellation: whatever a program does, it ends in time."""

from collections.abc import Callable
from typing import cast

import attrs
import trio

from creche.codemode import CodeLimits

from ._code_bench import Bench, Outcome, Tools

PROMPT = 0.1
"""Seconds that the end of a cancelled program may take."""

TRIES = 3
"""How often a program is cancelled before it counts as late: a machine that others use may stand still for a moment."""

LATE = 6.0
"""Seconds after which a program has ended whose limit is one second."""

_ENDLESS = (
    "while True:\n    pass",
    "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass",
    "def again():\n    while True:\n        pass\ntry:\n    again()\nfinally:\n    again()",
)


async def check_limits(bench: Bench) -> None:
    """Check that limits hold and that cancellation is prompt."""
    await _check_output(bench)
    await _check_calls(bench)
    await _check_arguments(bench)
    await _check_cancelled(bench)
    await _check_memory(bench)
    await _check_seconds(bench)
    await _check_extremes(bench)


async def _check_extremes(bench: Bench) -> None:
    """Rule: whatever limits there can be, none of them is too much for a runtime."""
    most = CodeLimits(memory=2**40, output=2**30, calls=1_000_000, seconds=1_000_000)
    outcome = await bench("print('x')\nreturn await tools.echo(a=1)", limits=most)
    assert outcome.value == {"a": 1}, f"a program runs with the highest limits:\n{outcome}"
    least = CodeLimits(memory=1, output=1, calls=0, seconds=0.0)
    await bench("return 1", limits=least)
    began = trio.current_time()
    outcome = await bench("while True:\n    pass", limits=attrs.evolve(least, seconds=0.001))
    assert outcome.end.failure, f"a program has an end with the lowest limits:\n{outcome}"
    assert trio.current_time() - began < LATE, f"a limit of a millisecond is kept:\n{outcome}"


async def _check_seconds(bench: Bench) -> None:
    async def slow(arguments: dict[str, object]) -> object:
        await trio.sleep(1.5)
        return "done"

    async def ends_in_time(source: str) -> None:
        began = trio.current_time()
        outcome = await bench(f"print('before')\n{source}", limits=CodeLimits(seconds=1.0))
        outcome.failed("timeout")
        assert outcome.printed == "before\n", f"what was printed is kept:\n{outcome}"
        assert trio.current_time() - began < LATE, f"a limit of one second is kept:\n{outcome}"

    async with trio.open_nursery() as nursery:
        for source in _ENDLESS:
            nursery.start_soon(ends_in_time, source)
        tools = Tools(extra={"slow": slow})
        outcome = await bench("return await tools.slow()", tools=tools, limits=CodeLimits(seconds=1.0))
        assert outcome.value == "done", f"waiting for a tool does not count as computing:\n{outcome}"


async def _check_memory(bench: Bench) -> None:
    for source in (
        "kept = []\nwhile True:\n    kept.append(str(len(kept)) * 10_000)",
        "kept = 'x' * 10 ** 10",
        "kept = []\nwhile True:\n    try:\n        kept.append('x' * 10_000)\n    except Exception:\n        pass",
    ):
        limits = CodeLimits(memory=64 * 1024 * 1024, seconds=4.0)
        outcome = await bench(f"print('before')\n{source}", limits=limits)
        outcome.failed("killed", "exception", "timeout" if "try" in source else "killed")
        assert outcome.end.failure != "exception" or "MemoryError" in outcome.end.message, (
            f"the message says that memory ran out:\n{outcome}"
        )
        assert outcome.printed == "before\n", f"what was printed is kept:\n{outcome}"


async def _check_output(bench: Bench) -> None:
    flood = "x" * 99 + "\n"
    for source in (
        "while True:\n    print('x' * 99)",
        "while True:\n    try:\n        print('x' * 99)\n    except BaseException:\n        pass",
        "while True:\n    print(('x' * 99 + '\\n') * 1000, end='')",
    ):
        outcome = await bench(source, limits=CodeLimits(output=9_999, seconds=20.0))
        outcome.failed("output_limit", words=("9999",))
        assert outcome.printed == (flood * 100)[:9_999], f"the prefix that fits is kept:\n{outcome}"
    outcome = await bench("print('é' * 1_000_000)", limits=CodeLimits(output=99))
    outcome.failed("output_limit", words=("99",))
    assert outcome.printed == "é" * 49, f"the prefix that fits is kept, and of whole characters:\n{outcome}"
    outcome = await bench("print('x' * 49)\nreturn 'y' * 48", limits=CodeLimits(output=100))
    assert outcome.value == "y" * 48, f"printed text and the JSON of the value make 100 bytes, which fit:\n{outcome}"
    outcome = await bench("print('x' * 99)\nawait tools.echo()\nprint('y')", limits=CodeLimits(output=100))
    outcome.failed("output_limit", words=("100",))
    assert outcome.printed == "x" * 99 + "\n", f"the prefix that fits is kept:\n{outcome}"
    for source in ("print('x' * 49)\nreturn 'y' * 49", "print('x' * 49)\nreturn list(range(100_000))"):
        outcome = await bench(source, limits=CodeLimits(output=100))
        outcome.failed("output_limit", words=("100",))
        assert outcome.printed == "x" * 49 + "\n", f"what was printed is kept:\n{outcome}"


async def _check_calls(bench: Bench) -> None:
    source = """
        done, refused = 0, 0
        for number in range(5):
            try:
                await tools.echo(number=number)
                done += 1
            except Exception as error:
                refused += 1
        return [done, refused]
    """
    tools, limits = Tools(), CodeLimits(calls=3)
    outcome = await bench(source, tools=tools, limits=limits)
    assert outcome.value == [3, 2], f"a call over the limit raises in the program:\n{outcome}"
    assert len(tools.asked) == limits.calls, f"a call over the limit is not made:\n{outcome}"
    source = "import asyncio\nawait asyncio.gather(*[tools.echo(number=number) for number in range(5)])"
    (await bench(source, limits=limits)).failed("exception", words=("3",))


async def _check_arguments(bench: Bench) -> None:
    """Rule: arguments of 4 MiB a call, and of 16 MiB in all calls without an answer, fit; more raises in the program."""
    source = """
        sizes = []
        for size in (3_000_000, 5_000_000, 3_000_000):
            try:
                await tools.count(text="x" * size)
                sizes.append(size)
            except ToolCallError as error:
                sizes.append(str(error))
        return sizes
    """
    tools = Tools()
    asked: list[int] = []

    async def count(arguments: dict[str, object]) -> object:
        asked.append(len(str(arguments["text"])))
        if arguments.get("meet"):
            await tools.meet({"count": 5})
        return None

    tools.extra = {"count": count}
    outcome = await bench(source, tools=tools)
    before, refused, after = cast("list[object]", outcome.value)
    fits = f"arguments of 3 MB fit, also after others that did not:\n{outcome}"
    assert (before, after) == (3_000_000, 3_000_000), fits
    assert isinstance(refused, str), f"arguments of 5 MB raise a ToolCallError in the program:\n{outcome}"
    assert asked == [3_000_000] * 2, f"a call whose arguments are too long is not made:\n{outcome}"
    source = """
        import asyncio
        async def count():
            try:
                return await tools.count(text="x" * 3_000_000, meet=True)
            except ToolCallError:
                return "refused"
        done = await asyncio.gather(*[count() for _ in range(5)])
        while "refused" not in done:
            done += await asyncio.gather(*[count() for _ in range(6)])
        return done
    """
    asked.clear()
    outcome = await bench(source, tools=tools)
    answers = [*[None] * 10, "refused"]
    assert outcome.value == answers, f"of calls with 3 MB each, five fit at a time:\n{outcome}"
    assert len(asked) == answers.index("refused"), f"a call whose arguments are too long is not made:\n{outcome}"


async def _check_cancelled(bench: Bench) -> None:
    for source in _ENDLESS:
        await _check_cancel(bench, f"print('now')\n{source}", by_printing=True)
    await _check_cancel(bench, "print('now')\nawait tools.hang()")
    await _check_cancel(bench, "print('now')\nimport asyncio\nawait asyncio.gather(tools.hang(), tools.hang())")
    source = "print('now')\nwhile True:\n    try:\n        await tools.hang()\n    except BaseException:\n        pass"
    await _check_cancel(bench, source)
    tools = Tools()
    with trio.CancelScope() as scope:
        scope.cancel()
        await bench("return 1", tools=tools)
    assert scope.cancelled_caught, "a program that is cancelled before it begins raises trio.Cancelled"
    for delay in (0.0, 0.001, 0.002, 0.005, 0.01, 0.02):
        took = min([await _time_early_cancel(bench, tools, delay) for _ in range(TRIES)])
        assert took < PROMPT, "a program that is about to begin is cancelled at once"
    assert (await bench("return 1")).value == 1


async def _time_early_cancel(bench: Bench, tools: Tools, delay: float) -> float:
    """Cancel a program that may not have begun; return the seconds that it took to end."""
    began = trio.current_time()
    with trio.move_on_after(delay):
        await bench("await tools.hang()", tools=tools)
    assert not tools.hanging, "no call is under way when the program is over"
    return trio.current_time() - began - delay


async def _check_cancel(bench: Bench, source: str, *, by_printing: bool = False) -> None:
    """Cancel a program that computes or whose call hangs, while another one goes on."""
    took = min([await _time_cancel(bench, source, by_printing=by_printing) for _ in range(TRIES)])
    assert took < PROMPT, f"a program that is cancelled ends in {PROMPT} s, not in {took:.3f} s:\n{source}"


async def _time_cancel(bench: Bench, source: str, *, by_printing: bool) -> float:
    """Cancel a program while another one goes on; return the seconds that it took to end."""
    tools, other, outcomes = Tools(), Tools(), list[Outcome]()
    is_there = trio.Event()
    scope = trio.CancelScope()

    async def hangs(arguments: dict[str, object]) -> object:
        is_there.set()
        return await tools.hang(arguments)

    async def cancelled() -> None:
        with scope:
            await bench(source, tools=tools, on_print=_setter(is_there) if by_printing else None)

    async def goes_on() -> None:
        outcomes.append(await bench("return await tools.meet(count=2, value='went on')", tools=other))

    if not by_printing:
        tools.extra = {"hang": hangs}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(goes_on)
        with trio.fail_after(60):
            async with trio.open_nursery() as inner:
                inner.start_soon(cancelled)
                await is_there.wait()
                began = trio.current_time()
                scope.cancel()
        took = trio.current_time() - began
        assert scope.cancelled_caught, f"a program that is cancelled raises trio.Cancelled:\n{source}"
        assert not tools.hanging, f"no call is under way when the program is over:\n{source}"
        await other.meet({"count": 2})
    assert outcomes[0].value == "went on", f"another program goes on when one is cancelled:\n{outcomes[0]}"
    return took


def _setter(event: trio.Event) -> Callable[[str], None]:
    def on_print(_: str) -> None:
        event.set()

    return on_print

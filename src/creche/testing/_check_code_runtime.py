"""What every sandbox for programs has to do, as a check for those who write one."""

import inspect

from creche.codemode import CodeLimits, CodeRuntime

from ._check_code_limits import check_limits
from ._check_code_sandbox import check_sandbox
from ._code_bench import Bench, ToolFunction, Tools, same

DEEP = 150
"""Depth of nested lists that has to work."""
ENDLESS = 100_000
"""Depth of nested lists that cannot."""

_VALUES = {
    "": None,
    "# nothing but a remark": None,
    "1 + 1": None,
    "value = 1\nvalue": None,
    "return True": True,
    "return 2 ** 70": 2**70,
    "return [0.1, 1e300, -1.5, 2.0]": [0.1, 1e300, -1.5, 2.0],
    "return {'a': [1, {'b': None}], 'c': ''}": {"a": [1, {"b": None}], "c": ""},
    "return (1, (2, 3))": [1, [2, 3]],
    "return 'é \U0001f600 \\n \\x00 \u2028'": "é \U0001f600 \n \x00 \u2028",
    # It is the body of a function: its names are local to it, and what it defines inside can change them.
    "count = 0\ndef more():\n    nonlocal count\n    count += 1\nmore()\nreturn count": 1,
    "if True:\n\treturn 'tabs'\nreturn 'none'": "tabs",
    'text = """one\n  two\nthree"""\nreturn text': "one\n  two\nthree",
    "total = (1 +\n2)\nvalues = [\n1,\n]\nreturn total + \\\nlen(values)": 4,
    "for number in range(10):\n    if number == 3:\n        return number": 3,
    "async def double(value):\n    return 2 * value\nreturn await double(4)": 8,
    "try:\n    1 / 0\nexcept ZeroDivisionError:\n    return 'caught'\nfinally:\n    done = True": "caught",
}

_WRONG = {
    "text = '''\nraise\n'''\n\nraise ValueError('not this')": ("ValueError", "not this", "line 5"),
    "def inner():\n    return [][1]\n\nreturn inner()": ("IndexError", "line 2"),
    "number = 1\nif number\n    return 1": ("line 2",),
    "return (1,\n": ("line",),
    "  return 1\n return 2": ("line",),
    "text = '''": ("line",),
    "raise ValueError('x' * 10_000_000)": ("ValueError",),
    "return missing": ("NameError", "missing", "line 1"),
    "raise KeyboardInterrupt('stop')": ("KeyboardInterrupt",),
    "raise SystemExit('over')": (),
    "tools.raed(path='x')": ("raed", "echo, fail, hang, meet", "line 1"),
    "return await tools['raed'](path='x')": ("raed", "echo, fail, hang, meet", "line 1"),
    "\nawait tools.fail(text='is \\'not\\' there')": ("ToolCallError", "is 'not' there", "line 2"),
    "await tools.echo(1)": ("TypeError", "echo", "keyword"),
    "await tools.echo(value={1})": ("TypeError", "line 1"),
    "await tools.echo(value=float('nan'))": ("ValueError", "line 1"),
}

_NO_JSON = (
    "return {1, 2}",
    "return float('nan')",
    "return [float('inf')]",
    "return print",
    "return b'bytes'",
    "return {(1, 2): 3}",
    "class Own:\n    pass\nreturn Own()",
    "return {'of a tool': tools.echo}",
    "loop = []\nloop.append(loop)\nreturn loop",
)


async def check_code_runtime(runtime: CodeRuntime, /) -> None:
    """Run some hundred small programs and see that the runtime keeps the contract of `creche.codemode.CodeRuntime`.

    It takes some seconds and needs the real clock: limits and cancellation are those of processes. Meanwhile
    this process must start no others, since those that are left in the end are counted (on Linux).

    Args:
      runtime: The runtime, with its usual options.

    Raises:
      AssertionError: It does not; the message says what was expected, of which program, and what came.
      PluginError: It cannot run here.
    """
    assert runtime.name, "a runtime has a name"
    assert runtime.notes, "a runtime says what a model has to know of its language"
    assert not inspect.iscoroutinefunction(runtime.serve), "serve() returns an async context manager"
    try:
        await _check(runtime)
    except BaseExceptionGroup as group:  # programs that run at once
        wrong = group.subgroup(AssertionError)
        if wrong is None:
            raise
        raise AssertionError(str(_first(wrong))) from group


def _first(group: BaseExceptionGroup[AssertionError]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _check(runtime: CodeRuntime) -> None:
    async with runtime.serve() as run:
        bench = Bench(run)
        await _check_values(bench)
        await _check_printing(bench)
        await _check_failures(bench)
        await _check_tools(bench)
        await _check_names(bench)
        await _check_surrogates(bench)
        await check_limits(bench)
    await check_sandbox(runtime)


async def _check_values(bench: Bench) -> None:
    for source, expected in _VALUES.items():
        outcome = await bench(source)
        assert same(outcome.value, expected), f"this program returns {expected!r}:\n{outcome}"
        assert (outcome.end.value is None) == (expected is None), f"null is a value, nothing is none:\n{outcome}"
        assert not outcome.printed, f"this program prints nothing:\n{outcome}"
    outcome = await bench("return None")
    assert outcome.end.value == "null", f"null is a value, nothing is none:\n{outcome}"


async def _check_printing(bench: Bench) -> None:
    outcome = await bench("print('a', 1, sep='-')\nprint('b', end='')\nprint('c', end='')\nprint()\nprint('d', end='')")
    assert outcome.printed == "a-1\nbc\nd", f"this program prints three lines, the last without an end:\n{outcome}"
    tools, heard = Tools(), list[str]()

    async def mark(arguments: dict[str, object]) -> object:
        return "".join(heard)

    tools.extra = {"mark": mark}
    source = "print('one')\nprint('two', end='')\nseen = await tools.mark()\nprint('three')\nreturn seen"
    outcome = await bench(source, tools=tools, on_print=heard.append)
    assert outcome.value == "one\ntwo", f"what is printed before a call is emitted before it:\n{outcome}"
    assert outcome.printed == "one\ntwothree\n", f"printing is kept in order:\n{outcome}"


async def _check_failures(bench: Bench) -> None:
    for source, words in _WRONG.items():
        (await bench(source)).failed("exception", words=words)
    for source in _NO_JSON:
        outcome = await bench(f"print('before')\n{source}")
        outcome.failed("invalid_output")
        assert outcome.printed == "before\n", f"what was printed is kept:\n{outcome}"
    for depth in (DEEP, 900, ENDLESS):  # in between it may come out or not, but no reader chokes on it
        nested = f"nested = []\nfor _ in range({depth}):\n    nested = [nested]"
        for source in (f"{nested}\nreturn nested", f"{nested}\nreturn len(await tools.echo(value=nested))"):
            outcome = await bench(source)
            if depth == DEEP:
                assert outcome.value, f"what is nested a little comes out:\n{outcome}"
            elif depth == ENDLESS:
                outcome.failed("invalid_output", "exception", "killed")
    outcome = await bench("print('before', end='')\nraise ValueError('now')")
    outcome.failed("exception")
    assert outcome.printed == "before", f"what was printed is kept:\n{outcome}"
    tools = Tools()
    outcome = await bench("import asyncio\nawait asyncio.gather(tools.hang(), tools.fail())", tools=tools)
    outcome.failed("exception", words=("no such luck",))
    assert sorted(name for name, _ in tools.asked) == ["fail", "hang"], f"both calls are made:\n{outcome}"


async def _check_tools(bench: Bench) -> None:
    value: dict[str, object] = {
        "nested": [[[[{"deep": [None, True, False]}]]]],
        "unicode": "é \U0001f600 \n \x00 \u2028 \" ' \\",
        "numbers": [0, -1, 2**70, -(10**300), 0.1, 1e-300, 1.7976931348623157e308, 2.0],
        "": {},
    }
    tools = Tools()
    outcome = await bench(f"return (await tools.echo(value={value!r}))['value']", tools=tools)
    assert same(outcome.value, value), f"JSON comes back as it was:\n{outcome}"
    assert tools.asked == [("echo", {"value": value})], f"and arrives as it was:\n{outcome}"
    source = "return await tools.echo(name=1, self=2, args=3, kwargs=4, tool=5, arguments=6, **{'a b': 7, 'é': 8})"
    outcome = await bench(source)
    expected = {"name": 1, "self": 2, "args": 3, "kwargs": 4, "tool": 5, "arguments": 6, "a b": 7, "é": 8}
    assert same(outcome.value, expected), f"an argument has any name:\n{outcome}"
    source = """
        import asyncio
        calls = [tools.meet(count=3, value=number) for number in range(3)]
        return await asyncio.gather(*calls)
    """
    outcome = await bench(source)
    assert outcome.value == [0, 1, 2], f"calls that are gathered run at the same time:\n{outcome}"
    for _ in range(5):
        tools = Tools()
        await bench("import asyncio\nawait asyncio.gather(*[tools.echo(number=n) for n in range(9)])", tools=tools)
        made = [arguments["number"] for _, arguments in tools.asked]
        assert made == list(range(9)), f"calls are passed on in the order in which they are made, not {made}"
    source = """
        caught = []
        for kind in (ToolCallError, Exception):
            try:
                await tools.fail(text="is not there\\nat all: é")
            except kind as error:
                caught.append(str(error))
        return caught
    """
    outcome = await bench(source)
    assert outcome.value == ["is not there\nat all: é"] * 2, f"a tool that failed raises its text:\n{outcome}"
    source = """
        import asyncio
        async def careful(text):
            try:
                return await tools.fail(text=text)
            except ToolCallError as error:
                return str(error)
        return await asyncio.gather(careful("a"), tools.echo(b=1), careful("c"))
    """
    outcome = await bench(source)
    assert outcome.value == ["a", {"b": 1}, "c"], f"one of several calls may fail:\n{outcome}"


async def _check_names(bench: Bench) -> None:
    async def named(arguments: dict[str, object]) -> object:
        return len(arguments)

    exotic = ("read-file", "файл", "class", "a.b/c", "0", "x" * 64, "it's", "__init__")
    plain = ("call", "get", "items", "name", "names", "functions", "tools", "self")
    extra: dict[str, ToolFunction] = dict.fromkeys((*exotic, *plain), named)
    for name in exotic:
        outcome = await bench(f"return await tools[{name!r}](value=1)", tools=Tools(extra=extra))
        assert outcome.value == 1, f"a tool of any name is called by subscript:\n{outcome}"
    for name in plain:
        source = f"return [await tools.{name}(value=1), await tools[{name!r}]()]"
        outcome = await bench(source, tools=Tools(extra=extra))
        assert outcome.value == [1, 0], f"a tool whose name is a name in Python is an attribute, too:\n{outcome}"
    caught = {
        "tools.raed": "AttributeError",
        "tools['raed']": "KeyError",
        "await tools.echo(1)": "TypeError",
    }
    for expression, kind in caught.items():
        outcome = await bench(f"try:\n    {expression}\nexcept {kind}:\n    return 'caught'")
        assert outcome.value == "caught", f"this is a {kind} in the program:\n{outcome}"


async def _check_surrogates(bench: Bench) -> None:
    """Whether a runtime knows lone surrogates is its own affair; the host is to get valid UTF-8, and no crash."""

    async def broken(arguments: dict[str, object]) -> object:
        return "\ud800"

    tools = Tools(extra={"broken": broken})
    for source in (
        "print('\\ud800')",
        "return '\\ud800'",
        "return {'\\udfff': 1}",
        "raise ValueError('\\ud800')",
        "return await tools.echo(value='\\ud800')",
        "return await tools.echo(**{'\\ud800': 1})",
        "await tools.fail(text='\\ud800')",
        "text = await tools.broken()\nprint(text)\nreturn text",
        "return '\ud800'",
        "return tools['\\ud800']",
        "import json\nreturn json.loads('\"\\\\ud800\"')",
    ):
        await bench(source, tools=tools, limits=CodeLimits(seconds=10.0))

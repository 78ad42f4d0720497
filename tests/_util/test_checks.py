import re

import pytest

from creche import AgentSpec, FunctionModel, Preset, delegation, open_host, restrict, say, tool
from creche._util import as_all, as_one
from creche.plugins.files import files

TOOL_CURE = "decorate a function with @tool, and give what is no tool in setup="
PLUGIN_CURE = (
    "a function that makes one is called, as in delegation(), and anything else goes into Plugin(name, setup=[...])"
)
MODEL = FunctionModel(lambda request: [say("done")])


@tool
def read(path: str) -> str:
    """Read a file."""
    return path


def plain(path: str) -> str:
    """Not a tool: the decorator was forgotten."""
    raise AssertionError("nobody may call it")


def test_a_list_of_the_right_things_comes_back_as_a_tuple():
    assert as_all(int, [1, 2], "n=", "") == (1, 2)
    assert as_all(int, iter(()), "n=", "") == ()
    assert as_one(int, 3, "n", "") == 3


@pytest.mark.parametrize("make", [AgentSpec, Preset])
@pytest.mark.parametrize(
    ("tools", "problem"),
    [
        ([read, plain], f"tools= takes Tool, and 'plain' is none; {TOOL_CURE}"),
        ([files(".")], f"tools= takes Tool, and Plugin 'files' is none; {TOOL_CURE}"),
        ([restrict(deny=["a"])], f"tools= takes Tool, and {restrict(deny=['a'])!r} is none; {TOOL_CURE}"),
        (read, "tools= takes a list, not Tool 'read'; write tools=[...]"),
        ("read", "tools= takes a list, not 'read'; write tools=[...]"),
        (7, "tools= takes a list, not 7; write tools=[...]"),
    ],
)
def test_what_is_no_tool_is_refused_where_it_is_given(make, tools, problem):
    """Rule: a function in `tools=` is not taken for a setup function, which would be called."""
    with pytest.raises(TypeError, match=f"^{re.escape(problem)}$"):
        make("a", tools=tools)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"plugins": [delegation]},
            f"plugins= takes Plugin, and 'delegation' is none; {PLUGIN_CURE}",
        ),
        ({"plugins": [read]}, f"plugins= takes Plugin, and Tool 'read' is none; {PLUGIN_CURE}"),
        ({"presets": Preset("team")}, "presets= takes a list, not Preset 'team'; write presets=[...]"),
        ({"presets": ["team"]}, "presets= takes Preset, and 'team' is none; write Preset(name, ...)"),
    ],
)
async def test_a_host_refuses_what_is_no_plugin_or_preset(options, problem):
    with pytest.raises(TypeError, match=f"^{re.escape(problem)}$"):
        async with open_host(model=MODEL, **options):
            pass


async def test_an_agent_is_not_opened_from_a_name():
    async with open_host(model=MODEL) as host:
        with pytest.raises(
            TypeError, match=r"^an agent takes AgentSpec, and 'lead' is none; write AgentSpec\('lead'\)$"
        ):
            async with host.open_agent("lead"):
                pass

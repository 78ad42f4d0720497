"""Results that are too long for the model, read with the tools of the same plugin."""

import re
from pathlib import Path

from creche import AgentSpec, FunctionModel, Plugin, call, open_host, say, tool
from creche.plugins.files import files
from creche.tools import ResultFolder

LONG = "".join([f"line {number}\n" for number in range(1, 30_001)])


@tool
async def dump() -> str:
    """Give a long text."""
    return LONG


def names_in(folder: str | Path) -> list[str] | None:
    """Return what is in a folder, if it is there."""
    return [path.name for path in Path(folder).iterdir()] if Path(folder).exists() else None


async def test_the_rest_of_a_long_result_is_read_from_its_file(tmp_path):
    seen: list[str] = []

    def answer(request):
        seen.append(request.last_tool_text)
        path = re.findall(r'all of it is in the file "(.*)"', "".join(seen))
        match len(seen):
            case 1:
                return call("dump")
            case 2:
                return call("read", path=path[0], offset=15_000, limit=2)
            case 3:
                return call("grep", path=path[0], pattern="^line 2999[89]$")
            case 4:
                return call("read", path=f"{path[0]}/../../passwd")
            case _:
                return say("done")

    plugins = [files(tmp_path), Plugin("dump", setup=[dump])]
    async with open_host(model=FunctionModel(answer), plugins=plugins) as host:
        async with host.open_agent(AgentSpec("lead")) as lead:
            await lead.ask("Go.")
        folder = host.registry.find(ResultFolder, None).path
        assert len(names_in(folder) or []) == 1
    _, cut, lines, found, outside = seen
    assert len(cut) < 101_000
    assert cut.startswith("line 1\n")
    assert lines.splitlines()[:2] == ["line 15000", "line 15001"]
    assert [line.split(": ")[-1] for line in found.splitlines()[:2]] == ["line 29998", "line 29999"]
    assert "is outside of the folder" in outside
    assert names_in(folder) is None, "it goes with the plugin"
    assert names_in(tmp_path) == [], "and the folder that is worked on is as it was"

"""Approvals in a whole program: children ask upwards, the log says who decided, the project remembers."""

import json
from functools import partial

import pytest
import trio
import trio.testing

from creche import AgentSpec, Plugin, Preset, open_host, tool
from creche.errors import PluginError
from creche.models import ScriptedModel, call, say
from creche.plugins.approvals import ask_before, remember_approvals
from creche.scope import Fault
from creche.subagents import delegation, fork, spawn
from creche.testing import check_log
from creche.tools import Allow, Approver, PreExecute, Proceed, Refuse


@tool
async def push(branch: str) -> str:
    """Push a branch."""
    return f"pushed {branch}"


def pushes(*branches):
    return [
        *[[call("push", branch=branch)] for branch in branches],
        lambda request: [say(request.last_tool_text)],
    ]


class Boss:
    """Somebody who answers, and what was asked."""

    def __init__(self, answer=None) -> None:
        self.asked: list[tuple[str, str]] = []
        self.answer = answer or Allow()

    @property
    def plugin(self) -> Plugin:
        return Plugin("boss", setup=[Approver(self._decide)])

    async def _decide(self, request):
        self.asked.append((request.agent.path, request.subject))
        return self.answer


SUBJECT = ask_before("push", reason="It is public.", subject=lambda execution: f"push {execution.arguments['branch']}")


async def test_children_of_every_depth_ask_whoever_is_above_with_their_own_path():
    """Rule: a request goes up the scope chain; agents of one name in two places are told apart."""
    boss = Boss()
    delegate = [call("subagent", description="push", prompt="Push.") for _ in range(2)]
    paths = [f"lead/{name}/subagent-{number}" for name in "ab" for number in (1, 2)]
    model = ScriptedModel(
        {f"lead/{name}": [delegate, say("done")] for name in "ab"} | {path: pushes("main") for path in paths}
    )
    plugins = [SUBJECT, boss.plugin, Plugin("push", setup=[push]), delegation()]
    async with (
        open_host(model=model, plugins=plugins) as host,
        host.open_agent(AgentSpec("lead")) as lead,
        trio.open_nursery() as nursery,
    ):
        for name in "ab":
            nursery.start_soon(partial(spawn, lead, "Push.", name=name))
    assert sorted(boss.asked) == [(path, "push main") for path in paths]


async def test_a_headless_tree_does_not_hang_and_the_reason_is_typed():
    model = ScriptedModel({"lead/a": pushes("main")})
    async with (
        open_host(model=model, plugins=[SUBJECT, Plugin("push", setup=[push])]) as host,
        host.open_agent(AgentSpec("lead")) as lead,
    ):
        result = await spawn(lead, "Push.", name="a")
    assert "nobody is there who could give it" in result.text


async def test_a_child_under_a_preset_asks_there():
    """Rule: for such a child, listeners and approvals follow the preset."""
    boss, other = Boss(), Boss(Refuse("not here"))
    team = Preset("team", setup=[boss.plugin])
    model = ScriptedModel({"lead/a": pushes("main")})
    async with (
        open_host(model=model, plugins=[SUBJECT, Plugin("push", setup=[push])], presets=[team]) as host,
        host.open_agent(AgentSpec("lead", setup=[other.plugin])) as lead,
    ):
        assert (await spawn(lead, "Push.", name="a", preset="team")).text == "pushed main"
    assert (boss.asked, other.asked) == ([("lead/a", "push main")], [])


async def test_allowed_for_an_agent_is_not_allowed_for_its_fork():
    boss = Boss(Allow("agent"))
    model = ScriptedModel({"lead": [*pushes("main", "main")], "lead/fork-1": pushes("main")})
    async with (
        open_host(model=model, plugins=[SUBJECT, boss.plugin, Plugin("push", setup=[push])]) as host,
        host.open_agent(AgentSpec("lead")) as lead,
    ):
        await lead.ask("Push.")
        await fork(lead, "Push too.")
    check_log(lead.session)
    assert boss.asked == [("lead", "push main"), ("lead/fork-1", "push main")]


async def test_what_the_project_allows_is_asked_for_once_and_survives_the_program(tmp_path):
    file = tmp_path / "state" / "approvals.json"
    asked = []
    for _ in range(2):
        boss = Boss(Allow("project"))
        model = ScriptedModel({"ann": pushes("main"), "bob": pushes("main", "other")})
        plugins = [SUBJECT, remember_approvals(file), boss.plugin, Plugin("push", setup=[push])]
        async with open_host(model=model, plugins=plugins) as host:
            for name in ("ann", "bob"):
                async with host.open_agent(AgentSpec(name)) as agent:
                    await agent.ask("Push.")
        asked += boss.asked
    assert asked == [("ann", "push main"), ("bob", "push other")]
    assert json.loads(file.read_text()) == {
        "allowed": [{"tool": "push", "subject": "push main"}, {"tool": "push", "subject": "push other"}]
    }
    assert [path.name for path in file.parent.iterdir()] == ["approvals.json"]


async def test_what_another_program_adds_is_kept(tmp_path):
    file = tmp_path / "approvals.json"
    boss = Boss(Allow("project"))
    model = ScriptedModel({"ann": pushes("main")})
    plugins = [SUBJECT, remember_approvals(file), boss.plugin, Plugin("push", setup=[push])]
    async with open_host(model=model, plugins=plugins) as host, host.open_agent(AgentSpec("ann")) as agent:
        file.write_text('{"allowed": [{"tool": "push", "subject": "push theirs"}]}')
        await agent.ask("Push.")
    assert json.loads(file.read_text()) == {
        "allowed": [{"tool": "push", "subject": "push main"}, {"tool": "push", "subject": "push theirs"}]
    }


@pytest.mark.parametrize("answer", [Allow(), Allow("agent"), Refuse()])
async def test_nothing_else_is_remembered(tmp_path, answer):
    boss = Boss(answer)
    model = ScriptedModel({"ann": pushes("main")})
    plugins = [SUBJECT, remember_approvals(tmp_path / "a.json"), boss.plugin, Plugin("push", setup=[push])]
    async with open_host(model=model, plugins=plugins) as host, host.open_agent(AgentSpec("ann")) as agent:
        await agent.ask("Push.")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content", ["", "[]", '{"allowed": "push"}', '{"allowed": [1]}', "{}", '{"allowed": [{"tool": "a"}]}', b"\xff"]
)
async def test_a_file_that_is_no_list_is_refused_with_a_sentence(tmp_path, content):
    file = tmp_path / "approvals.json"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(PluginError, match=r"^remember_approvals: .*approvals\.json"):
        async with open_host(model=ScriptedModel({}), plugins=[remember_approvals(file)]):
            raise AssertionError
    assert file.exists()


def test_a_plugin_that_asks_for_nothing_is_a_mistake():
    with pytest.raises(PluginError) as caught:
        ask_before()
    assert str(caught.value) == "ask_before: there is no tool to ask for; write ask_before('write', 'bash')"


async def test_without_a_subject_all_calls_of_the_tool_are_meant():
    boss = Boss(Allow("agent"))
    model = ScriptedModel({"ann": pushes("main", "other")})
    plugins = [ask_before("push"), boss.plugin, Plugin("push", setup=[push])]
    async with open_host(model=model, plugins=plugins) as host, host.open_agent(AgentSpec("ann")) as agent:
        assert (await agent.ask("Push.")).text == "pushed other"
    assert boss.asked == [("ann", "push")]


async def test_other_tools_are_not_asked_for():
    boss = Boss(Refuse())
    model = ScriptedModel({"ann": pushes("main")})
    plugins = [ask_before("pull"), boss.plugin, Plugin("push", setup=[push])]
    async with open_host(model=model, plugins=plugins) as host, host.open_agent(AgentSpec("ann")) as agent:
        assert (await agent.ask("Push.")).text == "pushed main"
    assert boss.asked == []


async def test_what_is_asked_for_is_what_will_run():
    """Rule: the subject is that of the arguments as they are changed further in."""
    boss = Boss()

    async def change(event, go_on):
        return Proceed({"branch": "main"})

    model = ScriptedModel({"ann": pushes("draft")})
    inner = Plugin("inner", setup=[lambda registrar: registrar.wrap(PreExecute, change) and None])
    plugins = [SUBJECT, inner, boss.plugin, Plugin("push", setup=[push])]
    async with open_host(model=model, plugins=plugins) as host, host.open_agent(AgentSpec("ann")) as agent:
        assert (await agent.ask("Push.")).text == "pushed main"
    assert boss.asked == [("ann", "push main")]


async def test_tools_are_named_by_their_names_or_as_themselves():
    boss = Boss(Refuse())
    model = ScriptedModel({"ann": pushes("main")})
    plugins = [ask_before(push), boss.plugin, Plugin("push", setup=[push])]
    async with open_host(model=model, plugins=plugins) as host, host.open_agent(AgentSpec("ann")) as agent:
        assert "refused the call" in (await agent.ask("Push.")).text
    with pytest.raises(PluginError, match=r"^ask_before takes names of tools, not 3"):
        ask_before(3)


async def test_a_name_that_is_nearly_one_of_a_tool_is_told():
    faults = []
    model = ScriptedModel({"ann": pushes("main")})
    plugins = [ask_before("psuh"), Plugin("push", setup=[push])]
    async with open_host(model=model, plugins=plugins) as host, host.open_agent(AgentSpec("ann")) as agent:
        host.registrar.on(Fault, faults.append)
        await agent.ask("Push.")
    [fault] = faults
    assert fault.what == "asking before calls of 'psuh', which there is not; did you mean 'push'?"

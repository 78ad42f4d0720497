"""``creche prompt`` in a folder with a module of the user's: what it says, and what it says when it cannot.

Where the process itself matters, a real one is run.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from creche.cli._app import app

TEAM = '''
"""A team."""

from contextlib import asynccontextmanager

from creche import Plugin, Preset, ScriptedModel, Section, open_host, restrict, tool
from creche.codemode import code_mode

print("the module is imported")


@tool
def read(path: str) -> str:
    """Read a file."""
    return path


@tool
def write(path: str) -> str:
    """Write a file."""
    return path


def who(context):
    return f"You are {context.agent.path}."


COMPANY = Preset("company", tools=[read, write], setup=[Section("company:rules", order=200, text="Be brief.")])
REVIEWER = Preset("reviewer", extends="company", persona="You review.", setup=[restrict(deny=["write"])])
PRESETS = [COMPANY, REVIEWER]
NEEDS = Preset("needs", setup=[Section("who", order=200, text=who), Section("where", order=201, text="In {{cwd}}, {{model}}.")])
BY_ROLE = {"first": COMPANY, "second": REVIEWER}
NUMBER = 5
EMPTY = []
CODE = Preset("code", tools=[read], present_as="code")
MODEL = Preset("model", model="openai:gpt-5", setup=[Section("m", order=200, text="{{provider}} {{model}}")])
UNKNOWN_MODEL = Preset("unknown", model="nobody:nothing")
BROKEN = Preset("broken", setup=[lambda registrar: 1 / 0])
LONELY = Preset("lonely", setup=[Plugin("p", setup=[], requires=[dict])])


def presets():
    yield COMPANY
    yield REVIEWER


def one():
    return CODE


def orphans():
    return [COMPANY, Preset("orphan", extends="nobody")]


def with_code():
    return open_host(model=ScriptedModel({}), plugins=[code_mode()], presets=[CODE])


def without_a_model():
    return open_host(presets=PRESETS)


@asynccontextmanager
async def app():
    async with open_host(presets=PRESETS, model="anthropic:claude") as host:
        host.registrar.add(Section("app", order=300, text="The app with {{model}}."))
        print("the host is open")
        yield host


@asynccontextmanager
async def no_host():
    yield 5


@asynccontextmanager
async def crashes():
    raise RuntimeError("no\\ndatabase")
    yield


def raises():
    raise RuntimeError("no presets today")


def leaves():
    raise SystemExit(3)


def wants(argument):
    return PRESETS


async def waits():
    return PRESETS


HOST = open_host(presets=PRESETS)
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "team.py").write_text(TEAM, encoding="utf-8")
    return folder


@pytest.fixture
def creche(folder, monkeypatch, capsys):
    """Run ``creche prompt`` in the folder; return code, stdout and stderr."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    importlib.invalidate_caches()

    def run(*arguments):
        command, bound, _ = app.parse_args(["prompt", *arguments], exit_on_error=False)
        code = command(*bound.args, **bound.kwargs)
        told = capsys.readouterr()
        return code, told.out, told.err

    yield run
    for name in ("team", "mine", "more"):
        sys.modules.pop(name, None)


@pytest.fixture
def process(folder, tmp_path):
    """Run a process in the folder; return code, stdout and stderr."""

    def run(*command, **variables):
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=folder,
            env={**os.environ, "CRECHE_STATE": os.fspath(tmp_path / "state"), **variables},
        )
        return done.returncode, done.stdout, done.stderr

    return run


ALONE = (
    "creche: what the plugins of a host bring is not shown with a preset alone; name the function that opens the host\n"
)
CRECHE = (sys.executable, "-W", "error", "-m", "creche", "prompt")


@pytest.fixture
def report(creche):
    """Return the report as JSON."""

    def made(*arguments):
        code, told, _ = creche(*arguments, "--json")
        assert code == 0
        return json.loads(told)

    return made


def names(report, what="sections", state="shown"):
    return [each["name"] for each in report[what] if each["state"] == state]


# ---------------------------------------------------------------- the lead of creche run


def test_without_a_preset_it_is_the_lead_of_creche_run(process, folder, tmp_path):
    code, told, problem = process(*CRECHE)
    assert (code, problem) == (0, "")
    assert told.startswith("The prompt at scope 'lead', agent 'lead'; above it: the global layer.\n")
    assert "  | You work in the " in told
    assert "\n- read (about " in told
    assert "- bash" not in told
    assert not (tmp_path / "state").exists()
    assert sorted(path.name for path in folder.iterdir()) == ["team.py"]


def test_its_powers_are_those_of_creche_run(report):
    assert names(report(), "tools", "direct") == ["glob", "grep", "list", "read", "subagent", "subagent_fork"]
    assert {"bash", "edit", "write"} < set(names(report("--write", "--shell"), "tools", "direct"))


def test_it_is_another_agent_in_another_folder(report, tmp_path):
    found = report("--agent", "ada", "--folder", os.fspath(tmp_path))
    assert found["agent"] == "ada"
    assert {each["name"]: each["value"] for each in found["variables"]}["cwd"] == os.fspath(tmp_path)


# ---------------------------------------------------------------- what MODULE:NAME can be


def test_a_preset_alone_is_shown_without_an_agent(report):
    found = report("--preset", "team:COMPANY")
    assert (found["agent"], found["scope"], found["problems"]) == (None, "preset company", [])
    assert names(found) == ["harness:identity", "company:rules"]


def test_of_several_presets_one_is_named(report):
    found = report("--preset", "team:PRESETS:reviewer")
    assert found["chain"] == ["preset reviewer", "preset company"]
    write = next(each for each in found["tools"] if each["name"] == "write")
    assert (write["state"], write["owner"]) == ("hidden", "preset company")
    assert write["hidden_by"] == [
        {"kind": "deny", "names": ["write"], "owner": "preset reviewer", "scope": "preset reviewer"}
    ]


@pytest.mark.parametrize("name", ["BY_ROLE", "presets", "HOST", "without_a_model", "app"])
def test_a_dict_a_function_and_a_host_do_as_well(report, name):
    assert report("--preset", f"team:{name}:reviewer")["chain"] == ["preset reviewer", "preset company"]


def test_of_a_host_the_global_layer_is_shown_if_no_preset_is_named(report):
    found = report("--preset", "team:app")
    assert (found["scope"], found["agent"]) == (None, None)
    assert "app" in [each["name"] for each in found["sections"]]


def test_what_a_preset_needs_of_its_host_is_there_in_a_host(report):
    found = report("--preset", "team:with_code:code")
    assert found["presentation"] == {"mode": "code", "owner": "preset code", "scope": "preset code"}
    assert names(found, "tools", "in-programs") == ["read"]


def test_a_function_may_return_a_preset(creche):
    code, told, problem = creche("--preset", "team:one")
    assert (code, told) == (1, "")
    assert problem.splitlines()[1:] == [
        (
            "creche: present_as('code') at scope 'preset code' needs the plugin code_mode() of creche.codemode, mounted "
            "there or above"
        )
    ]


# ---------------------------------------------------------------- agents


def test_what_needs_an_agent_is_told_to_fail_without_one(creche):
    code, told, problem = creche("--preset", "team:NEEDS")
    assert code == 0
    assert "What is wrong:\n- section 'who' of 'preset needs' at scope 'preset needs' raised" in told
    assert problem == f"the module is imported\ncreche: give --agent NAME for what needs an agent\n{ALONE}"


def test_and_is_rendered_with_one(report, folder):
    found = report("--preset", "team:NEEDS", "--agent", "ada")
    assert (found["agent"], found["problems"]) == ("ada", [])
    assert found["text"].endswith(f"You are ada.\n\nIn {folder}, scripted.")


@pytest.mark.parametrize(
    ("name", "text"),
    [("team:MODEL", "openai gpt-5"), ("team:app:reviewer", "The app with claude.")],
)
def test_the_model_of_the_preset_or_host_is_named_and_not_asked(report, name, text):
    assert report("--preset", name, "--agent", "ada")["text"].endswith(text)


def test_a_host_without_a_model_can_have_an_agent_all_the_same(report):
    assert report("--preset", "team:without_a_model:reviewer", "--agent", "ada")["agent"] == "ada"


# ---------------------------------------------------------------- ways to show it


@pytest.mark.parametrize("way", [[], ["--text"]])
@pytest.mark.parametrize("name", ["team:PRESETS:reviewer", "team:COMPANY", "team:BY_ROLE:company"])
def test_presets_alone_are_told_to_lack_what_a_host_brings(creche, name, way):
    code, _, problem = creche("--preset", name, *way)
    assert (code, problem) == (0, f"the module is imported\n{ALONE}")


@pytest.mark.parametrize("arguments", [["team:HOST:reviewer"], ["team:HOST"], ["team:PRESETS:reviewer", "--json"]])
def test_a_host_lacks_nothing_and_json_stands_for_itself(creche, arguments):
    code, _, problem = creche("--preset", *arguments)
    assert (code, problem) == (0, "the module is imported\n")


def test_the_text_alone_is_what_would_be_sent(creche, report):
    code, told, _ = creche("--preset", "team:PRESETS:reviewer", "--text")
    assert code == 0
    assert told == report("--preset", "team:PRESETS:reviewer")["text"] + "\n"
    assert told.endswith("\n\nYou review.\n\nBe brief.\n")


def test_without_a_prompt_there_is_no_text(creche):
    code, told, problem = creche("--preset", "team:NEEDS", "--text")
    assert (code, told) == (1, "")
    assert problem.splitlines()[1].startswith("creche: there is no prompt; section 'who' of 'preset needs' at scope")
    assert problem.endswith("has no value this time; give --agent NAME for what needs an agent\n")


@pytest.mark.parametrize("columns", [40, 80])
def test_it_fits_the_terminal(creche, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    code, told, _ = creche("--preset", "team:PRESETS:reviewer", "--agent", "ada")
    assert code == 0
    assert columns - 12 < max(map(len, told.splitlines())) <= columns


def test_what_the_module_prints_is_not_a_part_of_the_report(process):
    code, told, problem = process(*CRECHE, "--preset", "team:app", "--json")
    assert code == 0
    json.loads(told)
    assert problem == "the module is imported\nthe host is open\n"


def test_an_output_that_cannot_say_everything_is_given_what_it_can(process, folder):
    (folder / "more.py").write_text(
        "from creche import Preset\nP = Preset('p', persona='Caf\\u00e9')\n", encoding="utf-8"
    )
    code, told, problem = process(*CRECHE, "--preset", "more:P", PYTHONIOENCODING="ascii")
    assert (code, problem) == (0, ALONE)
    assert "  | Caf\\xe9\n" in told


# ---------------------------------------------------------------- what cannot be done


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (
            ["--preset", "team"],
            2,
            "'team' is not of the form MODULE:NAME or MODULE:NAME:PRESET, such as team:PRESETS:reviewer",
        ),
        (
            ["--preset", ":x"],
            2,
            "':x' is not of the form MODULE:NAME or MODULE:NAME:PRESET, such as team:PRESETS:reviewer",
        ),
        (
            ["--preset", "team:PRESETS:"],
            2,
            "'team:PRESETS:' is not of the form MODULE:NAME or MODULE:NAME:PRESET, such as",
        ),
        (["--preset", "nowhere:X"], 2, "there is no module 'nowhere' in '{folder}', nor among what is installed"),
        (
            ["--preset", "team.deeper:X"],
            2,
            "there is no module 'team.deeper' in '{folder}', nor among what is installed",
        ),
        (["--preset", "..:X"], 2, "'..' is no name of a module"),
        (
            ["--preset", "team:NOTHING"],
            2,
            "module 'team' ({folder}/team.py) has no 'NOTHING'; it has the presets COMPANY, ",
        ),
        (["--preset", "json:NOTHING"], 2, "module 'json' ("),
        (
            ["--preset", "team:NUMBER"],
            2,
            "team:NUMBER is no Preset, list of presets or open_host(...), nor a function ",
        ),
        (["--preset", "team:EMPTY"], 2, "team:EMPTY is no Preset, "),
        (["--preset", "team:waits"], 2, "team:waits is no Preset, "),
        (
            ["--preset", "team:PRESETS"],
            2,
            "team:PRESETS has 2 presets: company, reviewer; say which, as in team:PRESETS:reviewer",
        ),
        (["--preset", "team:PRESETS:nobody"], 2, "team:PRESETS has no preset 'nobody'; it has: company, reviewer"),
        (
            ["--preset", "team:app:nobody"],
            2,
            "no preset 'nobody'; presets: company, reviewer; give it to open_host(presets=[...])",
        ),
        (["--preset", "team:no_host"], 2, "what --preset names opens 5, and not a host"),
        (
            ["--preset", "team:REVIEWER"],
            2,
            "preset 'reviewer' extends 'company', which is not in team:REVIEWER; name a list that has both, as in team:PRESETS:reviewer",
        ),
        (
            ["--preset", "team:orphans:orphan"],
            2,
            "preset 'orphan' extends 'nobody', which is not in team:orphans; name a list that has both",
        ),
        (
            ["--preset", "team:BROKEN"],
            1,
            "setup of plugin 'preset broken' failed: ZeroDivisionError('division by zero')",
        ),
        (
            ["--preset", "team:LONELY"],
            1,
            "plugin 'p' requires dict, which is not visible from scope 'preset lonely'; mount",
        ),
        (["--preset", "team:raises"], 1, "team:raises failed: RuntimeError: no presets today (team.py, line "),
        (["--preset", "team:leaves"], 1, "team:leaves failed: SystemExit: 3 (team.py, line "),
        (
            ["--preset", "team:wants"],
            1,
            "team:wants failed: TypeError: wants() missing 1 required positional argument: 'argument'",
        ),
        (["--preset", "team:crashes"], 1, "what --preset names failed: RuntimeError: no database (team.py, line "),
        (
            ["--preset", "team:UNKNOWN_MODEL", "--agent", "ada"],
            1,
            "no model provider 'nobody' is registered; registered: ",
        ),
        (
            ["--preset", "team:COMPANY", "--agent", "a/b"],
            2,
            "--agent: 'a/b' cannot be a name: it is a segment of paths",
        ),
        (
            ["--preset", "team:COMPANY", "--write"],
            2,
            "--write and --shell are for the lead of creche run; with --preset, the ",
        ),
        (["--folder", "nowhere"], 2, "cannot work in 'nowhere': No such file or directory"),
        (["--json", "--text"], 2, "--json and --text are two ways to show it; give one of them"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_it_is_said_in_one_sentence(creche, folder, arguments, code, sentence):
    ended, told, problem = creche(*arguments)
    lines = [line for line in problem.splitlines() if line not in ("the module is imported", "the host is open")]
    assert (ended, told, len(lines)) == (code, "", 1), problem
    assert lines[0].startswith(f"creche: {sentence.format(folder=folder)}")


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (
            "import nothing_of_that_name",
            "ModuleNotFoundError: No module named 'nothing_of_that_name' (mine.py, line 1)",
        ),
        ("\n1 / 0", "ZeroDivisionError: division by zero (mine.py, line 2)"),
        ("raise SystemExit", "SystemExit (mine.py, line 1)"),
        ("def", "SyntaxError: invalid syntax (mine.py, line 1)"),
    ],
)
def test_a_module_that_cannot_be_imported_is_said_in_one_sentence(creche, folder, source, sentence):
    (folder / "mine.py").write_text(source, encoding="utf-8")
    assert creche("--preset", "mine:X") == (1, "", f"creche: module 'mine' cannot be imported: {sentence}\n")


def test_a_module_without_presets_says_so(creche, folder):
    (folder / "mine.py").write_text("", encoding="utf-8")
    assert creche("--preset", "mine:X") == (
        2,
        "",
        f"creche: module 'mine' ({folder}/mine.py) has no 'X'; it has no presets\n",
    )


def test_a_module_is_found_in_the_working_directory_by_the_installed_command_too(process):
    command = Path(sysconfig.get_path("scripts")) / "creche"
    code, told, problem = process(command, "prompt", "--preset", "team:COMPANY", "--text")
    assert (code, told.endswith("\n\nBe brief.\n")) == (0, True), problem


def test_a_working_directory_that_is_gone_is_said(process, folder):
    script = (
        f"import os, sys; os.chdir({os.fspath(folder)!r}); os.rename({os.fspath(folder)!r}, {os.fspath(folder)!r} + 'x');"
        "import shutil; shutil.rmtree(os.getcwd()); sys.argv[1:] = ['prompt', '--preset', 'team:X', '--folder', '/'];"
        "import creche.cli; creche.cli.main()"
    )
    sentence = "creche: module 'team' cannot be found: the working directory is gone (No such file or directory)\n"
    assert process(sys.executable, "-c", script) == (2, "", sentence)


# ---------------------------------------------------------------- users' code that misbehaves

MISBEHAVING = """
import json, sys
from contextlib import asynccontextmanager
import trio
from creche import Plugin, Preset, ScriptedModel, Section, open_host
from creche.prompt import AssemblePrompt

PRESETS = [Preset("p", persona="You help.")]


def host_with(*setup):
    return open_host(model=ScriptedModel({}), presets=PRESETS, plugins=[Plugin("mine", setup=setup)])


async def waits(event, go_on):
    print("waits", file=sys.stderr, flush=True)
    await trio.sleep_forever()


@asynccontextmanager
async def app():
    async with trio.open_nursery(strict_exception_groups=True) as nursery:
        nursery.start_soon(trio.sleep_forever)
        async with host_with() as host:
            yield host
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def waiting():
    async with trio.open_nursery(strict_exception_groups=True), host_with() as host:
        host.registrar.wrap(AssemblePrompt, waits)
        yield host


async def fail(what):
    raise ValueError(what)


@asynccontextmanager
async def crashing():
    async with trio.open_nursery(strict_exception_groups=True) as nursery, trio.open_nursery(strict_exception_groups=True) as inner:
        async with host_with() as host:
            host.registrar.wrap(AssemblePrompt, waits)
            nursery.start_soon(fail, "one")
            inner.start_soon(fail, "two")
            yield host


@asynccontextmanager
async def swallowing():
    try:
        async with crashing() as host:
            yield host
    except* ValueError:
        pass


@asynccontextmanager
async def broken():
    async with trio.open_nursery(strict_exception_groups=True), host_with(lambda registrar: 1 / 0) as host:
        yield host


@asynccontextmanager
async def leaving():
    sys.exit("enough")
    yield


def source(context):
    sys.exit(4)


@asynccontextmanager
async def text_leaves():
    async with trio.open_nursery(strict_exception_groups=True), host_with(Section("s", order=200, text=source)) as host:
        yield host


class Cancelled(BaseException):
    pass


def raises_what_is_no_exception():
    raise Cancelled("by asyncio")


class Mute(Exception):
    def __str__(self):
        raise RuntimeError


def mute():
    raise Mute


def corrupt():
    class Host:
        async def __aenter__(self):
            await trio.open_nursery().__aenter__()
            raise ValueError("left open")
        async def __aexit__(self, *_):
            pass
    return Host()


def in_a_library():
    json.loads("{")


def in_creche():
    return Section("s", order=float("nan"), text="")


def many_words():
    raise ValueError("word " * 10_000)


@asynccontextmanager
async def never():
    if False:
        yield


class Odd(list):
    def __iter__(self):
        raise RuntimeError("not now")


class Proxy:
    @property
    def __class__(self):
        raise RuntimeError("working outside of application context")


ODD = Odd([1])
PROXY = Proxy()
"""


@pytest.fixture
def mine(folder):
    """Return the folder, with a module `mine` whose code misbehaves."""
    (folder / "mine.py").write_text(MISBEHAVING, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("name", "code", "sentence"),
    [
        ("app:q", 2, "no preset 'q'; presets: p; give it to open_host(presets=[...])"),
        ("broken", 1, "setup of plugin 'mine' failed: ZeroDivisionError('division by zero')"),
        ("leaving", 1, "what --preset names failed: SystemExit: enough (mine.py, line "),
        ("text_leaves", 1, "what --preset names failed: SystemExit: 4 (mine.py, line "),
        (
            "raises_what_is_no_exception",
            1,
            "mine:raises_what_is_no_exception failed: Cancelled: by asyncio (mine.py, line ",
        ),
        ("mute", 1, "mine:mute failed: Mute: its text cannot be read (mine.py, line "),
        (
            "in_a_library",
            1,
            "mine:in_a_library failed: JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1) (mine.py",
        ),
        (
            "in_creche",
            1,
            "mine:in_creche failed: PromptError: Section 's' has order nan; an order is a finite number (mine.py",
        ),
        ("many_words", 1, "mine:many_words failed: ValueError: word word "),
        ("never", 1, "what --preset names failed: RuntimeError: generator didn't yield\n"),
        ("ODD", 1, "mine:ODD failed: RuntimeError: not now (mine.py, line "),
        ("PROXY", 1, "mine:PROXY failed: RuntimeError: working outside of application context (mine.py, line "),
        ("NOTHING", 2, "module 'mine' ({folder}/mine.py) has no 'NOTHING'; it has the presets PRESETS"),
        ("corrupt", 1, "what --preset names failed: "),
    ],
)
def test_what_misbehaves_is_said_in_one_sentence(creche, mine, name, code, sentence):
    ended, told, problem = creche("--preset", f"mine:{name}")
    assert (ended, told, problem.count("\n")) == (code, "", 1), problem
    assert problem.startswith(f"creche: {sentence.format(folder=mine)}")
    assert len(problem) < 2200


def test_what_crashes_in_a_nursery_is_said_without_its_groups(creche, mine):
    code, told, problem = creche("--preset", "mine:crashing")
    assert (code, told) == (1, "")
    sentence = problem.splitlines()[-1]
    assert sentence.startswith("creche: what --preset names failed: ValueError: ")
    assert sorted(each.partition(" (mine.py, line ")[0][-3:] for each in sentence.split("; ")) == ["one", "two"]


def test_a_host_that_swallows_what_ended_it_is_told_of(creche, mine):
    code, told, problem = creche("--preset", "mine:swallowing")
    assert (code, told) == (1, "")
    assert problem.splitlines()[-1] == (
        "creche: what --preset names ended before there was a report, and swallowed why"
    )


@pytest.mark.parametrize(
    ("source", "name", "sentence"),
    [
        (None, "sys", "module 'sys' has no 'X'; it has no presets"),
        (
            "def __getattr__(name):\n    1 / 0",
            "mine",
            "mine:X cannot be read: ZeroDivisionError: division by zero (mine.py, line 2)",
        ),
        (
            "import sys\nclass Module:\n    __slots__ = ()\nsys.modules[__name__] = Module()",
            "mine",
            "module 'mine' has no 'X'; it has no presets",
        ),
        (
            "class P:\n    __class__ = property(lambda self: 1 / 0)\np = P()",
            "mine",
            "module 'mine' ({folder}/mine.py) has no 'X'; it has no presets",
        ),
    ],
)
def test_a_module_of_an_odd_kind_is_said_in_one_sentence(creche, folder, source, name, sentence):
    if source is not None:
        (folder / "mine.py").write_text(source, encoding="utf-8")
    ended, told, problem = creche("--preset", f"{name}:X")
    assert (told, problem) == ("", f"creche: {sentence.format(folder=folder)}\n")
    assert ended == (1 if "cannot be read" in sentence else 2)


PRINTING = """
import atexit, os, subprocess, sys
from creche import Preset, Section

def say(*_):
    print("by print")
    os.write(1, b"by descriptor\\n")
    sys.__stdout__.write("by the first stdout\\n")
    subprocess.run([sys.executable, "-c", "print('by a child')"])
    return "text"

say()
atexit.register(say)
P = Preset("p", setup=[Section("s", order=200, text=say)])
"""


def test_nothing_that_users_code_writes_joins_the_report(process, folder):
    """Rule: neither what it writes past Python, nor what it writes when the process ends."""
    (folder / "more.py").write_text(PRINTING, encoding="utf-8")
    code, told, problem = process(*CRECHE, "--preset", "more:P", "--json")
    assert code == 0, problem
    assert json.loads(told)["text"].endswith("\n\ntext")
    for each in ("by print", "by descriptor", "by the first stdout", "by a child"):
        assert problem.count(each) == 3, problem


CLOSING = """
import io, os, sys
from creche import Preset

P = Preset("p", persona="text")
NULL = io.StringIO()

def closing():
    for stream in (sys.stdout, sys.stderr, sys.__stdout__):
        stream.close()
    return P

def replacing():
    sys.stdout = sys.stderr = NULL
    return P

def everything():
    os.closerange(1, 200)
    return P

def all_but_stderr():
    os.close(1)
    os.closerange(3, 200)
    return P
"""


@pytest.mark.parametrize("name", ["closing", "replacing"])
def test_streams_that_users_code_has_closed_or_replaced_can_be_written_to(process, folder, name):
    (folder / "more.py").write_text(CLOSING, encoding="utf-8")
    code, told, problem = process(*CRECHE, "--preset", f"more:{name}", "--text")
    assert (code, problem) == (0, ALONE)
    assert told.endswith("\n\ntext\n")


def test_where_users_code_closes_all_there_is_there_is_no_result(process, folder):
    (folder / "more.py").write_text(CLOSING, encoding="utf-8")
    assert process(*CRECHE, "--preset", "more:everything", "--text") == (1, "", "")
    code, told, problem = process(*CRECHE, "--preset", "more:all_but_stderr", "--text")
    assert (code, told, problem) == (1, "", "creche: no result: Bad file descriptor\n")


@pytest.mark.parametrize(("closed", "told"), [(2, ""), (0, f"the module is imported\n{ALONE}")])
def test_it_does_without_the_other_streams(folder, closed, told):
    done = subprocess.run(
        [*CRECHE, "--preset", "team:COMPANY", "--text"],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        preexec_fn=lambda: os.close(closed),
    )
    assert (done.returncode, done.stderr) == (0, told)
    assert done.stdout.endswith("\n\nBe brief.\n")


def test_without_a_stdout_no_code_of_the_user_runs(folder):
    (folder / "mine.py").write_text("1 / 0", encoding="utf-8")
    done = subprocess.run(
        [*CRECHE, "--preset", "mine:X"],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        cwd=folder,
        preexec_fn=lambda: os.close(1),
    )
    assert (done.returncode, done.stderr) == (1, "creche: no result: stdout is closed\n")


IMPORTING = "import sys, threading\nprint('waits', file=sys.stderr, flush=True)\nthreading.Event().wait()\n"


@pytest.mark.parametrize(
    ("number", "ended"), [(signal.SIGINT, (130, "interrupted")), (signal.SIGTERM, (143, "terminated"))]
)
@pytest.mark.parametrize("name", ["mine:waiting", "slow:X"])
def test_a_signal_ends_it(mine, name, number, ended):
    """Rule: also while the user's module is imported, or the user's host is open behind a nursery."""
    (mine / "slow.py").write_text(IMPORTING, encoding="utf-8")
    with subprocess.Popen(
        [*CRECHE, "--preset", name],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=mine,
    ) as process:
        try:
            assert process.stderr.readline() == "waits\n"
            process.send_signal(number)
            told, problem = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, told, problem) == (ended[0], "", f"creche: {ended[1]}\n")


@pytest.mark.parametrize("columns", ["9" * 5000, "9" * 4000, "\u00b2", "-5"])
@pytest.mark.parametrize("arguments", [["--preset", "team:COMPANY"], ["--help"], ["--nothing"]])
def test_any_number_of_columns_will_do(process, columns, arguments):
    _, _, problem = process(*CRECHE, *arguments, COLUMNS=columns, LINES=columns)
    assert "Traceback" not in problem

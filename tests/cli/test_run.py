"""``creche run`` as a user runs it: a real process, and a mock provider behind a real socket."""

import json
import os
import re
import signal
import socket
import subprocess
import sys

import pytest
import trio

from creche.cli._choice import ENDPOINT, choose_models
from creche.cli._ending import WrongUsage
from creche.cli._options import Options
from creche.cli._run import run
from creche.models import RetryPolicy, call, say
from creche.session import load_sessions
from creche.testing import check_log, open_mock_provider, raw, silent, status, until

SECRET = "sk-test-0123456789abcdef"


async def finish(command, **options):
    """Run a process to its end."""
    done = await trio.run_process(**command, capture_stdout=True, capture_stderr=True, check=False, **options)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


async def read_until(stream, wanted):
    """Read until a text has come, and return what came."""
    read = b""
    while wanted.encode() not in read:
        piece = await stream.receive_some()
        assert piece, f"{read!r} is all that came"
        read += piece
    return read.decode()


async def read_all(stream):
    return b"".join([piece async for piece in stream]).decode()


def sessions_of(told):
    location = re.search(r"log: (.*\.jsonl)$", told, flags=re.MULTILINE)
    assert location is not None, told
    sessions = {session.header.path: session for session in load_sessions(location[1]).values()}
    for session in sessions.values():
        check_log(session)
    return sessions


# ---------------------------------------------------------------- an answer


async def test_it_reads_the_folder_and_streams_the_answer_as_it_comes(command):
    rest = trio.Event()
    script = [
        [say("I look."), call("read", path="notes.md")],
        [say("Milk"), until(rest), say(" and bread.")],
    ]
    async with open_mock_provider(script) as mock:
        started = command("What to buy?", "--model", "mock", "--base-url", mock.openai_url, "--max-tokens", "99")
        process = await trio.lowlevel.open_process(**started, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        async with process.stdout, process.stderr:
            first = await read_until(process.stdout, "Milk")
            assert mock.streaming == 1, "the rest of the answer is not sent yet"
            rest.set()
            said = first + await read_all(process.stdout)
            told = await read_all(process.stderr)
            assert await process.wait() == 0, told
    assert said == "I look.\nMilk and bread.\n"
    assert "milk\\nbread" in mock.requests[1].body.decode()
    assert {request.json.get("max_tokens", request.json.get("max_completion_tokens")) for request in mock.requests} == {
        99
    }
    lines = told.splitlines()
    assert re.fullmatch(r" +[\d.]+s  lead +calls read path='notes.md'", lines[0])
    assert re.fullmatch(
        r"creche: 2 requests, [\d,]+ input tokens \([\d,]+ cached\), [\d,]+ output tokens; log: .*", lines[-1]
    )
    assert len(lines) == 2
    assert list(sessions_of(told)) == ["lead"]


async def test_it_delegates_to_subagents_that_work_at_the_same_time(command):
    both = trio.Event()

    def answer(request):
        user = [message["content"] for message in request.json["messages"] if message["role"] == "user"]
        if "Both." in str(user):
            if request.json["messages"][-1]["role"] == "tool":
                return say("Done.")
            return [call("subagent", description=word, prompt=f"Look up {word}.") for word in ("tea", "scone")]
        if mock.streaming == 2:
            both.set()
        return [until(both), say("A kind of cake.")]

    async with open_mock_provider(answer) as mock:
        code, said, told = await finish(command("Both.", "--model", "mock", "--base-url", mock.openai_url))
    assert (code, said) == (0, "Done.\n"), told
    for line in (
        "lead +starts subagent-1 ",
        "lead/subagent-2 +says A kind of cake.",
        "lead +hears from subagent-2: done",
    ):
        assert re.search(line, told)
    assert told.splitlines()[-1].startswith("creche: 4 requests, ")
    assert sorted(sessions_of(told)) == ["lead", "lead/subagent-1", "lead/subagent-2"]


async def test_json_is_one_object_and_no_progress(command):
    async with open_mock_provider([call("list"), say("A list.")]) as mock:
        started = command("What is here?", "--json", "--model", "mock", "--base-url", mock.openai_url)
        code, said, told = await finish(started)
    assert (code, told) == (0, "")
    answer = json.loads(said)
    assert sorted(answer) == ["answer", "log", "outcome", "usage"]
    assert (answer["answer"], answer["outcome"], answer["usage"]["requests"]) == ("A list.", "done", 2)
    assert sessions_of(f"log: {answer['log']}")


async def test_the_task_may_come_from_stdin_and_the_model_from_the_environment(command):
    """Rule: ``anthropic:`` before the model of a URL says which wire is spoken there."""
    async with open_mock_provider([say("Bonjour.")]) as mock:
        started = command(
            "-", "--base-url", mock.anthropic_url, CRECHE_MODEL="anthropic:claude", ANTHROPIC_API_KEY=SECRET
        )
        code, said, told = await finish(started, stdin="Grüß Gott.".encode())
    assert (code, said) == (0, "Bonjour.\n"), told
    (request,) = mock.requests
    assert (request.wire, request.json["model"]) == ("anthropic", "claude")
    assert "Grüß Gott." in json.dumps(request.json, ensure_ascii=False)


async def test_a_refusal_is_a_failure(command):
    async with open_mock_provider([say("No", finish="refusal")]) as mock:
        code, said, told = await finish(command("Go.", "--model", "mock", "--base-url", mock.openai_url))
    assert (code, said) == (1, "No\n")
    assert told.startswith("creche: the model refused to answer. 1 request, ")


# ---------------------------------------------------------------- failures


async def test_a_retry_is_told_and_so_is_an_answer_that_was_cut_off(command):
    script = [status(429, "slow down", retry_after=0), say("Here", finish="max-tokens")]
    async with open_mock_provider(script) as mock:
        code, said, told = await finish(command("Go.", "--model", "mock", "--base-url", mock.openai_url))
    assert (code, said) == (0, "Here\n")
    failed, again, last = told.splitlines()
    assert re.search(r"lead +got no answer: endpoint: slow down \[HTTP 429, request req_1\]", failed)
    assert re.search(r"lead +asks again$", again)
    cut = "creche: an answer was cut off at the limit of tokens; a higher --max-tokens may help. 2 requests, "
    assert last.startswith(cut)


async def test_a_fallback_is_asked_and_the_answer_begins_anew(command):
    """Rule: what is printed cannot be taken back, so what comes after it stands on a line of its own."""
    script = [
        [say("Half an"), raw({"error": {"message": "no credit", "type": "insufficient_quota"}})],
        say("A whole answer."),
    ]
    async with open_mock_provider(script) as mock:
        started = command("Go.", "--model", "large", "--fallback", "small", "--base-url", mock.openai_url)
        code, said, told = await finish(started)
    assert (code, said) == (0, "Half an\nA whole answer.\n"), told
    assert [request.json["model"] for request in mock.requests] == ["large", "small"]
    told = [line.split(maxsplit=2)[2].partition(" [")[0] for line in told.splitlines()[:-1]]
    assert told[1:] == ["asks again", "begins the answer anew", "asks endpoint:small"]
    assert told[0].startswith("got no answer: endpoint: in the middle of an answer: no credi")


async def test_a_wrong_key_is_one_sentence_that_does_not_repeat_it(command):
    async with open_mock_provider([status(401, f"wrong key {SECRET}")]) as mock:
        started = command("Go.", "--model", "openai:mock", "--base-url", mock.openai_url, OPENAI_API_KEY=SECRET)
        code, said, told = await finish(started)
    assert mock.requests[0].headers["authorization"] == f"Bearer {SECRET}"
    assert (code, said) == (1, "")
    failed, last = told.splitlines()
    assert "lead" in failed
    assert last.startswith("creche: openai: wrong key *** [HTTP 401, request req_1] (check the API key")
    assert SECRET not in told
    assert list(sessions_of(told)) == ["lead"]


async def test_when_nobody_reads_any_more_everything_ends_and_the_account_is_told(command):
    closed = trio.Event()
    async with open_mock_provider([[say("One."), until(closed), say("Two."), silent()]]) as mock:
        started = command("Go.", "--model", "mock", "--base-url", mock.openai_url)
        process = await trio.lowlevel.open_process(**started, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        async with process.stdout, process.stderr:
            await read_until(process.stdout, "One.")
            await process.stdout.aclose()
            closed.set()
            told = await read_all(process.stderr)
            assert await process.wait() == 1
            assert told.startswith("creche: nobody reads the answer. 1 request, ")
        await mock.wait_quiet()
        assert mock.hung_up == 1


# ---------------------------------------------------------------- Ctrl-C


def heed():
    """Where these tests run in the background of a shell, SIGINT is ignored, and a child would inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize(
    ("number", "word", "code"), [(signal.SIGINT, "interrupted", 130), (signal.SIGTERM, "terminated", 143)]
)
async def test_a_signal_ends_every_agent_and_says_which_and_where_the_log_is(number, word, code, command):
    begun = trio.Event()

    def answer(request):
        if len(mock.requests) == 1:
            return [call("subagent", description=word, prompt=word) for word in ("one", "two")]
        if mock.streaming == 2:
            begun.set()
        return [say("So far"), silent()]

    async with open_mock_provider(answer) as mock:
        started = command("Go.", "--model", "mock", "--base-url", mock.openai_url)
        process = await trio.lowlevel.open_process(
            **started, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=heed
        )
        async with process.stdout, process.stderr:
            await begun.wait()
            process.send_signal(number)
            said, told = await read_all(process.stdout), await read_all(process.stderr)
            assert await process.wait() == code, told
        await mock.wait_quiet()
        assert mock.hung_up == 2
    assert said == ""
    assert "Traceback" not in told
    last = told.splitlines()[-1]
    assert last.startswith(f"creche: {word}; stopped: lead, lead/subagent-1, lead/subagent-2. 3 requests, ")
    sessions = sessions_of(told)
    assert sorted(sessions) == ["lead", "lead/subagent-1", "lead/subagent-2"]
    ends = [session.records("turn/end")[-1].data.reason for session in sessions.values()]
    assert ends == ["cancelled"] * 3


async def test_of_many_agents_that_are_stopped_a_few_are_named(command):
    begun = trio.Event()

    def answer(request):
        if len(mock.requests) == 1:
            return [call("subagent", description="one", prompt="one") for _ in range(6)]
        if mock.streaming == 6:
            begun.set()
        return [say("So far"), silent()]

    async with open_mock_provider(answer) as mock:
        started = command("Go.", "--model", "mock", "--base-url", mock.openai_url, "--json")
        process = await trio.lowlevel.open_process(**started, stdout=subprocess.PIPE, preexec_fn=heed)
        async with process.stdout:
            await begun.wait()
            process.send_signal(signal.SIGINT)
            told = json.loads(await read_all(process.stdout))
            assert await process.wait() == 130
    assert told["error"] == "interrupted; stopped: lead, lead/subagent-1, lead/subagent-2 and 4 more"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
async def test_in_the_background_of_a_script_it_is_ended_by_what_is_not_ctrl_c(command, number, code):
    """Rule: where SIGINT is ignored, as a shell has it for what runs in its background, it stays so, and the others end it."""

    def ignore():
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    script = [[call("list")], [say("So far"), silent()]]
    async with open_mock_provider(script) as mock:
        started = command("Go.", "--model", "mock", "--base-url", mock.openai_url, "--json")
        process = await trio.lowlevel.open_process(
            **started, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=ignore
        )
        async with process.stdout, process.stderr:
            await mock.wait_requests(1)
            process.send_signal(signal.SIGINT)
            await mock.wait_requests(2)  # it goes on
            process.send_signal(number)
            with trio.fail_after(20):
                told = json.loads(await read_all(process.stdout))
                assert await process.wait() == code
    assert told["outcome"] == "cancelled"
    assert told["error"].endswith("; stopped: lead")


async def test_ctrl_c_ends_it_also_when_nobody_reads(command):
    full = trio.Event()
    flood = [say("x" * 60_000) for _ in range(20)]
    async with open_mock_provider([[*flood, until(full)]]) as mock:
        started = command("Go.", "--model", "mock", "--base-url", mock.openai_url)
        process = await trio.lowlevel.open_process(
            **started, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=heed
        )
        async with process.stdout, process.stderr:
            await read_until(process.stdout, "x")
            process.send_signal(signal.SIGINT)
            with trio.fail_after(20):
                assert await process.wait() == 130


async def test_what_was_said_until_then_is_in_the_json(command):
    async with open_mock_provider([[say("So far"), silent()]]) as mock:
        started = command("Go.", "--model", "mock", "--base-url", mock.openai_url, "--json")
        process = await trio.lowlevel.open_process(
            **started, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=heed
        )
        async with process.stdout, process.stderr:
            await mock.wait_requests(1)
            process.send_signal(signal.SIGINT)
            told = json.loads(await read_all(process.stdout))
            assert await process.wait() == 130
    assert (told["outcome"], told["error"]) == ("cancelled", "interrupted; stopped: lead")
    assert told["answer"] in ("So far", "")


async def test_requests_are_limited(command):
    async with open_mock_provider(lambda _: [call("list")]) as mock:
        code, _, told = await finish(
            command("Go.", "--model", "mock", "--base-url", mock.openai_url, "--max-requests", "3")
        )
    assert (code, len(mock.requests)) == (1, 3)
    assert told.splitlines()[-1].startswith("creche: agent 'lead' may make no further request: 'lead' and everything ")


# ---------------------------------------------------------------- what is typed


@pytest.fixture
def typed(folder, tmp_path, no_keys, monkeypatch, capfd):
    """Call the command in this process, for what ends before anything is sent."""
    monkeypatch.setenv("CRECHE_STATE", os.fspath(tmp_path / "state"))

    def call_it(task, *, as_json=False, **options):
        options = Options(**{"folder": os.fspath(folder), **options})
        return run(task, options=options, as_json=as_json), *capfd.readouterr()

    return call_it


PROVIDERS = "providers: anthropic, deepseek, "


@pytest.mark.parametrize(
    ("task", "options", "sentence"),
    [
        ("Go.", {}, f"which model? Give --model PROVIDER:MODEL or set CRECHE_MODEL; {PROVIDERS}"),
        ("Go.", {"model": "gpt-5"}, f"'gpt-5' is no PROVIDER:MODEL; {PROVIDERS}"),
        ("Go.", {"model": "nobody:gpt-5"}, f"there is no provider 'nobody'; {PROVIDERS}"),
        ("Go.", {"model": "openai:"}, f"'openai:' is no PROVIDER:MODEL; {PROVIDERS}"),
        ("Go.", {"model": "openai:gpt-5", "fallback": ["x"]}, f"'x' is no PROVIDER:MODEL; {PROVIDERS}"),
        (
            "Go.",
            {"model": "x", "base_url": "here"},
            "--base-url: 'here' is no address; write http://HOST:PORT/v1",
        ),
        ("Go.", {"model": "x", "base_url": "http://[::1"}, "--base-url: 'http://[::1' is no address; "),
        (
            "Go.",
            {"model": "deepseek:x", "base_url": "http://127.0.0.1"},
            "--base-url goes with a model's bare name, 'openai:NAME' or 'anthropic:NAME', and not with 'deepseek', whose",
        ),
        (" \n", {"model": "openai:gpt-5"}, "the task is empty"),
        ("--jsno", {"model": "openai:gpt-5"}, "the task is missing, or '--jsno' is no option; see creche run --help"),
        (
            "Go.",
            {"model": "openai:gpt-5", "max_tokens": 0},
            "--max-tokens is at least 1 and at most 1,000,000,000, not 0",
        ),
        ("Go.", {"model": "openai:gpt-5", "max_tokens": 10**20}, "--max-tokens is at least 1 and at most "),
        ("Go.", {"model": "openai:gpt-5", "max_requests": 0}, "--max-requests is at least 1 and at most "),
        ("Go.", {"model": "openai:gpt-5", "log": "/proc/creche"}, "cannot keep a log in '/proc/creche': "),
        ("Go.", {"model": "openai:gpt-5", "log": __file__}, f"cannot keep a log in {__file__!r}: File exists; give "),
        ("Go.", {"folder": "/missing"}, "cannot work in '/missing': No such file or directory"),
        ("Go.", {"folder": "nul\0"}, "cannot work in 'nul\\x00': embedded null byte"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_exit_code_2(task, options, sentence, typed):
    code, said, told = typed(task, **options)
    assert (code, said) == (2, "")
    assert told.startswith(f"creche: {sentence}")
    assert told.count("\n") == 1


def test_a_task_on_stdin_that_is_no_text_is_wrong_usage(typed, monkeypatch, tmp_path):
    (tmp_path / "task").write_bytes(b"caf\xe9")
    with open(tmp_path / "task", encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        code, _, told = typed("-", model="openai:gpt-5")
    assert code == 2
    assert told.startswith("creche: the task on stdin cannot be read: 'utf-8' codec can't decode byte 0xe9")


def test_without_a_stdout_nothing_is_begun(typed, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert typed("Go.", model="openai:gpt-5") == (1, "", "creche: no result: stdout is closed\n")


def test_a_missing_key_is_one_sentence_that_names_the_variable(typed):
    code, said, told = typed("Go.", model="openai:gpt-5", as_json=True)
    sentence = "openai: there is no API key: set OPENAI_API_KEY"
    assert code == 1
    assert told.startswith(f"creche: {sentence}. 0 requests, ")
    assert told.count("\n") == 1
    answer = json.loads(said)
    assert (answer["outcome"], answer["answer"], answer["error"]) == ("failed", "", sentence)


def test_a_host_that_is_not_there_is_one_sentence(typed, monkeypatch):
    monkeypatch.setattr(RetryPolicy.__init__, "__defaults__", (0,))  # without the waits between attempts
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # and it does not listen
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        code, said, told = typed("Go.", model="mock", base_url=url)
    assert (code, said) == (1, "")
    failed, last = told.splitlines()
    assert "lead                   got no answer: endpoint: no connection" in failed
    assert last.startswith("creche: endpoint: no connection: ")
    assert " (check the network and the base URL). 1 request, " in last
    assert list(sessions_of(told)) == ["lead"]


def test_the_help_has_examples(capsys):
    from creche.cli._app import app

    app(["run", "--help"], exit_on_error=False, result_action="return_value")
    shown = capsys.readouterr().out
    assert 'creche run "What does this project do?" --model openai:gpt-5' in shown
    assert "130 interrupted" in shown


URL = "http://127.0.0.1:8080/v1"


@pytest.mark.parametrize(
    ("model", "fallbacks", "base_url", "expected", "provider"),
    [
        ("openai:gpt-5", ["ollama:llama3.2:1b"], None, ("openai:gpt-5", ("ollama:llama3.2:1b",)), None),
        (
            "llama3.2:1b",
            ["small", "openai:gpt-5"],
            URL,
            ("endpoint:llama3.2:1b", ("endpoint:small", "openai:gpt-5")),
            ENDPOINT,
        ),
        ("openai:x", ["y", "anthropic:z"], URL, ("openai:x", ("openai:y", "anthropic:z")), "openai"),
        ("anthropic:x", ["y"], URL, ("anthropic:x", ("anthropic:y",)), "anthropic"),
    ],
)
def test_models_are_named_by_provider_or_by_the_endpoint_that_has_them(model, fallbacks, base_url, expected, provider):
    choice = choose_models(model, fallbacks, base_url)
    assert (choice.model, choice.fallbacks) == expected
    assert [each.name for each in choice.providers] == ([provider] if provider else [])
    assert all(each.model.provider == each.name for each in choice.providers)


def test_an_endpoint_is_no_provider_without_a_url():
    with pytest.raises(WrongUsage):
        choose_models("endpoint:x", [], None)

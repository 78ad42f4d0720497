"""The local adapter over a fake llama.cpp: what is loaded when, and what cancellation waits for."""

import functools
import json
import queue
import sys
import tempfile
import threading
import types

import pytest
import trio
import trio.testing

from creche.errors import ConfigError, ModelError
from creche.messages import ToolSchema, UserMessage
from creche.models import (
    Finished,
    KeepsOpen,
    ModelOptions,
    ModelRequest,
    RequestHead,
    Settings,
    TextDelta,
    ToolCallDelta,
)
from creche.models.adapters import LocalModel


def saying(text):
    return json.dumps({"choices": [{"finish_reason": None, "delta": {"content": text}}]})


END = json.dumps({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}})


class FakeServer:
    def __init__(self, llama, parameters):
        if llama.fails:
            llama.fails = False
            raise RuntimeError("Failed to init server")
        llama.loaded.append(parameters)
        llama.alive += 1
        self.llama = llama
        self.loaded = True

    def __del__(self):
        if hasattr(self, "loaded"):
            self.llama.alive -= 1

    def handle_chat_completions(self, body, callback):
        self.llama.bodies.append(json.loads(body))
        event = ""
        while event != END:
            event = self.llama.answers.get(timeout=10)
            if event is None:
                return
            if isinstance(event, Exception):
                raise event
            if callback(event):
                self.llama.stopped.set()
                return


class FakeLlama(types.ModuleType):
    """Stands for the module xllamacpp. Its servers say what is in `answers`: events, errors, and ``None`` for the end."""

    def __init__(self):
        super().__init__("xllamacpp")
        self.answers = queue.SimpleQueue()
        self.bodies = []
        self.loaded = []
        self.alive = 0
        self.fails = False
        self.stopped = threading.Event()
        self.Server = functools.partial(FakeServer, self)

    def CommonParams(self):
        parts = ("model", "cpuparams", "cpuparams_batch")
        return types.SimpleNamespace(**{part: types.SimpleNamespace() for part in parts})

    def answer(self, *events):
        for event in events:
            self.answers.put(event)


@pytest.fixture
def llama(monkeypatch):
    fake = FakeLlama()
    monkeypatch.setitem(sys.modules, "xllamacpp", fake)
    return fake


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "own.gguf"
    path.write_bytes(b"GGUF")
    return path


@pytest.fixture
def model(llama, weights):
    return LocalModel(weights, slots=2, context=256, threads=1)


def asking(model, *tools, **options):
    head = RequestHead(Settings("local", model=model.model, options=ModelOptions(**options)), tools=tools)
    return ModelRequest(head, messages=[UserMessage("hello")])


async def ask(model, *tools, **options):
    async with model.stream(asking(model, *tools, **options)) as chunks:
        return [chunk async for chunk in chunks]


# ---------------------------------------------------------------- prepare


async def test_prepare_fills_in_the_longest_answer(model):
    prepared = await model.prepare(Settings("local", model=model.model))
    assert prepared.settings.options.max_tokens == 512
    assert prepared.defaults == ("max_tokens",)
    assert prepared.context_window == 256
    assert prepared.capabilities.structured_output
    asked = Settings("local", model=model.model, options=ModelOptions(max_tokens=9))
    prepared = await model.prepare(asked)
    assert (prepared.settings, prepared.defaults) == (asked, ())


async def test_prepare_loads_nothing(model, llama):
    await model.prepare(Settings("local", model=model.model))
    assert llama.loaded == []


async def test_prepare_refuses_weights_that_are_not_there(model):
    with pytest.raises(ModelError) as caught:
        await model.prepare(Settings("local", model="other"))
    assert str(caught.value) == (
        "local: the weights 'other' cannot be read (No such file or directory); "
        "give the path of a GGUF file, or 'smollm2'"
    )
    assert caught.value.code == "unknown-model"


async def test_a_route_may_name_another_file(model, llama, tmp_path):
    other = tmp_path / "other.gguf"
    other.write_bytes(b"GGUF")
    async with model.opened():
        for name in (model.model, str(other), model.model):
            llama.answer(saying("hi"), END)
            head = RequestHead(Settings("local", model=name))
            async with model.stream(ModelRequest(head, messages=[UserMessage("hello")])) as chunks:
                assert len([chunk async for chunk in chunks]) > 1
        assert [parameters.model.path for parameters in llama.loaded] == [model.model, str(other)]
        assert llama.alive == 2
    assert llama.alive == 0


async def test_prepare_says_which_package_is_missing(monkeypatch, weights):
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ConfigError) as caught:
        await LocalModel(weights).prepare(Settings("local", model=str(weights)))
    assert str(caught.value) == "model: 'local' needs the package 'xllamacpp'; run: pip install 'creche[local]'"


async def test_prepare_says_which_weights_are_missing(llama, tmp_path):
    path = str(tmp_path / "absent.gguf")
    with pytest.raises(ModelError, match="cannot be read"):
        await LocalModel(path).prepare(Settings("local", model=path))


@pytest.mark.parametrize("option", ["slots", "context"])
def test_a_number_below_one_is_refused(option):
    with pytest.raises(ValueError, match=f"^{option} is at least 1, not 0$"):
        LocalModel(**{option: 0})


def test_a_model_keeps_open(model):
    assert isinstance(model, KeepsOpen)
    assert (LocalModel().model, model.provider, model.limiter.total_tokens) == ("smollm2", "local", 2)


# ---------------------------------------------------------------- lifetime


async def test_a_request_outside_of_any_block_loads_and_frees_for_itself(model, llama, weights):
    llama.answer(saying("a"), END)
    assert [type(chunk) for chunk in await ask(model)] == [TextDelta, Finished]
    (parameters,) = llama.loaded
    assert (parameters.model.path, parameters.n_parallel, parameters.n_ctx) == (str(weights), 2, 512)
    assert parameters.cpuparams.n_threads == 1
    assert llama.alive == 0


async def test_the_last_block_to_end_frees_the_model(model, llama):
    async with model.opened():
        assert llama.loaded == []
        async with model.opened():
            llama.answer(saying("a"), END, saying("b"), END)
            await ask(model)
            await ask(model)
        assert llama.alive == len(llama.loaded) == 1
    assert llama.alive == 0


async def test_two_requests_at_once_load_once(model, llama):
    llama.answer(saying("a"), saying("b"), END, END)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, model)
        nursery.start_soon(ask, model)
    assert len(llama.loaded) == 1
    assert llama.alive == 0


def test_a_model_can_be_opened_again_in_another_run(model, llama):
    for count in (1, 2):
        llama.answer(saying("a"), END)
        trio.run(ask, model)
        assert (len(llama.loaded), llama.alive) == (count, 0)


async def test_a_cancelled_block_frees_the_model(model, llama):
    llama.answer(saying("a"), END)
    with trio.CancelScope() as scope:
        async with model.opened():
            await ask(model)
            assert llama.alive == 1
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert llama.alive == 0


async def test_who_comes_while_the_model_is_about_to_be_freed_keeps_it(model, llama):
    llama.answer(saying("a"), END, saying("b"), END)

    async def leave_when_told(told, task_status):
        async with model.opened():
            await ask(model)
            task_status.started()
            await told.wait()

    async def come(task_status):
        async with model.opened():
            task_status.started()
            await ask(model)

    told = trio.Event()
    async with trio.open_nursery() as nursery:
        await nursery.start(leave_when_told, told)
        async with model._engine(model.model)._turn:
            told.set()
            await trio.testing.wait_all_tasks_blocked()
            await nursery.start(come)
    assert (len(llama.loaded), llama.alive) == (1, 0)


async def test_weights_that_cannot_be_loaded_are_an_error_and_can_be_tried_again(model, llama, weights):
    llama.fails = True
    async with model.opened():
        with pytest.raises(ModelError) as caught:
            await ask(model)
        assert str(caught.value) == (
            f"local: llama.cpp cannot load {str(weights)!r}: the file is broken, or of an unknown kind"
        )
        llama.answer(saying("a"), END)
        await ask(model)


async def test_the_socket_of_the_server_has_no_name_once_it_is_loaded(model, llama, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    llama.answer(saying("a"), END)
    await ask(model)
    (socket,) = llama.loaded[0].hostnames
    assert socket.endswith("/unused.sock")
    assert len(socket.encode()) < 107
    assert [path.name for path in tmp_path.iterdir()] == ["own.gguf"]


# ---------------------------------------------------------------- answers


async def test_a_call_has_no_id_and_gets_one_where_the_answer_is_added_up(model, llama):
    tool = ToolSchema("add", description="Add.", parameters={"type": "object"})
    llama.answer(saying('{"tool": "add", '), saying('"arguments": {}}'), END)
    chunks = await ask(model, tool, tool_choice="required")
    assert chunks[:2] == [ToolCallDelta(0, name="add"), ToolCallDelta(0, arguments="{}")]
    assert chunks[2].reason == "tool-calls"
    assert "response_format" in llama.bodies[0]
    llama.answer(saying("text"), END)
    assert (await ask(model, tool, tool_choice="none"))[0] == TextDelta("text")
    assert "response_format" not in llama.bodies[1]


async def test_leaving_early_stops_the_answer_and_waits_for_its_thread(model, llama):
    async with model.opened():
        async with model.stream(asking(model)) as chunks:
            llama.answer(saying("a"))
            assert await anext(chunks) == TextDelta("a")
            trio.lowlevel.current_trio_token().run_sync_soon(llama.answer, saying("b"))
        assert llama.stopped.is_set()
        assert model._engine(model.model)._threads.borrowed_tokens == 0


async def test_a_cancelled_answer_waits_for_its_thread(model, llama):
    async def answer_on_when_stopped():
        await trio.testing.wait_all_tasks_blocked()
        llama.answer(saying("b"))

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            async with model.stream(asking(model)) as chunks:
                llama.answer(saying("a"))
                assert await anext(chunks) == TextDelta("a")
                scope.cancel()
                nursery.start_soon(answer_on_when_stopped)
                await anext(chunks)
        assert scope.cancelled_caught
        assert llama.stopped.is_set()
        assert llama.alive == 0


async def test_more_answers_than_slots_wait_and_can_be_cancelled(llama, weights):
    model = LocalModel(weights, slots=1)
    async with model.opened(), model.stream(asking(model)) as first:
        llama.answer(saying("a"))
        assert await anext(first) == TextDelta("a")
        async with model.stream(asking(model)):
            await trio.testing.wait_all_tasks_blocked()
        llama.answer(END)
        assert [type(chunk) async for chunk in first] == [Finished]
    assert len(llama.bodies) == 1


async def test_an_error_of_the_block_comes_out_as_itself(model, llama):
    error = KeyError("mine")
    llama.answer(saying("a"), saying("b"))
    with pytest.raises(KeyError) as caught:
        async with model.stream(asking(model)):
            raise error
    assert caught.value is error


async def test_a_refused_request_is_one_error(model, llama):
    llama.answer(ValueError("JSON schema error"))
    with pytest.raises(ModelError) as caught:
        await ask(model)
    assert str(caught.value) == "local: llama.cpp refuses the request: JSON schema error"
    assert caught.value.code == "invalid-request"


async def test_an_error_event_is_one_error(model, llama):
    llama.answer(saying("a"), json.dumps({"error": {"code": 500, "message": "no"}}), None)
    with pytest.raises(ModelError, match=r"^local: no \(wait, or use a fallback model\)$"):
        await ask(model)


async def test_an_answer_without_an_end_is_cut(model, llama):
    llama.answer(saying("a"), None)
    with pytest.raises(ModelError) as caught:
        await ask(model)
    assert str(caught.value) == "local: the answer broke off (the connection broke in the middle of an answer)"
    assert caught.value.code == "stream-cut"


async def test_nothing_comes_after_the_end(model, llama):
    llama.answer(END)
    async with model.stream(asking(model)) as chunks:
        assert [type(chunk) async for chunk in chunks] == [Finished]
        assert [chunk async for chunk in chunks] == []

"""Applications of FastAPI, that of the how-to page among them, served by uvicorn over real sockets."""

import asyncio
import itertools
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import httpx2
import pytest
import trio
import uvicorn
from fastapi import Depends, FastAPI
from fastapi.responses import StreamingResponse
from fastapi.sse import EventSourceResponse

from creche import Agent, AgentSpec, FunctionModel, open_host, open_portal, say
from creche.session import load_sessions
from creche.testing import check_log

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "serve-from-fastapi.md"


class Served(uvicorn.Server):
    """A server that says when it has started, and serves an application with an agent a request.

    Args:
      model: What the agents ask.
      options: Of uvicorn.
    """

    def __init__(self, model, **options):
        app = FastAPI(lifespan=self._lifespan)
        self._routes(app)
        super().__init__(uvicorn.Config(app, lifespan="on", log_level="critical", **options))
        self.logs = []
        """Logs of the agents."""
        self.has_closed = asyncio.Event()
        """Set when an agent has closed."""
        self.has_started = asyncio.Event()
        self._model = model
        self._numbers = itertools.count(1)

    @asynccontextmanager
    async def _lifespan(self, app):
        async with open_portal() as self.portal, self.portal.open(open_host(model=self._model)) as self.host:
            yield

    async def _open_clerk(self):
        try:
            async with self.portal.open(self.host.open_agent(AgentSpec(f"clerk-{next(self._numbers)}"))) as clerk:
                self.logs.append(clerk.session)
                yield clerk
        finally:
            self.has_closed.set()

    def _routes(self, app):
        Clerk = Annotated[Agent, Depends(self._open_clerk)]

        @app.get("/answer")
        async def answer(clerk: Clerk, question: str):
            return (await self.portal.run(clerk.ask, question)).text

        @app.get("/events", response_class=EventSourceResponse)
        async def events(clerk: Clerk, question: str) -> AsyncIterator[str]:
            async with self.portal.stream(clerk.stream(question)) as deltas:
                async for delta in deltas:
                    yield delta.text

        @app.get("/texts")
        async def texts(clerk: Clerk, question: str):
            return StreamingResponse(events(clerk, question))

    async def startup(self, sockets=None):
        await super().startup(sockets)
        self.has_started.set()

    def ends(self):
        """Return how the turns ended, in logs that are whole."""
        for log in self.logs:
            check_log(log)
        return [record.data.reason for log in self.logs for record in log.records("turn/end")]


@asynccontextmanager
async def serve(server):
    """Serve for the length of the block, and give a client."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    await server.has_started.wait()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with httpx2.AsyncClient(base_url=url, timeout=30) as client:
        try:
            yield client
        finally:
            server.should_exit = True
            await serving
    assert not server.host.agents
    assert "creche portal" not in [thread.name for thread in threading.enumerate()]


def hanging():
    """Return an event of asyncio, and what sets it and then says nothing more, as a piece of an answer."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def hang():
        loop.call_soon_threadsafe(asked.set)
        await trio.sleep_forever()

    return asked, hang


def test_requests_are_answered_all_at_once(under_asyncio):
    all_here, count = trio.Event(), itertools.count(1)

    async def answer(request):
        if next(count) == 50:
            all_here.set()
        await all_here.wait()
        return [say(f"about {request.last_user_text}")]

    async def main():
        async with serve(server := Served(FunctionModel(answer))) as client:
            answers = await asyncio.gather(*[client.get("/answer", params={"question": f"{n}"}) for n in range(50)])
            assert [answer.json() for answer in answers] == [f"about {n}" for n in range(50)]
        assert server.ends() == ["completed"] * 50

    under_asyncio(main)


@pytest.mark.parametrize("path", ["/events", "/texts"])
def test_deltas_go_out_while_the_model_still_speaks(under_asyncio, paced, path):
    async def main():
        go_on = trio.Event()
        async with (
            serve(server := Served(paced("one", go_on.wait, "two"))) as client,
            client.stream("GET", path, params={"question": "tea"}) as response,
        ):
            texts = response.aiter_text()
            assert "one" in await anext(texts)
            await server.portal.call(go_on.set)
            assert "two" in await anext(texts)
            assert [text async for text in texts if text.strip()] == []
        assert server.ends() == ["completed"]

    under_asyncio(main)


@pytest.mark.parametrize("path", ["/events", "/texts"])
def test_a_client_that_leaves_in_the_middle_cancels_the_turn(under_asyncio, paced, path):
    async def main():
        async with serve(server := Served(model := paced("one", trio.sleep_forever))) as client:
            async with client.stream("GET", path, params={"question": "tea"}) as response:
                texts = response.aiter_text()
                assert "one" in await anext(texts)
            await server.has_closed.wait()
            assert (server.ends(), model.open) == (["cancelled"], 0)
            assert not server.host.agents

    under_asyncio(main)


@pytest.mark.parametrize("path", ["/events", "/texts"])
def test_a_client_that_does_not_read_and_then_leaves_cancels_the_turn(under_asyncio, paced, path):
    """The server waits until it can send, and not for the agent."""

    async def main():
        asked, hang = hanging()
        async with serve(server := Served(paced(*["x" * 100_000] * 400, hang))) as client:
            async with client.stream("GET", path, params={"question": "tea"}) as response:
                read = response.aiter_raw()  # which closes the response when nothing refers to it
                assert await anext(read)
                await asked.wait()
            await server.has_closed.wait()
            assert server.ends() == ["cancelled"]
            assert not server.host.agents

    under_asyncio(main)


@pytest.mark.parametrize("path", ["/answer", "/events", "/texts"])
def test_a_server_that_is_stopped_with_running_requests_ends_them(under_asyncio, paced, path):
    async def main():
        asked, hang = hanging()
        server = Served(paced("one", hang), timeout_graceful_shutdown=0)
        async with serve(server) as client:
            request = asyncio.ensure_future(client.get(path, params={"question": "tea"}))
            await asked.wait()
        with pytest.raises(httpx2.HTTPError):
            (await request).raise_for_status()
        assert server.ends() == ["cancelled"]

    under_asyncio(main)


def test_a_host_that_crashes_fails_requests_and_not_the_server(under_asyncio):
    async def crash():
        raise RuntimeError("a bug")

    async def main():
        async with serve(server := Served(FunctionModel(lambda request: [say("hi")]))) as client:
            assert (await client.get("/answer", params={"question": "tea"})).json() == "hi"
            await server.portal.call(server.host._nursery.start_soon, crash)
            assert (await client.get("/answer", params={"question": "tea"})).status_code == 500
            assert await server.portal.call(len, "abc") == 3
        assert server.lifespan.should_exit

    under_asyncio(main)


# ---------------------------------------------------------------- the how-to page


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL)


@pytest.fixture
def uvicorn_process(tmp_path):
    """Start `uvicorn app:app` in a folder; returns the process and its address."""
    started = []

    def start(program, *options):
        (tmp_path / "app.py").write_text(program, encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "uvicorn", "app:app", "--port", "0", *options],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        for line in process.stderr:
            if found := re.search(r"running on (http://\S+)", line):
                return process, found[1]
        raise AssertionError(process.communicate())

    yield start
    for process in started:
        process.kill()
        process.communicate()


async def test_the_page_shows_what_its_program_answers(uvicorn_process, tmp_path):
    (program,), (said,) = blocks("python"), blocks("text")
    process, url = await trio.to_thread.run_sync(uvicorn_process, program)
    async with httpx2.AsyncClient(base_url=url) as client:
        answer = await client.get("/answer", params={"question": "tea"})
        stream = await client.get("/stream", params={"question": "tea"})
        assert f"{answer.text}\n{stream.text}" == said
    process.send_signal(signal.SIGTERM)
    _, err = await trio.to_thread.run_sync(process.communicate)
    assert "Application shutdown complete" in err
    assert "Traceback" not in err
    logs = [log for file in (tmp_path / "logs").iterdir() for log in load_sessions(file).values()]
    assert sorted(log.header.path for log in logs) == ["clerk-1", "clerk-2"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_program_of_the_page_with_its_turns(uvicorn_process, tmp_path, number):
    (program,) = blocks("python")
    hang = "import trio\n\n\nasync def hang(request):\n    await trio.sleep_forever()\n\n\nMODEL = FunctionModel(hang)"
    program, count = re.subn(r"^MODEL = .*$", hang, program, flags=re.MULTILINE)
    assert count == 1
    process, url = await trio.to_thread.run_sync(uvicorn_process, program, "--timeout-graceful-shutdown", "0")

    async def ask_in_vain(path):
        with pytest.raises(httpx2.HTTPError):
            (await client.get(path, params={"question": "tea"})).raise_for_status()

    async with httpx2.AsyncClient(base_url=url, timeout=30) as client, trio.open_nursery() as nursery:
        nursery.start_soon(ask_in_vain, "/answer")
        nursery.start_soon(ask_in_vain, "/stream")
        while sum("request/header" in file.read_text("utf-8") for file in tmp_path.glob("logs/*")) < 2:
            await trio.lowlevel.checkpoint()
        process.send_signal(number)
    await trio.to_thread.run_sync(process.communicate)
    logs = [log for file in (tmp_path / "logs").iterdir() for log in load_sessions(file).values()]
    assert len(logs) == 2
    for log in logs:
        check_log(log)
        assert [record.data.reason for record in log.records("turn/end")] == ["cancelled"]

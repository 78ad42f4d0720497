"""A host with one agent whose log and requests are checked at the end of every test, and a store that really waits."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import attrs
import pytest
import trio

from creche import Agent, AgentSpec, FunctionModel, Host, open_host, say
from creche.host import AgentOpened
from creche.models import Capabilities, PreparedCall, RetryPolicy
from creche.scope import Registrar
from creche.session import Record, SessionHeader, SessionLog
from creche.testing import RecordingModel, assert_no_leaks, check_log, check_requests


@attrs.frozen(eq=False)
class Opened:
    """An agent of the path ``"lead"``, its host, and the model that everybody asks."""

    agent: Agent
    host: Host
    model: RecordingModel
    agents: list[Agent]
    """Every agent that was ever opened in the host, this one first."""

    @property
    def pen(self) -> Registrar:
        """Writes at the agent's scope."""
        return self.host.registrar.at(self.agent.scope)

    def sent(self) -> list[bytes]:
        """Return the canonical bytes of the agent's requests so far."""
        return self.model.sent_by(self.agent.id)


@asynccontextmanager
async def open_lead(
    answer, *, store=None, plugins=(), presets=(), budget=None, limit=None, **spec
) -> AsyncIterator[Opened]:
    """Open a host and an agent in it; at the end every log is whole, every request can be rebuilt, nothing is left."""
    model = RecordingModel(FunctionModel(answer, limit=limit) if not hasattr(answer, "prepare") else answer)
    agents: list[Agent] = []
    async with open_host(model=model, store=store, plugins=plugins, presets=presets, budget=budget) as host:
        listening = host.registrar.on(AgentOpened, lambda event: agents.append(event.agent))
        with assert_no_leaks(host):
            async with host.open_agent(AgentSpec("lead", **spec)) as agent:
                yield Opened(agent, host, model, agents)
        listening.undo()
    check_whole(model, agents)


def check_whole(model: RecordingModel, agents: list[Agent]) -> None:
    for agent in agents:
        check_log(agent.session)
        if agent.route.model is model:
            check_requests(agent.session, model.sent_by(agent.id))


@pytest.fixture
def lead() -> Callable[..., AbstractAsyncContextManager[Opened]]:
    return open_lead


@pytest.fixture
def kinds() -> Callable[..., list[str]]:
    """Return the kinds of a log's records, those from a number on."""

    def kinds_of(log: SessionLog, start: int = 0) -> list[str]:
        return [record.kind for record in log.records()[start:]]

    return kinds_of


@pytest.fixture
def ends() -> Callable[[SessionLog], list[tuple[str, str]]]:
    """Return how the turns of a log ended, and what the log says of it."""
    return lambda log: [(record.data.reason, record.data.detail) for record in log.records("turn/end")]


class Gate:
    """A model function whose first answer is held back until the gate is opened. It repeats what it was told, loudly."""

    def __init__(self) -> None:
        self.reached = trio.Event()
        self.opened = trio.Event()

    async def __call__(self, request):
        self.reached.set()
        await self.opened.wait()
        return [say(request.last_user_text.upper())]


@pytest.fixture
async def gate() -> Gate:
    return Gate()


class ChunkModel:
    """A model that streams exactly these chunks, one list an attempt; the last list is repeated.

    An exception among them is raised there; a function is called, and awaited if it is async.
    """

    provider = model = "function"
    limiter = None

    def __init__(self, *answers, retries: int = 0, capabilities: Capabilities | None = None) -> None:
        self._answers = list(answers)
        self._retry = RetryPolicy(retries, first_delay=1.0, jitter=0)
        self._capabilities = capabilities or Capabilities()
        self.closed = 0
        """How many streams were closed."""

    async def prepare(self, settings, /):
        return PreparedCall(settings, retry=self._retry, capabilities=self._capabilities)

    @asynccontextmanager
    async def stream(self, request, /):
        await trio.lowlevel.checkpoint()
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        try:
            yield _Chunks(answer)
        finally:
            self.closed += 1


class _Chunks:
    def __init__(self, items) -> None:
        self._items = iter(items)

    def __aiter__(self):
        return self

    async def __anext__(self):
        for item in self._items:
            if isinstance(item, BaseException):
                raise item
            if not callable(item):
                return item
            waiting = item()
            if waiting is not None:
                await waiting
        raise StopAsyncIteration


@pytest.fixture
def chunk_model() -> type[ChunkModel]:
    return ChunkModel


class SlowStore:
    """A store like one of files: a checkpoint takes a while, or fails, or never ends."""

    location = None

    def __init__(self, delay: float = 0.001) -> None:
        self.delay = delay
        self.error: Exception | None = None
        self.noted: list[str | Record] = []
        self.durable: list[str | Record] = []

    def open_journal(self, root: SessionHeader, /) -> AbstractAsyncContextManager["SlowStore"]:
        self.begin(root)
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator["SlowStore"]:
        yield self

    def begin(self, header: SessionHeader, /) -> None:
        self.noted.append(header.path)

    def write(self, session_id: str, record: Record, /) -> None:
        self.noted.append(record)

    async def checkpoint(self) -> None:
        if self.error is not None:
            raise self.error
        while len(self.durable) < len(self.noted):
            noted = len(self.noted)
            await trio.sleep(self.delay)
            self.durable += self.noted[len(self.durable) : noted]


@pytest.fixture
def slow_store() -> type[SlowStore]:
    return SlowStore

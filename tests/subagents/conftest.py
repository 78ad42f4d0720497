"""A host whose logs and requests are checked at the end of every test."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import attrs
import pytest
import trio

from creche import Agent, Host, open_host
from creche.host import AgentOpened
from creche.models import Model
from creche.session import Record, SessionHeader
from creche.testing import RecordingModel, assert_no_leaks, check_log, check_requests


@attrs.frozen(eq=False)
class CheckedHost:
    """A host, the model that everybody asks, and every agent that was ever opened."""

    host: Host
    model: RecordingModel
    agents: list[Agent]

    def sent(self, agent: Agent) -> list[bytes]:
        """Return the canonical bytes of an agent's requests."""
        return self.model.sent_by(agent.id)

    def agent(self, path: str) -> Agent:
        """Return the one agent that had a path."""
        (found,) = [agent for agent in self.agents if agent.path == path]
        return found


@asynccontextmanager
async def open_checked_host(model: Model, **options: object) -> AsyncIterator[CheckedHost]:
    """Open a host; at its end every log is whole, every request can be rebuilt, and nothing is left behind."""
    recording = RecordingModel(model)
    agents: list[Agent] = []
    async with open_host(model=recording, **options) as host:
        listening = host.registrar.on(AgentOpened, lambda event: agents.append(event.agent))
        with assert_no_leaks(host):
            yield CheckedHost(host, recording, agents)
        listening.undo()
    for agent in agents:
        check_log(agent.session)
        check_requests(agent.session, recording.sent_by(agent.id))


@pytest.fixture
def checked_host():
    return open_checked_host


class SlowStore:
    """A store like one of files: a checkpoint really waits, and what is noted and not yet durable is known."""

    def __init__(self) -> None:
        self.noted: list[str | Record] = []
        self.durable: list[str | Record] = []

    def open_journal(self, root: SessionHeader, /) -> AbstractAsyncContextManager["SlowStore"]:
        self.begin(root)
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator["SlowStore"]:
        yield self

    location = None

    def begin(self, header: SessionHeader, /) -> None:
        self.noted.append(header.path)

    def write(self, session_id: str, record: Record, /) -> None:
        self.noted.append(record)

    async def checkpoint(self) -> None:
        while len(self.durable) < len(self.noted):
            noted = len(self.noted)
            await trio.sleep(0.001)
            self.durable += self.noted[len(self.durable) : noted]


@pytest.fixture
def slow_store() -> Iterator[type[SlowStore]]:
    return SlowStore

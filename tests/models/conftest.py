"""Short ways to ask a fake model."""

import pytest

from creche.messages import UserMessage
from creche.models import Assembler, ModelRequest, RequestHead, Settings


@pytest.fixture
def make_request():
    """Return a request of an agent; its session is named like its path."""

    def make(*texts, path="lead", session=None):
        return ModelRequest(
            RequestHead(Settings("p", model="m")),
            messages=[UserMessage(text) for text in texts],
            agent_path=path,
            session_id=path if session is None else session,
        )

    return make


@pytest.fixture
def stream(make_request):
    """Return the chunks that a model streams."""

    async def streamed(model, *texts, **who):
        async with model.stream(make_request(*texts, **who)) as chunks:
            return [chunk async for chunk in chunks]

    return streamed


@pytest.fixture
def ask(stream):
    """Return the message that a model answers with."""

    async def asked(model, *texts, **who):
        answer = Assembler()
        for chunk in await stream(model, *texts, **who):
            answer.feed(chunk)
        return answer.message()

    return asked

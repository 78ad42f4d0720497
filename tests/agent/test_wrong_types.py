"""What an adapter or a plugin gives wrongly typed fails its own attempt or turn; log and journal stay whole."""

import math

import pytest

from creche import AgentSpec, open_host
from creche.agent import Enter, PreStep, Reject
from creche.errors import InternalError
from creche.messages import UserMessage
from creche.models import (
    Capabilities,
    Finished,
    PreparedCall,
    ReasoningDelta,
    RetryPolicy,
    Settings,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from creche.session import load_sessions
from creche.testing import RecordingModel, check_log, check_requests

CHUNKS = {
    "text of bytes": lambda: TextDelta(b"x"),
    "text of None": lambda: TextDelta(None),
    "reasoning of None": lambda: ReasoningDelta(None),
    "signature of a number": lambda: ReasoningDelta("a", signature=5),
    "id of a number": lambda: ToolCallDelta(0, id=5, name="t"),
    "id of zero": lambda: ToolCallDelta(0, id=0, name="t"),
    "name of a number": lambda: ToolCallDelta(0, id="a", name=5),
    "arguments of a number": lambda: ToolCallDelta(0, id="a", name="t", arguments=5),
    "arguments of a dict": lambda: ToolCallDelta(0, id="a", name="t", arguments={}),
    "index of a text": lambda: ToolCallDelta("a", id="a", name="t"),
    "an unknown end": lambda: Finished("length"),
    "no usage": lambda: Finished(usage=None),
    "not a number of tokens": lambda: Finished(usage=Usage(1, input_tokens=math.nan)),
    "half a request": lambda: Finished(usage=Usage(1.5)),
    "fewer than no requests": lambda: Finished(usage=Usage(-1)),
    "fewer than no tokens": lambda: Finished(usage=Usage(1, cached_tokens=-1)),
    "a truth for a number": lambda: Finished(usage=Usage(True)),
    "no chunk": lambda: "x",
}


class Model:
    """An adapter with a bug that shows once, in the middle of its first answer."""

    provider = model = "m"
    limiter = None

    def __init__(self, make):
        self.make = make

    async def prepare(self, settings, /):
        return PreparedCall(settings, retry=RetryPolicy(0))

    def stream(self, request, /):
        return self

    async def __aenter__(self):
        make, self.make = self.make, lambda: TextDelta("fine")
        return self.chunks(make)

    async def __aexit__(self, *error):
        pass

    async def chunks(self, make):
        yield TextDelta("half")
        yield make()
        yield Finished()


@pytest.mark.parametrize("name", CHUNKS)
async def test_an_adapter_that_streams_a_wrong_type_fails_its_own_attempt(name, tmp_path):
    model = RecordingModel(Model(CHUNKS[name]))
    async with open_host(model=model, store=tmp_path) as host, host.open_agent(AgentSpec("lead")) as lead:
        with pytest.raises(InternalError):
            await lead.ask("x")
        assert (await lead.ask("y")).text == "halffine"
        check_log(lead.session)
        check_requests(lead.session, model.sent_by(lead.id))
        assert len(lead.session.records("assistant/attempt")) == 1
        await lead.journal.checkpoint()
        assert load_sessions(lead.journal.location)[lead.id].records() == lead.session.records()


async def test_a_wrapper_that_lets_a_text_enter_fails_its_own_turn(tmp_path):
    model = RecordingModel(Model(lambda: TextDelta("fine")))
    async with open_host(model=model, store=tmp_path) as host, host.open_agent(AgentSpec("lead")) as lead:

        async def add_note(event, proceed):
            return Enter([*event.messages, "a note"])

        with (
            host.registrar.wrap(PreStep, add_note),
            pytest.raises(InternalError, match=r"Enter takes UserMessage values, and 'a note' is none"),
        ):
            await lead.ask("x")
        assert (await lead.ask("y")).text == "halffine"
        check_log(lead.session)
        check_requests(lead.session, model.sent_by(lead.id))
        await lead.journal.checkpoint()
        assert load_sessions(lead.journal.location)[lead.id].records() == lead.session.records()


@pytest.mark.parametrize(
    ("messages", "sentence"),
    [
        (["a note"], "Enter takes UserMessage values, and 'a note' is none; write UserMessage('a note')"),
        ([UserMessage("a"), 5], "Enter takes UserMessage values, and 5 is none"),
        ("a note", "Enter takes a list of UserMessage values, not 'a note'; write [UserMessage('a note')]"),
        (UserMessage("a"), f"Enter takes a list of UserMessage values, not {UserMessage('a')!r}"),
        (None, "Enter takes a list of UserMessage values, not None"),
    ],
)
def test_only_messages_enter(messages, sentence):
    with pytest.raises(TypeError) as caught:
        Enter(messages)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Enter([], starts_series=1), "Enter.starts_series is true or false, not 1"),
        (lambda: Reject(5), "Reject.reason is a text, not 5"),
        (
            lambda: PreparedCall(Settings("p", model="m"), context_window=1.5),
            "PreparedCall.context_window is a whole number or None, not 1.5",
        ),
        (lambda: PreparedCall(None), "PreparedCall.settings is Settings, not None"),
        (
            lambda: PreparedCall(Settings("p", model="m"), defaults="seed"),
            "PreparedCall.defaults is a tuple of texts, not 'seed'",
        ),
        (lambda: Capabilities(images="yes"), "Capabilities.images is true or false, not 'yes'"),
        (lambda: RetryPolicy(1.5), "RetryPolicy.retries is a whole number, not 1.5"),
        (lambda: TextDelta(b"x"), "TextDelta.text is a text, not b'x'"),
        (lambda: Usage(True), "Usage.requests is a whole number, not True"),
    ],
)
def test_what_the_loop_is_given_says_which_field_is_of_a_wrong_type(make, sentence):
    with pytest.raises(TypeError) as caught:
        make()
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Usage(-1), "Usage.requests is zero or more, not -1"),
        (
            lambda: Finished("length"),
            "Finished.reason is one of 'stop', 'tool-calls', 'max-tokens', 'refusal', not 'length'",
        ),
        (lambda: RetryPolicy(first_delay=math.inf), "RetryPolicy.first_delay is a finite number, not inf"),
        (
            lambda: Capabilities(tool_update="always"),
            "Capabilities.tool_update is one of 'addition-only', 'in-history', or None, not 'always'",
        ),
    ],
)
def test_what_is_out_of_range_is_refused(make, sentence):
    with pytest.raises(ValueError, match="not") as caught:
        make()
    assert str(caught.value) == sentence

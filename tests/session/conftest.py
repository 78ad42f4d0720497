"""What these tests share: short ways to say a fact, and logs that stand where a test wants them."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from creche.errors import IllegalRecordError
from creche.messages import (
    AssistantMessage,
    DeveloperMessage,
    ImagePart,
    ReasoningPart,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolSchema,
    UserMessage,
)
from creche.models import ModelOptions, RequestHead, Settings, StreamRun, Usage
from creche.session import (
    KINDS,
    ApprovalDecided,
    ApprovalRequested,
    AssistantSaid,
    AttemptFailed,
    CodeCalled,
    CodeReturned,
    Fact,
    HeaderWritten,
    MessageAccepted,
    MessagesClaimed,
    MessagesDropped,
    RetryPlanned,
    RouteNoted,
    SessionForked,
    SessionHeader,
    SessionLog,
    StepEnded,
    StepStarted,
    SubagentEnded,
    SubagentStarted,
    SystemSaid,
    ToolCalled,
    ToolReturned,
    ToolsChanged,
    TurnEnded,
    TurnStarted,
    UserSaid,
)


def head(*names: str, model: str = "m") -> RequestHead:
    tools = [
        ToolSchema(name, description=f"Does {name}.", parameters={"type": "object", "title": name}) for name in names
    ]
    return RequestHead(Settings("p", model=model), tools=tools)


def system(text: str) -> SystemSaid:
    return SystemSaid(SystemMessage(text))


def user(text: str, *, source: str = "user") -> UserSaid:
    return UserSaid(UserMessage(text, source=source))


def answer(*calls: str, text: str = "", usage: Usage | None = None) -> AssistantSaid:
    parts = [TextPart(text)] if text else []
    message = AssistantMessage([*parts, *[ToolCall(each, name="look", arguments="{}") for each in calls]])
    return AssistantSaid(message, usage=usage or Usage(1))


def call(call_id: str) -> ToolCalled:
    return ToolCalled(call_id, name="look", arguments="{}")


def result(call_id: str, text: str = "seen", *, name: str = "look", is_error: bool = False, code: str = "") -> Fact:
    return ToolReturned(ToolMessage(call_id, name=name, parts=text, is_error=is_error), code=code)


SAMPLES: dict[str, Fact] = {
    "turn/start": TurnStarted(),
    "turn/end": TurnEnded("cancelled", detail="by the user"),
    "step/start": StepStarted(),
    "step/end": StepEnded(),
    "inbox/accepted": MessageAccepted("d1", lane="next-turn", message=UserMessage("hello")),
    "inbox/claimed": MessagesClaimed(("d1", "d2")),
    "inbox/dropped": MessagesDropped(("d1",), cause="cancelled"),
    "system/message": system("Be brief.\nBe kind."),
    "user/message": UserSaid(
        UserMessage([TextPart("what is this? 🐢"), ImagePart("aGk=", media_type="image/png")], source="agent"),
        delivery="d1",
    ),
    "request/header": HeaderWritten(
        RequestHead(
            Settings("p", model="m", options=ModelOptions("high", max_tokens=9, temperature=0.5, stop=("END",))),
            tools=[ToolSchema("look", description="Looks.", parameters='{"type":"object"}')],
            defaults=["max_tokens"],
        ),
        reason="change",
        starts_series=True,
    ),
    "request/context": RouteNoted("p", model="m", context_window=1000, system_prompt_update="in-history"),
    "tools/changed": ToolsChanged(DeveloperMessage(("look",), removals=("see",)), header=6),
    "assistant/message": AssistantSaid(
        AssistantMessage(
            [
                ReasoningPart("hm", signature="x=="),
                TextPart('"quoted"'),
                ToolCall("c1", name="look", arguments='{"at": 1}'),
            ]
        ),
        stream=(
            StreamRun("reasoning", pieces=("h", "m"), name="x=="),
            StreamRun("tool-call", pieces=('{"at": 1}',), index=1, id="c1", name="look"),
        ),
        finish="tool-calls",
        usage=Usage(1, input_tokens=10, output_tokens=5, cached_tokens=3, reasoning_tokens=2),
    ),
    "assistant/attempt": AttemptFailed(
        "the connection was lost", code="transport", stream=(StreamRun("text", pieces=("a",)),), usage=Usage(1)
    ),
    "model/retry": RetryPlanned(1, delay=0.25),
    "tool/call": ToolCalled("c1", name="look", arguments='{"at": 1}'),
    "tool/result": ToolReturned(ToolMessage("c1", name="look", parts="a tortoise", is_error=True), code="failed"),
    "tool/code-call": CodeCalled("c1:code:1", parent="c1", name="look", arguments='{"at": 1}'),
    "tool/code-result": CodeReturned(
        ToolMessage("c1:code:2", name="look", parts="a hare", is_error=True), parent="c1", code="denied"
    ),
    "approval/requested": ApprovalRequested("c1", tool="look", subject="look: far", reason="It is far."),
    "approval/decided": ApprovalDecided(
        "c1:code:2", tool="look", subject="look: near", decision="allowed", lasting="agent", by="ann", reason="why not"
    ),
    "subagent/start": SubagentStarted("helper", session_id="s2", provider="spawn", preset="team", grants=("look",)),
    "subagent/end": SubagentEnded("s2", outcome="failed", text="half", diagnostic="why", usage=Usage(2)),
    "session/fork": SessionForked("s1", boundary=7),
}
assert SAMPLES.keys() == KINDS.keys()

# The calls c1 and c2 are open in "answered"; c1 is recorded.
OPENINGS: dict[str, list[Fact]] = {
    "idle": [],
    "turn": [TurnStarted()],
    "step": [TurnStarted(), StepStarted()],
    "answered": [TurnStarted(), StepStarted(), answer("c1", "c2"), call("c1")],
    "answered, nothing called": [TurnStarted(), StepStarted(), answer(text="Hello.")],
}


def new_log(session_id: str = "s1", path: str = "lead", **kwargs: object) -> SessionLog:
    return SessionLog(SessionHeader(session_id, path=path, created=0.0), **kwargs)


def extend(log: SessionLog, *facts: Fact) -> SessionLog:
    for fact in facts:
        log.append(fact)
    return log


def state_of(log: SessionLog) -> object:
    """Return all that can be read of a log, to compare it with what can be read later."""
    return (
        len(log),
        tuple(log.records()),
        tuple(log.surface()),
        tuple(log.derive_messages()),
        log.phase,
        log.turn,
        log.unanswered,
        log.usage,
        log.generation,
        log.system_nodes,
        log.last_header,
        log.last_route,
        log.snapshot,
        log.boundary,
        tuple(log.fork(SessionHeader("f", path="f", created=0.0)).records())[:-1],
    )


@pytest.fixture
def say() -> SimpleNamespace:
    """Short ways to make facts and logs."""
    return SimpleNamespace(
        head=head, system=system, user=user, answer=answer, call=call, result=result, log=new_log, extend=extend
    )


@pytest.fixture
def log_at() -> Callable[[str], SessionLog]:
    """Return a log in a phase."""
    return lambda phase: extend(new_log(), *OPENINGS[phase])


@pytest.fixture
def state() -> Callable[[SessionLog], object]:
    return state_of


@pytest.fixture
def refused() -> Callable[..., str]:
    """Append what must be refused and return the message; the log must be what it was."""

    def refuse(log: SessionLog, fact: Fact, **options: tuple[int, int]) -> str:
        before = state_of(log)
        with pytest.raises(IllegalRecordError) as caught:
            log.append(fact, **options)
        assert state_of(log) == before
        return str(caught.value)

    return refuse


@pytest.fixture
def samples() -> dict[str, Fact]:
    """One fact of each kind, with every field set to something that is not its default."""
    return SAMPLES

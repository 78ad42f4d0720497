"""What must hold of every log and of every host, whatever happened. For our tests and for users' tests.

The checks of a log repeat what the log itself refuses, in other words and from the records alone: a rule that
one of the two got wrong shows.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import trio

from creche.host import Host
from creche.session import (
    ApprovalDecided,
    ApprovalRequested,
    AssistantSaid,
    AttemptFailed,
    CodeCalled,
    CodeReturned,
    HeaderWritten,
    MessageAccepted,
    MessagesClaimed,
    MessagesDropped,
    Record,
    SessionLog,
    StepEnded,
    StepStarted,
    SubagentEnded,
    SubagentStarted,
    SystemSaid,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnStarted,
    fold_surface,
    rebuild_request,
)


def check_log(log: SessionLog) -> None:
    """Check that a log is whole, for an agent between its turns.

    Records are numbered without gaps; turns and steps are closed; every call has one result, in the model's
    order, and none succeeded that was not recorded before; every message was accepted before it was taken out
    of the inbox, once; every subagent that started has settled; history is the fold of the records.

    Raises:
      AssertionError: What is wrong, with the session's path and the numbers of the records.
    """
    records = list(log.records())
    where = f"session {log.header.path!r}"
    for place, record in enumerate(records):
        assert record.seq == place, f"{where}: record {record.seq} ({record.kind}) stands at place {place}"
    assert log.phase == "idle", f"{where}: a turn is open ({log.phase})"
    _check_turns(where, records)
    own = records[log.boundary :]
    _check_calls(where, own)
    _check_inner(where, own)
    _check_inbox(where, own)
    _check_children(where, own)
    surface, _ = fold_surface(records)
    assert list(surface.nodes) == list(log.surface()), f"{where}: the surface differs from a fold of the records"
    assert list(surface.messages) == list(log.derive_messages()), f"{where}: the messages differ from a fold"


def _check_turns(where: str, records: Sequence[Record]) -> None:
    """Check that turns and the steps in them are numbered, open one at a time, and are closed in the end."""
    turns, turn, step, steps = 0, 0, 0, 0
    for record in records:
        at = f"{where}: record {record.seq} ({record.kind})"
        if isinstance(record.data, TurnStarted):
            assert not turn, f"{at} stands in open turn {turn}"
            turns += 1
            turn, steps = turns, 0
        elif isinstance(record.data, StepStarted):
            assert turn, f"{at} stands in no turn"
            assert not step, f"{at} stands in open step {step}"
            steps += 1
            step = steps
        elif isinstance(record.data, StepEnded):
            assert step, f"{at} closes no step"
        elif isinstance(record.data, TurnEnded):
            assert turn, f"{at} closes no turn"
            assert not step, f"{at} leaves step {step} open"
        numbers = f"turn {record.turn} step {record.step}"
        assert (record.turn, record.step) == (turn, step), f"{at} says {numbers} in turn {turn} step {step}"
        step = 0 if isinstance(record.data, StepEnded) else step
        turn = 0 if isinstance(record.data, TurnEnded) else turn
    assert not turn, f"{where}: turn {turn} is not closed"


def _check_calls(where: str, records: Sequence[Record]) -> None:
    started: dict[str, bool] = {}
    for record in records:
        data, at = record.data, f"{where}: record {record.seq} ({record.kind})"
        if isinstance(data, AssistantSaid):
            started = {call.id: False for call in data.message.tool_calls}
        elif isinstance(data, ToolCalled):
            assert started.get(data.call_id) is False, f"{at} is of no call that waits to be started: {data.call_id!r}"
            started[data.call_id] = True
        elif isinstance(data, ToolReturned) and not record.shadows:
            call_id, due = data.message.call_id, next(iter(started), None)
            assert call_id == due, f"{at} is the result of call {call_id!r}; that of {due!r} is due"
            assert started.pop(call_id) or data.message.is_error, f"{at} is a success of a call that was not started"
        elif isinstance(data, StepEnded):
            assert not started, f"{at} leaves calls without a result: {', '.join(map(repr, started))}"


def _check_inner(where: str, records: Sequence[Record]) -> None:
    """Check calls that are part of others, and approvals: each within its call, and each has its end."""
    running: dict[str, str | None] = {}
    asked: dict[str, tuple[str, str]] = {}
    for record in records:
        data, at = record.data, f"{where}: record {record.seq} ({record.kind})"
        if isinstance(data, ToolCalled):
            running[data.call_id] = None
        elif isinstance(data, CodeCalled):
            assert data.parent in running, f"{at} is part of call {data.parent!r}, which does not run"
            running[data.call_id] = data.parent
        elif isinstance(data, ApprovalRequested):
            assert data.call_id in running, f"{at} is of call {data.call_id!r}, which does not run"
            asked[data.call_id] = (data.tool, data.subject)
        elif isinstance(data, ApprovalDecided):
            assert asked.pop(data.call_id, None) == (data.tool, data.subject), f"{at} decides what was not asked"
        elif isinstance(data, ToolReturned | CodeReturned) and not record.shadows:
            call_id = data.message.call_id
            assert call_id not in asked, f"{at} is the result of call {call_id!r}, which waits for an approval"
            assert call_id not in running.values(), f"{at} is the result of call {call_id!r}, with calls in it that run"
            assert running.pop(call_id, None) == getattr(data, "parent", None), f"{at} is part of another call"


def _check_inbox(where: str, records: Sequence[Record]) -> None:
    accepted: set[str] = set()
    waiting: set[str] = set()
    for record in records:
        data, at = record.data, f"{where}: record {record.seq} ({record.kind})"
        if isinstance(data, MessageAccepted):
            assert data.id not in accepted, f"{at} accepts message {data.id!r} once more"
            accepted.add(data.id)
            waiting.add(data.id)
        elif isinstance(data, MessagesClaimed | MessagesDropped):
            for taken in data.ids:
                assert taken in waiting, f"{at} takes message {taken!r}, which does not wait"
                waiting.remove(taken)


def _check_children(where: str, records: Sequence[Record]) -> None:
    running: dict[str, str] = {}
    for record in records:
        data, at = record.data, f"{where}: record {record.seq} ({record.kind})"
        if isinstance(data, SubagentStarted):
            assert data.session_id not in running, f"{at} starts session {data.session_id!r}, which runs"
            running[data.session_id] = data.name
        elif isinstance(data, SubagentEnded):
            assert data.session_id in running, f"{at} settles session {data.session_id!r}, which does not run"
            del running[data.session_id]
    assert not running, f"{where}: subagents have not settled: {', '.join(map(repr, running.values()))}"


def check_requests(log: SessionLog, sent: Iterable[bytes]) -> None:
    """Check that every request a session sent can be rebuilt from its log, byte for byte, and why each differs.

    Of two requests in a row the first is a prefix of the second, unless the log holds a record between them
    that explains it: another header, or something that took a place on the surface.

    Args:
      log: The session.
      sent: Canonical bytes of the requests it sent, in order, as a `RecordingModel` has them.

    Raises:
      AssertionError: Which turn, step and attempt differ.
    """
    requests = list(sent)
    where = f"session {log.header.path!r}"
    count = 0
    before: tuple[bytes, int] | None = None
    for count, (record, attempt) in enumerate(_attempts(log), 1):
        at = f"{where}: turn {record.turn} step {record.step} attempt {attempt}"
        assert count <= len(requests), f"{at} was not sent"
        request = requests[count - 1]
        rebuilt = rebuild_request(log, record.step, turn=record.turn, attempt=attempt).canonical_bytes()
        assert rebuilt == request, f"{at} is not as it was sent"
        if before is not None and not request.startswith(before[0]):
            between = log.records()[before[1] : record.seq]
            assert any(isinstance(each.data, HeaderWritten) or each.shadows for each in between), (
                f"{at} does not begin with the request before it, and no record says why"
            )
        before = (request, record.seq)
    assert count == len(requests), f"{where}: {len(requests)} requests were sent and {count} of them are logged"


def _attempts(log: SessionLog) -> Iterator[tuple[Record, int]]:
    """Yield the record at the end of each attempt, with its number in its step, from 0."""
    place, number = (0, 0), 0
    for record in log.records()[log.boundary :]:
        if isinstance(record.data, AssistantSaid | AttemptFailed):
            number = number + 1 if (record.turn, record.step) == place else 0
            place = (record.turn, record.step)
            yield record, number


def system_texts(log: SessionLog) -> list[str]:
    """Return the system prompts on a session's surface, in order."""
    return [node.data.message.text for node in log.surface() if isinstance(node.data, SystemSaid)]


@contextmanager
def assert_no_leaks(host: Host) -> Iterator[None]:
    """Check that a block leaves a host as it was: no live agent, no layer of a scope, no task more than before.

    Tasks are those of the whole program, but for the models that the host keeps open until it ends. A block that raises
    is not checked, so that its error is what is seen.

    Raises:
      AssertionError: What was left behind.
    """
    agents = set(host.agents)
    scopes = set(host.registry.scopes())
    tasks = set(_tasks())
    yield
    more_agents = [agent.path for key, agent in host.agents.items() if key not in agents]
    assert not more_agents, f"agents are still live: {', '.join(sorted(more_agents))}"
    more_scopes = [scope.label for scope in host.registry.scopes() if scope not in scopes]
    assert not more_scopes, f"scopes still declare something: {', '.join(sorted(more_scopes))}"
    more_tasks = [task.name for task in _tasks() if task not in tasks and not task.name.startswith("model provider ")]
    assert not more_tasks, f"tasks are still running: {', '.join(sorted(more_tasks))}"


def _tasks() -> Iterator[trio.lowlevel.Task]:
    """Yield every task of the program."""
    root = trio.lowlevel.current_root_task()
    found = [] if root is None else [root]
    for task in found:
        yield task
        found += [child for nursery in task.child_nurseries for child in nursery.child_tasks]

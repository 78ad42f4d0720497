"""What must hold of every log and of every host, whatever happened. For our tests and for users' tests."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import trio

from creche.host import Host
from creche.session import (
    AssistantSaid,
    AttemptFailed,
    HeaderWritten,
    Record,
    SessionLog,
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
    """Check that a log is whole: balanced, with a result for every call, and equal to its fold from scratch.

    Raises:
      AssertionError: What is wrong, with the session's path and the numbers of the records.
    """
    records = list(log.records())
    where = f"session {log.header.path!r}"
    assert [record.seq for record in records] == list(range(len(records))), f"{where}: numbers have gaps"
    assert log.phase == "idle", f"{where}: a turn is open ({log.phase})"
    own = records[log.boundary :]
    _check_pairs(where, own, TurnStarted, TurnEnded)
    _check_calls(where, own)
    _check_children(where, own)
    surface, _ = fold_surface(records)
    assert list(surface.nodes) == list(log.surface()), f"{where}: the surface differs from a fold of the records"
    assert list(surface.messages) == list(log.derive_messages()), f"{where}: the messages differ from a fold"


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
    attempts = _attempts(log)
    where = f"session {log.header.path!r}"
    assert len(requests) == len(attempts), (
        f"{where}: {len(requests)} requests were sent and {len(attempts)} attempts are logged"
    )
    before: tuple[bytes, int] | None = None
    for (record, number), request in zip(attempts, requests, strict=True):
        rebuilt = rebuild_request(log, record.step, turn=record.turn, attempt=number).canonical_bytes()
        assert rebuilt == request, f"{where}: turn {record.turn} step {record.step} attempt {number} is not as it was sent"
        if before is not None and not request.startswith(before[0]):
            between = log.records()[before[1] : record.seq]
            assert any(isinstance(each.data, HeaderWritten) or each.shadows for each in between), (
                f"{where}: the request before record {record.seq} does not begin with the one before it, unexplained"
            )
        before = (request, record.seq)


def _attempts(log: SessionLog) -> list[tuple[Record, int]]:
    numbers: dict[tuple[int, int], int] = {}
    attempts = []
    for record in log.records()[log.boundary :]:
        if isinstance(record.data, AssistantSaid | AttemptFailed):
            place = (record.turn, record.step)
            attempts.append((record, numbers.get(place, 0)))
            numbers[place] = numbers.get(place, 0) + 1
    return attempts


def _check_pairs(where: str, records: list[Record], opens: type, closes: type) -> None:
    balance = 0
    for record in records:
        balance += isinstance(record.data, opens) - isinstance(record.data, closes)
        assert balance in (0, 1), f"{where}: record {record.seq} ({record.kind}) is out of balance"
    assert balance == 0, f"{where}: {opens.__name__} without {closes.__name__}"


def _check_calls(where: str, records: list[Record]) -> None:
    requested: dict[str, int] = {}
    for record in records:
        data = record.data
        if isinstance(data, AssistantSaid):
            requested = {call.id: record.seq for call in data.message.tool_calls}
        elif isinstance(data, ToolCalled):
            assert data.call_id in requested, f"{where}: record {record.seq} is a call that no answer made"
        elif isinstance(data, ToolReturned) and not record.shadows:
            assert data.message.call_id in requested, f"{where}: record {record.seq} answers no open call"
            del requested[data.message.call_id]
        elif record.kind == "step/end":
            assert not requested, f"{where}: calls {list(requested)} have no result at record {record.seq}"


def _check_children(where: str, records: list[Record]) -> None:
    started = [record.data.session_id for record in records if isinstance(record.data, SubagentStarted)]
    ended = [record.data.session_id for record in records if isinstance(record.data, SubagentEnded)]
    assert sorted(started) == sorted(ended), f"{where}: of the subagents {started}, settled are {ended}"


def system_texts(log: SessionLog) -> list[str]:
    """Return the system prompts on a session's surface, in order."""
    return [node.data.message.text for node in log.surface() if isinstance(node.data, SystemSaid)]


@contextmanager
def assert_no_leaks(host: Host) -> Iterator[None]:
    """Check that a block leaves a host as it was: no live agent, no layer of a scope, no task more than before.

    Raises:
      AssertionError: What was left behind.
    """
    agents = set(host.agents)
    scopes = set(host.registry.scopes())
    tasks = trio.lowlevel.current_statistics().tasks_living
    yield
    more_agents = [agent.path for key, agent in host.agents.items() if key not in agents]
    assert not more_agents, f"agents are still live: {', '.join(sorted(more_agents))}"
    more_scopes = [scope.label for scope in host.registry.scopes() if scope not in scopes]
    assert not more_scopes, f"scopes still declare something: {', '.join(sorted(more_scopes))}"
    more_tasks = trio.lowlevel.current_statistics().tasks_living - tasks
    assert more_tasks <= 0, f"{more_tasks} tasks are still running"

"""The store in files, on a real disk. A gate in `os.fsync` holds a commit where a test wants it."""

import errno
import os
import re
import resource
import shutil
import stat
import threading
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import assert_no_checkpoints, wait_all_tasks_blocked

from creche.errors import StoreError
from creche.session import (
    JsonlStore,
    MemoryStore,
    MessagesClaimed,
    Record,
    RetryPlanned,
    SessionHeader,
    StepEnded,
    StepStarted,
    TurnEnded,
    TurnStarted,
    encode_header,
    encode_record,
    flush_closing,
    load_sessions,
)

ROOT = SessionHeader("0123456789abcdef", path="lead", created=1796006200.5)
NAME = "20261130T023640Z-lead-89abcdef.jsonl"


def record(number):
    """A record; that it stands in no legal order is nothing to a journal."""
    return Record(number, kind="inbox/claimed", data=MessagesClaimed((f"d{number}",)), time=0.5)


def mode_of(path):
    return stat.S_IMODE(Path(path).stat().st_mode)


def size_of(path):
    return Path(path).stat().st_size


def lines_of(path):
    return Path(path).read_bytes().splitlines(keepends=True)


def numbers_in(path):
    """Return which records of `record` a file holds, in order; it must hold nothing else."""
    first, header, *rest = lines_of(path)
    assert (first, header) == (b'{"creche":1}\n', encode_header(ROOT))
    numbers = [int(re.search(rb'"d(\d+)"', line)[1]) for line in rest]
    assert rest == [encode_record(ROOT.id, record(number)) for number in numbers]
    return numbers


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "state" / "logs"


@pytest.fixture
def store(folder):
    return JsonlStore(folder)


@pytest.fixture
async def journal(store):
    async with store.open_journal(ROOT) as journal:
        yield journal


@pytest.fixture
def fsyncs(monkeypatch):
    """The files that were synced, and the folders apart."""
    synced, fsync = {"file": 0, "folder": 0}, os.fsync

    def count(descriptor):
        synced["folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"] += 1
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", count)
    return synced


class Gate:
    """Holds the thread of a commit where it syncs the file, until it is opened."""

    def __init__(self):
        self.entered = trio.Event()
        self._open = threading.Event()

    def open(self):
        self._open.set()

    def fsync(self, descriptor):
        if stat.S_ISREG(os.fstat(descriptor).st_mode) and not self._open.is_set():
            trio.from_thread.run_sync(self.entered.set)
            assert self._open.wait(30), "the test that shut the gate has to open it"


@pytest.fixture
def gate(monkeypatch):
    gate = Gate()
    monkeypatch.setattr(os, "fsync", gate.fsync)
    yield gate
    gate.open()


@contextmanager
def failing(monkeypatch, name, error):
    """Let a function of `os` fail for the length of a block."""

    def fail(*args):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, name, fail)
        yield


FULL = OSError(errno.ENOSPC, "No space left on device")


def failed(location, cause, waiting):
    return f"journal {location} could not be written: {cause}; lines that wait for the next checkpoint: {waiting}"


# ---------------------------------------------------------------- a file a tree


async def test_nothing_touches_the_disk_before_a_checkpoint(store, folder):
    """Rule: an agent that does nothing has no file, and what no checkpoint asked for is not written."""
    async with store.open_journal(ROOT) as journal:
        journal.write(ROOT.id, record(0))
    assert not folder.parent.exists()


async def test_the_first_checkpoint_makes_the_file(journal, folder):
    journal.write(ROOT.id, record(0))
    await journal.checkpoint()
    assert journal.location == str(folder / NAME)
    assert lines_of(journal.location) == [
        b'{"creche":1}\n',
        encode_header(ROOT),
        encode_record(ROOT.id, record(0)),
    ]


async def test_the_file_and_its_folder_are_the_owners_alone(journal, folder):
    await journal.checkpoint()
    assert (mode_of(journal.location), mode_of(folder)) == (0o600, 0o700)


async def test_a_checkpoint_writes_what_is_new(journal):
    """Rule: every line is written once, in the order in which it was noted."""
    for number in range(5):
        journal.write(ROOT.id, record(number))
        if number % 2:
            await journal.checkpoint()
    assert numbers_in(journal.location) == [0, 1, 2, 3]
    await journal.checkpoint()
    assert numbers_in(journal.location) == [0, 1, 2, 3, 4]


async def test_the_sessions_of_a_tree_share_the_file(journal):
    child = SessionHeader("s2", path="lead/child", created=0.0, parent=ROOT.id)
    journal.begin(child)
    journal.write(child.id, record(0))
    journal.write(ROOT.id, record(1))
    await journal.checkpoint()
    assert lines_of(journal.location)[2:] == [
        encode_header(child),
        encode_record("s2", record(0)),
        encode_record(ROOT.id, record(1)),
    ]


@pytest.mark.parametrize(
    ("path", "session_id", "name"),
    [
        ("lead/research-1", "abc", "lead-research-1-abc"),
        ("../../etc/passwd", "../..", "etc-passwd-agent"),
        ("a b\n\x00c", "x/y", "a-b-c-x-y"),
        ("研究员", "é", "研究员-é"),
        ("", "", "agent-agent"),
        ("x" * 99, "0123456789", "x" * 40 + "-23456789"),
        ("员" * 99, "s", "员" * 40 + "-s"),
    ],
    ids=["path", "upwards", "control characters", "letters of any script", "empty", "long", "long in bytes"],
)
async def test_a_file_is_named_after_time_agent_and_session(path, session_id, name, store, folder):
    async with store.open_journal(SessionHeader(session_id, path=path, created=0.0)) as journal:
        await journal.checkpoint()
        assert os.listdir(folder) == [f"19700101T000000Z-{name}.jsonl"]


async def test_a_name_that_is_taken_is_left_alone(store, folder):
    """Rule: a journal writes into a file of its own, never into one that is there."""
    folder.mkdir(parents=True)
    (folder / NAME).write_text("somebody else's")
    async with store.open_journal(ROOT) as first, store.open_journal(ROOT) as second:
        for journal in (first, second):
            await journal.checkpoint()
        assert [Path(journal.location).name for journal in (first, second)] == [
            NAME.replace(".jsonl", "-2.jsonl"),
            NAME.replace(".jsonl", "-3.jsonl"),
        ]
    assert (folder / NAME).read_text() == "somebody else's"


async def test_a_relative_folder_stays_where_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = JsonlStore("logs")
    monkeypatch.chdir("/")
    async with store.open_journal(ROOT) as journal:
        await journal.checkpoint()
    assert os.listdir(tmp_path / "logs") == [NAME]
    assert repr(store) == f"JsonlStore('{tmp_path}/logs', fsync=True)"


async def test_a_store_is_made_outside_of_trio_and_used_in_two_runs(folder):
    store = JsonlStore(folder)

    async def run(session_id):
        async with store.open_journal(SessionHeader(session_id, path="lead", created=0.0)) as journal:
            await journal.checkpoint()

    for session_id in ("s1", "s2"):
        thread = threading.Thread(target=trio.run, args=(run, session_id))
        thread.start()
        thread.join()
    assert len(os.listdir(folder)) == 2


# ---------------------------------------------------------------- descriptors


def descriptors():
    return len(os.listdir("/proc/self/fd"))


async def test_ten_thousand_roots_that_write_nothing_hold_no_descriptor(store):
    before = descriptors()
    async with AsyncExitStack() as stack:
        for number in range(10_000):
            root = SessionHeader(f"s{number}", path="lead", created=0.0)
            journal = await stack.enter_async_context(store.open_journal(root))
            journal.write(root.id, record(0))
        assert descriptors() == before


async def test_a_tree_holds_one_descriptor_until_its_journal_is_left(store):
    before = descriptors()
    async with store.open_journal(ROOT) as journal:
        for number in range(50):
            journal.begin(SessionHeader(f"s{number}", path=f"lead/{number}", created=0.0))
            await journal.checkpoint()
        assert descriptors() == before + 1
    assert descriptors() == before


async def test_a_child_process_does_not_inherit_the_file(journal):
    await journal.checkpoint()
    assert not os.get_inheritable(journal._file._descriptor)


# ---------------------------------------------------------------- waiting and not waiting


async def test_noting_does_not_wait(journal):
    with assert_no_checkpoints():
        journal.begin(SessionHeader("s2", path="lead/child", created=0.0))
        journal.write("s2", record(0))


async def test_a_checkpoint_with_nothing_new_returns_at_once(journal, fsyncs):
    """Rule: what is durable is not waited for, not even for a turn of the loop."""
    await journal.checkpoint()
    before = dict(fsyncs)
    with assert_no_checkpoints():
        await journal.checkpoint()
    assert fsyncs == before


async def test_a_checkpoint_syncs_the_file_and_the_first_one_its_folders_too(journal, fsyncs):
    """Rule: a name is durable when the folder it stands in is; here two folders were made in a third."""
    await journal.checkpoint()
    assert fsyncs == {"file": 1, "folder": 3}
    journal.write(ROOT.id, record(0))
    await journal.checkpoint()
    assert fsyncs == {"file": 2, "folder": 3}


async def test_a_store_that_does_not_sync_writes_all_the_same(folder, fsyncs):
    async with JsonlStore(folder, fsync=False).open_journal(ROOT) as journal:
        journal.write(ROOT.id, record(0))
        await journal.checkpoint()
        assert numbers_in(journal.location) == [0]
    assert fsyncs == {"file": 0, "folder": 0}


async def test_a_hundred_that_wait_are_written_in_two_commits(journal, fsyncs):
    """Rule: group commit. One commit is under way for the first, and the next one is for all others."""
    await journal.checkpoint()
    fsyncs["file"] = 0

    async def work(number):
        journal.write(ROOT.id, record(number))
        await journal.checkpoint()
        assert number in numbers_in(journal.location)

    async with trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(work, number)
    assert sorted(numbers_in(journal.location)) == list(range(100))
    assert fsyncs["file"] == 2


async def test_who_needs_only_what_is_being_written_waits_for_that_commit(journal, gate):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.checkpoint)
        await gate.entered.wait()
        nursery.start_soon(journal.checkpoint)
        await wait_all_tasks_blocked()
        journal.write(ROOT.id, record(0))
        gate.open()
    assert numbers_in(journal.location) == []


async def test_commits_use_threads_of_their_own(journal, gate):
    """Rule: a program whose tools fill trio's default threads can still write its log."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.checkpoint)
        await gate.entered.wait()
        assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
        gate.open()


async def test_appending_goes_on_while_a_commit_is_under_way(journal, gate):
    async with trio.open_nursery() as nursery:
        journal.write(ROOT.id, record(0))
        nursery.start_soon(journal.checkpoint)
        await gate.entered.wait()
        journal.write(ROOT.id, record(1))
        assert numbers_in(journal.location) == [0]
        gate.open()
    await journal.checkpoint()
    assert numbers_in(journal.location) == [0, 1]


# ---------------------------------------------------------------- cancellation


class CancelAtStep(trio.abc.Instrument):
    """Cancels a scope just before a task takes its n-th step."""

    def __init__(self, scope, task, step):
        self.scope, self.task, self.left = scope, task, step

    def before_task_step(self, task):
        if task is self.task:
            self.left -= 1
            if self.left == 0:
                self.scope.cancel()


@pytest.mark.parametrize("victim", ["leader", "waiter"])
@pytest.mark.parametrize("step", range(1, 6))
async def test_a_cancelled_task_loses_nothing_at_any_step(victim, step, journal):
    """Rule: whoever is cancelled, and whenever, every line is written once and nobody else is hurt."""
    results = {}

    async def work(name, number, task_status=trio.TASK_STATUS_IGNORED):
        with trio.CancelScope() as scope:
            if name == victim:
                instrument = CancelAtStep(scope, trio.lowlevel.current_task(), step)
                trio.lowlevel.add_instrument(instrument)
            journal.write(ROOT.id, record(number))
            task_status.started()
            if name == "another":
                await trio.lowlevel.cancel_shielded_checkpoint()
            await journal.checkpoint()
            results[name] = number in numbers_in(journal.location)
        if name == victim:
            trio.lowlevel.remove_instrument(instrument)

    async with trio.open_nursery() as nursery:
        for number, name in enumerate(["leader", "waiter", "another"]):
            await nursery.start(work, name, number)
    await journal.checkpoint()
    assert numbers_in(journal.location) == [0, 1, 2]
    others = {"leader", "waiter", "another"} - {victim}
    assert {name: results[name] for name in others} == dict.fromkeys(others, True)


async def test_a_leader_that_is_cancelled_before_its_thread_begins_writes_nothing(journal, folder):
    journal.write(ROOT.id, record(0))
    with trio.CancelScope() as scope:
        scope.cancel()
        await journal.checkpoint()
    assert scope.cancelled_caught
    assert not folder.exists()
    await journal.checkpoint()
    assert numbers_in(journal.location) == [0]


async def test_those_who_waited_for_a_cancelled_leader_go_on_without_it(store, monkeypatch):
    """Rule: the first to wake leads the next commit, for all."""
    monkeypatch.setattr(store, "_limiter", limiter := trio.CapacityLimiter(1))
    limiter.acquire_on_behalf_of_nowait(store)
    async with store.open_journal(ROOT) as journal, trio.open_nursery() as nursery:
        leader = trio.CancelScope()

        async def lead():
            with leader:
                await journal.checkpoint()

        journal.write(ROOT.id, record(0))
        nursery.start_soon(lead)
        await wait_all_tasks_blocked()
        journal.write(ROOT.id, record(1))
        nursery.start_soon(journal.checkpoint)
        nursery.start_soon(journal.checkpoint)
        await wait_all_tasks_blocked()
        leader.cancel()
        await wait_all_tasks_blocked()
        assert leader.cancelled_caught
        limiter.release_on_behalf_of(store)
    assert numbers_in(journal.location) == [0, 1]


async def test_a_leader_that_is_cancelled_in_its_thread_finishes(journal, gate):
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            journal.write(ROOT.id, record(0))

            @nursery.start_soon
            async def cancel():
                await gate.entered.wait()
                scope.cancel()
                await wait_all_tasks_blocked()
                gate.open()

            await journal.checkpoint()
            assert numbers_in(journal.location) == [0]
    with assert_no_checkpoints():
        await journal.checkpoint()


async def test_a_waiter_that_is_cancelled_leaves_at_once(journal, gate):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.checkpoint)
        await gate.entered.wait()
        journal.write(ROOT.id, record(0))
        with trio.CancelScope() as scope:
            scope.cancel()
            await journal.checkpoint()
        assert scope.cancelled_caught
        gate.open()
    await journal.checkpoint()
    assert numbers_in(journal.location) == [0]


# ---------------------------------------------------------------- leaving


async def test_a_checkpoint_after_the_end_says_what_was_not_written(store):
    async with store.open_journal(ROOT) as journal:
        await journal.checkpoint()
    with assert_no_checkpoints():
        await journal.checkpoint()
    journal.write(ROOT.id, record(0))
    with pytest.raises(StoreError) as caught:
        await journal.checkpoint()
    assert str(caught.value) == f"journal {journal.location} is closed; lines not written: 1"


async def test_leaving_waits_for_the_commit_under_way_even_if_cancelled(store, gate):
    """Rule: a descriptor is not closed under the thread that writes to it."""
    left = trio.Event()
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def use():
            with scope:
                async with store.open_journal(ROOT) as journal:
                    nursery.start_soon(journal.checkpoint)
                    await trio.sleep_forever()
            left.set()
            assert numbers_in(journal.location) == []

        nursery.start_soon(use)
        await gate.entered.wait()
        scope.cancel()
        await wait_all_tasks_blocked()
        assert not left.is_set()
        gate.open()
    assert left.is_set()


async def test_who_still_waits_when_the_journal_closes_is_told(store, gate):
    async with trio.open_nursery() as nursery:

        async def wait(journal):
            with pytest.raises(StoreError) as caught:
                await journal.checkpoint()
            assert str(caught.value) == f"journal {journal.location} is closed; lines not written: 1"

        @nursery.start_soon
        async def use():
            async with store.open_journal(ROOT) as journal:
                nursery.start_soon(journal.checkpoint)
                await gate.entered.wait()
                journal.write(ROOT.id, record(0))
                nursery.start_soon(wait, journal)
                await wait_all_tasks_blocked()

        await gate.entered.wait()
        await wait_all_tasks_blocked()
        gate.open()


# ---------------------------------------------------------------- failures


async def test_a_full_disk_is_told_to_everybody_who_waits_and_nothing_is_lost(journal, monkeypatch):
    """Rule: a failed write raises for every waiter, and a later checkpoint writes each line once."""
    await journal.checkpoint()
    messages = []

    async def work(number):
        journal.write(ROOT.id, record(number))
        with pytest.raises(StoreError) as caught:
            await journal.checkpoint()
        assert caught.value.__cause__ is FULL
        messages.append(str(caught.value))

    with failing(monkeypatch, "pwrite", FULL):
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(work, number)
    assert messages == [failed(journal.location, FULL, 10)] * 10
    assert numbers_in(journal.location) == []
    await journal.checkpoint()
    assert sorted(numbers_in(journal.location)) == list(range(10))


async def test_half_a_write_is_cut_off_again_wherever_it_stopped(journal, monkeypatch):
    """Rule: a line is never there twice, nor half a line with others after it."""
    journal.write(ROOT.id, record(0))
    await journal.checkpoint()
    journal.write(ROOT.id, record(1))
    journal.write(ROOT.id, record(2))
    pwrite, size = os.pwrite, size_of(journal.location)

    def write_up_to(end):
        def write(descriptor, data, position):
            if position == end:
                raise FULL
            return pwrite(descriptor, data[: min(50, end - position)], position)

        return write

    for more in range(2 * len(encode_record(ROOT.id, record(1)))):
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", write_up_to(size + more))
            with pytest.raises(StoreError) as caught:
                await journal.checkpoint()
        assert str(caught.value) == failed(journal.location, FULL, 2)
        assert numbers_in(journal.location) == [0]
    await journal.checkpoint()
    assert numbers_in(journal.location) == [0, 1, 2]


async def test_a_file_that_reaches_its_limit_is_whole(journal):
    """Rule: the same with a limit of the system, which writes as much as fits and then fails."""
    journal.write(ROOT.id, record(0))
    await journal.checkpoint()
    for number in range(1, 100):
        journal.write(ROOT.id, record(number))
    size = size_of(journal.location)
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_FSIZE, old)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 300, old[1]))
        with pytest.raises(StoreError) as caught:
            await journal.checkpoint()
    assert str(caught.value) == failed(journal.location, "[Errno 27] File too large", 99)
    assert size_of(journal.location) == size
    await journal.checkpoint()
    assert numbers_in(journal.location) == list(range(100))


async def test_what_could_not_be_cut_off_is_cut_off_by_the_next_commit(journal, monkeypatch):
    journal.write(ROOT.id, record(0))
    await journal.checkpoint()
    journal.write(ROOT.id, record(1))
    broken = OSError(errno.EIO, "Input/output error")
    with failing(monkeypatch, "ftruncate", broken):
        with failing(monkeypatch, "fsync", FULL), pytest.raises(StoreError, match="No space left"):
            await journal.checkpoint()
        assert numbers_in(journal.location) == [0, 1]
        with pytest.raises(StoreError) as caught:
            await journal.checkpoint()
        assert str(caught.value) == failed(journal.location, broken, 1)
    journal.write(ROOT.id, record(2))
    await journal.checkpoint()
    assert numbers_in(journal.location) == [0, 1, 2]


async def test_a_sync_that_fails_makes_nothing_durable(journal, monkeypatch):
    """Rule: after a failed sync the kernel may have dropped the data, so it is written again."""
    await journal.checkpoint()
    journal.write(ROOT.id, record(0))
    with failing(monkeypatch, "fsync", OSError(errno.EIO, "Input/output error")):
        with pytest.raises(StoreError) as caught:
            await journal.checkpoint()
        assert str(caught.value) == failed(journal.location, "[Errno 5] Input/output error", 1)
        assert numbers_in(journal.location) == []
    await journal.checkpoint()
    assert numbers_in(journal.location) == [0]


async def test_a_file_that_could_not_be_begun_is_not_left_behind(journal, folder, monkeypatch):
    """Rule: there is no file without a first line; the next checkpoint begins anew."""
    before = descriptors()
    for name in ("pwrite", "fsync"):
        with failing(monkeypatch, name, FULL):
            with pytest.raises(StoreError) as caught:
                await journal.checkpoint()
            assert str(caught.value) == failed(journal.location, FULL, 1)
        assert (os.listdir(folder), descriptors()) == ([], before)
    await journal.checkpoint()
    assert os.listdir(folder) == [NAME]


async def test_a_folder_that_is_gone_before_the_first_write_is_made_again(journal, folder):
    folder.mkdir(parents=True)
    shutil.rmtree(folder)
    await journal.checkpoint()
    assert numbers_in(journal.location) == []


async def test_a_folder_that_is_removed_in_between_is_noticed(journal, folder):
    """Rule: what goes into a removed file is not durable, although writing it succeeds."""
    await journal.checkpoint()
    shutil.rmtree(folder)
    journal.write(ROOT.id, record(0))
    for _ in range(2):
        with pytest.raises(StoreError) as caught:
            await journal.checkpoint()
        gone = f"[Errno 2] The file was removed while it was in use: {journal.location!r}"
        assert str(caught.value) == failed(journal.location, gone, 1)


def content(path) -> bytes:
    return Path(path).read_bytes()


def put(path, data: bytes) -> None:
    Path(path).write_bytes(data)


@pytest.mark.parametrize("more", [None, b"more\n"], ids=["emptied", "appended to"])
async def test_a_file_that_another_program_changes_is_noticed_and_left_alone(journal, more):
    """Rule: what is written behind a hole, or over the lines of another, would not read back, so it is not durable."""
    await journal.checkpoint()
    path = journal.location
    whole = content(path)
    changed = b"" if more is None else whole + more
    put(path, changed)
    journal.write(ROOT.id, record(0))
    for _ in range(2):
        with pytest.raises(StoreError) as caught:
            await journal.checkpoint()
        what = f"Another program has changed the file: it has {len(changed)} bytes, and {len(whole)} were written"
        assert str(caught.value) == failed(path, f"[Errno 5] {what}: {path!r}", 1)
    assert content(path) == changed
    put(path, whole)
    await journal.checkpoint()
    assert numbers_in(path) == [0]


async def test_a_folder_that_is_renamed_takes_the_file_along(journal, folder, tmp_path):
    await journal.checkpoint()
    folder.rename(tmp_path / "moved")
    journal.write(ROOT.id, record(0))
    await journal.checkpoint()
    assert numbers_in(tmp_path / "moved" / NAME) == [0]


async def test_a_folder_that_is_a_file_is_named_and_can_be_mended(tmp_path):
    place = tmp_path / "logs"
    place.write_text("not a folder")
    with pytest.raises(StoreError) as refused:
        async with JsonlStore(place / "deep").open_journal(ROOT):
            pass
    assert str(refused.value) == f"cannot keep logs in '{place}/deep': '{place}' is a file; give store= a folder"
    place.unlink()
    async with JsonlStore(place).open_journal(ROOT) as journal:
        place.write_text("not a folder any more")
        with pytest.raises(StoreError) as caught:
            await journal.checkpoint()
        assert str(caught.value) == failed(place / NAME, f"[Errno 17] File exists: '{place}'", 1)
        place.unlink()
        await journal.checkpoint()
        assert numbers_in(journal.location) == []


async def test_a_folder_without_permission_is_named_and_can_be_mended(journal, folder, monkeypatch):
    """Rule: as for a full disk. Root may write anywhere, so the system's answer is played."""
    folder.mkdir(parents=True)
    denied = PermissionError(errno.EACCES, "Permission denied", str(folder / NAME))
    with failing(monkeypatch, "open", denied):
        with pytest.raises(StoreError) as caught:
            await journal.checkpoint()
        assert str(caught.value) == failed(folder / NAME, f"[Errno 13] Permission denied: '{folder / NAME}'", 1)
    await journal.checkpoint()
    assert numbers_in(journal.location) == []


async def test_a_record_that_is_not_json_is_named(journal):
    """Rule: a value of a wrong type is a bug that types would have found; it stops the log, loudly."""
    await journal.checkpoint()
    fact = RetryPlanned(1, delay=0.5)
    object.__setattr__(fact, "delay", float("nan"))  # which the fact itself refuses
    journal.write(ROOT.id, Record(7, kind="model/retry", data=fact))
    with pytest.raises(StoreError) as caught:
        await journal.checkpoint()
    problem = f"record 7 of {ROOT.id} does not go into JSON: Out of range float values are not JSON compliant"
    assert str(caught.value).startswith(f"journal {journal.location} could not be written: {problem}")
    assert numbers_in(journal.location) == []


async def test_a_header_that_is_not_json_is_named(store):
    header = SessionHeader("s1", path="lead", created=0.0)
    object.__setattr__(header, "cwd", Path("/"))  # which the header itself refuses
    async with store.open_journal(header) as journal:
        with pytest.raises(StoreError, match="the header of s1 does not go into JSON: Object of type PosixPath"):
            await journal.checkpoint()


async def test_a_thread_that_cannot_be_had_is_a_failure_like_any_other(journal, monkeypatch):
    async def refuse(*args, **kwargs):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(trio.to_thread, "run_sync", refuse)
        with pytest.raises(StoreError) as caught:
            await journal.checkpoint()
    assert str(caught.value) == failed(journal.location, "can't start new thread", 1)
    await journal.checkpoint()


async def test_who_wants_more_than_what_failed_tries_for_itself(journal, monkeypatch):
    """Rule: a failure belongs to those whose lines were in it."""
    await journal.checkpoint()
    pwrite, entered, attempts = os.pwrite, trio.Event(), []
    opened = threading.Event()

    def fail_once(*args):
        attempts.append(args)
        if len(attempts) > 1:
            return pwrite(*args)
        trio.from_thread.run_sync(entered.set)
        assert opened.wait(30)
        raise FULL

    monkeypatch.setattr(os, "pwrite", fail_once)
    async with trio.open_nursery() as nursery:
        journal.write(ROOT.id, record(0))

        @nursery.start_soon
        async def fail():
            with pytest.raises(StoreError, match="No space left"):
                await journal.checkpoint()

        await entered.wait()
        journal.write(ROOT.id, record(1))
        nursery.start_soon(journal.checkpoint)
        await wait_all_tasks_blocked()
        opened.set()
    assert numbers_in(journal.location) == [0, 1]


# ---------------------------------------------------------------- with logs


async def test_a_fork_writes_its_own_records_and_refers_to_the_rest(journal, say):
    """Rule: inside a tree the shared prefix is found by reference, and written once."""
    log = say.log(ROOT.id, write=journal.write)
    say.extend(log, TurnStarted(), StepStarted(), say.user("hello"), say.answer(text="hi"), StepEnded())
    say.extend(log, TurnEnded("completed"))
    child = log.fork(SessionHeader("s2", path="lead/child", created=0.0, parent=ROOT.id))
    journal.begin(child.header)
    child.attach(publish=None, write=journal.write)
    say.extend(child, TurnStarted())
    await journal.checkpoint()
    assert len(lines_of(journal.location)) == 2 + 6 + 1 + 2
    loaded = load_sessions(journal.location)
    assert {key: list(each.records()) for key, each in loaded.items()} == {
        ROOT.id: list(log.records()),
        "s2": list(child.records()),
    }


# ---------------------------------------------------------------- the store in memory, and closing records


async def test_a_store_in_memory_keeps_nothing_and_does_not_wait():
    async with MemoryStore().open_journal(ROOT) as journal:
        with assert_no_checkpoints():
            journal.begin(ROOT)
            journal.write(ROOT.id, record(0))
            await journal.checkpoint()
        assert journal.location is None


async def test_an_error_in_the_block_of_a_store_in_memory_comes_out():
    with pytest.raises(ValueError, match="mine"):
        async with MemoryStore().open_journal(ROOT):
            raise ValueError("mine")


async def test_closing_records_reach_the_disk_while_everything_is_being_cancelled(journal):
    with trio.CancelScope() as scope:
        scope.cancel()
        journal.write(ROOT.id, record(0))
        assert await flush_closing(journal)
    assert numbers_in(journal.location) == [0]


async def test_closing_records_may_take_a_second_and_no_longer(autojump_clock):
    class Slow:
        async def checkpoint(self):
            await trio.sleep(5)

    with trio.CancelScope() as scope:
        scope.cancel()
        assert not await flush_closing(Slow())
    assert trio.current_time() == 1.0

"""What a program in bubblewrap cannot do, tried; and that nothing of it is left, whatever ends first."""

import json
import os
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trio
import trio.testing

from creche.codemode import BubblewrapRuntime, CodeLimits, Program, ProgramEnd
from creche.codemode._bubblewrap._layout import find_bwrap
from creche.errors import PluginError

try:
    find_bwrap(None)
except PluginError as error:
    pytest.skip(str(error), allow_module_level=True)

HOME = os.path.expanduser("~")
INTERPRETER = os.path.realpath(sys._base_executable)
NO_FILE = "FileNotFoundError: [Errno 2] No such file or directory"
REFUSED = "PermissionError: [Errno 1] Operation not permitted"
READ_ONLY = "OSError: [Errno 30] Read-only file system"
LIBC = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"


def a_program(source, emit=lambda text: None, **limits):
    async def call(name, arguments):
        raise AssertionError(name)

    return Program(source=source, tools=frozenset(), call=call, emit=emit, limits=CodeLimits(**limits))


@pytest.fixture
async def run():
    async with BubblewrapRuntime().serve() as run:
        yield run


@pytest.fixture
def value_of(run):
    async def value_of(source, **limits):
        end = await run(a_program(source, **limits))
        assert end.failure is None, end
        return None if end.value is None else json.loads(end.value)

    return value_of


@pytest.fixture
def message_of(run):
    async def message_of(source, **limits):
        end = await run(a_program(source, **limits))
        assert end.failure == "exception", end
        return end.message

    return message_of


# ---------------------------------------------------------------- files


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "/etc/hostname", __file__, "/bin/sh", "/usr/bin/env", "/sys/kernel", "/dev/shm", "/tmp/here"],
)
async def test_no_file_of_the_machine_is_there(message_of, path):
    assert (await message_of(f"open({path!r})")).startswith(NO_FILE)


async def test_a_symlink_leads_nowhere_else(message_of):
    source = "import os\nos.symlink('/etc/passwd', '/tmp/link')\nos.symlink('../../..', '/tmp/up')\n"
    assert (await message_of(f"{source}open('/tmp/link')")).startswith(NO_FILE)
    assert (await message_of(f"{source}open('/tmp/up/etc/passwd')")).startswith(NO_FILE)


async def test_the_root_has_the_interpreter_and_little_else(value_of):
    listed = await value_of(
        "import os\nreturn {path: sorted(os.listdir(path)) for path in ('/', '/etc', '/dev', '/tmp') if os.path.exists(path)}"
    )
    assert {"child.py", "proc", "tmp"} <= set(listed["/"])
    assert not {"bin", "boot", "mnt", "run", "sys", "var", "work"} & set(listed["/"])
    assert listed.get("/etc", []) in ([], ["ld.so.cache"])
    assert listed.get("/dev", []) == ([] if os.geteuid() == 0 else ["null", "random", "urandom", "zero"])
    assert listed["/tmp"] == []


async def test_of_a_home_only_the_interpreter_is_there(value_of):
    source = f"import os\nreturn os.listdir({HOME!r}) if os.path.exists({HOME!r}) else []"
    assert set(await value_of(source)) <= set(Path(INTERPRETER).parts)


async def test_installed_packages_are_not_there(message_of, value_of):
    assert (await message_of("import pip")) == "ModuleNotFoundError: No module named 'pip' (line 1)"
    source = "import os\nfolder = os.path.dirname(os.__file__) + '/site-packages'\n"
    assert await value_of(f"{source}return os.listdir(folder) if os.path.exists(folder) else []") == []


async def test_nothing_can_be_written_but_in_tmp(value_of):
    source = """
import os, sys
refused, written = [], []
for folder in ("/", "/etc", "/dev", "/proc", "/proc/1", "/proc/sys/kernel", os.path.dirname(os.__file__), "/lib", "/tmp"):
    try:
        with open(f"{folder}/file", "w") as file:
            file.write("x")
        written.append(folder)
    except OSError:
        refused.append(folder)
for existing in (os.__file__, sys.executable, "/child.py", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger"):
    try:
        open(existing, "a").close()
        written.append(existing)
    except OSError:
        refused.append(existing)
for existing in ("/dev/null", "/dev/urandom", sys.executable, "/proc/sys", "/"):
    for change in (lambda: os.chmod(existing, 0), lambda: os.utime(existing, (1, 1))):
        try:
            change()
            written.append(existing)
        except OSError:
            refused.append(existing)
return written
"""
    assert await value_of(source) == ["/tmp"]
    assert stat.S_IMODE(os.stat("/dev/null").st_mode) == 0o666


@pytest.mark.skipif(os.geteuid() == 0, reason="there are no devices where root runs it")
async def test_devices_can_be_used(value_of):
    source = """
with open("/dev/null", "r+b", buffering=0) as nothing, open("/dev/zero", "rb", buffering=0) as zeros:
    return [nothing.write(b"x"), nothing.read(1).decode(), zeros.read(1).hex()]
"""
    assert await value_of(source) == [1, "", "00"]


async def test_tmp_is_its_own_and_of_limited_size(run, value_of):
    assert await value_of("open('/tmp/file', 'w').close()\nimport os\nreturn os.listdir('/tmp')") == ["file"]
    assert await value_of("import os\nreturn os.listdir('/tmp')") == []
    source = """
for number in range(1000):
    with open(f"/tmp/{number}", "wb") as file:
        file.write(b"x" * 1_000_000)
"""
    end = await run(a_program(source))
    assert (end.failure, end.message[:41]) == ("exception", "OSError: [Errno 28] No space left on devi")


@pytest.mark.parametrize("size", [65 * 1024 * 1024, 10**12])
async def test_a_file_has_a_longest_length(run, size):
    end = await run(a_program(f"with open('/tmp/file', 'wb') as file:\n    file.seek({size})\n    file.write(b'x')"))
    assert end.failure in ("exception", "killed")


# ---------------------------------------------------------------- processes, network, kernel


async def test_the_environment_is_empty(value_of, monkeypatch):
    monkeypatch.setenv("SECRET_OF_OURS", "a-secret")
    source = """
import glob, os
seen = [open(path, "rb").read() for path in glob.glob("/proc/*/environ")]
return [dict(os.environ), any(b"a-secret" in each for each in seen), len(seen)]
"""
    environment, is_seen, count = await value_of(source)
    assert (environment, is_seen) == ({}, False)
    assert count >= 1


async def test_no_other_process_is_seen(value_of):
    source = (
        "import os\nreturn [sorted(n for n in os.listdir('/proc') if n.isdigit()), os.getpid(), os.listdir('/proc/1')]"
    )
    assert await value_of(source) == [["1", "2"], 2, []]


async def test_no_other_process_can_be_ended(run, value_of):
    source = f"""
import os, signal
said = []
for process in (1, {os.getpid()}):
    try:
        os.kill(process, signal.SIGKILL)
    except OSError as error:
        said.append(error.strerror)
return said
"""
    assert "No such process" in await value_of(source)
    assert await run(a_program("return 1")) == ProgramEnd(value="1")


async def test_no_file_of_ours_is_inherited(value_of):
    source = """
import os
seen = {}
for number in os.listdir("/proc/self/fd"):
    try:
        seen[number] = os.readlink(f"/proc/self/fd/{number}").split(":")[0]
    except OSError:
        pass
return sorted(seen.values())
"""
    # The three of every process, the channel, and what asyncio has for itself: a pair of sockets and its selector.
    with socket.socket() as ours:
        os.set_inheritable(ours.fileno(), True)
        found = await value_of(source)
    assert found == ["anon_inode", "pipe", "pipe", "pipe", "socket", "socket", "socket"]


@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK", "AF_PACKET", "AF_VSOCK"])
async def test_there_are_no_sockets(message_of, family):
    said = await message_of(f"import socket\nsocket.socket(socket.{family}, socket.SOCK_STREAM)")
    assert said.startswith(REFUSED)


async def test_there_is_no_network(value_of):
    devices = await value_of("return [line.split()[0] for line in open('/proc/net/dev')]")
    assert devices[2:] in ([], ["lo:"])


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.fork()",
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'pass'])",
        "import subprocess\nsubprocess.run(['/bin/true'])",
        "import multiprocessing\nprocess = multiprocessing.get_context('fork').Process(target=print)\nprocess.start()",
        "import os\nos.posix_spawn(os.__file__, ['x'], {})",
        "import os\nos.memfd_create('x')",
        "import os\nos.chroot('/tmp')",
    ],
)
async def test_no_second_process_can_be_made(message_of, source):
    assert (await message_of(source)).startswith(REFUSED)


@pytest.mark.parametrize(
    "call",
    [
        "mount(b'none', b'/tmp', b'tmpfs', 0, None)",
        "umount2(b'/proc/1', 2)",
        "unshare(0x10000000)",  # a user namespace
        "unshare(0x00020000)",  # a mount namespace
        "setns(0, 0)",
        "ptrace(16, 1, 0, 0)",
        "ptrace(0, 0, 0, 0)",
        "process_vm_writev(1, None, 0, None, 0, 0)",
        "shmget(0, 1 << 30, 0o1600)",
        "msgget(0, 0o1600)",
        "semget(0, 1, 0o1600)",
        "syscall(57)" if os.uname().machine == "x86_64" else "syscall(220, 17, 0, 0, 0, 0)",
        "syscall(425, 8, None)",  # io_uring_setup
        "syscall(428, -100, b'/', 1)",  # open_tree
        "syscall(438, 0, 0, 0)",  # pidfd_getfd
        "klogctl(3, ctypes.create_string_buffer(100), 100)",
        "setpriority(0, 0, 19)",
        "sched_setparam(0, ctypes.byref(ctypes.c_int(0)))",
        "sched_setscheduler(0, 3, ctypes.byref(ctypes.c_int(0)))",  # SCHED_BATCH
        "sched_setaffinity(0, 128, (ctypes.c_ubyte * 128)(*[255] * 128))",
        "syscall({'x86_64': 314, 'aarch64': 274}[os.uname().machine], 0, (ctypes.c_uint * 12)(48), 0)",  # sched_setattr
        "syscall({'x86_64': 251, 'aarch64': 30}[os.uname().machine], 1, 0, 3 << 13)",  # ioprio_set
        "vmsplice(1, None, 0, 0)",
        "syscall({'x86_64': 206, 'aarch64': 0}[os.uname().machine], 1, ctypes.byref(ctypes.c_ulong(0)))",  # io_setup
        "inotify_init()",
        "inotify_init1(0)",
        "fanotify_init(0x200, 0)",  # FAN_REPORT_FID, which needs no privilege
        "flock(os.open('/child.py', os.O_RDONLY), 5)",  # LOCK_SH | LOCK_NB
        "fcntl(os.open('/tmp/file', os.O_CREAT), 1024, 0)",  # F_SETLEASE, F_RDLCK
        "fcntl(os.open('/tmp', os.O_RDONLY), 1026, 1)",  # F_NOTIFY, DN_ACCESS
    ],
)
async def test_a_call_of_the_kernel_is_refused(value_of, call):
    said = await value_of(f"{LIBC}result = libc.{call}\nreturn [result, os.strerror(ctypes.get_errno())]")
    assert said == [-1, "Operation not permitted"]


async def test_locks_of_a_part_of_a_file_work(value_of):
    source = "import sqlite3\nwith sqlite3.connect('/tmp/file') as base:\n    base.execute('create table a (b)')\n"
    assert await value_of(f"{source}return base.execute('select name from sqlite_master').fetchall()") == [["a"]]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the other numbers are of x86-64")
@pytest.mark.parametrize("number", [0x40000000 + 39, 0x40000000 + 520])
async def test_the_calls_of_another_convention_end_the_program(run, number):
    end = await run(a_program(f"{LIBC}libc.syscall({number})"))
    assert end == ProgramEnd(failure="killed", message="its process was ended by SIGSYS")


async def test_it_has_no_privilege_and_gets_none(value_of):
    source = (
        "return dict(line.split(':\\t', 1) for line in open('/proc/self/status').read().splitlines() if ':\\t' in line)"
    )
    status = await value_of(source)
    assert {status[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert status["Uid"].split() == ["1000"] * 4


async def test_limits_cannot_be_raised(message_of):
    for limit in ("AS", "CPU", "FSIZE", "NOFILE", "CORE", "NPROC", "SIGPENDING"):
        source = f"import resource\nresource.setrlimit(resource.RLIMIT_{limit}, (1 << 40, 1 << 40))"
        assert (await message_of(source)).startswith(
            ("ValueError: not allowed to raise maximum limit", "PermissionError")
        )


# ---------------------------------------------------------------- too much of something


async def test_a_fork_bomb_is_ended(run):
    """Rule: also where who runs us is root, for whom the kernel does not limit the number of processes."""
    source = f"{LIBC}while True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n    libc.vfork()"
    printed = []
    source = f"print(os.readlink('/proc/self/ns/pid'))\n{source}\n    print(end='.')"
    most = 0

    def count(text):
        nonlocal most
        printed.append(text)
        most = max(most, len(processes_in(printed[0].split()[0])))

    end = await run(a_program(f"import os\n{source}", emit=count, seconds=0.5, output=10**9))
    assert (end.failure, most) == ("timeout", 2)


async def test_threads_are_limited_by_memory(run):
    source = """
import threading, time
threads = []
while True:
    threads.append(threading.Thread(target=time.sleep, args=(1000,)))
    threads[-1].start()
"""
    end = await run(a_program(source))
    assert end == ProgramEnd(failure="exception", message="RuntimeError: can't start new thread (line 6)")


THREADS = """
import threading, time
threading.stack_size(1 << 16)
try:
    for number in range(100):
        threading.Thread(target=time.sleep, args=(1000,)).start()
except RuntimeError:
    pass
return len(threading.enumerate())
"""


@pytest.mark.skipif(os.geteuid() == 0, reason="the kernel does not limit the threads of a user who is root outside")
async def test_threads_are_limited_by_number(value_of):
    assert 32 < await value_of(THREADS, memory=8 * 1024**3) < 64


async def test_signals_that_wait_are_limited(value_of):
    source = f"""
{LIBC}
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [40])
return sum(libc.sigqueue(os.getpid(), 40, None) == 0 for _ in range(1000))
"""
    assert await value_of(source) <= 64


def test_a_lower_limit_of_who_runs_us_stays():
    before = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))"
    source = "import resource\nprint(resource.getrlimit(resource.RLIMIT_FSIZE))"
    with start_host(source, ends=False, before=before) as host:
        assert host.communicate()[0] == f"({1 << 20}, {1 << 20})\n"


async def test_threads_work(value_of):
    assert await value_of("import asyncio\nreturn await asyncio.to_thread(sum, [1, 2])") == 3


@pytest.mark.parametrize(
    "source",
    [
        "'x' * 10**10",
        "kept = []\nwhile True:\n    kept.append(bytearray(10_000_000))",
        "import mmap\nkept = []\nwhile True:\n    kept.append(mmap.mmap(-1, 10_000_000))",
    ],
)
async def test_memory_that_is_not_there_raises(message_of, source):
    assert (await message_of(source)).startswith(("MemoryError", "OSError: [Errno 12] Cannot allocate memory"))


async def test_recursion_without_end_ends(run):
    source = "import sys\nsys.setrecursionlimit(10**9)\ndef down():\n    down()\ndown()"
    end = await run(a_program(source, memory=32 * 1024 * 1024))
    assert end.failure in ("exception", "killed")


async def test_files_without_end_raise(message_of):
    said = await message_of("kept = []\nwhile True:\n    kept.append(open('/child.py'))")
    assert said.startswith("OSError: [Errno 24] Too many open files")


async def test_printing_without_end_ends_with_what_fits(run):
    printed = []
    source = "import os\nwhile True:\n    os.write(1, b'x' * 1000)"
    end = await run(a_program(source, emit=printed.append, output=5000))
    assert end == ProgramEnd(failure="output_limit", message="it printed and returned more than 5000 bytes")
    assert "".join(printed) == "x" * 5000


# ---------------------------------------------------------------- the end

# Prints which namespace of processes it is in, and does not want to end.
STUBBORN = """
import os, signal, threading
for which in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(which, signal.SIG_IGN)
def work():
    while True:
        pass
threading.Thread(target=work).start()
os.write(1, os.readlink("/proc/self/ns/pid").encode() + b"\\n")
"""

HOST = """
import os, sys, trio
from creche.codemode import CodeLimits, Program
from creche.codemode import BubblewrapRuntime

def emit(text):
    os.write(1, text.encode())
    if {ends}:
        os._exit(1)

async def main():
    async with BubblewrapRuntime().serve() as run:
        await run(Program(source={source!r}, tools=frozenset(), call=None, emit=emit, limits=CodeLimits()))

trio.run(main)
"""


@pytest.mark.parametrize("last", ["while True:\n    pass", "signal.pause()", "os.kill(os.getpid(), signal.SIGSTOP)"])
async def test_when_it_is_cancelled_every_process_is_gone_at_once(run, last):
    seen, began = [], 0.0

    def cancel(text):
        nonlocal began
        seen.append((text.strip(), processes_in(text.strip())))
        began = trio.current_time()
        scope.cancel()

    with trio.CancelScope() as scope:
        await run(a_program(STUBBORN + last, emit=cancel))
    assert trio.current_time() - began < 0.1
    assert scope.cancelled_caught
    ((namespace, found),) = seen
    assert len(found) == 2
    assert processes_in(namespace) == set()


async def test_after_each_program_nothing_is_left(run):
    seen = []
    for last in ("return 1", "os._exit(0)", "raise ValueError", "while True: pass"):
        source = f"import os\nos.write(1, os.readlink('/proc/self/ns/pid').encode())\n{last}"
        await run(a_program(source, emit=seen.append, seconds=0.1))
        assert seen[-1].startswith("pid:[")
        assert processes_in(seen[-1]) == set()


@pytest.mark.parametrize("by", ["itself", "kill"])
async def test_no_process_outlives_this_one(by):
    """Rule: also when this one is killed, or ends without cleaning up."""
    host = start_host(STUBBORN + "while True:\n    pass", ends=by == "itself")
    with host:
        namespace = host.stdout.readline().strip()
        assert namespace.startswith("pid:[")
        handles = [os.pidfd_open(process) for process in processes_in(namespace)]
        if by == "kill":
            assert len(handles) == 2
            host.kill()
        host.wait(10)
    with trio.fail_after(5):
        for handle in handles:
            await trio.lowlevel.wait_readable(handle)
            os.close(handle)
    assert processes_in(namespace) == set()


async def test_it_is_started_in_the_thread_of_trio(run):
    """Rule: the kernel ends a sandbox together with the thread that started it, and worker threads end when idle."""
    await trio.testing.wait_all_tasks_blocked()
    assert children_of_this_thread()


async def test_ctrl_c_on_a_terminal_does_not_reach_it(run):
    """Rule: what ends a sandbox is we, after what is to be said of it."""
    await trio.testing.wait_all_tasks_blocked()
    groups = {os.getpgid(int(child)) for child in children_of_this_thread()}
    assert groups
    assert os.getpgrp() not in groups


def processes_in(namespace):
    """Return the processes of a namespace of processes that have not ended."""
    found = set()
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                is_there = os.readlink(path / "ns" / "pid") == namespace
                if is_there and "\nState:\tZ" not in (path / "status").read_text():
                    found.add(int(path.name))
            except OSError:
                continue  # it has ended
    return found


def children_of_this_thread():
    return Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()


def start_host(source, *, ends, before=""):
    """Start a process that serves the runtime and runs a program; it may end itself when that prints."""
    text = f"{before}\n{HOST.format(source=source, ends=ends)}"
    return subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)


async def test_more_files_than_there_may_be_end_the_program(run):
    """Rule: an empty file, a folder and a link take memory of the kernel, which nothing else limits."""
    for make in ("os.mkdir(f'/tmp/{n}')", "open(f'/tmp/{n}', 'x').close()", "os.link('/tmp/0', f'/tmp/l{n}')"):
        end = await run(
            a_program(f"import os\nopen('/tmp/0', 'w').close()\nn = 1\nwhile True:\n    {make}\n    n += 1")
        )
        assert end == ProgramEnd(failure="killed", message="it made more than 10,000 files")


async def test_thousands_of_files_are_fine(value_of):
    source = "import os\nfor n in range(9_000):\n    open(f'/tmp/{n}', 'w').close()\nreturn len(os.listdir('/tmp'))"
    assert await value_of(source) == 9_000

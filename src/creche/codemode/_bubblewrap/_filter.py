"""Which calls of the kernel a program may make, as a filter of seccomp.

Namespaces hide what is outside; this keeps the limits of one process the limits of the program:

Rule 1: no second process. Limits of memory and of computing are per process, and a limit on the number of processes does
not bind for a user who is root outside. Threads are fine.
Rule 2: no memory that belongs to no address space, as segments and queues that stay when nobody has them open, and as
what the kernel keeps for input and output that goes on by itself.
Rule 3: none of what needs no privilege and is no business of a program: tracing, keys, mounts, new namespaces, sockets
(a pair of them is fine), and young interfaces of which most escapes were made.
Rule 4: nothing that gets in the way of processes outside: no priority or processor of its choice, which some users may
raise, and no locks, leases and watches on files, of which some are the interpreter's of everybody. Locks of a part of
a file stay, for sqlite3 needs them.

What is not listed is allowed, so that a newer Python or libc does not fail in ways that nobody understands.
"""

import errno
import struct
from collections.abc import Iterator

# By machine: how it is called in a filter, then the number of each call there. From 424 on, all machines count alike.
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE3 = 435
_FCNTL = {"x86_64": 72, "aarch64": 25}
_REFUSED_COMMANDS = (1024, 1026)  # of fcntl: F_SETLEASE, F_NOTIFY
_OLDER = {
    "fork": {"x86_64": 57},
    "vfork": {"x86_64": 58},
    "memfd_create": {"x86_64": 319, "aarch64": 279},
    "shmget": {"x86_64": 29, "aarch64": 194},
    "msgget": {"x86_64": 68, "aarch64": 186},
    "semget": {"x86_64": 64, "aarch64": 190},
    "mq_open": {"x86_64": 240, "aarch64": 180},
    "ptrace": {"x86_64": 101, "aarch64": 117},
    "process_vm_readv": {"x86_64": 310, "aarch64": 270},
    "process_vm_writev": {"x86_64": 311, "aarch64": 271},
    "kcmp": {"x86_64": 312, "aarch64": 272},
    "add_key": {"x86_64": 248, "aarch64": 217},
    "request_key": {"x86_64": 249, "aarch64": 218},
    "keyctl": {"x86_64": 250, "aarch64": 219},
    "syslog": {"x86_64": 103, "aarch64": 116},
    "mount": {"x86_64": 165, "aarch64": 40},
    "umount2": {"x86_64": 166, "aarch64": 39},
    "pivot_root": {"x86_64": 155, "aarch64": 41},
    "chroot": {"x86_64": 161, "aarch64": 51},
    "unshare": {"x86_64": 272, "aarch64": 97},
    "setns": {"x86_64": 308, "aarch64": 268},
    "socket": {"x86_64": 41, "aarch64": 198},
    "bpf": {"x86_64": 321, "aarch64": 280},
    "perf_event_open": {"x86_64": 298, "aarch64": 241},
    "userfaultfd": {"x86_64": 323, "aarch64": 282},
    "name_to_handle_at": {"x86_64": 303, "aarch64": 264},
    "open_by_handle_at": {"x86_64": 304, "aarch64": 265},
    "vmsplice": {"x86_64": 278, "aarch64": 75},
    "io_setup": {"x86_64": 206, "aarch64": 0},
    "setpriority": {"x86_64": 141, "aarch64": 140},
    "sched_setparam": {"x86_64": 142, "aarch64": 118},
    "sched_setscheduler": {"x86_64": 144, "aarch64": 119},
    "sched_setaffinity": {"x86_64": 203, "aarch64": 122},
    "sched_setattr": {"x86_64": 314, "aarch64": 274},
    "ioprio_set": {"x86_64": 251, "aarch64": 30},
    "flock": {"x86_64": 73, "aarch64": 32},
    "inotify_init": {"x86_64": 253},
    "inotify_init1": {"x86_64": 294, "aarch64": 26},
    "fanotify_init": {"x86_64": 300, "aarch64": 262},
}
_NEWER = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "pidfd_getfd": 438,
    "mount_setattr": 442,
    "memfd_secret": 447,
}

# Codes of the kernel's classic BPF, the results of seccomp, and where in its `seccomp_data` what is found.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24
_CLONE_THREAD = 0x00010000
_X32 = 0x40000000


def filter_for(machine: str) -> bytes | None:
    """Return the filter in the form that bubblewrap takes, or ``None`` if the numbers of the machine are not known.

    Args:
      machine: What ``os.uname()`` calls it.
    """
    if machine not in _ARCHITECTURES:
        return None
    return b"".join(struct.pack("=HBBI", *step) for step in _steps(machine))


def _steps(machine: str) -> Iterator[tuple[int, int, int, int]]:
    """Yield the steps: a code, how many steps to skip if it holds and if not, and a value."""
    refused = [*(numbers[machine] for numbers in _OLDER.values() if machine in numbers), *_NEWER.values()]
    yield _LOAD, 0, 0, _ARCHITECTURE
    yield _EQUAL, 1, 0, _ARCHITECTURES[machine]
    yield _RETURN, 0, 0, _KILL  # the 32-bit calls of the same machine have other numbers
    yield _LOAD, 0, 0, _NUMBER
    if machine == "x86_64":
        yield _AT_LEAST, 0, 1, _X32
        yield _RETURN, 0, 0, _KILL
    for number in refused:
        yield _EQUAL, 0, 1, number
        yield _RETURN, 0, 0, _FAIL | errno.EPERM
    yield _EQUAL, 0, 2 + 2 * len(_REFUSED_COMMANDS), _FCNTL[machine]
    yield _LOAD, 0, 0, _SECOND_ARGUMENT  # its lower half, and the kernel takes no more of it
    for command in _REFUSED_COMMANDS:
        yield _EQUAL, 0, 1, command
        yield _RETURN, 0, 0, _FAIL | errno.EPERM
    yield _RETURN, 0, 0, _ALLOW
    # Its flags are in memory, where a filter cannot look; libc then asks for `clone`, which has them in a register.
    yield _EQUAL, 0, 1, _CLONE3
    yield _RETURN, 0, 0, _FAIL | errno.ENOSYS
    yield _EQUAL, 1, 0, _CLONE[machine]
    yield _RETURN, 0, 0, _ALLOW
    yield _LOAD, 0, 0, _FIRST_ARGUMENT
    yield _ANY_BIT, 0, 1, _CLONE_THREAD
    yield _RETURN, 0, 0, _ALLOW
    yield _RETURN, 0, 0, _FAIL | errno.EPERM

"""One sandbox from its start to the end of its last process.

Three processes belong to one: bubblewrap outside, which we start and reap; its other half, which is process 1 inside; and
the interpreter. When process 1 ends, the kernel ends everything inside, so that is what we kill. Bubblewrap outside is
killed by the kernel when the *thread* that started it ends, and process 1 with it. So a sandbox is started in the thread
of trio, and not by `trio.lowlevel.open_process`, whose thread ends when it has been idle for ten seconds.
"""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import FileIO

import attrs
import trio

from creche.errors import PluginError

from ._layout import Layout

_READY = b'{"ready":true}\n'
_LONGEST_ANSWER = 4096


@attrs.define(eq=False)
class Sandbox:
    """A running sandbox, with an interpreter that waits for its program."""

    _bubblewrap: "subprocess.Popen[bytes]"
    _outside: int
    """Handle of the process of bubblewrap."""
    channel: socket.socket
    """Lines of JSON, both ways; does not block."""
    output: FileIO
    """What the program writes to its files 1 and 2; does not block."""
    packages: tuple[str, ...]
    """Where its program imports from."""
    _inside: int | None = None
    """Handle of process 1."""
    _folder: int | None = None
    """Its ``/tmp``."""
    _ended: trio.Event = attrs.field(factory=trio.Event)
    _is_taken: bool = False

    def kill(self) -> None:
        """Make every process of it end, soon."""
        # Bubblewrap outside ends by itself then, as it waits for process 1; killed first, it would leave an orphan.
        handle = self._outside if self._inside is None else self._inside
        if not self.has_ended:
            with suppress(ProcessLookupError):  # it is about to have ended
                signal.pidfd_send_signal(handle, signal.SIGKILL)

    @property
    def has_ended(self) -> bool:
        """Whether all of its processes are gone."""
        return self._ended.is_set()

    async def wait(self) -> int:
        """Wait until all of its processes are gone.

        Returns:
          The status that the interpreter ended with; above 128, the number of the signal that ended it and 128.
        """
        await self._ended.wait()
        return self._bubblewrap.returncode

    def take(self) -> None:
        """Become the one who closes it."""
        self._is_taken = True

    def count_files(self) -> int:
        """Return how many files, folders and links there are in its ``/tmp``."""
        assert self._folder is not None, "it is ready"
        counts = os.fstatvfs(self._folder)
        return counts.f_files - counts.f_ffree

    def close(self) -> None:
        """Close the files of this side."""
        self.channel.close()
        self.output.close()
        if self._folder is not None:
            os.close(self._folder)

    async def _start(self, information: FileIO) -> None:
        told, is_open = b"", True
        with information:  # to its end: bubblewrap writes it in pieces, and would die if nobody read
            while is_open:
                await trio.lowlevel.wait_readable(information)
                told += (data := information.read(_LONGEST_ANSWER))
                is_open = bool(data)
        try:
            self._inside = os.pidfd_open(json.loads(told)["child-pid"])
        except (ValueError, KeyError, ProcessLookupError):
            return  # it has ended, and says why on its output
        except OSError:
            # Without a handle, nothing can be killed for certain. But the interpreter ends when nobody is there, and when
            # all have ended, so has what they write to.
            self.channel.shutdown(socket.SHUT_RDWR)
            while self.output.read(_LONGEST_ANSWER) != b"":
                await trio.lowlevel.wait_readable(self.output)  # noqa: ASYNC120  # it is shielded, and soon
            raise

    async def _check_ready(self) -> None:
        await trio.lowlevel.wait_readable(self.channel)
        told, files, _, _ = socket.recv_fds(self.channel, len(_READY), 1, socket.MSG_CMSG_CLOEXEC)
        if files:
            self._folder = files[0]
        if told == _READY:
            return
        said = (self.output.read(_LONGEST_ANSWER) or b"").decode(errors="replace").strip().splitlines()
        raise PluginError(
            f"bubblewrap cannot start a sandbox here: {said[-1] if said else 'it ended and said nothing'}; "
            "allow user namespaces to ordinary users, or use the runtime 'monty'"
        )

    async def _reap(self) -> None:
        handles = [handle for handle in (self._inside, self._outside) if handle is not None]
        for handle in handles:
            await trio.lowlevel.wait_readable(handle)
        self._bubblewrap.wait()
        if self._inside is not None:
            # It is bubblewrap's to reap; but where bubblewrap ended first and we are the system's process 1, it is ours.
            with suppress(ChildProcessError):
                os.waitid(os.P_PIDFD, self._inside, os.WEXITED)  # noqa: ASYNC222  # it has ended
        for handle in handles:
            os.close(handle)
        self._ended.set()
        if not self._is_taken:
            self.close()


async def run_sandbox(layout: Layout, *, task_status: trio.TaskStatus[Sandbox] = trio.TASK_STATUS_IGNORED) -> None:
    """Own a sandbox until all of its processes are gone; if cancelled, kill it.

    Args:
      layout: What it is made of.
      task_status: Gets the sandbox when its interpreter waits for a program.

    Raises:
      PluginError: It did not start.
    """
    with _starting():
        sandbox, information = _spawn(layout)
    try:
        with _starting():
            # Until process 1 is known, nothing can be killed for certain; this takes milliseconds.
            with trio.CancelScope(shield=True):
                await sandbox._start(information)
            await sandbox._check_ready()
        task_status.started(sandbox)
        await trio.lowlevel.wait_readable(sandbox._outside)
    finally:
        sandbox.kill()
        with trio.CancelScope(shield=True):
            await sandbox._reap()


@contextmanager
def _starting() -> Iterator[None]:
    try:
        yield
    except OSError as error:  # such as too many open files
        raise PluginError(f"bubblewrap cannot be started: {error}") from error


def _spawn(layout: Layout) -> tuple[Sandbox, FileIO]:
    """Start the processes, and return with them the file where bubblewrap says which is process 1."""
    with ExitStack() as theirs, ExitStack() as ours:
        channel, channel_end = socket.socketpair()
        ours.enter_context(channel)
        theirs.enter_context(channel_end)
        output, output_end = _open_pipe(ours, theirs)
        information, information_end = _open_pipe(ours, theirs)
        allowed_end, allowed = _open_pipe(theirs, theirs)
        allowed.write(layout.filter)
        allowed.close()
        # To read from instead of /dev/null, whose mode a program could change where root runs us.
        nothing, nothing_end = _open_pipe(theirs, theirs)
        nothing_end.close()
        passed = (channel_end.fileno(), information_end.fileno(), allowed_end.fileno())
        channel.setblocking(False)
        os.set_blocking(output.fileno(), False)
        options = ("--info-fd", str(passed[1]), "--seccomp", str(passed[2]), "--")
        bubblewrap = subprocess.Popen(
            [*layout.command, *options, *layout.interpreter, str(passed[0])],
            stdin=nothing.fileno(),
            stdout=output_end.fileno(),
            stderr=output_end.fileno(),
            pass_fds=passed,
            env={},  # process 1 is a copy of bubblewrap, and shows what that was given
            start_new_session=True,  # a terminal's Ctrl-C is for us, who then end it
        )
        theirs.close()
        # Killed while it starts, it would leave an orphan. So if something fails here, what it starts finds nobody there.
        ours.callback(bubblewrap.wait)
        ours.callback(channel.close)
        sandbox = Sandbox(bubblewrap, os.pidfd_open(bubblewrap.pid), channel, output, layout.packages)
        ours.pop_all()
        return sandbox, information


def _open_pipe(reader: ExitStack, writer: ExitStack) -> tuple[FileIO, FileIO]:
    reading, writing = os.pipe()
    return reader.enter_context(FileIO(reading)), writer.enter_context(FileIO(writing, "w"))

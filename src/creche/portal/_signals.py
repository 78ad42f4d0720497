"""A loop of asyncio that looks up when a signal comes.

Python runs the handler of a signal, but that does not wake a loop that waits for its selector. `asyncio.run` takes care of that for
Ctrl-C, ``loop.add_signal_handler`` for the rest. The kernel of Jupyter uses neither: an interrupt asks its loop to cancel the
cell, and the loop hears of it when something else wakes it (ipython/ipykernel#881). While a cell waits for trio, that may be
never.
"""

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


@contextmanager
def woken_by_signals(loop: "asyncio.AbstractEventLoop") -> Iterator[None]:
    """Have signals wake the running loop for the length of the block, if nobody has seen to it, and it is the main thread's."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    end, written = socket.socketpair()
    with end, written:
        end.setblocking(False)
        written.setblocking(False)
        before = signal.set_wakeup_fd(written.fileno(), warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)
            yield
            return
        loop.add_reader(end, end.recv, 4096)
        try:
            yield
        finally:
            loop.remove_reader(end)
            now = signal.set_wakeup_fd(-1)
            if now != written.fileno():  # somebody else's by now
                signal.set_wakeup_fd(now)

"""The guard of conftest.py, seen red."""

import socket

import pytest
import trio


async def test_a_socket_that_leaves_the_machine_is_refused():
    with trio.socket.socket() as own, pytest.raises(RuntimeError, match=r"127\.0\.0\.1 only, not to '192\.0\.2\.1'"):
        await own.connect(("192.0.2.1", 80))
    with socket.socket() as own, pytest.raises(RuntimeError, match="only"):
        own.connect_ex(("192.0.2.1", 80))


async def test_a_socket_of_this_machine_connects():
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listeners[0] as listener, await trio.open_tcp_stream(*listener.socket.getsockname()) as stream:
        assert stream.socket.getpeername() == listener.socket.getsockname()

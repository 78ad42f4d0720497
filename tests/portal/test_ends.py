"""Programs on asyncio that end in every way there is. In each, the open turn ends too, and its log says so."""

import re
import signal
import subprocess
import sys
import textwrap

import pytest

from creche.session import load_sessions
from creche.testing import check_log

HEAD = """
import asyncio, gc, signal, sys, threading
import trio
from creche import AgentSpec, FunctionModel, open_host, open_portal

signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a shell has it ignored
asked = threading.Event()

async def never(request):
    asked.set()
    await trio.sleep_forever()

async def ask():
    async with open_host(model=FunctionModel(never), store="logs") as host, host.open_agent(AgentSpec("lead")) as lead:
        await lead.ask("Go.")

kept = []

async def leave_open():
    kept.append(open_portal())
    portal = await kept[0].__aenter__()
    kept.append(asyncio.ensure_future(portal.run(ask)))
    await asyncio.to_thread(asked.wait)
"""


@pytest.fixture
def run(tmp_path):
    """Run a program to its end; returns what it said. Its turn was open at some time, and has ended."""

    def run_to_end(body, *, interrupt=False):
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", HEAD + textwrap.dedent(body)],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            if interrupt:
                assert process.stdout.readline() == "now\n"
                process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
            process.communicate()
        (file,) = (tmp_path / "logs").iterdir()
        (log,) = load_sessions(file).values()
        check_log(log)
        assert [record.data.reason for record in log.records("turn/end")] == ["cancelled"]
        return process.returncode, out, err

    return run_to_end


def test_ctrl_c_during_a_call(run):
    program = """
    async def main():
        async with open_portal() as portal:
            call = asyncio.ensure_future(portal.run(ask))
            await asyncio.to_thread(asked.wait)
            print("now", flush=True)
            await call

    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        print("interrupted")
    """
    assert run(program, interrupt=True) == (0, "interrupted\n", "")


def test_a_portal_that_nobody_leaves_ends_with_asyncio_run(run):
    program = """
    asyncio.run(leave_open())
    print([thread.name for thread in threading.enumerate() if thread.name == "creche portal"])
    """
    assert run(program) == (0, "[]\n", "")


def test_a_portal_that_nobody_leaves_ends_when_nothing_refers_to_it(run):
    program = """
    async def main():
        await leave_open()
        kept.pop().cancel()
        kept.clear()
        gc.collect()
        while "creche portal" in [thread.name for thread in threading.enumerate()]:
            await asyncio.sleep(0.001)
        print("gone")

    asyncio.run(main())
    """
    assert run(program) == (0, "gone\n", "")


@pytest.mark.parametrize("close", ["loop.close()", ""], ids=["closed", "stopped"])
@pytest.mark.parametrize("end", ["", "sys.exit(3)"], ids=["end", "exit"])
def test_a_portal_whose_loop_has_gone_ends_with_the_program(run, close, end):
    program = f"""
    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave_open())
    {close}
    {end}
    """
    code, out, err = run(program)
    assert (code, out) == (3 if end else 0, "")
    assert not re.search(r'File ".*creche/', err)  # asyncio and Python have their own words for such programs


def test_a_process_that_is_forked_has_no_portal_and_waits_for_none(run):
    program = """
    import os

    async def in_child(portal):
        try:
            await portal.run(trio.sleep_forever)
        except Exception as error:
            print(error, flush=True)
        async with open_portal() as own:
            print(await own.call(len, "abc"), flush=True)

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    opened = open_portal()
    portal = loop.run_until_complete(opened.__aenter__())
    if (pid := os.fork()) == 0:
        asyncio.run(in_child(portal))
        sys.exit(4)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    call = loop.create_task(portal.run(ask))
    loop.run_until_complete(asyncio.to_thread(asked.wait))
    loop.run_until_complete(opened.__aexit__(None, None, None))
    print(call.exception())
    loop.close()
    """
    closed = "because the portal {} closed\n"
    told = (
        f"sleep_forever cannot be run, {closed.format('is')}3\n4\nask did not come to its end, {closed.format('was')}"
    )
    assert run(program) == (0, told, "")


def test_a_thread_that_cannot_be_started_is_the_only_thing_that_is_said(run):
    program = """
    async def main():
        async with open_portal() as portal:
            call = asyncio.ensure_future(portal.run(ask))
            await asyncio.to_thread(asked.wait)
            start, threading.Thread.start = threading.Thread.start, refuse
            try:
                async with open_portal():
                    pass
            except RuntimeError as error:
                print(error)
            threading.Thread.start = start
            call.cancel()

    def refuse(self):
        raise RuntimeError("can't start new thread")

    asyncio.run(main())
    """
    assert run(program) == (0, "can't start new thread\n", "")

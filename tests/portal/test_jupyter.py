"""A real Jupyter kernel: the cells of the how-to page, and what an interrupt does."""

import re
from pathlib import Path

import pytest
from jupyter_client.manager import KernelManager

from creche.session import load_sessions
from creche.testing import check_log

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "use-from-a-notebook.md"


class Kernel:
    """A kernel in a folder of its own. It shows what cells print, and interrupts them."""

    def __init__(self, folder):
        self._manager = KernelManager()
        self._manager.start_kernel(cwd=str(folder))
        self._client = self._manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=60)

    def run(self, cell, *, interrupt_at=None):
        """Run a cell, and interrupt it when it has printed a text. Returns what it printed, and the name of its error."""
        request = self._client.execute(cell)
        printed, error, interrupted = "", None, False
        while True:
            message = self._client.get_iopub_msg(timeout=60)
            content = message["content"]
            if message["msg_type"] == "stream":  # of any cell: an agent speaks in that which has opened it
                printed += content["text"]
                if interrupt_at is not None and interrupt_at in printed and not interrupted:
                    interrupted = True
                    self._manager.interrupt_kernel()
            elif message["msg_type"] == "error":
                error = content["ename"]
            elif message["parent_header"].get("msg_id") == request and content.get("execution_state") == "idle":
                return printed, error

    def close(self, *, now=False):
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=now)


SETUP = """
import asyncio, trio
from creche import *

async def never(request):
    print("asked", flush=True)
    await trio.sleep_forever()

MODEL = FunctionModel(lambda request: never(request) if "hang" in request.last_user_text else say("hello"))

async def ask(question, folder=None):
    async with open_host(model=MODEL, store=folder) as host, host.open_agent(AgentSpec("lead")) as lead:
        return (await lead.ask(question)).text
"""

OPEN = """
from contextlib import AsyncExitStack
stack = AsyncExitStack()
portal = await stack.enter_async_context(open_portal())
host = await stack.enter_async_context(portal.open(open_host(model=MODEL, store={folder!r})))
lead = await stack.enter_async_context(portal.open(host.open_agent(AgentSpec("lead"))))
"""


@pytest.fixture(scope="module")
def shared_kernel(tmp_path_factory):
    kernel = Kernel(tmp_path_factory.mktemp("kernel"))
    yield kernel
    kernel.close()


@pytest.fixture
def kernel(shared_kernel):
    assert shared_kernel.run(f"%reset -f\n{SETUP}") == ("", None)
    return shared_kernel


def turns(folder):
    """Return how the turns of the log in a folder ended. It is whole."""
    (file,) = folder.iterdir()
    (log,) = load_sessions(file).values()
    check_log(log)
    return [record.data.reason for record in log.records("turn/end")]


def test_the_cells_of_the_page_print_what_it_says(kernel):
    printed = ""
    for language, block in re.findall(r"```(python|text)\n(.*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL):
        if language == "python":
            assert printed == ""
            printed, error = kernel.run(block)
            assert error is None
        else:
            assert printed == block
            printed = ""


def test_run_sync_works_again_and_again(kernel):
    assert kernel.run("print(run_sync(ask, 'hi'), run_sync(ask, 'hi'))") == ("hello hello\n", None)
    assert kernel.run("print(run_sync(ask, 'hi'))") == ("hello\n", None)


@pytest.mark.parametrize("before", ["", "await asyncio.sleep(0); "], ids=["plain", "in a cell that awaits"])
def test_an_interrupt_ends_run_sync_and_the_kernel_goes_on(kernel, tmp_path, before):
    cell = f"{before}run_sync(ask, 'hang', {str(tmp_path)!r})"
    assert kernel.run(cell, interrupt_at="asked") == ("asked\n", "KeyboardInterrupt")
    assert turns(tmp_path) == ["cancelled"]
    assert kernel.run("print(run_sync(ask, 'hi'))") == ("hello\n", None)
    assert kernel.run("await asyncio.sleep(0); print('awaited')") == ("awaited\n", None)


def test_an_agent_lives_through_cells_and_their_interrupts(kernel, tmp_path):
    assert kernel.run(OPEN.format(folder=str(tmp_path))) == ("", None)
    assert kernel.run("print((await portal.run(lead.ask, 'hi')).text)") == ("hello\n", None)
    assert kernel.run("print(run_sync(ask, 'hi'))") == ("hello\n", None)
    assert kernel.run("await portal.run(lead.ask, 'hang')", interrupt_at="asked") == ("asked\n", "CancelledError")
    assert kernel.run("print(lead.is_busy, (await portal.run(lead.ask, 'hi')).text)") == ("False hello\n", None)
    assert kernel.run("await stack.aclose(); print(lead.is_closed)") == ("True\n", None)
    assert turns(tmp_path) == ["completed", "cancelled", "completed"]


def test_agents_work_on_between_the_cells_and_while_a_cell_computes(kernel):
    assert kernel.run(OPEN.format(folder=None)) == ("", None)
    assert kernel.run("waiting = asyncio.ensure_future(portal.run(lead.ask, 'hi'))") == ("", None)
    computing = "while lead.is_busy or not lead.session.records('turn/end'): pass"  # asyncio stands still
    assert kernel.run(computing) == ("", None)
    assert kernel.run("print((await waiting).text)") == ("hello\n", None)
    assert kernel.run("await stack.aclose()") == ("", None)


def test_a_kernel_that_is_shut_down_ends_what_is_open(tmp_path):
    kernel = Kernel(tmp_path)
    assert kernel.run(SETUP + OPEN.format(folder=str(tmp_path / "logs"))) == ("", None)
    begin = "waiting = asyncio.ensure_future(portal.run(lead.ask, 'hang')); await asyncio.sleep(0)"
    assert kernel.run(begin)[1] is None
    assert kernel.run("while not lead.is_busy: pass")[1] is None
    kernel.close()
    assert turns(tmp_path / "logs") == ["cancelled"]

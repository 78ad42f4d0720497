"""trio from plain code: what comes back, what Ctrl-C does, and what a loop of asyncio in the same thread makes of it."""

import asyncio
import contextvars
import signal

import pytest
import trio

import creche
from creche import AgentSpec, FunctionModel, open_host, say
from creche.errors import ModelError, PortalError
from creche.models import fail
from creche.models.adapters import OpenAIModel
from creche.testing import check_log, open_mock_provider

NAME = contextvars.ContextVar("NAME", default="nobody")


@pytest.fixture(autouse=True)
def _interrupts_arrive():
    """A process that a shell started in the background ignores SIGINT, and so would these tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def in_plain_code(function):
    return function()


def in_asyncio(function):
    async def main():
        result = function()
        await asyncio.sleep(0)  # the loop goes on
        return result

    return asyncio.run(main())


def in_a_thread(function):
    async def main():
        return await asyncio.to_thread(function)

    return asyncio.run(main())


def in_asyncio_in_a_thread(function):
    async def main():
        return await asyncio.to_thread(in_asyncio, function)

    return asyncio.run(main())


everywhere = pytest.mark.parametrize("run", [in_plain_code, in_asyncio, in_a_thread, in_asyncio_in_a_thread])


async def ask(model, question):
    async with open_host(model=model) as host, host.open_agent(AgentSpec("lead")) as lead:
        return await lead.ask(question)


@everywhere
def test_it_returns_what_the_function_returns(run):
    model = FunctionModel(lambda request: [say(f"hello, {request.last_user_text}")])
    assert run(lambda: creche.run_sync(ask, model, "Ada")).text == "hello, Ada"


@everywhere
def test_an_error_comes_out_as_itself(run):
    model = FunctionModel(lambda request: [fail("broken", code="credential")])
    with pytest.raises(ModelError, match="broken"):
        run(lambda: creche.run_sync(ask, model, "Ada"))


@everywhere
def test_the_function_has_the_task_context_of_the_caller(run):
    async def look():
        seen = NAME.get()
        NAME.set("somebody else")
        return seen

    def call():
        NAME.set("ada")
        return creche.run_sync(look), NAME.get()

    assert contextvars.copy_context().run(run, call) == ("ada", "ada")


@everywhere
def test_it_can_be_called_again(run):
    async def one():
        return 1

    assert run(lambda: [creche.run_sync(one) for _ in range(3)]) == [1, 1, 1]


@pytest.mark.parametrize("run", [in_plain_code, in_asyncio])
def test_ctrl_c_ends_everything_and_comes_out_as_itself(run):
    """Rule: also out of nurseries, and where asyncio has a handler of its own, which would wait for the loop."""
    agents = []

    async def interrupted(request):
        signal.raise_signal(signal.SIGINT)
        await trio.sleep_forever()

    async def main():
        async with (
            trio.open_nursery() as nursery,
            open_host(model=FunctionModel(interrupted)) as host,
            host.open_agent(AgentSpec("lead")) as lead,
        ):
            agents.append(lead)
            nursery.start_soon(trio.sleep_forever)
            await lead.ask("go")

    def call():
        before = signal.getsignal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt) as caught:
            creche.run_sync(main)
        assert type(caught.value) is KeyboardInterrupt
        assert signal.getsignal(signal.SIGINT) is before

    run(call)
    (lead,) = agents
    assert lead.is_closed
    check_log(lead.session)


def test_other_groups_are_the_functions_own():
    async def main():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)

    async def fail():
        raise ValueError("mine")

    with pytest.raises(ExceptionGroup) as caught:
        creche.run_sync(main)
    assert [repr(leaf) for leaf in caught.value.exceptions] == ["ValueError('mine')"]


def test_in_trio_it_says_to_await():
    async def one():
        return 1

    async def main():
        creche.run_sync(one)

    with pytest.raises(PortalError) as caught:
        creche.run_sync(main)
    assert str(caught.value) == (
        "run_sync() is for plain code, and trio runs in this thread already: await the function instead"
    )


def test_the_loop_of_asyncio_is_hidden_meanwhile_and_there_again():
    """What runs in trio must not find a loop that stands still."""

    async def look():
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()

    async def main():
        loop = asyncio.get_running_loop()
        for error in (None, ValueError("mine")):

            async def function(error=error):
                await look()
                if error is not None:
                    raise error

            if error is None:
                creche.run_sync(function)
            else:
                with pytest.raises(ValueError, match="mine"):
                    creche.run_sync(function)
            assert asyncio.get_running_loop() is loop

    asyncio.run(main())


def test_a_loop_that_is_woken_by_signals_is_so_again():
    """Rule: trio and asyncio do not fight for what wakes them; a warning would fail this."""

    async def main():
        loop = asyncio.get_running_loop()
        heard = asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR1, heard.set)
        assert creche.run_sync(trio.lowlevel.checkpoint) is None
        signal.raise_signal(signal.SIGUSR1)
        await heard.wait()
        loop.remove_signal_handler(signal.SIGUSR1)

    asyncio.run(main())


def test_an_ignored_interrupt_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    async def main():
        creche.run_sync(trio.lowlevel.checkpoint)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()


def test_http_works_in_trio_under_a_loop_of_asyncio():
    """The clients look for themselves which of the two they run on."""

    async def main():
        async with open_mock_provider([say("over HTTP")]) as provider:
            return (await ask(OpenAIModel("m", base_url=provider.openai_url, api_key="none"), "go")).text

    assert in_asyncio(lambda: creche.run_sync(main)) == "over HTTP"


def test_a_portal_may_be_open_beside_it(portal_threads):
    async def one():
        return 1

    async def main():
        async with creche.open_portal() as portal:
            assert creche.run_sync(one) == 1
            assert await portal.run(one) == 1

    asyncio.run(main())
    assert not portal_threads()

import pytest
import trio

from creche import AgentSpec, open_host, tool
from creche.models import ScriptedModel, call, say
from creche.testing import Canceller, cancel_at_every_step, check_log


def test_a_program_is_cancelled_at_each_of_its_steps_and_then_gets_through():
    """Rule: what a run reaches grows by one checkpoint a run, and the last run is not cancelled."""
    reached: list[tuple[int, bool]] = []

    async def program(canceller: Canceller) -> None:
        passed = 0
        with canceller:
            for _ in range(4):
                await trio.lowlevel.checkpoint()
                passed += 1
        reached.append((passed, canceller.cancel_scope.cancelled_caught))

    assert cancel_at_every_step(program) == 4
    assert reached == [(0, True), (1, True), (2, True), (3, True), (4, False)]


def test_a_program_that_takes_no_step_is_run_once():
    runs: list[Canceller] = []

    async def program(canceller: Canceller) -> None:
        with canceller:
            runs.append(canceller)

    assert cancel_at_every_step(program) == 0
    assert [(each.step, each.steps) for each in runs] == [(1, 0)]


def test_steps_outside_of_the_block_do_not_count():
    async def program(canceller: Canceller) -> None:
        await trio.lowlevel.checkpoint()
        with canceller:
            await trio.lowlevel.checkpoint()
        steps = canceller.steps
        await trio.lowlevel.checkpoint()
        assert canceller.steps == steps

    assert cancel_at_every_step(program) == 1


def test_steps_of_trios_own_tasks_do_not_count():
    """Rule: no point of the program is missed because trio was at work."""

    async def program(canceller: Canceller) -> None:
        token = trio.lowlevel.current_trio_token()
        with canceller:
            for _ in range(4):
                token.run_sync_soon(lambda: None)
                await trio.lowlevel.checkpoint()

    assert [cancel_at_every_step(program) for _ in range(10)] == [4] * 10


def test_steps_of_every_task_count():
    ended: set[int] = set()

    async def program(canceller: Canceller) -> None:
        async def count(number: int) -> None:
            for _ in range(3):
                await trio.lowlevel.checkpoint()
            ended.add(number)

        with canceller:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(count, 1)
                nursery.start_soon(count, 2)

    assert cancel_at_every_step(program) >= 8
    assert ended == {1, 2}


def test_time_is_virtual():
    async def program(canceller: Canceller) -> None:
        with canceller:
            await trio.sleep(10_000)

    assert cancel_at_every_step(program) == 1


def test_what_a_program_raises_says_at_which_step_it_was_cancelled():
    async def program(canceller: Canceller) -> None:
        with canceller:
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
        assert canceller.step != 2, "broken at the second step"

    with pytest.raises(AssertionError, match=r"^broken at the second step") as caught:
        cancel_at_every_step(program)
    assert caught.value.__notes__ == ["cancelled before task step 2"]


def test_a_program_that_takes_too_many_steps_is_given_up():
    async def program(canceller: Canceller) -> None:
        with canceller:
            for _ in range(100):
                await trio.lowlevel.checkpoint()

    with pytest.raises(AssertionError) as caught:
        cancel_at_every_step(program, limit=10)
    assert str(caught.value) == "the program takes more than 10 steps"


def test_an_error_of_the_block_comes_out_as_itself():
    async def program(canceller: Canceller) -> None:
        with canceller:
            raise ValueError("mine")

    with pytest.raises(ValueError, match=r"^mine"):
        cancel_at_every_step(program)


@tool(parallel=True)
async def wait(seconds: float) -> str:
    """Wait."""
    await trio.sleep(seconds)
    return "waited"


def test_wherever_a_turn_with_tools_is_cancelled_its_log_is_whole():
    replies: list[str] = []

    async def program(canceller: Canceller) -> None:
        waits = [call("wait", seconds=seconds) for seconds in (2, 1, 3)]
        model = ScriptedModel({"lead": [waits, say("Done.")]})
        async with open_host(model=model) as host, host.open_agent(AgentSpec("lead")) as lead:
            host.registrar.add(wait)
            with canceller:
                replies.append((await lead.ask("Go.")).text)
            await lead.wait_idle()
            check_log(lead.session)

    assert cancel_at_every_step(program) > 10
    assert set(replies) == {"Done."}

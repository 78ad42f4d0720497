"""The nursery that a caller never sees: what is the caller's comes out as it is, what is ours as a bug."""

import traceback

import pytest
import trio
import trio.testing

from creche._util import open_hidden_nursery
from creche.errors import CrecheError, InternalError


async def fail(error):
    raise error


async def test_the_tasks_are_cancelled_and_waited_for_when_the_block_ends(autojump_clock):
    ended = []

    async def linger():
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
            ended.append(trio.current_time())

    begun = trio.current_time()
    async with open_hidden_nursery("the test") as nursery:
        nursery.start_soon(linger)
        nursery.start_soon(linger)
        await trio.testing.wait_all_tasks_blocked()
    assert ended == [begun + 1, begun + 1]


async def test_a_task_that_has_ended_before_is_no_trouble():
    async with open_hidden_nursery("the test") as nursery:
        nursery.start_soon(trio.lowlevel.checkpoint)
        await trio.testing.wait_all_tasks_blocked()


@pytest.mark.parametrize(
    "error",
    [
        ValueError("mine"),
        CrecheError("mine"),
        InternalError("another bug"),
        KeyboardInterrupt(),
        SystemExit(3),
        ExceptionGroup("mine", [ValueError(1), ExceptionGroup("inner", [ValueError(2)])]),
    ],
    ids=repr,
)
async def test_the_error_of_the_block_comes_out_as_itself(error):
    """Rule: a public ``open_*`` never leaks its nursery."""
    context = LookupError("what it was raised from")
    error.__context__ = context
    raised = None
    try:
        async with open_hidden_nursery("the test") as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise error  # noqa: TRY301 - in the block is where it belongs
    except BaseException as caught:  # noqa: BLE001 - whatever comes out is what is looked at
        raised = caught
    assert raised is error
    assert (error.__cause__, error.__context__) == (None, context)


async def test_the_traceback_leads_to_the_line_of_the_block():
    try:
        async with open_hidden_nursery("the test"):
            await fail(ValueError("mine"))
    except ValueError as error:
        functions = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert functions[0] == "test_the_traceback_leads_to_the_line_of_the_block"
    assert functions[-1] == "fail"


async def test_a_task_that_crashes_is_an_internal_error_from_its_cause():
    error = ValueError("a bug")
    with pytest.raises(InternalError) as caught:  # noqa: PT012 - the whole block is what raises
        async with open_hidden_nursery("the test") as nursery:
            nursery.start_soon(fail, error)
            await trio.sleep_forever()
    assert str(caught.value) == "a task of the test crashed: ValueError('a bug')"
    assert caught.value.__cause__ is error
    assert caught.value.__suppress_context__


async def test_a_task_that_crashes_on_its_way_out_is_an_internal_error_too():
    async def crash():
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("a bug")

    with pytest.raises(InternalError, match=r"^a task of the test crashed: ValueError\('a bug'\)$"):  # noqa: PT012 - the whole block is what raises
        async with open_hidden_nursery("the test") as nursery:
            nursery.start_soon(crash)
            await trio.testing.wait_all_tasks_blocked()


async def test_tasks_that_crash_together_are_one_internal_error_from_their_group():
    with pytest.raises(InternalError) as caught:  # noqa: PT012 - the whole block is what raises
        async with open_hidden_nursery("the test") as nursery:
            nursery.start_soon(fail, ValueError(1))
            nursery.start_soon(fail, ValueError(2))
            await trio.sleep_forever()
    group = caught.value.__cause__
    assert isinstance(group, ExceptionGroup)
    assert sorted(str(error) for error in group.exceptions) == ["1", "2"]


async def test_a_crash_beside_an_error_of_the_block_hides_neither():
    mine, bug = ValueError("mine"), LookupError("a bug")
    with pytest.raises(InternalError) as caught:  # noqa: PT012 - the whole block is what raises
        async with open_hidden_nursery("the test") as nursery:
            try:
                nursery.start_soon(fail, bug)
                await trio.sleep_forever()
            finally:
                raise mine
    assert str(caught.value) == "a task of the test crashed: LookupError('a bug')"
    assert set(caught.value.__cause__.exceptions) == {mine, bug}


async def test_an_interrupt_in_a_task_comes_out_as_itself():
    interrupt = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt) as caught:  # noqa: PT012 - the whole block is what raises
        async with open_hidden_nursery("the test") as nursery:
            nursery.start_soon(fail, interrupt)
            nursery.start_soon(fail, ValueError("a bug"))
            await trio.sleep_forever()
    assert caught.value is interrupt


async def test_cancellation_from_outside_stays_cancellation():
    with trio.CancelScope() as scope:
        async with open_hidden_nursery("the test") as nursery:
            nursery.start_soon(trio.sleep_forever)
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_cancellation_that_only_tasks_saw_stays_cancellation():
    """The block ends well, and its tasks are cancelled from outside before they are by the nursery."""
    with trio.CancelScope() as scope:
        async with open_hidden_nursery("the test") as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(trio.sleep_forever)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    assert scope.cancel_called


async def test_a_cancelled_block_inside_a_scope_of_its_own_goes_on():
    async with open_hidden_nursery("the test") as nursery:
        nursery.start_soon(trio.sleep_forever)
        with trio.move_on_after(0) as scope:
            await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_an_error_of_the_block_beside_its_cancellation_comes_out_as_it_is():
    """The block has a nursery of its own, of which one task is cancelled from outside and another one fails."""
    raised = None

    async def fail_late():
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("mine")

    with trio.CancelScope() as scope:
        try:
            async with open_hidden_nursery("the test"), trio.open_nursery() as own:
                own.start_soon(fail_late)
                own.start_soon(trio.sleep_forever)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
                await trio.sleep_forever()
        except BaseExceptionGroup as group:
            raised, rest = group.split(ValueError)
            if rest is not None:
                raise rest from None
    assert [str(error) for error in raised.exceptions] == ["mine"]


async def test_hidden_nurseries_nest():
    error = ValueError("mine")
    with pytest.raises(ValueError, match=r"^mine$") as caught:
        async with open_hidden_nursery("outer"), open_hidden_nursery("middle"), open_hidden_nursery("inner"):
            raise error
    assert caught.value is error


async def test_a_crash_deep_inside_is_named_where_it_happened():
    bug = ValueError("a bug")
    with pytest.raises(InternalError) as caught:  # noqa: PT012 - the whole block is what raises
        async with open_hidden_nursery("outer"), open_hidden_nursery("inner") as nursery:
            nursery.start_soon(fail, bug)
            await trio.sleep_forever()
    assert str(caught.value) == "a task of inner crashed: ValueError('a bug')"
    assert caught.value.__cause__ is bug


@pytest.mark.filterwarnings("ignore:trio.run.*strict_exception_groups")
def test_it_does_not_depend_on_how_trio_was_started():
    """With strict groups off, a lone error comes out of a nursery bare, and a crash would pass for the caller's error."""

    async def main():
        async with open_hidden_nursery("the test") as nursery:
            nursery.start_soon(fail, ValueError("a bug"))
            await trio.sleep_forever()

    with pytest.raises(InternalError, match=r"^a task of the test crashed: ValueError\('a bug'\)$"):
        trio.run(main, strict_exception_groups=False)

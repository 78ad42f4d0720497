"""Cancelling a program at every step it takes.

A step is one stretch of one task between two checkpoints, so cancelling before step 1, 2, 3... reaches
every point at which a cancellation can arrive.
"""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

import trio
import trio.abc
import trio.testing

from creche._util import final


@final
class Canceller(trio.abc.Instrument):
    """Cancels a block at its k-th task step. A context manager: the block is what is inside.

    Args:
      step: The task step before which the block is cancelled, from 1; counted over all tasks but trio's own, which
        come and go as they like.
    """

    def __init__(self, step: int) -> None:
        self.step = step
        """The step before which it cancels."""
        self.steps: int = 0
        """How many steps there were inside the block."""
        self.cancel_scope: trio.CancelScope = trio.CancelScope()
        """The cancel scope of the block; ``cancelled_caught`` tells whether the cancellation came out."""
        self._main: trio.lowlevel.Task | None = None

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count, and cancel when it is time."""
        if self._main is not None and _top_of(task) is self._main:
            self.steps += 1
            if self.steps == self.step:
                self.cancel_scope.cancel()

    def __enter__(self) -> Self:
        self._main = _top_of(trio.lowlevel.current_task())
        self.cancel_scope.__enter__()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        self._main = None
        return self.cancel_scope.__exit__(error_type, error, traceback)


def _top_of(task: trio.lowlevel.Task) -> trio.lowlevel.Task:
    """Return the task under trio's root that a task descends from: the main task, or one of trio's own."""
    while (nursery := task.parent_nursery) is not None and nursery.parent_task.parent_nursery is not None:
        task = nursery.parent_task
    return task


def cancel_at_every_step(program: Callable[[Canceller], Awaitable[None]], *, limit: int = 10_000) -> int:
    """Run a program again and again, cancelled at its first, second, ... step, until it gets through.

    Each run is a `trio.run` of its own on a virtual clock. Trio schedules the tasks that can run in a random
    order, so what depends on that order deserves several rounds.

    Args:
      program: Given the canceller; does its work inside ``with canceller:`` and checks after it what must
        hold however far it got. What it raises has a note that says at which step it was cancelled.
      limit: Most runs.

    Returns:
      At how many steps it was cancelled.

    Raises:
      AssertionError: It did not get through within the limit.

    Example:
      Whenever the turn is cancelled, its log is whole::

          async def program(canceller):
              async with open_host(model=model) as host, host.open_agent(AgentSpec("lead")) as lead:
                  with canceller:
                      await lead.ask("Go.")
                  check_log(lead.session)


          assert cancel_at_every_step(program) >= 3
    """
    for step in range(1, limit + 1):
        canceller = Canceller(step)
        clock = trio.testing.MockClock(autojump_threshold=0)
        try:
            trio.run(program, canceller, clock=clock, instruments=[canceller])
        except BaseException as error:
            error.add_note(f"cancelled before task step {step}")
            raise
        if canceller.steps < step:
            return step - 1
    raise AssertionError(f"the program takes more than {limit} steps")

"""Asking: a message, the wait for its reply, and what becomes of the message when nobody waits any more.

A task that works for a turn carries the turn in its task context: the task that runs it, those of its tools and
subagents, and whatever these start. While such a task waits for an agent's reply, or for an agent to be idle, all of
its turns do. So waiting in a circle can be seen, and is an error instead of a deadlock.
"""

from contextvars import ContextVar
from typing import TYPE_CHECKING

import trio

from creche.errors import AgentError
from creche.tools import forget_calls

if TYPE_CHECKING:
    from ._agent import Agent
    from ._inbox import Delivery, Said
    from ._turn import Turn

turns_above: ContextVar[tuple["Turn", ...]] = ContextVar("turns_above", default=())
"""The turns that the current task works for, outermost first. Some may have ended by now."""


def forget_turns() -> None:
    """Note that the current task works for no turn and no call, whoever started it; for tasks in the host's own nursery."""
    turns_above.set(())
    forget_calls()


class Asking:
    """A message that is given up when the block is left before it is settled.

    Then it is withdrawn if no turn has claimed it; otherwise that turn is cancelled, and has settled by the end.
    """

    __slots__ = ("_agent", "_delivery", "_output", "_said", "_turns")

    def __init__(self, agent: "Agent", said: "Said", output: type[object] | None) -> None:
        self._agent = agent
        self._said = said
        self._output = output

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> "Delivery":
        turns = begin_wait(self._agent)
        try:
            self._delivery = self._agent.send(self._said, output=self._output)
        except BaseException:
            end_wait(self._agent, turns)
            raise
        self._turns = turns
        return self._delivery

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(self, *error: object) -> None:
        delivery = self._delivery
        try:
            if delivery.result is None and not delivery.claimed:
                self._agent._drop([delivery], "withdrawn")
            elif delivery.result is None:
                self._agent._cancel_turn("user")
                with trio.CancelScope(shield=True):
                    await delivery._wait()
        finally:
            end_wait(self._agent, self._turns)


def begin_wait(agent: "Agent", *, until_idle: bool = False) -> tuple["Turn", ...]:
    """Note that the turns which the current task works for wait for an agent, and return them for `end_wait`.

    Args:
      agent: Who is waited for.
      until_idle: Whether that is for the end of its turns, and nothing is asked; for the message.

    Raises:
      AgentError: The agent would have to end one of these turns first.
    """
    turns = turns_above.get()
    if turns:
        circle = _way_back(agent, turns)
        if circle:
            raise AgentError(_endless(circle, until_idle=until_idle))
        for turn in turns:
            if turn.waits_for is None:
                turn.waits_for = []
            turn.waits_for.append(agent)
    return turns


def _endless(circle: list["Agent"], *, until_idle: bool) -> str:
    path = circle[0].path
    if len(circle) > 1:
        chain = ", which waits for ".join([repr(each.path) for each in circle])
        if until_idle:
            return (
                f"agent {path!r} is not idle before one that waits for that: {chain}; each would wait for the others; "
                "wait from outside of the turn"
            )
        return (
            f"agent {path!r} was asked by one that it waits for: {chain}; each would wait for the others; "
            "use steer() or send(), or ask a subagent"
        )
    if until_idle:
        return (
            f"agent {path!r} is never idle within its own turn, so waiting for that has no end; "
            "wait from outside of the turn"
        )
    return (
        f"agent {path!r} was asked from within its own turn, which would wait for itself; "
        "use steer() or send(), or ask a subagent"
    )


def end_wait(agent: "Agent", turns: tuple["Turn", ...]) -> None:
    """Note that the wait is over."""
    for turn in turns:
        assert turn.waits_for is not None, "the wait was noted"
        turn.waits_for.remove(agent)


def _way_back(agent: "Agent", turns: tuple["Turn", ...]) -> list["Agent"]:
    """Return agents of which each waits for the next, from one to the first whose open turn is among some.

    Each agent is looked at once, however many ways lead to it.
    """
    came_from: dict[Agent, Agent | None] = {agent: None}
    to_look_at = [agent]
    while to_look_at:
        current = to_look_at.pop()
        turn = current._turn
        if turn is None:
            continue
        if turn in turns:
            return _way_to(current, came_from)
        for other in turn.waits_for or ():
            if other not in came_from:
                came_from[other] = current
                to_look_at.append(other)
    return []


def _way_to(agent: "Agent", came_from: dict["Agent", "Agent | None"]) -> list["Agent"]:
    way: list[Agent] = []
    step: Agent | None = agent
    while step is not None:
        way.append(step)
        step = came_from[step]
    return way[::-1]

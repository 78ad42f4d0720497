"""Laws of the inbox, under schedules that nobody thought of: what is accepted is read or dropped, once, and told."""

from collections import Counter
from itertools import count
from typing import Literal

import attrs
import outcome
import trio
import trio.testing
from hypothesis import given, strategies as st

from creche import AgentSpec, FunctionModel, call, open_host, say, tool
from creche.errors import AgentClosedError, TurnCancelled
from creche.models import RetryPolicy, fail
from creche.testing import RecordingModel, check_log, check_requests


@attrs.frozen
class Act:
    """One thing that a program does to the agent, after a pause."""

    pause: float
    what: Literal["send", "steer", "inject", "cancel", "keep_inbox", "ask", "stream"]
    patience: float
    """Seconds after which whoever asks goes away."""


# Pauses of zero make acts of one tick; the others fall into and between the model's and the tools' seconds.
SECONDS = st.sampled_from([0, 0, 0.5, 1, 1.5, 3, 7])
ACTS = st.lists(
    st.builds(
        Act,
        SECONDS,
        st.sampled_from(["send", "send", "steer", "inject", "cancel", "keep_inbox", "ask", "ask", "stream"]),
        SECONDS,
    ),
    max_size=25,
)
ANSWERS = st.lists(st.sampled_from(["say", "call", "fail", "give up"]), max_size=10)


class Schedule:
    """A run of some acts against an agent whose model answers in some way, and what was told to whom."""

    def __init__(self, acts, answers) -> None:
        self.acts = acts
        self.answers = list(reversed(answers))
        self.deliveries = []
        self.told = Counter()
        self.asked = []
        self.numbers = count()
        self.model = RecordingModel(FunctionModel(self._answer, retry=RetryPolicy(1, first_delay=1, jitter=0)))

    async def _answer(self, request):
        await trio.sleep(1)
        how = self.answers.pop() if self.answers else "say"
        return {
            "say": [say("done")],
            "call": [call("work"), call("work")],
            "fail": fail("once more", code="overloaded"),
            "give up": fail("no", code="credential"),
        }[how]

    async def run(self) -> None:
        """Do it all, then close the agent."""

        @tool
        async def work() -> None:
            """Work for a second."""
            await trio.sleep(1)

        async with (
            trio.open_nursery() as nursery,
            open_host(model=self.model) as host,
            host.open_agent(AgentSpec("lead", tools=[work])) as self.agent,
        ):
            for act in self.acts:
                await trio.sleep(act.pause)
                self._do(act, nursery)
            await trio.sleep(self.acts[-1].pause if self.acts else 0)

    def _do(self, act: Act, nursery: trio.Nursery) -> None:
        number = next(self.numbers)
        if act.what in ("cancel", "keep_inbox"):
            self.agent.cancel(f"cause {number}", keep_inbox=act.what == "keep_inbox")
        elif act.what in ("ask", "stream"):
            nursery.start_soon(self._ask, f"message {number}", act)
        else:
            delivery = getattr(self.agent, act.what)(f"message {number}")
            self.deliveries.append(delivery)
            delivery._when_settled = lambda: self.told.update([delivery.id])
            nursery.start_soon(self._wait, delivery)

    async def _wait(self, delivery) -> None:
        result = await outcome.acapture(delivery.reply)
        assert result == delivery.result

    async def _ask(self, text: str, act: Act) -> None:
        answer: object = None
        with trio.move_on_after(act.patience) as patience:
            try:
                if act.what == "ask":
                    answer = await self.agent.ask(text)
                else:
                    async with self.agent.stream(text) as deltas:
                        async for _ in deltas:
                            pass
                        answer = deltas.reply
            except Exception as error:  # noqa: BLE001 - whatever it was told
                answer = error
        assert (answer is None) == patience.cancelled_caught
        self._check_settled(text)
        self.asked.append(answer)

    def _check_settled(self, text: str) -> None:
        """Check that a message whose asker goes on was dropped, or that the turn which claimed it is over."""
        log = self.agent.session
        ids = {record.data.id for record in log.records("inbox/accepted") if record.data.message.text == text}
        if ids and not ids & set(ids_of(log, "inbox/dropped")):
            (turn,) = [record.turn for record in log.records("inbox/claimed") if ids & set(record.data.ids)]
            assert turn in [record.turn for record in log.records("turn/end")]


def ids_of(log, kind):
    return [each for record in log.records(kind) for each in record.data.ids]


@given(ACTS, ANSWERS)
def test_whatever_is_done_to_an_agent_every_message_is_read_or_dropped_once_and_told_once(acts, answers):
    schedule = Schedule(acts, answers)
    trio.run(schedule.run, clock=trio.testing.MockClock(autojump_threshold=0))
    log = schedule.agent.session
    check_log(log)
    check_requests(log, schedule.model.sent_by(log.id))

    accepted = [record.data for record in log.records("inbox/accepted")]
    claimed, dropped = ids_of(log, "inbox/claimed"), ids_of(log, "inbox/dropped")
    assert sorted([*claimed, *dropped]) == sorted(fact.id for fact in accepted), "each leaves the inbox once"
    said = [record.data.delivery for record in log.records("user/message")]
    assert said == claimed, "what was claimed is said, once, in the order of the claims"

    for lane in ("next-turn", "next-step"):
        in_lane = [fact.id for fact in accepted if fact.lane == lane and fact.id in claimed]
        assert [each for each in claimed if each in in_lane] == in_lane, "a lane is read in its order"

    assert [record.turn for record in log.records("turn/start")] == list(range(1, log.turn + 1))
    turn_of = {each: record.turn for record in log.records("inbox/claimed") for each in record.data.ids}
    turns = [turn_of[fact.id] for fact in accepted if fact.lane == "next-turn" and fact.id in turn_of]
    assert turns == sorted(set(turns)), "what is sent has a turn of its own, with a growing number"

    assert schedule.told == Counter([delivery.id for delivery in schedule.deliveries]), "each is told once"
    assert len(schedule.asked) == sum(act.what in ("ask", "stream") for act in acts)
    ends = {record.turn: record.data for record in log.records("turn/end")}
    causes = {each: record.data.cause for record in log.records("inbox/dropped") for each in record.data.ids}
    for delivery in schedule.deliveries:
        check_told(delivery.result, ends.get(turn_of.get(delivery.id)), causes.get(delivery.id))


def check_told(result, end, cause) -> None:
    """Check that who waited was told what the log says: how the turn ended, or why the message was dropped."""
    if isinstance(result, outcome.Value):
        assert end.reason == "completed"
    elif isinstance(result.error, AgentClosedError):
        assert cause == "closed"
    elif isinstance(result.error, TurnCancelled):
        assert result.error.cause == (cause or end.detail)
        assert end is None or end.reason == "cancelled"
    else:
        assert (end.reason, end.detail) == ("error", str(result.error))

"""Tests of the team of chapter 4; they run as a program, and with pytest."""

import tempfile

import trio
import trio.testing
from desk_4_presets import PRESETS, outbox, sorry

from creche import AgentSpec, Plugin, ScriptedModel, call, delegation, open_host, say
from creche.host import AgentOpened
from creche.models import fail
from creche.session import load_sessions, rebuild_request
from creche.testing import cancel_at_every_step, check_log
from creche.tools import Allow, Approver

LEAD = [[call("ask_writer", task="Say sorry to Dan.")], lambda request: [say(request.last_tool_text)]]
GOOD = ScriptedModel({"lead": LEAD, "lead/writer-1": [sorry(5), say("Dan has 5 euros.")]})
BROKE = ScriptedModel({"lead": LEAD, "lead/writer-1": [fail("no credit left", code="quota")]})


async def yes(request):
    return Allow()


async def yes_tomorrow(request):
    await trio.sleep(24 * 60 * 60)
    return Allow()


def open_desk(model, *bakers, **options):
    plugins = [delegation("spawn"), Plugin("baker", setup=[Approver(baker) for baker in bakers])]
    return open_host(model=model, presets=PRESETS, plugins=plugins, **options)


async def work(model, *bakers, **options):
    """Open the team, give it one task, and return the lead and its reply."""
    outbox.clear()
    async with (
        open_desk(model, *bakers, **options) as host,
        host.open_agent(AgentSpec("lead"), preset="readers") as lead,
    ):
        return lead, await lead.ask("Is anybody unhappy?")


def test_a_voucher_is_sent_if_the_baker_says_yes():
    trio.run(work, GOOD, yes)
    assert outbox == ["Dan: We are sorry. (5 euros)"]


def test_nothing_is_sent_if_nobody_answers():
    trio.run(work, GOOD)
    assert outbox == []


def test_a_baker_may_take_a_day():
    clock = trio.testing.MockClock(autojump_threshold=0)
    trio.run(work, GOOD, yes_tomorrow, clock=clock)
    assert clock.current_time() >= 24 * 60 * 60
    assert outbox == ["Dan: We are sorry. (5 euros)"]


def test_a_writer_that_fails_does_not_take_the_lead_down():
    _, reply = trio.run(work, BROKE, yes)
    assert "no credit left" in reply.text


def test_whenever_it_is_cancelled_every_log_is_whole():
    async def program(canceller):
        outbox.clear()
        logs = []
        async with open_desk(GOOD, yes) as host:
            host.registrar.on(AgentOpened, lambda event: logs.append(event.agent.session))
            async with host.open_agent(AgentSpec("lead"), preset="readers") as lead:
                with canceller:
                    await lead.ask("Is anybody unhappy?")
        for log in logs:
            check_log(log)
        assert len(outbox) <= 1

    assert cancel_at_every_step(program) > 5


def test_the_log_on_disk_says_what_the_writer_was_asked():
    with tempfile.TemporaryDirectory() as folder:
        lead, _ = trio.run(lambda: work(GOOD, yes, store=folder))
        sessions = {log.header.path: log for log in load_sessions(lead.journal.location).values()}
    assert list(sessions) == ["lead", "lead/writer-1"]
    request = rebuild_request(sessions["lead/writer-1"], step=1)
    assert request.user_texts == ["Say sorry to Dan."]


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(f"passed: {name}")

"""How the system prompt, the tools and the runtime contexts reach the log through the loop, row by row.

The decisions themselves are pure functions of `creche.session` and have their own tests. Here each situation is
brought about by an agent at work, on a route that takes a changed prompt in its history and on one that does not.
"""

from contextlib import asynccontextmanager, nullcontext
from types import SimpleNamespace

import attrs
import pytest
import trio

from creche import FunctionModel, call, say, tool
from creche.agent import BuildRequest, Enter, PreStep
from creche.errors import ModelError, TurnCancelled
from creche.messages import ToolMessage, UserMessage
from creche.models import Capabilities, ModelProvider, RetryPolicy, Settings, fail
from creche.prompt import RuntimeContext, Section
from creche.session import (
    NO_CONTEXT,
    HeaderWritten,
    SystemSaid,
    ToolReturned,
    ToolsChanged,
    UserSaid,
    rebuild_request,
)
from creche.subagents import fork
from creche.testing import RecordingModel, system_texts

CAPABLE = Capabilities(system_prompt_update="in-history")
BOTH = pytest.mark.parametrize("capable", [False, True], ids=["incapable", "capable"])


@tool
async def look() -> str:
    """Look around."""
    return "a tree"


@tool
async def listen() -> str:
    """Listen."""
    return "a bird"


def hello(request):
    return [say("hi")]


@pytest.fixture
def prompted(lead):
    """Open an agent whose system prompt is exactly ``opened.text``, and whose news can be asked for."""

    @asynccontextmanager
    async def open_prompted(answer=hello, *, capable=False, tool_update=None, **spec):
        capabilities = Capabilities(system_prompt_update="in-history" if capable else None, tool_update=tool_update)
        model = FunctionModel(answer, capabilities=capabilities, retry=RetryPolicy(1, jitter=0))
        async with lead(model, **spec) as opened:
            box = SimpleNamespace(text="A", read=0, pen=opened.pen, **attrs.asdict(opened, recurse=False))
            opened.pen.add(Section("whole", order=0, text=lambda context: box.text, complete=True))

            async def ask(text=None):
                """Ask once, with this prompt, and return what the log newly says of prompts, headers and tools."""
                box.text = box.text if text is None else text
                await opened.agent.ask("hello")
                return news()

            def news():
                records = opened.agent.session.records()[box.read :]
                box.read = len(opened.agent.session)
                return [each for each in map(_short, records) if each is not None]

            box.ask, box.news = ask, news
            yield box

    return open_prompted


def _short(record):
    data = record.data
    if isinstance(data, SystemSaid):
        return ("replace" if record.shadows else "append", data.message.text)
    if isinstance(data, HeaderWritten):
        return ("header", data.reason, data.starts_series)
    if isinstance(data, ToolsChanged):
        return ("tools", data.message.additions, data.message.removals)
    return None


# ---------------------------------------------------------------- the prompt


@BOTH
async def test_the_first_step_appends_the_prompt_and_an_initial_header(prompted, capable):
    async with prompted(capable=capable) as it:
        assert await it.ask("A") == [("append", "A"), ("header", "initial", False)]
        assert it.agent.session.surface()[0].kind == "system/message"


@BOTH
async def test_an_empty_first_prompt_reserves_its_place_and_says_nothing(prompted, capable):
    async with prompted(capable=capable) as it:
        assert await it.ask("") == [("append", ""), ("header", "initial", False)]
        assert [message.role for message in it.agent.session.derive_messages()] == ["user", "assistant"]


@BOTH
async def test_an_unchanged_prompt_says_nothing_again(prompted, capable):
    async with prompted(capable=capable) as it:
        await it.ask("A")
        assert await it.ask("A") == []


async def test_a_changed_prompt_replaces_the_head_on_an_incapable_route_and_starts_a_series(prompted):
    async with prompted() as it:
        await it.ask("A")
        assert await it.ask("B") == [("replace", "B"), ("header", "series", False)]
        assert it.agent.session.derive_messages()[0].text == "B"
        assert it.agent.session.generation == 1


async def test_a_changed_prompt_is_appended_on_a_capable_route_which_needs_no_header(prompted):
    async with prompted(capable=True) as it:
        await it.ask("A")
        assert await it.ask("B") == [("append", "B")]
        assert system_texts(it.agent.session) == ["A", "B"]
        assert it.agent.session.generation == 0
        assert await it.ask("B") == []


async def test_a_changed_prompt_stands_before_the_message_that_it_came_with(prompted):
    async with prompted(capable=True) as it:
        await it.ask("A")
        await it.ask("B")
        roles = [message.role for message in it.agent.session.derive_messages()]
        assert roles == ["system", "user", "assistant", "system", "user", "assistant"]


async def test_a_series_that_a_wrapper_asks_for_says_everything_at_the_head(prompted, autojump_clock):
    async def fresh(event, following):
        return Enter((await following()).messages, starts_series=True)

    def answer(request):
        return fail() if len(it.model.sent) == 3 else [say("hi")]

    async with prompted(answer, capable=True) as it:
        await it.ask("A")
        await it.ask("B")
        with it.pen.wrap(PreStep, fresh):
            # The attempt fails; the series begins with the first attempt alone.
            assert await it.ask("B") == [("replace", ""), ("replace", "B"), ("header", "series", False)]
        assert len(it.model.sent) == 4
        assert system_texts(it.agent.session) == ["B", ""]
        assert await it.ask("B") == []


@BOTH
async def test_an_emptied_prompt_is_emptied_once(prompted, capable):
    async with prompted(capable=capable) as it:
        await it.ask("A")
        await it.ask("B")
        emptied = [("replace", ""), ("replace", "")] if capable else [("replace", "")]
        assert await it.ask("") == [*emptied, ("header", "series", False)]
        assert await it.ask("") == []
        assert [message.role for message in it.agent.session.derive_messages()] == ["user", "assistant"] * 4


@BOTH
async def test_a_prompt_that_comes_back_is_appended_where_the_route_takes_that(prompted, capable):
    async with prompted(capable=capable) as it:
        await it.ask("A")
        await it.ask("")
        if capable:
            assert await it.ask("A") == [("append", "A")]
            assert system_texts(it.agent.session) == ["", "A"]
        else:
            assert await it.ask("A") == [("replace", "A"), ("header", "series", False)]
            assert system_texts(it.agent.session) == ["A"]


@BOTH
async def test_whatever_took_a_place_in_the_history_makes_the_next_request_say_all_at_the_head(prompted, capable):
    """Rule: such as a compaction, or a result that was cut down: the cache is lost in any case."""

    def answer(request):
        return [say("hi")] if request.last_tool_text else [call("look")]

    async with prompted(answer, capable=capable, tools=[look]) as it:
        await it.ask("A")
        changed = await it.ask("B")
        assert changed == ([("append", "B")] if capable else [("replace", "B"), ("header", "series", False)])

        async def cut_down(event, following):
            log = it.agent.session
            (result,) = log.records("tool/result")
            short = ToolMessage(result.data.message.call_id, name="look", parts="(cut)")
            log.append(ToolReturned(short), replace=(result.seq, result.seq))
            return await following()

        with it.pen.wrap(PreStep, cut_down):
            consolidated = [("replace", ""), ("replace", "B")] if capable else []
            assert await it.ask("B") == [*consolidated, ("header", "series", False)]
        assert await it.ask("B") == []


async def test_a_compaction_that_shadows_later_prompts_leaves_the_head_which_says_all(prompted):
    async with prompted(capable=True) as it:
        await it.ask("A")
        await it.ask("B")

        async def compact(event, following):
            log = it.agent.session
            nodes = log.surface()
            summary = UserSaid(UserMessage("They said hello.", source="plugin:compaction"))
            log.append(summary, replace=(nodes[1].seq, nodes[-1].seq))
            return await following()

        with it.pen.wrap(PreStep, compact):
            assert await it.ask("B") == [("replace", "B"), ("header", "series", False)]
        assert [message.role for message in it.agent.session.derive_messages()] == [
            "system",
            "user",
            "user",
            "assistant",
        ]


@BOTH
async def test_another_provider_starts_no_series_and_its_own_capability_decides(prompted, capable):
    other = RecordingModel(FunctionModel(hello, provider="other", capabilities=Capabilities() if capable else CAPABLE))

    async def switch(event, following):
        return Settings("other", model="big")

    async with prompted(capable=capable) as it:
        other.sent = it.model.sent
        it.host.registrar.add(ModelProvider("other", model=other))
        await it.ask("A")
        with it.pen.wrap(BuildRequest, switch):
            assert await it.ask("A") == [("header", "change", False)]
            changed = [("replace", "B"), ("header", "series", False)] if capable else [("append", "B")]
            assert await it.ask("B") == changed


@BOTH
async def test_a_fork_takes_the_prompts_along_and_goes_on_in_the_same_way(prompted, capable):
    async with prompted(capable=capable) as it:
        await it.ask("A")
        await it.ask("B")
        await fork(it.agent, "go on", name="heir")
        log = it.agents[-1].session
        own = [each for each in map(_short, log.records()[log.boundary :]) if each is not None]
        assert own == [("header", "resume", False)]
        assert system_texts(log) == (["A", "B"] if capable else ["B"])


# ---------------------------------------------------------------- tools


async def test_new_tools_are_a_changed_header(prompted):
    async with prompted() as it:
        await it.ask("A")
        with it.pen.add(look):
            assert await it.ask("A") == [("header", "change", False)]
            assert await it.ask("A") == []
        assert await it.ask("A") == [("header", "change", False)]


async def test_new_tools_on_a_route_that_cannot_be_told_say_the_prompt_at_the_head(prompted):
    async with prompted(capable=True) as it:
        await it.ask("A")
        await it.ask("B")
        it.pen.add(look)
        assert await it.ask("B") == [("replace", ""), ("replace", "B"), ("header", "change", True)]


async def test_a_route_that_can_be_told_of_tools_is(prompted):
    async with prompted(capable=True, tool_update="addition-only", tools=[listen]) as it:
        await it.ask("A")
        await it.ask("B")
        with it.pen.add(look):
            assert await it.ask("B") == [("header", "change", False), ("tools", ("look",), ())]
            (record,) = it.agent.session.records("tools/changed")
            assert it.agent.session.records()[record.data.header].kind == "request/header"
        assert await it.ask("B") == [("header", "change", False), ("tools", (), ("look",))]
        assert it.agent.session.records("tools/changed")[1].data.header is None
        assert system_texts(it.agent.session) == ["A", "B"]


async def test_a_tool_defined_anew_under_its_name_is_a_changed_header_without_an_announcement(prompted):
    @tool(name="look", description="Look twice.")
    async def look_again() -> str:
        return "two trees"

    async with prompted(tool_update="addition-only") as it:
        with it.pen.add(look):
            await it.ask("A")
        it.pen.add(look_again)
        assert await it.ask("A") == [("header", "change", False)]


# ---------------------------------------------------------------- attempts that do not come off


@pytest.mark.parametrize("where", ["BuildRequest", "BuildRequest, unnoticed", "prepare"])
async def test_cancelling_before_the_call_is_prepared_leaves_an_empty_step(lead, kinds, ends, where):
    """Rule: nothing of a request is in the log before its call is prepared: no prompt, no user, no header."""

    class Preparing:
        provider = model = "function"
        limiter = None
        _inner = FunctionModel(hello)

        async def prepare(self, settings, /):
            if where == "prepare":
                opened.agent.cancel("enough")
                await trio.lowlevel.checkpoint()
            return await self._inner.prepare(settings)

        def stream(self, request, /):
            return self._inner.stream(request)

    async def cancel(event, following):
        if where != "prepare":
            opened.agent.cancel("enough")
        if where == "BuildRequest":
            await trio.lowlevel.checkpoint()
        return await following()

    async with lead(Preparing()) as opened:
        opened.pen.wrap(BuildRequest, cancel)
        with pytest.raises(TurnCancelled):
            await opened.agent.ask("hello")
        assert kinds(opened.agent.session) == [
            "inbox/accepted",
            "turn/start",
            "inbox/claimed",
            "step/start",
            "step/end",
            "turn/end",
        ]
        assert ends(opened.agent.session) == [("cancelled", "enough")]
        assert opened.sent() == []


@BOTH
async def test_a_retry_says_the_prompt_of_its_step_and_everything_else_once(prompted, capable, autojump_clock):
    def answer(request):
        it.text = "C"  # too late for this step
        return fail() if len(it.model.sent) == 2 else [say("hi")]

    async with prompted(answer, capable=capable) as it:
        await it.ask("A")
        changed = await it.ask("B")
        assert changed == ([("append", "B")] if capable else [("replace", "B"), ("header", "series", False)])
        assert it.model.sent[1].canonical == it.model.sent[2].canonical


async def test_a_failed_turn_has_said_its_prompt_all_the_same(prompted):
    async with prompted(lambda request: fail(code="credential")) as it:
        with pytest.raises(ModelError):
            await it.ask("A")
        assert it.news() == [("append", "A"), ("header", "initial", False)]
        with pytest.raises(ModelError):
            await it.ask("A")
        assert it.news() == []


# ---------------------------------------------------------------- runtime contexts


def snapshots(log):
    return [
        record.data.message.text
        for record in log.records("user/message")
        if record.data.message.source == "runtime-context"
    ]


async def test_a_snapshot_is_said_when_it_is_new_and_when_it_has_changed(prompted):
    async with prompted() as it:
        await it.ask()
        assert snapshots(it.agent.session) == []
        weather = "It rains."
        context = it.pen.add(RuntimeContext("weather", order=300, text=lambda context: weather))
        await it.ask()
        await it.ask()
        assert ["It rains." in text for text in snapshots(it.agent.session)] == [True]
        weather = "The sun shines."
        await it.ask()
        assert ["The sun shines." in text for text in snapshots(it.agent.session)] == [False, True]
        context.undo()
        await it.ask()
        await it.ask()
        assert snapshots(it.agent.session)[2:] == [NO_CONTEXT]


async def test_a_snapshot_that_was_shadowed_or_left_out_is_said_again(prompted):
    async def leave_out(event, following):
        decision = await following()
        return attrs.evolve(decision, messages=decision.messages[:1])

    async def shadow(event, following):
        log = it.agent.session
        (seq,) = [node.seq for node in log.surface() if node.data == said]
        log.append(UserSaid(UserMessage("(cut)", source="plugin:compaction")), replace=(seq, seq))
        return await following()

    async with prompted() as it:
        it.pen.add(RuntimeContext("weather", order=300, text="It rains."))
        with it.pen.wrap(PreStep, leave_out):
            await it.ask()
        assert snapshots(it.agent.session) == []
        await it.ask()
        (record,) = [
            record
            for record in it.agent.session.records("user/message")
            if record.data.message.source == "runtime-context"
        ]
        said = record.data
        with it.pen.wrap(PreStep, shadow):
            await it.ask()
        # It was decided before the wrapper took it away, so it is the next step that says it again.
        assert len(snapshots(it.agent.session)) == 1
        await it.ask()
        assert len(snapshots(it.agent.session)) == 2


async def test_every_request_of_a_long_session_can_be_rebuilt(prompted, autojump_clock):
    """Rule: what the model sees is in the log, also when prompt, tools and contexts change and attempts fail."""
    failed = set()

    def answer(request):
        turn = it.agent.session.turn
        if turn % 3 == 0 and turn not in failed:
            failed.add(turn)
            return fail()
        return [call("look")] if request.tools and request.messages[-1].role != "tool" else [say("hi")]

    async with prompted(answer, capable=True, tool_update="in-history") as it:
        it.pen.add(RuntimeContext("turn", order=300, text=lambda context: f"Part {context.agent.session.turn // 2}."))
        for number in range(12):
            with it.pen.add(look) if number % 4 < 2 else nullcontext():
                await it.ask("" if number == 7 else f"Prompt {number // 3}")
        assert len(it.model.sent) == 12 + 6 + 4
        last = rebuild_request(it.agent.session, 1).canonical_bytes()
        assert last == it.model.sent[-1].canonical

"""A model that follows a script."""

import pytest

from creche.errors import ModelError, ScriptExhaustedError
from creche.messages import TextPart
from creche.models import Finished, ScriptedModel, Settings, call, fail, say


async def said(ask, model, path, session=None):
    return (await ask(model, path=path, session=session)).text


# ---------------------------------------------------------------- items


async def test_each_attempt_takes_the_next_item(ask):
    model = ScriptedModel({"lead": [say("a"), [say("b"), call("read")], lambda request: say(request.last_user_text)]})
    first, second, third = [await ask(model, text) for text in ("x", "y", "z")]
    assert (first.text, second.text, third.text) == ("a", "b", "z")
    assert [each.name for each in second.tool_calls] == ["read"]


async def test_a_failure_takes_an_item_too(ask, stream):
    model = ScriptedModel({"lead": [fail("down"), say("up")]})
    with pytest.raises(ModelError) as caught:
        await stream(model)
    assert (str(caught.value), caught.value.provider) == ("down", "scripted")
    assert (await ask(model)).text == "up"


async def test_a_function_of_a_script_may_be_async_and_give_a_list(ask):
    async def answer(request):
        return [say("a"), say("b")]

    assert (await ask(ScriptedModel({"lead": [answer]}))).parts == (TextPart("ab"),)


async def test_an_empty_list_says_nothing(stream):
    assert await stream(ScriptedModel({"lead": [[]]})) == [Finished()]


async def test_items_may_come_from_any_iterable(ask):
    model = ScriptedModel({"lead": (each for each in [say("a"), iter([say("b")])])})
    assert [(await ask(model)).text for _ in "ab"] == ["a", "b"]


# ---------------------------------------------------------------- patterns


@pytest.mark.parametrize(
    ("pattern", "paths", "others"),
    [
        ("lead", ["lead"], ["", "leader", "lead/a", "a/lead"]),
        ("*", ["lead", ""], ["lead/a"]),
        ("lead/*", ["lead/a", "lead/b-1"], ["lead", "lead/a/b", "x/a"]),
        ("*/a", ["lead/a"], ["a", "lead/b", "x/y/a"]),
        ("**", ["", "lead", "lead/a/b/c"], []),
        ("lead/**", ["lead", "lead/a", "lead/a/b"], ["x", "x/lead"]),
        ("**/a", ["a", "x/a", "x/y/a"], ["a/x", "b"]),
        ("lead/**/a", ["lead/a", "lead/x/a", "lead/x/y/a"], ["lead", "a", "lead/a/x"]),
        ("**/a/**/b/**", ["a/b", "x/a/y/b/z"], ["b/a", "a"]),
        ("*/**", ["a", "a/b"], []),
    ],
)
async def test_a_pattern_matches_by_segment(ask, pattern, paths, others):
    """Rule: ``*`` is one segment, ``**`` any number."""
    model = ScriptedModel({pattern: [say("yes")]})
    for path in paths:
        assert await said(ask, model, path) == "yes"
    for path in others:
        with pytest.raises(ScriptExhaustedError) as caught:
            await said(ask, model, path)
        assert str(caught.value) == f"no pattern of the script matches agent {path!r}; patterns: {pattern!r}"
        assert caught.value.path == path


@pytest.mark.parametrize(
    "patterns",
    [
        [
            "lead/a",
            "lead/*",
            "lead/**",
            "*/*",
            "*/**",
            "**/**",
        ],
        ["lead/a", "**/a", "*/*", "*", "**"],
        ["lead/**/a", "**/a", "**"],
        ["**/lead/**", "*/*/*", "*/**/*", "**"],
    ],
)
async def test_the_most_specific_pattern_wins_in_whatever_order_they_are_written(ask, patterns):
    """Rule: most literal segments, then most ``*``, then fewest ``**``."""
    for script in (patterns, patterns[::-1]):
        model = ScriptedModel({pattern: [say(pattern)] * 9 for pattern in script})
        for path in ("lead", "lead/a", "lead/a/b", "x/a", "x"):
            matching = [pattern for pattern in patterns if await matches(ask, pattern, path)]
            if matching:
                assert await said(ask, model, path) == matching[0]


async def matches(ask, pattern, path):
    try:
        await said(ask, ScriptedModel({pattern: [say("yes")]}), path)
    except ScriptExhaustedError:
        return False
    return True


async def test_of_two_that_are_as_specific_the_first_wins(ask):
    for patterns in (["lead/*", "*/a"], ["*/a", "lead/*"]):
        assert (
            await said(ask, ScriptedModel({pattern: [say(pattern)] for pattern in patterns}), "lead/a") == patterns[0]
        )


# ---------------------------------------------------------------- cursors


async def test_each_agent_has_a_cursor_of_its_own(ask):
    model = ScriptedModel({"**": [say("1"), say("2")]})
    assert [await said(ask, model, path) for path in ("a", "b", "a", "b")] == ["1", "1", "2", "2"]


async def test_agents_that_have_no_session_are_told_apart_by_their_paths(ask):
    model = ScriptedModel({"**": [say("1"), say("2")]})
    assert [await said(ask, model, path, session="") for path in ("a", "b", "a")] == ["1", "1", "2"]


async def test_two_agents_of_one_path_are_told_apart_by_their_sessions(ask):
    """Rule: paths repeat, when a child is started anew under the same name."""
    model = ScriptedModel({"**": [say("1"), say("2")]})
    assert [await said(ask, model, "a", session=session) for session in ("x", "y", "x")] == ["1", "1", "2"]


@pytest.mark.parametrize(("count", "shown"), [(0, "0 items"), (1, "1 item"), (2, "2 items")])
async def test_an_exhausted_script_says_who_asked_for_what(ask, count, shown):
    model = ScriptedModel({"lead": [say("a")] * count})
    for _ in range(count):
        await ask(model)
    with pytest.raises(ScriptExhaustedError) as caught:
        await ask(model, "first", "x" * 100)
    error = caught.value
    assert str(error) == (
        f"the script has {shown} for agent 'lead', which asks for number {count + 1}; last said to it: {'x' * 80!r}"
    )
    assert (error.path, error.code, error.provider, error.retryable) == ("lead", "script-exhausted", "scripted", False)


async def test_a_script_without_patterns_matches_nobody(ask):
    with pytest.raises(
        ScriptExhaustedError, match=r"^no pattern of the script matches agent 'lead'; patterns: \(none\)$"
    ):
        await ask(ScriptedModel({}))


# ---------------------------------------------------------------- nonsense


@pytest.mark.parametrize("script", [[say("a")], "abc", None])
def test_a_script_says_for_whom_it_is(script):
    with pytest.raises(TypeError) as caught:
        ScriptedModel(script)
    assert str(caught.value) == (
        f"a script is a dict from paths of agents to lists of items, not {script!r}; write ScriptedModel({{'lead': [...]}})"
    )


@pytest.mark.parametrize("items", [say("a"), "abc", None, 5, {"a": 1}])
def test_a_script_is_a_list_of_items(items):
    with pytest.raises(TypeError) as caught:
        ScriptedModel({"lead": items})
    assert str(caught.value) == f"the script for 'lead' is {items!r}; expected a list of items"


def test_an_item_that_is_none_is_refused_when_it_is_written():
    with pytest.raises(TypeError) as caught:
        ScriptedModel({"lead": [say("a"), "b"]})
    assert str(caught.value) == (
        "item 2 of the script for 'lead' gave 'b'; expected say(...), call(...), fail(...) or a list of them"
    )


async def test_a_function_of_a_script_that_answers_nonsense_is_named(ask):
    with pytest.raises(TypeError) as caught:
        await ask(ScriptedModel({"**": [lambda request: None]}), path="lead/a")
    assert str(caught.value) == (
        "item 1 of the script for 'lead/a' gave None; expected say(...), call(...), fail(...) or a list of them"
    )


# ---------------------------------------------------------------- the seam


async def test_it_is_a_model_of_the_provider_scripted():
    model = ScriptedModel({}, limit=2)
    settings = Settings("scripted", model="scripted")
    assert (model.provider, model.model, model.limiter.total_tokens) == ("scripted", "scripted", 2)
    assert (await model.prepare(settings)).settings is settings

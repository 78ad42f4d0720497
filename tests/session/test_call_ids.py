"""The ids of a session's calls, shared with what it was forked from."""

import hypothesis.strategies as st
from hypothesis import given

from creche.session._state import CallIds

IDS = st.sampled_from(["a", "b", "c", "d", "call-0"])
ACTS = st.lists(st.tuples(st.integers(0, 5), st.just("fork") | IDS), max_size=30)


@given(ACTS)
def test_they_are_those_of_a_set_that_a_fork_copies(acts):
    """Law: every session knows its own ids and those that were there when it was forked, and no others."""
    sessions = [(CallIds(), list[str]())]
    for number, act in acts:
        ids, model = sessions[number % len(sessions)]
        if act == "fork":
            sessions.append((CallIds(ids, len(ids)), list(model)))
        else:
            ids.add(act)
            model += [act] if act not in model else []
    for ids, model in sessions:
        assert list(ids) == model
        assert len(ids) == len(model)
        assert [each in ids for each in ("a", "b", "c", "d", "call-0", "e")] == [
            each in model for each in ("a", "b", "c", "d", "call-0", "e")
        ]


def test_what_is_no_text_is_not_among_them():
    ids = CallIds()
    ids.add("a")
    assert 5 not in ids
    assert None not in ids

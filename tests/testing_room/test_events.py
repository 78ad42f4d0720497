from typing import ClassVar

import attrs
import pytest

from creche import AgentSpec, open_host
from creche.errors import RegistryError
from creche.models import ScriptedModel, say
from creche.scope import Notification, Owner, Registry, ScopeKey, bind_scope_parent, make_registrar
from creche.session import RecordAppended
from creche.testing import record_events


@attrs.frozen
class Ping(Notification):
    wire_name: ClassVar[str] = "test/ping"
    text: str


@attrs.frozen
class Pong(Notification):
    wire_name: ClassVar[str] = "test/pong"
    text: str


@pytest.fixture
def tree():
    registry = Registry()
    above, here, below = map(ScopeKey, ("above", "here", "below"))
    bind_scope_parent(here, above)
    bind_scope_parent(below, here)
    return registry, make_registrar(registry, Owner("test"), here), above, here, below


def test_what_is_dispatched_at_a_scope_and_below_it_is_heard(tree):
    registry, pen, above, here, below = tree
    with record_events(pen, Ping) as heard:
        for scope in (None, above, here, below, ScopeKey("beside")):
            registry.emit(Ping(repr(scope)), at=scope)
    assert heard == [Ping(repr(here)), Ping(repr(below))]


def test_several_classes_are_heard_in_one_list_in_the_order_of_dispatch(tree):
    registry, pen, _, here, _ = tree
    events = [Ping("a"), Pong("b"), Ping("c")]
    with record_events(pen, Ping, Pong) as heard:
        for event in events:
            registry.emit(event, at=here)
    assert heard == events


def test_only_the_classes_that_are_named_are_heard(tree):
    registry, pen, _, here, _ = tree
    with record_events(pen, Ping) as heard:
        registry.emit(Pong("a"), at=here)
    assert heard == []


def test_nothing_is_heard_after_the_block_and_nothing_stays_registered(tree):
    registry, pen, _, here, _ = tree
    with record_events(pen, Ping, Pong) as heard:
        pass
    registry.emit(Ping("late"), at=here)
    assert heard == []
    assert registry.scopes() == ()


def test_a_block_that_raises_leaves_nothing_registered(tree):
    registry, pen, *_ = tree
    with pytest.raises(ValueError, match=r"^mine$"), record_events(pen, Ping):
        raise ValueError("mine")
    assert registry.scopes() == ()


def test_a_class_that_is_no_notification_leaves_nothing_registered(tree):
    """Rule: all classes are heard, or none."""
    registry, pen, *_ = tree
    with pytest.raises(RegistryError, match=r"is not a class of Notification"), record_events(pen, Ping, int):
        raise AssertionError
    assert registry.scopes() == ()


def test_hearing_no_class_is_refused(tree):
    with pytest.raises(TypeError) as caught, record_events(tree[1]):
        raise AssertionError
    assert str(caught.value) == "record_events() without a class of event hears nothing; give it at least one"


async def test_the_records_of_an_agent_are_heard():
    model = ScriptedModel({"lead": [say("Hello.")]})
    async with open_host(model=model) as host, host.open_agent(AgentSpec("lead")) as lead:
        with record_events(host.registrar.at(lead.scope), RecordAppended) as heard:
            await lead.ask("Go.")
        assert [event.record for event in heard] == list(lead.session.records())
        assert heard[0].record.kind == "inbox/accepted"

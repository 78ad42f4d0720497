import abc
import pickle
import sys
import types

import attrs
import pytest

from creche._util import NoPublicConstructor, final, publish


@pytest.fixture
def room(monkeypatch):
    """A room with one private module, and what its door holds."""
    door, private = types.ModuleType("some_room"), types.ModuleType("some_room._work")
    monkeypatch.setitem(sys.modules, door.__name__, door)
    monkeypatch.setitem(sys.modules, private.__name__, private)
    exec("class Work: pass\ndef work(): pass\nclass _Hidden: pass\nvalue = Work()", vars(private))
    vars(door).update({key: item for key, item in vars(private).items() if not key.startswith("__")})
    return door


def test_classes_and_functions_of_a_door_get_its_path(room):
    publish(vars(room), "some_room")
    assert (room.Work.__module__, room.work.__module__) == ("some_room", "some_room")


def test_a_published_class_pickles_under_its_public_path(room):
    publish(vars(room), "some_room")
    assert b"some_room._work" not in pickle.dumps(room.value)
    assert isinstance(pickle.loads(pickle.dumps(room.value)), room.Work)


def test_private_names_and_values_keep_their_path(room):
    publish(vars(room), "some_room")
    assert room._Hidden.__module__ == "some_room._work"
    assert "__module__" not in vars(room.value)


def test_what_only_passes_through_a_door_keeps_its_path(room):
    elsewhere = type("Guest", (), {"__module__": "some_roommate._work"})
    room.Guest, room.deque = elsewhere, pytest.importorskip("collections").deque
    publish(vars(room), "some_room")
    assert elsewhere.__module__ == "some_roommate._work"
    assert room.deque.__module__ == "collections"


def test_publishing_twice_changes_nothing(room):
    publish(vars(room), "some_room")
    publish(vars(room), "some_room")
    assert room.Work.__module__ == "some_room"


def test_a_final_class_refuses_a_subclass():
    @final
    class Leaf:
        pass

    with pytest.raises(TypeError) as caught:
        type("Sub", (Leaf,), {})
    assert str(caught.value) == (
        f"{__name__}.test_a_final_class_refuses_a_subclass.<locals>.Leaf is final, Sub cannot subclass it; hold one instead"
    )
    assert Leaf.__final__ is True


def test_a_final_class_may_have_a_base():
    class Root:
        pass

    @final
    class Leaf(Root):
        pass

    class Other(Root):
        pass

    assert issubclass(Leaf, Root)
    assert issubclass(Other, Root)


def test_final_refuses_with_class_arguments_too():
    @final
    class Leaf:
        pass

    with pytest.raises(TypeError, match="is final"):
        types.new_class("Sub", (Leaf,), {"option": 1})


@final
@attrs.define(eq=False)
class Handle(metaclass=NoPublicConstructor):
    """An attrs class with slots, which attrs builds twice."""

    name: str
    size: int = attrs.field(default=0, kw_only=True)

    def described(self):
        return f"{__class__.__name__} {self.name}"


def test_a_handle_with_slots_is_made_by_create_alone():
    with pytest.raises(TypeError) as caught:
        Handle("a")
    assert str(caught.value) == f"{__name__}.Handle has no public constructor; call what opens or returns one"
    handle = Handle._create("a", size=2)
    assert (handle.name, handle.size, handle.described()) == ("a", 2, "Handle a")
    assert type(handle) is Handle


def test_a_handle_with_slots_keeps_its_slots():
    with pytest.raises(AttributeError):
        Handle._create("a").other = 1


def test_a_handle_with_slots_is_final():
    with pytest.raises(TypeError, match=r"Handle is final, Sub cannot subclass it; hold one instead"):
        NoPublicConstructor("Sub", (Handle,), {})


def test_create_is_no_attribute_of_the_handle():
    assert not hasattr(Handle._create("a"), "_create")


def test_create_checks_its_arguments_as_a_constructor_does():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'name'"):
        Handle._create()


def test_a_handle_may_implement_an_abstract_class():
    class Closes(abc.ABC):
        @abc.abstractmethod
        def close(self): ...

    class Open(Closes, metaclass=NoPublicConstructor):
        pass

    class File(Open):
        def close(self):
            return "closed"

    assert File._create().close() == "closed"
    with pytest.raises(TypeError, match="abstract"):
        Open._create()

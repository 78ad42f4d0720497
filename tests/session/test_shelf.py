import pytest

from creche.session import Shelf


def shelf_of(*items, prefix=None):
    shelf = Shelf(prefix)
    for item in items:
        shelf.append(item)
    return shelf


@pytest.fixture
def forked():
    """A shelf of `cdef` over the first two of `abXY`."""
    return shelf_of("c", "d", "e", "f", prefix=shelf_of("a", "b", "X", "Y").view(2))


def test_a_view_does_not_see_what_comes_after_it():
    """Rule: a view is bounded by the length at which it was taken."""
    shelf = shelf_of("a")
    view = shelf.view()
    shelf.append("b")
    assert (list(view), list(shelf.view())) == (["a"], ["a", "b"])


def test_a_shelf_begins_with_what_it_shares(forked):
    """Rule: a fork reads as its parent's prefix and then its own items, however it is read."""
    view = forked.view()
    assert list(view) == list("abcdef")
    assert [view[position] for position in range(-6, 6)] == list("abcdefabcdef")
    assert list(reversed(view)) == list("fedcba")
    assert (view[1:4], view[::-2], view[9:]) == (("b", "c", "d"), ("f", "d", "b"), ())
    assert (len(view), "d" in view, view.index("d"), "X" in view) == (6, True, 3, False)


def test_the_parent_and_the_fork_grow_apart():
    parent = shelf_of("a", "b")
    child = shelf_of("c", prefix=parent.view())
    before = child.view()
    parent.append("X")
    child.append("d")
    assert (list(parent.view()), list(child.view()), list(before)) == (list("abX"), list("abcd"), list("abc"))


@pytest.mark.parametrize(
    ("length", "text"), [(-1, ""), (0, ""), (1, "a"), (2, "ab"), (3, "abc"), (6, "abcdef"), (7, "abcdef")]
)
def test_a_view_can_be_shortened_and_not_lengthened(forked, length, text):
    view = forked.view().first(length)
    assert (list(view), len(view)) == (list(text), len(text))
    assert list(forked.view(length)) == list(text)


def test_a_shortened_view_stays_short():
    shelf = shelf_of("a", "b", "c")
    short = shelf.view().first(1)
    assert list(short.first(3)) == ["a"]


def test_a_shelf_without_items_of_its_own_gives_the_view_it_was_made_from():
    prefix = shelf_of("a").view()
    assert Shelf(prefix).view() is prefix


@pytest.mark.parametrize("position", [6, -7])
def test_a_position_outside_of_the_view_is_named(forked, position):
    with pytest.raises(IndexError) as caught:
        forked.view()[position]
    assert str(caught.value) == f"there is no position {position} in a view of 6"


def test_forks_of_forks_of_forks_read_without_recursion():
    """Rule: reading costs no stack, however long the line of descent is."""
    shelf = shelf_of(0)
    for number in range(1, 3000):
        shelf = shelf_of(number, prefix=shelf.view())
    view = shelf.view()
    assert list(view) == list(range(3000))
    assert (view[0], view[1], list(view.first(2)), list(shelf.view(1))) == (0, 1, [0, 1], [0])


def test_views_are_equal_by_contents(forked):
    view = forked.view()
    assert view == list("abcdef")
    assert view == forked.view()
    assert view != list("abcdeX")
    assert view != list("abcde")
    assert view != "abcdef"
    assert view != 6
    with pytest.raises(TypeError, match="unhashable"):
        hash(view)


def test_a_view_shows_its_length_and_not_its_contents(forked):
    assert repr(forked.view()) == "<view of 6 items>"

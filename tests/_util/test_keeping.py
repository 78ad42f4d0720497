"""Values that keep what was made of them."""

import attrs

from creche._util import Keeping


@attrs.frozen
class Word(Keeping):
    text: str


def test_a_form_is_made_once():
    made = []

    def make():
        made.append(1)
        return b"WORD"

    word = Word("word")
    assert [word.kept("upper", make), word.kept("upper", make)] == [b"WORD", b"WORD"]
    assert len(made) == 1


def test_each_name_is_another_form():
    word = Word("word")
    assert word.kept("upper", lambda: b"WORD") == b"WORD"
    assert word.kept("first", lambda: b"w") == b"w"


def test_an_empty_form_is_kept_too():
    made = []
    word = Word("word")
    for _ in range(2):
        assert word.kept("none", lambda: made.append(1) or b"") == b""
    assert len(made) == 1


def test_forms_are_no_part_of_the_value():
    word = Word("word")
    word.kept("upper", lambda: b"WORD")
    assert word == Word("word")
    assert hash(word) == hash(Word("word"))
    assert attrs.asdict(word) == {"text": "word"}
    assert attrs.evolve(word, text="other").kept("upper", lambda: b"OTHER") == b"OTHER"

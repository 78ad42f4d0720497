"""Dataclasses, as arguments, as structured answers and as results."""

import json
from dataclasses import dataclass, field

import pytest

from creche.errors import InvalidArgumentsError
from creche.tools import output_shape
from creche.tools._result import json_text


@dataclass
class Point:
    x: int
    y: int = 0


@dataclass(frozen=True)
class Path:
    name: str
    points: list[Point] = field(default_factory=list)
    after: "Path | None" = None


def test_its_schema_is_that_of_an_object():
    schema = json.loads(output_shape(Point).schema)
    assert schema == {
        "type": "object",
        "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
        "required": ["x"],
        "additionalProperties": False,
    }


def test_an_answer_becomes_a_value_of_it():
    text = '{"name": "a", "points": [{"x": 1}, {"x": 2, "y": 3}], "after": {"name": "b"}}'
    assert output_shape(Path).read(text) == Path("a", [Point(1), Point(2, 3)], Path("b"))


def test_every_problem_is_told_by_its_path():
    with pytest.raises(InvalidArgumentsError) as caught:
        output_shape(Path).read('{"name": 5, "points": [{"y": 1}], "size": 3}')
    assert [path for path, _ in caught.value.problems] == ["name", "points[0].x", "size"]


def test_a_result_is_written_field_by_field():
    assert json_text(Path("a", [Point(1)])) == '{"name":"a","points":[{"x":1,"y":0}],"after":null}'

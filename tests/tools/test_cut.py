"""Results that are too long for the model."""

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from creche.messages import ImagePart, TextPart
from creche.tools import LONGEST_RESULT, ResultFolder, Tool, ToolOutcome
from creche.tools._cut import cut_parts

IMAGE = ImagePart(b"i", media_type="image/png")


def gives(value, **options):
    return Tool("give", description="", parameters={}, run=lambda: value, inline=True, **options)


async def test_a_result_of_usual_length_is_given_whole(bench):
    bench.pen.add(gives("x" * LONGEST_RESULT))
    [(_, _, text)] = await bench.run("give")
    assert text == "x" * LONGEST_RESULT


async def test_what_is_too_long_is_cut_in_the_middle_and_says_so(bench):
    bench.pen.add(gives("0123456789", longest_result=5))
    [(_, code, text)] = await bench.run("give")
    assert (code, text) == ("", "0123\n[5 of 10 characters are left out here; it is not kept]\n9")


async def test_all_of_it_is_in_a_file_where_somebody_offers_a_folder(bench, tmp_path):
    bench.preset.provide(ResultFolder(str(tmp_path)))
    whole = "line\n" * 1_000_000 + "\ud800 end"
    bench.pen.add(gives(whole))
    [(_, code, text)] = await bench.run("give")
    assert code == ""
    assert len(text) < LONGEST_RESULT + 300
    [path] = tmp_path.iterdir()
    assert f'all of it is in the file "{path}"' in text
    assert path.name == "result-1.txt"
    assert path.read_text(encoding="utf-8") == whole.replace("\ud800", "\ufffd")


async def test_an_error_is_cut_too_and_a_folder_that_is_gone_loses_nothing_else(bench, tmp_path):
    bench.preset.provide(ResultFolder(str(tmp_path / "gone")))
    outcome = ToolOutcome("0123456789", code="failed")
    bench.pen.add(gives(outcome, longest_result=5))
    assert await bench.run("give") == [
        (
            "c1",
            "failed",
            "0123\n[5 of 10 characters are left out here; it could not be kept: No such file or directory]\n9",
        )
    ]


async def test_a_result_of_five_megabytes_of_json_is_no_trouble(bench):
    value = {"items": list(range(700_000))}
    bench.pen.add(gives(value))
    outcome = await bench.call("give")
    assert json.loads(outcome.json_text or "") == value
    [(_, code, text)] = await bench.run("give")
    assert (code, len(text) < LONGEST_RESULT + 300) == ("", True)


@pytest.mark.parametrize("limit", [1, 5, 9, 10, 11])
def test_images_stay_where_they_are(limit):
    parts = (TextPart("01234"), IMAGE, TextPart("56789"), IMAGE)
    cut = cut_parts(parts, limit)
    assert [part for part in cut if part is IMAGE] == [IMAGE, IMAGE]
    assert (cut == parts) is (limit >= 10)


PARTS = st.lists(st.one_of(st.text(max_size=8).map(TextPart), st.just(IMAGE)), max_size=6).map(tuple)


@given(parts=PARTS, limit=st.integers(1, 30))
def test_what_is_kept_is_the_beginning_and_the_end(parts, limit):
    """Law: the head and the tail of all texts joined, once a note between them, and nothing else."""
    whole = "".join([part.text for part in parts if isinstance(part, TextPart)])
    cut = "".join([part.text for part in cut_parts(parts, limit, "WHERE") if isinstance(part, TextPart)])
    if len(whole) <= limit:
        assert cut == whole
        return
    head = int(limit * 0.8)
    note = f"\n[{len(whole) - limit} of {len(whole)} characters are left out here; WHERE]\n"
    assert cut == whole[:head] + note + whole[len(whole) - (limit - head) :]


def test_the_folder_is_a_path(tmp_path):
    assert Path(ResultFolder(str(tmp_path)).path) == tmp_path


async def test_two_long_results_are_in_two_files(bench, tmp_path):
    bench.preset.provide(ResultFolder(str(tmp_path)))
    names = [f"{'give' * 10}_{number}" for number in range(2)]
    for name in names:
        bench.pen.add(
            Tool(name, description="", parameters={}, run=lambda name=name: name * 100, inline=True, longest_result=9)
        )
    await bench.run(*names)
    assert sorted([path.read_text()[: len(names[0])] for path in tmp_path.iterdir()]) == names

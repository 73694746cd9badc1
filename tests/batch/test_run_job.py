"""Where a run writes, by how many processes, and what its lines say; whole runs are in tests/cli/test_score.py."""

from pathlib import Path

import numpy as np
import pytest

from nescio.batch.run_job import EngineSpec, OutputSpec, problem_lines
from nescio.batch.verdict_columns import Flagged, Worst
from nescio.data.sources import Problem
from nescio.types import InputError


@pytest.mark.parametrize(
    ("path", "is_folder", "folder"),
    [("s.csv", False, "s.csv.parts"), ("scores/", True, "scores"), ("scores", True, "scores"), ("v.d", True, "v.d")],
)
def test_a_path_is_a_file_with_parts_beside_it_or_a_folder_of_parts(tmp_path, monkeypatch, path, is_folder, folder):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "v.d").mkdir()
    output = OutputSpec(path)
    assert output.is_folder == is_folder and output.folder == Path(folder)
    assert output.check() == (".parquet" if is_folder else ".csv")


def test_a_file_that_is_there_is_kept_unless_that_is_said(tmp_path):
    file = tmp_path / "s.csv"
    file.write_text("mine")
    with pytest.raises(InputError, match="is there already; name another file, or say --overwrite"):
        OutputSpec(str(file)).check()
    assert OutputSpec(str(file), overwrite=True).check() == OutputSpec(str(file), fresh=True).check() == ".csv"


def test_the_local_engine_has_no_cluster():
    with pytest.raises(InputError, match="--address: expected --engine ray beside it"):
        EngineSpec("local", address="head:6379")


def test_the_first_bad_rows_are_named_and_the_others_counted():
    bad = [Problem(place, f"{place}.png", "it is not a picture") for place in range(7)]
    lines = list(problem_lines(bad, 10, most=2))
    assert lines[0] == "nescio: 7 of 10 rows could not be used and were left out:"
    assert lines[1:] == [f"  {bad[0]}", f"  {bad[1]}", "  and 5 more"]
    assert list(problem_lines([], 10)) == []
    assert next(problem_lines(bad[:1], 2000)) == "nescio: 1 of 2,000 rows could not be used and was left out:"


def test_the_worst_of_all_parts_are_kept_on_the_way_through_a_manifest():
    table = {
        "index": np.arange(8),
        "p_value": np.array([0.2, 0.01, 0.01, 0.5, 0.03, 0.04, 0.02, 0.9]),
        "foreign": np.array([0, 1, 1, 0, 1, 1, 1, 0], dtype=bool),
        "unsure": np.array([1, 1, 1, 0, 0, 0, 0, 1], dtype=bool),
        "doubt": np.array([0, 1, 2, 0, 1, 1, 1, 0.0]),
        "words": np.array(["w"] * 8),
    }
    flagged = Flagged.of_columns(table)
    assert flagged.unsure == 2  # of those that are not foreign
    assert flagged.foreign == 5 and flagged.worst[0] == Worst(0.01, 2.0, "2", "w")  # as rare, and odder
    assert Flagged.of_note(flagged.as_note()) == flagged
    more = Flagged(3, [Worst(0.005, 0.0, "first", "w")], unsure=7)
    both = Flagged.together([flagged, more])
    assert (both.foreign, both.unsure) == (8, 9) and [one.name for one in both.worst] == ["first", "2", "1", "6", "4"]

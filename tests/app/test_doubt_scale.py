"""The scale: shares that are counted, and an alarm for one in twenty."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nescio.app import doubt_scale
from nescio.app.backend import Backend
from nescio.app.doubt_scale import Scale
from nescio.serve.engine import Engine
from nescio.types import InputError


def scale(values: list[float]) -> Scale:
    array = np.array(values)
    p = np.full((len(values), 2), 0.5)
    return Scale("the known ones", {"total": array, "aleatoric": array, "epistemic": array, "entropy": array}, p)


def test_places_and_words_worked_by_hand() -> None:
    known = scale([float(i) for i in range(1, 101)])
    assert known.place("total", 1.0) == 0.0
    assert known.place("total", 98.0) == 0.97
    assert known.place("total", 1e9) == 1.0
    assert known.words("entropy", 98.0) == "more doubtful than 97 % of the known ones"
    assert known.words("epistemic", 98.0) == "more unfamiliar than 97 % of the known ones"
    assert known.words("aleatoric", 0.5) == "not more ambiguous than any of the known ones"
    assert known.words("total", 101.0) == "more doubtful than all 100 of the known ones"
    assert known.limit("total") == 96.0  # five of 101: 97 … 100 and the new one
    assert known.flagged("total", 96.5)
    assert not known.flagged("total", 96.0)


def test_less_than_one_percent_is_not_said_to_be_none() -> None:
    assert scale([float(i) for i in range(1, 301)]).words("total", 2.0) == (
        "more doubtful than less than 1 % of the known ones"
    )


@given(st.lists(st.floats(0, 10), min_size=19, max_size=60), st.floats(0, 11))
def test_one_in_twenty_known_inputs_is_flagged(values: list[float], value: float) -> None:
    known = scale(values)
    at_least = sum(one >= value for one in values)
    assert known.flagged("epistemic", value) == ((1 + at_least) / (1 + len(values)) <= 0.05 * (1 + 1e-12))
    assert known.place("epistemic", value) == pytest.approx(1 - at_least / len(values), abs=1e-12)


def test_measured_is_what_the_engine_says(engine: Engine, backend: Backend, digits) -> None:
    assert backend.scale is not None
    found = engine.assess([digits[2][7]], ["regrad", "knn"])[0]
    assert backend.scale.values["epistemic"][7] == pytest.approx(found.epistemic, rel=1e-6)
    assert backend.scale.values["knn"][7] == pytest.approx(found.scores["knn"], rel=1e-6)
    assert backend.scale.form == (1, 8, 8)
    right = backend.scale.right
    assert right is not None
    assert right.mean() == 0.95


def test_too_few_known_inputs_are_refused(engine: Engine, digits) -> None:
    with pytest.raises(InputError, match="expected at least 19 known inputs for a scale, got 5; give more"):
        doubt_scale.measured(engine, list(digits[2][:5]))


def test_a_scale_is_kept_for_its_key_alone(backend: Backend, tmp_path: Path) -> None:
    file, key = tmp_path / "scale.npz", {"methods": {"regrad": "…"}, "known": 3}
    assert backend.scale is not None
    assert doubt_scale.read_scale(file, key) is None
    doubt_scale.write_scale(file, key, backend.scale)
    found = doubt_scale.read_scale(file, key)
    assert found is not None
    assert found.known == backend.scale.known
    assert found.form == backend.scale.form
    assert list(found.values) == list(backend.scale.values)
    assert np.array_equal(found.values["regrad"], backend.scale.values["regrad"])
    assert found.labels is not None
    assert np.array_equal(found.labels, backend.scale.labels)
    assert doubt_scale.read_scale(file, {**key, "known": 4}) is None
    file.write_bytes(file.read_bytes()[:100])
    assert doubt_scale.read_scale(file, key) is None

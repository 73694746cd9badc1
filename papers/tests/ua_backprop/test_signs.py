"""The study of signs: what a signed map is, the upper half, intervals, and a whole run at the smallest scale."""

import math
from dataclasses import replace

import numpy as np
import pytest

import nescio
from nescio.types import InputError
from nescio_papers import reproduce
from nescio_papers.runner.study import Column
from nescio_papers.ua_backprop import signs
from nescio_papers.ua_backprop.case import Case, picked
from nescio_papers.ua_backprop.ensemble import doubtful
from nescio_papers.ua_backprop.rows import OURS
from papers.tests.ua_backprop.conftest import went


def test_a_signed_row_is_what_the_library_gives(job):
    case = Case.of(job, "mnist")
    test = job.parts.known("mnist")
    x = picked(test, doubtful(case.ensemble, test, 40, 4))
    (row,) = (row for row in signs.WITH_SIGNS if row.method == "signed_ua_backprop")
    found = case.maps(row, x, sigma=1.5).values
    direct = nescio.explain(case.ensemble.posterior, x, path="fullgrad", signed=True, classes="exact").maps.numpy()
    np.testing.assert_allclose(found, direct, rtol=1e-5, atol=1e-12)
    assert (found < 0).any() and (found > 0).any()
    np.testing.assert_allclose(np.abs(found), np.abs(case.maps(OURS, x).values) * (found != 0), rtol=1e-6)


def test_the_upper_half_is_drawn_from_above_the_median_and_not_from_the_top(job):
    case = Case.of(job, "mnist")
    test = job.parts.known("mnist")
    u = case.ensemble.epistemic(test.floats(0, 60)).cpu()
    chosen = signs.upper_half(case.ensemble, test, 60, 10)
    assert len(set(chosen.tolist())) == 10
    assert bool((u[chosen] > u.median()).all())
    assert set(chosen.tolist()) != set(doubtful(case.ensemble, test, 60, 10).tolist())


def test_the_lead_is_the_difference_of_areas_and_its_interval_narrows_with_pictures():
    random = np.random.default_rng(0)

    def both(count):
        ours = np.sort(random.random((count, 9)), 1)
        return ours, ours - 0.1 + 0.05 * random.standard_normal((count, 1))

    ours, other = both(400)
    found = signs.lead(ours, other, draws=300)
    areas = [np.mean(1 - np.median(values, 0)) for values in (ours, other)]
    assert found["lead"] == pytest.approx(areas[1] - areas[0])
    assert found["lead_low"] < found["lead"] < found["lead_high"]
    assert found["lead_low"] > 0  # ours is better by 0.1
    few = signs.lead(ours[:20], other[:20], draws=300)
    assert few["lead_high"] - few["lead_low"] > found["lead_high"] - found["lead_low"]
    same = signs.lead(ours, ours, draws=20)
    assert set(same.values()) == {0.0}


@pytest.mark.parametrize("count", [1, 6, 7])
def test_intervals_are_those_of_medians_draw_by_draw(count):
    random = np.random.default_rng(3)
    ours, other = random.integers(0, 4, (2, count, 5)) / 4  # with ties
    again, drawn = np.random.default_rng(0), []
    for _ in range(200):
        which = again.integers(0, count, count)
        drawn.append(np.median(ours[which], 0).mean() - np.median(other[which], 0).mean())
    found = signs.lead(ours, other, draws=200)
    low, high = np.quantile(drawn, (0.025, 0.975))
    assert (found["lead_low"], found["lead_high"]) == pytest.approx((low, high), abs=1e-12)


def test_both_groups_have_every_cell(small, tmp_path, models, monkeypatch):
    columns = tuple(Column("mnist", how) for how in list(signs.HOW)[:3])
    monkeypatch.setattr(signs, "COLUMNS", columns)
    monkeypatch.setattr(signs, "DRAWS", 50)
    done = went(signs, tmp_path, models)
    for part, rows in zip(done["parts"], (signs.PLAIN, signs.WITH_SIGNS), strict=True):
        kept = [cell for cell in part["cells"] if cell["column"] in {column.key for column in columns}]
        assert len(kept) == len(rows) * len(columns)
        for cell in kept:
            assert set(signs.METRICS) <= set(cell["metrics"]), cell
            assert all(math.isfinite(value) for value in cell["metrics"].values())
            assert "reductions" not in cell
        ours = [cell["metrics"]["lead"] for cell in kept if cell["row"] == rows[0].label]
        assert ours == [0.0] * len(columns)
    assert "Gradient × (x − blur x)" in reproduce.render(done)
    (figure,) = done["figures"]
    assert figure["alt"].endswith("on MNIST") and figure["image"].count("<use") >= 2 * 13


def test_sets_that_were_not_asked_for_are_left_out_and_joined_later(small, tmp_path, models, monkeypatch):
    columns = tuple(Column(known, "most doubtful, σ = 1.5") for known in ("mnist", "svhn"))
    monkeypatch.setattr(signs, "COLUMNS", columns)
    parts = tuple(replace(part, columns=columns, rows=part.rows[:2]) for part in signs.PARTS)
    monkeypatch.setattr(signs, "PARTS", parts)
    monkeypatch.setattr(signs, "STUDY", replace(signs.STUDY, parts=parts))
    runs = [went(signs, tmp_path, models, sets=[known]) for known in ("mnist", "svhn")]
    for run, own in zip(runs, ("mnist", "svhn"), strict=True):
        for cell in run["parts"][0]["cells"]:
            asked = cell["column"].startswith(own)
            assert ("metrics" in cell) == asked, cell
            assert asked or cell["reason"] == "not run: this data set was not asked for"
    (both,) = reproduce.joined(runs)
    assert all("metrics" in cell for part in both["parts"] for cell in part["cells"])
    with pytest.raises(InputError, match=r"of ua-signs \(mnist, svhn\), got lsun"):
        went(signs, tmp_path, models, sets=["lsun"])

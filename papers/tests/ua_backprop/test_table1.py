"""Table 1: every cell, and runs that were cut off, failed or ended."""

import math

import pytest

import nescio
from nescio import evaluate
from nescio.types import InputError
from nescio_papers import reproduce
from nescio_papers.ua_backprop import case as cases
from nescio_papers.ua_backprop import table1
from nescio_papers.ua_backprop.case import Case, picked
from nescio_papers.ua_backprop.ensemble import doubtful
from nescio_papers.ua_backprop.rows import OURS
from papers.tests.ua_backprop.conftest import numbers, went


def test_the_papers_two_halves_of_table_1_fit_each_other():
    """The mean of 1 − URR(t) cannot be below 1 − max URR(t): rows of the two halves that were mixed up would show."""
    murr, auc = (part.paper for part in table1.PARTS[:2])
    for label, line in murr.items():
        for column, cell in line.items():
            if column != "avg":
                for (high, _), (area, _) in zip(cell, auc[label][column], strict=True):
                    assert area >= 1 - high - 1e-3


def test_table_1_has_every_cell_and_a_second_run_makes_nothing_anew(small, tmp_path, models, monkeypatch):
    done = went(table1, tmp_path, models)
    murr, auc, patch, seconds = done["parts"]
    for part in (murr, auc, patch):
        assert [cell["row"] for cell in part["cells"]] == [row.label for row in table1.ROWS]
    assert len(seconds["cells"]) == len(table1.METHODS)
    for part in done["parts"]:
        for cell in part["cells"]:
            assert set(part["metrics"]) <= set(cell["metrics"]), cell
            assert all(math.isfinite(value) for value in cell["metrics"].values())
    for cell in murr["cells"]:
        found = cell["metrics"]
        assert found["murr2"] <= found["murr5"] <= 1 and found["urr5"] <= found["urr2"]
        assert found["murr5"] == max(cell["curve"]["urr"])
    assert done["complete"] and [m["seed"] for m in done["models"]] == [0, 1]
    assert done["settings"]["seeds"] == {"digits": [0, 1]}
    monkeypatch.setattr(cases, "explain", None)
    assert numbers(went(table1, tmp_path, models)) == numbers(done)
    reproduce.load(reproduce.save(done, tmp_path / "out"))
    assert "UA-Backprop + FullGrad" in reproduce.render(done) and "Random order" in reproduce.markdown(done)


def test_the_numbers_are_those_of_explain_and_the_blurring_test(job, models):
    case = Case.of(job, "mnist")
    test = job.parts.known("mnist")
    x = picked(test, doubtful(case.ensemble, test, 40, 5))
    found = table1.blurred(case, OURS, x)["metrics"]
    maps = nescio.explain(case.ensemble.posterior, x, "ua_backprop", path="fullgrad").maps
    direct = evaluate.blurring(
        lambda x: nescio.decompose(case.ensemble.posterior.predict(x)).epistemic, x, maps, share=0.05, sigma=1.5
    )
    assert found["murr5"] == pytest.approx(direct.murr, rel=1e-6)
    assert found["urr5"] == pytest.approx(direct.auc, rel=1e-6)
    assert found["murr2"] == pytest.approx(direct.at(0.02).murr, rel=1e-6)


def test_a_run_that_was_cut_off_goes_on_and_ends_with_the_same_numbers(small, tmp_path, models, monkeypatch):
    real, calls = cases.explain, []

    def dies(*args, **more):
        calls.append(args[2])
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(*args, **more)

    monkeypatch.setattr(table1, "ROWS", table1.ROWS[:6])
    monkeypatch.setattr(cases, "explain", dies)
    with pytest.raises(KeyboardInterrupt):
        went(table1, tmp_path / "cut", models)
    finished = went(table1, tmp_path / "cut", models)
    assert calls[4] == calls[3]  # the method that was cut off is the first one again
    monkeypatch.setattr(cases, "explain", real)
    assert numbers(finished) == numbers(went(table1, tmp_path / "whole", models))


def test_a_method_that_fails_and_time_that_is_over_are_said(small, tmp_path, models, monkeypatch):
    real = cases.explain
    monkeypatch.setattr(table1, "ROWS", table1.ROWS[:3])

    def fails(posterior, x, method, **more):
        if method == "gradient":
            raise InputError("no such\nluck")
        return real(posterior, x, method, **more)

    monkeypatch.setattr(cases, "explain", fails)
    cells = {cell["row"]: cell for cell in went(table1, tmp_path / "a", models)["parts"][0]["cells"]}
    assert cells["Grad"]["reason"] == "failed: InputError: no such luck" and "metrics" in cells["SmoothGrad"]
    over = went(table1, tmp_path / "b", models, minutes=0)
    assert not over["complete"] and all("time" in cell["reason"] for cell in over["parts"][0]["cells"])
    alone = went(table1, tmp_path / "c", models, seeds=[0])
    assert all("at least 2 seeds" in cell["reason"] for cell in alone["parts"][0]["cells"])

"""Active learning side by side."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from nescio_papers.regrad import acquisition, label_charts
from nescio_papers.runner import scale as scales
from nescio_papers.runner.parts import Parts
from nescio_papers.runner.program import Job
from nescio_papers.runner.scoring import TimeOver
from nescio_papers.runner.study import Row

ROWS = (Row("Entropy", "entropy"), Row("LA", "laplace", {"samples": 4}), Row("Random", "random"))


@pytest.fixture
def job(tmp_path):
    parts = Parts(scales.SCALES["smoke"], None, tmp_path / "models", "cpu", False)
    return Job(parts, None, tmp_path, lambda: None, lambda line: None)


@pytest.fixture
def race(job):
    race = acquisition.Race("mnist", ROWS, 0, job)
    race.split = race.split._replace(pool=race.split.pool[:60])
    return race


def test_all_runs_begin_alike_and_acquire_what_they_doubt(race):
    cells = race.run()
    assert [cell["row"] for cell in cells] == [row.label for row in ROWS]
    for cell in cells:
        assert cell["curve"]["labels"] == [20, 30, 40]
        assert cell["metrics"]["acc"] == pytest.approx(np.mean(cell["curve"]["acc"][1:]))
        assert cell["curve"]["acc"][0] == pytest.approx(cells[0]["curve"]["acc"][0])
    for own in race.labelled:
        assert len(set(own.tolist())) == 40 and set(own[20:].tolist()) <= set(race.split.pool.tolist())
    assert set(race.labelled[0][20:].tolist()) != set(race.labelled[2][20:].tolist())


def test_a_run_that_was_cut_off_goes_on_and_ends_alike(race, job, monkeypatch):
    whole = race.run()
    again = acquisition.Race("mnist", ROWS, 0, job)
    again.split = race.split
    real = acquisition.Race._acquire

    def cut(self, state, cycle):
        if cycle == 1:
            raise TimeOver
        real(self, state, cycle)

    monkeypatch.setattr(acquisition.Race, "_acquire", cut)
    with pytest.raises(TimeOver):
        again.run()
    monkeypatch.setattr(acquisition.Race, "_acquire", real)
    third = acquisition.Race("mnist", ROWS, 0, job)
    third.split = race.split
    trained = []
    monkeypatch.setattr(third.trainer, "train", lambda *a, run=third.trainer.train: trained.append(1) or run(*a))
    assert third.run() == whole and len(trained) == 2


def test_what_a_scale_leaves_out_is_marked_as_not_run(job, monkeypatch):
    few = acquisition.Size(
        {"mnist": (0, 1)}, acquisitions=1, epochs=1, pool=30, validation=20, rows={"mnist": ("Random",)}
    )
    monkeypatch.setattr(acquisition, "SIZES", {"smoke": few})
    monkeypatch.setattr(acquisition, "ROWS", ROWS)
    made = acquisition.program(job)
    found = {(cell["row"], cell["column"], cell["seed"]): cell for cell in made.cells[0]}
    assert {key for key, cell in found.items() if "metrics" in cell} == {("Random", "mnist", seed) for seed in (0, 1)}
    assert len(found) == 2 + 2 + 3 * 3 and found["Random", "svhn", "all"]["reason"] == "not run at the scale smoke"
    assert made.settings["seeds"] == {"mnist": [0, 1], "svhn": [], "cifar10": [], "cifar100": []}
    assert made.settings["validation"] == 20
    assert all("reason" in cell for cell in made.cells[1])


def test_the_other_rows_of_a_set_are_a_run_after_the_first_ones(job, monkeypatch):
    rows = {"mnist": ("Random",), "svhn": ("Random",)}
    size = acquisition.Size({"mnist": (0,), "svhn": (0,)}, 1, 1, pool=30, rows=rows, later=("svhn",))
    monkeypatch.setattr(acquisition, "SIZES", {"smoke": size})
    monkeypatch.setattr(acquisition, "ROWS", ROWS)
    made = acquisition.program(job)
    done = [(cell["column"], cell["row"]) for cell in made.cells[0] if "metrics" in cell]
    assert done == [("mnist", "Random"), ("svhn", "Random"), ("svhn", "Entropy"), ("svhn", "LA")]
    assert {cell["row"] for cell in made.cells[1] if "metrics" in cell} == {"Entropy", "LA"}
    whole = acquisition.Race("svhn", ROWS, 0, job)
    monkeypatch.setattr(acquisition, "SIZES", {"smoke": replace(size, whole=("svhn",))})
    assert len(whole.split.pool) == 30 < len(acquisition.Race("svhn", ROWS, 0, job).split.pool)


def test_without_random_acquisition_there_is_no_gain():
    cell = {"row": "A", "column": "mnist", "seed": 0, "metrics": {"acc": 0.7}}
    assert "random acquisition" in acquisition._over_random(cell, [cell])["reason"]


def test_the_gain_is_over_random_with_the_same_seed():
    cells = [
        {"row": row, "column": "mnist", "seed": seed, "metrics": {"acc": value}}
        for row, seed, value in (("A", 0, 0.7), ("Random", 0, 0.6), ("A", 1, 0.5), ("Random", 1, 0.9))
    ]
    gains = [acquisition._over_random(cell, cells)["metrics"]["gain"] for cell in cells]
    assert gains == pytest.approx([0.1, 0.0, -0.4, 0.0])


@pytest.mark.parametrize("count", [2, 3, 5, 10])
def test_the_interval_is_students(count):
    values = np.random.default_rng(count).normal(size=count)
    low, high = stats.t.interval(0.95, count - 1, values.mean(), stats.sem(values))
    assert label_charts.interval(values) == pytest.approx((high - low) / 2, rel=1e-3)


def test_a_sure_network_lies_on_the_line_of_table_3():
    """Cross-entropy of a one-hot softmax output is log(e + C − 1) − 1 for a right answer and log(e + C − 1) else."""
    p = torch.eye(10, dtype=torch.float64)
    labels = torch.arange(10)
    labels[0] = 5
    twice = float(torch.nn.functional.cross_entropy(p, labels))
    assert twice == pytest.approx(math.log(math.e + 9) - 0.9)


def test_first_looks_leave_the_most_doubted_and_narrow_ones_agree_with_the_score_itself(job, monkeypatch):
    row = next(row for row in acquisition.ROWS if row.label == "REGrad*, k = 2")
    pool = np.arange(500, 620)
    seen = []
    found = {}
    for name, looks, again in (
        ("none", {}, 20),
        ("all", acquisition.NARROW_LOOKS, 1),
        ("narrow", acquisition.NARROW_LOOKS, 4),
    ):
        size = acquisition.Size({"mnist": (0,)}, acquisitions=1, epochs=1, looks=looks, again=again)
        monkeypatch.setattr(acquisition, "SIZES", {"smoke": size})
        race = acquisition.Race("mnist", (row,), 0, job)
        real = race._scored
        monkeypatch.setattr(
            race, "_scored", lambda method, some, real=real: seen.append((method, len(some))) or real(method, some)
        )
        seen.clear()
        found[name] = race._scores(row, race.labelled[0], pool)
    assert [(len(m.select or ()), m.samples, count) for m, count in seen] == [(2, 0, 120), (0, 4, 30)]
    torch.testing.assert_close(found["none"], found["all"], rtol=1e-5, atol=0.0)
    kept = torch.isfinite(found["narrow"])
    assert int(kept.sum()) == 30
    torch.testing.assert_close(found["narrow"][kept], found["none"][kept])


def test_runs_of_other_settings_are_kept_apart(job, monkeypatch):
    first = acquisition.kept(job, "mnist", ROWS, 0)
    assert first != acquisition.kept(job, "mnist", ROWS[:2], 0) != acquisition.kept(job, "mnist", ROWS, 1)
    sizes = {"smoke": acquisition.Size({"mnist": (0, 1)}, acquisitions=2, epochs=3, pool=100, later=("svhn",))}
    monkeypatch.setattr(acquisition, "SIZES", sizes)
    assert acquisition.kept(job, "mnist", ROWS, 0) == first  # one more seed, and more rows after these
    monkeypatch.setitem(sizes, "smoke", acquisition.Size({"mnist": (0,)}, acquisitions=2, epochs=4, pool=100))
    assert acquisition.kept(job, "mnist", ROWS, 0) != first


def test_our_networks_stand_beside_the_papers_in_the_figure_of_the_identity():
    cells = [
        {"row": row, "column": "mnist", "seed": seed, "metrics": {"acc": acc, "twice": twice}}
        for row, seed, acc, twice in (("A", 0, 0.7, 1.8), ("A", 1, 0.8, 1.7), ("B", 0, 0.4, 2.1))
    ]
    assert label_charts._ours(cells, "mnist") == [pytest.approx((0.75, 1.75)), (0.4, 2.1)]
    assert label_charts._ours(cells, "svhn") == []
    with_ours, without = label_charts.identity(cells), label_charts.identity()
    assert "Crosses" in with_ours.text and "Crosses" not in without.text and with_ours.image != without.image


def test_a_data_set_with_fewer_methods_has_its_own_panel():
    gains = [("A", "mnist", 0.1), ("A", "mnist", 0.3), ("B", "mnist", 0.2), ("A", "svhn", 0.4)]
    cells = [{"row": row, "column": column, "metrics": {"gain": gain}} for row, column, gain in gains]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (figure,) = label_charts.gains(cells)
    assert figure.image.count("accuracy over random, points") == 2


def test_one_seed_is_a_hollow_dot_and_rows_of_few_seeds_are_not_drawn():
    runs = [("A", seed, 0.1 * seed) for seed in range(3)] + [("B", seed, 0.2) for seed in range(2)]
    cells = [{"row": row, "column": "svhn", "seed": seed, "metrics": {"gain": gain}} for row, seed, gain in runs]
    (figure,) = label_charts.gains(cells)
    assert "SVHN, 3 seeds" in figure.image and "hollow" not in figure.text
    (without,) = label_charts.gains([*cells[:3], {**cells[3], "metrics": {"gain": 0.3}}])
    assert figure.image == without.image
    (single,) = label_charts.gains([cells[0], {**cells[0], "column": "cifar100"}])
    assert "CIFAR-100, 1 seed<" in single.image and "hollow" in single.text

from dataclasses import replace

import pytest

from nescio_papers.runner import active
from nescio_papers.runner import scale as scales
from nescio_papers.runner.run import run
from nescio_papers.runner.study import Part, Row, Study, pairs

ROWS = (
    Row("Entropy", "entropy"),
    Row("LA", "laplace", {"samples": 4}),
    Row("Random", "random"),
    Row("Broken", "regrad", {"select": "no such layer"}),
)
STUDY = Study("t", "T", (Part("P", "active", pairs("mnist svhn"), ROWS, ("acc", "nll"), averages="each"),))


def test_cycles_are_run_kept_and_shown(tmp_path, monkeypatch, models):
    smaller = replace(scales.SCALES["smoke"], epochs=2, pool=40, active=("mnist",))
    monkeypatch.setattr(scales, "SCALES", {"smoke": smaller})
    real, trained = active.training.train, []

    def counted(*args, **more):
        trained.append(1)
        return real(*args, **more)

    monkeypatch.setattr(active.training, "train", counted)
    results = run(STUDY, "smoke", work=tmp_path, models=models, device="cpu")
    cells = {(cell["row"], cell["column"]): cell for cell in results["parts"][0]["cells"]}
    for label in ("Entropy", "LA", "Random"):
        cell = cells[label, "mnist"]
        assert cell["curve"]["labels"] == [20, 30]
        assert cell["metrics"]["acc"] == pytest.approx(sum(cell["curve"]["acc"]) / 2)
        assert 0 <= cell["metrics"]["acc"] <= 1 and cell["metrics"]["nll"] > 0
    starts = {cells[label, "mnist"]["curve"]["acc"][0] for label in ("Entropy", "LA", "Random")}
    assert len(starts) == 1 and len(trained) == 4  # all begin with one network, which is trained once
    assert cells["Broken", "mnist"]["reason"].startswith("failed: InputError: select='no such layer'")
    assert cells["Entropy", "svhn"]["reason"] == "not run at the scale smoke"
    monkeypatch.setattr(active.Learner, "run", lambda *a: pytest.fail("done before"))
    again = run(replace(STUDY, parts=(replace(STUDY.parts[0], rows=ROWS[:3]),)), "smoke", work=tmp_path, device="cpu")
    assert again["parts"][0]["cells"][0] == cells["Entropy", "mnist"]


def test_the_split_is_the_papers():
    assert active.FIRST == {"mnist": (20, 20), "cifar10": (500, 100), "svhn": (500, 100), "cifar100": (1000, 500)}

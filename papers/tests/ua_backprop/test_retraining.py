"""Few pictures, networks trained on them, and the controls."""

import types
from dataclasses import replace

import pytest
import torch

from nescio import mitigate
from nescio_papers.runner.cells import fingerprint
from nescio_papers.ua_backprop import case as cases
from nescio_papers.ua_backprop import sizes, table2
from nescio_papers.ua_backprop.case import Case
from nescio_papers.ua_backprop.retraining import NONE, Few
from nescio_papers.ua_backprop.rows import CONTROLS, OURS, RIVALS, described
from papers.tests.ua_backprop.conftest import SMALLER


def test_what_is_kept_is_known_by_all_that_it_depends_on(job, monkeypatch):
    """Else the numbers of one run would be taken for those of another."""

    seen, made = [], []

    class Guess:
        def predict(self, x, maps, progress):
            seen.append(None if maps is None else maps.shape)
            return torch.full((1, len(torch.cat(x) if isinstance(x, list) else x), 10), 0.1, dtype=torch.float64)

    def retrain(factory, *args, **more):
        made.append((fingerprint(factory()), more["seed"]))
        return Guess()

    monkeypatch.setattr(mitigate, "retrain", retrain)
    test = job.parts.known("mnist")
    few = Few.of(job, "mnist", job.parts.known("mnist", "train"), test)
    none = next(row for row in table2.ROWS if row.method == NONE)
    asked = {"row": none, "seed": 0, "tests": test, "tested": 5, "attended": 0, "alpha": 1.0}
    others = {"row": CONTROLS[0], "seed": 1, "tests": replace(test, id="other"), "tested": 6, "attended": 3, "alpha": 2}
    few.retrained(**asked)
    for name, value in others.items():
        few.retrained(**{**asked, name: value})
    replace(few, recipe=replace(few.recipe, epochs=9)).retrained(**asked)
    few.retrained(**asked)
    assert len(list((job.work / "maps" / "retraining").iterdir())) == 1 + len(others) + 1
    members = {fingerprint(few.plan.model(seed)) for seed in range(3)}
    assert len(set(made)) == 2 and not members & {weights for weights, _ in made}  # the seed's own, and no member's
    assert seen == [None] * (2 + len(others) + 1)
    few.retrained(**{**asked, "row": CONTROLS[0], "attended": 2})
    assert seen[-2:] == [None, (2, 8, 8)]  # pictures as they are, then with maps

    x, case = few.x / 255, few.case
    monkeypatch.setattr(cases, "explain", lambda posterior, x, *args, **more: types.SimpleNamespace(maps=x[:, 0]))
    monkeypatch.setattr(Case, "vae", lambda self: None)
    clue = next(row for row in RIVALS if row.method == "clue")
    case.maps(clue, x)
    case.maps(clue, 1 - x)
    case.maps(clue, x, "total")
    case.maps(clue, x, lr=0.5)
    replace(case, ensemble=replace(case.ensemble, id="other")).maps(clue, x)
    monkeypatch.setattr(sizes, "SIZES", {"smoke": replace(SMALLER, vae=(50, 1))})
    case.maps(clue, x)
    assert len(list((job.work / "maps" / "maps").glob("mnist-clue-*"))) == 6


def test_what_members_reach_is_said(job):
    test = job.parts.known("mnist")
    few = Few.of(job, "mnist", job.parts.known("mnist", "train"), test)
    for model, network in zip(few.case.models, few.case.ensemble.networks, strict=True):
        with torch.no_grad():
            right = (network(test.floats(0, len(test.x))).argmax(1) == test.y).double().mean()
        assert model.accuracy == pytest.approx(float(right)) and model.seconds > 0
        assert model.about == "1 epochs; the test set is digits test"
    again = Few.of(job, "mnist", job.parts.known("mnist", "train"), test)
    assert again.case.ensemble.id == few.case.ensemble.id
    assert [m.seconds for m in again.case.models] == [m.seconds for m in few.case.models]  # of the training, when read


def test_controls_of_table_2_say_nothing_about_the_picture(job, monkeypatch):
    few = Few.of(job, "mnist", job.parts.known("mnist", "train"), job.parts.known("mnist"))
    rows = {row.label: row for row in CONTROLS}
    ours, shuffled = few.maps(OURS, few.x), few.maps(rows["Shuffled maps"], few.x)
    assert (shuffled[1:] == ours[:-1]).all() and (shuffled[0] == ours[-1]).all()
    assert few.case.maps(OURS, few.x / 255, tau1=2.0).values[0].tolist() != ours[0].tolist()
    assert described(rows["Shuffled maps"], SMALLER)["tau1"] == described(OURS, SMALLER)["tau1"]
    real, seen = mitigate.retrain, []
    monkeypatch.setattr(mitigate, "retrain", lambda *a, **more: seen.append(real(*a, **more)) or seen[-1])
    few.retrained(rows["Flat attention"], 0, job.parts.known("mnist"), 5, 5, 2.0)
    network, wanted = seen[0].network, 1 + 2.0 * float(mitigate.attention(ours).mean())
    flat = mitigate.attention(few.maps(rows["Flat attention"], few.x), "softmax")
    assert torch.allclose(1 + network.alpha * flat, torch.tensor(wanted, dtype=torch.float64), rtol=1e-12)
    assert wanted > 1.01

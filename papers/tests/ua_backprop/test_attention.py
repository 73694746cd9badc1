"""The study of attention and temperature: the scaling, the control, the choice of α, and a whole run."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from nescio import evaluate, mitigate
from nescio_papers import reproduce
from nescio_papers.ua_backprop import attention
from nescio_papers.ua_backprop.retraining import Few
from nescio_papers.zoo.plans import to_floats
from papers.tests.ua_backprop.conftest import went


def test_scaling_mends_answers_that_are_too_sure_and_keeps_their_order():
    torch.manual_seed(0)
    z = torch.randn(4000, 5, dtype=torch.float64)
    y = torch.multinomial(z.softmax(1), 1)[:, 0]
    sure = (3 * z).softmax(1)
    mended = attention.tempered(sure[:2000], y[:2000], sure[2000:])
    assert torch.equal(mended.argmax(1), sure[2000:].argmax(1))
    right = evaluate.nll(z[2000:].softmax(1), y[2000:])
    assert evaluate.nll(sure[2000:], y[2000:]) > right + 0.2
    assert evaluate.nll(mended, y[2000:]) == pytest.approx(right, abs=0.01)


def test_the_control_has_the_mean_of_the_rows_attention_at_every_pixel(job, monkeypatch):
    seen = []
    monkeypatch.setattr(mitigate, "retrain", lambda factory, data, maps, **more: seen.append((maps, more)))
    few = Few.of(job, "mnist", job.parts.known("mnist", "train"), job.parts.known("mnist"))
    own, control = (row for row in attention.ROWS[:2])
    assert control.label == own.label + attention.FLAT
    _, factor = attention._trained(few, own, 0, 8.0)
    _, same = attention._trained(few, control, 0, 8.0)
    (maps, with_map), (flat, with_flat) = seen
    a = with_map["alpha"] * mitigate.attention(maps, with_map["normalise"])
    b = with_flat["alpha"] * mitigate.attention(flat, with_flat["normalise"])
    assert float(b.max() - b.min()) == pytest.approx(0, abs=1e-12)
    assert float(b.mean()) == pytest.approx(float(a.mean())) == pytest.approx(factor - 1)
    assert same == factor > 1


def test_alpha_is_the_one_with_the_best_likelihood_on_held_out_pictures(job, monkeypatch):
    train, test = job.parts.known("mnist", "train"), job.parts.known("mnist")
    few = Few.of(job, "mnist", train, test)
    held = attention.Held(train.x[30:40], train.y[30:40])

    class Guess:
        def __init__(self, alpha):
            self.alpha = alpha

        def predict(self, x, maps, progress):
            count = sum(len(part) for part in x) if isinstance(x, list) else len(x)
            sure = 0.3 if self.alpha == 2.0 else 0.01
            p = torch.full((count, 10), (1 - sure) / 9, dtype=torch.float64)
            y = held.y if count == len(held.y) else test.y[:count]
            return p.scatter_(1, y[:, None], sure)[None]

    asked = []
    monkeypatch.setattr(
        attention, "_trained", lambda few, row, seed, alpha: asked.append((row, alpha)) or (Guess(alpha), 1 + alpha)
    )
    run = attention._Run(few, 0, held, test, 20)
    made = run.judged(attention.ROWS[0])
    found = made["metrics"]
    assert (found["alpha"], found["factor"], found["acc"]) == (2.0, 3.0, 1.0)
    assert [one["alpha"] for one in made["tried"]] == [0.0, 2.0, 8.0]
    assert made["tried"][1]["nll"] == found["nll"] < made["tried"][2]["nll"]
    run.judged(attention.ROWS[2])
    assert asked.count((attention.WITHOUT, 0.0)) == 1  # α = 0 is trained once for all rows of a run


def test_each_run_draws_pictures_of_its_own_and_none_is_held_out_too(job):
    (one, held), (other, _), (again, _) = (attention.drawn(job, "mnist", seed) for seed in (0, 1, 0))
    assert torch.equal(one.x, again.x) and not torch.equal(one.x, other.x)
    assert one.case.ensemble.id == again.case.ensemble.id != other.case.ensemble.id
    seen = {bytes(picture.numpy().data) for picture in one.x}
    train = {bytes(picture.numpy().data) for picture in job.parts.known("mnist", "train").x}
    assert seen <= train and len(held.x) and not seen & {bytes(picture.numpy().data) for picture in held.x}


def test_networks_are_judged_on_pictures_of_the_brightness_that_they_were_trained_on(job):
    train, test = job.parts.known("mnist", "train"), job.parts.known("mnist")
    few = replace(Few.of(job, "mnist", train, test), x=train.x[:400], y=train.y[:400])
    few = replace(few, recipe=replace(few.recipe, epochs=8, lr=0.05))
    held = attention.Held(train.x[400:500], train.y[400:500])
    network, _ = attention._trained(few, attention.WITHOUT, 0, 0.0)
    with torch.no_grad():
        direct = network.network.network(to_floats(test.x[:100])).argmax(1)
    right = float((direct == test.y[:100]).double().mean())
    made = attention._Run(few, 0, held, test, 100).judged(attention.WITHOUT)["metrics"]
    assert made["acc"] == pytest.approx(right) and right > 0.3


def test_no_strength_is_the_training_without_attention(job):
    few = Few.of(job, "mnist", job.parts.known("mnist", "train"), job.parts.known("mnist"))
    x = job.parts.known("mnist").floats(0, 10)
    given = [
        attention._trained(few, row, 0, alpha)
        for row, alpha in ((attention.ROWS[0], 0.0), (attention.WITHOUT, 0.0), (attention.ROWS[0], 8.0))
    ]
    none, without, strong = (network.predict(x, None, progress=False)[0] for network, _ in given)
    assert torch.equal(none, without) and not torch.allclose(none, strong)
    assert [factor == 1 for _, factor in given] == [True, True, False]


def test_every_cell_of_a_small_run(small, tmp_path, models, monkeypatch):
    kept = (*attention.ROWS[:4], attention.WITHOUT)
    monkeypatch.setattr(attention, "ROWS", kept)
    monkeypatch.setattr(attention, "COLUMNS", attention.COLUMNS[:1])
    monkeypatch.setattr(attention, "STRENGTHS", {"range": (0.0, 8.0), "softmax": (0.0, 500.0)})
    study = replace(attention.STUDY, parts=(replace(attention.PART, rows=kept, columns=attention.COLUMNS),))
    monkeypatch.setattr(attention, "STUDY", study)
    monkeypatch.setattr(attention, "PART", study.parts[0])
    done = went(attention, tmp_path, models, seeds=(0, 1))
    (part,) = done["parts"]
    assert len(part["cells"]) == 2 * len(kept)
    for cell in part["cells"]:
        assert set(part["metrics"]) <= set(cell["metrics"]), cell
        assert all(math.isfinite(value) for value in cell["metrics"].values())
        assert cell["metrics"]["factor"] >= 1
    assert np.isclose([c["metrics"]["factor"] for c in part["cells"] if c["row"] == "No attention"], 1).all()
    assert "temperature" in reproduce.render(done)

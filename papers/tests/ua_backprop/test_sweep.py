"""The sweep over what the paper leaves open."""

import pytest
import torch

import nescio
from nescio_papers import reproduce
from nescio_papers.runner import scale as scales
from nescio_papers.runner.parts import Parts, Pictures
from nescio_papers.ua_backprop import sweep
from nescio_papers.ua_backprop.retraining import Few
from nescio_papers.ua_backprop.rows import OURS
from papers.tests.ua_backprop.conftest import went


def test_the_sweep_sees_no_test_picture_and_says_what_it_chose(small, tmp_path, models, monkeypatch):
    real, seen = Parts.known, []

    def watched(self, name, split="test"):
        seen.append(split)
        return real(self, name, split)

    retrained, tuned = Few.retrained, []

    def noted(self, row, *args):
        tuned.append((row.settings, self.x))
        return retrained(self, row, *args)

    monkeypatch.setattr(Parts, "known", watched)
    monkeypatch.setattr(Few, "retrained", noted)
    done = went(sweep, tmp_path, models)
    assert set(seen) == {"train"}
    grid, paths, members, attention = done["parts"]
    ran = {c["row"]: c["metrics"]["urr5"] for c in grid["cells"] if "metrics" in c}
    assert set(ran) == {f"τ₁ = {a:g}, τ₂ = {b:g}" for a in (0.1, 1.0) for b in (0.1, 1.0)}
    chosen = done["settings"]["chosen"]
    taken = ran[f"τ₁ = {chosen['tau1']:g}, τ₂ = {chosen['tau2']:g}"]
    assert taken <= min(ran.values()) + sweep.MARGIN
    best = next(c for c in paths["cells"] if c["row"] == OURS.label)
    assert best["metrics"]["urr5"] == taken and best["settings"]["tau1"] == chosen["tau1"]
    rho = {c["row"]: c["metrics"]["rho"] for c in members["cells"] if "metrics" in c}
    assert rho["3 members"] == pytest.approx(1.0) and rho["2 members"] < 0.9999
    assert {c["row"] for c in attention["cells"] if "metrics" in c} == {"α = 0", "α = 4"}
    train = real(Parts(scales.get("smoke"), None, models, "cpu", False), "mnist", "train").x
    count = round(0.1 * len(train))
    for settings, x in tuned:
        assert {name: settings[name] for name in ("tau1", "tau2")} == {name: chosen[name] for name in ("tau1", "tau2")}
        assert torch.equal(x, train[count : count + 30])  # those come after the held-out ones
    assert [figure["title"] for figure in done["figures"]] == ["AUC-URR by temperature"]
    reproduce.render(done)


def test_held_out_pictures_and_those_trained_on_are_apart():
    x = torch.arange(40, dtype=torch.uint8).view(40, 1, 1, 1)
    whole = Pictures(x, torch.arange(40), "some train", "", "some")
    held, rest = sweep.part_of(whole, 0, 4, "held out"), sweep.part_of(whole, 4, 40, "trained on")
    assert not set(held.y.tolist()) & set(rest.y.tolist()) and len(held.x) + len(rest.x) == 40
    assert held.id != rest.id


def test_the_best_of_the_grid_has_the_lowest_mean_over_all_sets():
    def cell(row, column, value):
        return {"row": row.label, "column": column, "seed": "all", "metrics": {"urr5": value}}

    first, second, third, *_ = sweep.GRID
    both = [cell(first, "a", 0.5), cell(first, "b", 0.5), cell(second, "a", 0.1), cell(second, "b", 0.8)]
    assert sweep.best(both) == (second.settings["tau1"], second.settings["tau2"])
    cut = [*both, cell(third, "a", 0.05)]  # a run that was cut off before its "b": no row is judged by "b"
    assert sweep.best(cut) == (third.settings["tau1"], third.settings["tau2"])
    flat = next(row for row in sweep.GRID if row.settings == {**first.settings, "tau2": 3.0})
    near = [cell(first, "a", 0.49), cell(flat, "a", 0.485)]  # hardly better, and flat
    assert sweep.best(near) == (first.settings["tau1"], first.settings["tau2"])
    assert sweep.best([*near[1:], cell(first, "a", 0.5)]) == (flat.settings["tau1"], 3.0)
    assert sweep.best([]) == (nescio.attribution.UABackprop().tau1, nescio.attribution.UABackprop().tau2)


def test_the_strength_of_attention_is_not_bought_with_accuracy():
    rows = sweep.STRENGTHS
    found = zip(rows, (0.80, 0.81, 0.795, 0.789, 0.7), (0.9, 0.8, 0.7, 0.6, 0.5), strict=True)
    cells = [{"row": r.label, "column": "mnist", "seed": 0, "metrics": {"acc": a, "nll": n}} for r, a, n in found]
    assert sweep.strength(cells) == rows[2]  # a point and more is too much
    assert sweep.strength(cells[:2]) == rows[1]
    assert sweep.strength([]) is None

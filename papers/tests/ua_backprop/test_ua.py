"""The studies of uncertainty maps, on bundled digits."""

import math
import types
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
import torch

import nescio
from nescio import evaluate, mitigate
from nescio.types import InputError
from nescio_papers import reproduce
from nescio_papers.runner import scale as scales
from nescio_papers.runner.cells import fingerprint
from nescio_papers.runner.parts import Parts, Pictures
from nescio_papers.runner.program import Job
from nescio_papers.runner.run import run
from nescio_papers.runner.scoring import TimeOver
from nescio_papers.runner.study import METRICS
from nescio_papers.ua_backprop import case as cases
from nescio_papers.ua_backprop import figures, sizes, sweep, table1, table2
from nescio_papers.ua_backprop.case import Case, picked
from nescio_papers.ua_backprop.columns import by_column
from nescio_papers.ua_backprop.ensemble import Ensemble, doubtful
from nescio_papers.ua_backprop.judging import noise_patches, patched
from nescio_papers.ua_backprop.retraining import NONE, Few
from nescio_papers.ua_backprop.rows import CONTROLS, FLOOR, MAGNITUDES, OURS, RIVALS, described
from nescio_papers.zoo import small_cnn

ROWS = ("UA-Backprop + FullGrad", "Grad", "No attention", "Random attention", "Flat attention", "Shuffled maps")
SMALLER = replace(
    sizes.SIZES["smoke"], pool=40, pictures=5, patched=3, few={"": 30}, tested=20, attended=4, held=4, epochs=1,
    trained={"": (3, 1)},
)  # fmt: skip


@pytest.fixture
def small(tiny, monkeypatch):
    """One data set, and everything smaller than at the smoke scale."""
    monkeypatch.setattr(sizes, "SIZES", {**sizes.SIZES, "smoke": SMALLER})
    for study in (table1, table2, sweep):
        monkeypatch.setattr(study, "COLUMNS", study.COLUMNS[:1])
    monkeypatch.setattr(figures, "SETS", figures.SETS[:1])


def went(study, work, models, **more):
    return run(study.STUDY, "smoke", work=work, models=models, device="cpu", progress=False, **more)


def numbers(results):
    return [
        (c["row"], c["seed"], {k: v for k, v in c.get("metrics", {}).items() if k != "seconds"})
        for part in results["parts"]
        for c in part["cells"]
    ]


@pytest.fixture
def job(small, tmp_path, models):
    return Job(Parts(scales.get("smoke"), None, models, "cpu", False), None, tmp_path, lambda: None, lambda line: None)


@pytest.mark.parametrize(
    ("part", "last"), [(*table1.PARTS[:1], 1e-3), (*table1.PARTS[1:2], 1e-3), (*table2.PARTS[:1], None)]
)
def test_the_papers_averages_come_out_of_the_copied_numbers(part, last):
    """A slip in copying a number would show here: the paper prints the averages beside them."""
    assert set(part.paper) == {row.paper for row in part.rows if row.paper}
    for label, line in part.paper.items():
        values = [cell for column, cell in line.items() if column != "avg"]
        assert len(values) == 4
        groups = [[n for cell in values for n in cell]] if part.averages == "joint" else zip(*values, strict=True)
        for at, (group, (printed, _)) in enumerate(zip(groups, line["avg"], strict=True)):
            step = last or (0.01, 0.001)[at]
            assert fmean(mean for mean, _ in group) == pytest.approx(printed, abs=0.51 * step), label


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


def test_a_set_that_fails_in_any_way_leaves_the_others(job, small):
    first, second = table2.STUDY.parts[0].columns[:2]

    def run(column):
        if column is first:
            raise RuntimeError("out of\nmemory")
        return [[{"row": "a", "column": column.key, "seed": 0, "metrics": {}}]]

    part = replace(table2.PARTS[0], rows=table2.ROWS[:2])
    (cells,) = by_column(job, [part], [first, second], run)
    assert [cell.get("reason") for cell in cells] == ["failed: RuntimeError: out of memory"] * 2 + [None]


def test_time_that_is_over_is_seen_between_members(job):
    calls = []

    def check():
        calls.append(len(calls))
        if len(calls) == 2:
            raise TimeOver

    with pytest.raises(TimeOver):
        Case.of(replace(job, check=check), "mnist")


def test_networks_of_cifar100_are_not_trained_but_taken_where_they_are(job, tmp_path):
    quick = replace(job, parts=Parts(scales.get("quick"), None, tmp_path, "cpu", False))
    with pytest.raises(InputError, match="no trained networks are at hand"):
        Case.of(quick, "cifar100")


def test_the_uncertainty_is_that_of_the_posterior():
    networks = tuple(small_cnn(1, 8, 10, kernel=3, seed=seed).eval() for seed in range(3))
    ensemble = Ensemble(networks, "some", "cpu")
    x = torch.rand(7, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 20
    wanted = nescio.decompose(ensemble.posterior.predict(x)).epistemic
    torch.testing.assert_close(ensemble.epistemic(x), wanted, rtol=0, atol=1e-12)
    y = ensemble.posterior.predict(x).mean(0).argmax(1)
    assert bool(ensemble.right(x, y).all()) and not bool(ensemble.right(x, (y + 1) % 10).any())
    assert len(ensemble.first(2).networks) == 2 and ensemble.first(2).id != ensemble.id


def test_the_most_doubtful_come_first_and_none_without_doubt():
    class Made(Ensemble):
        def epistemic(self, x):
            return x[:, 0, 0, 0].double()

    x = torch.tensor([10, 0, 200, 30], dtype=torch.uint8).view(4, 1, 1, 1)
    pictures = Pictures(x, torch.zeros(4, dtype=torch.int64), "some", "", "some")
    assert doubtful(Made((), "", "cpu"), pictures, None, 4).tolist() == [2, 3, 0]
    assert doubtful(Made((), "", "cpu"), pictures, 2, 4).tolist() == [0]


def test_patches_are_squares_and_nothing_else_is_changed(job):
    x = torch.full((50, 3, 12, 16), 2.0)
    corrupted, masks = noise_patches(x, seed=1)
    assert (masks.sum((1, 2)) == 9).all() and len(masks.unique(dim=0)) > 20
    rows, columns = masks.any(2).sum(1), masks.any(1).sum(1)
    assert (rows == 3).all() and (columns == 3).all()
    inside = masks[:, None].expand_as(x)
    assert (corrupted[~inside] == 2.0).all() and ((corrupted[inside] >= 0) & (corrupted[inside] < 1)).all()
    again, _ = noise_patches(x, seed=1)
    assert torch.equal(corrupted, again)
    case = Case.of(job, "mnist")
    found, where = patched(case, job.parts.known("mnist"), 3)
    assert 1 <= len(found) == len(where) <= 3 and found.shape[1:] == (1, 8, 8) and where.shape[1:] == (8, 8)


def test_patches_go_to_pictures_that_were_right_and_stay_where_doubt_rose_most():
    class Made(Ensemble):
        def epistemic(self, x):
            return x.double().mean((1, 2, 3))  # noise is brighter than a dark picture

        def right(self, x, y):
            return y == 1

    x = torch.tensor([250, 10, 240, 20, 0, 5], dtype=torch.uint8).view(6, 1, 1, 1).expand(6, 1, 8, 8)
    pictures = Pictures(x, torch.tensor([1, 1, 1, 1, 0, 0]), "some", "", "some")
    case = Case(None, "mnist", Made((), "", "cpu"))
    found, masks = patched(case, pictures, 2)
    clean = [one[0][~mask].unique().item() * 255 for one, mask in zip(found, masks, strict=True)]
    assert sorted(clean) == pytest.approx([10, 20])
    rise = case.ensemble.epistemic(found) - torch.tensor(clean) / 255
    assert rise[0] > rise[1] > 0
    with pytest.raises(InputError, match="gets no picture right"):
        patched(case, replace(pictures, y=torch.zeros(6, dtype=torch.int64)), 2)


def test_what_is_kept_knows_all_settings_of_a_method():
    """Maps that were kept with other defaults must not be taken for today's."""
    about = described(OURS, SMALLER)
    assert about["tau1"] == nescio.attribution.UABackprop().tau1 and about["path"] == "fullgrad"
    assert described(OURS, SMALLER, tau1=0.7)["tau1"] == 0.7
    clue = next(row for row in RIVALS if row.method == "delta_clue")
    assert described(clue, SMALLER) == {
        "method": "delta_clue", "steps": 2, "lr": 0.1, "delta": 3.5, "starts": 1, "seed": 0
    }  # fmt: skip
    assert described(FLOOR, SMALLER) == {"method": "random"}


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


def test_table_2_measures_networks_with_and_without_attention(small, tmp_path, models, monkeypatch):
    real, seen = mitigate.retrain, []

    def watched(model, data, maps, **more):
        seen.append((None if maps is None else np.asarray(maps).shape, len(data[0]), more["alpha"]))
        return real(model, data, maps, **more)

    monkeypatch.setattr(mitigate, "retrain", watched)
    monkeypatch.setattr(table2, "ROWS", [row for row in table2.ROWS if row.label in ROWS])
    done = went(table2, tmp_path, models)
    plain, attended = done["parts"]
    runs = len(table2.ROWS) * SMALLER.runs
    assert len(plain["cells"]) == len(attended["cells"]) == runs == len(seen)
    assert all({"acc", "nll"} == set(c["metrics"]) for part in done["parts"] for c in part["cells"])
    assert seen.count((None, 30, mitigate.ALPHA)) == SMALLER.runs
    assert seen.count(((30, 8, 8), 30, mitigate.ALPHA)) == runs - 2 * SMALLER.runs  # flat attention has its own α
    assert numbers(went(table2, tmp_path, models)) == numbers(done) and len(seen) == runs
    assert done["settings"]["alpha"] == mitigate.ALPHA
    assert [(m["plan"], m["seed"]) for m in done["models"]] == [("digits, 30 pictures", 0), ("digits, 30 pictures", 1)]
    assert "tested on the first 20 test pictures; the first 4 of them get maps" in done["notes"][-2]
    reproduce.render(done)


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


def test_magnitudes_are_those_of_the_maps_with_signs(job):
    """They are made from the same maps, so they have the same settings, and no time of their own."""
    case = Case.of(job, "mnist")
    x = job.parts.known("mnist").floats(0, 3)
    rows = {row.label: row for row in (*RIVALS, *MAGNITUDES)}
    for name in ("IG", "Blur IG"):
        own, bare = case.maps(rows[name], x).values, case.maps(rows[f"{name}, magnitudes"], x)
        assert (own < 0).any() and (bare.values == np.abs(own)).all() and bare.seconds == 0.0
        told, without = (described(rows[label], SMALLER) for label in (name, f"{name}, magnitudes"))
        assert told.pop("method") != without.pop("method") and told == without and told["steps"] == 2


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


def test_figures_are_drawn_from_what_was_made_before(small, tmp_path, models, monkeypatch):
    real, made = cases.explain, []
    monkeypatch.setattr(cases, "explain", lambda *args, **more: made.append(more["of"]) or real(*args, **more))
    monkeypatch.setattr(figures, "METHODS", figures.METHODS[:3])
    done = went(figures, tmp_path, models)
    assert made == ["epistemic", "aleatoric", "total", *["epistemic"] * 3]  # of the few that are drawn, and of all
    titles = [figure["title"] for figure in done["figures"]]
    assert titles == ["Kinds of uncertainty, MNIST", "Methods side by side, MNIST", "Uncertainty reduction, MNIST"]
    for figure in done["figures"]:
        assert figure["image"].startswith("<svg") and figure["alt"] in figure["image"] and "nan" not in figure["image"]
    assert done["figures"][2]["image"].count(">Random order</text>") == 1
    assert reproduce.render(done).count("<svg") == 3
    assert went(figures, tmp_path, models)["figures"] == done["figures"] and len(made) == 6


def test_a_figure_that_cannot_be_drawn_is_noted(small, tmp_path, models, monkeypatch):
    monkeypatch.setattr(cases, "explain", None)
    done = went(figures, tmp_path, models)
    assert not done["figures"] and done["notes"][-1].startswith("MNIST is not drawn, or not all of it: failed: Type")
    assert "copies = 2" in done["notes"][-2] and done["notes"][0] == figures.NOTES[0]


@pytest.mark.parametrize("study", [table1, table2, sweep, figures])
def test_declarations_hold_together(study):
    for part in study.STUDY.parts:
        assert set(part.metrics) <= set(METRICS) and part.task == "program"
        assert len({row.label for row in part.rows}) == len(part.rows)
    assert reproduce.studies()[study.STUDY.name] is study.STUDY
    assert Path(study.__file__).stem.replace("_", "-") == study.STUDY.name


def test_the_strength_of_attention_is_not_bought_with_accuracy():
    rows = sweep.STRENGTHS
    found = zip(rows, (0.80, 0.81, 0.795, 0.789, 0.7), (0.9, 0.8, 0.7, 0.6, 0.5), strict=True)
    cells = [{"row": r.label, "column": "mnist", "seed": 0, "metrics": {"acc": a, "nll": n}} for r, a, n in found]
    assert sweep.strength(cells) == rows[2]  # a point and more is too much
    assert sweep.strength(cells[:2]) == rows[1]
    assert sweep.strength([]) is None

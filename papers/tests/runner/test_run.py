import json
import math
from dataclasses import replace

import numpy as np
import pytest

from nescio import evaluate
from nescio.types import InputError, ModelError
from nescio_papers import reproduce
from nescio_papers.runner import scoring
from nescio_papers.runner.cells import Cells
from nescio_papers.runner.run import run
from nescio_papers.runner.study import Row, pairs


def numbers(results):
    """All that must not differ between two runs: every number but the times."""
    return [
        (c["row"], c["column"], c["seed"], {k: v for k, v in c.get("metrics", {}).items() if k != "seconds"})
        for part in results["parts"]
        for c in part["cells"]
    ]


@pytest.fixture
def done(tiny, tmp_path, models):
    return run(tiny, "smoke", work=tmp_path / "done", models=models, device="cpu")


def test_a_run_has_every_cell_and_says_how_it_came_about(done, tiny, tmp_path):
    detection, calibration = done["parts"]
    seeds = {cell["seed"] for cell in detection["cells"] if cell["row"] == "Entropy"}
    assert seeds == {0, 1}
    assert {cell["seed"] for cell in detection["cells"] if cell["row"] == "Ensemble"} == {"all"}
    assert len(detection["cells"]) == 2 * (4 * 2 + 1) and len(calibration["cells"]) == 4 * 2 + 1
    assert all(math.isfinite(v) for p in done["parts"] for c in p["cells"] for v in c["metrics"].values())
    assert {cell["pictures"] for cell in detection["cells"]} == {25}
    shared = {cell["row"]: cell["shared"] for cell in calibration["cells"]}
    assert shared == {"Entropy": 1, "ExGrad, L1": 1, "ExGrad, L2": 1, "KNN": 1, "Ensemble": 1}
    assert done["complete"] and len(done["models"]) == 2 and all(0 < m["accuracy"] <= 1 for m in done["models"])
    assert done["versions"]["torch"] and done["machine"]["device"] == "cpu"
    assert done["settings"]["seeds"] == {"mnist": [0, 1], "cifar10": [0, 1]}
    json.dumps(done, allow_nan=False)
    reproduce.load(reproduce.save(done, tmp_path / "out"))


def test_the_commit_is_that_of_the_start(tiny, tmp_path, models, monkeypatch):
    def goes_on(line):
        monkeypatch.setenv("NESCIO_COMMIT", "the next commit")

    monkeypatch.setenv("NESCIO_COMMIT", "the first commit")
    results = run(tiny, "smoke", work=tmp_path, models=models, device="cpu", seeds=[0], say=goes_on)
    assert results["git"] == {"commit": "the first commit", "dirty": False}


def test_the_numbers_are_those_of_evaluate(done, tmp_path):
    scores = [Cells(tmp_path).read(path).scores for path in (tmp_path / "done" / "scores").rglob("entropy-*.npz")]
    found = {round(evaluate.ood(a, b, bootstrap=0).auroc, 12) for a in scores for b in scores if a is not b}
    cells = [c for c in done["parts"][0]["cells"] if c["row"] == "Entropy"]
    assert {round(c["metrics"]["auroc"], 12) for c in cells} <= found


def test_a_run_that_was_cut_off_goes_on_and_ends_with_the_same_numbers(done, tiny, tmp_path, models, monkeypatch):
    monkeypatch.setattr(scoring, "SHARD", 10)
    real, calls = scoring.score, []

    def dies(*args, **more):
        calls.append(1)
        if len(calls) == 7:
            raise KeyboardInterrupt
        return real(*args, **more)

    again = {"work": tmp_path / "cut", "models": models, "device": "cpu"}
    monkeypatch.setattr(scoring, "score", dies)
    with pytest.raises(KeyboardInterrupt):
        run(tiny, "smoke", **again)
    kept = len(list((tmp_path / "cut" / "scores").rglob("*.npz")))
    assert kept
    finished = run(tiny, "smoke", **again)
    assert numbers(finished) == numbers(done)
    before = len(calls)
    assert numbers(run(tiny, "smoke", **again)) == numbers(done)
    assert len(calls) == before  # nothing is scored twice


def test_another_run_in_the_same_folder_that_is_behind_changes_no_number(done, tiny, tmp_path, models, monkeypatch):
    monkeypatch.setattr(scoring, "SHARD", 10)
    real, folder, behind = scoring.score, tmp_path / "both", []

    def beside(*args, **more):
        for path in (folder / "scores").rglob("*.npz"):
            cell = Cells(folder).read(path)
            if len(cell.scores) == 20:  # another process, which began with this one, has come as far as half of it
                Cells(folder).write(path, replace(cell, scores=cell.scores[:10]), {"method": "of another"})
                behind.append(path)
        return real(*args, **more)

    monkeypatch.setattr(scoring, "score", beside)
    assert numbers(run(tiny, "smoke", work=folder, models=models, device="cpu")) == numbers(done)
    assert behind


def test_a_method_that_fails_says_why_and_the_others_go_on(tiny, tmp_path, models, monkeypatch):
    real = scoring.score

    def fails(network, x, methods, **more):
        if any(method.name == "exgrad" and method.norm == 1 for method in methods):
            raise ModelError("no such\nluck")
        return real(network, x, methods, **more)

    monkeypatch.setattr(scoring, "score", fails)
    results = run(tiny, "smoke", work=tmp_path, models=models, device="cpu", seeds=[0])
    cells = {(c["row"], c["column"]): c for c in results["parts"][0]["cells"]}
    assert cells["ExGrad, L1", "mnist→omniglot"]["reason"] == "failed: ModelError: no such luck"
    assert "metrics" in cells["ExGrad, L2", "mnist→omniglot"] and "metrics" in cells["Entropy", "cifar10→svhn"]
    assert cells["Ensemble", "cifar10→svhn"]["reason"] == (
        "not run: an ensemble needs the models of at least two seeds"
    )


def test_methods_that_share_work_say_so_and_fail_apart(tiny, tmp_path, models, monkeypatch):
    rows = (Row("a", "exgrad"), Row("b", "ungrad"), Row("c", "entropy"))
    part = replace(
        tiny.parts[0], rows=rows, columns=pairs("mnist→omniglot"), paper={}, reference="a", metrics=("auroc", "rho")
    )
    study = replace(tiny, parts=(part,))
    first = run(study, "smoke", work=tmp_path / "a", models=models, device="cpu", seeds=[0])
    assert [c["shared"] for c in first["parts"][0]["cells"]] == [2, 2, 1]
    assert first["parts"][0]["cells"][0]["metrics"]["rho"] == pytest.approx(1.0)
    alone = replace(study, parts=(replace(part, alone=True),))
    second = run(alone, "smoke", work=tmp_path / "a", models=models, device="cpu", seeds=[0])
    assert [c["shared"] for c in second["parts"][0]["cells"]] == [1, 1, 1]
    fewer = run(replace(study, parts=(replace(part, most=7),)), "smoke", work=tmp_path / "a", models=models, seeds=[0])
    assert {c["pictures"] for c in fewer["parts"][0]["cells"]} == {7}
    real = scoring.score

    def fails(network, x, methods, **more):
        if any(method.name == "ungrad" for method in methods):
            raise ModelError("no")
        return real(network, x, methods, **more)

    monkeypatch.setattr(scoring, "score", fails)
    third = run(study, "smoke", work=tmp_path / "b", models=models, device="cpu", seeds=[0])
    assert ["metrics" in c for c in third["parts"][0]["cells"]] == [True, False, True]


def test_time_that_is_over_leaves_the_rest_as_not_run(tiny, tmp_path, models):
    results = run(tiny, "smoke", work=tmp_path, models=models, device="cpu", minutes=0)
    assert not results["complete"]
    assert all(
        "the time that was given was over" in c["reason"] for c in results["parts"][0]["cells"] if c["seed"] != "all"
    )


def test_data_that_are_not_at_hand_are_not_run(tiny, tmp_path, models):
    said = []
    study = replace(tiny, parts=(replace(tiny.parts[0], columns=pairs("mnist→omniglot")),))
    results = run(study, "paper", work=tmp_path, models=models, data=tmp_path, device="cpu", seeds=[0], say=said.append)
    reasons = {cell["reason"].partition(":")[0] for cell in results["parts"][0]["cells"]}
    assert reasons == {"not run"} and results["models"] == [] and "mnist" in said[0]


def test_bad_arguments_are_refused(tiny, tmp_path):
    with pytest.raises(InputError, match="expected seeds of at least 0"):
        run(tiny, "smoke", work=tmp_path, seeds=[-1])
    with pytest.raises(InputError, match="expected a scale of"):
        run(tiny, "tiny", work=tmp_path)


def test_known_and_foreign_sets_are_of_one_size(tiny, tmp_path, models, monkeypatch):
    from nescio_papers.runner.parts import Parts

    real = Parts.foreign
    monkeypatch.setattr(
        Parts, "foreign", lambda self, name, known: replace(f := real(self, name, known), x=f.x[:9], y=f.y[:9])
    )
    study = replace(tiny, parts=tiny.parts[:1])
    results = run(study, "smoke", work=tmp_path, models=models, device="cpu", seeds=[0])
    assert {cell["pictures"] for cell in results["parts"][0]["cells"] if "metrics" in cell} == {9}
    assert np.isfinite(results["seconds"])


def test_runtime_and_layers_from_the_end(tiny, tmp_path, models):
    from nescio_papers.runner.study import Part

    rows = (Row("last", "regrad", {"samples": 0, "last": 1}), Row("all", "regrad", {"samples": 0, "last": 9}))
    part = Part("Depth", "ood", pairs("mnist→fashion"), rows, ("auroc", "seconds"), alone=True)
    times = Part(
        "Time",
        "runtime",
        pairs("mnist"),
        (Row("Entropy", "entropy"), Row("ViM", "vim", {"dimension": 500})),
        ("seconds",),
    )
    study = replace(tiny, parts=(part, times))
    results = run(study, "smoke", work=tmp_path, models=models, device="cpu", seeds=[0])
    last, whole = results["parts"][0]["cells"]
    assert len(last["settings"]["select"]) == 1 and len(whole["settings"]["select"]) == 4
    entropy, vim = results["parts"][1]["cells"]
    assert entropy["metrics"]["seconds"] > 0 and vim["reason"].startswith("failed: InputError: vim: expected")

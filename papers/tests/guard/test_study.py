"""The study of the guard: its tables, its forms, and a run at the smallest size."""

import json

import numpy as np
import torch

from nescio.guard import Guard
from nescio.guard.fitting import rows_of
from nescio.quantities import compute
from nescio_papers.guard import case as cases
from nescio_papers.guard import study as programs
from nescio_papers.guard.forms import FORMS, Z, guard
from nescio_papers.reproduce import run


def test_the_form_of_the_study_is_that_of_the_guard():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    own = Guard(model).fit(torch.randn(400, 4))
    x = 3 * torch.randn(20, 4)
    (fold,) = own.fitted.folds
    rows = rows_of(own.fitted.witnesses, own.fitted.anatomy, compute(own.classifier, x, own.requests))
    seen = {w.name: fold.witnesses.z(w, rows[w.name]).numpy() for w in own.fitted.witnesses}
    z = Z(seen["doubt"][:, 0], seen["strangeness"][:, 0], seen["appearance"])
    np.testing.assert_allclose(guard(z), own.check(x).score.numpy())
    assert next(iter(FORMS)) == "guard" and all(form(z).shape == (20,) for form in FORMS.values())
    assert len(fold.ranks) == 200


def test_own_pictures_treated_as_foreign_ones_keep_their_form_and_look():
    x = (255 * torch.rand(3, 3, 8, 8).repeat_interleave(4, 2).repeat_interleave(4, 3)).to(torch.uint8)
    again = cases.resampled(x)
    assert again.shape == x.shape and again.dtype == torch.uint8
    change = (again.float() - x.float()).abs().mean()
    assert 0 < change < 20


def test_a_run_at_the_smoke_scale_fills_the_tables(tmp_path, monkeypatch, tiny):
    monkeypatch.setattr(cases, "DEARER", {})
    monkeypatch.setattr(cases, "single_methods", lambda: ["entropy", "knn"])
    sizes = cases.Sizes(pictures=25, shifted=10, references=(40, 100), main=100, training=60)
    monkeypatch.setitem(programs.SIZES, "smoke", sizes)
    found = run("guard", "smoke", work=tmp_path, models=tmp_path / "models", device="cpu")
    first = {(cell["row"], cell["column"]): cell for cell in found["parts"][0]["cells"]}
    assert 0.0 <= first["guard", "mnist→omniglot"]["metrics"]["auroc"] <= 1.0
    assert 0.0 <= first["entropy", "mnist→omniglot"]["metrics"]["auroc"] <= 1.0
    assert first["vim", "mnist→omniglot"]["reason"] == "not run for this network and seed"
    forms = [cell["row"] for part in found["parts"] if part["title"].startswith("Forms") for cell in part["cells"]]
    assert forms == list(FORMS)
    assert json.dumps(found)
    (kept,) = (tmp_path / "guard").glob("*.npz")
    kept.touch()
    again = run("guard", "smoke", work=tmp_path, models=tmp_path / "none", device="cpu")  # from what is kept
    assert again["parts"][0]["cells"] == found["parts"][0]["cells"]
